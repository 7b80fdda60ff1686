"""Analyses: programs of the engine that run on one version of a graph, and their answers by key.

Vertices have keys here and ids in the engine: the parameter `source` is the key of a vertex, and so
are the values of programs that name vertices.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import asdict
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

import liverank.options
from liverank.choices import KeyKind, Mode, Order, ValuesOf
from liverank.client.responses import AnalysisProgress
from liverank.options import given
from liverank_gpu import (
    PROGRAMS,
    Algorithm,
    Answer,
    InvalidValue,
    ProgramLimits,
    VertexProgram,
)
from liverank_service.errors import InvalidField, UnknownVertex
from liverank_service.formats.values import EXPECTED_KEY, is_key
from liverank_service.tables import member_of
from liverank_service.vertex_keys import ARROW_TYPES, VertexKeys

State = Literal["queued", "running", "finished", "failed", "cancelled", "interrupted"]
UNFINISHED = ("queued", "running")

Parameters = Mapping[str, str | int | float]

AnyProgram = VertexProgram | Algorithm

_VERTEX = "source"
"""The parameter that is a vertex."""

_GROUPS = ("components", "labels", "dn-graphs")
"""The programs whose values are vertices: each names the group that it, or an edge, is in."""

COLUMNS = ("vertex", "value")
"""Of the table of values of vertices, before the other numbers of records."""

EDGE_COLUMNS = ("source", "target", "value")
"""Of that of values of edges, likewise."""

_NAMING = {"paths": {"predecessor"}}
"""The numbers of records that are ids of vertices, or negative for none, by program."""


def built_in(name: str) -> AnyProgram:
    """Raises InvalidValue."""
    if name not in PROGRAMS:
        raise InvalidValue("program", name, f"one of {', '.join(PROGRAMS)}")
    return PROGRAMS[name]


LARGEST_COUNT = 2**53
"""That every client reads from JSON as it is."""


class RunLimits(BaseModel):
    """What a run may take, by its request; None: as much as there is."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    supersteps: int | None = member_of(
        liverank.options.AnalysisLimits, "supersteps", ge=1, le=LARGEST_COUNT
    )
    seconds: float | None = member_of(liverank.options.AnalysisLimits, "seconds", gt=0)
    memory: int | None = member_of(
        liverank.options.AnalysisLimits, "memory", ge=1, le=LARGEST_COUNT
    )

    def checked(self, program: AnyProgram, mode: Mode, most_seconds: float) -> RunLimits:
        """The limits of a run in this mode.

        most_seconds  of programs of users

        Raises InvalidValue for what the program cannot have.
        """
        name = program.name
        if mode == "asynchronous" and (isinstance(program, Algorithm) or not program.monotone):
            raise InvalidValue("mode", mode, f"'synchronous' for {name}")
        if self.supersteps is not None and isinstance(program, Algorithm):
            raise InvalidValue("limits.supersteps", self.supersteps, f"left out for {name}")
        if name in PROGRAMS:
            return self
        if (self.seconds or 0.0) > most_seconds:
            raise InvalidValue("limits.seconds", self.seconds, f"at most {most_seconds:g}")
        return self.model_copy(update={"seconds": self.seconds or most_seconds})

    @property
    def of_engine(self) -> ProgramLimits:
        """Those that the engine keeps itself."""
        return ProgramLimits(**given(supersteps=self.supersteps, memory=self.memory))


NO_LIMITS = RunLimits()


def checked_parameters(
    program: AnyProgram, given: Parameters, kind: KeyKind, prefix: str = "parameters."
) -> dict[str, str | int | float]:
    """All parameters of a program as it declares them, defaults included.

    prefix  of the fields in errors

    Raises InvalidValue for a value of another kind or outside its limits, InvalidField for an
    unknown parameter and for a missing one.
    """
    declared = program.parameters
    for name, value in given.items():
        if name not in declared:
            taken = ", ".join(declared) or "no parameters"
            message = f"unknown parameter; {program.name} takes {taken}"
            raise InvalidField(f"{prefix}{name}", None, value, message)
    values = {
        name: _checked(f"{prefix}{name}", given.get(name, default), default)
        if name != _VERTEX
        else _checked_key(f"{prefix}{name}", given.get(name), kind)
        for name, default in declared.items()
    }
    numbers = {
        name: value
        for name, value in values.items()
        if name != _VERTEX and not isinstance(value, str)
    }
    try:
        program.parameter_values(numbers)
    except InvalidValue as error:
        raise InvalidValue(f"{prefix}{error.field}", error.value, error.requirement) from None
    return values


