"""Vertex programs, their supersteps on a graph or on windows of its in-lists, and the source that
they become.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import namedtuple
from collections.abc import Callable, Mapping
from ctypes import c_float, c_int32
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from keyword import iskeyword
from typing import Any, Literal, NamedTuple, NoReturn, Self, get_args

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.device_functions import (
    MOST_CHARACTERS,
    DeviceFunction,
    Kind,
    Number,
    Record,
    cpp,
    device_function,
    is_name,
    whole,
)
from liverank_gpu.errors import InvalidValue
from liverank_gpu.operations.csr import GraphView, Operation, Rows
from liverank_gpu.operations.device import Array

# ---- the parameters of programs: integers and floats, by name ----

Limits = Mapping[str, tuple[float, float]]
"""The least and the largest value of the parameters that may not take every value."""

SOURCE = "source"
"""The parameter that is the id of a vertex."""


def parameter_values(
    program: str, defaults: Mapping[str, float], given: Mapping[str, float], limits: Limits
) -> dict[str, float]:
    """All parameters, the given ones in place of their defaults. Raises InvalidValue for others,
    for another kind of number, and for one outside its limits.
    """
    for name in given:
        if name not in defaults:
            known = ", ".join(defaults) or "no parameter"
            raise InvalidValue(f"{program}({name})", given[name], f"one of: {known}")
    return {
        name: _checked(name, given.get(name, default), kind_of(name, default), limits)
        for name, default in defaults.items()
    }


def kind_of(name: str, value: object) -> Number:
    """The kind of a parameter. Raises InvalidValue."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise InvalidValue(name, value, "an integer or a float")
    return "int" if isinstance(value, int | np.integer) else "float"


def _checked(name: str, value: Any, kind: Kind, limits: Limits) -> float:
    if kind_of(name, value) == "float" and kind == "int":
        raise InvalidValue(name, value, "an integer")
    if kind == "int" and not -(2**63) <= value < 2**63:
        raise InvalidValue(name, value, "an integer of 64 bits")
    least, largest = limits.get(name, (-math.inf, math.inf))
    if not least <= value <= largest:  # nor a NaN
        between = f"from {least:g} to {largest:g}" if largest < math.inf else f"at least {least:g}"
        raise InvalidValue(name, value, between if name in limits else "a number")
    return int(value) if kind == "int" else float(value)


def parameter_record(parameters: Mapping[str, float], vertices: int) -> NDArray[np.void]:
    """The number of vertices and the parameters as one record: int64 and float64 members."""
    values = {"vertices": vertices, **parameters}
    dtype = [
        (name, np.int64 if kind_of(name, value) == "int" else np.float64)
        for name, value in values.items()
    ]
    record = np.zeros((), dtype)
    for name, value in values.items():
        record[name] = value
    return record


# ---- values: numbers, or records of them ----

ValueType = Literal["int32", "int64", "float32", "float64"]
Fields = Mapping[str, ValueType]
Constant = float | tuple[float, ...]
"""A number, or those of a record."""

FIELD = re.compile("[A-Za-z](_?[A-Za-z0-9])*_?", re.ASCII)
"""What fields of records may be called."""

MOST_FIELDS = 8

KINDS: dict[str, Number] = {"int32": "int", "int64": "int", "float32": "float", "float64": "float"}
"""The kind of number that functions get for a value of each type."""

_VALUE_TYPES = {"int32": "int", "int64": "long long", "float32": "float", "float64": "double"}


