"""Functions that users write in Python and that run on either backend.

They are translated to C++, once for both backends (liverank_gpu.operations.programs), and in the
same walk to what computes the same in Python, for the reference. This small part of Python is
accepted:

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
on both backends: see gpu/liverank_gpu/kernels/program_vertex.h.

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
from dataclasses import dataclass, field
from operator import add, eq, ge, gt, le, lt, mul, ne, sub
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np

from liverank_gpu.errors import InvalidSource, InvalidValue

# ---- what functions make of numbers, in Python: as program_vertex.h, and as `math` ----

Number = Literal["int", "float", "bool"]

MATH: dict[str, Number] = {
    **dict.fromkeys(("sqrt", "exp", "log", "fabs", "pow"), "float"),
    **dict.fromkeys(("floor", "ceil"), "int"),
    **dict.fromkeys(("isinf", "isnan"), "bool"),
}
"""Functions of `math`, and what they return."""

_HALF = 1 << 63


def wrapped(number: int) -> int:
    """What is left of an integer that 64 bits have no room for."""
    return number if -_HALF <= number < _HALF else (number + _HALF) % (2 * _HALF) - _HALF


def quotient_of(a: float, b: float) -> float:
    if b:
        return a / b
    return math.copysign(math.inf, a) * math.copysign(1.0, b) if a and a == a else math.nan


def floor_quotient(a: int, b: int) -> int:
    return wrapped(a // b) if b else 0


def floor_remainder(a: int, b: int) -> int:
    return a % b if b else 0


def whole(number: float) -> int:
    """The integer towards 0; the lowest one where 64 bits have no room for it."""
    if isinstance(number, float):
        return int(number) if -(2.0**63) <= number < 2.0**63 else -_HALF
    return int(number)


CAST: dict[Number, Callable[[Any], Any]] = {"int": whole, "float": float, "bool": bool}


def of_math(name: str) -> Callable[..., Any]:
    """A function of `math`, of all floats."""
    function, cast = getattr(np, {"pow": "power"}.get(name, name)), CAST[MATH[name]]

    def called(*numbers: float) -> Any:
        with np.errstate(all="ignore"):
            return cast(float(function(*map(np.float64, numbers))))

    return called


# ---- what is accepted, and how it is translated ----


@dataclass(frozen=True, slots=True)
class Record:
    """The kind of a value of several numbers.

    name    of its type in C++, which has members ``field_`` and makes one by ``of``
    fields  the fields in their order, and the kind of number of each
    make    one in Python, of its numbers: a tuple
    """

    name: str
    fields: tuple[tuple[str, Number], ...]
    make: Callable[..., Any] = field(compare=False)


Kind = Number | Record

_CPP: dict[Number, str] = {"int": "long long", "float": "double", "bool": "bool"}


def cpp(kind: Kind) -> str:
    """The C++ type of a kind of value in functions."""
    return kind.name if isinstance(kind, Record) else _CPP[kind]


_OPERATORS: dict[type[ast.operator], tuple[str, str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", "sum_of", add),
    ast.Sub: ("-", "difference_of", sub),
    ast.Mult: ("*", "product_of", mul),
}
"""The operators of floats, and the functions of integers in program_vertex.h."""

_WHOLE_OPERATORS: dict[type[ast.operator], tuple[str, Callable[[int, int], int]]] = {
    ast.FloorDiv: ("floor_quotient", floor_quotient),
    ast.Mod: ("floor_remainder", floor_remainder),
}
"""Those of integers alone."""

_COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Eq: ("==", eq),
    ast.NotEq: ("!=", ne),
    ast.Lt: ("<", lt),
    ast.LtE: ("<=", le),
    ast.Gt: (">", gt),
    ast.GtE: (">=", ge),
}

_Variables = dict[str, Any]
_Evaluated = Callable[[_Variables], Any]

_Of = TypeVar("_Of", bound=Kind, covariant=True)


class _Typed(NamedTuple, Generic[_Of]):
    """An expression.

    text   in C++
    kind   of its value
    value  in Python, of arguments and variables
    """

    text: str
    kind: _Of
    value: _Evaluated


def _cast(typed: _Typed[Kind], kind: Kind) -> _Evaluated:
    """Its value as another kind of number."""
    value = typed.value
    if typed.kind == kind or isinstance(kind, Record):
        return value
    cast = CAST[kind]
    return lambda variables: cast(value(variables))


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
    """

    definition: ast.FunctionDef
    constants: Mapping[str, Any]

    def __repr__(self) -> str:
        return ast.unparse(self.definition).splitlines()[0]