def _checked_key(field: str, value: Any, kind: KeyKind) -> str | int:
    if value is None:
        raise InvalidField(field, None, None, f"expected the key of a vertex: {EXPECTED_KEY[kind]}")
    if not is_key(value, kind):
        raise InvalidValue(field, value, f"the key of a vertex: {EXPECTED_KEY[kind]}")
    key: str | int = value
    return key


def _checked(field: str, value: Any, default: float) -> int | float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not abs(value) <= sys.float_info.max:  # an integer may be above it
        raise InvalidValue(field, value, "a finite number")
    if isinstance(default, float):
        return float(value)
    if int(value) != value:
        raise InvalidValue(field, value, "an integer of 64 bits")
    return int(value)


def parameters_by_id(graph: str, parameters: Parameters, keys: VertexKeys) -> dict[str, Any]:
    """The parameters as the engine takes them. Raises UnknownVertex."""
    found: dict[str, Any] = dict(parameters)
    if _VERTEX in found:
        key = found[_VERTEX]
        identity = keys.id_of(key)
        if identity < 0:
            raise UnknownVertex(graph, key, f"parameters.{_VERTEX}")
        found[_VERTEX] = identity
    return found


def tie_order(program: AnyProgram, keys: VertexKeys) -> NDArray[np.int32] | None:
    """int32[keys.limit], for the engine: the place of each id in ascending order of the keys, by
    which the program breaks ties. None: by ids, if the keys are strings or nothing ties.
    """
    if keys.kind != "integer" or not (isinstance(program, Algorithm) and program.ordered):
        return None
    ids = keys.vertices(0, keys.limit)
    by_key = ids[np.argsort(keys.keys(ids).to_numpy())]
    places = np.empty(keys.limit, np.int32)
    places[by_key] = np.arange(len(ids))
    free = np.delete(np.arange(keys.limit), ids)
    places[free] = np.arange(len(ids), keys.limit)
    return places


NOT_BEGUN = AnalysisProgress(0, 0, 0.0)


@dataclass(frozen=True, slots=True)
class Group:
    """Groups of vertices, or of edges.

    ids    int64[groups], the vertex that names the group
    sizes  integer[groups], how many vertices are in it; of DN-graphs λ
    """

    ids: NDArray[np.int64]
    sizes: NDArray[Any]


_NO_IDS = np.empty(0, np.int64)

_NO_EDGES = -1
"""Stands for the largest value of a vertex's edges if it has none."""


class EdgeValues(NamedTuple):
    """Values of edges. Of a built-in program they have no direction and are no loops.

    sources, targets  int32[m] each: ids, of a built-in program the lower one first
    values            integer or float[m], of a built-in program int32
    lambdas           int32[m] of DN-graphs; None of other programs
    """

    sources: NDArray[np.int32]
    targets: NDArray[np.int32]
    values: NDArray[Any]
    lambdas: NDArray[np.int32] | None

    def largest_by_vertex(self, vertices: int) -> NDArray[np.int32]:
        """int32[vertices]: the largest value of a vertex's edges, _NO_EDGES for one without."""
        largest = np.full(vertices, _NO_EDGES, np.int32)
        for ends in (self.sources, self.targets):
            np.maximum.at(largest, ends, self.values)
        return largest


