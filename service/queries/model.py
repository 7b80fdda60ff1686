"""A personalized query as clients write it, and requests that wait for one to be solved.

A query has three shapes: by keys (here), by ids (gpu.PersonalizedQuery), and running
(gpu.QueryBatch, or gpu.Registration for a watched one).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from math import isfinite
from time import perf_counter
from typing import Annotated, Any, Generic, Literal, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from gpu import METHODS, TARGETS, InvalidValue, Personalized, PersonalizedQuery
from service.errors import NotAnsweredInTime, UnknownSet, UnknownVertex
from service.formats.values import key_column
from service.vertex_keys import ARROW_TYPES, VertexKeys, key_from_text

Answer = TypeVar("Answer")

Members = Mapping[str, NDArray[np.int64]]
"""The ids of each set's vertices by its name, ascending. Never changed, only replaced."""

NO_SETS: Members = {}

MAX_K = 100_000

# For OpenAPI alone: the engine checks these values, with clearer messages.
ONE_OF_METHODS: dict[str, Any] = {"enum": list(METHODS)}
ONE_OF_TARGETS: dict[str, Any] = {"enum": list(TARGETS)}
L1_ERROR: dict[str, Any] = {"exclusiveMinimum": 0, "maximum": 2}


def _integral(value: object) -> object:
    """JSON has one kind of number: 10.0 is an integer too."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class WatchedQuery(BaseModel):
    """A personalized query whose answer follows every batch."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"seeds": {"ada": 2.0, "alan": 1.0}, "k": 5}]},
    )

    seeds: dict[str, float] = Field(
        description="weight of each seed, scaled to sum 1; a weight of 0 is ignored",
        json_schema_extra={
            "minProperties": 1,
            "propertyNames": {"minLength": 1},
            "additionalProperties": {"type": "number", "minimum": 0},
        },
    )
    k: Annotated[int, BeforeValidator(_integral)] = Field(
        default=10, ge=1, le=MAX_K, description="number of places; fewer in a smaller graph"
    )
    method: str = Field(
        default="hybrid", description="`hybrid`, `push` or `pull`", json_schema_extra=ONE_OF_METHODS
    )
    target_error: float | None = Field(
        default=None,
        description="L1 error to reach; the graph's if omitted",
        json_schema_extra=L1_ERROR,
    )

    def by_ids(
        self,
        graph: str,
        keys: VertexKeys,
        vertices: int,
        field: str,
        sets: Members = NO_SETS,  # noqa: ARG002
    ) -> PersonalizedQuery:
        """The query by ids. Raises UnknownVertex and InvalidValue, which name the seeds `field`."""
        if not self.seeds:
            raise InvalidValue(field, {}, "at least one vertex with its weight")
        seeds = [key_from_text(text, keys.kind, f"{field}[{text!r}]") for text in self.seeds]
        ids = keys.lookup(pa.array(seeds, ARROW_TYPES[keys.kind]))
        unknown = np.flatnonzero((ids < 0) | (ids >= vertices))
        if len(unknown):
            raise UnknownVertex(graph, seeds[int(unknown[0])], field)
        for seed, weight in self.seeds.items():
            if not (isfinite(weight) and weight >= 0.0):
                requirement = "a finite number that is not negative"
                raise InvalidValue(f"{field}[{seed!r}]", weight, requirement)
        weights = np.array(list(self.seeds.values()), np.float64)
        if not weights.any():
            raise InvalidValue(field, "all 0", "not all 0")
        return PersonalizedQuery(ids, weights, self.k, self.method, self.target_error)

    def known(self, keys: VertexKeys, vertices: int) -> tuple[WatchedQuery, list[Any]]:  # noqa: ARG002
        """The query without the unknown seeds that it ignores, and these. Raises InvalidValue."""
        return self, []


class KeyedQuery(WatchedQuery):
    """A personalized query."""

    target: str = Field(
        default="error",
        description="`error`, or `settled-top-k`: stop once the k places are proven",
        json_schema_extra=ONE_OF_TARGETS,
    )
    unknown: Literal["error", "ignore"] = Field(
        default="error",
        description="`ignore`: a seed that is no vertex is left out, and named in the answer",
    )
    damping: float | None = Field(
        default=None,
        description="the graph's if omitted",
        json_schema_extra={"exclusiveMinimum": 0, "exclusiveMaximum": 1},
    )
    among: str | list[str | int] | None = Field(
        default=None,
        description="keys, or the name of a set: only these vertices are in the answer, with their "
        "ranks in the whole graph. `unknown` is for keys too",
    )

    def by_ids(
        self,
        graph: str,
        keys: VertexKeys,
        vertices: int,
        field: str,
        sets: Members = NO_SETS,
    ) -> PersonalizedQuery:
        query = super().by_ids(graph, keys, vertices, field, sets)
        among = self._among(graph, keys, vertices, f"{field.removesuffix('seeds')}among", sets)
        return replace(query, target=self.target, damping=self.damping, among=among)

    def _among(
        self, graph: str, keys: VertexKeys, vertices: int, field: str, sets: Members
    ) -> NDArray[np.int64] | None:
        """Raises UnknownSet, UnknownVertex, FormatError."""
        if self.among is None:
            return None
        if isinstance(self.among, str):
            if self.among not in sets:
                raise UnknownSet(graph, self.among, field)
            return sets[self.among]
        ids = keys.lookup(key_column(self.among, keys.kind, field))
        known = (ids >= 0) & (ids < vertices)
        if self.unknown == "error" and not known.all():
            index = int(np.flatnonzero(~known)[0])
            raise UnknownVertex(graph, self.among[index], field, index)
        return np.unique(ids[known])

    def known(self, keys: VertexKeys, vertices: int) -> tuple[WatchedQuery, list[Any]]:
        if self.unknown == "error" or not self.seeds:
            return self, []
        seeds = [key_from_text(text, keys.kind, f"seeds[{text!r}]") for text in self.seeds]
        ids = keys.lookup(pa.array(seeds, ARROW_TYPES[keys.kind]))
        is_known = ((ids >= 0) & (ids < vertices)).tolist()
        weights = zip(self.seeds.items(), is_known, strict=True)
        left = {text: weight for (text, weight), known in weights if known}
        ignored = [seed for seed, known in zip(seeds, is_known, strict=True) if not known]
        return self.model_copy(update={"seeds": left}), ignored


