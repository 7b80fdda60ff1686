"""The lists of a graph on ``cuda``: changed by batches, loaded, and compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cuda.device import CudaDevice, Mapped
from liverank_gpu.backends.cuda.kernels import loader as cu
from liverank_gpu.backends.cuda.launcher import (
    BALANCED_BLOCKS,
    Launcher,
    OnDevice,
    balanced_blocks,
    blocks_for,
)
from liverank_gpu.backends.cuda.residual import lists_of, perturbation_words, perturbed
from liverank_gpu.operations import graph as op
from liverank_gpu.operations.csr import Csr, GraphView, Rows, SlackCsr, runs
from liverank_gpu.operations.device import Array

# ---- ids as the kernels of ``cuda`` take them ----


def first_row(bucket: int) -> int:
    """The first row in a bucket of rebuild.cu."""
    shift = max(0, (bucket >> cu.BUCKET_BITS) - 1)
    return (bucket - (shift << cu.BUCKET_BITS)) << shift


def id_type(ids: Array) -> str:
    """The C++ type of a column, as in the names of the kernels."""
    return "int" if ids.dtype.itemsize == 4 else "int64"


# ---- changing a graph by batches on ``cuda`` ----

_SMALL = 1 << 14
"""Operations that are taken at once, at most: as many keys as one warp looks up in sorted runs at
once.
"""

_COMPARED = 4096
"""Up to this many keys are sorted by comparing each with all."""


def _direction(
    csr: SlackCsr, count: int, keys: Array, weights: Array | None, plan: op.BatchPlan
) -> tuple[Any, ...]:
    """Direction of batch.cu; `count` keys."""
    lists, capacities, bins, end = csr
    place = (plan.counters, plan.scans, *plan.blocks, len(plan.row_work), plan.scans.shape[1])
    return (*lists, capacities, bins, end, count, keys, weights, *place)


def _packed_direction(csr: SlackCsr, planned: tuple[Any, ...]) -> tuple[Any, ...]:
    """That of a planned batch, whose lists may be in other arrays since."""
    lists, capacities, bins, end = csr
    return (*lists, capacities, bins, end, *planned[7:])


@dataclass(slots=True)
class _Buffers:
    """What a small batch is planned in: the ids that are sent, with their weights behind them; and
    for UpdateBatch keys in the order of these, and what it changes in a residual.
    """

    sent: Mapped
    kept: tuple[Array, Array] | None = None

    def scratch(self, device: CudaDevice) -> tuple[Array, Array]:
        """Keys, and a perturbation."""
        if self.kept is None:
            keys = device.allocate("keys of a batch", 2 * _SMALL, np.int64)
            # an edge with another weight is both gone and new
            words = perturbation_words(_SMALL, 2 * _SMALL)
            self.kept = keys, device.allocate("keys of a batch", words, np.int64)
        return self.kept


def _small(sent: op.SentBatch) -> int:
    """The operations on edges of a batch that is sent as it is, few, and all on the host. Negative
    for others.
    """
    total = 0
    if sent.weights is not None and not isinstance(sent.weights, np.ndarray):
        return -1
    for _, *both in sent.columns:
        for ids in both:
            if not isinstance(ids, np.ndarray) or ids.dtype != np.int64:
                return -1
        total += len(both[0])
    return total if 0 < total + len(sent.removed) <= _SMALL else -1


def _counts(told: NDArray[np.int64]) -> op.BothCounts:
    outgoing, incoming = told[: 2 * len(op.COUNTERS)].reshape(2, -1).tolist()
    return op.Counts(*outgoing), op.Counts(*incoming)


_FEW = 64
"""A batch of so many operations is applied by half of the blocks."""

_NO_LIST = (None, None, 0.0, None, 0)
_FOLLOWS_NOTHING = (None, 0.0, None, 0, _NO_LIST, 0)
"""What `update_batch` takes of a residual, where none follows."""


class CudaGraph(OnDevice, op.GraphOperations):
    at_once = _SMALL

    def __init__(self, launch: Launcher) -> None:
        super().__init__(launch)
        # that no plan uses; several threads may plan at once, for a graph each
        self._buffers: list[_Buffers] = []

    def columns(self, sources: Array, targets: Array) -> tuple[Array, Array]:
        first, second = (
            self._device.narrowed(ids) if isinstance(ids, np.ndarray) else ids
            for ids in (sources, targets)
        )
        if first.dtype == second.dtype:
            return first, second
        return first.astype(np.int64), second.astype(np.int64)

    @runs
    def sorted_keys(self, do: op.PackKeys) -> op.SortedKeys:
        total = sum(len(sources) for _, sources, _ in do.columns)
        keys = self._device.allocate("keys of a batch", total, np.int64)
        begin = 0
        for operation, *both in do.columns:
            end = begin + len(both[0])
            if end > begin:
                sources, targets = self.columns(*both)
                self._launch(
                    "rebuild",
                    f"pack_keys<{id_type(sources)}>",
                    blocks_for(end - begin, most=4 * BALANCED_BLOCKS),
                    sources,
                    targets,
                    end - begin,
                    do.vertices[operation],
                    operation,
                    do.positions,
                    len(do.positions),
                    keys[begin:end],
                )
            begin = end
        return self.sort(keys, do.weights)

    def sort(self, keys: Array, weights: Array | None = None) -> op.SortedKeys:
        total, weighted = len(keys), weights is not None
        if total > _COMPARED:
            if weights is None:
                keys.sort()
                return op.SortedKeys(keys)
            order = self._xp.argsort(keys, kind="stable")
            return op.SortedKeys(keys[order], weights[order], order)
        ascending = self._device.allocate("keys of a batch", total, np.int64)
        order = self._device.allocate("keys of a batch", total, np.int32) if weighted else None
        if total:
            blocks, count = blocks_for(cu.WARP * total), total
            arguments = (keys, count, ascending, order)
            self._launch("rebuild", "sort_small", blocks, *arguments, weighted=weighted)
        return op.SortedKeys(ascending, None if weights is None else weights[order], order)

    @runs
    def _update(self, do: op.UpdateBatch) -> op.Updated | None:
        sent, rules, follows, zeroed = do.sent, do.rules, do.follows, do.workspace.zeroed
        weighted, total = sent.weights is not None, _small(sent)
        if total < 0:
            return None
        most = _SMALL if len(sent.removed) else total
        buffers = self._taken_buffers()
        keys, perturbation = buffers.scratch(self._device)
        both, unsorted = self._sent(do, buffers.sent, keys, total, most)
        words = -(-op.ChangeBlock.words(weighted) * most // 2)
        changed = self._device.allocate("what a batch changed", words, np.int64).view(np.int32)
        residual: tuple[Any, ...] = _FOLLOWS_NOTHING
        if follows is not None:
            lists_of_residual = lists_of(follows.residual)
            limits = (perturbation, follows.edge_limit)
            residual = (follows.values, follows.damping, *limits, *lists_of_residual)
        told = self._launch.ask(
            "batch",
            "update_batch",
            *both,
            (sent.vertices[0], *rules),
            unsorted,
            zeroed,
            len(zeroed),
            (*do.room.slots, *do.room.slack),
            rules.loop,
            do.degree,
            changed,
            most,
            *residual,
            weighted=weighted,
            small=most <= _FEW,
        )
        self._buffers.append(buffers)
        counts, (applied, *_, keys, edges) = _counts(told), told[2 * len(op.COUNTERS) :].tolist()
        if total + keys > most or counts[0].exceeded:
            return None
        edges = edges if rules.directed else edges // 2
        if not applied:
            return op.Updated(counts, None, edges)
        block = op.ChangeBlock(changed, most, counts[0], weighted)
        if follows is None or counts[0].changed == 0:
            return op.Updated(counts, block, edges)
        delta = perturbed(follows.residual, told[2 * len(op.COUNTERS) + 1 :])
        return op.Updated(counts, block, edges, (follows.residual, delta))

    @runs
    def _plan_sent(self, do: op.PlanSent) -> tuple[op.BothCounts, Array] | None:
        if (total := _small(do.sent)) < 0:
            return None
        keys = self._device.allocate("keys of a batch", 2 * total, np.int64)
        buffers, zeroed, rows = self._taken_buffers(), do.workspace.zeroed, do.lists[0].csr
        both, unsorted = self._sent(do, buffers.sent, keys, total, total, do.shard)
        told = self._launch.ask(
            "batch",
            "plan_sent",
            *both,
            (len(rows.row_lengths), *do.rules),
            unsorted,
            zeroed,
            len(zeroed),
            weighted=rows.weights is not None,
            small=total <= _FEW,
        )
        self._buffers.append(buffers)
        return _counts(told), do.workspace.plans[0].opposite[:total]

    def _taken_buffers(self) -> _Buffers:
        return self._buffers.pop() if self._buffers else _Buffers(self._device.mapped(3 * _SMALL))

    def _sent(
        self,
        do: op.UpdateBatch | op.PlanSent,
        to: Mapped,
        keys: Array,
        total: int,
        most: int,
        shard: tuple[int, int, int] = (1, 0, 0),
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Sends a small batch. Returns both Directions, and the Unsorted of batch.cu.

        most   keys of a direction; shard  see Unsorted
        """
        sent, deletions = do.sent, self._send(to, total, do.sent)
        do.workspace.planned = both = tuple(
            # keys in arrays that are free until rows are looked up
            _direction(csr, most, plan.opposite, plan.weights.opposite, plan)
            for csr, plan in zip(do.lists, do.workspace.plans, strict=True)
        )
        weights = to.device[2 * _SMALL :].view(np.float32)
        unsorted = (
            to.device,
            *(total, deletions, len(sent.removed)),
            *sent.vertices,
            *do.permutation,
            len(do.permutation[0]),
            None if sent.weights is None else weights,
            *(keys, most),
            *shard,
        )
        return both, unsorted

    def _send(self, to: Mapped, total: int, sent: op.SentBatch) -> int:
        """Copies a small batch to where `update_batch` reads it. Returns how many deletions come
        first.
        """
        ids, begin, deletions = to.host, 0, 0
        for operation, sources, targets in sent.columns:
            end = begin + len(sources)
            ids[begin:end] = sources
            ids[total + begin : total + end] = targets
            begin = end
            if operation == op.DELETE:
                deletions = end
        ids[2 * total : 2 * total + len(sent.removed)] = sent.removed
        if sent.weights is not None:
            weights = ids[2 * _SMALL :].view(np.float32)
            weights[:deletions], weights[deletions:total] = 0.0, sent.weights
        return deletions

    @runs
    def _plan(self, do: op.PlanBatch) -> op.BothCounts:
        (out_keys, in_keys), workspace, rows = do.keys, do.workspace, do.lists[0].csr
        if in_keys is None:
            total = len(out_keys.keys)
            transposed = self._device.allocate("keys of a batch", total, np.int64)
            if total:
                blocks = blocks_for(total, most=4 * BALANCED_BLOCKS)
                self._launch("rebuild", "transpose_keys", blocks, out_keys.keys, total, transposed)
            in_keys = self.sort(transposed, out_keys.weights)
        workspace.planned = both = tuple(
            _direction(csr, len(given.keys), given.keys, given.weights, plan)
            for csr, given, plan in zip(do.lists, (out_keys, in_keys), workspace.plans, strict=True)
        )
        told = self._launch.ask(
            "batch",
            "plan_batch",
            *both,
            (len(rows.row_lengths), *do.rules),
            workspace.zeroed,
            len(workspace.zeroed),
            weighted=rows.weights is not None,
        )
        return _counts(told)

    def plan_again(
        self, lists: op.Directions, packed: tuple[bool, bool], workspace: op.PlanWorkspace
    ) -> op.BothCounts:
        for again, plan in zip(packed, workspace.plans, strict=True):
            if again:
                workspace.clear_row_plan(plan)
        rows = lists[0].csr
        told = self._launch.ask(
            "batch",
            "plan_again",
            *map(_packed_direction, lists, workspace.planned),
            *packed,
            len(rows.row_lengths),
            weighted=rows.weights is not None,
        )
        return _counts(told)

    @runs
    def _apply(self, do: op.ApplyBatch) -> None:
        self._launch(
            "batch",
            "apply_batch",
            self._launch.resident,
            *map(_packed_direction, do.lists, do.workspace.planned),
            do.loop,
            do.degree,
            do.changes,
            weighted=do.lists[0].csr.weights is not None,
        )