@dataclass(frozen=True)
class Layout:
    """How values are stored. Records are rows of int64, which have the bits of a struct of C++: the
    wide fields, then the narrow ones.

    name    of the type in C++
    fields  names and types; of numbers one without a name
    """

    name: str
    fields: tuple[tuple[str, ValueType], ...]

    @classmethod
    def of(cls, name: str, field: str, given: Any) -> Layout:
        """field: its name in errors. Raises InvalidValue."""
        if isinstance(given, Mapping):
            if not 1 <= len(given) <= MOST_FIELDS:
                raise InvalidValue(field, given, f"a record of 1 to {MOST_FIELDS} fields")
            for each, kind in given.items():
                named = isinstance(each, str) and len(each) <= MOST_CHARACTERS
                if not named or iskeyword(each) or not FIELD.fullmatch(each):
                    raise InvalidValue(field, each, "a plain name without an underscore before it")
                if not isinstance(kind, str) or kind not in KINDS:
                    raise InvalidValue(f"{field}.{each}", kind, _ANY_TYPE)
            return cls(name, tuple(given.items()))
        if given not in get_args(ValueType):
            raise InvalidValue(field, given, f"{_ANY_TYPE}, or these by the names of fields")
        return cls(name, (("", given),))

    @property
    def is_record(self) -> bool:
        return self.fields[0][0] != ""

    @property
    def kind(self) -> Kind:
        """What functions get."""
        kinds = tuple((name, KINDS[each]) for name, each in self.fields)
        return Record(self.name, kinds, self.record) if self.is_record else kinds[0][1]

    def record(self, *numbers: float) -> Any:
        """A record as functions in Python get it, of numbers as they are stored."""
        kinds = (kind for _, kind in self.fields)
        return record_type(self)._make(map(stored_number, numbers, kinds))

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Of values on the host."""
        if not self.is_record:
            return np.dtype(self.fields[0][1])
        order = self._stored()
        sizes = [np.dtype(each).itemsize for _, each in order]
        offset = {name: sum(sizes[:place]) for place, (name, _) in enumerate(order)}
        names = [name for name, _ in self.fields]
        return np.dtype(
            {
                "names": names,
                "formats": [each for _, each in self.fields],
                "offsets": [offset[name] for name in names],
                "itemsize": -(-sum(sizes) // 8) * 8,
            }
        )

    def _stored(self) -> list[tuple[str, ValueType]]:
        """The fields as they lie."""
        return sorted(self.fields, key=lambda each: -np.dtype(each[1]).itemsize)

    @property
    def words(self) -> int:
        """int64 of a record."""
        return self.dtype.itemsize // 8

    def array(self, count: int, allocate: Callable[[int, Any], Array]) -> Array:
        """An array of so many values: dtype[n], or int64[n, words].

        allocate  (number of elements, dtype) → array
        """
        if not self.is_record:
            return allocate(count, self.dtype.type)
        return allocate(count * self.words, np.int64).reshape(count, self.words)

    def element(self, value: Constant) -> Any:
        """A value as it is stored: a number, or int64[words]."""
        if not isinstance(value, tuple):
            return value
        record = np.zeros(1, self.dtype)
        record[0] = value
        return record.view(np.int64)

    def on_host(self, array: NDArray[Any]) -> NDArray[Any]:
        """dtype[n], of an array on the host."""
        if not self.is_record:
            return array
        return np.ascontiguousarray(array).view(self.dtype).reshape(len(array))

    def differs(self, xp: Any, array: Array, value: Constant) -> Array:
        """bool[n], whether each is not this value."""
        if not self.is_record:
            return array != value
        return (array != xp.asarray(self.element(value))).any(axis=1)

    def constant(self, field: str, given: Any) -> Constant:
        """A value as Python's own numbers. Raises InvalidValue if there is no such value."""
        if not self.is_record:
            return _constant(field, given, self.fields[0][1])
        if not isinstance(given, tuple) or len(given) != len(self.fields):
            names = ", ".join(name for name, _ in self.fields)
            raise InvalidValue(field, given, f"a tuple of {names}")
        return tuple(
            _constant(f"{field}.{name}", number, kind)
            for number, (name, kind) in zip(given, self.fields, strict=True)
        )

    def literal(self, value: Constant) -> str:
        """A value in C++."""
        if not isinstance(value, tuple):
            return f"({self.name}){number(value)}"
        numbers = dict(zip((name for name, _ in self.fields), value, strict=True))
        given = ", ".join(
            f"({_VALUE_TYPES[kind]}){number(numbers[name])}" for name, kind in self._stored()
        )
        return f"({self.name}{{{given}{', 0' if self._padded else ''}}})"

    @property
    def _padded(self) -> bool:
        return sum(np.dtype(kind).itemsize for _, kind in self.fields) % 8 != 0

    def declaration(self) -> list[str]:
        """Lines of C++ that declare the type."""
        if not self.is_record:
            return [f"using {self.name} = {_VALUE_TYPES[self.fields[0][1]]};"]
        stored = self._stored()
        given = ", ".join(f"{cpp(KINDS[kind])} {name}_" for name, kind in self.fields)
        made = ", ".join(f"({_VALUE_TYPES[kind]}){name}_" for name, kind in stored)
        equal = " && ".join(f"{name}_ == other.{name}_" for name, _ in self.fields)
        inside = "__device__ __forceinline__"
        return [
            f"struct {self.name} {{",
            f"    static constexpr int WORDS = {self.words};",
            *(f"    {_VALUE_TYPES[kind]} {name}_;" for name, kind in stored),
            *(["    int padding;"] if self._padded else []),
            f"    static {inside} {self.name} of({given}) {{",
            f"        return {{{made}{', 0' if self._padded else ''}}};",
            "    }",
            f"    {inside} bool operator==(const {self.name}& other) const {{ return {equal}; }}",
            f"    {inside} bool operator!=(const {self.name}& other) const {{",
            "        return !(*this == other);",
            "    }",
            "};",
        ]

    def sample(self, number: float) -> Any:
        """A value of this number in all fields, as functions in Python get it."""
        return self.record(*[number] * len(self.fields)) if self.is_record else number


