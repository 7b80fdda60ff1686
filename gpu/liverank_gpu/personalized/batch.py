"""Personalized queries that were submitted together: in blocks where that is faster, else one by
one.

A block reads the whole graph again and again. So with the method ``hybrid`` each query is first
tried alone: a query that stays near its seeds is answered by pushes, whatever the size of the
graph. It goes on pushing as long as what it still needs seems to be less than its part of a block
(liverank_gpu.personalized.forecast), and joins a block otherwise. What trials cost is lost then. So
they end when failed ones have cost more than a small part of what blocks would cost for all
queries, beyond what others saved. Blocks begin as soon as there are enough queries for one, because
what its sweeps do shows how much later trials may cost; a small one begins before, where pushes
answer all queries but might be the slower way. A query leaves a block, and continues alone where
the block has come, when the block would go on for hardly any other, or pushes took less for others.

Queries that walk within a set are answered together on the subgraph that it induces, as those of a
graph of their own.

A batch runs in steps of at most about a sweep, so that the owner of the device can do something
else between them, updates of the graph too. Answers that are taken together are of one graph: an
update perturbs a single query, which continues, and restarts blocks and what was answered but not
taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import chain, groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import UnknownVertex, without_frames
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.graph.reading import induced_subgraph
from liverank_gpu.graph.vertices import VertexIds
from liverank_gpu.operations.graph import GraphUpdate
from liverank_gpu.personalized.block import Block, Column
from liverank_gpu.personalized.forecast import DOUBT, LEAST_RECORDED, LOST_PART
from liverank_gpu.personalized.iterate import WorkspacePool
from liverank_gpu.personalized.published import PublishedQuery
from liverank_gpu.personalized.query import Query, QueryContext, no_deflation
from liverank_gpu.personalized.resolve import (
    METHODS,
    PUBLISHED_METHODS,
    AnyQuery,
    ResolvedQuery,
    ResolvedView,
    checked_set,
    resolve,
)
from liverank_gpu.personalized.views import Views
from liverank_gpu.personalized.watched import Registration, Start, Watched, require_watchable
from liverank_gpu.types import Options, Personalized, PersonalizedQuery, ViewQuery

_LEAST_ANSWERED = 4
"""Fewer queries that pushes answered tell nothing about the others."""

_PROBED_PART = 0.1
"""What may be lost to see sweeps, of what pushes are predicted to cost."""

_CLEARLY = 1.25
"""Averages of a few queries differ by this much."""


class _TrialRecord:
    """What trials of queries of a batch have cost.

    A kind of query is its damping and its target error.
    """

    def __init__(
        self, in_block: Callable[[float, float], float], kinds: Iterable[tuple[float, float]]
    ) -> None:
        """in_block  what a query of a kind is predicted to cost in a block
        kinds     of all queries that may be tried
        """
        self._in_block = in_block
        self._kinds, self._answered = Counter(kinds), Counter[tuple[float, float]]()
        self._failures, self._cost_of_failures, self._cost_of_answers = 0, 0.0, 0.0

    def add(self, kind: tuple[float, float], cost: float, answered: bool) -> None:
        """A trial that ended."""
        if answered:
            self._answered[kind] += 1
            self._cost_of_answers += cost
        else:
            self._failures += 1
            self._cost_of_failures += cost

    @property
    def to_spare(self) -> float:
        """What trials may still cost without an answer, as blocks are predicted to cost now."""
        may_fail, saved = self._in_blocks(self._kinds), self._in_blocks(self._answered)
        # of what is saved, half may be lost: a block without some of its queries is no cheaper
        saved = 0.5 * (saved - self._cost_of_answers)
        return LOST_PART * may_fail + saved - self._cost_of_failures

    def _in_blocks(self, queries: Counter[tuple[float, float]]) -> float:
        return sum(count * self._in_block(*kind) for kind, count in queries.items())

    @property
    def mostly_answered(self) -> bool:
        """Whether pushes have found answers to most queries, of enough."""
        return self._answered.total() >= max(_LEAST_ANSWERED, self._failures + 1)

    @property
    def cost_of_answer(self) -> float:
        """What an answer by pushes cost, on average; infinite if they found none to most."""
        if not self.mostly_answered:
            return float(np.inf)
        return self._cost_of_answers / self._answered.total()


class QueryBatch:
    """`step` until `done`, then `answers`, or `take` them as they come; `close` in any case.

    updates   how many batches of edges came since it began
    restarts  how many of them made a part of it start again
    """

    def __init__(self, context: QueryContext, queries: Sequence[ResolvedQuery]) -> None:
        self.updates = self.restarts = 0
        self._context = context
        self._graph = context.graph
        self._queries = list(queries)
        # of queries that lost a seed
        self._lost: dict[int, UnknownVertex] = {}
        self._running: _Running | None = None
        self._taken: set[int] = set()
        self._plan()

    def _plan(self) -> None:
        """Divides the queries, by index, into parts that run one after the other."""
        self._answers: dict[int, Personalized] = {}
        ended = self._taken | self._lost.keys()
        indices = [index for index in range(len(self._queries)) if index not in ended]
        within: dict[bytes, list[int]] = {}
        for index in indices:
            vertices = self._queries[index].within
            if vertices is not None:
                within.setdefault(vertices.tobytes(), []).append(index)
        joint = [index for index in indices if Block.accepts(self._queries[index])]
        self._width = Block.size(self._graph, max(1, len(joint)))
        # queries of a block, if all of them go into blocks
        self._sharing = max(1, len(joint)) / -(-max(1, len(joint)) // self._width)
        if len(joint) < self._min_columns or not self._block_fits():
            joint = []
        self._columns: dict[int, Column] = {}
        self._suspended: dict[int, Query] = {}
        hybrid = [index for index in joint if self._queries[index].method == "hybrid"]
        self._trials, self._probed = set(hybrid), False
        in_block = partial(self._context.forecast.in_block, queries=self._sharing)
        self._record = _TrialRecord(in_block, map(self._kind, hybrid))
        self._for_blocks = [index for index in joint if index not in self._trials]
        joining = {*self._for_blocks, *chain.from_iterable(within.values())}
        self._parts = [[index] for index in indices if index not in joining]
        self._parts += within.values()
        self._end_trials()
        self._form_blocks()

    def _block_fits(self) -> bool:
        free = self._graph.backend.device.memory_available()
        short = Block.bytes_needed(self._graph, self._width) > free
        return self._context.vertices.sums([short]) == [0.0]

    @property
    def _min_columns(self) -> int:
        return self._graph.backend.multivector.min_columns

    def _block_cost(self, index: int, sharing: float | None = None) -> float:
        """What a query is predicted to cost in a block of so many; as if all went into blocks,
        unless it says.
        """
        query, sharing = self._queries[index], sharing or self._sharing
        return self._context.forecast.in_block(query.options.damping, query.target_error, sharing)

    def _form_blocks(self) -> None:
        """Of queries of one damping: those that are full come next, others when all other queries
        are answered.
        """
        waiting, width = sorted(self._for_blocks, key=self._by_damping), self._width
        last = not self._parts
        formed: list[list[int]] = []
        for _, alike in groupby(waiting, key=lambda index: self._by_damping(index)[0]):
            indices = list(alike)
            for first in range(0, len(indices), width):
                block = indices[first : first + width]
                if len(block) < width and not last:
                    continue
                joined = self._joined(block)
                if joined:
                    formed.append(joined)
                self._parts += [[index] for index in block if index not in joined]
                self._for_blocks = [index for index in self._for_blocks if index not in block]
        self._parts[:0] = formed

    def _joined(self, block: list[int]) -> list[int]:
        """Those of these queries for which a block pays: fewer share it the more seem to be cheaper
        by the pushes that they began.
        """
        while len(block) >= self._min_columns:
            sharing = len(block)
            joined = [i for i in block if self._by_pushes(i) > self._block_cost(i, sharing)]
            if len(joined) == len(block):
                return block
            block = joined
        return []

    def _by_pushes(self, index: int) -> float:
        """What a query may cost still, at most, by the pushes that it began; if it began none, by
        what they took for others.
        """
        if index in self._suspended:
            # what seemed too slow once gets slower still, where most does
            doubt = DOUBT if self._record.mostly_answered else DOUBT**2
            return doubt * self._suspended[index].push_left
        if self._queries[index].method == "hybrid":
            return DOUBT * self._record.cost_of_answer
        return np.inf

    def _probe(self) -> None:
        """Lets a block of a few queries show what sweeps do, if pushes have turned out to cost as
        much as a block might, and some sweeps cost little beside them.
        """
        forecast, waiting = self._context.forecast, self._trials
        count = min(len(waiting), self._graph.backend.multivector.column_count(self._min_columns))
        by_pushes = self._record.cost_of_answer
        if forecast.seen or self._probed or count < self._min_columns or by_pushes == np.inf:
            return
        sweeps = LEAST_RECORDED * forecast.block_sweep(count)
        cheapest = forecast.at_best(self._block_cost(min(waiting)))
        if sweeps <= _PROBED_PART * len(waiting) * by_pushes and cheapest < by_pushes:
            probe = sorted(waiting)[:count]
            self._trials, self._probed = waiting.difference(probe), True
            self._parts = [probe, *(part for part in self._parts if part[0] not in probe)]

    def _by_damping(self, index: int) -> tuple[float, int]:
        return self._queries[index].options.damping, index

    @property
    def done(self) -> bool:
        return not self._parts

    @property
    def lost(self) -> bool:
        """Whether a query lost a seed."""
        return bool(self._lost)

    def step(self) -> None:
        """Continues, by about a sweep's work at most. Raises OutOfMemory."""
        if self._running is None:
            part = self._parts[0]
            block = len(part) > 1 and self._queries[part[0]].within is None
            if block and not Block.represents(self._context.vertices):
                self._parts[:1] = [[index] for index in part]
            self._running = self._begin(self._parts[0])
        part = self._parts[0]
        if not self._trial_ends(part[0], self._running):
            self._running.step()
        alone: list[list[int]] = []
        if isinstance(self._running, Block):
            if not self._running.done:
                return
            alone = self._collect(part, self._running)
        elif isinstance(self._running, _Within):
            if not self._running.done:
                return
            self._answers |= zip(part, self._running.answers(), strict=True)
        elif self._running.done:
            self._answers[part[0]] = self._queries[part[0]].shown(self._running.answer())
            if part[0] in self._trials:
                self._trials.remove(part[0])
                self._record_trial(answered=True)
        elif not self._trial_ends(part[0], self._running):
            return
        else:
            self._trials.remove(part[0])
            self._for_blocks.append(part[0])
            self._record_trial(answered=False)
            self._suspend(part[0])
        self._parts[:1] = alone
        self._end_running()
        self._end_trials()
        self._probe()
        self._form_blocks()

    def _collect(self, part: Sequence[int], block: Block) -> list[list[int]]:
        """Takes a block's answers. Returns the queries that are left to be solved alone."""
        alone: list[list[int]] = []
        answers, columns = block.answers(), block.columns()
        for place, (index, unfinished) in enumerate(zip(part, block.unfinished, strict=True)):
            if unfinished:
                alone.append([index])
                if place in columns:
                    self._columns[index] = columns[place]
            else:
                self._answers[index] = self._queries[index].shown(answers[place])
            if not block.pushes[place]:
                self._suspended.pop(index, None)
        return alone

    def _trial_ends(self, index: int, query: _Running) -> bool:
        """Whether the running query is on trial, without success, and joins a block now."""
        return index in self._trials and isinstance(query, Query) and query.pulling

    def _suspend(self, index: int) -> None:
        """Keeps what the running query has, which may yet turn out to be better than a block."""
        query = self._running
        assert isinstance(query, Query)
        if query.push_left < np.inf:
            query.suspend()
            self._suspended[index], self._running = query, None

    def _kind(self, index: int) -> tuple[float, float]:
        return self._queries[index].options.damping, self._queries[index].target_error

    def _record_trial(self, answered: bool) -> None:
        assert isinstance(self._running, Query)
        cost = self._context.forecast.start + self._running.push_forecast.spent
        self._record.add(self._kind(self._parts[0][0]), cost, answered)

    def _end_trials(self) -> None:
        """Lets queries that wait for their trial join a block, those that trials do not pay for."""
        # no trial costs less
        start = self._context.forecast.start
        if self._record.to_spare < start:
            self._parts = [part for part in self._parts if part[0] not in self._trials]
            self._for_blocks += sorted(self._trials)
            self._trials.clear()
        forecast = self._context.forecast
        while self._parts and self._parts[0][0] in self._trials:
            (index,) = self._parts[0]
            if self._block_cost(index) >= forecast.uncertainty * start:
                return
            if not forecast.seen and len(self._for_blocks) >= self._width:
                return  # until a first block has shown what others cost
            self._parts.pop(0)
            self._trials.remove(index)
            self._for_blocks.append(index)

    def _begin(self, part: Sequence[int]) -> _Running:
        queries = [self._queries[index] for index in part]
        if queries[0].within is not None:
            return _Within(self._context, queries, queries[0].within)
        if len(queries) > 1:
            return Block(self._context, queries, np.array(list(map(self._by_pushes, part))))
        if queries[0].form == "published":
            return PublishedQuery(self._context, queries[0])
        index = part[0]
        if index in self._trials:
            block_cost = self._block_cost(index)
            # there is no doubt where others were not answered for clearly more
            doubt = DOUBT if self._record.cost_of_answer < _CLEARLY * block_cost else 1.0
            return Query(self._context, queries[0], doubt * block_cost)
        if index in self._suspended:
            query = self._suspended.pop(index)
            query.continue_alone()
            return query
        query = Query(self._context, queries[0])
        if index in self._columns:
            query.resume(*self._columns.pop(index))
        return query

    def perturb(self, update: GraphUpdate) -> None:
        """Follows a batch of edges."""
        self.updates += 1
        # these do not follow batches, so their queries begin again
        self._columns.clear()
        self._suspended.clear()
        if self._loses(update.removed):
            self.restarts += 1
            self.close()
            self._plan()
            return
        if isinstance(self._running, Query):
            if not self._running.follows(update):
                self.close()
        elif self._running is not None:
            self.restarts += 1
            self.close()
        if self._answers:
            self.restarts += 1
            self.close()
            self._plan()

    def _loses(self, removed: NDArray[np.int64]) -> bool:
        """Takes the removed vertices, ascending, out of the queries. Whether one was a seed."""
        if len(removed) == 0:
            return False
        known = len(self._lost)
        for index, query in enumerate(self._queries):
            try:
                self._queries[index] = query.after(removed)
            except UnknownVertex as error:
                self._lost[index] = without_frames(error)
        return len(self._lost) > known

    def answers(self) -> list[Personalized]:
        """In the order of the queries. Raises UnknownVertex if one lost a seed."""
        return [self._answer(index) for index in range(len(self._queries))]

    def _answer(self, index: int) -> Personalized:
        if index in self._lost:
            raise copy(self._lost[index])
        return self._answers[index]

    def take(self, indices: range) -> list[Personalized] | None:
        """The answers to these queries, all of the graph as it is now, once all are there; None
        before. They no longer follow updates. Raises UnknownVertex if one of them lost a seed.
        """
        if not all(index in self._answers or index in self._lost for index in indices):
            return None
        self._taken.update(indices)
        for index in indices:
            self._answer(index)
        return [self._answers.pop(index) for index in indices]

    def take_those_there(self) -> list[tuple[int, Personalized]]:
        """All answers that are there, each with the number of its query; as `take`."""
        taken = sorted(self._answers.items())
        self._taken.update(self._answers)
        self._answers = {}
        return taken

    def close(self) -> None:
        """Gives the arrays back."""
        self._end_running()
        self._columns.clear()
        self._suspended.clear()

    def _end_running(self) -> None:
        if isinstance(self._running, Query | PublishedQuery):
            self._running.close()
        self._running = None