@dataclass(frozen=True, slots=True)
class AnalysisAnswer:
    """The values of all vertices, of all edges, or of those in groups, of one version.

    values    by id, on the host; of a program of edges, the largest of each vertex's edges
    keys      of the vertices of that version
    missing   the value of vertices that have none; None if all have one
    others    of a program of records: their other numbers, by name; `values` are the first ones
    groups    of a program whose values are vertices; None for others
    edges     of a program whose values are of edges; None for others
    of_edges  of a program of vertices whose edges have values too: these; None for others
    """

    program: str
    version: int
    keys: VertexKeys
    values: NDArray[Any]
    missing: float | None
    groups: Group | None
    edges: EdgeValues | None
    receipt: Mapping[str, Any]
    summary: Mapping[str, float]
    others: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    of_edges: AnalysisAnswer | None = None

    @classmethod
    def of(cls, answer: Answer, version: int, keys: VertexKeys) -> AnalysisAnswer:
        """keys: of the vertices of that version. Copies the values to the host. Raises
        OutOfMemory.
        """
        receipt, program, values = answer.receipt, answer.program, answer.values
        groups: Group | None = None
        edges: EdgeValues | None = None
        missing: float | None = None
        summary = dict(answer.summary)
        if answer.edges is not None:
            sources, targets = (ends.astype(np.int32) for ends in answer.edges)
            edges = EdgeValues(sources, targets, values, answer.lambdas)
            if edges.lambdas is not None:
                named, first = np.unique(values, return_index=True)
                groups = Group(named, edges.lambdas[first])
            values, missing = edges.largest_by_vertex(keys.limit), _NO_EDGES
        elif receipt.program in _GROUPS:
            sizes = np.bincount(values[keys.vertices(0, len(values))])
            named = np.flatnonzero(sizes)
            groups = Group(named, sizes[named])
            if receipt.program == "components":
                summary |= {"components": len(named), "largest": int(sizes.max(initial=0))}
        elif isinstance(program, VertexProgram) and program.monotone:
            identity = program.identity
            missing = identity[0] if isinstance(identity, tuple) else identity
        values, others = _numbers_of(values)
        members = ("supersteps", "edges", "seconds", "continued", "finished")
        found = cls(
            receipt.program,
            version,
            keys,
            values,
            missing,
            groups,
            edges,
            {name: getattr(receipt, name) for name in members},
            summary,
            others,
        )
        if (along := answer.edge_values) is None:
            return found
        values, others = _numbers_of(along.values)
        edges = EdgeValues(along.sources, along.targets, values, None)
        of_edges = replace(found, values=values[:0], missing=None, edges=edges, others=others)
        return replace(found, of_edges=of_edges)

    def values_of(self, of: ValuesOf | None) -> AnalysisAnswer:
        """The values of vertices, or those of edges; None: the former if there are any. Raises
        InvalidValue.
        """
        if of is None or (of == "edges") == (self.edges is not None):
            return self
        if of == "edges" and self.of_edges is not None:
            return self.of_edges
        own = "vertices" if self.edges is None else "edges"
        raise InvalidValue("of", of, f"{own!r}: {self.program} has values of {own} alone")

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        arrays = [self.values, *self.others.values()]
        arrays += [each for each in self.edges or () if each is not None]
        if self.groups is not None:
            arrays += [self.groups.ids, self.groups.sizes]
        own = sum(int(each.nbytes) for each in arrays)
        return own if self.of_edges is None else own + self.of_edges.nbytes

    @property
    def type(self) -> pa.DataType:
        """Of a column of values."""
        if self.groups is not None:
            return ARROW_TYPES[self.keys.kind]
        return _number_type(self.values)

    @property
    def fields(self) -> dict[str, pa.DataType]:
        """The columns of the table of all values."""
        ends = ("vertex",) if self.edges is None else ("source", "target")
        found = {**dict.fromkeys(ends, ARROW_TYPES[self.keys.kind]), "value": self.type}
        if self.edges is not None and self.edges.lambdas is not None:
            found["lambda"] = pa.int64()
        return found | {name: self._other(name, _NO_IDS).type for name in self.others}

    def _other(self, name: str, ids: NDArray[np.int64]) -> pa.Array:
        """Other numbers of vertices by id, or the keys of vertices; null for those without any."""
        numbers = self.others[name][ids]
        absent = None if self.missing is None else self.values[ids] == self.missing
        if name in _NAMING.get(self.program, ()):
            absent = numbers < 0
            keys = self.keys.keys(np.where(absent, ids, numbers).astype(np.int64))
            return pc.if_else(pa.array(absent), pa.scalar(None, keys.type), keys)
        return pa.array(numbers, _number_type(numbers), mask=absent)

    @property
    def limit(self) -> int:
        """Every place in the table is below it: an id, or the place of an edge."""
        return len(self.values if self.edges is None else self.edges.values)

    def columns(self, first: int, last: int) -> list[pa.Array]:
        """Those of `fields`, of the places from `first` up to, but without, `last`."""
        if self.edges is None:
            ids = self.keys.vertices(first, min(last, self.limit))
            more = (self._other(name, ids) for name in self.others)
            return [self.keys.keys(ids), self._column(ids), *more]
        parts = [each[first:last] for each in self.edges if each is not None]
        vertices = len(parts) - 1  # columns of vertices: the ends, and the groups if there are any
        keys = [self.keys.keys(ids.astype(np.int64)) for ids in parts[:vertices]]
        places = np.arange(first, min(last, self.limit))
        more = (self._other(name, places) for name in self.others)
        return [*keys, pa.array(parts[vertices], _number_type(parts[vertices])), *more]

    def _column(self, ids: NDArray[np.int64]) -> pa.Array:
        """The values of vertices by id; null for those that have none."""
        values = self.values[ids]
        missing = None if self.missing is None else values == self.missing
        if self.groups is None:
            return pa.array(values, self.type, mask=missing)
        named = values if missing is None else np.where(missing, ids, values)
        keys = self.keys.keys(named.astype(np.int64))
        return keys if missing is None else pc.if_else(pa.array(missing), None, keys)

    def value_of(self, graph: str, key: str | int) -> dict[str, Any]:
        """The value of one vertex, as `value`, None if it has none, and the other numbers of a
        record: those of built-in programs by their names, of others in `others`. Raises
        UnknownVertex.
        """
        found = self.keys.id_of(key)
        if not 0 <= found < len(self.values):
            raise UnknownVertex(graph, key)
        ids = np.array([found])
        others = {name: self._other(name, ids)[0].as_py() for name in self.others}
        if self.program not in PROGRAMS and others:
            others = {"others": others}
        return {"value": self._column(ids)[0].as_py(), **others}

    def table(self) -> pa.Table:
        """All values: of vertices by id, of edges in their order."""
        return pa.table(dict(zip(self.fields, self.columns(0, self.limit), strict=True)))

    def top(self, k: int, order: Order) -> pa.RecordBatch:
        """The k largest, or smallest, values; ties in order of ids, or of edges. Of a program whose
        values are vertices: the k largest groups, or DN-graphs of the highest λ, by the vertices
        that name them.

        Columns: `vertex`, or `source` and `target`, and `value`.
        """
        ends: list[NDArray[Any]]
        values: NDArray[Any]
        names = ["source", "target", "value"]
        if self.groups is not None:
            ends, values, names = [self.groups.ids], self.groups.sizes, ["vertex", "value"]
        elif self.edges is not None:
            ends, values = [self.edges.sources, self.edges.targets], self.edges.values
        else:
            ids = self.keys.vertices(0, len(self.values))
            values = self.values[ids]
            if self.missing is not None:
                ids, values = ids[values != self.missing], values[values != self.missing]
            ends, names = [ids], ["vertex", "value"]
        best = _first_places(values, k, order)
        keys = [self.keys.keys(ids[best].astype(np.int64)) for ids in ends]
        column = pa.array(values[best], _number_type(values))
        return pa.record_batch([*keys, column], names=names)


