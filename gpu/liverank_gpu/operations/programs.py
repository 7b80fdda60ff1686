"""Vertex programs, their supersteps on a graph or on windows of its in-lists, and the source that
they become.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.device_functions import CPP, DeviceFunction, Kind, device_function
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


def kind_of(name: str, value: object) -> Kind:
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


# ---- vertex programs ----
#
# A vertex program has a value for each vertex, and six functions (liverank_gpu.device_functions
# says what they may contain). An *active* vertex u sends ``gather(value[u], weight)`` along each
# of its edges. What arrives at v is merged, and ``value[v] = apply(old, gathered)``; where
# ``scatter(old, new)`` is true, v is active in the next superstep. The program ends when no vertex
# is active.
#
# The words are those of PowerGraph (Gonzalez et al., OSDI 2012) and of Zhang's thesis (chapters 4
# and 5); supersteps are those of Pregel (Malewicz et al., SIGMOD 2010).

ValueType = Literal["int32", "int64", "float32", "float64"]
Mode = Literal["synchronous", "asynchronous"]
Merge = Literal["min", "max", "sum"]

KINDS: dict[str, Kind] = {"int32": "int", "int64": "int", "float32": "float", "float64": "float"}
"""The kind of number that functions get for a value of each type."""

_VERTEX: dict[str, Kind] = {"vertex": "int", "out_degree": "float", "in_degree": "int"}

_ARGUMENTS: dict[str, dict[str, Kind]] = {
    "initial": _VERTEX,
    "gather": {"weight": "float", "share": "float"},
    "merge": {},
    "apply": {**_VERTEX, "superstep": "int", "aggregate": "float"},
    "scatter": {},
    "aggregate": _VERTEX,
}
"""What each function may name, beside values and parameters."""

_VALUES: dict[str, tuple[str, ...]] = {
    "initial": (),
    "gather": ("source_value",),
    "merge": ("a", "b"),
    "apply": ("old", "gathered"),
    "scatter": ("old", "new"),
    "aggregate": ("value",),
}
"""The arguments of each function that are values."""

_RESERVED = {"vertices", *(name for each in _ARGUMENTS.values() for name in each)} | {
    *(name for each in _VALUES.values() for name in each),
    *("after", "mode", "program", "self"),
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


@dataclass(frozen=True, eq=False)
class VertexProgram:
    """A vertex program. Each function names the arguments that it needs, in any order; any of them
    may also name ``vertices``, the number of vertices, and the parameters of the program.

    name          in messages
    dtype         of a vertex value
    identity      the value of which ``merge(identity, x)`` is x
    initial       () → value, before the first superstep; may name ``vertex``, its id, and
                  ``out_degree`` and ``in_degree``: numbers of edges, out_degree with a loop; of a
                  weighted graph out_degree is the sum of their weights. The vertex is active in the
                  first superstep where ``scatter(identity, initial)`` is true
    gather        (source_value) → value; may name ``weight``, 1 if edges have none, and ``share``,
                  the weight over the out_degree of the source
    merge         ``min``, ``max``, ``sum``, or (a, b) → value, associative and commutative
    apply         (old, gathered) → value; may name what `initial` may, ``superstep``, from 0 on,
                  and ``aggregate``, that of the values before this superstep
    scatter       (old, new) → bool
    aggregate     (value) → float, for every vertex; may name what `initial` may
    aggregator    how these are combined
    parameters    the parameters with their default values: integers or floats. One that is named
                  ``source`` is the id of a vertex
    limits        the least and the largest value of parameters that may not take every value
    every_vertex  whether all vertices are active in each superstep, until `scatter` is true for
                  none, and `apply` runs for all. Only then there is an aggregate
    monotone      whether values only ever get better, messages from better values are no worse, and
                  ``apply(apply(x, a), b)`` is ``apply(x, merge(a, b))``, and a vertex may send any
                  value but the identity at any time. Then values may change in place, in any order,
                  and a run may continue from an earlier answer. `apply` names old and gathered only
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
    dtype: ValueType
    identity: float
    initial: Callable[..., Any]
    gather: Callable[..., Any]
    merge: Merge | Callable[..., Any]
    apply: Callable[..., Any]
    scatter: Callable[..., Any]
    aggregate: Callable[..., Any] = _nothing
    aggregator: Merge = "sum"
    parameters: Mapping[str, float] = field(default_factory=dict)
    limits: Limits = field(default_factory=dict)
    every_vertex: bool = False
    monotone: bool = False
    first_wins: bool = False
    direction: Literal["out", "both"] = "out"
    loops: bool = False
    supersteps: int = 1_000_000
    functions: dict[str, DeviceFunction] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for option, allowed in (
            ("dtype", get_args(ValueType)),
            ("aggregator", get_args(Merge)),
            ("direction", ("out", "both")),
        ):
            if getattr(self, option) not in allowed:
                raise InvalidValue(option, getattr(self, option), " or ".join(map(repr, allowed)))
        if self.every_vertex and (self.monotone or self.direction == "both"):
            raise InvalidValue("every_vertex", True, "False where monotone or direction is 'both'")
        if not self.every_vertex and self.aggregate is not _nothing:
            raise InvalidValue("aggregate", self.aggregate, "left out unless every_vertex is True")
        if self.first_wins and not (self.monotone and self.direction == "out"):
            raise InvalidValue("first_wins", True, "False unless monotone, in direction 'out'")
        if not self.every_vertex and self.loops:
            raise InvalidValue("loops", True, "False unless every_vertex is True")
        if not isinstance(self.supersteps, int) or self.supersteps < 1:
            raise InvalidValue("supersteps", self.supersteps, "an integer, at least 1")
        object.__setattr__(self, "identity", _identity(self.identity, self.dtype))
        given: dict[str, Kind] = {"vertices": "int"}
        for name, value in self.parameters.items():
            if name in _RESERVED or not name.isidentifier():
                raise InvalidValue("parameters", name, "a name that functions do not get otherwise")
            given[name] = kind_of(name, value)
            if name == SOURCE and given[name] != "int":
                raise InvalidValue(f"parameters.{name}", value, "an integer: the id of a vertex")
        for name in self.limits:
            if name not in self.parameters:
                raise InvalidValue("limits", name, "a parameter of the program")
        self.parameter_values({})  # the defaults are checked as others are
        functions = {}
        for name, others in _ARGUMENTS.items():
            function = getattr(self, name)
            if name == "merge" and isinstance(function, str):
                if function not in _MERGES:
                    raise InvalidValue(f"{self.name}.merge", function, _MERGE)
                function = _MERGES[function]
            known: dict[str, Kind] = dict.fromkeys(_VALUES[name], KINDS[self.dtype])
            known |= others | given
            results: dict[str, Kind] = {"scatter": "bool", "aggregate": "float"}
            result = results.get(name, KINDS[self.dtype])
            functions[name] = device_function(
                f"{self.name}.{name}", function, f"user_{name}", known, result
            )
            alone = {"old", "gathered", *self.parameters}
            if name == "apply" and self.monotone and set(functions[name].arguments) - alone:
                raise InvalidValue(f"{self.name}.apply", function, "one of old and gathered alone")
            if name == "merge" and functions[name].arguments[:2] != ("a", "b"):
                raise InvalidValue(f"{self.name}.merge", self.merge, _MERGE)
        object.__setattr__(self, "functions", functions)
        self._check_merge()

    def _check_merge(self) -> None:
        """Raises InvalidValue where three numbers show that messages may not be merged in any order
        and grouping, as all backends do.
        """
        merge, numbers = self.functions["merge"], {**self.parameters, "vertices": 3}
        given = [numbers[name] for name in merge.arguments[2:]]

        def merged(a: float, b: float) -> float:
            found = merge.python(a, b, *given)
            return int(found) if KINDS[self.dtype] == "int" else float(found)

        a, b, c = (1, 2, 5) if KINDS[self.dtype] == "int" else (0.25, 0.5, 2.0)
        try:
            laws = {
                f"commutative: of {a} and {b}": (merged(a, b), merged(b, a)),
                f"associative: of {a}, {b} and {c}": (
                    merged(merged(a, b), c),
                    merged(a, merged(b, c)),
                ),
            }
        except (ArithmeticError, ValueError):
            return  # it is not for such numbers
        for law, (one, other) in laws.items():
            if not (math.isclose(one, other, rel_tol=1e-9) or math.isnan(one) or math.isnan(other)):
                requirement = f"{law} it makes {one} or {other}"
                raise InvalidValue(f"{self.name}.merge", self.merge, requirement)

    @cached_property
    def digest(self) -> str:
        """Of all that compiled code depends on."""
        parts = [each.cpp for each in self.functions.values()]
        options = (self.dtype, self.identity, self.aggregator, self.every_vertex, self.monotone)
        merge = self.merge if isinstance(self.merge, str) else ""
        others = (merge, self.direction, self.loops, self.first_wins)
        kinds = [(name, kind_of(name, value)) for name, value in self.parameters.items()]
        text = repr((parts, options, others, kinds))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def continues(self) -> bool:
        """Whether a run may continue from an earlier answer, of a graph with fewer edges: if values
        depend on nothing else that insertions change.
        """
        changing = {"vertices", "share", "out_degree", "in_degree"}
        return self.monotone and not self.named & changing

    @property
    def named(self) -> set[str]:
        """What its functions name."""
        return {name for each in self.functions.values() for name in each.arguments}

    @property
    def reads_weights(self) -> bool:
        """Whether values depend on weights."""
        return bool(self.named & {"weight", "share", "out_degree"})

    def arguments_of(self, function: str) -> dict[str, Kind]:
        """What a function may name that is no value and no parameter."""
        return _ARGUMENTS[function]

    def values_of(self, function: str) -> tuple[str, ...]:
        """The arguments of a function that are values."""
        return _VALUES[function]

    def parameter_values(self, given: Mapping[str, float]) -> dict[str, float]:
        """See the function of this name."""
        return parameter_values(self.name, self.parameters, given, self.limits)


