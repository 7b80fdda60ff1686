"""Which kind of sweep comes next: chosen by what each kind gains for its cost."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log
from typing import NamedTuple

from liverank_gpu.operations.sweeps import GAIN_SWEEPS
from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.pagerank.momentum import Momentum

_VERTEX_COST, _ORTHOMIN_VERTEX_COST = 2.0, 5.5
"""Cost of a sweep for each vertex, in edges: on an H200 one of Orthomin took 1.24 times as long on
R-MAT with 16 edges a vertex, 1.53 times on a grid with 4; on one core 1.0 to 1.4 times.
"""

_ORTHOMIN_OVERHEAD = 1.3
"""Cost of a sweep of Orthomin over hardly any edges, in other sweeps."""

_PLAIN_COST = 2.5
"""Cost of a plain sweep, in mean-corrected ones. It takes no longer, but the first few after
mean-corrected ones only make up for what these leave; with a lower cost, graphs where that is all
would lose.
"""

_SLOW = 0.65
"""What mean-corrected sweeps leave of the bound when another kind is tried: graphs on which they
always leave less (R-MAT, wiki-Vote, p2p-Gnutella31) gain a tenth by acceleration, or nothing.
"""

_TRIAL_SWEEPS = 4
"""Sweeps of a trial: the first two accelerated ones have no last direction and show nothing."""

_STAKE = 0.12
"""The part of all sweeps that trials may cost if they gain nothing: those that failed on road
networks lost at most half of that.
"""

_REACH = 1e-2
"""All sweeps are those to the target, or to this part of the bound if the target is nearer. By the
target alone a tight one allowed the trial that makes a solve fast, and a loose one did not: grids
took up to 11 sweeps of 37 more to a target four times as loose.
"""

_LEAST_SWEEPS = 2
"""Fewer sweeps to the target than this cannot gain by a trial."""

_LARGEST_BOUND = 1e100
"""In place of larger bounds and of an infinite one, which says that Σy is not positive."""


class SweepKind(NamedTuple):
    """A kind of sweep; see liverank_gpu.pagerank.sweeps."""

    mean_corrected: bool
    accelerated: bool


SWEEP_KINDS = tuple(
    SweepKind(mean_corrected, accelerated)
    for accelerated in (True, False)
    for mean_corrected in (True, False)
)
"""All kinds. A solve begins mean-corrected, and tries the first other kind that is allowed."""


class SweepSchedule:
    """Chooses between mean-corrected sweeps and one other kind.

    Gains are those of log(bound) a sweep. When mean-corrected sweeps gain less than the other kind
    did the last time (before its first trial: less than they should), the other kind is used for
    some sweeps, until it gains less for its cost than they did just before. So the two may
    alternate. What trials lost is accounted, so that all together stay cheap.

    kind  the next sweep's
    """

    def __init__(
        self,
        iterate: GlobalIterate,
        kinds: Sequence[SweepKind] = SWEEP_KINDS,
        momentum: Momentum | None = None,
    ) -> None:
        """momentum  that of the solve, which says whether accelerated sweeps use it; None: never"""
        first = SweepKind(mean_corrected=True, accelerated=False)
        self._first = first if first in kinds else kinds[0]
        self._other = next((kind for kind in kinds if kind != self._first), None)
        self._iterate, self._momentum = iterate, momentum
        self._target = iterate.options.target_error
        # no kind is slower for long
        self._least_gain = -log(iterate.options.damping)
        # what the other kind gains for its cost, and what it has to
        self._expected_gain, self._required_gain = -log(_SLOW), 0.0
        self._lost = 0.0
        self._sweeps = 0
        self._bounds: list[float] = []
        self.kind = self._first

    @property
    def _cost(self) -> float:
        """Of a sweep of the other kind, as it would be now."""
        if self._other is None:
            return 1.0
        if self._other.accelerated and self._momentum is not None and self._momentum.chosen:
            return 1.0  # it reads and writes what a mean-corrected one does
        return relative_cost(self._other, self._iterate)

    @property
    def bounds(self) -> Sequence[float]:
        """Those recorded since the kind changed."""
        return self._bounds

    @property
    def least_bounds(self) -> int:
        """How many bounds have to be known before one after which the kind can change."""
        return 1 if self.kind == self._first else _TRIAL_SWEEPS

    @property
    def least_gain(self) -> float:
        """About the gain below which the kind changes."""
        if self._other is None:
            return -inf
        if self.kind != self._first:
            return self._required_gain * self._cost
        affordable = self._affordable_gain(self._bounds[-1]) if self._bounds else inf
        return min(self._expected_gain, affordable) if affordable > self._least_gain else -inf

    def record(self, bound: float) -> None:
        """Records the bound after a sweep that another of its kind follows."""
        self._sweeps += 1
        self._bounds.append(min(bound, _LARGEST_BOUND))

    def switch(self, bound: float) -> bool:
        """Records the bound after a sweep. Whether `kind` changed."""
        self.record(bound)
        bound = self._bounds[-1]
        swept = len(self._bounds) - 1
        if self._other is None or swept < self.least_bounds:
            return False
        counted = min(swept, GAIN_SWEEPS)
        gain = log(self._bounds[-1 - counted] / bound) / counted
        if self.kind == self._first:
            if gain >= self._expected_gain:
                return False
            if max(gain, self._least_gain) >= self._affordable_gain(bound):
                return False
            self._required_gain, self.kind = max(gain, self._least_gain), self._other
        else:
            if gain / self._cost >= self._required_gain:
                return False
            cost, gained = self._cost * swept, log(self._bounds[0] / bound)
            self._expected_gain = gained / cost
            self._lost += cost - gained / self._required_gain
            self.kind = self._first
        self._bounds = [bound]
        return True

    def _affordable_gain(self, bound: float) -> float:
        """The gain below which so many sweeps remain that a trial can still pay, and costs little
        of all sweeps if it gains nothing.
        """
        lost = self._lost + _TRIAL_SWEEPS * (self._cost - 1.0)
        remaining = log(max(bound / self._target, 1.0))
        affordable = max(remaining, -log(_REACH)) / max(lost / _STAKE - self._sweeps, 1.0)
        return min(remaining / _LEAST_SWEEPS, affordable)


def relative_cost(kind: SweepKind, iterate: GlobalIterate) -> float:
    """Cost of a sweep of this kind, in mean-corrected ones; accelerated by Orthomin if it is."""
    if not kind.accelerated:
        return _PLAIN_COST
    graph, overhead = iterate.graph, iterate.graph.backend.costs.sweep_overhead
    vertices = graph.ids.limit  # of all shards, which have to choose alike
    cost = graph.arcs + _VERTEX_COST * vertices + overhead
    accelerated = graph.arcs + _ORTHOMIN_VERTEX_COST * vertices
    return (accelerated + _ORTHOMIN_OVERHEAD * overhead) / cost
