"""The lists of a graph on ``cpu``: packed, changed by batches, loaded, and compared."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cpu.sweeps import CHUNK_WORK, chunk_rows, sum_depth
from liverank_gpu.native import kernels
from liverank_gpu.native.in_numpy import mixed
from liverank_gpu.operations import graph as op
from liverank_gpu.operations.csr import Csr, GraphView, Rows, SlackCsr, runs
from liverank_gpu.operations.device import Array, DeviceOperations

# ---- loops that turn edges in any order into rows: see liverank_gpu.out_of_core.spool ----
#
# An edge is a key, ``target << 32 | source``, and in a weighted graph a weight beside it; otherwise
# weights are None. Loops run on the calling thread: weights are added up in the order of the keys.

_DIGIT_BITS = 11
"""Keys are sorted by this many bits at a time: the ends of so many lists stay in cache."""


count_ends: Any = kernels.count_ends
"""``count_ends(keys, in_degree, out_degree)`` adds to in_degree, int64[n], and to out_degree,
int32[n], the number of keys of each target and of each source. Returns the largest in-degree of
these targets.
"""

renumber: Any = kernels.renumber
"""``renumber(keys, positions)`` replaces ids, in keys, by their positions, int32[n]."""

pack_keys: Any = kernels.write_rows
"""``pack_keys(keys, weights, keep_repeats, fixed_loops, loop, row_lengths, out_lengths, sent,
column_indices, row_weights)`` writes rows one after the other, each from a multiple of ALIGNMENT
slots on.

keys         int64[k], ascending
keep_repeats whether each of equal keys is an edge, or the last one alone
loop         see liverank_gpu.operations.csr.GraphView: set for loops, which are in no row, unless
             all vertices have a fixed one
row_lengths, out_lengths  int32[n], to which the edges are added
sent         float64[n], to which weights are added, by source; without weights out_lengths
column_indices  written; a row's last source also in the slots behind it, so that these name no
             source that no row has
row_weights  written, and untouched in the slots between rows

Returns the number of slots, and of edges.
"""


def sorted_by_bucket(
    first_keys: NDArray[np.int64], keys: NDArray[np.int64], *weights: NDArray[Any]
) -> tuple[NDArray[np.int64], list[NDArray[Any]]]:
    """Keys, and weights if there are any, by bucket; those of one bucket stay in their order.

    first_keys  int64[b], the least key of each bucket: ascending, and the first one is 0
    keys        int64[k]
    weights     float32[k], or other values

    Returns where each bucket begins, int64[b + 1], and the columns.
    """
    columns = [np.empty_like(column) for column in (keys, *weights)]
    bounds = np.zeros(len(first_keys) + 2, np.int64)
    buckets = np.empty(len(keys), np.int32)
    values, sorted_values = map(_bits, (*weights, columns[1])) if weights else (None, None)
    kernels.sort_by_bucket(keys, values, first_keys, buckets, bounds, columns[0], sorted_values)
    return bounds[:-1], columns


def sorted_by_key(
    keys: NDArray[np.int64], weights: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Ascending keys, int64[k], and their weights, float32[k] or other values; equal keys stay in
    their order. The columns that are given are overwritten.

    NumPy's stable sort of keys takes ten times as long as this one by digits.
    """
    if len(keys) == 0:
        return keys, weights
    varying = int(np.bitwise_or.reduce(keys) ^ np.bitwise_and.reduce(keys))
    others = np.empty_like(keys), np.empty_like(weights)
    places = np.empty((1 << _DIGIT_BITS) + 1, np.int64)
    for shift in range(0, varying.bit_length(), _DIGIT_BITS):
        if varying >> shift & (1 << _DIGIT_BITS) - 1:
            kernels.sort_by_digit(keys, _bits(weights), shift, places, others[0], _bits(others[1]))
            (keys, weights), others = others, (keys, weights)
    return keys, weights


def _bits(values: NDArray[Any]) -> NDArray[Any]:
    """Values that are only moved, as unsigned integers of their size."""
    return values.view(f"u{values.itemsize}")


# ---- changing a graph by batches on ``cpu`` ----

_plan = attrgetter("blocks", "counters")
"""What batch.cpp takes of a BatchPlan."""

_INTS, _DOUBLES, _FLOATS = (np.zeros(0, dtype) for dtype in (np.int32, np.float64, np.float32))
_NO_CHANGES = op.EdgeChanges(_INTS, _INTS, _INTS, _INTS, _INTS, _INTS)
_NO_WEIGHTED_CHANGES = _NO_CHANGES._replace(
    old_degree=_DOUBLES, removed_weights=_FLOATS, added_weights=_FLOATS
)
"""For the in-lists, which report nothing."""