class _Within:
    """Queries that walk within one set: a batch on the subgraph that it induces, which the first
    steps build. It does not follow batches of edges: it begins again. Each shard of a graph has the
    whole subgraph, and answers for itself.
    """

    def __init__(
        self, context: QueryContext, queries: Sequence[ResolvedQuery], within: NDArray[np.int64]
    ) -> None:
        graph = context.graph
        assert isinstance(graph, DynamicGraph)
        self._queries, self._within, self._options = queries, within, context.options
        self._vertices = context.vertices
        self._building = induced_subgraph(graph, within)
        self._batch: QueryBatch | None = None
        self.done = False

    def step(self) -> None:
        """Raises OutOfMemory."""
        if self._batch is not None:
            if not self._batch.done:
                self._batch.step()
            # on a GPU, shards may differ by rounding, and so by a step
            self.done = self._vertices.sums([not self._batch.done]) == [0.0]
            return
        subgraph = next(self._building)
        if subgraph is not None:
            # its ranks are not known
            context = QueryContext(WorkspacePool(subgraph), self._options, no_deflation)
            self._batch = QueryBatch(context, [query.induced() for query in self._queries])

    def answers(self) -> list[Personalized]:
        """In the order of the queries, once it is done."""
        assert self._batch is not None
        return [
            replace(answer, vertices=self._within[answer.vertices])
            for answer in self._batch.answers()
        ]


