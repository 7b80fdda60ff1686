"""A personalized query as clients write it.

A query has three shapes: by keys (here), by ids (liverank_gpu.PersonalizedQuery), and running
(liverank_gpu.QueryBatch, or liverank_gpu.Registration for a watched one).

Requests wait for the queries to be solved.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Annotated, Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict

import liverank.options
from liverank.choices import Unknown
from liverank_gpu import METHODS, Form, InvalidValue, Personalized, PersonalizedQuery, Trace
from liverank_service.errors import NotAnsweredInTime, UnknownSet, UnknownVertex
from liverank_service.formats.seeds import SeedColumns
from liverank_service.formats.values import key_column
from liverank_service.tables import member_of
from liverank_service.vertex_keys import VertexKeys

log = logging.getLogger("liverank.queries")

Members = Mapping[str, NDArray[np.int64]]
"""The ids of each set's vertices by its name, ascending. Never changed, only replaced."""

Chosen = str | list[str | int]
"""The name of a set, or keys."""

_MOST_NAMED = 10
"""The most seeds outside of `within` that an error names."""


class Vertices(NamedTuple):
    """The vertices of a graph, in which the keys of a query are looked up.

    limit  every id of a vertex is below it
    sets   the named sets
    """

    graph: str
    keys: VertexKeys
    limit: int
    sets: Members

    def ids_of(self, keys: pa.Array) -> NDArray[np.int64]:
        """int64[len(keys)]: -1 for a key that no vertex has."""
        ids = self.keys.lookup(keys)
        ids[ids >= self.limit] = -1
        return ids

    def members(self, name: str, field: str) -> NDArray[np.int64]:
        """int64[…], ascending: the vertices of a set. Raises UnknownSet, which names the field."""
        if name not in self.sets:
            raise UnknownSet(self.graph, name, field)
        return self.sets[name]


class QueryByIds(NamedTuple):
    """A query whose keys were looked up.

    has_ranks  false if its seeds are all unknown, or if it is among or within no vertices
    ignored    keys of the unknown seeds that are left out
    """

    query: Any
    has_ranks: bool
    ignored: list[Any]


def seeds_by_ids(
    seeds: SeedColumns, vertices: Vertices, unknown: Unknown, field: str
) -> tuple[NDArray[np.int64], NDArray[np.float64], list[Any]]:
    """Ids and weights of seeds, and the keys of those that are left out because they are unknown.

    Raises UnknownVertex, InvalidValue and FormatError, which name the `field`.
    """
    seeds = seeds.checked(vertices.keys.kind, field)
    ids = vertices.ids_of(seeds.keys)
    known = ids >= 0
    if known.all():
        return ids, seeds.weights, []
    ignored = seeds.keys.filter(pa.array(~known)).to_pylist()
    if unknown == "error":
        raise UnknownVertex(vertices.graph, ignored[0], field)
    return ids[known], seeds.weights[known], ignored