_ANY_TYPE = " or ".join(map(repr, get_args(ValueType)))


@lru_cache
def record_type(layout: Layout) -> Any:
    """Records as functions in Python get them."""

    class Values(namedtuple(layout.name, [name for name, _ in layout.fields])):  # type: ignore[misc]
        """Equal as those of C++ are: what is not a number equals nothing."""

        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            assert isinstance(other, tuple)
            return all(self[place] == other[place] for place in range(len(self)))

        def __ne__(self, other: object) -> bool:
            return not self == other

        __hash__ = None  # type: ignore[assignment]

    return Values


def stored_number(value: Any, dtype: ValueType) -> float:
    """A number as a type stores it."""
    if KINDS[dtype] == "float":
        return c_float(value).value if dtype == "float32" else float(value)
    value = whole(value)
    return value if dtype == "int64" else c_int32(value).value


def _constant(field: str, value: Any, dtype: ValueType) -> float:
    """A number of a type as Python's own. Raises InvalidValue if the type has no such number."""
    kind_of(field, value)
    if KINDS[dtype] == "float":
        if math.isnan(value):
            raise InvalidValue(field, value, "a number")
        return float(value)
    limits = np.iinfo(dtype)
    if not (limits.min <= value <= limits.max and value == int(value)):
        raise InvalidValue(field, value, f"an {dtype}")
    return int(value)


# ---- vertex programs ----
#
# A vertex program has a value for each vertex, and a few functions (liverank_gpu.device_functions
# says what they may contain). An *active* vertex u sends ``gather(value[u], weight)`` along each
# of its edges, or those for which ``sends`` is true. What arrives at v is merged, and
# ``value[v] = apply(old, gathered)``; where ``scatter(old, new)`` is true, v is active in the next
# superstep. The program ends when no vertex is active. Edges may have values, too, which change
# when something is sent along them.
#
# Messages of one number that depend on nothing but their source and its edge are sent, and merged
# by atomic operations. Of all other programs vertices *pull*: each merges what comes from its
# active in-neighbours, in the order of its list, so that nobody else writes its record, nor the
# values of its in-edges.
#
# The words are those of PowerGraph (Gonzalez et al., OSDI 2012) and of Zhang's thesis (chapters 4
# and 5); supersteps are those of Pregel (Malewicz et al., SIGMOD 2010).

Mode = Literal["synchronous", "asynchronous"]
Merge = Literal["min", "max", "sum"]

_VERTEX: dict[str, Number] = {"vertex": "int", "out_degree": "float", "in_degree": "int"}
_STEP: dict[str, Number] = {"superstep": "int", "aggregate": "float"}
_EDGE: dict[str, Number] = {"weight": "float", "share": "float"}
_ENDS: dict[str, Number] = {"sender": "int", "receiver": "int"}

ARGUMENTS: dict[str, dict[str, Number]] = {
    "initial": _VERTEX,
    "gather": {**_EDGE, **_ENDS, **_STEP},
    "merge": {},
    "apply": {**_VERTEX, **_STEP},
    "scatter": _STEP,
    "aggregate": _VERTEX,
    "sends": {**_EDGE, **_ENDS, **_STEP},
    "edge_apply": {**_EDGE, **_ENDS, **_STEP},
}
"""What each function may name, beside values and parameters."""

_OPTIONAL = ("sends", "edge_apply")
"""Functions that a program may leave out."""

_PULLED = {
    "gather": {*_ENDS, *_STEP, "edge"},
    "scatter": {*_STEP},
    "sends": {*_ENDS, *_STEP, "edge"},
    "edge_apply": {*_ENDS, *_STEP, "edge"},
}
"""What only functions of vertices that pull may name: C++ has defaults for it."""

_VALUES: dict[str, tuple[str, ...]] = {
    "initial": (),
    "gather": ("source_value",),
    "merge": ("a", "b"),
    "apply": ("old", "gathered"),
    "scatter": ("old", "new"),
    "aggregate": ("value",),
    "sends": ("source_value",),
    "edge_apply": ("source_value",),
}
"""The arguments of each function that are values of vertices."""

_OF_EDGES = ("gather", "sends", "edge_apply")
"""The functions that may name the value of an edge, ``edge``."""

