"""The residual under local changes, and push by rounds of work-lists, on ``cpu``."""

from __future__ import annotations

from typing import Any

import numpy as np

from liverank_gpu.native import kernels
from liverank_gpu.operations.csr import GraphView
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.residual import (
    LISTED,
    PUSH_ENDS,
    SOLVES,
    PushLimits,
    PushResult,
    Residual,
    ResidualDelta,
    ResidualOperations,
)
from liverank_gpu.operations.update import EdgeChanges


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
        changed = kernels.recompute_rows(
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
        )
        return _delta(residual, *changed)

    def perturb(
        self,
        graph: GraphView,
        changes: EdgeChanges,
        values: Array,
        damping: float,
        residual: Residual,
        edge_limit: int,
    ) -> ResidualDelta | None:
        lists = (graph.outgoing, graph.loop, graph.degree)
        changed = kernels.perturb(*lists, changes, values, damping, edge_limit, _lists(residual))
        return None if changed[0] < 0 else _delta(residual, *changed)

    def spread(
        self,
        graph: GraphView,
        residual: Residual,
        sources: Array,
        contributions: Array,
        targets: Array,
        amounts: Array,
    ) -> ResidualDelta:
        lists = _lists(residual)
        columns = (sources, contributions, targets, amounts)
        return _delta(residual, *kernels.scatter(*columns, graph.outgoing, lists))

    def push(
        self,
        graph: GraphView,
        values: Array,
        damping: float,
        residual: Residual,
        limits: PushLimits,
    ) -> PushResult:
        end, threshold, rounds, vertices, entries, *changed = kernels.push(
            graph.outgoing,
            graph.loop,
            graph.degree,
            values,
            damping,
            _lists(residual),
            residual.solve % SOLVES,
            limits,
        )
        delta = _delta(residual, *changed)
        return PushResult(PUSH_ENDS[end], threshold, rounds, vertices, entries, delta)

    def select_candidates(self, residual: Residual, floor: float) -> None:
        residual.listed = kernels.select_candidates(
            residual.values, residual.marks, floor, residual.candidates
        )
        residual.floor = floor
        _drop_overflow(residual)


def _lists(residual: Residual) -> tuple[Array, Array, Array, int, float]:
    """The residual and its lists, as the kernels take them."""
    lists = (residual.values, residual.marks, residual.candidates)
    return (*lists, residual.listed, residual.floor)


def _delta(residual: Residual, listed: int, *changed: Any) -> ResidualDelta:
    """What kernels return, with the number of candidates taken to the residual."""
    residual.listed = listed
    _drop_overflow(residual)
    return ResidualDelta(*changed)


def _drop_overflow(residual: Residual) -> None:
    """If there are more candidates than their array holds, there are none."""
    if residual.listed > len(residual.candidates):
        residual.marks &= ~LISTED
        residual.listed, residual.floor = 0, np.inf
