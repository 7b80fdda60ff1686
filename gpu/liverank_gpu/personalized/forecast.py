"""What a personalized query will cost by pushes, by sweeps and in a block: predicted from counted
work, never timed (liverank_gpu.operations.backend.QueryCosts).

Each sweep leaves about the same part of an error bound, so sweeps that are left follow from the
bound, and from what sweeps of earlier queries on the same graph left. A push gets slower while it
reaches more vertices: what it still costs follows from what the second half of its work did.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.graph.ranked_graph import RankedGraph
from liverank_gpu.operations.residual import PushResult
from liverank_gpu.pagerank.iterate import Deflation
from liverank_gpu.types import Ranking

_PACE, _FAST_PACE, _FASTEST_PACE = 2.0, 4.0, 8.0
"""What sweeps are expected to do before any were seen: as much as two that each leave α. Real
networks have 0.9 to 8, many of them up to 4.
"""

DOUBT = 2.0
"""Pushes turn out slower than they begin: they must seem so many times cheaper than what is given
up for them.
"""

LOST_PART = 0.05
"""What pushes and probes may cost in vain: this part of what queries cost without them, beyond what
other pushes saved.
"""

_MOST_SAVED = 4.0
"""Of what pushes saved, so many queries without them are remembered."""

LEAST_RECORDED = 4
"""Fewer sweeps tell nothing about the next ones."""


def first_bound(damping: float) -> float:
    """An error bound as queries begin: of a residual as large as y."""
    return 2.0 / (1.0 - damping)


class Forecast:
    """What queries on one graph will cost, and have cost.

    seen   whether sweeps were, of earlier queries
    spent  by all of them so far, in counted work
    """

    def __init__(self, graph: RankedGraph) -> None:
        self.graph = graph
        self._costs = graph.backend.costs.queries
        self._pace = _PACE
        self.seen = False
        self._to_spare = 0.0
        self.spent = 0.0

    @property
    def sweep(self) -> float:
        """Of a sweep."""
        return self._costs.of_sweep(self.graph.ids.limit, self.graph.arcs)

    def block_sweep(self, queries: float) -> float:
        """Of a sweep of a block of so many queries."""
        columns = self.graph.backend.multivector.column_count(ceil(queries))
        return self._costs.of_block_sweep(self.graph.ids.limit, self.graph.arcs, columns)

    def sweeps(self, damping: float, bound: float, target: float) -> float:
        """How many sweeps lead from an error bound to a target."""
        reduction = np.log(min(bound, first_bound(damping)) / target)
        return max(1.0, float(reduction / (self._pace * -np.log(damping))))

    def record(self, damping: float, before: float, after: float, sweeps: int) -> None:
        """Sweeps that were made, and the error bounds before and after them."""
        before = min(before, first_bound(damping))
        if sweeps >= LEAST_RECORDED and 0.0 < after < before:
            pace = float(np.log(before / after) / (sweeps * -np.log(damping)))
            self._pace = 0.25 * self._pace + 0.75 * pace
            self.seen = True

    def record_pushes(self, pushes: PushForecast, damping: float, target: float) -> None:
        """The pushes of a query that was solved alone: sweeps go on where they ended, if they have
        not met the target.
        """
        (_, before), (spent, bound) = pushes.seen[0], pushes.seen[-1]
        whole = saved = self.by_sweeps(damping, before, target)
        if bound > target:
            saved = self.sweeps(damping, before, bound) * self.sweep
        self._to_spare += LOST_PART * whole + saved - spent
        self._to_spare = min(self._to_spare, _MOST_SAVED * whole)

    @property
    def pushes_pay(self) -> bool:
        """Whether more than a first call of a push has paid in queries that were solved alone."""
        return self._to_spare >= 0.0

    def by_sweeps(self, damping: float, bound: float, target: float) -> float:
        """Of the sweeps from an error bound to a target, and the answer."""
        return self.sweeps(damping, bound, target) * self.sweep + self.answer

    def in_block(self, damping: float, target: float, queries: float) -> float:
        """Of one of so many queries of a block, on average, from its start to its answer."""
        share = self.block_sweep(queries) / queries
        return self.sweeps(damping, np.inf, target) * share + self.answer

    def at_best(self, in_block: float) -> float:
        """What was predicted before sweeps were seen, if they turn out as fast as any."""
        return (in_block - self.answer) * _PACE / _FASTEST_PACE + self.answer

    @property
    def answer(self) -> float:
        """Of the places of a vector over all vertices."""
        return self._costs.of_answer(self.graph.ids.limit)

    @property
    def start(self) -> float:
        """Of a query that is solved alone, beside pushes and sweeps."""
        return self._costs.alone

    @property
    def uncertainty(self) -> float:
        """How many times fewer sweeps may be needed than is predicted: 1 once some were seen."""
        return 1.0 if self.seen else _FAST_PACE / _PACE


class PushForecast:
    """What a push has cost, and will cost.

    spent  so far
    seen   what was spent after each call, from none on, and the error bound then
    """

    def __init__(self, forecast: Forecast, bound: float) -> None:
        """bound  on the error at its start"""
        costs, self._forecast = forecast.graph.backend.costs, forecast
        self._costs, self._round = costs.queries, costs.queries.round + costs.round_overhead
        self.spent = 0.0
        self.seen = [(0.0, bound)]

    def edges(self, work: float) -> int:
        """How many edges a call may push that is to cost so much; more than hardly any."""
        return int(max(work, self._costs.least_push) / self._costs.pushed_edge) + 1

    def record(self, pushed: PushResult, bound: float) -> None:
        """A call of a push, and the error bound after it."""
        edges = self._costs.pushed_edge * pushed.delta.additions
        cost = self._costs.push + self._round * pushed.rounds + edges
        self.spent += cost
        self._forecast.spent += cost
        self.seen.append((self.spent, bound))

    def left(self, target: float) -> float:
        """What it will still cost to reach a target, if it does not get slower."""
        spent, bound = self.seen[-1]
        # of two calls at least: one may be hardly more than a long work-list, whose gain is what
        # the next ones find
        seen = self.seen[:-2] or self.seen
        before, earlier = next(each for each in reversed(seen) if each[0] <= 0.5 * spent)
        if not bound < earlier:
            return np.inf
        return float(np.log(bound / target) / np.log(earlier / bound) * (spent - before))


# ---- whether a personalized query is deflated along the global ranks, and for how long ----
#
# Deflation pays on graphs that mix well and costs sweeps where parts are seldom left. So it is on
# trial as long as it lasts: a query that stops gaining by it starts again without, and after each
# failure in a row twice as many queries do without before the next one tries.

FIRST_JUDGED = 5
"""Deflated sweeps before they are judged: a query may need some to get away from its seeds."""

_SWEEPS, _REDUCTION = 2, 0.35
"""This many sweeps may leave this part of the bound: on graphs where deflation pays (R-MAT,
wiki-Vote, p2p-Gnutella31) it is 0.03 to 0.27, where it does not (cnr-2000, dblp-2010, the roads)
0.55 and more.
"""

_FEW = 4
"""A block goes on with this many queries that do not gain, or half of its own."""

_MOST_SKIPPED = 63

DeflationSource = Callable[[float], Deflation | None]
"""The global ranks as a direction for queries to a target error, if they are usable."""


class DeflationHistory:
    """What trials have shown on one graph."""

    def __init__(self) -> None:
        self._skip = self._skipping = 0

    @property
    def next_tries(self) -> bool:
        """Whether the next query is deflated."""
        return self._skipping == 0

    def take_turn(self) -> bool:
        """Whether this query is deflated; if not, it counts as skipped."""
        if self._skipping > 0:
            self._skipping -= 1
            return False
        return True

    def record(self, gained: bool) -> None:
        """Records how a trial ended."""
        self._skip = 0 if gained else min(2 * self._skip + 1, _MOST_SKIPPED)
        self._skipping = self._skip


class DeflationTrial:
    """The trial of one query, or of a block of queries that are solved together."""

    def __init__(
        self, history: DeflationHistory, source: DeflationSource, target_error: float
    ) -> None:
        self._history = history
        self._source = source
        self._target_error = target_error
        # known once there is a direction
        self._deflated: bool | None = None
        self._bounds: list[Ranking] = []

    def forget_bounds(self) -> None:
        """The residual changed other than by sweeps: earlier gains predict nothing."""
        self._bounds = []

    @property
    def expected(self) -> bool:
        """Whether the next sweep will be deflated."""
        deflated = self._history.next_tries if self._deflated is None else self._deflated
        return deflated and self._source(self._target_error) is not None

    def deflation(self) -> Deflation | None:
        """What to deflate the next sweep along; None to do without."""
        if self._deflated is False:
            return None
        deflation = self._source(self._target_error)
        if self._deflated is None and deflation is not None:
            self._deflated = self._history.take_turn()
        return deflation if self._deflated else None

    def fails(self, bounds: Ranking, ended: NDArray[np.bool_], done: bool) -> bool:
        """Records the error bounds after a deflated sweep. Whether deflation has stopped paying: it
        is not used any more, and the query had better start again.

        bounds  float64[queries]
        ended   bool[queries], those for which nothing more is to be gained
        done    whether this was the last sweep
        """
        self._bounds.append(bounds)
        slow = ~(ended | self._gains())
        if not done and int(slow.sum()) > min(_FEW, len(slow) // 2):
            self._deflated = False
            self._history.record(gained=False)
            return True
        if done and len(self._bounds) >= FIRST_JUDGED and not slow.any():
            self._history.record(gained=True)
        return False

    def _gains(self) -> NDArray[np.bool_]:
        """bool[queries]: whether deflation pays, as far as it can be judged."""
        last = self._bounds[-1]
        if len(self._bounds) < FIRST_JUDGED:
            return np.ones(len(last), np.bool_)
        return np.isfinite(last) & (last <= _REDUCTION * self._bounds[-1 - _SWEEPS])
