"""Changing a graph by batches on ``cpu``."""

from __future__ import annotations

from operator import attrgetter

import numpy as np

from liverank_gpu.native import kernels
from liverank_gpu.operations.csr import SlackCsr
from liverank_gpu.operations.device import Array, DeviceOperations
from liverank_gpu.operations.graph import GraphOperations, SortedKeys
from liverank_gpu.operations.update import BatchPlan, Counts, EdgeChanges

_plan = attrgetter("blocks", "counters")
"""What batch.cpp takes of a BatchPlan."""

_INTS, _DOUBLES, _FLOATS = (np.zeros(0, dtype) for dtype in (np.int32, np.float64, np.float32))
_NO_CHANGES = EdgeChanges(_INTS, _INTS, _INTS, _INTS, _INTS, _INTS)
_NO_WEIGHTED_CHANGES = _NO_CHANGES._replace(
    old_degree=_DOUBLES, removed_weights=_FLOATS, added_weights=_FLOATS
)
"""For the in-lists, which report nothing."""


class CpuGraph(GraphOperations):
    """See GraphOperations."""

    def __init__(self, device: DeviceOperations) -> None:
        self._device = device

    def columns(self, sources: Array, targets: Array) -> tuple[Array, Array]:
        dtype = np.int32 if sources.dtype == targets.dtype == np.int32 else np.int64
        return np.ascontiguousarray(sources, dtype), np.ascontiguousarray(targets, dtype)

    def sorted_keys(
        self,
        columns: list[tuple[int, Array, Array]],
        vertices: tuple[int, int],
        positions: Array,
        weights: Array | None = None,
    ) -> SortedKeys:
        total = sum(len(sources) for _, sources, _ in columns)
        keys = self._device.allocate("keys of a batch", total, np.int64)
        begin = 0
        for operation, sources, targets in columns:
            if len(sources) == 0:
                continue
            packed = keys[begin : begin + len(sources)]
            ends = self.columns(sources, targets)
            kernels.pack_keys(*ends, operation, vertices[operation], positions, packed)
            begin += len(sources)
        return self.sort(keys, weights)

    def sort(self, keys: Array, weights: Array | None = None) -> SortedKeys:
        if weights is None:
            keys.sort()
            return SortedKeys(keys)
        order = np.argsort(keys, kind="stable")
        return SortedKeys(keys[order], weights[order], order)

    def resolve_update(
        self,
        csr: SlackCsr,
        loop: Array,
        fixed_loops: bool,
        batch: SortedKeys,
        adds: bool,
        directed: bool,
        plan: BatchPlan,
    ) -> None:
        kernels.resolve_update(
            batch.keys, batch.weights, loop, fixed_loops, directed, adds, csr.csr, _plan(plan)
        )

    def plan_rows(self, csr: SlackCsr, operations: int, plan: BatchPlan) -> None:  # noqa: ARG002
        kernels.plan_rows(csr.csr.row_lengths, csr.capacities, _plan(plan))

    def apply_update(
        self,
        csr: SlackCsr,
        plan: BatchPlan,
        counts: Counts,  # noqa: ARG002
        loop: Array,
        degree: Array,
        changes: EdgeChanges | None,
    ) -> None:
        rows, weighted = csr.csr, csr.csr.weights is not None
        reported = changes or (_NO_WEIGHTED_CHANGES if weighted else _NO_CHANGES)
        outgoing = changes is not None
        kernels.apply_update(
            outgoing, csr.end, rows, csr.capacities, loop, degree, _plan(plan), reported
        )
        if changes is not None and weighted:
            kernels.sum_weights(changes.sources, rows, loop, degree)