def _identity(value: float, dtype: ValueType) -> float:
    """The identity as Python's own number. Raises InvalidValue if the type has no such value."""
    kind_of("identity", value)
    if KINDS[dtype] == "float":
        if math.isnan(value):
            raise InvalidValue("identity", value, "a number")
        return float(value)
    limits = np.iinfo(dtype)
    if not (limits.min <= value <= limits.max and value == int(value)):
        raise InvalidValue("identity", value, f"an {dtype}")
    return int(value)


class ProgramGraph(NamedTuple):
    """A graph as programs read it.

    view      its lists; those of an undirected graph have each edge twice. Without weights if the
              program does not read them
    in_rows   all in-lists, grouped for the kernels; None for a program that does not read them
    ids       int32[n], the id of each position
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

    values      dtype[n], the values of the vertices, by position
    active      int32[n], of which the first `count` are active; unused if every vertex is
    count       number of active vertices
    supersteps  done so far
    edges       messages sent so far
    aggregate   that of the values
    fresh       whether it began with initial values; else messages may differ within a superstep
    """

    values: Array
    active: Array
    count: int = 0
    supersteps: int = 0
    edges: int = 0
    aggregate: float = 0.0
    fresh: bool = True


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
    """Up to `supersteps` more supersteps. Out of core which vertices are active after them is not
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


@dataclass(slots=True, eq=False)
class SupportsAny(Operation[bool]):
    """Whether for any of these edges the target has the value that its source sends, so that it may
    have come along the edge.

    values  dtype[n] of a finished monotone program
    edges   sources and targets, int32[m], and their weights, float32[m] or None
    """

    program: VertexProgram
    parameters: Mapping[str, float]
    values: Array
    edges: tuple[Array, Array, Array | None]


# A superstep over in-lists, window by window: each vertex of a window gathers from those of its
# in-neighbours that changed since the window was last processed. Steps number this: in a
# synchronous run supersteps, in an asynchronous one windows as they are processed.


@dataclass(slots=True)
class WindowState:
    """A program that runs window by window.

    values, new_values  dtype[n]: the values that are read, and written. One array if values change
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
    """

    values: Array
    new_values: Array
    steps: Array
    new_steps: Array
    blocks: Array
    shift: int
    superstep: int = 0
    aggregate: float = 0.0


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

    graph  where `both` is true, vertices that became active also send against their in-edges, which
           changes values in place. On ``cuda`` every position is that of a vertex
    since  if values do not change in place, the step of the superstep before
    """

    in_rows = True
    divides = True

    program: VertexProgram
    parameters: Mapping[str, float]
    graph: ProgramGraph
    state: WindowState
    since: int = 0
    now: int = 0

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
        step = WindowState(
            state.values, new_values, none, none, none, 0, state.supersteps, state.aggregate
        )
        gathered = gather(Gather(do.program, do.parameters, do.graph, step))
        state.values, new_values = new_values, state.values
        state.supersteps += 1
        state.edges += do.graph.view.edges
        state.aggregate = aggregated(state.values)
        if not gathered.active:
            state.count = 0
            break