_RESERVED = {"vertices", *(name for each in ARGUMENTS.values() for name in each)} | {
    *(name for each in _VALUES.values() for name in each),
    *("after", "mode", "program", "self", "edge", "resume"),
}


def _smaller(a: Any, b: Any) -> Any:
    return min(a, b)


def _larger(a: Any, b: Any) -> Any:
    return max(a, b)


def _sum(a: Any, b: Any) -> Any:
    return a + b


_MERGE = "'min', 'max', 'sum', or a function of a and b"
_MERGES: dict[str, Callable[..., Any]] = {"min": _smaller, "max": _larger, "sum": _sum}

LOOKING_PART = 16
"""Vertices look for active in-neighbours instead if one in this many edges leaves an active one."""

AGGREGATE_IDENTITY: dict[str, float] = {"sum": 0.0, "min": np.inf, "max": -np.inf}
"""The aggregate of no vertices."""


def _nothing(value: Any) -> Any:  # noqa: ARG001
    return 0.0


def _not_here(*_: object) -> NoReturn:
    raise NotImplementedError("the Python of a program stays in the process that made it")


@dataclass(frozen=True, eq=False)
class VertexProgram:
    """A vertex program. Each function names the arguments that it needs, in any order; any of them
    may also name ``vertices``, the number of vertices, and the parameters of the program.

    name          in messages
    dtype         of a vertex value: a type, or those of the fields of a record by name. Functions
                  read ``old.field``, and return all fields in their order, ``return a, b``
    identity      the value of which ``merge(identity, x)`` is x; of a record a tuple
    initial       () → value, before the first superstep; may name ``vertex``, its id, and
                  ``out_degree`` and ``in_degree``: numbers of edges, out_degree with a loop; of a
                  weighted graph out_degree is the sum of their weights. The vertex is active in the
                  first superstep where ``scatter(identity, initial)`` is true
    gather        (source_value) → value; may name ``weight``, 1 if edges have none, ``share``, the
                  weight over the out_degree of the source, ``sender`` and ``receiver``, the ids of
                  the ends, ``edge``, the value of the edge, and what `scatter` may
    merge         ``min``, ``max``, ``sum``, or (a, b) → value, associative and commutative
    apply         (old, gathered) → value; may name what `initial` may, ``superstep``, from 0 on,
                  and ``aggregate``, that of the values before this superstep
    scatter       (old, new) → bool; may name ``superstep``, -1 before the first, and ``aggregate``
    aggregate     (value) → float, for every vertex; may name what `initial` may
    aggregator    how these are combined
    sends         (source_value) → bool: whether an active vertex sends along an edge; may name what
                  `gather` may. Left out: along all
    edge_dtype    of the value of each edge, as `dtype`; None: edges have none. An edge without
                  direction has two values, one for each
    edge_initial  the value of all edges at first
    edge_apply    (edge, source_value) → the value of an edge after a message along it; may name
                  what `gather` may
    parameters    the parameters with their default values: integers or floats. One that is named
                  ``source`` is the id of a vertex
    limits        the least and the largest value of parameters that may not take every value
    every_vertex  whether all vertices are active in each superstep, until `scatter` is true for
                  none, and `apply` runs for all
    monotone      whether values only ever get better, messages from better values are no worse, and
                  ``apply(apply(x, a), b)`` is ``apply(x, merge(a, b))``, and a vertex may send any
                  value but the identity at any time. Then values may change in place, in any order,
                  and a run may continue from an earlier answer. `apply` names old and gathered
                  only, and nothing names ``superstep``, ``aggregate`` or ``edge``
    first_wins    whether all messages of a superstep are equal, and a vertex that has received one
                  never changes again. Then, in synchronous mode, vertices without a value look for
                  an active in-neighbour where that is cheaper than sending (Beamer, Asanović and
                  Patterson, SC 2012)
    direction     ``out``, or ``both``: messages go against the direction of edges too
    loops         whether a vertex with a loop sends to itself; only where every vertex is active
    supersteps    at most

    Raises InvalidValue for functions that do not fit, and for a merge that is not associative and
    commutative, as far as three numbers show it.
    """

    name: str
    dtype: ValueType | Fields
    identity: Constant
    initial: Callable[..., Any]
    gather: Callable[..., Any]
    merge: Merge | Callable[..., Any]
    apply: Callable[..., Any]
    scatter: Callable[..., Any]
    aggregate: Callable[..., Any] = _nothing
    aggregator: Merge = "sum"
    sends: Callable[..., Any] | None = None
    edge_dtype: ValueType | Fields | None = None
    edge_initial: Constant = 0
    edge_apply: Callable[..., Any] | None = None
    parameters: Mapping[str, float] = field(default_factory=dict)
    limits: Limits = field(default_factory=dict)
    every_vertex: bool = False
    monotone: bool = False
    first_wins: bool = False
    direction: Literal["out", "both"] = "out"
    loops: bool = False
    supersteps: int = 1_000_000
    values: Layout = field(init=False, repr=False)
    edges: Layout | None = field(init=False, repr=False)
    functions: dict[str, DeviceFunction] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for option, allowed in (
            ("aggregator", get_args(Merge)),
            ("direction", ("out", "both")),
        ):
            if getattr(self, option) not in allowed:
                raise InvalidValue(option, getattr(self, option), " or ".join(map(repr, allowed)))
        if self.every_vertex and (self.monotone or self.direction == "both"):
            raise InvalidValue("every_vertex", True, "False where monotone or direction is 'both'")
        if self.monotone and self.aggregates:
            raise InvalidValue("aggregate", self.aggregate, "left out where monotone")
        if self.first_wins and not (self.monotone and self.direction == "out"):
            raise InvalidValue("first_wins", True, "False unless monotone, in direction 'out'")
        if not self.every_vertex and self.loops:
            raise InvalidValue("loops", True, "False unless every_vertex is True")
        if not isinstance(self.supersteps, int) or self.supersteps < 1:
            raise InvalidValue("supersteps", self.supersteps, "an integer, at least 1")
        self._set("values", Layout.of("Value", "dtype", self.dtype))
        self._set("identity", self.values.constant("identity", self.identity))
        self._set("edges", None)
        if self.edge_dtype is not None:
            self._set("edges", Layout.of("EdgeValue", "edge_dtype", self.edge_dtype))
            assert self.edges is not None
            self._set("edge_initial", self.edges.constant("edge_initial", self.edge_initial))
            if self.monotone or self.loops or self.direction == "both":
                needed = "None where monotone, loops, or direction is 'both'"
                raise InvalidValue("edge_dtype", self.edge_dtype, needed)
        if (self.edge_apply is None) != (self.edges is None):
            raise InvalidValue(
                "edge_apply", self.edge_apply, "a function where edge_dtype is given"
            )
        given: dict[str, Kind] = {"vertices": "int"}
        for name, value in self.parameters.items():
            if name in _RESERVED or not is_name(name):
                raise InvalidValue("parameters", name, "a name that functions do not get otherwise")
            given[name] = kind_of(name, value)
            if name == SOURCE and given[name] != "int":
                raise InvalidValue(f"parameters.{name}", value, "an integer: the id of a vertex")
        for name in self.limits:
            if name not in self.parameters:
                raise InvalidValue("limits", name, "a parameter of the program")
        self.parameter_values({})  # the defaults are checked as others are
        functions = {}
        for name in ARGUMENTS:
            function = getattr(self, name)
            if function is None and name in _OPTIONAL:
                continue
            if name == "merge" and isinstance(function, str):
                if self.values.is_record:
                    raise InvalidValue(f"{self.name}.merge", function, "a function of a and b")
                if function not in _MERGES:
                    raise InvalidValue(f"{self.name}.merge", function, _MERGE)
                function = _MERGES[function]
            functions[name] = device_function(
                f"{self.name}.{name}",
                function,
                f"user_{name}",
                {**self.values_of(name), **ARGUMENTS[name], **given},
                self.result_of(name),
            )
            named = set(functions[name].arguments)
            alone = {"old", "gathered", *self.parameters}
            if name == "apply" and self.monotone and named - alone:
                raise InvalidValue(f"{self.name}.apply", function, "one of old and gathered alone")
            if self.monotone and named & set(_STEP):
                needed = f"one without {' and '.join(_STEP)} where monotone"
                raise InvalidValue(f"{self.name}.{name}", function, needed)
            if name == "merge" and functions[name].arguments[:2] != ("a", "b"):
                raise InvalidValue(f"{self.name}.merge", self.merge, _MERGE)
        self._set("functions", functions)
        if self.first_wins and self.pulls:
            needed = "False for records, and where functions name sender or receiver, or sends"
            raise InvalidValue("first_wins", True, needed)
        self._check_merge()

    def __getstate__(self) -> dict[str, Any]:
        """Without Python, which another process may not be able to import: what runs is C++."""
        state = dict(vars(self), functions=dict(self.functions))
        for name, function in self.functions.items():
            state["functions"][name] = replace(function, python=_not_here)
            if not isinstance(state[name], str) and state[name] is not _nothing:
                state[name] = _not_here
        return state

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_merge(self) -> None:
        """Raises InvalidValue where three numbers show that messages may not be merged in any order
        and grouping, as all backends do.
        """
        merge, numbers = self.functions["merge"], {**self.parameters, "vertices": 3}
        given = [numbers[name] for name in merge.arguments[2:]]

        values = self.values
        shown = (1, 2, 5) if values.kind == "int" else (0.25, 0.5, 2.0)
        if values.is_record:
            shown = (1.0, 2.0, 5.0)

        def merged(a: Any, b: Any) -> Any:
            return merge.python(a, b, *given)

        a, b, c = map(values.sample, shown)
        laws = {
            f"commutative: of {a} and {b}": (merged(a, b), merged(b, a)),
            f"associative: of {a}, {b} and {c}": (
                merged(merged(a, b), c),
                merged(a, merged(b, c)),
            ),
        }
        for law, (one, other) in laws.items():
            pairs = zip(one, other, strict=True) if values.is_record else [(one, other)]
            if not all(
                math.isclose(*pair, rel_tol=1e-9) or any(map(math.isnan, pair)) for pair in pairs
            ):
                requirement = f"{law} it makes {one} or {other}"
                raise InvalidValue(f"{self.name}.merge", self.merge, requirement)

    @cached_property
    def digest(self) -> str:
        """Of all that compiled code depends on."""
        parts = [each.cpp for each in self.functions.values()]
        options = (self.values, self.identity, self.aggregator, self.every_vertex, self.monotone)
        merge = self.merge if isinstance(self.merge, str) else ""
        others = (merge, self.direction, self.loops, self.first_wins)
        kinds = [(name, kind_of(name, value)) for name, value in self.parameters.items()]
        text = repr((parts, options, others, kinds, self.edges))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def continues(self) -> bool:
        """Whether a run may continue from an earlier answer, of a graph with fewer edges: if values
        depend on nothing else that insertions change.
        """
        changing = {"vertices", "share", "out_degree", "in_degree"}
        return self.monotone and not self.named & changing

    @property
    def number_type(self) -> ValueType:
        """Of values that are numbers."""
        ((_, found),) = self.values.fields
        return found

    @property
    def aggregates(self) -> bool:
        """Whether it has an aggregate."""
        return self.aggregate is not _nothing

    @cached_property
    def pulls(self) -> bool:
        """Whether vertices take what their in-neighbours send, each its own."""
        names = ((name, set(each.arguments)) for name, each in self.functions.items())
        return (
            self.values.is_record
            or self.edges is not None
            or self.sends is not None
            or (self.aggregates and not self.every_vertex)
            or any(named & _PULLED.get(name, set()) for name, named in names)
        )

    @property
    def named(self) -> set[str]:
        """What its functions name."""
        return {name for each in self.functions.values() for name in each.arguments}

    @property
    def reads_weights(self) -> bool:
        """Whether values depend on weights."""
        return bool(self.named & {"weight", "share", "out_degree"})

    def values_of(self, function: str) -> dict[str, Kind]:
        """The arguments of a function that are values."""
        values: dict[str, Kind] = dict.fromkeys(_VALUES[function], self.values.kind)
        if self.edges is not None and function in _OF_EDGES:
            values["edge"] = self.edges.kind
        return values

    def result_of(self, function: str) -> Kind:
        """What a function returns."""
        if function == "edge_apply":
            assert self.edges is not None
            return self.edges.kind
        others: dict[str, Kind] = {"scatter": "bool", "sends": "bool", "aggregate": "float"}
        return others.get(function, self.values.kind)

    def parameter_values(self, given: Mapping[str, float]) -> dict[str, float]:
        """See the function of this name."""
        return parameter_values(self.name, self.parameters, given, self.limits)