def _integral(value: object) -> object:
    """JSON has one kind of number: 10.0 is an integer too."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_member = partial(member_of, liverank.options.PersonalizedQuery)


class WatchedQuery(BaseModel):
    """A personalized query whose answer follows every batch."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"seeds": {"ada": 2.0, "alan": 1.0}, "k": 5}]},
    )

    seeds: SeedColumns = _member(
        "seeds",
        json_schema_extra={
            "minProperties": 1,
            "propertyNames": {"minLength": 1},
            "additionalProperties": {"type": "number", "minimum": 0},
        },
    )
    k: Annotated[int, BeforeValidator(_integral)] = _member("k")
    method: str = _member(
        "method",
        description="`hybrid`, `push` or `pull`",
        json_schema_extra={"enum": list(METHODS)},
    )
    target_error: float | None = _member("target_error")
    unknown: Unknown = _member("unknown")
    damping: float | None = _member("damping")
    among: Chosen | None = _member("among")
    zeros: bool = _member("zeros")

    @property
    def listed_keys(self) -> int:
        """Keys that it lists: seeds, and vertices of `among` and `within`."""
        return len(self.seeds) + sum(len(each) for each in self._chosen if isinstance(each, list))

    @property
    def nbytes(self) -> int:
        """Bytes of the seeds, and about those of `among` and `within`."""
        return self.seeds.nbytes + sum(16 * len(each) for each in self._chosen)

    @property
    def _chosen(self) -> list[Chosen]:
        return [] if self.among is None else [self.among]

    def by_ids(
        self, vertices: Vertices, prefix: str = "", seeds_field: str = "seeds"
    ) -> QueryByIds:
        """The query by ids.

        prefix  of the fields in errors

        Raises UnknownVertex, UnknownSet, InvalidValue and FormatError.
        """
        field = f"{prefix}{seeds_field}"
        ids, weights, ignored = seeds_by_ids(self.seeds, vertices, self.unknown, field)
        among = self.among_ids(vertices, f"{prefix}among")
        query = PersonalizedQuery(
            ids,
            weights,
            self.k,
            self.method,
            self.target_error,
            damping=self.damping,
            among=among,
            zeros=self.zeros,
        )
        has_ranks = bool(weights.any()) and (among is None or len(among) > 0)
        return QueryByIds(query, has_ranks, ignored)

    def among_ids(self, vertices: Vertices, field: str = "among") -> NDArray[np.int64] | None:
        """int64[…], ascending: the vertices that are in the answer; None for all.

        Raises UnknownSet, UnknownVertex, InvalidValue, FormatError.
        """
        return chosen_ids(self.among, vertices, self.unknown, field)


def chosen_ids(
    chosen: Chosen | None, vertices: Vertices, unknown: Unknown, field: str
) -> NDArray[np.int64] | None:
    """int64[…], ascending; None for all. Raises UnknownSet, UnknownVertex, InvalidValue,
    FormatError.
    """
    if chosen is None:
        return None
    if isinstance(chosen, str):
        return vertices.members(chosen, field)
    if not chosen:
        raise InvalidValue(field, [], "at least one vertex")
    ids = vertices.ids_of(key_column(chosen, vertices.keys.kind, field))
    known = ids >= 0
    if unknown == "error" and not known.all():
        index = int(np.flatnonzero(~known)[0])
        raise UnknownVertex(vertices.graph, chosen[index], field, index)
    return np.unique(ids[known])


def check_inside(
    seeds: NDArray[np.integer[Any]],
    weights: NDArray[np.float64],
    within: NDArray[np.int64],
    vertices: Vertices,
    field: str,
) -> None:
    """Raises InvalidValue, which names the field, if a seed with a weight is not `within`."""
    outside = ~np.isin(seeds, within) & (weights > 0.0)
    if outside.any():
        named = seeds[outside][:_MOST_NAMED].astype(np.int64)
        keys = vertices.keys.keys(named).to_pylist()
        raise InvalidValue(field, keys if len(seeds) > 1 else keys[0], "in `within`")


class KeyedQuery(WatchedQuery):
    """A personalized query."""

    method: str = _member("method")
    form: Form = _member("form")
    trace: bool = _member("trace")
    target: str = _member("target")
    within: Chosen | None = _member("within")

    @property
    def _chosen(self) -> list[Chosen]:
        return [*super()._chosen, *([] if self.within is None else [self.within])]

    def by_ids(
        self, vertices: Vertices, prefix: str = "", seeds_field: str = "seeds"
    ) -> QueryByIds:
        found = super().by_ids(vertices, prefix, seeds_field)
        within = chosen_ids(self.within, vertices, self.unknown, f"{prefix}within")
        query: PersonalizedQuery = replace(
            found.query, target=self.target, form=self.form, trace=self.trace, within=within
        )
        if within is None:
            return found._replace(query=query)
        assert query.weights is not None
        check_inside(query.seeds, query.weights, within, vertices, f"{prefix}{seeds_field}")
        return found._replace(query=query, has_ranks=found.has_ranks and len(within) > 0)


Answer = TypeVar("Answer")


