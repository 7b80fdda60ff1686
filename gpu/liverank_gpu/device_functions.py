"""Functions that users write in Python and that run on either backend.

They are translated to C++, once for both backends (liverank_gpu.operations.programs). This
small part of Python is accepted:

- numbers: integers are 64 bits wide, floats are double; `/` gives a float
- ``+ - * / // %``, comparisons, ``and``, ``or``, ``not``, ``a if condition else b``
- ``min``, ``max``, ``abs``, ``int``, ``float``, and of `math` what MATH lists, ``inf`` and ``pi``
- local variables that have a value on every path, ``if`` and ``return``; numbers that are global to
  the function, as they are when the program is made
- records of numbers: ``value.distance`` of arguments and variables, ``==`` and ``!=`` of two; where
  a record is returned, ``distance, parent`` makes one, of all fields in their order

There are no loops, calls of other functions or accesses to memory, so a call ends after as many
steps as the function has nodes. What is accepted compiles: names are ASCII, and what nests or grows
more than compilers take is refused.

Nothing fails when they run. ``n // 0`` and ``n % 0`` are 0; other results that Python refuses are
infinite or not a number; an integer that 64 bits have no room for is some other integer, the same
on both backends: see gpu/liverank_gpu/kernels/program_functions.h.

Why not cupyx.jit, which translates more of Python: it compiles whole kernels, while these functions
are parts of kernels in C++ that synchronise the device and balance rows; and it needs CuPy, which
machines without a GPU do not have, so that tests could not run what it generates.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CellType, FunctionType
from typing import Any, Literal

from liverank_gpu.errors import InvalidSource, InvalidValue

Number = Literal["int", "float", "bool"]


@dataclass(frozen=True, slots=True)
class Record:
    """The kind of a value of several numbers.

    name    of its type in C++, which has members ``field_`` and makes one by ``of``
    fields  the fields in their order, and the kind of number of each
    """

    name: str
    fields: tuple[tuple[str, Number], ...]


Kind = Number | Record

_CPP: dict[Number, str] = {"int": "long long", "float": "double", "bool": "bool"}


def cpp(kind: Kind) -> str:
    """The C++ type of a kind of value in functions."""
    return kind.name if isinstance(kind, Record) else _CPP[kind]


MATH: dict[str, Number] = {
    **dict.fromkeys(("sqrt", "exp", "log", "fabs", "pow"), "float"),
    **dict.fromkeys(("floor", "ceil"), "int"),
    **dict.fromkeys(("isinf", "isnan"), "bool"),
}
"""Functions of `math`, and what they return."""

_OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "sum_of"),
    ast.Sub: ("-", "difference_of"),
    ast.Mult: ("*", "product_of"),
}
"""The operators of floats, and the functions of integers in program_functions.h."""

_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}

_Typed = tuple[str, Kind]

NAME = re.compile("(_?[a-z]|[A-Z])(_?[A-Za-z0-9])*_?", re.ASCII)
"""What arguments, variables and parameters may be called: not like what belongs to compilers."""

MOST_CHARACTERS = 60
"""Of such a name."""

MOST_NESTED = 40
"""Expressions and statements in one another: each becomes five brackets at most, and clang takes
256.
"""

MOST_CPP = 1 << 14
"""Characters of a function in C++."""

MOST_VARIABLES = 50
"""Of a function."""

_EXPECTED: dict[type[ast.AST], str] = {
    ast.Attribute: f"one of math.inf, math.pi, math.{', math.'.join(MATH)}",
    ast.Call: "a call of min, max, abs, int, float or a function of math, by position",
    **dict.fromkeys((ast.For, ast.While, ast.ListComp, ast.GeneratorExp), "without loops"),
    **dict.fromkeys((ast.FunctionDef, ast.Lambda, ast.ClassDef), "without functions inside"),
}
"""What is said of parts of Python that programs may not use."""

_CALLED = ("min", "max", "abs", "int", "float")


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """A function of which there is only the text.

    definition  its syntax; nothing of it was executed
    constants   the names that it may use: numbers, `math`, and functions of `math`
    python      does what the C++ will do
    """

    definition: ast.FunctionDef
    constants: Mapping[str, Any]
    python: Callable[..., Any]

    def __repr__(self) -> str:
        return ast.unparse(self.definition).splitlines()[0]


@dataclass(frozen=True, slots=True)
class DeviceFunction:
    """A function for the device.

    python     the function, or what does the same
    arguments  the names of its arguments
    cpp        its definition in C++, as `name`
    """

    python: Callable[..., Any]
    arguments: tuple[str, ...]
    cpp: str


def device_function(
    field: str, function: object, name: str, known: Mapping[str, Kind], result: Kind
) -> DeviceFunction:
    """Checks and translates a function.

    field   its name in messages
    name    its name in C++
    known   the arguments that it may have, by name
    Raises InvalidValue; InvalidSource, which names the line, for what is not in the module's list.
    """
    source = function if isinstance(function, FunctionSource) else _source_of(field, function)
    definition, given = source.definition, source.definition.args
    names = tuple(each.arg for each in (*given.posonlyargs, *given.args))
    plain = not (given.vararg or given.kwarg or given.kwonlyargs or given.defaults)
    if not plain or len(set(names)) < len(names):
        raise refused(field, definition, "a function of different arguments without defaults")
    for argument in names:
        if argument not in known:
            shown, expected = _shortened(argument), f"one of {', '.join(known)}"
            raise InvalidSource(f"{field}({shown})", shown, expected, definition.lineno)
    arguments = {each: known[each] for each in names}
    translator = _Translator(field, arguments, result, source.constants)
    try:
        body = translator.function(definition)
    except RecursionError:
        raise refused(field, definition, "less nested") from None
    parameters = ", ".join(f"{cpp(known[each])} {each}_" for each in names)
    header = f"__device__ __forceinline__ {cpp(result)} {name}({parameters})"
    return DeviceFunction(source.python, names, f"{header} {{\n{body}}}\n")


def _source_of(field: str, function: object) -> FunctionSource:
    """The text of a function, and the global numbers of now. Raises InvalidValue."""
    if not inspect.isfunction(function) or hasattr(function, "__wrapped__"):
        raise InvalidValue(field, function, "a function defined by def, not wrapped by a decorator")
    try:
        text = textwrap.dedent(inspect.getsource(function))
        (definition,) = ast.parse(text).body
    except (OSError, SyntaxError, ValueError) as error:
        raise InvalidValue(field, function, "a function with its source in a file") from error
    if not isinstance(definition, ast.FunctionDef):
        raise InvalidValue(field, function, "a function defined by def")
    variables = inspect.getclosurevars(function)
    constants = {**variables.globals, **variables.nonlocals}
    cells = tuple(CellType(each.cell_contents) for each in function.__closure__ or ())
    # with the global numbers of now, as in C++
    module = dict(function.__globals__)
    as_now = FunctionType(function.__code__, module, function.__name__, None, cells)
    return FunctionSource(definition, constants, as_now)


def refused(field: str, node: ast.AST, requirement: str) -> InvalidSource:
    """The error for a part of a function."""
    line = getattr(node, "lineno", 1)
    try:
        what = ast.unparse(node).splitlines()[0]
    except (RecursionError, ValueError):  # of an integer with more digits than Python prints
        what = type(node).__name__
    return InvalidSource(f"{field}, line {line}", _shortened(what), requirement, line)


def _shortened(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + "…"


class _Translator:
    """Translates the body of one function. Variables get an underscore, so that none is a C++
    keyword.
    """

    def __init__(
        self,
        field: str,
        arguments: dict[str, Kind],
        result: Kind,
        constants: Mapping[str, Any],
    ) -> None:
        self._field = field
        self._result = result
        self._arguments = arguments
        self._variables: dict[str, Kind] = {}
        self._valued: set[str] = set()  # the variables that have a value here, whatever the path
        self._constants = constants
        self._nested = 0

    def function(self, definition: ast.FunctionDef) -> str:
        body = definition.body
        if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body = body[1:]  # the docstring
        while True:  # a variable that is a float somewhere is a float everywhere
            before = dict(self._variables)
            self._valued.clear()
            text = self._block(body, "    ")
            if before == self._variables:
                break
        if not _returns(body):
            raise self._refusal(definition, "expected a return at the end of every path")
        declared = "".join(
            f"    {cpp(kind)} {name}_{'{}' if isinstance(kind, Record) else ' = 0'};\n"
            for name, kind in self._variables.items()
            if name not in self._arguments
        )
        return declared + text

    def _block(self, statements: list[ast.stmt], indent: str) -> str:
        return "".join(self._limited(each, self._statement(each, indent)) for each in statements)

    def _limited(self, node: ast.AST, text: str) -> str:
        """The text, unless it is too long."""
        if len(text) > MOST_CPP:
            raise self._refusal(node, "expected a shorter function")
        return text

    def _enter(self, node: ast.AST, levels: int = 1) -> None:
        self._nested += levels
        if self._nested > MOST_NESTED:
            raise self._refusal(node, f"expected what is nested at most {MOST_NESTED} times")

    def _statement(self, node: ast.stmt, indent: str) -> str:
        self._enter(node)
        text = self._translated(node, indent)
        self._nested -= 1
        return text

    def _translated(self, node: ast.stmt, indent: str) -> str:
        match node:
            case ast.Return(value=ast.expr() as value):
                text, kind = self._value(value)
                if (isinstance(kind, Record) or isinstance(self._result, Record)) and (
                    kind != self._result
                ):
                    raise self._refusal(node, f"expected {_described(self._result)}")
                if self._result == "int" and kind == "float":
                    text = f"whole({text})"
                return f"{indent}return {text};\n"
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                return indent + self._assigned(node, name, self._value(value))
            case ast.AugAssign(target=ast.Name(id=name) as target, op=operator, value=value):
                read = ast.copy_location(ast.Name(target.id, ast.Load()), node)
                combined = ast.copy_location(ast.BinOp(read, operator, value), node)
                return indent + self._assigned(node, name, self._expression(combined))
            case ast.If(test=test, body=body, orelse=orelse):
                text = f"{indent}if ({self._expression(test)[0]}) {{\n"
                before = set(self._valued)
                text += self._block(body, indent + "    ")
                after, self._valued = self._valued, before
                if orelse:
                    text += f"{indent}}} else {{\n{self._block(orelse, indent + '    ')}"
                if _returns(orelse):
                    self._valued = after
                elif not _returns(body):
                    self._valued = self._valued & after
                return f"{text}{indent}}}\n"
        raise self._refusal(node)

    def _assigned(self, node: ast.AST, name: str, value: _Typed) -> str:
        text, kind = value
        if not is_name(name) or (name in self._constants and callable(self._constants[name])):
            raise self._refusal(node, "expected a variable with a plain name of its own")
        if name in self._arguments:
            if self._arguments[name] != kind:
                raise self._refusal(
                    node, "expected a variable of its own for another kind of number"
                )
        else:
            self._variables[name] = self._joined(node, self._variables.get(name, kind), kind)
            self._valued.add(name)
            if len(self._variables) > MOST_VARIABLES:
                raise self._refusal(node, f"expected at most {MOST_VARIABLES} variables")
        return f"{name}_ = {text};\n"

    def _expression(self, node: ast.expr) -> tuple[str, Number]:
        """A number. Raises InvalidValue for a record."""
        text, kind = self._value(node)
        if isinstance(kind, Record):
            raise self._refusal(node, f"expected a number: a field of {_described(kind)}")
        return text, kind

    def _value(self, node: ast.expr) -> _Typed:
        self._enter(node)
        text, kind = self._typed(node)
        self._nested -= 1
        return self._limited(node, text), kind

    def _typed(self, node: ast.expr) -> _Typed:
        match node:
            case ast.Constant(value=value) if isinstance(value, bool | int | float):
                return self._number(node, value)
            case ast.Name(id=name):
                return self._name(node, name)
            case ast.Attribute(value=ast.Name(id=module) as record, attr=name):
                if module in self._arguments or module in self._variables:
                    return self._member(node, self._name(record, module), name)
                if self._constants.get(module) is math and name in ("inf", "pi"):
                    return self._number(node, getattr(math, name))
            case ast.Tuple(elts=elements):
                return self._record(node, [self._expression(each)[0] for each in elements])
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as operator, operand=operand):
                text, kind = self._expression(operand)
                if isinstance(operator, ast.UAdd):
                    return (text, kind) if kind == "float" else (f"whole({text})", "int")
                return (f"(-{text})", kind) if kind == "float" else (f"negative_of({text})", "int")
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return f"(!{self._expression(operand)[0]})", "bool"
            case ast.BinOp(left=left, op=operator, right=right):
                return self._operation(node, self._expression(left), operator, right)
            case ast.BoolOp(op=operator, values=values):
                operands = [self._expression(each) for each in values]
                if any(kind != "bool" for _, kind in operands):
                    raise self._refusal(node, "expected conditions on both sides of and, or")
                sign = " && " if isinstance(operator, ast.And) else " || "
                return f"({sign.join(text for text, _ in operands)})", "bool"
            case ast.Compare(left=left, ops=operators, comparators=comparators):
                typed = [self._value(each) for each in (left, *comparators)]
                sides = [text for text, _ in typed]
                if any(isinstance(kind, Record) for _, kind in typed) and (
                    len({kind for _, kind in typed}) > 1
                    or not all(isinstance(each, ast.Eq | ast.NotEq) for each in operators)
                ):
                    raise self._refusal(node, "expected == or != of two records of one kind")
                parts = [
                    f"({sides[place]} {_COMPARISONS[type(each)]} {sides[place + 1]})"
                    for place, each in enumerate(operators)
                    if type(each) in _COMPARISONS
                ]
                if len(parts) == len(operators):
                    return f"({' && '.join(parts)})", "bool"
            case ast.IfExp(test=test, body=body, orelse=orelse):
                (chosen, first), (other, second) = map(self._value, (body, orelse))
                joined = self._joined(node, first, second)
                condition = self._expression(test)[0]
                cast = "" if isinstance(joined, Record) else f"({cpp(joined)})"
                return f"({condition} ? {cast}{chosen} : {cast}{other})", joined
            case ast.Call(func=function, args=arguments, keywords=[]):
                if not self._called(function):
                    raise self._refusal(node)
                self._enter(node, len(arguments))  # smaller(smaller(a, b), c)
                given = [self._expression(each) for each in arguments]
                self._nested -= len(arguments)
                return self._call(node, function, given)
        raise self._refusal(node)

    def _number(self, node: ast.AST, value: Any) -> _Typed:
        if isinstance(value, bool):
            return str(value).lower(), "bool"
        if isinstance(value, int):
            if not -(2**63) < value < 2**63:
                raise self._refusal(node, "expected an integer of 64 bits")
            return f"{value}LL" if value >= 0 else f"({value}LL)", "int"
        if math.isinf(value):
            return f"({'-' if value < 0 else ''}POSITIVE_INFINITY)", "float"
        if math.isnan(value):
            raise self._refusal(node, "expected a number")
        return f"({value.hex()})", "float"

    def _member(self, node: ast.expr, record: _Typed, name: str) -> _Typed:
        text, kind = record
        found = dict(kind.fields).get(name) if isinstance(kind, Record) else None
        if found is None:
            fields = f"expected {_described(kind)}" if isinstance(kind, Record) else ""
            raise self._refusal(node, fields)
        return f"(({_CPP[found]}){text}.{name}_)", found

    def _record(self, node: ast.expr, members: list[str]) -> _Typed:
        kind = self._result
        if not isinstance(kind, Record) or len(kind.fields) != len(members):
            raise self._refusal(node, f"expected {_described(kind)}")
        given = ", ".join(
            f"whole({each})" if of == "int" else f"(double){each}"
            for each, (_, of) in zip(members, kind.fields, strict=True)
        )
        return f"{kind.name}::of({given})", kind

    def _joined(self, node: ast.AST, first: Kind, second: Kind) -> Kind:
        if first == second:
            return first
        if isinstance(first, Record) or isinstance(second, Record):
            raise self._refusal(node, "expected values of one kind")
        return _wider(first, second)

    def _name(self, node: ast.expr, name: str) -> _Typed:
        if name in self._variables and name not in self._valued:
            raise self._refusal(node, "expected a variable that has a value on every path")
        kind = self._arguments.get(name) or self._variables.get(name)
        if kind is not None:
            return f"{name}_", kind
        value = self._constants.get(name)
        if isinstance(value, bool | int | float):
            return self._number(node, value)
        raise self._refusal(node, "expected an argument, a variable that has a value, or a number")

    def _operation(
        self,
        node: ast.AST,
        left: tuple[str, Number],
        operator: ast.operator,
        right_node: ast.expr,
    ) -> _Typed:
        (first, first_kind), (second, second_kind) = left, self._expression(right_node)
        kind: Number = "float" if "float" in (first_kind, second_kind) else "int"
        if type(operator) in _OPERATORS:
            sign, function = _OPERATORS[type(operator)]
            if kind == "int":  # of conditions too: Python's sum of them is a number
                return f"{function}({first}, {second})", kind
            return f"((double){first} {sign} (double){second})", kind
        if isinstance(operator, ast.Div):
            return f"((double){first} / (double){second})", "float"
        if isinstance(operator, ast.FloorDiv | ast.Mod) and kind == "int":
            name = "floor_quotient" if isinstance(operator, ast.FloorDiv) else "floor_remainder"
            return f"{name}({first}, {second})", "int"
        raise self._refusal(node)

    def _call(
        self, node: ast.Call, function: ast.expr, arguments: list[tuple[str, Number]]
    ) -> _Typed:
        texts, kinds = [text for text, _ in arguments], [kind for _, kind in arguments]
        name = self._called(function)
        if name in ("min", "max") and len(arguments) > 1:
            kind = kinds[0]
            for each in kinds[1:]:
                kind = _wider(kind, each)
            text = f"({_CPP[kind]}){texts[0]}"
            for other in texts[1:]:
                text = f"{'smaller' if name == 'min' else 'larger'}({text}, ({_CPP[kind]}){other})"
            return text, kind
        if len(arguments) == (2 if name == "math.pow" else 1):
            if name == "int":
                return f"whole({texts[0]})", "int"
            if name == "float":
                return f"((double){texts[0]})", "float"
            if name == "abs":
                if kinds[0] == "float":
                    return f"fabs({texts[0]})", "float"
                whole = f"(long long){texts[0]}"
                return f"larger({whole}, negative_of({texts[0]}))", "int"
            if name.startswith("math."):
                result = MATH[name.removeprefix("math.")]
                given = ", ".join(f"(double){text}" for text in texts)
                called = f"{name.removeprefix('math.')}({given})"
                cast = "whole" if result == "int" else f"({_CPP[result]})"
                return f"({cast}({called}))", result
        raise self._refusal(node)

    def _called(self, function: ast.expr) -> str:
        """``min``, ``math.sqrt``, or an empty string for a function that is not in the list."""
        match function:
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                if self._constants.get(module) is math and name in MATH:
                    return f"math.{name}"
            case ast.Name(id=name) if name in self._constants:
                value = self._constants[name]
                if any(value is getattr(math, each) for each in MATH):
                    return f"math.{value.__name__}"
            case ast.Name(id=name) if name in _CALLED:
                return name
        return ""

    def _refusal(self, node: ast.AST, expected: str = "") -> InvalidSource:
        expected = expected or _EXPECTED.get(type(node), "part of the Python of programs")
        return refused(self._field, node, expected.removeprefix("expected "))


def is_name(name: str) -> bool:
    """Whether a variable or a parameter may be called so: see NAME; not like a function."""
    plain = len(name) <= MOST_CHARACTERS and NAME.fullmatch(name)
    return bool(plain) and name not in (*_CALLED, "math")


def _described(kind: Kind) -> str:
    if isinstance(kind, Record):
        return f"a record of {', '.join(name for name, _ in kind.fields)}"
    return "a number"


def _wider(first: Number, second: Number) -> Number:
    if first == second:
        return first
    return "float" if "float" in (first, second) else "int"


def _returns(statements: list[ast.stmt]) -> bool:
    """Whether every path through the statements ends with a return."""
    if not statements:
        return False
    last = statements[-1]
    if isinstance(last, ast.If):
        return _returns(last.body) and _returns(last.orelse)
    return isinstance(last, ast.Return)
