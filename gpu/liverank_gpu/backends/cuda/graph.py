"""The lists of a graph on ``cuda``: changed by batches, loaded, and compared."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cuda.kernels.loader import (
    BIN_LANES,
    BLOCK,
    BUCKET_BITS,
    BUCKETS,
    LONG_STRENGTH,
    RANGE_ITEMS,
    WARP,
)
from liverank_gpu.backends.cuda.launcher import (
    BALANCED_BLOCKS,
    Launcher,
    balanced_blocks,
    blocks_for,
)
from liverank_gpu.operations.csr import Csr, GraphView, Rows, SlackCsr
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import (
    COUNTERS,
    LAST_PLACE,
    SCAN_TILE,
    BatchPlan,
    Counts,
    Deduplicated,
    EdgeChanges,
    Entries,
    Fingerprints,
    GraphOperations,
    ListOperations,
    RebuildOperations,
    Slots,
    SortedKeys,
)
from liverank_gpu.types import VERTEX_LIMIT

# ---- arrays of a BatchPlan that kernels take together, in their order ----

_edges_of = attrgetter("edge_operation", "edge_neighbour", "edge_row", "edge_slot")
_rows_of = attrgetter("row_edge", "row_vertex", "row_loop", "row_work")
_row_changes_of = attrgetter("row_vertex", "row_loop", "row_removed", "row_added")
_removed_of = attrgetter("removed_row", "removed_neighbour", "removed_slot")
_added_of = attrgetter("added_row", "added_neighbour")

# ---- ids and keys on the host, as the kernels of ``cuda`` take them ----

_NO_KEY = np.iinfo(np.int64).max


def first_row(bucket: int) -> int:
    """The first row in a bucket of rebuild.cu."""
    shift = max(0, (bucket >> BUCKET_BITS) - 1)
    return (bucket - (shift << BUCKET_BITS)) << shift


def narrow(ids: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
    """Ids that no graph has, negative or above 32 bits, become 2³¹-1, which none has either."""
    if ids.dtype == np.int32:
        return ids.astype(np.int32, copy=False)
    return np.minimum(ids.view(np.uint64), VERTEX_LIMIT).astype(np.int32)


def id_type(ids: Array) -> str:
    """The C++ type of a column, as in the names of the kernels."""
    return "int" if ids.dtype.itemsize == 4 else "int64"


def packed_keys(
    operation: int, sources: NDArray[np.int64], targets: NDArray[np.int64], vertices: int
) -> NDArray[np.int64]:
    keys = sources << 32
    keys |= targets << 1
    keys |= operation
    # one comparison finds ids that are negative or too large
    unknown = np.maximum(sources.view(np.uint64), targets.view(np.uint64)) >= vertices
    keys[unknown] = _NO_KEY
    return keys


# ---- strengths of weighted graphs on ``cuda``, and scaling of rows ----


def sum_weights(
    launch: Launcher, csr: Csr, vertices: Array | None, count: int, loop: Array, strength: Array
) -> None:
    """See RebuildOperations.sum_weights; of the first `count` vertices."""
    if count:
        launch(
            "weights",
            "sum_weights",
            blocks_for(count * WARP, most=BALANCED_BLOCKS),
            vertices,
            count,
            csr.row_starts,
            csr.row_lengths,
            csr.weights,
            loop,
            strength,
            weighted=True,
        )


def scale_rows(
    launch: Launcher, outgoing: Csr, incoming: Csr, factors: Array, loop: Array, strength: Array
) -> None:
    """See RebuildOperations.scale_rows."""
    launch(
        "weights",
        "scale_rows",
        blocks_for(len(loop) * WARP, most=BALANCED_BLOCKS),
        len(loop),
        outgoing.row_starts,
        outgoing.row_lengths,
        outgoing.weights,
        *incoming,
        factors,
        loop,
        strength,
        weighted=True,
    )


# ---- changing a graph by batches on ``cuda`` ----

_FEW_BALANCED_BLOCKS = 528
"""The same for small batches, which cannot fill the device: fewer blocks start sooner."""

_SMALL = 4096
"""Up to this many keys are sorted in one launch, and packed on the host if they come from there."""

_NO_CHANGES = EdgeChanges(*[None] * 6)
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
        total, permuted = sum(len(sources) for _, sources, _ in columns), len(positions)
        on_host = all(
            isinstance(ids, np.ndarray) and ids.dtype == np.int64
            for _, *both in columns
            for ids in both
        )
        if on_host and total <= _SMALL:
            packed = [packed_keys(*column, vertices[column[0]]) for column in columns]
            keys = self._device.to_device(np.concatenate(packed))
            if total and len(positions):
                arguments = (keys, total, positions, permuted)
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
                    end - begin,
                    vertices[operation],
                    operation,
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
            blocks, count = blocks_for(WARP * total), total
            arguments = (keys, count, ascending, order)
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
        vertices, edges = len(rows.row_lengths), _edges_of(plan)
        self._launch(
            "resolve_update",
            "find_rows",
            tiles,
            keys,
            len(keys),
            rows.row_lengths,
            vertices,
            plan.scans[0],
            plan.scans[1],
            *edges,
            *_rows_of(plan),
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
            fixed_loops,
            directed,
            *edges,
            plan.row_edge,
            plan.scans[2],
            *_row_changes_of(plan),
            *_removed_of(plan),
            *_added_of(plan),
            plan.opposite,
            plan.counters,
            batch.weights,
            adds,
            rows.row_starts,
            rows.weights,
            *plan.weights[:3],
            weighted=rows.weights is not None,
        )

    def plan_rows(self, csr: SlackCsr, operations: int, plan: BatchPlan) -> None:
        if operations == 0:
            return
        self._launch(
            "apply_update",
            "plan_rows",
            blocks_for(operations, SCAN_TILE),
            *_row_changes_of(plan),
            len(csr.csr.row_lengths),
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
        rows, end = csr.csr, csr.end
        outgoing, weighted = str(changes is not None).lower(), rows.weights is not None
        removed = (*_row_changes_of(plan), *_removed_of(plan))
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
                rows.weights,
                weighted=weighted,
            )
        self._launch(
            "apply_update",
            f"place_changes<{outgoing}>",
            blocks_for(counts.removed + counts.added),
            *removed,
            *_added_of(plan),
            plan.new_start,
            *rows,
            end,
            counts.removed,
            counts.added,
            loop,
            *changed_edges,
            *plan.weights[:2],
            removed_weights,
            added_weights,
            weighted=weighted,
        )
        if counts.emptied:
            self._fill_holes(rows, plan, counts, removed)
        self._launch(
            "apply_update",
            f"finish_rows<{outgoing}>",
            blocks_for(counts.changed),
            counts.changed,
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
            counts.removed,
            rows.column_indices,
            plan.scans[5],
            hole,
            filler,
            plan.counters,
            rows.weights,
            plan.weights.filler,
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
            plan.weights.filler,
            rows.weights,
            weighted=rows.weights is not None,
        )


# ---- loading, packing, listing and grouping all rows of a graph on ``cuda`` ----


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
            len(rows),
            positions,
            len(positions),
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
            len(rows),
            low,
            high,
            positions,
            len(positions),
            scans[0],
            keys,
            places,
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
        tiles, count = blocks_for(len(keys), SCAN_TILE), len(keys)
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
                adds,
                kept,
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
        common = (keys, edges, low, first)
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
                edges,
                low,
                first,
                start,
                slots.column_indices,
                batch.weights,
                slots.weights,
                weighted=slots.weights is not None,
            )

    def pack_rows(self, length: Array, begin: int, start: Array, capacity: Array) -> None:
        vertices = len(length)
        _, scans = self._zeroed(1, vertices)
        if vertices:
            tiles, first_slot = blocks_for(vertices, SCAN_TILE), begin
            common = (length, vertices, first_slot, scans[0])
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
                vertices,
                new_start,
                new_end,
                slots.column_indices,
                csr.weights,
                slots.weights,
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
                vertices,
                total,
                rows,
                neighbours,
                csr.weights,
                weights,
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
            tiles, count = blocks_for(vertices, SCAN_TILE), vertices
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


# ---- vertices with the same in-list, on ``cuda`` ----

_WAVES = 16
"""Blocks of a launch, at most, in units of those that are resident at once: lists differ in
length.
"""

_COPIED = 2048
"""Vertices that are copied before it is known how many there are: most often all of them."""


class CudaLists(ListOperations):
    """See ListOperations."""

    def __init__(self, launch: Launcher) -> None:
        self._launch = launch
        self._device = launch.device

    def fingerprints(self, graph: GraphView, positions: Array, longest: int) -> Fingerprints:
        found = self._launch.xp.empty((len(Fingerprints._fields), len(positions)), np.int64)
        self._launch(
            "lists",
            "fingerprints",
            self._launch.resident_blocks(len(positions) * WARP, _WAVES),
            positions.astype(np.int64, copy=False),
            len(positions),
            longest,
            (graph.incoming, graph.loop, graph.degree),
            graph.outgoing.row_lengths,
            found,
            weighted=graph.weighted,
        )
        return Fingerprints(*self._device.to_host(found))

    def with_same_list(
        self, graph: GraphView, lists: Fingerprints
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        ends = np.cumsum(lists.out_edges)
        asked = np.stack([ends, lists.positions, lists.sources])
        # zeroed, since the copy has more than is written
        found = self._launch.xp.zeros(1 + int(ends[-1]), np.int64)
        self._launch(
            "lists",
            "find_same",
            self._launch.resident_blocks(int(ends[-1]) * WARP, _WAVES),
            self._device.to_device(asked),
            len(ends),
            graph.outgoing,
            (graph.incoming, graph.loop, graph.degree),
            found.view(np.uint64),
            weighted=graph.weighted,
        )
        copied = self._device.to_host(found[: 1 + _COPIED])
        end = 1 + int(copied[0])
        pairs = copied[1:end] if end <= len(copied) else self._device.to_host(found[1:end])
        return pairs >> 32, pairs & 0xFFFFFFFF