# ---- loading, packing, listing and grouping all rows of a graph on ``cuda`` ----


class CudaRebuild(OnDevice, op.RebuildOperations):
    def __init__(self, launch: Launcher, graph: op.GraphOperations) -> None:
        super().__init__(launch)
        self._graph = graph

    def row_ranges(
        self, rows: Array, vertices: int, limit: int, positions: Array
    ) -> list[tuple[int, int, int]]:
        if len(rows) <= limit:
            return [(0, vertices, len(rows))]
        buckets = self._device.allocate("scratch", cu.BUCKETS, np.int64)
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
    ) -> op.SortedKeys:
        low, high, ids = chosen
        keys = self._device.allocate("keys of a load", ids, np.int64)
        places = None
        if weights is not None:
            places = self._device.allocate("keys of a load", ids, np.int64)
        _, scans = self._zeroed(1, len(rows))
        self._launch(
            "rebuild",
            f"keys_of_range<{id_type(rows)}>",
            blocks_for(len(rows), cu.RANGE_ITEMS * cu.BLOCK),
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
        self, batch: op.SortedKeys, loop: Array, adds: bool = False, kept: int = 0
    ) -> op.Deduplicated:
        count, order = len(batch.keys), batch.order
        counters, scans = self._zeroed(1, count)
        tiles = blocks_for(count, op.SCAN_TILE)
        arguments = (*batch, count, scans[0], adds, kept, loop, counters)
        weighted = batch.weights is not None
        self._launch("rebuild", "deduplicate", tiles, *arguments, weighted=weighted)
        found = dict(zip(op.COUNTERS, self._device.to_host(counters).tolist(), strict=True))
        exceeded = -1
        if order is not None and found["EXCEEDED"]:
            exceeded = int(order[op.LAST_PLACE - found["EXCEEDED"] - 1])
        return op.Deduplicated(found["EDGES"], found["CHANGED"], found["REWEIGHTED"], exceeded)

    def merge(self, first: op.SortedKeys, second: op.SortedKeys) -> op.SortedKeys:
        # sorting takes as long as a merge would
        xp = self._xp
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
        return found[op.COUNTERS.index("GROWTH")], found[op.COUNTERS.index("LONGEST")]

    def count_neighbours(self, keys: Array, edges: int, counts: Array) -> None:
        if edges:
            blocks = blocks_for(edges, most=4 * BALANCED_BLOCKS)
            self._launch("rebuild", "count_neighbours", blocks, keys, edges, counts)

    @runs
    def _fill_rows(self, do: op.FillRows) -> None:
        if do.edges:
            blocks, slots = blocks_for(do.edges, most=4 * BALANCED_BLOCKS), do.slots
            own = {"keys": do.batch.keys, "key_weights": do.batch.weights, **slots._asdict()}
            weighted = slots.weights is not None
            self._launch.run("rebuild", "fill_rows", blocks, do, weighted=weighted, **own)

    def pack_rows(self, length: Array, begin: int, start: Array, capacity: Array) -> None:
        vertices = len(length)
        _, scans = self._zeroed(1, vertices)
        if vertices:
            tiles, first_slot = blocks_for(vertices, op.SCAN_TILE), begin
            common = (length, vertices, first_slot, scans[0])
            self._launch("rebuild", "pack_rows", tiles, *common, start, capacity)

    def copy_rows(self, csr: Csr, new_start: Array, new_end: int, slots: op.Slots) -> None:
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

    def entries(self, csr: Csr) -> op.Entries:
        vertices, xp = len(csr.row_lengths), self._xp
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
        return op.Entries(rows, neighbours, weights)

    def sum_weights(self, csr: Csr, vertices: Array | None, loop: Array, strength: Array) -> None:
        count = len(csr.row_lengths) if vertices is None else len(vertices)
        if count:
            blocks = blocks_for(count * cu.WARP, most=BALANCED_BLOCKS)
            arguments = (vertices, count, csr, loop, strength)
            self._launch("rebuild", "sum_weights", blocks, *arguments, weighted=True)

    def scale_rows(
        self, outgoing: Csr, incoming: Csr, factors: Array, loop: Array, strength: Array
    ) -> None:
        rows = (len(loop), outgoing.row_starts, outgoing.row_lengths, outgoing.weights)
        blocks = blocks_for(len(loop) * cu.WARP, most=BALANCED_BLOCKS)
        arguments = (*rows, *incoming, factors, loop, strength)
        self._launch("rebuild", "scale_rows", blocks, *arguments, weighted=True)

    def strength_depth(self, longest_row: int) -> int:
        # of one thread, in a warp or a block; shuffles, warps, the loop, and the step above it
        own = max(cu.LONG_STRENGTH // cu.WARP, -(-longest_row // cu.BLOCK))
        return own + 5 + cu.BLOCK // cu.WARP + 3

    def partition(self, length: Array, order: Array, degree_bins: Array) -> NDArray[np.int64]:
        vertices = len(length)
        counters, scans = self._zeroed(len(cu.BIN_LANES) // 2, vertices)
        if vertices:
            tiles, count = blocks_for(vertices, op.SCAN_TILE), vertices
            common = (length, count, counters)
            self._launch("rebuild", "count_bins", balanced_blocks(vertices), *common)
            self._launch("rebuild", "partition", tiles, *common, *scans, order, degree_bins)
        sizes = self._device.to_host(counters)[: len(cu.BIN_LANES) - 1]
        return np.concatenate([[0], np.cumsum(sizes), [vertices]]).astype(np.int64)

    def needs_partition(self, rows: Rows, misbinned: int, slots: int) -> bool:  # noqa: ARG002
        return 64 * misbinned > rows.count

    def _zeroed(self, scans: int, items: int) -> tuple[Array, Array]:
        """Counters, and memory for exclusive sums over this many items."""
        words = 1 + blocks_for(items, op.SCAN_TILE)
        block = self._device.allocate("scratch", len(op.COUNTERS) + scans * words, np.int64)
        block.fill(0)
        memory = block[len(op.COUNTERS) :].view(np.uint64).reshape(scans, words)
        return block[: len(op.COUNTERS)], memory


# ---- vertices with the same in-list, on ``cuda`` ----

_WAVES = 16
"""Blocks of a launch, at most, in units of those that are resident at once: lists differ in
length.
"""

_COPIED = 2048
"""Vertices that are copied before it is known how many there are: most often all of them."""


class CudaLists(OnDevice, op.ListOperations):
    def fingerprints(self, graph: GraphView, positions: Array, longest: int) -> op.Fingerprints:
        found = self._xp.empty((len(op.Fingerprints._fields), len(positions)), np.int64)
        self._launch(
            "lists",
            "fingerprints",
            self._launch.resident_blocks(len(positions) * cu.WARP, _WAVES),
            positions.astype(np.int64, copy=False),
            len(positions),
            longest,
            (graph.incoming, graph.loop, graph.degree),
            graph.outgoing.row_lengths,
            found,
            weighted=graph.weighted,
        )
        return op.Fingerprints(*self._device.to_host(found))

    def with_same_list(
        self, graph: GraphView, lists: op.Fingerprints
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        ends = np.cumsum(lists.out_edges)
        asked = np.stack([ends, lists.positions, lists.sources])
        # zeroed, since the copy has more than is written
        found = self._xp.zeros(1 + int(ends[-1]), np.int64)
        self._launch(
            "lists",
            "find_same",
            self._launch.resident_blocks(int(ends[-1]) * cu.WARP, _WAVES),
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
