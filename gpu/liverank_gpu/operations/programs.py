"""Contract: vertex programs.

A vertex program has a value for each vertex, and six functions (liverank_gpu.device_functions says
what they may contain). An *active* vertex u sends ``gather(value[u], weight)`` along each of its
edges. What arrives at v is merged, and ``value[v] = apply(old, gathered)``; where ``scatter(old,
new)`` is true, v is active in the next superstep. The program ends when no vertex is active.

The words are those of PowerGraph (Gonzalez et al., OSDI 2012) and of Zhang's thesis (chapters 4 and
5); supersteps are those of Pregel (Malewicz et al., SIGMOD 2010).
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from liverank_gpu.device_functions import DeviceFunction, Kind, device_function
from liverank_gpu.errors import InvalidValue
from liverank_gpu.operations.csr import GraphView, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.program_parameters import SOURCE, Limits, kind_of, parameter_values

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

    @property
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


class ProgramOperations(ABC):
    """Vertex programs: see VertexProgram. Parameters are all of the program's, in its order."""

    @abstractmethod
    def initialise(
        self,
        program: VertexProgram,
        parameters: Mapping[str, float],
        graph: ProgramGraph,
        first: int,
        state: ProgramState,
    ) -> None:
        """Sets the values of positions `first` … n - 1, and adds those that are active to
        `state.active`. Positions without a vertex get the identity.
        """

    @abstractmethod
    def run(
        self,
        program: VertexProgram,
        parameters: Mapping[str, float],
        graph: ProgramGraph,
        mode: Mode,
        supersteps: int,
        state: ProgramState,
    ) -> None:
        """Runs up to `supersteps` more supersteps.

        mode  ``synchronous``: values that are sent are those before the superstep.
              ``asynchronous``: they may be newer, for monotone programs
        """

    @abstractmethod
    def supports_any(
        self,
        program: VertexProgram,
        parameters: Mapping[str, float],
        values: Array,
        edges: tuple[Array, Array, Array | None],
    ) -> bool:
        """Whether for any of these edges the target has the value that its source sends, so that it
        may have come along the edge.

        values  dtype[n] of a finished monotone program
        edges   sources and targets, int32[m], and their weights, float32[m] or None
        """
