"""The residual under local changes, and push by rounds of work-lists, on ``cpu``."""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

import numpy as np

from liverank_gpu.native import kernels
from liverank_gpu.operations.csr import GraphView
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.residual import (
    LISTED,
    PUSH_ENDS,
    SOLVES,
    SPARED_GROWTH,
    PushLimits,
    PushResult,
    Residual,
    ResidualDelta,
    ResidualOperations,
)
from liverank_gpu.operations.update import EdgeChanges

_LISTED_COUNT, _ADDITIONS, _ROUNDS, _VERTICES, _ENTRIES, _COUNTS = 0, 3, 4, 5, 6, 7
"""Positions in the counts of push.cpp, and their number: candidates; additions, rounds, distinct
vertices pushed, and entries of work-lists.
"""

_SUMS = 5
"""Those of a ResidualDelta, without the additions."""


class _Tally(NamedTuple):
    """What an operation counts and adds up.

    counts  int64[_COUNTS]
    sums    float64[_SUMS]
    """

    counts: Array
    sums: Array


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
        kernels.recompute_rows(
            first,
            last,
            graph.incoming,
            graph.loop,
            graph.degree,
            values,
            rhs_scale,
            damping,
            graph.outgoing.row_lengths,
            _lists(residual),
            tally,
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
        sources, row_lengths = changes.sources, graph.outgoing.row_lengths
        looped = graph.loop[sources] != 0
        edges = int(row_lengths[sources].sum(dtype=np.int64)) + int(np.count_nonzero(looped))
        if edges + len(changes.removed_targets) + len(changes.added_targets) > edge_limit:
            return None
        degree, old_degree = graph.degree[sources], changes.old_degree
        flow = damping * values[sources].astype(np.float64)
        old = np.where(old_degree > 0, flow / np.where(old_degree > 0, old_degree, 1), 0.0)
        if graph.weighted:
            return self._perturb_weighted(graph, changes, flow, old, residual)
        new = np.where(degree > 0, flow / np.maximum(degree, 1), 0.0)
        difference = new - old
        removed = old[np.searchsorted(sources, changes.removed_sources)]
        added = old[np.searchsorted(sources, changes.added_sources)]
        own = difference[looped]
        targets = (changes.removed_targets, changes.added_targets, sources[looped])
        return self.spread(
            graph,
            residual,
            sources,
            difference,
            np.concatenate(targets),
            np.concatenate((-removed, added, own)),
        )

    def _perturb_weighted(
        self, graph: GraphView, changes: EdgeChanges, flow: Array, old: Array, residual: Residual
    ) -> ResidualDelta:
        """flow, old: float64[s], α·y and α·y/W_old of the sources."""
        sources, before, after = changes.sources, changes.old_degree, graph.degree[changes.sources]
        new = np.divide(flow, after, out=np.zeros_like(flow), where=after > 0)
        # not new - old, whose rounding would be relative to these
        both = (before > 0) & (after > 0)
        relative = (before - after) / np.where(both, after, 1)
        difference = np.where(both, relative * old, new - old)
        removed: Array = np.searchsorted(sources, changes.removed_sources)
        added: Array = np.searchsorted(sources, changes.added_sources)
        spared = after > SPARED_GROWTH * before
        added_amounts = np.where(spared, new, old)[added] * changes.added_weights
        own = difference * graph.loop[sources]
        own[added[(changes.added_targets == changes.added_sources) & spared[added]]] = 0.0
        added_keys = _packed(changes.added_sources, changes.added_targets)[spared[added]]
        targets, amounts = _spared_entries(graph, sources[spared], difference[spared], added_keys)
        return self.spread(
            graph,
            residual,
            sources[~spared],
            difference[~spared],
            np.concatenate((changes.removed_targets, changes.added_targets, sources, targets)),
            np.concatenate((-old[removed] * changes.removed_weights, added_amounts, own, amounts)),
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
        kernels.scatter(sources, contributions, targets, amounts, graph.outgoing, lists, tally)
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
        end, threshold = kernels.push(
            graph.outgoing,
            graph.loop,
            graph.degree,
            values,
            damping,
            _lists(residual),
            residual.solve % SOLVES,
            _limits(limits),
            tally,
        )
        rounds, vertices, entries = tally.counts[[_ROUNDS, _VERTICES, _ENTRIES]].tolist()
        delta = _delta(residual, tally)
        return PushResult(PUSH_ENDS[end], threshold, rounds, vertices, entries, delta)

    def select_candidates(self, residual: Residual, floor: float) -> None:
        residual.listed = kernels.select_candidates(
            residual.values, residual.marks, floor, residual.candidates
        )
        residual.floor = floor
        _drop_overflow(residual)


def _spared_entries(
    graph: GraphView, vertices: Array, contributions: Array, added: Array
) -> tuple[Array, Array]:
    """Targets and amounts of the entries of these vertices' out-lists that are not among the added
    edges, int64[…].
    """
    csr = graph.outgoing
    lengths = csr.row_lengths[vertices].astype(np.int64)
    begins = csr.row_starts[vertices] + lengths - np.cumsum(lengths)
    slots = np.arange(int(lengths.sum())) + np.repeat(begins, lengths)
    targets = csr.column_indices[slots]
    weights: Array = csr.weights
    kept = ~np.isin(_packed(np.repeat(vertices, lengths), targets), added)
    amounts = np.repeat(contributions, lengths) * weights[slots]
    return targets[kept], amounts[kept]


def _packed(sources: Array, targets: Array) -> Array:
    return sources.astype(np.int64) << 32 | targets


_limits = attrgetter(
    *("residual_l1", "residual_sum", "mass", "goal", "threshold", "edge_weight"),
    *("round_edges", "edges", "rounds"),
)
"""The members of PushLimits, as the kernel takes them."""


def _lists(residual: Residual) -> tuple[Array, Array, Array, float]:
    """The residual and its lists, as the kernels take them."""
    return residual.values, residual.marks, residual.candidates, residual.floor


def _tally(residual: Residual) -> _Tally:
    tally = _Tally(np.zeros(_COUNTS, np.int64), np.zeros(_SUMS))
    tally.counts[_LISTED_COUNT] = residual.listed
    return tally


def _delta(residual: Residual, tally: _Tally) -> ResidualDelta:
    residual.listed = int(tally.counts[_LISTED_COUNT])
    _drop_overflow(residual)
    residual_l1, residual_sum, mass, moved, magnitude = tally.sums.tolist()
    additions = int(tally.counts[_ADDITIONS])
    return ResidualDelta(residual_l1, residual_sum, mass, moved, magnitude, additions)


def _drop_overflow(residual: Residual) -> None:
    """If there are more candidates than their array holds, there are none."""
    if residual.listed > len(residual.candidates):
        residual.marks &= ~LISTED
        residual.listed, residual.floor = 0, np.inf
