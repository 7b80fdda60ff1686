"""Personalized queries take turns: they wait together, are solved together, and in slices.

They walk the live graph, so they are made on the pipeline's thread: between two groups of batches,
for SLICE_SECONDS at most (or one sweep over the graph, where that takes longer). What waits when a
job begins is solved by it (gpu.job), in shared passes over the graph, and each request is answered
as soon as its own queries are. A query to be watched is solved in the same way before it is kept,
one at a time. Jobs take turns, so that a request with thousands of queries does not hold up those
that come after it.

A batch between two slices perturbs what is at work, which goes on. Batches that come again and
again could keep a job from ever ending: one that had to begin anew for a batch, or that has seen
MOST_BATCHES, is made to the end at once, and the batches wait for it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from gpu import DeviceLost, Engine, InvalidValue, PersonalizedQuery
from gpu.job import Job
from gpu.watched import Registration
from service.queries.model import Answered, KeyedQuery, Request, Waiting
from service.queries.view import View
from service.queries.watched import Definition
from service.vertex_keys.table import KeyTable

SLICE_SECONDS = 0.005

MOST_BATCHES = 16
"""Batches that a job follows before it is made to the end at once."""

GATHERING_SECONDS = 0.002
"""How long a job may wait for those who asked together the last time."""

_ALONE_SECONDS = 0.1
"""A job that has been at work for so long no longer keeps others from beginning."""

_JOBS = 2
_QUERIES_OF_A_JOB = 64
"""A job takes no further request once it has so many queries."""


@dataclass(eq=False, slots=True)
class Watch(Waiting[tuple[bool, View]]):
    """A query to be kept fresh. Answered by whether its name is new, and a view that has it."""

    name: str
    definition: Definition


@dataclass(eq=False, slots=True)
class _Asking:
    """Requests at work, each with the places of its queries in the job."""

    job: Job
    waiting: list[tuple[Request, range]]
    began: float

    @property
    def requests(self) -> list[Request]:
        return [request for request, _ in self.waiting]


@dataclass(eq=False, slots=True)
class _Watching:
    job: Registration
    watch: Watch

    @property
    def requests(self) -> list[Watch]:
        return [self.watch]


class Queries:
    """The queries of one graph. `add` may be called from any thread, all else on the pipeline's."""

    def __init__(self, graph: str) -> None:
        self._graph = graph
        self._waiting: deque[Request] = deque()
        self._to_watch: deque[Watch] = deque()
        self._at_work: deque[_Asking | _Watching] = deque()
        self._arrived = threading.Condition()
        self._expected = 0
        self._engine: Engine
        self._keys: KeyTable
        self._newest: Callable[[], tuple[int, int]]
        self._keep: Callable[[Watch, Registration], tuple[bool, View]]
        self._ending: Callable[[], bool]

    def open(
        self,
        engine: Engine,
        keys: KeyTable,
        newest: Callable[[], tuple[int, int]],
        keep: Callable[[Watch, Registration], tuple[bool, View]],
        ending: Callable[[], bool],
    ) -> None:
        """newest  the version and the revision that an answer is of
        keep    watches a query that is solved
        ending  whether no more should be done than is at work now
        """
        self._engine, self._keys, self._newest = engine, keys, newest
        self._keep, self._ending = keep, ending

    def add(self, asked: Waiting[Any]) -> None:
        """Takes a Request or a Watch."""
        if isinstance(asked, Watch):
            self._to_watch.append(asked)
            return
        assert isinstance(asked, Request)
        with self._arrived:
            self._waiting.append(asked)
            self._arrived.notify()

    def __bool__(self) -> bool:
        return bool(self._waiting or self._to_watch or self._at_work)

    def advance(self, seconds: float = SLICE_SECONDS) -> None:
        """Works on them for about so long, and makes one step at least."""
        end = perf_counter() + seconds
        while self:
            self._begin_watching()
            self._begin_asking()
            if self._at_work:
                self._step()
            if perf_counter() >= end:
                return

    def refuse(self, error: Exception) -> None:
        """Ends all of them with an error."""
        for group in self._at_work:
            for asked in group.requests:
                asked.fail(error)
        for waiting in (self._waiting, self._to_watch):
            while waiting:
                waiting.popleft().fail(error)

    def _begin_watching(self) -> None:
        if not self._to_watch or any(isinstance(group, _Watching) for group in self._at_work):
            return
        watch = self._to_watch.popleft()
        if watch.over():
            return
        try:
            (query,) = self._resolved(watch)
            registration = self._engine.register(watch.name, query)
        except DeviceLost:
            raise
        except Exception as error:
            watch.fail(error)
            return
        self._at_work.append(_Watching(registration, watch))

    def _begin_asking(self) -> None:
        asking = [group for group in self._at_work if isinstance(group, _Asking)]
        if not self._waiting or len(asking) >= _JOBS:
            return
        if asking and perf_counter() - asking[0].began < _ALONE_SECONDS:
            return
        if not self._at_work:
            self._gather()
        waiting: list[tuple[Request, range]] = []
        resolved: list[PersonalizedQuery] = []
        while self._waiting and len(resolved) < _QUERIES_OF_A_JOB:
            request = self._waiting.popleft()
            if request.over():
                continue
            try:
                queries = self._resolved(request)
                self._engine.check(queries)
            except DeviceLost:
                raise
            except Exception as error:
                request.fail(_named(error, request.queries))
                continue
            waiting.append((request, range(len(resolved), len(resolved) + len(queries))))
            resolved += queries
        self._expected = len(waiting)
        if waiting:
            self._at_work.append(_Asking(self._engine.ask(resolved), waiting, perf_counter()))

    def _gather(self) -> None:
        """Waits a moment for clients that asked together before, and were answered just now: what
        one of them asks alone costs the others as much as if all were answered by it.
        """
        expected = min(self._expected, _QUERIES_OF_A_JOB)
        with self._arrived:
            self._arrived.wait_for(lambda: len(self._waiting) >= expected, GATHERING_SECONDS)

    def _resolved(self, asked: Request | Watch) -> list[PersonalizedQuery]:
        return [
            query.resolved(self._graph, self._keys, self._engine.vertices)
            for query in asked.queries
        ]

    def _step(self) -> None:
        group = self._at_work[0]
        self._at_work.rotate(-1)
        job = group.job
        try:
            while not _all_over(group):
                if not job.done:
                    self._engine.step(job)
                self._answer(group)
                hurried = job.restarts > 0 or job.batches >= MOST_BATCHES
                if not hurried or self._ending():
                    break
        except DeviceLost:
            raise
        except Exception as error:
            for asked in group.requests:
                asked.fail(error)
        if _all_over(group):
            self._at_work.remove(group)
            self._engine.close(job)
            # those who asked meanwhile are likely to ask together with those answered now
            self._expected += len(self._waiting)

    def _answer(self, group: _Asking | _Watching) -> None:
        """Answers who is waiting for nothing else."""
        if isinstance(group, _Watching):
            if group.job.done:
                group.watch.succeed(self._keep(group.watch, group.job))
            return
        for request, places in group.waiting:
            if request.answered.done():
                continue
            answers = group.job.take(places)
            if answers is None:
                continue
            version, revision = self._newest()
            vertices = [self._keys.keys(answer.vertices).to_pylist() for answer in answers]
            request.succeed(Answered(version, revision, answers, vertices))


def _all_over(group: _Asking | _Watching) -> bool:
    # every one is looked at: each may just have come to its end
    return sum(asked.over() for asked in group.requests) == len(group.requests)


def _named(error: Exception, queries: Sequence[KeyedQuery]) -> Exception:
    """An error of the engine's check as the request names it: a list of one is a list too."""
    place = queries[0].place or ""
    if isinstance(error, InvalidValue) and not error.field.startswith("queries["):
        return InvalidValue(place + error.field, error.value, error.requirement)
    return error
