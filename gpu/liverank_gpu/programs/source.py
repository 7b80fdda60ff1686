"""Programs that are only text: a class in Python, checked and translated, of which nothing is
executed.

    import math

    class Widest:
        dtype = "float64"
        identity = 0.0
        merge = "max"
        parameters = {"source": 0}
        monotone = True

        def initial(vertex, source):
            return math.inf if vertex == source else 0.0

        def gather(source_value, weight):
            return min(source_value, weight)

        def apply(old, gathered):
            return max(old, gathered)

        def scatter(old, new):
            return old != new

The attributes are the options of VertexProgram, as literals, such as ``dtype = {"length":
"float64", "hops": "int32"}`` for records; the functions may be static methods. Before the class
there may be imports of `math` and numbers with names.

Text of strangers is read in three steps, of which each takes what the one before it left: tokens of
a short list, few and in few brackets, so that Python's parser neither recurses deeply nor takes
long; the syntax of such a class; and functions that liverank_gpu.device_functions translates.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from liverank_gpu.device_functions import MATH, MOST_CHARACTERS, FunctionSource, refused
from liverank_gpu.errors import InvalidSource, InvalidValue
from liverank_gpu.operations.programs import VertexProgram

MOST_SOURCE = 1 << 14
"""Characters of a program."""

MOST_BRACKETS = 30
"""In one another."""

MOST_TOKENS = 1000
"""From one end of a line outside brackets to the next."""

FUNCTIONS = ("initial", "gather", "merge", "apply", "scatter")
"""Those that every program has."""

_EVERY_FUNCTION = (*FUNCTIONS, "aggregate", "sends", "edge_apply")

_KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    **dict.fromkeys(("merge", "aggregator", "direction"), ("str", (str,))),
    **dict.fromkeys(("every_vertex", "monotone", "first_wins", "loops"), ("bool", (bool,))),
    **dict.fromkeys(("parameters", "limits"), ("dict", (dict,))),
    **dict.fromkeys(("dtype", "edge_dtype"), ("str, or a dict of fields", (str, dict))),
    **dict.fromkeys(("identity", "edge_initial"), ("a number, or a tuple", (int, float, tuple))),
    "supersteps": ("int", (int,)),
}
"""The options, and what they are."""

_TOKEN = re.compile(
    r"""
    (?P<end>\n)
    | (?P<skipped>[ \t]+|\#[^\n]*)
    | (?P<text>\"{3}(?:[^"\\]|"(?!""))*\"{3}|'{3}(?:[^'\\]|'(?!''))*'{3}|"[^"\\\n]*"|'[^'\\\n]*')
    | (?P<word>[A-Za-z_0-9.]+)
    | (?P<opened>[(\[{])
    | (?P<closed>[)\]}])
    | (?P<sign>[-+*/%<>=!,:@])
    """,
    re.VERBOSE | re.ASCII,
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def program_of_source(
    name: str, source: str, taken: Collection[str] = (), taken_of_edges: Collection[str] = ()
) -> VertexProgram:
    """The program that a class in `source` defines.

    name                   in messages
    taken, taken_of_edges  what no field of a record of `dtype`, or of `edge_dtype`, but the first
                           may be called

    Raises InvalidSource, with the line.
    """
    try:
        taken_in = {"dtype": taken, "edge_dtype": taken_of_edges}
        return _Reader(name, source, taken_in).program()
    except RecursionError:
        raise InvalidSource("source", name, "less nested", 1) from None


def _check_tokens(source: str) -> None:
    """Raises InvalidSource for what is in no program, and for more than Python parses quickly."""
    line, place, depth, tokens, before = 1, 0, 0, 0, None
    if len(source) > MOST_SOURCE:
        raise InvalidSource("source", len(source), f"at most {MOST_SOURCE:,} characters", 1)
    if found := _CONTROL.search(source):
        line += source.count("\n", 0, found.start())
        raise InvalidSource(
            f"source, line {line}", found[0], "text without control characters", line
        )
    while place < len(source):
        token = _TOKEN.match(source, place)
        if token is None or (token.lastgroup == "text" and before == "word"):  # such as f"…"
            requirement = "part of a program: see docs/programs.md"
            raise InvalidSource(f"source, line {line}", source[place], requirement, line)
        place, kind = token.end(), token.lastgroup
        before = kind
        line += token[0].count("\n")
        depth += (kind == "opened") - (kind == "closed")
        tokens = 0 if kind == "end" and depth <= 0 else tokens + (kind != "skipped")
        if depth > MOST_BRACKETS:
            requirement = f"in at most {MOST_BRACKETS} brackets"
            raise InvalidSource(f"source, line {line}", token[0], requirement, line)
        if tokens > MOST_TOKENS:
            requirement = f"after at most {MOST_TOKENS:,} others of its line"
            raise InvalidSource(f"source, line {line}", token[0], requirement, line)


class _Reader:
    """Reads the source of one program."""

    def __init__(self, name: str, source: str, taken: Mapping[str, Collection[str]]) -> None:
        self._name, self._taken = name, taken
        self._source = source.replace("\r\n", "\n")
        self._constants: dict[str, Any] = {"math": math}
        self._given: dict[str, Any] = {}
        self._lines: dict[str, int] = {}

    def program(self) -> VertexProgram:
        _check_tokens(self._source)
        try:
            module = ast.parse(self._source)
        except SyntaxError as error:
            line, text = error.lineno or 1, (error.text or "").strip()[:60]
            requirement = f"Python: {error.msg}"
            raise InvalidSource(f"source, line {line}", text, requirement, line) from None
        except (ValueError, MemoryError) as error:  # MemoryError: what it says of deep nesting
            raise InvalidSource("source", str(error), "Python", 1) from None
        found: ast.ClassDef | None = None
        for node in self._statements(module.body):
            if self._before(node):
                continue
            match node:
                case ast.ClassDef(bases=[], keywords=[], decorator_list=[]) if found is None:
                    found = node
                case _:
                    expected = "one class without bases, an import of math, or a number with a name"
                    raise self._refused(node, expected)
        if found is None:
            raise InvalidSource("source", self._name, "a class with the program", 1)
        for node in self._statements(found.body):
            self._take(node)
        return self._made(found)

    def _statements(self, body: list[ast.stmt]) -> Iterator[ast.stmt]:
        """All but a docstring."""
        for place, node in enumerate(body):
            match node:
                case ast.Expr(value=ast.Constant(value=str())) if place == 0:
                    continue
            yield node

    def _before(self, node: ast.stmt) -> bool:
        """Whether it may come before the class; it is then taken."""
        match node:
            case ast.ImportFrom(module="math", names=names, level=0):
                known = {each.name: each.asname or each.name for each in names}
                if unknown := known.keys() - {*MATH, "inf", "pi"}:
                    listed = ", ".join((*MATH, "inf", "pi"))
                    raise self._refused(node, f"one of {listed}, not {min(unknown)}")
                self._constants |= {own: getattr(math, name) for name, own in known.items()}
            case ast.Import(names=[ast.alias(name="math", asname=own)]):
                self._constants[own or "math"] = math
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found = self._literal(value)
                if not isinstance(found, int | float):
                    raise self._refused(node, "a number")
                self._constants[name] = found
            case _:
                return False
        return True

    def _take(self, node: ast.stmt) -> None:
        """One option or function of the class."""
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if name in _KINDS:
                found = self._option(name, value)
            case ast.FunctionDef(name=name, decorator_list=decorators) if name in _EVERY_FUNCTION:
                for each in decorators:
                    if not (isinstance(each, ast.Name) and each.id == "staticmethod"):
                        raise self._refused(each, "no decorator but staticmethod")
                found = FunctionSource(node, self._constants)
            case _:
                options = ", ".join(each for each in _KINDS if each not in _EVERY_FUNCTION)
                functions = ", ".join(_EVERY_FUNCTION)
                expected = f"a function, one of {functions}, or an option: {options}"
                raise self._refused(node, expected)
        if name in self._given:
            raise self._refused(node, f"one {name}")
        self._given[name], self._lines[name] = found, node.lineno

    def _option(self, name: str, node: ast.expr) -> Any:
        found: Any = self._literal(node)
        words, kinds = _KINDS[name]
        if not isinstance(found, kinds) or isinstance(found, bool) != (bool in kinds):
            raise self._refused(node, f"of the kind of {name}: {words}")
        if name in self._taken and isinstance(found, dict):
            for each in [*found][1:]:
                if each in self._taken[name]:
                    raise self._refused(node, f"a dict without {each} after the first field")
        if name == "limits" and "source" in found:
            raise self._refused(node, "without source, which is a vertex")
        if name in _ITEMS and not all(map(_ITEMS[name][1], found.values())):
            raise self._refused(node, f"a dict of {_ITEMS[name][0]}")
        return found

    def _made(self, found: ast.ClassDef) -> VertexProgram:
        for name in ("dtype", "identity", *FUNCTIONS):
            if name not in self._given:
                raise self._refused(found, f"a class that has {name}")
        try:
            return VertexProgram(name=self._name, **self._given)
        except InvalidSource:
            raise
        except InvalidValue as error:
            place = error.field.removeprefix(f"{self._name}.").split(".")[0]
            other = {"edge_apply": "edge_dtype"}.get(place, "parameters")
            line = self._lines.get(place, self._lines.get(other, found.lineno))
            field = f"{error.field}, line {line}"
            raise InvalidSource(field, error.value, error.requirement, line) from None

    def _literal(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=bool() | float() as value):
                return value
            case ast.Constant(value=str() as value) if len(value) <= MOST_CHARACTERS:
                return value
            case ast.Constant(value=int() as value) if value < 2**63:
                return value
            case ast.Name(id=name) if isinstance(self._constants.get(name), int | float):
                return self._constants[name]
            case ast.Attribute(value=ast.Name(id=module), attr="inf" | "pi" as name):
                if self._constants.get(module) is math:
                    return getattr(math, name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                if isinstance(number := self._literal(operand), int | float):
                    return -number
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return tuple(map(self._literal, parts))
            case ast.Dict(keys=keys, values=values):
                names = [self._literal(each) for each in keys if each is not None]
                plain = all(isinstance(name, str) for name in names)
                if plain and len(set(names)) == len(keys):
                    return dict(zip(names, map(self._literal, values), strict=True))
        raise self._refused(
            node, "a number of 64 bits, a short text, True, False, a tuple, or a dict by names"
        )

    def _refused(self, node: ast.AST, requirement: str) -> InvalidSource:
        return refused(self._name, node, requirement)


def _is_finite(found: Any) -> bool:
    return isinstance(found, int | float) and math.isfinite(found)


def _is_pair(found: Any) -> bool:
    match found:
        case (int() | float(), int() | float()):
            return True
    return False


_ITEMS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "parameters": ("finite numbers", _is_finite),
    "limits": ("pairs, (least, largest)", _is_pair),
}
"""What the dicts of options have, but those of types."""
