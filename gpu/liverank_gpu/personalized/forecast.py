"""What a personalized query will cost by pushes, by sweeps and in a block: predicted from counted
work, never timed (liverank_gpu.operations.backend.QueryCosts).

Each sweep leaves about the same part of an error bound, so sweeps that are left follow from the
bound, and from what sweeps of earlier queries on the same graph left. A push gets slower while it
reaches more vertices: what it still costs follows from what the second half of its work did.
"""

from __future__ import annotations

import numpy as np

from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.residual import PushResult

_PACE = 2.0
"""What sweeps are expected to do before any were seen: as much as two that each leave α. Real
networks have 0.9 to 8.
"""

DOUBT = 2.0
"""Pushes turn out slower than they begin: they must seem so many times cheaper than what is given
up for them.
"""

_LEAST_WORK = 4.0
"""A call of a push may do this many times what it takes in itself, at least."""

_LEAST_RECORDED = 4
"""Fewer sweeps tell nothing about the next ones."""


def first_bound(damping: float) -> float:
    """An error bound as queries begin: of a residual as large as y."""
    return 2.0 / (1.0 - damping)


class Forecast:
    """What queries on one graph will cost."""

    def __init__(self, graph: DynamicGraph) -> None:
        self._graph = graph
        self._costs = graph.backend.costs.queries
        self._pace = _PACE

    @property
    def sweep(self) -> float:
        """Of a sweep."""
        return self._costs.of_sweep(self._graph.ids.limit, self._graph.arcs)

    def block_sweep(self, queries: int) -> float:
        """Of a sweep of a block of so many queries."""
        columns = self._graph.backend.multivector.column_count(queries)
        return self._costs.of_block_sweep(self._graph.ids.limit, self._graph.arcs, columns)

    def sweeps(self, damping: float, bound: float, target: float) -> float:
        """How many sweeps lead from an error bound to a target."""
        reduction = np.log(min(bound, first_bound(damping)) / target)
        return max(1.0, float(reduction / (self._pace * -np.log(damping))))

    def record(self, damping: float, before: float, after: float, sweeps: int) -> None:
        """Sweeps that were made, and the error bounds before and after them."""
        before = min(before, first_bound(damping))
        if sweeps >= _LEAST_RECORDED and 0.0 < after < before:
            pace = float(np.log(before / after) / (sweeps * -np.log(damping)))
            self._pace = 0.25 * self._pace + 0.75 * pace

    def by_sweeps(self, damping: float, bound: float, target: float) -> float:
        """Of the sweeps from an error bound to a target, and the answer."""
        return self.sweeps(damping, bound, target) * self.sweep + self.answer

    def in_block(self, damping: float, target: float, queries: int) -> float:
        """Of one of so many queries of a block, from its start to its answer."""
        share = self.block_sweep(queries) / queries
        return self.sweeps(damping, np.inf, target) * share + self.answer

    @property
    def answer(self) -> float:
        """Of the places of a vector over all vertices."""
        return self._costs.of_answer(self._graph.ids.limit)

    @property
    def start(self) -> float:
        """Of a query that is solved alone, beside pushes and sweeps."""
        return self._costs.alone


class PushForecast:
    """What a push has cost, and will cost.

    spent  so far
    """

    def __init__(self, backend: Backend, bound: float) -> None:
        """bound  on the error at its start"""
        costs = backend.costs
        self._costs, self._round = costs.queries, costs.queries.round + costs.round_overhead
        self.spent = 0.0
        # that, and the error bound then
        self._seen = [(0.0, bound)]

    def edges(self, work: float) -> int:
        """How many edges a call may push that is to cost so much; more than hardly any."""
        return int(max(work, _LEAST_WORK * self._costs.push) / self._costs.pushed_edge) + 1

    def record(self, pushed: PushResult, bound: float) -> None:
        """A call of a push, and the error bound after it."""
        edges = self._costs.pushed_edge * pushed.delta.additions
        self.spent += self._costs.push + self._round * pushed.rounds + edges
        self._seen.append((self.spent, bound))

    def left(self, target: float) -> float:
        """What it will still cost to reach a target, if it does not get slower."""
        spent, bound = self._seen[-1]
        # of two calls at least: one may be hardly more than a long work-list, whose gain is what
        # the next ones find
        seen = self._seen[:-2] or self._seen
        before, earlier = next(each for each in reversed(seen) if each[0] <= 0.5 * spent)
        if not bound < earlier:
            return np.inf
        return float(np.log(bound / target) / np.log(earlier / bound) * (spent - before))
