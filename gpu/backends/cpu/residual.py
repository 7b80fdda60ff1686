"""The residual under local changes, and push by rounds of work-lists, on ``cpu``."""

from __future__ import annotations

import numpy as np

from gpu.backends.cpu import push_kernels
from gpu.backends.cpu.spread_kernels import (
    ADDITIONS,
    COUNTS,
    LISTED_COUNT,
    ROUNDS,
    SUMS,
    VERTICES,
    Tally,
)
from gpu.jit.compile import locked
from gpu.operations.csr import GraphView
from gpu.operations.device import Array
from gpu.operations.residual import (
    LISTED,
    PUSH_ENDS,
    SOLVES,
    PushLimits,
    PushResult,
    Residual,
    ResidualDelta,
    ResidualOperations,
)
from gpu.operations.update import EdgeChanges

_push = locked(push_kernels.push)
_spread = locked(push_kernels.spread)
_recompute_rows = locked(push_kernels.recompute_rows)
_select_candidates = locked(push_kernels.select_candidates)


class CpuResidual(ResidualOperations):
    """See ResidualOperations."""

    def recompute_rows(
        self,
        graph: GraphView,
        first: int,
        last: int,
        values: Array,
        rhs_scale: float,
        damping: float,
        residual: Residual,
    ) -> ResidualDelta:
        tally = _tally(residual)
        _recompute_rows(
            first,
            last,
            graph.incoming,
            graph.loop,
            graph.degree,
            values,
            rhs_scale,
            damping,
            graph.outgoing.row_lengths,
            *_lists(residual),
            *tally,
        )
        return _delta(residual, tally)

    def perturb(
        self,
        graph: GraphView,
        changes: EdgeChanges,
        values: Array,
        damping: float,
        residual: Residual,
        edge_limit: int,
    ) -> ResidualDelta | None:
        sources, old_degree = changes.sources, changes.old_degree
        degree = graph.degree[sources]
        edges = int(degree.sum(dtype=np.int64))
        if edges + len(changes.removed_targets) + len(changes.added_targets) > edge_limit:
            return None
        flow = damping * values[sources].astype(np.float64)
        old = np.where(old_degree > 0, flow / np.maximum(old_degree, 1), 0.0)
        difference = np.where(degree > 0, flow / np.maximum(degree, 1), 0.0) - old
        looped = graph.loop[sources] != 0
        removed = old[np.searchsorted(sources, changes.removed_sources)]
        added = old[np.searchsorted(sources, changes.added_sources)]
        targets = (changes.removed_targets, changes.added_targets, sources[looped])
        return self.spread(
            graph,
            residual,
            sources,
            difference,
            np.concatenate(targets),
            np.concatenate((-removed, added, difference[looped])),
        )

    def spread(
        self,
        graph: GraphView,
        residual: Residual,
        sources: Array,
        contributions: Array,
        targets: Array,
        amounts: Array,
    ) -> ResidualDelta:
        tally, lists = _tally(residual), _lists(residual)
        _spread(sources, contributions, targets, amounts, *graph.outgoing, *lists, *tally)
        return _delta(residual, tally)

    def push(
        self,
        graph: GraphView,
        values: Array,
        damping: float,
        residual: Residual,
        limits: PushLimits,
    ) -> PushResult:
        tally = _tally(residual)
        end, threshold = _push(
            *graph.outgoing,
            graph.loop,
            graph.degree,
            values,
            damping,
            *_lists(residual),
            residual.solve % SOLVES,
            limits.residual_l1,
            limits.residual_sum,
            limits.mass,
            limits.goal,
            limits.threshold,
            limits.edge_weight,
            limits.round_edges,
            limits.edges,
            limits.rounds,
            *tally,
        )
        rounds, vertices = int(tally.counts[ROUNDS]), int(tally.counts[VERTICES])
        return PushResult(PUSH_ENDS[end], threshold, rounds, vertices, _delta(residual, tally))

    def select_candidates(self, residual: Residual, floor: float) -> None:
        residual.listed = _select_candidates(
            residual.values, residual.marks, floor, residual.candidates
        )
        residual.floor = floor
        _drop_overflow(residual)


def _lists(residual: Residual) -> tuple[Array, Array, Array, float]:
    """The residual and its lists, as the kernels take them."""
    return residual.values, residual.marks, residual.candidates, residual.floor


def _tally(residual: Residual) -> Tally:
    tally = Tally(np.zeros(COUNTS, np.int64), np.zeros(SUMS))
    tally.counts[LISTED_COUNT] = residual.listed
    return tally


def _delta(residual: Residual, tally: Tally) -> ResidualDelta:
    residual.listed = int(tally.counts[LISTED_COUNT])
    _drop_overflow(residual)
    residual_l1, residual_sum, mass, moved, magnitude = tally.sums.tolist()
    additions = int(tally.counts[ADDITIONS])
    return ResidualDelta(residual_l1, residual_sum, mass, moved, magnitude, additions)


def _drop_overflow(residual: Residual) -> None:
    """If there are more candidates than their array holds, there are none."""
    if residual.listed > len(residual.candidates):
        residual.marks &= ~LISTED
        residual.listed, residual.floor = 0, np.inf