class ProgramGraph(NamedTuple):
    """A graph as programs read it.

    view      its lists; those of an undirected graph have each edge twice. Without weights if the
              program does not read them
    in_rows   all in-lists, grouped for the kernels; None for a program that does not read them
    ids       int32[n], the id of each position; in shards those of all columns, as view.degree
    absent    uint8[n], 1 where a position is that of no vertex
    vertices  number of vertices
    both      whether messages go along `outgoing` and `incoming`
    """

    view: GraphView
    in_rows: Rows | None
    ids: Array
    absent: Array
    vertices: int
    both: bool


@dataclass(slots=True)
class ProgramState:
    """A program that runs.

    values      the values of the vertices, by position (Layout.array)
    active      int32[n], of which the first `count` are active; unused if every vertex is
    count       number of active vertices
    supersteps  done so far
    edges       messages sent so far
    aggregate   that of the values
    fresh       whether it began with initial values; else messages may differ within a superstep
    edge_values the values of edges, by slot of the in-lists; None if they have none
    """

    values: Array
    active: Array
    count: int = 0
    supersteps: int = 0
    edges: int = 0
    aggregate: float = 0.0
    fresh: bool = True
    edge_values: Array | None = None


@dataclass(slots=True, eq=False)
class InitialiseProgram(Operation[None]):
    """Sets the values of positions `first` … n - 1, and adds those that are active to
    `state.active`. Positions without a vertex get the identity.

    parameters  all of the program's, in its order, as of all operations
    """

    program: VertexProgram
    parameters: Mapping[str, float]
    graph: ProgramGraph
    first: int
    state: ProgramState