_Running = Query | PublishedQuery | Block | _Within


# ---- the personalized queries of one graph: those that run, and those that are watched ----


class Queries:
    """Begins queries and lets all of them follow batches.

    running  those that were begun and not closed
    watched  see liverank_gpu.personalized.watched
    views    see liverank_gpu.personalized.views
    """

    def __init__(self, context: QueryContext) -> None:
        self.context = context
        self.watched = Watched()
        self.views = Views(context)
        self.running: list[QueryBatch | Registration] = []

    @property
    def ids(self) -> VertexIds:
        """Which ids are vertices."""
        return self.context.graph.ids

    @property
    def options(self) -> Options:
        """Of the graph."""
        return self.context.options

    def resolve(self, queries: Sequence[AnyQuery]) -> list[ResolvedQuery]:
        """Raises InvalidValue, naming ``queries[3].k``."""
        return resolve(self.ids, self.options, queries)

    def submit(self, queries: Sequence[AnyQuery]) -> QueryBatch:
        """Begins queries that are answered once. Raises InvalidValue."""
        batch = QueryBatch(self.context, self.resolve(queries))
        self.running.append(batch)
        return batch

    def register(
        self, name: str, query: PersonalizedQuery | ViewQuery | ResolvedView, start: Start | None
    ) -> Registration:
        """Begins a query that is to be watched, or a view. Raises InvalidValue, OutOfMemory."""
        if isinstance(query, PersonalizedQuery):
            require_watchable(query)
            registration = Registration(self.context, name, self.resolve([query])[0])
        else:
            asked = self.resolved_view(name, query) if isinstance(query, ViewQuery) else query
            known = self.views.get(name)
            start = start or (None if known is None else known.start(asked))
            registration = self.views.register(name, asked, start)
        self.running.append(registration)
        return registration

    def resolved_view(self, name: str, view: ViewQuery) -> ResolvedView:
        """Raises InvalidValue."""
        known = self.views.get(name)
        seeds = None if known is None or known.lost else known.asked.seeds
        return ResolvedView.of_view(self.ids, self.options, view, seeds)

    def restrict(self, name: str, among: NDArray[np.integer[Any]]) -> None:
        """Changes the vertices that a watched query is among. Raises KeyError, InvalidValue."""
        self.watched[name].restrict(checked_set("among", self.ids, among))

    def close(self, running: QueryBatch | Registration) -> None:
        """Ends what was begun, and takes its arrays back."""
        self.running.remove(running)
        running.close()

    def perturb(self, update: GraphUpdate) -> None:
        """Lets all of them follow a batch."""
        self.views.turn(update)
        for running in self.running:
            running.perturb(update)
        self.watched.perturb(update)
        self.views.perturb(update)

    def warm_up(self) -> None:
        """Compiles what single queries need, and what ties do, on a graph that has vertex 0, and
        edges that lead to vertex 2.
        """
        for method in METHODS:
            self._solve([PersonalizedQuery(np.array([0]), k=1, method=method)])
        self.context.vertices.identical_to(np.array([2]))

    def warm_up_others(self) -> None:
        """Compiles what queries in a block and the published form need, on a graph that has
        vertex 2.
        """
        # takes more sweeps than vertex 0, from which only that is visited
        query = PersonalizedQuery(np.array([2]), k=1, method="pull")
        self._solve([query] * self.context.graph.backend.multivector.min_columns)
        for method in PUBLISHED_METHODS:
            self._solve([replace(query, method=method, form="published")])

    def _solve(self, queries: Sequence[PersonalizedQuery]) -> None:
        batch = self.submit(queries)
        while not batch.done:
            batch.step()
        self.close(batch)

    @property
    def nbytes(self) -> int:
        """Bytes held on the device."""
        return self.context.pool.nbytes + self.watched.nbytes + self.views.nbytes
