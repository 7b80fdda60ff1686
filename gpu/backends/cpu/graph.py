"""Changing a graph by batches on ``cpu``."""

from __future__ import annotations

import numpy as np

from gpu.backends import plan_arrays
from gpu.backends.cpu import apply_kernels, resolve_kernels
from gpu.backends.cpu.apply_kernels import ITEMS
from gpu.backends.cpu.resolve_kernels import NO_KEY
from gpu.backends.cpu.rows import plain
from gpu.backends.cpu.strengths import sum_weights
from gpu.jit.compile import kernel
from gpu.operations.csr import SlackCsr
from gpu.operations.device import Array, DeviceOperations
from gpu.operations.graph import GraphOperations, SortedKeys
from gpu.operations.update import BatchPlan, Counts, EdgeChanges

_NO_CHANGES = EdgeChanges(*(np.zeros(0, np.int32) for _ in range(6)))
"""For the in-lists, which report nothing."""


@kernel(ITEMS)
def _pack_keys(  # type: ignore[no-untyped-def]
    first, last, sources, targets, operation, vertices, positions, keys
):
    permuted = len(positions)
    for edge in range(first, last):
        source = np.int64(sources[edge])
        target = np.int64(targets[edge])
        if 0 <= source < vertices and 0 <= target < vertices:
            if source < permuted:
                source = np.int64(positions[source])
            if target < permuted:
                target = np.int64(positions[target])
            keys[edge] = source << 32 | target << 1 | operation
        else:
            keys[edge] = NO_KEY


class CpuGraph(GraphOperations):
    """See GraphOperations."""

    def __init__(self, device: DeviceOperations) -> None:
        self._device = device

    def columns(self, sources: Array, targets: Array) -> tuple[Array, Array]:
        return sources, targets

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
            end = begin + len(sources)
            known, packed = vertices[operation], keys[begin:end]
            _pack_keys(end - begin, sources, targets, operation, known, positions, packed)
            begin = end
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
        edges, rows = plan_arrays.edges(plan), plan_arrays.rows(plan)
        count, work = resolve_kernels.find_rows(
            batch.keys, csr.csr.row_lengths, edges, rows, plan.opposite, plan.counters
        )
        resolve_kernels.locate(
            work, count, plain(csr.csr), rows, plan.edge_neighbour, plan.edge_slot
        )
        resolve_kernels.decide(
            batch.keys,
            loop,
            fixed_loops,
            directed,
            edges,
            plan.row_edge,
            plan_arrays.row_changes(plan),
            plan_arrays.removed(plan),
            plan_arrays.added(plan),
            plan.opposite,
            plan.counters,
            batch.weights,
            adds,
            csr.csr.row_starts,
            csr.csr.weights,
            plan.weights.removed,
            plan.weights.added,
            plan.weights.opposite,
        )

    def plan_rows(self, csr: SlackCsr, operations: int, plan: BatchPlan) -> None:  # noqa: ARG002
        apply_kernels.plan_rows(
            plan_arrays.row_changes(plan),
            csr.csr.row_lengths,
            csr.capacities,
            plan.new_length,
            plan.new_start,
            plan.move_work,
            plan.changed_row,
            plan.counters,
        )

    def apply_update(
        self,
        csr: SlackCsr,
        plan: BatchPlan,
        counts: Counts,
        loop: Array,
        degree: Array,
        changes: EdgeChanges | None,
    ) -> None:
        rows, end, outgoing = plain(csr.csr), csr.end, changes is not None
        row_change, removed = plan_arrays.row_changes(plan), plan_arrays.removed(plan)
        weights, plan_weights = csr.csr.weights, plan.weights
        sources, old_degree, *changed_edges = (changes or _NO_CHANGES)[:6]
        changed_weights = None
        if changes is not None and changes.added_weights is not None:
            changed_weights = (changes.removed_weights, changes.added_weights)
        if counts.needed:
            apply_kernels.move_rows(
                plan.move_work[counts.rows],
                counts.rows,
                rows,
                plan.row_vertex,
                plan.new_start,
                plan.move_work,
                end,
                weights,
            )
        apply_kernels.place_changes(
            counts.removed + counts.added,
            outgoing,
            counts.removed,
            rows,
            row_change,
            removed,
            plan_arrays.added(plan),
            plan.new_start,
            end,
            loop,
            tuple(changed_edges),
            weights,
            plan_weights.removed,
            plan_weights.added,
            changed_weights,
        )
        if counts.emptied:
            # in arrays that are no longer needed: work and the slots of edges
            hole, filler = plan.row_work, plan.edge_slot
            holes = apply_kernels.find_holes(
                counts.removed,
                rows,
                row_change,
                removed,
                plan.new_length,
                hole,
                filler,
                plan.counters,
                weights,
                plan_weights.filler,
            )
            apply_kernels.fill_holes(
                holes, hole, filler, csr.csr.column_indices, plan_weights.filler, weights
            )
        apply_kernels.finish_rows(
            counts.changed,
            outgoing,
            plan.changed_row,
            plan.row_vertex,
            plan.row_loop,
            plan.new_length,
            plan.new_start,
            end,
            rows,
            csr.capacities,
            loop,
            degree,
            sources,
            old_degree,
            weights,
        )
        if outgoing and weights is not None:
            sum_weights(csr.csr, sources, loop, degree)
