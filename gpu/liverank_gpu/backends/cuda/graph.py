"""Changing a graph by batches on ``cuda``."""

from __future__ import annotations

import numpy as np

from liverank_gpu.backends import plan_arrays
from liverank_gpu.backends.cuda.device import NULL
from liverank_gpu.backends.cuda.kernels.loader import WARP
from liverank_gpu.backends.cuda.keys import id_type, narrow, packed_keys
from liverank_gpu.backends.cuda.launcher import (
    BALANCED_BLOCKS,
    Launcher,
    balanced_blocks,
    blocks_for,
    pointers,
)
from liverank_gpu.backends.cuda.strengths import sum_weights
from liverank_gpu.operations.csr import Csr, SlackCsr
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import GraphOperations, SortedKeys
from liverank_gpu.operations.update import SCAN_TILE, BatchPlan, Counts, EdgeChanges

_FEW_BALANCED_BLOCKS = 528
"""The same for small batches, which cannot fill the device: fewer blocks start sooner."""

_SMALL = 4096
"""Up to this many keys are sorted in one launch, and packed on the host if they come from there."""

_NO_CHANGES = EdgeChanges(*[NULL] * 6)
"""For the in-lists, which report nothing."""


class CudaGraph(GraphOperations):
    """See GraphOperations."""

    def __init__(self, launch: Launcher) -> None:
        self._launch = launch
        self._device = launch.device

    def columns(self, sources: Array, targets: Array) -> tuple[Array, Array]:
        # ids fit 32 bits, so half the bytes are copied
        first, second = (
            self._device.to_device(narrow(ids)) if isinstance(ids, np.ndarray) else ids
            for ids in (sources, targets)
        )
        if first.dtype == second.dtype:
            return first, second
        return first.astype(np.int64), second.astype(np.int64)

    def sorted_keys(
        self,
        columns: list[tuple[int, Array, Array]],
        vertices: tuple[int, int],
        positions: Array,
        weights: Array | None = None,
    ) -> SortedKeys:
        total, permuted = sum(len(sources) for _, sources, _ in columns), np.int64(len(positions))
        on_host = all(
            isinstance(ids, np.ndarray) and ids.dtype == np.int64
            for _, *both in columns
            for ids in both
        )
        if on_host and total <= _SMALL:
            packed = [packed_keys(*column, vertices[column[0]]) for column in columns]
            keys = self._device.to_device(np.concatenate(packed))
            if total and len(positions):
                arguments = (keys, np.int32(total), positions, permuted)
                self._launch("resolve_update", "permute_keys", blocks_for(total), *arguments)
            return self.sort(keys, weights)
        keys = self._device.allocate("keys of a batch", total, np.int64)
        begin = 0
        for operation, *both in columns:
            end = begin + len(both[0])
            if end > begin:
                sources, targets = self.columns(*both)
                self._launch(
                    "resolve_update",
                    f"pack_keys<{id_type(sources)}>",
                    blocks_for(end - begin, most=4 * BALANCED_BLOCKS),
                    sources,
                    targets,
                    np.int64(end - begin),
                    np.int64(vertices[operation]),
                    np.int32(operation),
                    positions,
                    permuted,
                    keys[begin:end],
                )
            begin = end
        return self.sort(keys, weights)

    def sort(self, keys: Array, weights: Array | None = None) -> SortedKeys:
        total, weighted = len(keys), weights is not None
        if total > _SMALL:
            if weights is None:
                keys.sort()
                return SortedKeys(keys)
            order = self._launch.xp.argsort(keys, kind="stable")
            return SortedKeys(keys[order], weights[order], order)
        ascending = self._device.allocate("keys of a batch", total, np.int64)
        order = self._device.allocate("keys of a batch", total, np.int32) if weighted else None
        if total:
            blocks, count = blocks_for(WARP * total), np.int32(total)
            arguments = (keys, count, ascending, *pointers(order))
            self._launch("resolve_update", "sort_small", blocks, *arguments, weighted=weighted)
        return SortedKeys(ascending, None if weights is None else weights[order], order)

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
        keys = batch.keys
        if len(keys) == 0:
            return
        tiles, rows = blocks_for(len(keys), SCAN_TILE), csr.csr
        vertices, edges = np.int64(len(rows.row_lengths)), plan_arrays.edges(plan)
        self._launch(
            "resolve_update",
            "find_rows",
            tiles,
            keys,
            np.int64(len(keys)),
            rows.row_lengths,
            vertices,
            plan.scans[0],
            plan.scans[1],
            *edges,
            *plan_arrays.rows(plan),
            plan.opposite,
            plan.counters,
        )
        # the exact amount of work is known on the device alone
        work = csr.end // 4 + 2 * len(keys)
        self._launch(
            "resolve_update",
            "locate",
            balanced_blocks(work) if len(keys) > _SMALL else _FEW_BALANCED_BLOCKS,
            plan.counters,
            plan.row_edge,
            plan.row_vertex,
            plan.row_work,
            plan.edge_neighbour,
            *rows[:3],
            plan.edge_slot,
        )
        self._launch(
            "resolve_update",
            "decide",
            tiles,
            keys,
            vertices,
            loop,
            np.int32(fixed_loops),
            np.int32(directed),
            *edges,
            plan.row_edge,
            plan.scans[2],
            *plan_arrays.row_changes(plan),
            *plan_arrays.removed(plan),
            *plan_arrays.added(plan),
            plan.opposite,
            plan.counters,
            *pointers(batch.weights),
            np.int32(adds),
            rows.row_starts,
            *pointers(rows.weights, *plan.weights[:3]),
            weighted=rows.weights is not None,
        )

    def plan_rows(self, csr: SlackCsr, operations: int, plan: BatchPlan) -> None:
        if operations == 0:
            return
        self._launch(
            "apply_update",
            "plan_rows",
            blocks_for(operations, SCAN_TILE),
            *plan_arrays.row_changes(plan),
            np.int64(len(csr.csr.row_lengths)),
            csr.csr.row_lengths,
            csr.capacities,
            csr.degree_bins,
            plan.scans[3],
            plan.scans[4],
            plan.new_length,
            plan.new_start,
            plan.move_work,
            plan.changed_row,
            plan.counters,
            weighted=csr.csr.weights is not None,
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
        rows, end = csr.csr, np.int64(csr.end)
        outgoing, weighted = str(changes is not None).lower(), rows.weights is not None
        removed = (*plan_arrays.row_changes(plan), *plan_arrays.removed(plan))
        sources, old_degree, *changed_edges = (changes or _NO_CHANGES)[:6]
        *_, removed_weights, added_weights = changes or _NO_CHANGES
        if counts.needed:
            self._launch(
                "apply_update",
                "move_rows",
                balanced_blocks(csr.end // 4 + counts.rows),
                plan.counters,
                plan.row_vertex,
                plan.new_start,
                plan.move_work,
                rows.row_starts,
                end,
                rows.column_indices,
                *pointers(rows.weights),
                weighted=weighted,
            )
        self._launch(
            "apply_update",
            f"place_changes<{outgoing}>",
            blocks_for(counts.removed + counts.added),
            *removed,
            *plan_arrays.added(plan),
            plan.new_start,
            *pointers(*rows),
            end,
            np.int64(counts.removed),
            np.int64(counts.added),
            loop,
            *changed_edges,
            *pointers(*plan.weights[:2], removed_weights, added_weights),
            weighted=weighted,
        )
        if counts.emptied:
            self._fill_holes(rows, plan, counts, removed)
        self._launch(
            "apply_update",
            f"finish_rows<{outgoing}>",
            blocks_for(counts.changed),
            np.int64(counts.changed),
            plan.changed_row,
            plan.row_vertex,
            plan.row_loop,
            plan.new_length,
            plan.new_start,
            end,
            rows.row_starts,
            rows.row_lengths,
            csr.capacities,
            loop,
            degree,
            sources,
            old_degree,
            weighted=weighted,
        )
        if weighted and changes is not None:
            sum_weights(self._launch, rows, sources, counts.changed, loop, degree)

    def _fill_holes(
        self, rows: Csr, plan: BatchPlan, counts: Counts, removed: tuple[Array, ...]
    ) -> None:
        # in arrays that are no longer needed: work and the slots of edges
        hole, filler = plan.row_work, plan.edge_slot
        self._launch(
            "apply_update",
            "find_holes",
            blocks_for(counts.removed, SCAN_TILE),
            *removed,
            plan.new_length,
            rows.row_starts,
            np.int64(counts.removed),
            rows.column_indices,
            plan.scans[5],
            hole,
            filler,
            plan.counters,
            *pointers(rows.weights, plan.weights.filler),
            weighted=rows.weights is not None,
        )
        self._launch(
            "apply_update",
            "fill_holes",
            blocks_for(counts.emptied),
            plan.counters,
            hole,
            filler,
            rows.column_indices,
            *pointers(plan.weights.filler, rows.weights),
            weighted=rows.weights is not None,
        )
