"""Changing and rebuilding a graph on ``cuda``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.backends import plan_arrays
from gpu.backends.cuda.device import NULL
from gpu.backends.cuda.kernels.loader import BIN_LANES, BLOCK, BUCKETS, RANGE_ITEMS, WARP
from gpu.backends.cuda.keys import first_row, id_type, narrow, packed_keys
from gpu.backends.cuda.launcher import Launcher, blocks_for
from gpu.operations.csr import Csr, Rows, SlackCsr
from gpu.operations.device import Array
from gpu.operations.graph import GraphOperations
from gpu.operations.update import COUNTERS, SCAN_TILE, BatchPlan, Counts, EdgeChanges

_BALANCED_BLOCKS = 4224
"""Blocks that balance rows by work, at most: 32 for each of 132 multiprocessors, a few waves."""

_FEW_BALANCED_BLOCKS = 528
"""The same for small batches, which cannot fill the device: fewer blocks start sooner."""

_SMALL = 4096
"""Up to this many keys are sorted in one launch, and packed on the host if they come from there."""

_NO_CHANGES = EdgeChanges(NULL, NULL, NULL, NULL, NULL, NULL)
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
        self, columns: list[tuple[int, Array, Array]], vertices: tuple[int, int], positions: Array
    ) -> Array:
        total, permuted = sum(len(sources) for _, sources, _ in columns), np.int64(len(positions))
        on_host = all(isinstance(ids, np.ndarray) for _, *both in columns for ids in both)
        if on_host and total <= _SMALL:
            packed = [packed_keys(*column, vertices[column[0]]) for column in columns]
            keys = self._device.to_device(np.concatenate(packed))
            if total and len(positions):
                arguments = (keys, np.int32(total), positions, permuted)
                self._launch("resolve_update", "permute_keys", blocks_for(total), *arguments)
            return self.sort(keys)
        keys = self._device.allocate("keys of a batch", total, np.int64)
        begin = 0
        for operation, *both in columns:
            end = begin + len(both[0])
            if end > begin:
                sources, targets = self.columns(*both)
                self._launch(
                    "resolve_update",
                    f"pack_keys<{id_type(sources)}>",
                    blocks_for(end - begin, most=4 * _BALANCED_BLOCKS),
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
        return self.sort(keys)

    def sort(self, keys: Array) -> Array:
        total = len(keys)
        if total > _SMALL:
            keys.sort()
            return keys
        ascending = self._device.allocate("keys of a batch", total, np.int64)
        if total:
            blocks, count = blocks_for(WARP * total), np.int32(total)
            self._launch("resolve_update", "sort_small", blocks, keys, count, ascending)
        return ascending

    def resolve_update(
        self, csr: SlackCsr, loop: Array, fixed_loops: bool, keys: Array, plan: BatchPlan
    ) -> None:
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
            _balanced_blocks(work) if len(keys) > _SMALL else _FEW_BALANCED_BLOCKS,
            plan.counters,
            plan.row_edge,
            plan.row_vertex,
            plan.row_work,
            plan.edge_neighbour,
            *rows,
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
            *edges,
            plan.row_edge,
            plan.scans[2],
            *plan_arrays.row_changes(plan),
            *plan_arrays.removed(plan),
            *plan_arrays.added(plan),
            plan.opposite,
            plan.counters,
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
        outgoing = "false" if changes is None else "true"
        removed = (*plan_arrays.row_changes(plan), *plan_arrays.removed(plan))
        sources, old_degree, *changed_edges = changes or _NO_CHANGES
        if counts.needed:
            self._launch(
                "apply_update",
                "move_rows",
                _balanced_blocks(csr.end // 4 + counts.rows),
                plan.counters,
                plan.row_vertex,
                plan.new_start,
                plan.move_work,
                rows.row_starts,
                end,
                rows.column_indices,
            )
        self._launch(
            "apply_update",
            f"place_changes<{outgoing}>",
            blocks_for(counts.removed + counts.added),
            *removed,
            *plan_arrays.added(plan),
            plan.new_start,
            *rows,
            end,
            np.int64(counts.removed),
            np.int64(counts.added),
            loop,
            *changed_edges,
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
        )

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
        )
        blocks, indices = blocks_for(counts.emptied), rows.column_indices
        self._launch("apply_update", "fill_holes", blocks, plan.counters, hole, filler, indices)

    def row_ranges(
        self, rows: Array, vertices: int, limit: int, positions: Array
    ) -> list[tuple[int, int, int]]:
        if len(rows) <= limit:
            return [(0, vertices, len(rows))]
        buckets = self._device.allocate("scratch", BUCKETS, np.int64)
        buckets.fill(0)
        self._launch(
            "rebuild",
            f"count_buckets<{id_type(rows)}>",
            blocks_for(len(rows), most=_BALANCED_BLOCKS),
            rows,
            np.int64(len(rows)),
            positions,
            np.int64(len(positions)),
            buckets,
        )
        ranges, first, held = [], 0, 0
        for bucket, ids in enumerate(self._device.to_host(buckets).tolist()):
            if held and held + ids > limit:
                begin = first_row(bucket)
                ranges.append((first, begin, held))
                first, held = begin, 0
            held += ids
        return [*ranges, (first, vertices, held)]

    def keys_of_range(
        self, rows: Array, neighbours: Array, chosen: tuple[int, int, int], positions: Array
    ) -> Array:
        low, high, ids = chosen
        keys = self._device.allocate("keys of a load", ids, np.int64)
        _, scans = self._zeroed(1, len(rows))
        self._launch(
            "rebuild",
            f"keys_of_range<{id_type(rows)}>",
            blocks_for(len(rows), RANGE_ITEMS * BLOCK),
            rows,
            neighbours,
            np.int64(len(rows)),
            np.int64(low),
            np.int64(high),
            positions,
            np.int64(len(positions)),
            scans[0],
            keys,
        )
        return self.sort(keys)

    def deduplicate(self, keys: Array, loop: Array) -> tuple[int, int]:
        counters, scans = self._zeroed(1, len(keys))
        tiles, count = blocks_for(len(keys), SCAN_TILE), np.int64(len(keys))
        self._launch("rebuild", "deduplicate", tiles, keys, count, scans[0], loop, counters)
        found = self._device.to_host(counters).tolist()
        return found[COUNTERS.index("EDGES")], found[COUNTERS.index("CHANGED")]

    def count_rows(
        self, keys: Array, edges: int, low: int, first: Array, length: Array
    ) -> tuple[int, int]:
        if edges == 0:
            return 0, 0
        counters, _ = self._zeroed(0, 0)
        blocks = blocks_for(edges, most=4 * _BALANCED_BLOCKS)
        common = (keys, np.int64(edges), np.int64(low), first)
        self._launch("rebuild", "find_first_keys", blocks, *common)
        self._launch("rebuild", "count_rows", blocks, *common, length, counters)
        found = self._device.to_host(counters).tolist()
        return found[COUNTERS.index("GROWTH")], found[COUNTERS.index("LONGEST")]

    def fill_rows(
        self, keys: Array, edges: int, low: int, first: Array, start: Array, column_indices: Array
    ) -> None:
        if edges:
            blocks = blocks_for(edges, most=4 * _BALANCED_BLOCKS)
            common = (keys, np.int64(edges), np.int64(low), first)
            self._launch("rebuild", "fill_rows", blocks, *common, start, column_indices)

    def pack_rows(self, length: Array, begin: int, start: Array, capacity: Array) -> None:
        vertices = len(length)
        _, scans = self._zeroed(1, vertices)
        if vertices:
            tiles, first_slot = blocks_for(vertices, SCAN_TILE), np.int64(begin)
            common = (length, np.int64(vertices), first_slot, scans[0])
            self._launch("rebuild", "pack_rows", tiles, *common, start, capacity)

    def copy_rows(self, csr: Csr, new_start: Array, new_end: int, new_indices: Array) -> None:
        if new_end:
            vertices = len(csr.row_lengths)
            self._launch(
                "rebuild",
                "copy_rows",
                _balanced_blocks(new_end // 4 + vertices),
                csr.row_starts,
                csr.column_indices,
                np.int64(vertices),
                new_start,
                np.int64(new_end),
                new_indices,
            )

    def entries(self, csr: Csr) -> tuple[Array, Array]:
        vertices, xp = len(csr.row_lengths), self._launch.xp
        before = xp.zeros(vertices + 1, np.int64)
        xp.cumsum(csr.row_lengths, out=before[1:])
        total = int(before[-1])
        rows = self._device.allocate("list of edges", total, np.int32)
        neighbours = self._device.allocate("list of edges", total, np.int32)
        if total:
            self._launch(
                "rebuild",
                "entries",
                _balanced_blocks(total + vertices),
                csr.row_starts,
                before,
                csr.column_indices,
                np.int64(vertices),
                np.int64(total),
                rows,
                neighbours,
            )
        return rows, neighbours

    def partition(self, length: Array, order: Array, degree_bins: Array) -> NDArray[np.int64]:
        vertices = len(length)
        counters, scans = self._zeroed(len(BIN_LANES) // 2, vertices)
        if vertices:
            tiles, count = blocks_for(vertices, SCAN_TILE), np.int64(vertices)
            common = (length, count, counters)
            self._launch("rebuild", "count_bins", _balanced_blocks(vertices), *common)
            self._launch("rebuild", "partition", tiles, *common, *scans, order, degree_bins)
        sizes = self._device.to_host(counters)[: len(BIN_LANES) - 1]
        return np.concatenate([[0], np.cumsum(sizes), [vertices]]).astype(np.int64)

    def needs_partition(self, rows: Rows, misbinned: int, slots: int) -> bool:  # noqa: ARG002
        return 64 * misbinned > rows.count

    def _zeroed(self, scans: int, items: int) -> tuple[Array, Array]:
        """Counters, and memory for exclusive sums over this many items."""
        words = 1 + blocks_for(items, SCAN_TILE)
        block = self._device.allocate("scratch", len(COUNTERS) + scans * words, np.int64)
        block.fill(0)
        memory = block[len(COUNTERS) :].view(np.uint64).reshape(scans, words)
        return block[: len(COUNTERS)], memory


def _balanced_blocks(units: int) -> int:
    # up to the limit, each thread has 2 units of work
    return blocks_for(units, 2 * BLOCK, _BALANCED_BLOCKS)
