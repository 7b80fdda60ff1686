"""Changing and rebuilding a graph on ``cpu``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.backends import plan_arrays
from gpu.backends.cpu import update_kernels
from gpu.backends.cpu.rows import CHUNK_WORK, chunk_rows, first_from, plain
from gpu.backends.cpu.update_kernels import ITEMS, NEIGHBOUR, NO_KEY, UNITS, packed_slots
from gpu.jit.compile import kernel, sequential
from gpu.operations.csr import Csr, Rows, SlackCsr
from gpu.operations.device import Array, DeviceOperations
from gpu.operations.graph import GraphOperations
from gpu.operations.update import INSERT, BatchPlan, Counts, EdgeChanges

_NO_CHANGES = EdgeChanges(*(np.zeros(0, np.int32) for _ in EdgeChanges._fields))
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
def _fill_rows(first, last, keys, low, first_key, start, column_indices):  # type: ignore[no-untyped-def]
    for at in range(first, last):
        row = (keys[at] >> 32) - low
        column_indices[start[row] + at - first_key[row]] = keys[at] >> 1 & NEIGHBOUR


@sequential
def _pack_rows(length, begin, start, capacity):  # type: ignore[no-untyped-def]
    end = np.int64(begin)
    for row in range(len(length)):
        start[row] = end
        capacity[row] = packed_slots(length[row])
        end += capacity[row]


@kernel(UNITS)
def _copy_rows(first, last, csr, new_start, new_indices):  # type: ignore[no-untyped-def]
    """Copies the rows that begin in these slots of the new array."""
    row_starts, row_lengths, column_indices = csr
    vertices = len(row_lengths)
    row = first_from(new_start, vertices, first)
    while row < vertices and new_start[row] < last:
        for slot in range(row_lengths[row]):
            new_indices[new_start[row] + slot] = column_indices[row_starts[row] + slot]
        row += 1


@kernel(ITEMS)
def _list_entries(first, last, csr, before, rows, neighbours):  # type: ignore[no-untyped-def]
    row_starts, row_lengths, column_indices = csr
    for row in range(first, last):
        for slot in range(row_lengths[row]):
            rows[before[row] + slot] = row
            neighbours[before[row] + slot] = column_indices[row_starts[row] + slot]


class CpuGraph(GraphOperations):
    """See GraphOperations."""

    def __init__(self, device: DeviceOperations) -> None:
        self._device = device

    def columns(self, sources: Array, targets: Array) -> tuple[Array, Array]:
        return sources, targets

    def sorted_keys(
        self, columns: list[tuple[int, Array, Array]], vertices: tuple[int, int], positions: Array
    ) -> Array:
        total = sum(len(sources) for _, sources, _ in columns)
        keys = self._device.allocate("keys of a batch", total, np.int64)
        begin = 0
        for operation, sources, targets in columns:
            end = begin + len(sources)
            known, packed = vertices[operation], keys[begin:end]
            _pack_keys(end - begin, sources, targets, operation, known, positions, packed)
            begin = end
        return self.sort(keys)

    def sort(self, keys: Array) -> Array:
        keys.sort()
        return keys

    def resolve_update(
        self, csr: SlackCsr, loop: Array, fixed_loops: bool, keys: Array, plan: BatchPlan
    ) -> None:
        edges, rows = plan_arrays.edges(plan), plan_arrays.rows(plan)
        count, work = update_kernels.find_rows(
            keys, csr.csr.row_lengths, edges, rows, plan.opposite, plan.counters
        )
        update_kernels.locate(
            work, count, plain(csr.csr), rows, plan.edge_neighbour, plan.edge_slot
        )
        update_kernels.decide(
            keys,
            loop,
            fixed_loops,
            edges,
            plan.row_edge,
            plan_arrays.row_changes(plan),
            plan_arrays.removed(plan),
            plan_arrays.added(plan),
            plan.opposite,
            plan.counters,
        )

    def plan_rows(self, csr: SlackCsr, operations: int, plan: BatchPlan) -> None:  # noqa: ARG002
        update_kernels.plan_rows(
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
        sources, old_degree, *changed_edges = changes or _NO_CHANGES
        if counts.needed:
            update_kernels.move_rows(
                plan.move_work[counts.rows],
                counts.rows,
                rows,
                plan.row_vertex,
                plan.new_start,
                plan.move_work,
                end,
            )
        update_kernels.place_changes(
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
        )
        if counts.emptied:
            # in arrays that are no longer needed: work and the slots of edges
            hole, filler = plan.row_work, plan.edge_slot
            holes = update_kernels.find_holes(
                counts.removed,
                rows,
                row_change,
                removed,
                plan.new_length,
                hole,
                filler,
                plan.counters,
            )
            update_kernels.fill_holes(holes, hole, filler, csr.csr.column_indices)
        update_kernels.finish_rows(
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
        )

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
        self, rows: Array, neighbours: Array, chosen: tuple[int, int, int], positions: Array
    ) -> Array:
        return self.sorted_keys([(INSERT, rows, neighbours)], (0, chosen[1]), positions)

    def deduplicate(self, keys: Array, loop: Array) -> tuple[int, int]:
        kept, loops = _deduplicate(keys, loop)
        return int(kept), int(loops)

    def count_rows(
        self, keys: Array, edges: int, low: int, first: Array, length: Array
    ) -> tuple[int, int]:
        packed, longest = _count_rows(keys, edges, low, first, length)
        return int(packed), int(longest)

    def fill_rows(
        self, keys: Array, edges: int, low: int, first: Array, start: Array, column_indices: Array
    ) -> None:
        _fill_rows(edges, keys, low, first, start, column_indices)

    def pack_rows(self, length: Array, begin: int, start: Array, capacity: Array) -> None:
        _pack_rows(length, begin, start, capacity)

    def copy_rows(self, csr: Csr, new_start: Array, new_end: int, new_indices: Array) -> None:
        _copy_rows(new_end + 1, csr, new_start[: len(csr.row_lengths)], new_indices)

    def entries(self, csr: Csr) -> tuple[Array, Array]:
        vertices = len(csr.row_lengths)
        before = np.zeros(vertices + 1, np.int64)
        np.cumsum(csr.row_lengths, out=before[1:])
        rows = self._device.allocate("list of edges", int(before[-1]), np.int32)
        neighbours = self._device.allocate("list of edges", int(before[-1]), np.int32)
        _list_entries(vertices, csr, before, rows, neighbours)
        return rows, neighbours

    def partition(self, length: Array, order: Array, degree_bins: Array) -> NDArray[np.int64]:  # noqa: ARG002
        order[:] = np.arange(len(length), dtype=np.int32)
        return chunk_rows(order, length).groups

    def needs_partition(self, rows: Rows, misbinned: int, slots: int) -> bool:
        last_group = int(rows.groups[-1] - rows.groups[-2])
        return 8 * misbinned > slots + rows.count or last_group > 2 * CHUNK_WORK