@dataclass(slots=True, eq=False)
class RunProgram(Operation[None]):
    """Up to `supersteps` more supersteps; none, to find the aggregate, of programs that pull and
    of which not every vertex is active. Out of core which vertices are active after them is not
    listed: one run is the whole one (liverank_gpu.out_of_core.windows).

    mode  ``synchronous``: values that are sent are those before the superstep.
          ``asynchronous``: they may be newer, for monotone programs
    """

    program: VertexProgram
    parameters: Mapping[str, float]
    graph: ProgramGraph
    mode: Mode
    supersteps: int
    state: ProgramState

    def aggregate_of(self, values: Array, run: Callable[[RunProgram], object]) -> float:
        """The aggregate of values: `run` finds it in a run of no superstep."""
        state = ProgramState(values, self.state.active)
        run(replace(self, supersteps=0, state=state))
        return state.aggregate


@dataclass(slots=True, eq=False)
class SupportsAny(Operation[bool]):
    """Whether for any of these edges the target has the value that its source sends, so that it may
    have come along the edge.

    values  of a finished monotone program
    edges   sources and targets, int32[m], and their weights, float32[m] or None
    ids     int32[m] each, of sources and targets
    """

    program: VertexProgram
    parameters: Mapping[str, float]
    values: Array
    edges: tuple[Array, Array, Array | None]
    ids: tuple[Array, Array]


