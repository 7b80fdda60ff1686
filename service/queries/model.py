"""Personalized queries by keys, and requests that wait for them to be solved."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from math import isfinite
from time import perf_counter
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from gpu import InvalidValue, Personalized, PersonalizedQuery
from service.errors import NotAnsweredInTime, UnknownVertex
from service.vertex_keys.table import KeyTable

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class KeyedQuery:
    """A query by keys: see gpu.PersonalizedQuery.

    seeds    the keys, as an array of the graph's kind; weights: one each, or None for equal ones
    place    what stands before its fields where an error names them: "" or "queries[3]."; None for
             the one vertex of a path
    """

    seeds: pa.Array
    weights: Sequence[float] | None = None
    k: int = 10
    method: str = "hybrid"
    target_error: float | None = None
    target: str = "error"
    place: str | None = None

    def resolved(self, graph: str, keys: KeyTable, vertices: int) -> PersonalizedQuery:
        """The query by ids. Raises UnknownVertex, InvalidValue."""
        ids = keys.lookup(self.seeds)
        unknown = np.flatnonzero((ids < 0) | (ids >= vertices))
        if len(unknown):
            seed = self.seeds[int(unknown[0])].as_py()
            raise UnknownVertex(graph, seed, self._field)
        weights = None
        if self.weights is not None:
            weights = np.array(self.weights, np.float64)
            for seed, weight in zip(self.seeds, self.weights, strict=True):
                if not (isfinite(weight) and weight >= 0.0):
                    raise InvalidValue(
                        f"{self._field}[{seed.as_py()!r}]",
                        weight,
                        "a finite number that is not negative",
                    )
            if not weights.any():
                raise InvalidValue(self._field, "all 0", "not all 0")
        return PersonalizedQuery(ids, weights, self.k, self.method, self.target_error, self.target)

    @property
    def _field(self) -> str:
        return "vertex" if self.place is None else f"{self.place}seeds"


@dataclass(frozen=True, slots=True)
class Answered:
    """The answers of one request, all of one version; vertices holds the keys of each."""

    version: int
    revision: int
    answers: list[Personalized]
    vertices: list[list[Any]]


@dataclass(eq=False, slots=True)
class Waiting(Generic[Answer]):
    """Who waits for queries to be solved.

    seconds   how long they may take, waiting included
    answered  cancel it to give them up
    """

    queries: Sequence[KeyedQuery]
    seconds: float
    submitted: float = field(default_factory=perf_counter, kw_only=True)
    answered: Future[Answer] = field(default_factory=Future, kw_only=True)

    @property
    def nbytes(self) -> int:
        """Bytes of the seeds."""
        return sum(int(query.seeds.nbytes) for query in self.queries)

    def over(self) -> bool:
        """Whether nobody waits any more, or no longer should."""
        if self.answered.done():
            return True
        if perf_counter() - self.submitted > self.seconds:
            self.fail(NotAnsweredInTime(self.seconds))
            return True
        return False

    def fail(self, error: Exception) -> None:
        if self.answered.set_running_or_notify_cancel():
            self.answered.set_exception(error)

    def succeed(self, answer: Answer) -> None:
        if self.answered.set_running_or_notify_cancel():
            self.answered.set_result(answer)


@dataclass(eq=False, slots=True)
class Request(Waiting[Answered]):
    """Queries that are answered together, once."""