class CpuGraph(op.GraphByDirection):
    def __init__(self, device: DeviceOperations) -> None:
        self._device = device

    def columns(self, sources: Array, targets: Array) -> tuple[Array, Array]:
        dtype = np.int32 if sources.dtype == targets.dtype == np.int32 else np.int64
        return np.ascontiguousarray(sources, dtype), np.ascontiguousarray(targets, dtype)

    @runs
    def sorted_keys(self, do: op.PackKeys) -> op.SortedKeys:
        total = sum(len(sources) for _, sources, _ in do.columns)
        keys = self._device.allocate("keys of a batch", total, np.int64)
        begin = 0
        for operation, sources, targets in do.columns:
            if len(sources) == 0:
                continue
            packed = keys[begin : begin + len(sources)]
            ends = self.columns(sources, targets)
            kernels.pack_keys(*ends, operation, do.vertices[operation], do.positions, packed)
            begin += len(sources)
        return self.sort(keys, do.weights)

    def sort(self, keys: Array, weights: Array | None = None) -> op.SortedKeys:
        if weights is None:
            keys.sort()
            return op.SortedKeys(keys)
        order = np.argsort(keys, kind="stable")
        return op.SortedKeys(keys[order], weights[order], order)

    def resolve(
        self,
        csr: SlackCsr,
        batch: op.SortedKeys,
        rules: op.UpdateRules,
        plan: op.BatchPlan,
        inserts_absent: bool = False,
    ) -> None:
        rows = csr.csr, _plan(plan)
        kernels.resolve_update(batch.keys, batch.weights, *rules, inserts_absent, *rows)

    def plan_rows(self, csr: SlackCsr, plan: op.BatchPlan) -> None:
        kernels.plan_rows(csr.csr.row_lengths, csr.capacities, _plan(plan))

    def count_connected(self, lists: op.Directions, workspace: op.PlanWorkspace) -> None:
        lengths = lists[0].csr.row_lengths, lists[1].csr.row_lengths
        kernels.count_connected(*lengths, *map(_plan, workspace.plans))

    def write(self, do: op.ApplyBatch, direction: int) -> None:
        csr, plan, outgoing = do.lists[direction], do.workspace.plans[direction], direction == 0
        weighted = csr.csr.weights is not None
        none = _NO_WEIGHTED_CHANGES if weighted else _NO_CHANGES
        vertices, reported = (do.loop, do.degree), do.changes if outgoing else none
        kernels.apply_update(
            outgoing, csr.end, csr.csr, csr.capacities, *vertices, _plan(plan), reported
        )
        if outgoing and weighted:
            kernels.sum_weights(do.changes.sources, csr.csr, *vertices)


# ---- loading, packing, listing and grouping all rows of a graph on ``cpu`` ----


class CpuRebuild(op.RebuildOperations):
    def __init__(self, device: DeviceOperations, graph: op.GraphOperations) -> None:
        self._device = device
        self._graph = graph

    def deduplicate(
        self, batch: op.SortedKeys, loop: Array, adds: bool = False, kept: int = 0
    ) -> op.Deduplicated:
        return op.Deduplicated(*kernels.deduplicate(*batch, loop, adds, kept))

    def merge(self, first: op.SortedKeys, second: op.SortedKeys) -> op.SortedKeys:
        if (first.keys[1:] < first.keys[:-1]).any():
            order = first.order
            first = self._graph.sort(first.keys, first.weights)
            if order is not None:
                first = first._replace(order=order[first.order])
        total = len(first.keys) + len(second.keys)
        merged = op.SortedKeys(
            *(
                None if each is None else self._device.allocate("keys of a load", total, each.dtype)
                for each in second
            )
        )
        kernels.merge_keys(first, second, merged)
        return merged

    def count_rows(
        self, keys: Array, edges: int, low: int, first: Array, length: Array
    ) -> tuple[int, int]:
        counted: tuple[int, int] = kernels.count_rows(keys, edges, low, first, length)
        return counted

    def count_neighbours(self, keys: Array, edges: int, counts: Array) -> None:
        kernels.count_neighbours(keys, edges, counts)

    @runs
    def _fill_rows(self, do: op.FillRows) -> None:
        (keys, key_weights, _), (column_indices, weights) = do.batch, do.slots
        rows = (do.low, do.first, do.row_starts)
        kernels.fill_rows(do.edges, keys, *rows, column_indices, key_weights, weights)

    def pack_rows(self, length: Array, begin: int, start: Array, capacity: Array) -> None:
        kernels.pack_rows(length, begin, start, capacity)

    def copy_rows(self, csr: Csr, new_start: Array, new_end: int, slots: op.Slots) -> None:
        kernels.copy_rows(new_end + 1, csr, new_start, *slots)

    def entries(self, csr: Csr) -> op.Entries:
        vertices = len(csr.row_lengths)
        before = np.zeros(vertices + 1, np.int64)
        np.cumsum(csr.row_lengths, out=before[1:])
        rows = self._device.allocate("list of edges", int(before[-1]), np.int32)
        neighbours = self._device.allocate("list of edges", int(before[-1]), np.int32)
        weights = None
        if csr.weights is not None:
            weights = self._device.allocate("list of edges", int(before[-1]), np.float32)
        kernels.list_entries(csr, before, rows, neighbours, weights)
        return op.Entries(rows, neighbours, weights)

    def sum_weights(self, csr: Csr, vertices: Array | None, loop: Array, strength: Array) -> None:
        if vertices is None:
            vertices = np.arange(len(csr.row_lengths), dtype=np.int32)
        kernels.sum_weights(vertices, csr, loop, strength)

    def scale_rows(
        self, outgoing: Csr, incoming: Csr, factors: Array, loop: Array, strength: Array
    ) -> None:
        kernels.scale_rows(outgoing, incoming, factors, loop, strength)

    def strength_depth(self, longest_row: int) -> int:
        # the last additions are the loop's and the step that keeps strengths above loops
        return sum_depth(longest_row) + 3

    def partition(self, length: Array, order: Array, degree_bins: Array) -> NDArray[np.int64]:  # noqa: ARG002
        order[:] = np.arange(len(length), dtype=np.int32)
        return chunk_rows(order, length).groups

    def needs_partition(self, rows: Rows, misbinned: int, slots: int) -> bool:
        last_group = int(rows.groups[-1] - rows.groups[-2])
        return 8 * misbinned > slots + rows.count or last_group > 2 * CHUNK_WORK