# ---- a vertex program as a struct in C++ ----
#
# What both backends put before their kernels, and after
# gpu/liverank_gpu/kernels/program_vertex.h, which says what it has.

MERGES = ("", "min", "max", "sum")
"""As MERGE_OTHER, MERGE_MIN … of gpu/liverank_gpu/kernels/program_functions.h number them."""

_VALUE_TYPES = {"int32": "int", "int64": "long long", "float32": "float", "float64": "double"}


def definitions(program: VertexProgram) -> list[str]:
    """Lines that define, in a struct, `Value`, the options of the program,
    `Parameters` (see parameter_record), and a function program_NAME for each of its functions.
    """
    value = _VALUE_TYPES[program.dtype]
    kinds: dict[str, Kind] = {"vertices": "int"}
    kinds |= {name: kind_of(name, default) for name, default in program.parameters.items()}
    own_merge = MERGES.index(program.merge) if isinstance(program.merge, str) else 0
    flags = {
        "INTEGER": np.dtype(program.dtype).kind == "i",
        "EVERY_VERTEX": program.every_vertex,
        "MONOTONE": program.monotone,
        "BOTH": program.direction == "both",
        "LOOPS": program.loops,
        "FIRST_WINS": program.first_wins,
    }
    return [
        f"using Value = {value};",
        f"static constexpr int MERGE = {own_merge};",
        f"static constexpr int AGGREGATOR = {MERGES.index(program.aggregator)};",
        *(f"static constexpr bool {name} = {str(flag).lower()};" for name, flag in flags.items()),
        "struct Parameters {",
        *(f"    {CPP[kind]} {name}_;" for name, kind in kinds.items()),
        "};",
        *(f"static {function.cpp}" for function in program.functions.values()),
        *(_wrapped(program, name, value) for name in program.functions),
    ]


def number(value: float) -> str:
    """A number in C++."""
    if np.isinf(value):
        return f"({'-' if value < 0 else ''}POSITIVE_INFINITY)"
    if isinstance(value, float):
        return repr(value)
    return f"({value}LL)" if value > -(2**63) else f"({value + 1}LL - 1)"


def _wrapped(program: VertexProgram, name: str, value: str) -> str:
    """The function with all arguments that kernels pass: numbers become what functions are
    promised, and results the type of values.
    """
    function = program.functions[name]
    kinds: dict[str, Kind] = dict.fromkeys(program.values_of(name), KINDS[program.dtype])
    declared = [f"{value} {each}_" for each in kinds]
    others = program.arguments_of(name)
    declared += [f"{CPP[kind]} {each}_" for each, kind in others.items()]
    kinds |= others
    given = ", ".join(
        f"({CPP[kinds[each]]}){each}_" if each in kinds else f"parameters.{each}_"
        for each in function.arguments
    )
    result = {"scatter": "bool", "aggregate": "double"}.get(name, value)
    header = f"static __device__ __forceinline__ {result} program_{name}"
    arguments = ", ".join([*declared, "const Parameters& parameters"])
    return f"{header}({arguments}) {{ return ({result})user_{name}({given}); }}"
