"""Requests that wait for personalized queries to be solved."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from liverank_gpu import Personalized, PersonalizedQuery, Trace
from liverank_service.errors import NotAnsweredInTime
from liverank_service.queries.model import QueryByIds, Vertices, WatchedQuery

log = logging.getLogger("liverank.queries")

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

    timeout  seconds for the answer, including the wait in the queue
    answer   cancelled if the client no longer waits
    """

    queries: Sequence[KeyedRequest]
    timeout: float
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

    @property
    def seeds_field(self) -> str:
        """The name of the seeds in errors."""
        return "seeds"

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


@dataclass(eq=False, slots=True)
class VertexQueryRequest(PendingQuery[QueryResponse]):
    """A query that is answered once, for the vertex in a path."""

    @property
    def seeds_field(self) -> str:
        return "vertex"


@dataclass(frozen=True, slots=True)
class Refusals:
    """Says so if the ranks of a query were refused (liverank_gpu.personalized.gate).

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


def trace_member(places: Personalized) -> dict[str, Trace]:
    """The member of a document that has the trace, if there is one."""
    return {} if places.trace is None else {"trace": places.trace}


def no_places(query: PersonalizedQuery) -> Personalized:
    """The answer to a query that has no ranks."""
    trace = Trace.of(0, 0, []) if query.trace else None
    return Personalized(np.empty(0, np.int64), np.empty(0), 0.0, 0, query.method, 0, trace, True)