# A superstep over in-lists, window by window: each vertex of a window gathers from those of its
# in-neighbours that changed since the window was last processed. Steps number this: in a
# synchronous run supersteps, in an asynchronous one windows as they are processed.


@dataclass(slots=True)
class WindowState:
    """A program that runs window by window.

    values, new_values  of all vertices: what is read, and written. One array if values change
                        in place; else two, which are equal before each superstep unless every
                        vertex is active
    steps, new_steps    int32[n]: the last step in which a vertex became active, read and written,
                        as values are; -1 if it never did. Two arrays change places after each
                        superstep and are not copied: what is read has the steps of the superstep
                        before, and of every other one. Empty if every vertex is active
    blocks              int32[b]: the last step in which one of the vertices v with this v >> shift
                        became active
    superstep           from 0 on
    aggregate           that of the values before the superstep
    edge_values         of the slots of the lists; None if edges have none
    """

    values: Array
    new_values: Array
    steps: Array
    new_steps: Array
    blocks: Array
    shift: int
    superstep: int = 0
    aggregate: float = 0.0
    edge_values: Array | None = None


class Gathered(NamedTuple):
    """What a window did.

    active    vertices that became active
    messages  messages that were sent
    """

    active: int
    messages: int


@dataclass(slots=True, eq=False)
class Gather(Operation[Gathered]):
    """The vertices of `graph.in_rows` gather from those of their in-neighbours that became active
    in step `since` or later, or from all if every vertex is active. Those that receive something
    apply it, and where `scatter` is true become active in step `now`.

    graph  where `both` is true, vertices gather from the out-lists too; if values change in place
           and the program does not pull, those that became active send against their in-edges
           instead
    since  if values do not change in place, the step of the superstep before
    """

    in_rows = True
    divides = True
    writes = "new_values"

    program: VertexProgram
    parameters: Mapping[str, float]
    graph: ProgramGraph
    state: WindowState
    since: int = 0
    now: int = 0

    @property
    def new_values(self) -> Array:
        """See WindowState."""
        return self.state.new_values

    def over(self, graph: GraphView, rows: Rows) -> Self:
        return replace(self, graph=self.graph._replace(view=graph, in_rows=rows))


