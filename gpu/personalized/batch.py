"""Personalized queries that were submitted together: in blocks where that is faster, else one by
one.

A block reads the whole graph again and again. So with the method ``hybrid`` each query is first
tried alone, by as much pushing as costs little beside its part of a block: a query that stays near
its seeds is answered by that, whatever the size of the graph. If too few do, trials end: a batch
makes eight without an answer, and two more for each that gave one, and then lets the other queries
join blocks untried.

A batch runs in steps of at most about a sweep, so that the owner of the device can do something
else between them, updates of the graph too. Answers that are taken together are of one graph: an
update perturbs a single query, which continues, and restarts blocks and what was answered but not
taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from gpu.errors import UnknownVertex
from gpu.operations.update import GraphUpdate
from gpu.personalized.block import Block
from gpu.personalized.published import PublishedQuery
from gpu.personalized.query import Query, QueryContext
from gpu.personalized.resolve import ResolvedQuery
from gpu.types import Personalized

_TRIAL_STEPS = 2
"""Steps of push that a query gets before it joins a block, each of a tenth of a sweep at most."""

_FAILED_TRIALS, _FOR_AN_ANSWER = 8, 2
"""This many trials without an answer, and so many more for each with one, end a batch's trials: a
few tell what the graph is like, and a column of a block costs as much as two or three of them.
"""


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
        self._running: Query | PublishedQuery | Block | None = None
        self._taken: set[int] = set()
        self._failed_trials = self._answered_trials = 0
        self._plan()

    def _plan(self) -> None:
        """Divides the queries, by index, into parts that run one after the other."""
        self._answers: dict[int, Personalized] = {}
        ended = self._taken | self._lost.keys()
        indices = [index for index in range(len(self._queries)) if index not in ended]
        joint = [index for index in indices if Block.accepts(self._queries[index])]
        self._width = Block.size(self._graph, max(1, len(joint)))
        if len(joint) < self._min_columns or not self._block_fits():
            joint = []
        self._trial_steps, self._trials = 0, set[int]()
        if self._trials_pay:
            hybrid = [index for index in joint if self._queries[index].method == "hybrid"]
            self._trials.update(hybrid)
        self._for_blocks = [index for index in joint if index not in self._trials]
        joining = set(self._for_blocks)
        self._parts = [[index] for index in indices if index not in joining]
        self._form_blocks()

    def _block_fits(self) -> bool:
        free = self._graph.backend.device.memory_available()
        short = Block.bytes_needed(self._graph, self._width) > free
        return self._context.vertices.sums([short]) == [0.0]

    @property
    def _min_columns(self) -> int:
        return self._graph.backend.multivector.min_columns

    def _form_blocks(self) -> None:
        """Of the queries that are left when all others are answered, each of one damping."""
        if self._parts:
            return
        waiting, width = sorted(self._for_blocks, key=self._by_damping), self._width
        self._for_blocks = []
        for _, alike in groupby(waiting, key=lambda index: self._by_damping(index)[0]):
            indices = list(alike)
            for first in range(0, len(indices), width):
                block = indices[first : first + width]
                if len(block) >= self._min_columns:
                    self._parts.append(block)
                else:
                    self._parts += [[index] for index in block]

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
            if len(self._parts[0]) > 1 and not Block.represents(self._context.vertices):
                self._parts[:1] = [[index] for index in self._parts[0]]
            self._running = self._begin(self._parts[0])
        part = self._parts[0]
        self._running.step()
        alone: list[list[int]] = []
        if isinstance(self._running, Block):
            if not self._running.done:
                return
            alone = self._collect(part, self._running)
        elif self._running.done:
            self._answers[part[0]] = self._running.answer()
            if part[0] in self._trials:
                self._trials.remove(part[0])
                self._answered_trials += 1
        elif not self._trial_ends(part[0], self._running):
            return
        self._parts[:1] = alone
        self.close()
        if self._trials and not self._trials_pay:
            self._end_trials()
        self._form_blocks()

    def _collect(self, part: Sequence[int], block: Block) -> list[list[int]]:
        """Takes a block's answers. Returns the queries that are left to be solved alone."""
        alone: list[list[int]] = []
        for index, answer, unfinished in zip(part, block.answers(), block.unfinished, strict=True):
            if unfinished:
                alone.append([index])
            else:
                self._answers[index] = answer
        return alone

    def _trial_ends(self, index: int, query: Query | PublishedQuery) -> bool:
        """Whether the running query was on trial, without success, and joins a block now."""
        if index not in self._trials or isinstance(query, PublishedQuery):
            return False
        self._trial_steps += 1
        if self._trial_steps < _TRIAL_STEPS and not query.pulling:
            return False
        self._trials.remove(index)
        self._for_blocks.append(index)
        self._failed_trials += 1
        return True

    @property
    def _trials_pay(self) -> bool:
        allowed = _FAILED_TRIALS + _FOR_AN_ANSWER * self._answered_trials
        return self._failed_trials < allowed

    def _end_trials(self) -> None:
        """Lets all queries that wait for their trial join a block."""
        self._parts = [part for part in self._parts if part[0] not in self._trials]
        self._for_blocks += self._trials
        self._trials.clear()

    def _begin(self, part: Sequence[int]) -> Query | PublishedQuery | Block:
        queries = [self._queries[index] for index in part]
        if len(queries) > 1:
            return Block(self._context, queries)
        if queries[0].form == "published":
            return PublishedQuery(self._context, queries[0])
        return Query(self._context, queries[0])

    def perturb(self, update: GraphUpdate) -> None:
        """Follows a batch of edges."""
        self.updates += 1
        if self._loses(update.removed):
            self.restarts += 1
            self.close()
            self._plan()
            return
        if isinstance(self._running, Query):
            self._follow(self._running, update)
        elif self._running is not None:
            self.restarts += 1
            self.close()
        if self._answers:
            self.restarts += 1
            self.close()
            self._plan()

    def _follow(self, running: Query, update: GraphUpdate) -> None:
        try:
            running.perturb(update)
        except MemoryError:
            # the update stands; the caller gets the error when the query starts again
            self.close()

    def _loses(self, removed: NDArray[np.int64]) -> bool:
        """Takes the removed vertices, ascending, out of the queries. Whether one was a seed."""
        if len(removed) == 0:
            return False
        known = len(self._lost)
        for index, query in enumerate(self._queries):
            try:
                self._queries[index] = query.after(removed)
            except UnknownVertex as error:
                self._lost[index] = error
        return len(self._lost) > known

    def answers(self) -> list[Personalized]:
        """In the order of the queries. Raises UnknownVertex if one lost a seed."""
        return [self._answer(index) for index in range(len(self._queries))]

    def _answer(self, index: int) -> Personalized:
        if index in self._lost:
            raise self._lost[index]
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

    def close(self) -> None:
        """Gives the arrays back."""
        if isinstance(self._running, Query | PublishedQuery):
            self._running.close()
        self._running, self._trial_steps = None, 0