class KeyedRequest(Protocol):
    """A query by keys."""

    @property
    def nbytes(self) -> int:
        """Bytes of its seeds, about."""

    def by_ids(
        self, vertices: Vertices, prefix: str = "", seeds_field: str = "seeds"
    ) -> QueryByIds:
        """It by ids: see WatchedQuery.by_ids."""


@dataclass(eq=False, slots=True)
class PendingQuery(Generic[Answer]):
    """Queries that are solved and answered together.

    timeout      seconds for the answer, including the wait in the queue
    seeds_field  the name of the seeds in errors
    answer       cancelled if the client no longer waits
    """

    queries: Sequence[KeyedRequest]
    timeout: float
    seeds_field: str = field(default="seeds", kw_only=True)
    submitted: float = field(default_factory=perf_counter, kw_only=True)
    answer: Future[Answer] = field(default_factory=Future, kw_only=True)

    @property
    def nbytes(self) -> int:
        """Bytes of the queries, about."""
        return sum(query.nbytes for query in self.queries)

    def by_ids(self, vertices: Vertices) -> list[QueryByIds]:
        """The queries by ids. Raises what WatchedQuery.by_ids raises."""
        return [
            query.by_ids(vertices, self.prefix(index), self.seeds_field)
            for index, query in enumerate(self.queries)
        ]

    def prefix(self, index: int) -> str:  # noqa: ARG002
        """The prefix of one query's fields in errors."""
        return ""

    def is_over(self) -> bool:
        """Whether it is answered or cancelled; fails it first if its time is over."""
        if self.answer.done():
            return True
        if perf_counter() - self.submitted > self.timeout:
            self.fail(NotAnsweredInTime(self.timeout))
            return True
        return False

    def fail(self, error: Exception) -> None:
        """Nothing if it is cancelled, or answered: others of its solve may fail later."""
        if not self.answer.done() and self.answer.set_running_or_notify_cancel():
            self.answer.set_exception(error)

    def succeed(self, answer: Answer) -> None:
        if self.answer.set_running_or_notify_cancel():
            self.answer.set_result(answer)


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """The answer to one query.

    vertices  the keys of the places
    ignored   the unknown seeds that were left out
    """

    places: Personalized
    vertices: pa.Array
    ignored: list[Any]


@dataclass(frozen=True, slots=True)
class QueryResponse:
    """The answers of one request, all of one version."""

    version: int
    revision: int
    answers: list[QueryAnswer]


@dataclass(eq=False, slots=True)
class QueryRequest(PendingQuery[QueryResponse]):
    """Queries that are answered once, from a body.

    labels  of the queries, if the body has them
    """

    queries: Sequence[WatchedQuery]
    labels: Sequence[Any] | None = None

    def prefix(self, index: int) -> str:
        if self.labels is None:
            return f"queries[{index}]."
        return f"query[{self.labels[index]!r}]."


@dataclass(frozen=True, slots=True)
class Refusals:
    """Says so if the ranks of a query were refused (liverank_gpu.pagerank.gate).

    count  counts one: "query", or "watched"
    """

    graph: str
    count: Callable[[str], None]

    def report(self, places: Personalized, name: str | None = None) -> None:
        """name: of a watched query, after each solve"""
        if places.refused is None:
            return
        log.warning(
            "graph %s: the ranks of %s were refused: %s; those of plain sweeps are answered",
            self.graph,
            "a personalized query" if name is None else f"the watched query {name!r}",
            places.refused,
        )
        self.count("query" if name is None else "watched")


def members_of(places: Personalized, ignored: list[Any]) -> dict[str, Any]:
    """What documents say of an answer beside its ranks and its trace, the bound first."""
    return {
        "error_bound": places.error_bound,
        "settled": places.settled,
        "settled_set": places.settled_set,
        "groups": places.groups,
        "ties": places.ties,
        "method": places.method,
        "iterations": places.iterations,
        "ignored": ignored,
    }


def no_places(query: PersonalizedQuery) -> Personalized:
    """The answer to a query that has no ranks."""
    trace = Trace.of(0, 0, []) if query.trace else None
    return Personalized(np.empty(0, np.int64), np.empty(0), 0.0, 0, query.method, 0, trace, True)
