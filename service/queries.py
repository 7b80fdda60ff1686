"""Personalized queries on their way: they wait together, are solved together, and in slices.

They walk the live graph, so they are made on the pipeline's thread: between two groups of batches,
for SLICE_SECONDS at most (or one sweep over the graph, where that takes longer). What waits when a
slice begins becomes one job (gpu.job), which shares its passes over the graph. Two jobs take turns,
so that a request with thousands of queries does not hold up those that come after it. A batch
between two slices perturbs what is at work; a job that has to begin anew for it is made to the end
at once the next time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from math import isfinite
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

from gpu import Engine, InvalidValue, Personalized, PersonalizedQuery
from gpu.job import Job
from service.errors import NotAnsweredInTime, UnknownVertex
from service.keys import KeyTable

SLICE_SECONDS = 0.005

_JOBS = 2
_QUERIES_OF_A_JOB = 64
"""A job takes no further request once it has so many queries."""


@dataclass(frozen=True, slots=True)
class KeyedQuery:
    """A query by keys: see gpu.PersonalizedQuery.

    seeds    the keys, as an array of the graph's kind; weights: one each, or None for equal ones
    place    how an error names the query: "" or "queries[3]."
    """

    seeds: pa.Array
    weights: Sequence[float] | None = None
    k: int = 10
    method: str = "hybrid"
    target_error: float | None = None
    target: str = "error"
    place: str = ""

    def resolved(self, graph: str, keys: KeyTable, vertices: int) -> PersonalizedQuery:
        """The query by ids. Raises UnknownVertex, InvalidValue."""
        ids = keys.lookup(self.seeds)
        unknown = np.flatnonzero((ids < 0) | (ids >= vertices))
        if len(unknown):
            seed = self.seeds[int(unknown[0])].as_py()
            raise UnknownVertex(graph, seed, f"{self.place}seeds" if self.place else "vertex")
        weights = None
        if self.weights is not None:
            weights = np.array(self.weights, np.float64)
            for seed, weight in zip(self.seeds, self.weights, strict=True):
                if not (isfinite(weight) and weight >= 0.0):
                    raise InvalidValue(
                        f"{self.place}seeds[{seed.as_py()!r}]",
                        weight,
                        "a finite number that is not negative",
                    )
            if not weights.any():
                raise InvalidValue(f"{self.place}seeds", "all 0", "not all 0")
        return PersonalizedQuery(ids, weights, self.k, self.method, self.target_error, self.target)


@dataclass(frozen=True, slots=True)
class Answered:
    """The answers of one request, all of one version; vertices holds the keys of each."""

    version: int
    revision: int
    answers: list[Personalized]
    vertices: list[list[Any]]


@dataclass(eq=False, slots=True)
class Request:
    """Queries that are answered together.

    seconds   how long they may take, waiting included
    answered  cancel it to give them up
    """

    queries: Sequence[KeyedQuery]
    seconds: float
    submitted: float = field(default_factory=perf_counter)
    answered: Future[Answered] = field(default_factory=Future)

    @property
    def nbytes(self) -> int:
        """Bytes of its seeds."""
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

    def succeed(self, answered: Answered) -> None:
        if self.answered.set_running_or_notify_cancel():
            self.answered.set_result(answered)


@dataclass(eq=False, slots=True)
class _Group:
    job: Job
    requests: list[Request]


class Queries:
    """The queries of one graph. `add` may be called from any thread, all else on the pipeline's."""

    def __init__(self, graph: str) -> None:
        self._graph = graph
        self._waiting: deque[Request] = deque()
        self._groups: deque[_Group] = deque()
        self._engine: Engine
        self._keys: KeyTable
        self._newest: Callable[[], tuple[int, int]]

    def open(self, engine: Engine, keys: KeyTable, newest: Callable[[], tuple[int, int]]) -> None:
        """newest  the version and the revision that an answer is of"""
        self._engine, self._keys, self._newest = engine, keys, newest

    def add(self, request: Request) -> None:
        self._waiting.append(request)

    def __bool__(self) -> bool:
        return bool(self._waiting or self._groups)

    def advance(self, seconds: float = SLICE_SECONDS) -> None:
        """Works on them for about so long."""
        end = perf_counter() + seconds
        while self and perf_counter() < end:
            if self._waiting and len(self._groups) < _JOBS:
                self._begin()
            if self._groups:
                self._step()

    def refuse(self, error: Exception) -> None:
        """Ends all of them with an error."""
        for group in self._groups:
            for request in group.requests:
                request.fail(error)
        while self._waiting:
            self._waiting.popleft().fail(error)

    def _begin(self) -> None:
        requests: list[Request] = []
        resolved: list[PersonalizedQuery] = []
        while self._waiting and len(resolved) < _QUERIES_OF_A_JOB:
            request = self._waiting.popleft()
            if request.over():
                continue
            try:
                queries = [
                    query.resolved(self._graph, self._keys, self._engine.vertices)
                    for query in request.queries
                ]
                self._engine.check(queries)
            except Exception as error:
                request.fail(_named(error, request.queries))
                continue
            requests.append(request)
            resolved += queries
        if requests:
            self._groups.append(_Group(self._engine.ask(resolved), requests))

    def _step(self) -> None:
        group = self._groups[0]
        self._groups.rotate(-1)
        # every one is looked at: each may just have come to its end
        if sum(request.over() for request in group.requests) == len(group.requests):
            self._end(group)
            return
        try:
            group.job.step()
            while group.job.restarts and not group.job.done:
                group.job.step()
        except Exception as error:
            for request in group.requests:
                request.fail(error)
            self._end(group)
            return
        if group.job.done:
            self._answer(group)
            self._end(group)

    def _end(self, group: _Group) -> None:
        self._groups.remove(group)
        self._engine.close(group.job)

    def _answer(self, group: _Group) -> None:
        version, revision = self._newest()
        answers = iter(self._engine.answers(group.job))
        for request in group.requests:
            own = [next(answers) for _ in request.queries]
            vertices = [self._keys.keys(answer.vertices).to_pylist() for answer in own]
            request.succeed(Answered(version, revision, own, vertices))


def _named(error: Exception, queries: Sequence[KeyedQuery]) -> Exception:
    """An error of the engine's check as the request names it: a list of one is a list too."""
    place = queries[0].place
    if isinstance(error, InvalidValue) and not error.field.startswith("queries["):
        return InvalidValue(place + error.field, error.value, error.requirement)
    return error
