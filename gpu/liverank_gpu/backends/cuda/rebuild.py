"""Loading, packing, listing and grouping all rows of a graph on ``cuda``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cuda.kernels.loader import (
    BIN_LANES,
    BLOCK,
    BUCKETS,
    LONG_STRENGTH,
    RANGE_ITEMS,
    WARP,
)
from liverank_gpu.backends.cuda.keys import first_row, id_type
from liverank_gpu.backends.cuda.launcher import (
    BALANCED_BLOCKS,
    Launcher,
    balanced_blocks,
    blocks_for,
    pointers,
)
from liverank_gpu.backends.cuda.strengths import scale_rows, sum_weights
from liverank_gpu.operations.csr import Csr, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import GraphOperations, SortedKeys
from liverank_gpu.operations.rebuild import Deduplicated, Entries, RebuildOperations, Slots
from liverank_gpu.operations.update import COUNTERS, LAST_PLACE, SCAN_TILE


class CudaRebuild(RebuildOperations):
    """See RebuildOperations."""

    def __init__(self, launch: Launcher, graph: GraphOperations) -> None:
        self._launch = launch
        self._device = launch.device
        self._graph = graph

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
            blocks_for(len(rows), most=BALANCED_BLOCKS),
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
        self,
        rows: Array,
        neighbours: Array,
        weights: Array | None,
        chosen: tuple[int, int, int],
        positions: Array,
    ) -> SortedKeys:
        low, high, ids = chosen
        keys = self._device.allocate("keys of a load", ids, np.int64)
        places = None
        if weights is not None:
            places = self._device.allocate("keys of a load", ids, np.int64)
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
            *pointers(places),
            weighted=weights is not None,
        )
        if weights is None or places is None:
            return self._graph.sort(keys)
        found = self._graph.sort(keys, weights[places])
        return found._replace(order=places[found.order])

    def deduplicate(
        self, batch: SortedKeys, loop: Array, adds: bool = False, kept: int = 0
    ) -> Deduplicated:
        keys, weights, order = batch
        counters, scans = self._zeroed(1, len(keys))
        tiles, count = blocks_for(len(keys), SCAN_TILE), np.int64(len(keys))
        if weights is None:
            self._launch("rebuild", "deduplicate", tiles, keys, count, scans[0], loop, counters)
        else:
            self._launch(
                "weights",
                "deduplicate_weighted",
                tiles,
                keys,
                weights,
                order,
                count,
                scans[0],
                np.int32(adds),
                np.int64(kept),
                loop,
                counters,
                weighted=True,
            )
        found = dict(zip(COUNTERS, self._device.to_host(counters).tolist(), strict=True))
        exceeded = -1
        if order is not None and found["EXCEEDED"]:
            exceeded = int(order[LAST_PLACE - found["EXCEEDED"] - 1])
        return Deduplicated(found["EDGES"], found["CHANGED"], found["REWEIGHTED"], exceeded)

    def merge(self, first: SortedKeys, second: SortedKeys) -> SortedKeys:
        # sorting takes as long as a merge would
        xp = self._launch.xp
        keys = xp.concatenate([first.keys, second.keys])
        if first.weights is None or first.order is None:
            return self._graph.sort(keys)
        weights = xp.concatenate([first.weights, second.weights])
        order = xp.concatenate([first.order, second.order])
        merged = self._graph.sort(keys, weights)
        return merged._replace(order=order[merged.order])

    def count_rows(
        self, keys: Array, edges: int, low: int, first: Array, length: Array
    ) -> tuple[int, int]:
        if edges == 0:
            return 0, 0
        counters, _ = self._zeroed(0, 0)
        blocks = blocks_for(edges, most=4 * BALANCED_BLOCKS)
        common = (keys, np.int64(edges), np.int64(low), first)
        self._launch("rebuild", "find_first_keys", blocks, *common)
        self._launch("rebuild", "count_rows", blocks, *common, length, counters)
        found = self._device.to_host(counters).tolist()
        return found[COUNTERS.index("GROWTH")], found[COUNTERS.index("LONGEST")]

    def fill_rows(
        self, batch: SortedKeys, edges: int, low: int, first: Array, start: Array, slots: Slots
    ) -> None:
        if edges:
            self._launch(
                "rebuild",
                "fill_rows",
                blocks_for(edges, most=4 * BALANCED_BLOCKS),
                batch.keys,
                np.int64(edges),
                np.int64(low),
                first,
                start,
                slots.column_indices,
                *pointers(batch.weights, slots.weights),
                weighted=slots.weights is not None,
            )

    def pack_rows(self, length: Array, begin: int, start: Array, capacity: Array) -> None:
        vertices = len(length)
        _, scans = self._zeroed(1, vertices)
        if vertices:
            tiles, first_slot = blocks_for(vertices, SCAN_TILE), np.int64(begin)
            common = (length, np.int64(vertices), first_slot, scans[0])
            self._launch("rebuild", "pack_rows", tiles, *common, start, capacity)

    def copy_rows(self, csr: Csr, new_start: Array, new_end: int, slots: Slots) -> None:
        if new_end:
            vertices = len(csr.row_lengths)
            self._launch(
                "rebuild",
                "copy_rows",
                balanced_blocks(new_end // 4 + vertices),
                csr.row_starts,
                csr.column_indices,
                np.int64(vertices),
                new_start,
                np.int64(new_end),
                slots.column_indices,
                *pointers(csr.weights, slots.weights),
                weighted=csr.weights is not None,
            )

    def entries(self, csr: Csr) -> Entries:
        vertices, xp = len(csr.row_lengths), self._launch.xp
        before = xp.zeros(vertices + 1, np.int64)
        xp.cumsum(csr.row_lengths, out=before[1:])
        total = int(before[-1])
        rows = self._device.allocate("list of edges", total, np.int32)
        neighbours = self._device.allocate("list of edges", total, np.int32)
        weights = None
        if csr.weights is not None:
            weights = self._device.allocate("list of edges", total, np.float32)
        if total:
            self._launch(
                "rebuild",
                "entries",
                balanced_blocks(total + vertices),
                csr.row_starts,
                before,
                csr.column_indices,
                np.int64(vertices),
                np.int64(total),
                rows,
                neighbours,
                *pointers(csr.weights, weights),
                weighted=weights is not None,
            )
        return Entries(rows, neighbours, weights)

    def sum_weights(self, csr: Csr, vertices: Array | None, loop: Array, strength: Array) -> None:
        count = len(csr.row_lengths) if vertices is None else len(vertices)
        sum_weights(self._launch, csr, vertices, count, loop, strength)

    def scale_rows(
        self, outgoing: Csr, incoming: Csr, factors: Array, loop: Array, strength: Array
    ) -> None:
        scale_rows(self._launch, outgoing, incoming, factors, loop, strength)

    def strength_depth(self, longest_row: int) -> int:
        # of one thread, in a warp or a block; shuffles, warps, the loop, and the step above it
        own = max(LONG_STRENGTH // WARP, -(-longest_row // BLOCK))
        return own + 5 + BLOCK // WARP + 3

    def partition(self, length: Array, order: Array, degree_bins: Array) -> NDArray[np.int64]:
        vertices = len(length)
        counters, scans = self._zeroed(len(BIN_LANES) // 2, vertices)
        if vertices:
            tiles, count = blocks_for(vertices, SCAN_TILE), np.int64(vertices)
            common = (length, count, counters)
            self._launch("rebuild", "count_bins", balanced_blocks(vertices), *common)
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