@dataclass(frozen=True, slots=True)
class DeviceFunction:
    """A function for the device.

    python     computes what the C++ does, of its arguments in their order
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
            line = definition.lineno
            raise InvalidSource(f"{field}({shown}), line {line}", shown, expected, line)
    arguments = {each: known[each] for each in names}
    translator = _Translator(field, arguments, result, source.constants)
    try:
        body, run = translator.function(definition)
    except RecursionError:
        raise refused(field, definition, "less nested") from None
    parameters = ", ".join(f"{cpp(known[each])} {each}_" for each in names)
    header = f"__device__ __forceinline__ {cpp(result)} {name}({parameters})"

    def python(*values: Any) -> Any:
        return run(dict(zip(names, values, strict=True)))

    return DeviceFunction(python, names, f"{header} {{\n{body}}}\n")


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
    return FunctionSource(definition, {**variables.globals, **variables.nonlocals})


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

    def function(self, definition: ast.FunctionDef) -> tuple[str, _Evaluated]:
        """Its body in C++, and in Python."""
        body = definition.body
        if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body = body[1:]  # the docstring
        while True:  # a variable that is a float somewhere is a float everywhere
            before = dict(self._variables)
            self._valued.clear()
            text, run = self._block(body, "    ")
            self._limited(definition, text)
            if before == self._variables:
                break
        if not _returns(body):
            raise self._refusal(definition, "expected a return at the end of every path")
        declared = "".join(
            f"    {cpp(kind)} {name}_{'{}' if isinstance(kind, Record) else ' = 0'};\n"
            for name, kind in self._variables.items()
            if name not in self._arguments
        )
        return declared + text, run

    def _block(self, statements: list[ast.stmt], indent: str) -> tuple[str, _Evaluated]:
        """Statements in C++; in Python what they return, None if nothing."""
        found = [self._statement(each, indent) for each in statements]
        parts = [run for _, run in found]

        def run(variables: _Variables) -> Any:
            for each in parts:
                if (returned := each(variables)) is not None:
                    return returned
            return None

        return "".join(text for text, _ in found), run

    def _limited(self, node: ast.AST, text: str) -> str:
        """The text, unless it is too long."""
        if len(text) > MOST_CPP:
            raise self._refusal(node, "expected a shorter function")
        return text

    def _enter(self, node: ast.AST, levels: int = 1) -> None:
        self._nested += levels
        if self._nested > MOST_NESTED:
            raise self._refusal(node, f"expected what is nested at most {MOST_NESTED} times")

    def _statement(self, node: ast.stmt, indent: str) -> tuple[str, _Evaluated]:
        self._enter(node)
        text, run = self._translated(node, indent)
        self._nested -= 1
        return self._limited(node, text), run

    def _translated(self, node: ast.stmt, indent: str) -> tuple[str, _Evaluated]:
        match node:
            case ast.Return(value=ast.expr() as value):
                text, kind, _ = returned = self._value(value)
                if (isinstance(kind, Record) or isinstance(self._result, Record)) and (
                    kind != self._result
                ):
                    raise self._refusal(node, f"expected {_described(self._result)}")
                if self._result == "int" and kind == "float":
                    text = f"whole({text})"
                return f"{indent}return {text};\n", _cast(returned, self._result)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                return self._assigned(node, indent, name, self._value(value))
            case ast.AugAssign(target=ast.Name(id=name) as target, op=operator, value=value):
                read = ast.copy_location(ast.Name(target.id, ast.Load()), node)
                combined = ast.copy_location(ast.BinOp(read, operator, value), node)
                return self._assigned(node, indent, name, self._expression(combined))
            case ast.If(test=test, body=body, orelse=orelse):
                condition = self._expression(test)
                holds, before = condition.value, set(self._valued)
                chosen, run_chosen = self._block(body, indent + "    ")
                after, self._valued = self._valued, before
                other, run_other = self._block(orelse, indent + "    ")
                text = f"{indent}if ({condition.text}) {{\n{chosen}"
                if orelse:
                    text += f"{indent}}} else {{\n{other}"
                if _returns(orelse):
                    self._valued = after
                elif not _returns(body):
                    self._valued = self._valued & after

                def run(variables: _Variables) -> Any:
                    return (run_chosen if holds(variables) else run_other)(variables)

                return f"{text}{indent}}}\n", run
        raise self._refusal(node)

    def _assigned(
        self, node: ast.AST, indent: str, name: str, given: _Typed[Kind]
    ) -> tuple[str, _Evaluated]:
        text, kind, _ = given
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
        value = _cast(given, self._arguments.get(name) or self._variables[name])

        def run(variables: _Variables) -> None:
            variables[name] = value(variables)

        return f"{indent}{name}_ = {text};\n", run

    def _expression(self, node: ast.expr) -> _Typed[Number]:
        """A number. Raises InvalidSource for a record."""
        text, kind, value = self._value(node)
        if isinstance(kind, Record):
            raise self._refusal(node, f"expected a number: a field of {_described(kind)}")
        return _Typed(text, kind, value)

    def _value(self, node: ast.expr) -> _Typed[Kind]:
        self._enter(node)
        typed = self._typed(node)
        self._nested -= 1
        self._limited(node, typed.text)
        return typed

    def _typed(self, node: ast.expr) -> _Typed[Kind]:
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
                return self._record(node, [self._expression(each) for each in elements])
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Not() as operator, operand=operand):
                return _signed(operator, self._expression(operand))
            case ast.BinOp(left=left, op=operator, right=right):
                return self._operation(node, self._expression(left), operator, right)
            case ast.BoolOp(op=operator, values=values):
                operands = [self._expression(each) for each in values]
                if any(each.kind != "bool" for each in operands):
                    raise self._refusal(node, "expected conditions on both sides of and, or")
                both = isinstance(operator, ast.And)
                sign, holding = (" && ", all) if both else (" || ", any)
                return _Typed(
                    f"({sign.join(each.text for each in operands)})",
                    "bool",
                    lambda variables: holding(each.value(variables) for each in operands),
                )
            case ast.Compare(left=left, ops=operators, comparators=comparators):
                sides = [self._value(each) for each in (left, *comparators)]
                if any(isinstance(each.kind, Record) for each in sides) and (
                    len({each.kind for each in sides}) > 1
                    or not all(isinstance(each, ast.Eq | ast.NotEq) for each in operators)
                ):
                    raise self._refusal(node, "expected == or != of two records of one kind")
                if all(type(each) in _COMPARISONS for each in operators):
                    pairs = zip(sides, map(type, operators), sides[1:], strict=False)
                    parts = [_compared(a, _COMPARISONS[sign], b) for a, sign, b in pairs]
                    return _Typed(
                        f"({' && '.join(text for text, _ in parts)})",
                        "bool",
                        lambda variables: all(holds(variables) for _, holds in parts),
                    )
            case ast.IfExp(test=test, body=body, orelse=orelse):
                sides = [self._value(each) for each in (body, orelse)]
                joined = self._joined(node, *(each.kind for each in sides))
                first, second = (_cast(each, joined) for each in sides)
                condition = self._expression(test)
                holds = condition.value
                cast = "" if isinstance(joined, Record) else f"({cpp(joined)})"
                return _Typed(
                    f"({condition.text} ? {cast}{sides[0].text} : {cast}{sides[1].text})",
                    joined,
                    lambda variables: (first if holds(variables) else second)(variables),
                )
            case ast.Call(func=function, args=arguments, keywords=[]):
                if not self._called(function):
                    raise self._refusal(node)
                self._enter(node, len(arguments))  # smaller(smaller(a, b), c)
                numbers = [self._expression(each) for each in arguments]
                self._nested -= len(arguments)
                return self._call(node, function, numbers)
        raise self._refusal(node)

    def _number(self, node: ast.AST, value: Any) -> _Typed[Number]:
        if isinstance(value, bool):
            return _Typed(str(value).lower(), "bool", lambda _: value)
        if isinstance(value, int):
            if not -(2**63) < value < 2**63:
                raise self._refusal(node, "expected an integer of 64 bits")
            return _Typed(f"{value}LL" if value >= 0 else f"({value}LL)", "int", lambda _: value)
        if math.isnan(value):
            raise self._refusal(node, "expected a number")
        infinite = f"({'-' if value < 0 else ''}POSITIVE_INFINITY)"
        text, plain = infinite if math.isinf(value) else f"({value.hex()})", float(value)
        return _Typed(text, "float", lambda _: plain)

    def _member(self, node: ast.expr, record: _Typed[Kind], name: str) -> _Typed[Number]:
        text, kind, value = record
        found = dict(kind.fields).get(name) if isinstance(kind, Record) else None
        if found is None or not isinstance(kind, Record):
            fields = f"expected {_described(kind)}" if isinstance(kind, Record) else ""
            raise self._refusal(node, fields)
        place = [each for each, _ in kind.fields].index(name)
        return _Typed(f"(({_CPP[found]}){text}.{name}_)", found, lambda of: value(of)[place])

    def _record(self, node: ast.expr, members: list[_Typed[Number]]) -> _Typed[Kind]:
        kind = self._result
        if not isinstance(kind, Record) or len(kind.fields) != len(members):
            raise self._refusal(node, f"expected {_described(kind)}")
        given = ", ".join(
            f"whole({each.text})" if of == "int" else f"(double){each.text}"
            for each, (_, of) in zip(members, kind.fields, strict=True)
        )
        make = kind.make
        return _Typed(
            f"{kind.name}::of({given})",
            kind,
            lambda variables: make(*(each.value(variables) for each in members)),
        )

    def _joined(self, node: ast.AST, first: Kind, second: Kind) -> Kind:
        if first == second:
            return first
        if isinstance(first, Record) or isinstance(second, Record):
            raise self._refusal(node, "expected values of one kind")
        return _wider(first, second)

    def _name(self, node: ast.expr, name: str) -> _Typed[Kind]:
        if name in self._variables and name not in self._valued:
            raise self._refusal(node, "expected a variable that has a value on every path")
        kind = self._arguments.get(name) or self._variables.get(name)
        if kind is not None:
            return _Typed(f"{name}_", kind, lambda variables: variables[name])
        value = self._constants.get(name)
        if isinstance(value, bool | int | float):
            return self._number(node, value)
        raise self._refusal(node, "expected an argument, a variable that has a value, or a number")

    def _operation(
        self, node: ast.AST, left: _Typed[Number], operator: ast.operator, right_node: ast.expr
    ) -> _Typed[Number]:
        right = self._expression(right_node)
        kind: Number = "float" if "float" in (left.kind, right.kind) else "int"
        a, b = left.value, right.value
        if type(operator) in _OPERATORS:
            sign, function, combine = _OPERATORS[type(operator)]
            if kind == "int":  # of conditions too: Python's sum of them is a number
                return _Typed(
                    f"{function}({left.text}, {right.text})",
                    "int",
                    lambda variables: wrapped(combine(a(variables), b(variables))),
                )
            a, b = _cast(left, "float"), _cast(right, "float")
            return _Typed(
                f"((double){left.text} {sign} (double){right.text})",
                "float",
                lambda variables: combine(a(variables), b(variables)),
            )
        if isinstance(operator, ast.Div):
            a, b = _cast(left, "float"), _cast(right, "float")
            return _Typed(
                f"((double){left.text} / (double){right.text})",
                "float",
                lambda variables: quotient_of(a(variables), b(variables)),
            )
        if type(operator) in _WHOLE_OPERATORS and kind == "int":
            function, of_integers = _WHOLE_OPERATORS[type(operator)]
            return _Typed(
                f"{function}({left.text}, {right.text})",
                "int",
                lambda variables: of_integers(int(a(variables)), int(b(variables))),
            )
        raise self._refusal(node)

    def _call(
        self, node: ast.Call, function: ast.expr, arguments: list[_Typed[Number]]
    ) -> _Typed[Number]:
        kinds, name = [each.kind for each in arguments], self._called(function)
        if name in ("min", "max") and len(arguments) > 1:
            kind = kinds[0]
            for each in kinds[1:]:
                kind = _wider(kind, each)
            text = f"({_CPP[kind]}){arguments[0].text}"
            chosen, first_of = ("smaller", min) if name == "min" else ("larger", max)
            for other in arguments[1:]:
                text = f"{chosen}({text}, ({_CPP[kind]}){other.text})"
            values = [_cast(each, kind) for each in arguments]
            return _Typed(text, kind, lambda of: first_of(value(of) for value in values))
        if len(arguments) != (2 if name == "math.pow" else 1):
            raise self._refusal(node)
        text, kind, value = given = arguments[0]
        if name == "int":
            return _Typed(f"whole({text})", "int", _cast(given, "int"))
        if name == "float":
            return _Typed(f"((double){text})", "float", _cast(given, "float"))
        if name == "abs":
            if kind == "float":
                return _Typed(f"fabs({text})", "float", lambda variables: abs(value(variables)))
            larger = f"larger((long long){text}, negative_of({text}))"
            return _Typed(larger, "int", lambda variables: wrapped(abs(value(variables))))
        if name.startswith("math."):
            own = name.removeprefix("math.")
            result, called = MATH[own], of_math(own)
            texts = ", ".join(f"(double){each.text}" for each in arguments)
            values = [_cast(each, "float") for each in arguments]
            return _Typed(
                f"({'whole' if result == 'int' else f'({_CPP[result]})'}({own}({texts})))",
                result,
                lambda variables: called(*(value(variables) for value in values)),
            )
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


def _signed(operator: ast.unaryop, operand: _Typed[Number]) -> _Typed[Number]:
    """``-a``, ``+a`` or ``not a``."""
    text, kind, value = operand
    if isinstance(operator, ast.Not):
        return _Typed(f"(!{text})", "bool", lambda variables: not value(variables))
    if isinstance(operator, ast.UAdd):
        return operand if kind == "float" else _Typed(f"whole({text})", "int", value)
    if kind == "float":
        return _Typed(f"(-{text})", kind, lambda variables: -value(variables))
    return _Typed(f"negative_of({text})", "int", lambda variables: wrapped(-value(variables)))


def _compared(
    left: _Typed[Kind], sign: tuple[str, Callable[[Any, Any], bool]], right: _Typed[Kind]
) -> tuple[str, _Evaluated]:
    """Both sides of a comparison, in C++ and in Python: as floats if one is."""
    text, holds = sign
    as_floats = {left.kind, right.kind} > {"float"}
    a, b = (_cast(each, "float" if as_floats else each.kind) for each in (left, right))
    compared = f"({left.text} {text} {right.text})"
    return compared, lambda variables: holds(a(variables), b(variables))


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