def _numbers_of(values: NDArray[Any]) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
    """Numbers, or of records the first ones, and the others by name."""
    if not (names := values.dtype.names):
        return values, {}
    numbers = {name: np.ascontiguousarray(values[name]) for name in names}
    return numbers.pop(names[0]), numbers


def _number_type(values: NDArray[Any]) -> pa.DataType:
    return pa.float64() if values.dtype.kind == "f" else pa.int64()


def _first_places(values: NDArray[Any], k: int, order: Order) -> NDArray[np.int64]:
    """int64[min(k, len(values))]: where the largest, or smallest, values are; ties in order."""
    by_value = -values if order == "largest" else values
    places = np.arange(min(k, len(values)))
    if k < len(values):
        limit = np.partition(by_value, k - 1)[k - 1]
        before = np.flatnonzero(by_value < limit)
        equal = np.flatnonzero(by_value == limit)[: k - len(before)]
        places = np.concatenate([before, equal])
    return places[np.argsort(by_value[places], kind="stable")]


@dataclass(frozen=True, slots=True)
class Analysis:
    """An analysis of a graph, as it is now. Replaced, never changed.

    parameters  checked, with the keys of vertices
    fresh       whether it runs again after each published version
    created     Unix time, seconds
    answer      the newest; a fresh analysis keeps it while it runs again
    problem     the document of the error with which it failed
    limits      of each run
    save_every  supersteps between two states of a run, from which it goes on after a restart; 0:
                never; None: as storage.saved_runs says
    """

    id: str
    program: str
    parameters: Parameters
    fresh: bool
    created: float
    state: State = "queued"
    progress: AnalysisProgress = NOT_BEGUN
    answer: AnalysisAnswer | None = None
    problem: dict[str, Any] | None = None
    mode: Mode = "synchronous"
    limits: RunLimits = NO_LIMITS
    save_every: int | None = None

    @property
    def is_unfinished(self) -> bool:
        return self.state in UNFINISHED

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        answer = self.answer
        return {
            "id": self.id,
            "program": self.program,
            "parameters": dict(self.parameters),
            "fresh": self.fresh,
            "mode": self.mode,
            "limits": self.limits.model_dump(),
            "save_every": self.save_every,
            "created": self.created,
            "state": self.state,
            "progress": asdict(self.progress),
            "version": answer.version if answer else None,
            "receipt": dict(answer.receipt) if answer else None,
            "summary": dict(answer.summary) if answer else None,
            "problem": self.problem,
        }
