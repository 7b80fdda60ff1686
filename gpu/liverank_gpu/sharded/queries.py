"""Personalized queries on one shard, watched ones and views too."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import OutOfMemory
from liverank_gpu.operations.graph import GraphUpdate
from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.pagerank.places import GraphVertices
from liverank_gpu.pagerank.ranks import Ranks
from liverank_gpu.personalized.batch import Queries, QueryBatch
from liverank_gpu.personalized.iterate import WorkspacePool
from liverank_gpu.personalized.query import QueryContext
from liverank_gpu.personalized.resolve import Kind, Moment, ResolvedQuery, ResolvedView
from liverank_gpu.personalized.views import Views, ViewSteps
from liverank_gpu.personalized.watched import Registration, Start, Watched
from liverank_gpu.sharded.graph import ShardGraph
from liverank_gpu.types import Personalized, Ranking, ViewQuery

# ---- watched queries and views on one shard: those of one device, on its own rows ----
#
# All shards take the same decisions. If one has no memory for a workspace, which shards tell each
# other, all forget the query, and the engine has it solved again. Any other error ends the call on
# all shards, which then forget all queries.


class Told(NamedTuple):
    """What one shard tells of what is kept.

    number   of the call since which y, or the vertices of the answer, are what they are
    content  the answer, from the first shard; or y of own vertices: see Ranks.copied; None if the
             caller has that of this number
    seconds  that it took to bring it up to date
    """

    number: int
    content: Personalized | tuple[Ranking, float, float] | None
    error_bound: float
    seconds: float = 0.0


class Solving(NamedTuple):
    """How far a first solve is; restarts: as of Registration."""

    done: bool
    restarts: int


# ---- personalized queries on a graph in shards: by the methods of one device, on own rows ----
#
# Every shard runs the same queries (liverank_gpu.personalized.batch) on its part of y and r, in
# blocks where that is faster. Sweeps, pushes and sums are those of the shards, so all take the
# same decisions. Queries are solved some at a time, in calls of about SLICE_SECONDS; a batch
# between two calls perturbs a query that runs alone, which continues, and restarts a block.

SLICE_SECONDS = 0.05
"""A call of the shards ends with the first step, of about a sweep, that ends after this time."""

_MOST_UNCHECKED = 100
"""Most steps between two looks at the clock, each of which is an exchange: the shards have to agree
whether the time is over.
"""

_MOST_QUERIES = 32
"""Queries that are sent together, and answered together."""


class Answered(NamedTuple):
    """What a call of the shards did.

    answers   each with the place of its query
    restarts  how many batches of edges have made a part of these queries start again so far
    """

    answers: Sequence[tuple[int, Personalized]] = ()
    restarts: int = 0


class ShardQueries(Queries):
    """The queries of one shard that are not done, by the number of their batch, those that are
    watched, views, and what they share.

    answering  whether a call that exchanges anything has begun and not ended. If one has on any
               shard, all have to `reset` before the next call
    """

    def __init__(self, graph: ShardGraph, iterate: GlobalIterate, vertices: GraphVertices) -> None:
        self._graph, self._iterate, self._vertices = graph, iterate, vertices
        self.reset()

    def reset(self) -> None:
        """Forgets all queries, and what earlier ones have shown, which may differ between shards
        after an error.
        """
        pool, iterate = WorkspacePool(self._graph), self._iterate
        self.context = QueryContext(pool, iterate.options, iterate.deflation, self._vertices)
        self._running: dict[int, QueryBatch | Registration] = {}
        self.watched, self.views = Watched(), Views(self.context)
        # what the caller was told of each that is kept, and since which call it is that
        self._told: dict[tuple[Kind, str], tuple[Ranks | Personalized, int]] = {}
        self.answering = False

    def answer(
        self,
        number: int,
        queries: Sequence[ResolvedQuery],
        batches: Collection[int],
        seconds: float,
    ) -> Answered:
        """The answers that there was time for, on the first shard: all have the same. Each is given
        once. Raises OutOfMemory.

        number   of these queries, some of which may be answered, and some running
        batches  numbers of those that are not closed; other queries are forgotten
        seconds  after which no step begins, but the first
        """
        self._keep_open(batches)
        with self._exchanging():
            running = self._running.get(number) or QueryBatch(self.context, queries)
            assert isinstance(running, QueryBatch)
            self._running[number] = running
            self._run(running, seconds)
            answered = Answered(running.take_those_there(), running.restarts)
            if running.done:
                self._running.pop(number).close()
        return answered if self._vertices.leads else Answered()

    # ---- what is kept; all shards return what they have of it ----

    def solve(
        self,
        number: int,
        name: str,
        query: ResolvedQuery | ViewQuery | None,
        ranks: Ranking | None,
        base: float,
        batches: Collection[int],
        seconds: float,
    ) -> Solving | OutOfMemory | None:
        """Goes on with the first solve of a query that is to be kept. Returns how far it is; None
        if a reset has forgotten it, and `query` is None; or an error that concerns all shards,
        since to raise it would reset them. See `answer` for the rest.

        query  None where it has been given before
        ranks  where to begin, and their base: see Start; None: at nothing
        """
        self._keep_open(batches)
        if number not in self._running:
            if query is None:
                return None
            start = None if ranks is None else (ranks, base)
            try:
                self._running[number] = self._registered(name, query, start)
            except OutOfMemory as error:
                if self.answering:  # of this shard alone: others wait for it
                    raise
                return error
        running = self._running[number]
        with self._exchanging():
            self._run(running, seconds)
        return Solving(running.done, running.restarts)

    def _registered(
        self, name: str, query: ResolvedQuery | ViewQuery, start: Start | None
    ) -> Registration:
        """Raises OutOfMemory, on all shards unless it is `answering`."""
        if isinstance(query, ResolvedQuery):
            return Registration(self.context, name, query)
        with self._exchanging():
            asked = ResolvedView.of_view(self._graph.ids, self._iterate.options, query)
            context = self.views.context(asked)
        registration = self.views.register(name, asked, start)
        del context  # which `register` has found again
        return registration

    def keep(self, number: int) -> Mapping[str, Told]:
        """Keeps a query whose first solve is done. Tells of it; nothing if it has no ranks, or a
        reset has forgotten it. Raises OutOfMemory.
        """
        registration = self._running.pop(number, None)
        if registration is None:
            return {}
        assert isinstance(registration, Registration)
        kind, name = registration.asked.kind, registration.name
        with self._exchanging():
            self._kept(kind).keep(registration)
            return self._brought(kind, [name], None, number, {})

    def remove(self, kind: Kind, name: str) -> None:
        """Forgets what is kept, if it is there."""
        self._kept(kind).pop(name, None)
        self._told.pop((kind, name), None)

    def bring(
        self,
        kind: Kind,
        number: int,
        known: Mapping[str, int],
        name: str | None,
        at: Moment,
        among: Mapping[str, NDArray[np.int64]],
    ) -> Mapping[str, Told]:
        """Brings one of what is kept up to date, or all. Tells of those that have ranks then; it
        forgets the others, which the engine has solved again if they can be.

        number  of this call
        known   those of what the caller has, by name
        among   see WatchedQuery.restrict, by name
        """
        with self._exchanging():
            if kind == "watched query" and at is not None:
                for each, watched in list(self.watched.items()):
                    if watched.query is None:
                        self.remove(kind, each)
                    elif each in among:
                        watched.restrict(among[each])
                self.watched.refresh()
            names = [each for each in self._kept(kind) if name in (None, each)]
            return self._brought(kind, names, at, number, known)

    def _brought(
        self,
        kind: Kind,
        names: Sequence[str],
        at: Moment,
        number: int,
        known: Mapping[str, int],
    ) -> Mapping[str, Told]:
        """See `bring`; watched queries are up to date."""
        found = dict[str, Told]()
        for name in names:
            began = perf_counter()
            content: Ranks | Personalized | None = None
            if kind == "view":
                content = self.views[name].bring(at)
            elif self.watched[name].query is not None:
                content = self.watched[name].shown_answer()
            if content is None:
                self.remove(kind, name)
                continue
            seconds = perf_counter() - began
            before, since = self._told.get((kind, name), (None, number))
            sent: Personalized | tuple[Ranking, float, float] | None
            if isinstance(content, Ranks):
                assert before is None or isinstance(before, Ranks)
                since = since if content.is_copy_of(before) else number
                sent = None if known.get(name) == since else content.copied()
            else:
                is_same = isinstance(before, Personalized) and content.vertices is before.vertices
                since = since if is_same else number
                sent = content if self._vertices.leads else None
            self._told[kind, name] = content, since
            found[name] = Told(since, sent, content.error_bound, seconds)
        return found

    def _kept(self, kind: Kind) -> Watched | Views:
        return self.views if kind == "view" else self.watched

    def change_view(self, name: str, view: ViewQuery) -> bool:
        """See Views.change."""
        with self._exchanging():  # if an error ends it in one shard, others may have done it
            asked = ResolvedView.of_view(self._graph.ids, self._iterate.options, view)
            return self.views.change(name, asked)

    def steps_within(self, name: str, vertex: int, limit: int) -> ViewSteps | None:
        """See View.steps_to, of a view within a set. None if it is not known, or not here."""
        if name not in self.views or not self._vertices.leads:
            return None
        return self.views[name].steps_to(vertex, limit)

    @contextmanager
    def _exchanging(self) -> Iterator[None]:
        self.answering = True
        yield
        self.answering = False  # unless an error ended it

    def _keep_open(self, batches: Collection[int]) -> None:
        for closed in self._running.keys() - set(batches):
            self._running.pop(closed).close()

    def _run(self, running: QueryBatch | Registration, seconds: float) -> None:
        began, over = perf_counter(), False
        steps, next_check = 0, 1
        while not (running.done or over):
            running.step()
            steps += 1
            if steps < next_check:
                continue
            elapsed = self._vertices.highest(perf_counter() - began)
            over = elapsed > seconds
            # an exchange takes about as long as a step of a small graph
            fitting = 0.5 * steps * (seconds / max(elapsed, 1e-9) - 1.0)
            next_check = steps + 1 + int(min(max(fitting, 0.0), _MOST_UNCHECKED))

    def perturb(self, update: GraphUpdate) -> None:
        """Has all queries follow a batch of edges, on all shards."""
        self.views.turn(update)
        for number, batch in list(self._running.items()):
            batch.perturb(update)
            if batch.lost:  # of which the caller knows
                self._running.pop(number).close()
        self.watched.perturb(update)
        self.views.perturb(update)


class Running:
    """What the shards run for the engine, and what follows batches until it is closed.

    number  the shards know it by that
    """

    number: int

    def __init__(self, running: list[Running]) -> None:
        """running  what is not closed, which this joins"""
        self.updates = self.restarts = 0
        self._others = running
        running.append(self)

    def follow(self, removed: NDArray[np.int64]) -> None:  # noqa: ARG002
        """Follows a batch of edges that removed these vertices: ids, ascending."""
        self.updates += 1

    def close(self) -> None:
        if self in self._others:
            self._others.remove(self)


class ShardedQueryBatch(Running, QueryBatch):
    """Queries that the shards answer: see QueryBatch. After a batch of edges, those are answered
    again whose answers were not taken.

    number  the shards know those by it that they have
    """

    def __init__(
        self,
        answer: Callable[[int, list[ResolvedQuery]], Answered],
        queries: Sequence[ResolvedQuery],
        numbers: Callable[[], int],
        running: list[Running],
    ) -> None:
        """answer   calls the shards with a number
        numbers  gives new ones
        """
        super().__init__(running)
        self._answer_queries, self._new_number = answer, numbers
        self._queries = list(queries)
        self._lost, self._taken = {}, set()
        self._sent: list[int] = []
        self._counted_restarts = 0  # of those of `number`
        self._plan()

    def _plan(self) -> None:
        self._send_others()
        self._answers = {}
        ended = self._taken | self._lost.keys()
        self._waiting = [index for index in range(len(self._queries)) if index not in ended]

    @property
    def done(self) -> bool:
        return not self._waiting

    def step(self) -> None:
        """Has the shards go on, for about SLICE_SECONDS. Raises OutOfMemory, ShardLost."""
        if not self._sent:
            self._sent = self._waiting[:_MOST_QUERIES]
        queries = [self._queries[index] for index in self._sent]
        answers, restarts = self._answer_queries(self.number, queries)
        if restarts < self._counted_restarts:
            # shards that were reset after an error of another call begin at 0 again
            self._counted_restarts = 0
        self.restarts += restarts - self._counted_restarts
        self._counted_restarts = restarts
        for place, answer in answers:
            index = self._sent[place]
            # shards that were reset after an error of another call give all answers again
            if index in self._waiting:
                self._answers[index] = answer
                self._waiting.remove(index)
        if not set(self._sent) & set(self._waiting):
            self._send_others()

    def _send_others(self) -> None:
        """Forgets which queries the shards have: they get the next ones by another number."""
        self.number, self._sent, self._counted_restarts = self._new_number(), [], 0

    def follow(self, removed: NDArray[np.int64]) -> None:
        super().follow(removed)
        if self._loses(removed) or self._answers:
            self.restarts += 1
            self._plan()