@dataclass(eq=False, slots=True)
class PendingQuery(Generic[Answer]):
    """Queries that are solved and answered together.

    timeout  seconds for the answer, including the wait in the queue
    answer   cancelled if the client no longer waits
    ignored  the unknown seeds of each query that were left out, once they are looked up
    solved   the places of the queries that are solved, if some are not
    """

    queries: Sequence[WatchedQuery]
    timeout: float
    submitted: float = field(default_factory=perf_counter, kw_only=True)
    answer: Future[Answer] = field(default_factory=Future, kw_only=True)
    ignored: list[list[Any]] = field(default_factory=list, kw_only=True)
    solved: list[int] = field(default_factory=list, kw_only=True)

    @property
    def nbytes(self) -> int:
        """Bytes of the seeds, and about those of `among`."""
        seeds = sum(len(seed) + 8 for query in self.queries for seed in query.seeds)
        return seeds + sum(16 * len(getattr(query, "among", None) or ()) for query in self.queries)

    def by_ids(
        self, graph: str, keys: VertexKeys, vertices: int, sets: Members
    ) -> list[PersonalizedQuery]:
        """The queries to solve, by ids. Raises UnknownVertex, UnknownSet, InvalidValue."""
        return [
            query.by_ids(graph, keys, vertices, f"{self.prefix(index)}seeds", sets)
            for index, query in enumerate(self.queries)
        ]

    def prefix(self, index: int) -> str:  # noqa: ARG002
        """The prefix of one query's fields in errors."""
        return ""

    def arranged(self, answers: list[Personalized]) -> list[Personalized]:
        """The answers in the order of the queries."""
        return answers

    def begin_again(self) -> None:
        """Forgets which vertices its keys were."""
        self.ignored.clear()
        self.solved.clear()

    def is_over(self) -> bool:
        """Whether it is answered or cancelled; fails it first if its time is over."""
        if self.answer.done():
            return True
        if perf_counter() - self.submitted > self.timeout:
            self.fail(NotAnsweredInTime(self.timeout))
            return True
        return False

    def fail(self, error: Exception) -> None:
        if self.answer.set_running_or_notify_cancel():
            self.answer.set_exception(error)

    def succeed(self, answer: Answer) -> None:
        if self.answer.set_running_or_notify_cancel():
            self.answer.set_result(answer)


@dataclass(frozen=True, slots=True)
class QueryResponse:
    """The answers of one request, all of one version.

    vertices  the keys of each answer
    ignored   the unknown seeds of each query that were left out
    """

    version: int
    revision: int
    answers: list[Personalized]
    vertices: list[list[Any]]
    ignored: list[list[Any]]


def _is_meant(query: WatchedQuery) -> bool:
    """Whether the query is among vertices that may be none: a set, or keys that may be unknown."""
    return isinstance(query, KeyedQuery) and query.among != []


@dataclass(eq=False, slots=True)
class QueryRequest(PendingQuery[QueryResponse]):
    """Queries that are answered once, from a body. There are no ranks for one whose seeds are all
    ignored, or that is among no vertices.
    """

    def by_ids(
        self, graph: str, keys: VertexKeys, vertices: int, sets: Members
    ) -> list[PersonalizedQuery]:
        by_ids = []
        for index, query in enumerate(self.queries):
            known, ignored = query.known(keys, vertices)
            self.ignored.append(ignored)
            if ignored and not known.seeds:
                continue
            by_id = known.by_ids(graph, keys, vertices, f"{self.prefix(index)}seeds", sets)
            if by_id.among is not None and not len(by_id.among) and _is_meant(query):
                continue
            self.solved.append(index)
            by_ids.append(by_id)
        return by_ids

    def arranged(self, answers: list[Personalized]) -> list[Personalized]:
        found = dict(zip(self.solved, answers, strict=True))
        no_ids, no_ranks = np.empty(0, np.int64), np.empty(0)
        return [
            found.get(index) or Personalized(no_ids, no_ranks, 0.0, 0, query.method, 0)
            for index, query in enumerate(self.queries)
        ]

    def prefix(self, index: int) -> str:
        return f"queries[{index}]."


@dataclass(eq=False, slots=True)
class VertexQueryRequest(PendingQuery[QueryResponse]):
    """A query that is answered once, for the vertex in a path."""

    def by_ids(
        self, graph: str, keys: VertexKeys, vertices: int, sets: Members
    ) -> list[PersonalizedQuery]:
        return [self.queries[0].by_ids(graph, keys, vertices, "vertex", sets)]