def run_every_vertex(
    do: RunProgram,
    gather: Callable[[Gather], Gathered],
    aggregated: Callable[[Array], float],
) -> None:
    """Runs a program of which every vertex is active, a superstep at a time.

    aggregated  the aggregate of values
    """
    state, none = do.state, do.state.active[:0]
    new_values = state.values.copy() if do.supersteps else state.values
    state.aggregate, state.count = aggregated(state.values), do.graph.vertices
    for _ in range(do.supersteps):
        aggregate, edge_values = state.aggregate, state.edge_values
        step = WindowState(
            *(state.values, new_values, none, none, none, 0),
            *(state.supersteps, aggregate, edge_values),
        )
        gathered = gather(Gather(do.program, do.parameters, do.graph, step))
        state.values, new_values = new_values, state.values
        state.supersteps += 1
        state.edges += int(gathered.messages) if do.program.pulls else do.graph.view.edges
        state.aggregate = aggregated(state.values)
        if not gathered.active:
            state.count = 0
            break


NEVER = -1
"""The step in which a vertex became active that never did."""


# ---- a vertex program as a struct in C++ ----
#
# What both backends put before their kernels, and after
# gpu/liverank_gpu/kernels/program_vertex.h, which says what it has.

MERGES = ("", "min", "max", "sum")
"""As MERGE_OTHER, MERGE_MIN … of gpu/liverank_gpu/kernels/program_vertex.h number them."""


def definitions(program: VertexProgram) -> list[str]:
    """Lines that define, in a struct, `Value`, `EdgeValue`, the options of the program,
    `Parameters` (see parameter_record), and a function program_NAME for each of its functions.
    """
    kinds: dict[str, Number] = {"vertices": "int"}
    kinds |= {name: kind_of(name, default) for name, default in program.parameters.items()}
    own_merge = MERGES.index(program.merge) if isinstance(program.merge, str) else 0
    flags = {
        "INTEGER": program.values.kind == "int",
        "RECORD": program.values.is_record,
        "EVERY_VERTEX": program.every_vertex,
        "MONOTONE": program.monotone,
        "BOTH": program.direction == "both",
        "LOOPS": program.loops,
        "FIRST_WINS": program.first_wins,
        "PULLS": program.pulls,
        "SENDS": program.sends is not None,
        "EDGES": program.edges is not None,
    }
    options = ", ".join(f"{name} = {str(flag).lower()}" for name, flag in flags.items())
    merges = f"MERGE = {own_merge}, AGGREGATOR = {MERGES.index(program.aggregator)}"
    no_edges = ["using EdgeValue = unsigned char;"]
    return [
        *program.values.declaration(),
        *(no_edges if program.edges is None else program.edges.declaration()),
        f"static constexpr int {merges};",
        f"static constexpr bool {options};",
        "struct Parameters {",
        *(f"    {cpp(kind)} {name}_;" for name, kind in kinds.items()),
        "};",
        *(f"static {function.cpp}" for function in program.functions.values()),
        *(_wrapped(program, name) for name in program.functions),
    ]


def number(value: float) -> str:
    """A number in C++."""
    if np.isinf(value):
        return f"({'-' if value < 0 else ''}POSITIVE_INFINITY)"
    if isinstance(value, float):
        return f"({value!r})"
    return f"({value}LL)" if value > -(2**63) else f"({value + 1}LL - 1)"


_DEFAULTS = {"sender": "0", "receiver": "0", "superstep": "-1", "aggregate": "0.0"}
"""What functions get where vertices do not pull, and before the first superstep."""


def _wrapped(program: VertexProgram, name: str) -> str:
    """The function with all arguments that kernels pass: numbers become what functions are
    promised, and results the type of values.
    """
    function, values = program.functions[name], program.values_of(name)
    others = ARGUMENTS[name]
    first, last = [], []
    for each in values:
        if each == "edge":
            last.append("EdgeValue edge_ = EdgeValue()")
        else:
            first.append(f"Value {each}_")
    for each, kind in others.items():
        if each in _PULLED.get(name, ()):
            last.insert(len(last) - ("edge" in values), f"{cpp(kind)} {each}_ = {_DEFAULTS[each]}")
        else:
            first.append(f"{cpp(kind)} {each}_")
    if name in _OF_EDGES and "edge" not in values:
        last.append("EdgeValue = EdgeValue()")
    kinds: dict[str, Kind] = {**values, **others}
    given = ", ".join(
        f"({cpp(kinds[each])}){each}_" if each in kinds else f"parameters.{each}_"
        for each in function.arguments
    )
    results = {"scatter": "bool", "sends": "bool", "aggregate": "double", "edge_apply": "EdgeValue"}
    result = results.get(name, "Value")
    header = f"static __device__ __forceinline__ {result} program_{name}"
    arguments = ", ".join([*first, "const Parameters& parameters", *last])
    return f"{header}({arguments}) {{ return ({result})user_{name}({given}); }}"
