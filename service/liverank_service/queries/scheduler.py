"""Schedules personalized queries: solved together, and in time slices between batches.

They are solved on the live graph, hence on the writer's thread: between two groups of batches, for
SLICE_SECONDS at most (or one sweep over the graph, if that takes longer). All queries that wait
when a solve begins share it (liverank_gpu.QueryBatch) and its passes over the graph; each request
is answered as soon as its own queries are. Queries to be watched are solved in the same way, one at
a time. Running solves take turns, so that a request with thousands of queries does not delay later
ones.

A batch between two slices perturbs the running solves, which continue. A steady stream of batches
could keep one from ever ending: a solve that a batch restarted, or that has followed MAX_BATCHES,
is completed at once while the batches wait. A request begins again if a batch removed a seed: what
that means is decided where keys become ids.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from liverank_gpu import (
    DeviceLost,
    Engine,
    InvalidValue,
    Personalized,
    QueryBatch,
    Registration,
    ResolvedQuery,
    ResolvedView,
    ShardLost,
    ViewQuery,
)
from liverank_gpu import UnknownVertex as UnknownId
from liverank_service.queries.model import (
    PendingQuery,
    QueryAnswer,
    QueryByIds,
    QueryResponse,
    Refusals,
    Vertices,
    no_places,
)
from liverank_service.queries.view import View

SLICE_SECONDS = 0.005

MAX_BATCHES = 16
"""Batches that a solve follows before it is completed at once."""

GATHERING_SECONDS = 0.002
"""How long the next solve may wait for clients that were answered together."""

_EXCLUSIVE_SECONDS = 0.1
"""Seconds from the beginning of a solve to the earliest beginning of the next one."""

_MAX_SOLVES = 2
_MAX_QUERIES = 64
"""Queries of a solve from which on no further request joins it."""


@dataclass(eq=False, slots=True)
class WatchRequest(PendingQuery[tuple[bool, View]]):
    """A query to be watched, or a view to be kept. The answer: whether its name is new, and a view
    with its result.
    """

    name: str


Keep = Callable[[WatchRequest, QueryByIds, Registration | None], tuple[bool, View]]
"""Stores a watched query, its keys as they were looked up, and its first solve, if it has ranks."""


class QueryQueue:
    """Requests whose solve has not begun. Any thread may call `put` while it holds `changed`;
    everything else is for the writer's thread.

    changed  notified of every request
    """

    def __init__(self, changed: threading.Condition) -> None:
        self.changed = changed
        self.requests: deque[PendingQuery[QueryResponse]] = deque()
        self.watches: deque[WatchRequest] = deque()

    def put(self, request: PendingQuery[QueryResponse] | WatchRequest) -> None:
        if isinstance(request, WatchRequest):
            self.watches.append(request)
        else:
            self.requests.append(request)

    def __bool__(self) -> bool:
        return bool(self.requests or self.watches)

    def refuse(self, error: Exception) -> None:
        """Fails all of them."""
        for waiting in (self.requests, self.watches):
            while waiting:
                waiting.popleft().fail(error)


@dataclass(eq=False, slots=True)
class _Member:
    """A request that shares a solve.

    found   its queries by ids
    places  in the solve, of those that have ranks
    """

    request: PendingQuery[QueryResponse]
    found: list[QueryByIds]
    places: range


@dataclass(eq=False, slots=True)
class _Solve:
    """Requests that share a solve."""

    job: QueryBatch
    members: list[_Member]
    began: float

    def is_over(self) -> bool:
        # not `all`: every request must be checked, for its timeout
        return sum(member.request.is_over() for member in self.members) == len(self.members)

    def fail(self, error: Exception) -> None:
        for member in self.members:
            member.request.fail(error)


@dataclass(eq=False, slots=True)
class _FirstSolve:
    """Of a query to be watched."""

    job: Registration
    watch: WatchRequest
    found: QueryByIds

    def is_over(self) -> bool:
        return self.watch.is_over()

    def fail(self, error: Exception) -> None:
        self.watch.fail(error)


class QueryScheduler:
    """The queries of one graph, on its writer's thread."""

    def __init__(
        self,
        queue: QueryQueue,
        engine: Engine,
        vertices: Callable[[], Vertices],
        newest: Callable[[], tuple[int, int]],
        keep: Keep,
        closing: Callable[[], bool],
        refusals: Refusals,
    ) -> None:
        """vertices  as they are now
        newest    the version and the revision of an answer
        keep      stores a watched query once it is solved
        closing   whether the graph is being closed, so that no solve is completed any more
        """
        self._queue = queue
        self._engine = engine
        self._vertices = vertices
        self._newest = newest
        self._keep = keep
        self._closing = closing
        self._refusals = refusals
        self._running: deque[_Solve | _FirstSolve] = deque()
        self._expected = 0

    def __bool__(self) -> bool:
        """Whether there is anything to solve."""
        return bool(self._queue or self._running)

    def advance(self, seconds: float = SLICE_SECONDS) -> None:
        """Works for about `seconds`, for at least one step."""
        end = perf_counter() + seconds
        while self:
            self._begin_watch()
            self._begin_solve()
            if self._running:
                self._step()
            if perf_counter() >= end:
                return

    def refuse(self, error: Exception) -> None:
        """Fails all requests."""
        for solve in self._running:
            solve.fail(error)
        self._queue.refuse(error)

    def _begin_watch(self) -> None:
        waiting = self._queue.watches
        if not waiting or any(isinstance(solve, _FirstSolve) for solve in self._running):
            return
        watch = waiting.popleft()
        if watch.is_over():
            return
        try:
            (found,) = watch.by_ids(self._vertices())
            if isinstance(found.query, ViewQuery):
                ResolvedView.check(self._engine.options, found.query)
                # it goes on from where it is; a subgraph is made and walked in slices
                at_once = found.query.within is None and watch.name in self._engine.views
            else:
                ResolvedQuery.checked_options(self._engine.options, found.query)
                at_once = False
            if at_once or not found.has_ranks:
                watch.succeed(self._keep(watch, found, None))
                return
            registration = self._engine.register(watch.name, found.query)
        except DeviceLost:
            raise
        except ShardLost as error:  # of the writer, which knows nothing of this request
            watch.fail(error)
            raise
        except Exception as error:
            watch.fail(error)
            return
        self._running.append(_FirstSolve(registration, watch, found))

    def _begin_solve(self) -> None:
        solves = [solve for solve in self._running if isinstance(solve, _Solve)]
        waiting = self._queue.requests
        if not waiting or len(solves) >= _MAX_SOLVES:
            return
        if solves and perf_counter() - solves[0].began < _EXCLUSIVE_SECONDS:
            return
        if not self._running:
            self._gather()
        members: list[_Member] = []
        queries: list[ResolvedQuery] = []
        vertices = self._vertices()
        while waiting and len(queries) < _MAX_QUERIES:
            request = waiting.popleft()
            if request.is_over():
                continue
            try:
                found = request.by_ids(vertices)
                resolved = self._resolved(request, found)
            except DeviceLost:
                raise
            except Exception as error:
                request.fail(error)
                continue
            places = range(len(queries), len(queries) + len(resolved))
            member = _Member(request, found, places)
            if not resolved:
                self._succeed(member, [])
                continue
            members.append(member)
            queries += resolved
        self._expected = len(members)
        if members:
            self._running.append(_Solve(self._engine.submit(queries), members, perf_counter()))

    def _resolved(
        self, request: PendingQuery[QueryResponse], found: list[QueryByIds]
    ) -> list[ResolvedQuery]:
        """The queries that have ranks, checked. Raises the engine's InvalidValue, its field named
        as in the request.
        """
        resolved: list[ResolvedQuery] = []
        for index, (query, has_ranks, _) in enumerate(found):
            try:
                if has_ranks:
                    resolved += self._engine.resolve([query])
                else:
                    ResolvedQuery.checked_options(self._engine.options, query)
            except InvalidValue as error:
                field = request.prefix(index) + error.field
                raise InvalidValue(field, error.value, error.requirement) from None
        return resolved

    def _gather(self) -> None:
        """Waits briefly for clients that sent requests together before and were just answered:
        solving for one of them delays the others as much as solving for all.
        """
        expected = min(self._expected, _MAX_QUERIES)
        with self._queue.changed:
            self._queue.changed.wait_for(
                lambda: len(self._queue.requests) >= expected, GATHERING_SECONDS
            )

    def _step(self) -> None:
        solve = self._running[0]
        self._running.rotate(-1)
        job = solve.job
        try:
            while not solve.is_over():
                if not job.done:
                    self._engine.step(job)
                self._answer(solve)
                urgent = job.restarts > 0 or job.updates >= MAX_BATCHES
                if not urgent or self._closing():
                    break
        except (DeviceLost, ShardLost):
            raise  # of the writer, which refuses all requests
        except UnknownId as error:
            if isinstance(solve, _FirstSolve):
                self._running.remove(solve)
                self._engine.close(job)
                self._queue.watches.appendleft(solve.watch)
                return
            solve.fail(error)
        except Exception as error:
            solve.fail(error)
        if solve.is_over():
            self._running.remove(solve)
            self._engine.close(job)
            # requests that are waiting now will probably arrive together with the next of these
            self._expected += len(self._queue.requests)

    def _answer(self, solve: _Solve | _FirstSolve) -> None:
        """Answers the requests whose queries are all solved."""
        if isinstance(solve, _FirstSolve):
            if solve.job.done:
                solve.watch.succeed(self._keep(solve.watch, solve.found, solve.job))
            return
        for member in list(solve.members):
            if member.request.answer.done():
                continue
            try:
                answers = solve.job.take(member.places)
            except UnknownId:
                solve.members.remove(member)
                self._queue.requests.appendleft(member.request)
                continue
            if answers is None:
                continue
            self._succeed(member, answers)

    def _succeed(self, member: _Member, solved: list[Personalized]) -> None:
        version, revision = self._newest()
        left, keys = iter(solved), self._vertices().keys
        answers = []
        for query, has_ranks, ignored in member.found:
            places = next(left) if has_ranks else no_places(query)
            self._refusals.report(places)
            answers.append(QueryAnswer(places, keys.keys(places.vertices), ignored))
        member.request.succeed(QueryResponse(version, revision, answers))
