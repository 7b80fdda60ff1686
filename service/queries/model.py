"""A personalized query as clients write it, and requests that wait for one to be solved.

A query has three shapes: by keys (here), by ids (gpu.PersonalizedQuery), and running
(gpu.QueryBatch, or gpu.Registration for a watched one).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from math import isfinite
from time import perf_counter
from typing import Annotated, Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from gpu import METHODS, TARGETS, InvalidValue, Personalized, PersonalizedQuery
from service.errors import NotAnsweredInTime, UnknownVertex
from service.vertex_keys import ARROW_TYPES, KeyTable, key_from_text

Answer = TypeVar("Answer")

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

    def by_ids(self, graph: str, keys: KeyTable, vertices: int, field: str) -> PersonalizedQuery:
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


class KeyedQuery(WatchedQuery):
    """A personalized query."""

    target: str = Field(
        default="error",
        description="`error`, or `settled-top-k`: stop once the k places are proven",
        json_schema_extra=ONE_OF_TARGETS,
    )

    def by_ids(self, graph: str, keys: KeyTable, vertices: int, field: str) -> PersonalizedQuery:
        return replace(super().by_ids(graph, keys, vertices, field), target=self.target)


@dataclass(eq=False, slots=True)
class PendingQuery(Generic[Answer]):
    """Queries that are solved and answered together.

    timeout  seconds for the answer, including the wait in the queue
    answer   cancelled if the client no longer waits
    """

    queries: Sequence[WatchedQuery]
    timeout: float
    submitted: float = field(default_factory=perf_counter, kw_only=True)
    answer: Future[Answer] = field(default_factory=Future, kw_only=True)

    @property
    def nbytes(self) -> int:
        """Bytes of the seeds."""
        return sum(len(seed) + 8 for query in self.queries for seed in query.seeds)

    def by_ids(self, graph: str, keys: KeyTable, vertices: int) -> list[PersonalizedQuery]:
        """The queries by ids. Raises UnknownVertex, InvalidValue."""
        return [
            query.by_ids(graph, keys, vertices, f"{self.prefix(index)}seeds")
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
        if self.answer.set_running_or_notify_cancel():
            self.answer.set_exception(error)

    def succeed(self, answer: Answer) -> None:
        if self.answer.set_running_or_notify_cancel():
            self.answer.set_result(answer)


@dataclass(frozen=True, slots=True)
class QueryResponse:
    """The answers of one request, all of one version. vertices: the keys of each answer."""

    version: int
    revision: int
    answers: list[Personalized]
    vertices: list[list[Any]]


@dataclass(eq=False, slots=True)
class QueryRequest(PendingQuery[QueryResponse]):
    """Queries that are answered once, from a body."""

    def prefix(self, index: int) -> str:
        return f"queries[{index}]."


@dataclass(eq=False, slots=True)
class VertexQueryRequest(PendingQuery[QueryResponse]):
    """A query that is answered once, for the vertex in a path."""

    def by_ids(self, graph: str, keys: KeyTable, vertices: int) -> list[PersonalizedQuery]:
        return [self.queries[0].by_ids(graph, keys, vertices, "vertex")]