# ---- vertices with the same in-list, on ``cpu`` ----

_HALF = np.uint64(32)


class CpuLists(op.ListOperations):
    def __init__(self, rebuild: op.RebuildOperations) -> None:
        self._rebuild = rebuild

    def fingerprints(self, graph: GraphView, positions: Array, longest: int) -> op.Fingerprints:
        found = op.Fingerprints(
            positions.astype(np.int64), *np.zeros((4, len(positions)), np.int64)
        )
        lengths = graph.incoming.row_lengths[positions]
        compared = np.flatnonzero((lengths > 0) & (lengths <= longest))
        parts = _returned(graph, positions[compared])
        compared, parts = compared[parts != op.NO_PART], parts[parts != op.NO_PART]
        if len(compared) == 0:
            return found
        found.lengths[compared] = lengths = lengths[compared].astype(np.int64)
        _, sources, weights = self._rebuild.entries(graph.incoming.at(positions[compared]))
        starts = np.cumsum(lengths) - lengths
        entries = sources.astype(np.uint64) << _HALF
        if weights is not None:
            entries |= weights.view(np.uint32)
        # mixed twice, as no entry is
        hashes = mixed(mixed((lengths << 32 | parts).view(np.uint64)))
        hashes += np.add.reduceat(mixed(entries), starts)
        found.hashes[compared] = hashes.view(np.int64)
        nearest = graph.outgoing.row_lengths[sources].astype(np.int64) << 32
        nearest = np.minimum.reduceat(nearest | sources, starts)
        found.sources[compared], found.out_edges[compared] = nearest & 0xFFFFFFFF, nearest >> 32
        return found

    def with_same_list(
        self, graph: GraphView, lists: op.Fingerprints
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        numbers, vertices, _ = self._rebuild.entries(graph.outgoing.at(lists.sources))
        alike = graph.incoming.row_lengths[vertices] == lists.lengths[numbers]
        alike &= vertices != lists.positions[numbers]
        numbers, vertices = numbers[alike].astype(np.int64), vertices[alike].astype(np.int64)
        alike = _returned(graph, vertices) == _returned(graph, lists.positions)[numbers]
        numbers, vertices = numbers[alike], vertices[alike]
        if len(numbers) == 0:
            return numbers, vertices
        reached, places = np.unique(numbers, return_inverse=True)
        lists = lists.at(reached)
        wanted, found = self._sorted(graph, lists.positions), self._sorted(graph, vertices)
        ends, own_ends = np.cumsum(lists.lengths), np.cumsum(lists.lengths[places])
        same = np.arange(len(found.rows)) + (ends[places] - own_ends)[found.rows]
        differs = found.neighbours != wanted.neighbours[same]
        if found.weights is not None and wanted.weights is not None:
            differs |= found.weights != wanted.weights[same]
        identical = np.ones(len(numbers), np.bool_)
        identical[found.rows[differs]] = False
        return numbers[identical], vertices[identical]

    def _sorted(self, graph: GraphView, positions: NDArray[np.int64]) -> op.Entries:
        """The in-lists of some vertices one after the other, each in ascending order."""
        rows, sources, weights = self._rebuild.entries(graph.incoming.at(positions))
        order = np.argsort(rows.astype(np.int64) << 32 | sources)
        return op.Entries(rows, sources[order], None if weights is None else weights[order])


def _returned(graph: GraphView, positions: Array) -> NDArray[np.int64]:
    returned: NDArray[np.int64] = op.returned_parts(graph.loop[positions], graph.degree[positions])
    return returned
