"""Loading, packing, listing and grouping all rows of a graph on ``cpu``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.backends.cpu.apply_kernels import ITEMS, packed_slots
from gpu.backends.cpu.resolve_kernels import NO_KEY, UNITS, summed_weight
from gpu.backends.cpu.rows import CHUNK_WORK, chunk_rows, first_from
from gpu.backends.cpu.strengths import scale_rows, sum_weights
from gpu.backends.cpu.sweeps import sum_depth
from gpu.jit.compile import kernel, sequential
from gpu.operations.csr import Csr, Rows
from gpu.operations.device import Array, DeviceOperations
from gpu.operations.graph import GraphOperations, SortedKeys
from gpu.operations.rebuild import Deduplicated, Entries, RebuildOperations, Slots
from gpu.operations.update import INSERT, NEIGHBOUR


@sequential
def _deduplicate(keys, loop):  # type: ignore[no-untyped-def]
    kept = 0
    loops = 0
    before = np.int64(-1)
    for at in range(len(keys)):
        key = keys[at]
        if key == NO_KEY:
            break
        if key != before:
            if key >> 32 == key >> 1 & NEIGHBOUR:
                loop[key >> 32] = 1
                loops += 1
            else:
                keys[kept] = key
                kept += 1
        before = key
    return kept, loops


@sequential
def _deduplicate_weighted(keys, weights, order, loop, adds, kept_edges):  # type: ignore[no-untyped-def]
    """`_deduplicate` with weights. Also returns how many kept edges have another weight now, and
    the place of a sum that exceeds float32.
    """
    kept = 0
    loops = 0
    reweighted = 0
    exceeded = np.int64(-1)
    at = 0
    while at < len(keys) and keys[at] != NO_KEY:
        key = keys[at]
        first = at
        while at < len(keys) and keys[at] == key:
            at += 1
        row = key >> 32
        is_loop = row == key >> 1 & NEIGHBOUR
        present = np.float64(loop[row]) if is_loop else 0.0
        weight = summed_weight(weights, first, at, present, adds)
        if np.isinf(weight) and exceeded < 0:
            exceeded = order[at - 1]
        if is_loop:
            loop[row] = weight
            loops += 1
            continue
        if order[first] < kept_edges and weight != np.float64(weights[first]):
            reweighted += 1
        keys[kept] = key
        weights[kept] = weight
        kept += 1
    return kept, loops, reweighted, exceeded


@sequential
def _merge(  # type: ignore[no-untyped-def]
    keys,
    weights,
    order,
    other_keys,
    other_weights,
    other_order,
    merged_keys,
    merged_weights,
    merged_order,
):
    """Of all three, both weights and order are arrays, or neither."""
    own = other = 0
    for at in range(len(merged_keys)):
        if other == len(other_keys) or (own < len(keys) and keys[own] <= other_keys[other]):
            merged_keys[at] = keys[own]
            if weights is not None:
                merged_weights[at] = weights[own]
                merged_order[at] = order[own]
            own += 1
        else:
            merged_keys[at] = other_keys[other]
            if weights is not None:
                merged_weights[at] = other_weights[other]
                merged_order[at] = other_order[other]
            other += 1


@sequential
def _count_rows(keys, edges, low, first, length):  # type: ignore[no-untyped-def]
    for at in range(edges):
        row = (keys[at] >> 32) - low
        if length[row] == 0:
            first[row] = at
        length[row] += 1
    packed = np.int64(0)
    longest = 0
    for row in range(len(length)):
        packed += packed_slots(np.int64(length[row]))
        longest = max(longest, length[row])
    return packed, longest


@kernel(ITEMS)
def _fill_rows(  # type: ignore[no-untyped-def]
    first, last, keys, low, first_key, start, column_indices, key_weights, weights
):
    for at in range(first, last):
        row = (keys[at] >> 32) - low
        slot = start[row] + at - first_key[row]
        column_indices[slot] = keys[at] >> 1 & NEIGHBOUR
        if weights is not None:
            weights[slot] = key_weights[at]


@sequential
def _pack_rows(length, begin, start, capacity):  # type: ignore[no-untyped-def]
    end = np.int64(begin)
    for row in range(len(length)):
        start[row] = end
        capacity[row] = packed_slots(length[row])
        end += capacity[row]


@kernel(UNITS)
def _copy_rows(  # type: ignore[no-untyped-def]
    first, last, csr, new_start, new_indices, weights, new_weights
):
    """Copies the rows that begin in these slots of the new array."""
    row_starts, row_lengths, column_indices, _ = csr
    vertices = len(row_lengths)
    row = first_from(new_start, vertices, first)
    while row < vertices and new_start[row] < last:
        for slot in range(row_lengths[row]):
            new_indices[new_start[row] + slot] = column_indices[row_starts[row] + slot]
            if weights is not None:
                new_weights[new_start[row] + slot] = weights[row_starts[row] + slot]
        row += 1


@kernel(ITEMS)
def _list_entries(  # type: ignore[no-untyped-def]
    first, last, csr, before, rows, neighbours, weights, listed_weights
):
    row_starts, row_lengths, column_indices, _ = csr
    for row in range(first, last):
        for slot in range(row_lengths[row]):
            rows[before[row] + slot] = row
            neighbours[before[row] + slot] = column_indices[row_starts[row] + slot]
            if weights is not None:
                listed_weights[before[row] + slot] = weights[row_starts[row] + slot]


class CpuRebuild(RebuildOperations):
    """See RebuildOperations."""

    def __init__(self, device: DeviceOperations, graph: GraphOperations) -> None:
        self._device = device
        self._graph = graph

    def row_ranges(
        self,
        rows: Array,
        vertices: int,
        limit: int,  # noqa: ARG002
        positions: Array,  # noqa: ARG002
    ) -> list[tuple[int, int, int]]:
        # keys are sorted in place here, so sorting a range at a time would save little memory
        return [(0, vertices, len(rows))]

    def keys_of_range(
        self,
        rows: Array,
        neighbours: Array,
        weights: Array | None,
        chosen: tuple[int, int, int],
        positions: Array,
    ) -> SortedKeys:
        columns = [(INSERT, rows, neighbours)]
        return self._graph.sorted_keys(columns, (0, chosen[1]), positions, weights)

    def deduplicate(
        self, batch: SortedKeys, loop: Array, adds: bool = False, kept: int = 0
    ) -> Deduplicated:
        if batch.weights is None:
            found = _deduplicate(batch.keys, loop)
        else:
            found = _deduplicate_weighted(*batch, loop, adds, kept)
        return Deduplicated(*map(int, found))

    def merge(self, first: SortedKeys, second: SortedKeys) -> SortedKeys:
        if (first.keys[1:] < first.keys[:-1]).any():
            order = first.order
            first = self._graph.sort(first.keys, first.weights)
            if order is not None:
                first = first._replace(order=order[first.order])
        total = len(first.keys) + len(second.keys)
        merged = SortedKeys(
            *(
                None if each is None else self._device.allocate("keys of a load", total, each.dtype)
                for each in second
            )
        )
        _merge(*first, *second, *merged)
        return merged

    def count_rows(
        self, keys: Array, edges: int, low: int, first: Array, length: Array
    ) -> tuple[int, int]:
        packed, longest = _count_rows(keys, edges, low, first, length)
        return int(packed), int(longest)

    def fill_rows(
        self, batch: SortedKeys, edges: int, low: int, first: Array, start: Array, slots: Slots
    ) -> None:
        column_indices, weights = slots
        _fill_rows(edges, batch.keys, low, first, start, column_indices, batch.weights, weights)

    def pack_rows(self, length: Array, begin: int, start: Array, capacity: Array) -> None:
        _pack_rows(length, begin, start, capacity)

    def copy_rows(self, csr: Csr, new_start: Array, new_end: int, slots: Slots) -> None:
        starts, (new_indices, new_weights) = new_start[: len(csr.row_lengths)], slots
        _copy_rows(new_end + 1, csr, starts, new_indices, csr.weights, new_weights)

    def entries(self, csr: Csr) -> Entries:
        vertices = len(csr.row_lengths)
        before = np.zeros(vertices + 1, np.int64)
        np.cumsum(csr.row_lengths, out=before[1:])
        rows = self._device.allocate("list of edges", int(before[-1]), np.int32)
        neighbours = self._device.allocate("list of edges", int(before[-1]), np.int32)
        weights = None
        if csr.weights is not None:
            weights = self._device.allocate("list of edges", int(before[-1]), np.float32)
        _list_entries(vertices, csr, before, rows, neighbours, csr.weights, weights)
        return Entries(rows, neighbours, weights)

    def sum_weights(self, csr: Csr, vertices: Array | None, loop: Array, strength: Array) -> None:
        if vertices is None:
            vertices = np.arange(len(csr.row_lengths), dtype=np.int32)
        sum_weights(csr, vertices, loop, strength)

    def scale_rows(
        self, outgoing: Csr, incoming: Csr, factors: Array, loop: Array, strength: Array
    ) -> None:
        scale_rows(outgoing, incoming, factors, loop, strength)

    def strength_depth(self, longest_row: int) -> int:
        # the last additions are the loop's and the step that keeps strengths above loops
        return sum_depth(longest_row) + 3

    def partition(self, length: Array, order: Array, degree_bins: Array) -> NDArray[np.int64]:  # noqa: ARG002
        order[:] = np.arange(len(length), dtype=np.int32)
        return chunk_rows(order, length).groups

    def needs_partition(self, rows: Rows, misbinned: int, slots: int) -> bool:
        last_group = int(rows.groups[-1] - rows.groups[-2])
        return 8 * misbinned > slots + rows.count or last_group > 2 * CHUNK_WORK
