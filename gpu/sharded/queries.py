"""Personalized queries on a graph in shards: by the methods of one device, each on its own rows.

Every shard runs the same query (gpu.personalized.query) on its part of y and r. Sweeps, pushes and
sums are those of the shards, so all take the same decisions. Queries are solved one after the
other, in calls of about SLICE_SECONDS; a batch between two calls perturbs the running query, which
continues.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from gpu.errors import UnknownVertex
from gpu.operations.update import GraphUpdate
from gpu.pagerank.global_iterate import GlobalIterate
from gpu.personalized.batch import QueryBatch
from gpu.personalized.query import Query, QueryContext
from gpu.personalized.resolve import ResolvedQuery
from gpu.personalized.workspace import WorkspacePool
from gpu.sharded.own_vertices import OwnVertices
from gpu.types import Personalized

SLICE_SECONDS = 0.05
"""A call of the shards ends with the first step, of about a sweep, that ends after this time."""

_MOST_UNCHECKED = 100
"""Most steps between two looks at the clock, each of which is an exchange: the shards have to agree
whether the time is over.
"""

_MOST_QUERIES = 32
"""Queries that are sent with a call."""


class ShardQueries:
    """The queries of one shard that are not done, by the number of their batch, and what they
    share.

    answering  whether a call of `answer` has begun and not ended. If one has on any shard, all
               have to `reset` before the next call
    """

    def __init__(self, iterate: GlobalIterate, vertices: OwnVertices) -> None:
        self._iterate, self._vertices = iterate, vertices
        self.reset()

    def reset(self) -> None:
        """Forgets all queries, and what earlier ones have shown, which may differ between shards
        after an error.
        """
        pool, iterate = WorkspacePool(self._vertices.graph), self._iterate
        self._context = QueryContext(pool, iterate.options, iterate.deflation, self._vertices)
        self._running: dict[int, Query] = {}
        self.answering = False

    def answer(
        self,
        number: int,
        queries: Sequence[ResolvedQuery],
        batches: Collection[int],
        seconds: float,
    ) -> list[Personalized]:
        """The answers to the first of these queries, as many as there is time for: the same on all
        shards. Raises OutOfMemory.

        number   of the batch of queries, the first of which may be running
        batches  numbers of those that are not closed; other queries are forgotten
        seconds  after which no step begins, but the first
        """
        for closed in self._running.keys() - set(batches):
            self._running.pop(closed).close()
        self.answering = True
        answers, over, began = [], False, perf_counter()
        steps, next_check = 0, 1
        for query in queries:
            if number not in self._running:
                self._running[number] = Query(self._context, query)
            running = self._running[number]
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
            if running.done:
                answers.append(running.answer())
                self._running.pop(number).close()
            if over:
                break
        self.answering = False
        return answers

    def perturb(self, update: GraphUpdate) -> None:
        """Has all queries follow a batch of edges, on all shards."""
        for number, query in list(self._running.items()):
            try:
                query.perturb(update)
            except UnknownVertex:  # of which the caller knows
                self._running.pop(number).close()

    @property
    def nbytes(self) -> int:
        """Bytes held on the device."""
        running = sum(query.iterate.nbytes for query in self._running.values())
        return running + self._context.pool.nbytes


class ShardedQueryBatch(QueryBatch):
    """Queries that the shards answer one after the other: see QueryBatch. After a batch of edges,
    those are answered again whose answers were not taken.

    number  the shards know its running query by it
    """

    def __init__(
        self,
        answer: Callable[[int, list[ResolvedQuery]], list[Personalized]],
        queries: Sequence[ResolvedQuery],
        numbers: Callable[[], int],
        batches: list[ShardedQueryBatch],
    ) -> None:
        """answer   calls the shards with a number
        numbers  gives new ones
        batches  those that are not closed, which this one joins
        """
        self.updates = self.restarts = 0
        self._answer_queries, self._new_number, self._batches = answer, numbers, batches
        self._queries = list(queries)
        self._lost, self._taken = {}, set()
        self._plan()
        batches.append(self)

    def _plan(self) -> None:
        self.number = self._new_number()
        self._answers = {}
        ended = self._taken | self._lost.keys()
        self._waiting = [index for index in range(len(self._queries)) if index not in ended]

    @property
    def done(self) -> bool:
        return not self._waiting

    def step(self) -> None:
        """Has the shards go on, for about SLICE_SECONDS. Raises OutOfMemory, ShardLost."""
        queries = [self._queries[index] for index in self._waiting[:_MOST_QUERIES]]
        answers = self._answer_queries(self.number, queries)
        self._answers.update(zip(self._waiting, answers, strict=False))
        del self._waiting[: len(answers)]

    def follow(self, removed: NDArray[np.int64]) -> None:
        """Follows a batch of edges that removed these vertices: ids, ascending."""
        self.updates += 1
        if self._loses(removed) or self._answers:
            self.restarts += 1
            self._plan()

    def close(self) -> None:
        if self in self._batches:
            self._batches.remove(self)
