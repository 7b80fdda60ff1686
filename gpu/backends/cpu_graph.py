"""The dynamic graph's operations of the ``cpu`` backend: the same steps as gpu/kernels/resolve.cu,
change.cu and layout.cu, on the same arrays.

What reads or copies rows runs on all cores and shares them by work; what runs along the sorted
batch once is cheaper than the sort itself and runs on one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpu.backends.base import Array, Backend
from gpu.backends.parallel import helper, kernel, sequential
from gpu.kernels import COUNTERS

if TYPE_CHECKING:
    from gpu.adjacency import Adjacency
    from gpu.edit import Counts, Edit

_NO_KEY = np.iinfo(np.int64).max
_NEIGHBOUR = 0x7FFFFFFF

_UNITS = 1 << 13
"""Units of work that a core takes at a time: rows and entries."""

_ITEMS = 1 << 12
"""Edges, rows or places that a core takes at a time."""

_FEW_EDGES = 8
"""Edges of a row up to which each is compared with all entries, instead of a search an entry."""

_STRIP = 256
"""Entries that are compared with an edge before anyone looks whether one was equal."""

_EDGES, _ROWS, _INSERTED, _DELETED, _REMOVED, _ADDED = (
    COUNTERS.index(name) for name in ("EDGES", "ROWS", "INSERTED", "DELETED", "REMOVED", "ADDED")
)
_CHANGED, _NEEDED, _MOST, _GROWTH, _EMPTIED, _STRAYED, _LONGEST, _HOLES = (
    COUNTERS.index(name)
    for name in (
        "CHANGED",
        "NEEDED",
        "MOST",
        "GROWTH",
        "EMPTIED",
        "STRAYED",
        "LONGEST",
        "HOLES",
    )
)


@helper
def _tight(length):  # type: ignore[no-untyped-def]
    return (length + 3) // 4 * 4


@helper
def _roomy(length):  # type: ignore[no-untyped-def]
    return (length + length // 4 + 3) // 4 * 4


@kernel(_ITEMS)
def _pack(  # type: ignore[no-untyped-def]
    first, last, sources, targets, operation, vertices, positions, keys
):
    renumbered = len(positions)
    for edge in range(first, last):
        source = np.int64(sources[edge])
        target = np.int64(targets[edge])
        if 0 <= source < vertices and 0 <= target < vertices:
            if source < renumbered:
                source = np.int64(positions[source])
            if target < renumbered:
                target = np.int64(positions[target])
            keys[edge] = source << 32 | target << 1 | operation
        else:
            keys[edge] = _NO_KEY


@sequential
def _heads(  # type: ignore[no-untyped-def]
    keys,
    length,
    edge_operation,
    edge_neighbour,
    edge_row,
    edge_slot,
    row_edge,
    row_vertex,
    row_loop,
    row_work,
    opposite,
    counters,
):
    edges = 0
    rows = 0
    work = np.int64(0)
    operations = 0
    before = np.int64(-1)
    for at in range(len(keys)):
        opposite[at] = _NO_KEY
        key = keys[at]
        if key == _NO_KEY:
            continue
        operations = at + 1
        if key >> 32 != before >> 32:
            vertex = key >> 32
            row_edge[rows] = edges
            row_vertex[rows] = vertex
            row_loop[rows] = 0
            row_work[rows] = work
            work += 1 + (np.int64(length[vertex]) if vertex < len(length) else 0)
            rows += 1
        if key >> 1 != before >> 1:
            edge_operation[edges] = at
            edge_neighbour[edges] = key >> 1 & _NEIGHBOUR
            edge_row[edges] = rows - 1
            edge_slot[edges] = -1
            edges += 1
        before = key
    edge_operation[edges] = operations
    row_edge[rows] = edges
    row_work[rows] = work
    counters[_EDGES] = edges
    counters[_ROWS] = rows


@helper
def first_from(numbers, count, least):  # type: ignore[no-untyped-def]
    """The first of `count` ascending numbers that is not below `least`; `count` if all are."""
    low = np.int64(0)
    high = np.int64(count)
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < least:
            low = middle + 1
        else:
            high = middle
    return low


@helper
def _place_of(neighbour, entries):  # type: ignore[no-untyped-def]
    # without a way out of the inner loop, it is compiled to vector instructions
    for first in range(0, len(entries), _STRIP):
        strip = entries[first : first + _STRIP]
        found = np.int32(0)
        for slot in range(len(strip)):
            found |= np.int32(strip[slot] == neighbour)
        if found:
            for slot in range(len(strip)):
                if strip[slot] == neighbour:
                    return first + slot
    return -1


@kernel(_UNITS)
def _locate(  # type: ignore[no-untyped-def]
    first,
    last,
    rows,
    row_edge,
    row_vertex,
    row_work,
    edge_neighbour,
    start,
    length,
    pool,
    edge_slot,
):
    row = first_from(row_work, rows, first + 1) - 1
    while row_work[row] < last:
        vertex = row_vertex[row]
        if vertex < len(length):
            base = row_work[row] + 1
            count = np.int64(length[vertex])
            begin = start[vertex]
            first_edge = row_edge[row]
            last_edge = row_edge[row + 1]
            from_slot = max(0, first - base)
            to_slot = min(count, last - base)
            if last_edge - first_edge <= _FEW_EDGES:
                entries = pool[begin + from_slot : begin + to_slot]
                for edge in range(first_edge, last_edge):
                    place = _place_of(edge_neighbour[edge], entries)
                    if place >= 0:
                        edge_slot[edge] = from_slot + place
            else:
                for slot in range(from_slot, to_slot):
                    neighbour = pool[begin + slot]
                    low = first_edge
                    high = last_edge
                    while low < high:
                        middle = (low + high) // 2
                        if edge_neighbour[middle] < neighbour:
                            low = middle + 1
                        else:
                            high = middle
                    if low < last_edge and edge_neighbour[low] == neighbour:
                        edge_slot[low] = slot
        row += 1


@sequential
def _decide(  # type: ignore[no-untyped-def]
    keys,
    loop,
    fixed_loops,
    edge_operation,
    edge_neighbour,
    edge_row,
    edge_slot,
    row_edge,
    row_vertex,
    row_loop,
    row_removed,
    row_added,
    removed_row,
    removed_neighbour,
    removed_slot,
    added_row,
    added_neighbour,
    opposite,
    counters,
):
    edges = counters[_EDGES]
    rows = counters[_ROWS]
    removals = 0
    additions = 0
    for edge in range(edges):
        row = edge_row[edge]
        vertex = np.int64(row_vertex[row])
        neighbour = np.int64(edge_neighbour[edge])
        if row_edge[row] == edge:
            row_removed[row] = removals
            row_added[row] = additions
        is_loop = vertex == neighbour
        if is_loop and fixed_loops:
            continue
        deletes = keys[edge_operation[edge]] & 1 == 0
        inserts = keys[edge_operation[edge + 1] - 1] & 1 == 1
        present = edge_slot[edge] >= 0
        if is_loop:
            present = vertex < len(loop) and loop[vertex] != 0
        if present and deletes:
            counters[_DELETED] += 1
        if inserts and (deletes or not present):
            counters[_INSERTED] += 1
        removed = present and deletes and not inserts
        added = inserts and not present
        if not removed and not added:
            continue
        if is_loop:
            row_loop[row] = 1 if added else -1
        else:
            opposite[removals + additions] = neighbour << 32 | vertex << 1 | (1 if added else 0)
        if removed:
            removed_row[removals] = row
            removed_neighbour[removals] = neighbour
            removed_slot[removals] = edge_slot[edge]
            removals += 1
        else:
            added_row[additions] = row
            added_neighbour[additions] = neighbour
            additions += 1
    row_removed[rows] = removals
    row_added[rows] = additions
    counters[_REMOVED] = removals
    counters[_ADDED] = additions


@sequential
def _plan(  # type: ignore[no-untyped-def]
    row_vertex,
    row_loop,
    row_removed,
    row_added,
    length,
    capacity,
    new_length,
    new_start,
    move_work,
    changed_row,
    counters,
):
    rows = counters[_ROWS]
    work = np.int64(0)
    for row in range(rows):
        vertex = row_vertex[row]
        loop = row_loop[row]
        removed = row_removed[row + 1] - row_removed[row] - (1 if loop < 0 else 0)
        added = row_added[row + 1] - row_added[row] - (1 if loop > 0 else 0)
        known = vertex < len(length)
        before = np.int64(length[vertex]) if known else np.int64(0)
        after = before + added - removed
        new_length[row] = after
        move_work[row] = work
        work += 1
        if after > (capacity[vertex] if known else 0):
            new_start[row] = counters[_NEEDED]
            counters[_NEEDED] += _roomy(after)
            work += before
        else:
            new_start[row] = -1
        if removed != 0 or added != 0 or loop != 0:
            changed_row[counters[_CHANGED]] = row
            counters[_CHANGED] += 1
        if added > removed:
            counters[_MOST] += _roomy(after)
        else:
            counters[_EMPTIED] += removed - added
        counters[_GROWTH] += _tight(after) - _tight(before)
        # chunks are of equal work, so that work is what strays
        counters[_STRAYED] += abs(after - before)
        counters[_LONGEST] = max(counters[_LONGEST], after)
    move_work[rows] = work


@kernel(_UNITS)
def _move_rows(  # type: ignore[no-untyped-def]
    first, last, rows, row_vertex, new_start, move_work, start, length, end, pool
):
    row = first_from(move_work, rows, first + 1) - 1
    while move_work[row] < last:
        if new_start[row] >= 0:
            vertex = row_vertex[row]
            base = move_work[row] + 1
            source = start[vertex]
            target = end + new_start[row]
            for slot in range(max(0, first - base), min(np.int64(length[vertex]), last - base)):
                pool[target + slot] = pool[source + slot]
        row += 1


@kernel(_ITEMS)
def _place(  # type: ignore[no-untyped-def]
    first,
    last,
    removals,
    row_vertex,
    row_loop,
    row_removed,
    row_added,
    removed_row,
    removed_neighbour,
    removed_slot,
    added_row,
    added_neighbour,
    new_start,
    start,
    length,
    end,
    pool,
):
    for item in range(first, last):
        adds = item >= removals
        at = item - removals if adds else item
        row = added_row[at] if adds else removed_row[at]
        neighbour = added_neighbour[at] if adds else removed_neighbour[at]
        vertex = row_vertex[row]
        if neighbour == vertex:
            continue
        loop = row_loop[row]
        base = end + new_start[row] if new_start[row] >= 0 else start[vertex]
        later = 1 if neighbour > vertex else 0
        if adds:
            rank = at - row_added[row] - (later if loop > 0 else 0)
            removed = row_removed[row + 1] - row_removed[row] - (1 if loop < 0 else 0)
            slot = np.int64(length[vertex]) + rank - removed
            if rank < removed:
                reused = row_removed[row] + rank
                if loop < 0 and removed_neighbour[reused] >= vertex:
                    reused += 1
                slot = np.int64(removed_slot[reused])
            pool[base + slot] = neighbour
        else:
            rank = at - row_removed[row] - (later if loop < 0 else 0)
            added = row_added[row + 1] - row_added[row] - (1 if loop > 0 else 0)
            if rank >= added:
                pool[base + removed_slot[at]] = -1


@sequential
def _set_loops(  # type: ignore[no-untyped-def]
    row_vertex, edge_row, edge_neighbour, loop, value, sources, targets
):
    for at in range(len(sources)):
        vertex = row_vertex[edge_row[at]]
        sources[at] = vertex
        targets[at] = edge_neighbour[at]
        if vertex == edge_neighbour[at]:
            loop[vertex] = value


@sequential
def _find_holes(  # type: ignore[no-untyped-def]
    removals,
    row_vertex,
    row_loop,
    row_removed,
    row_added,
    removed_row,
    removed_neighbour,
    removed_slot,
    new_length,
    start,
    pool,
    hole,
    filler,
    counters,
):
    holes = 0
    fillers = 0
    for at in range(removals):
        row = removed_row[at]
        neighbour = removed_neighbour[at]
        vertex = row_vertex[row]
        loop = row_loop[row]
        added = row_added[row + 1] - row_added[row] - (1 if loop > 0 else 0)
        rank = at - row_removed[row] - (1 if loop < 0 and neighbour > vertex else 0)
        if neighbour == vertex or rank < added:
            continue
        begin = start[vertex]
        end = np.int64(new_length[row])
        if removed_slot[at] < end:
            hole[holes] = begin + removed_slot[at]
            holes += 1
        last = pool[begin + end + rank - added]
        if last >= 0:
            filler[fillers] = last
            fillers += 1
    counters[_HOLES] = holes


@kernel(_ITEMS)
def _fill_holes(first, last, hole, filler, pool):  # type: ignore[no-untyped-def]
    for at in range(first, last):
        pool[hole[at]] = filler[at]


@kernel(_ITEMS)
def _finish(  # type: ignore[no-untyped-def]
    first, last, changed_row, row_vertex, new_length, new_start, end, start, length, capacity
):
    for at in range(first, last):
        row = changed_row[at]
        vertex = row_vertex[row]
        length[vertex] = new_length[row]
        if new_start[row] >= 0:
            start[vertex] = end + new_start[row]
            capacity[vertex] = _roomy(new_length[row])


@kernel(_ITEMS)
def _finish_degrees(  # type: ignore[no-untyped-def]
    first,
    last,
    changed_row,
    row_vertex,
    row_loop,
    new_length,
    length,
    loop,
    degree,
    sources,
    old_degree,
):
    for at in range(first, last):
        row = changed_row[at]
        vertex = row_vertex[row]
        sources[at] = vertex
        old_degree[at] = length[vertex] + np.int32(loop[vertex]) - row_loop[row]
        degree[vertex] = new_length[row] + np.int32(loop[vertex])


@sequential
def _distinct(keys, loop):  # type: ignore[no-untyped-def]
    kept = 0
    loops = 0
    before = np.int64(-1)
    for at in range(len(keys)):
        key = keys[at]
        if key == _NO_KEY:
            break
        if key != before:
            if key >> 32 == key >> 1 & _NEIGHBOUR:
                loop[key >> 32] = 1
                loops += 1
            else:
                keys[kept] = key
                kept += 1
        before = key
    return kept, loops


@sequential
def _row_lengths(keys, edges, low, first, length):  # type: ignore[no-untyped-def]
    for at in range(edges):
        row = (keys[at] >> 32) - low
        if length[row] == 0:
            first[row] = at
        length[row] += 1
    packed = np.int64(0)
    longest = 0
    for row in range(len(length)):
        packed += _tight(np.int64(length[row]))
        longest = max(longest, length[row])
    return packed, longest


@kernel(_ITEMS)
def _fill_rows(first, last, keys, low, first_key, start, pool):  # type: ignore[no-untyped-def]
    for at in range(first, last):
        row = (keys[at] >> 32) - low
        pool[start[row] + at - first_key[row]] = keys[at] >> 1 & _NEIGHBOUR


@sequential
def _pack_rows(length, begin, start, capacity):  # type: ignore[no-untyped-def]
    end = np.int64(begin)
    for row in range(len(length)):
        start[row] = end
        capacity[row] = _tight(length[row])
        end += capacity[row]


@kernel(_UNITS)
def _copy_rows(first, last, start, length, pool, new_start, new_pool):  # type: ignore[no-untyped-def]
    """Copies the rows that begin in these slots of the new pool."""
    vertices = len(length)
    row = first_from(new_start, vertices, first)
    while row < vertices and new_start[row] < last:
        for slot in range(length[row]):
            new_pool[new_start[row] + slot] = pool[start[row] + slot]
        row += 1


@kernel(_ITEMS)
def _list_entries(  # type: ignore[no-untyped-def]
    first, last, start, length, before, pool, rows, neighbours
):
    for row in range(first, last):
        for slot in range(length[row]):
            rows[before[row] + slot] = row
            neighbours[before[row] + slot] = pool[start[row] + slot]


class CpuGraphOperations(Backend):
    """Operations on adjacencies; see Backend."""

    def columns(self, sources: Array, targets: Array) -> tuple[Array, Array]:
        return sources, targets

    def sorted_keys(
        self, columns: list[tuple[int, Array, Array]], vertices: tuple[int, int], positions: Array
    ) -> Array:
        total = sum(len(sources) for _, sources, _ in columns)
        keys = self.allocate("keys of a batch", total, np.int64)
        begin = 0
        for operation, sources, targets in columns:
            end = begin + len(sources)
            if end > begin:
                _pack(
                    end - begin,
                    sources,
                    targets,
                    operation,
                    vertices[operation],
                    positions,
                    keys[begin:end],
                )
            begin = end
        return self.sort(keys)

    def sort(self, keys: Array) -> Array:
        keys.sort()
        return keys

    def resolve(
        self, adjacency: Adjacency, loop: Array, fixed_loops: bool, keys: Array, edit: Edit
    ) -> None:
        _heads(
            keys,
            adjacency.length,
            edit.edge_operation,
            edit.edge_neighbour,
            edit.edge_row,
            edit.edge_slot,
            edit.row_edge,
            edit.row_vertex,
            edit.row_loop,
            edit.row_work,
            edit.opposite,
            edit.counters,
        )
        rows = edit.counters[_ROWS]
        _locate(
            edit.row_work[rows],
            rows,
            edit.row_edge,
            edit.row_vertex,
            edit.row_work,
            edit.edge_neighbour,
            adjacency.start,
            adjacency.length,
            adjacency.pool,
            edit.edge_slot,
        )
        _decide(
            keys,
            loop,
            fixed_loops,
            edit.edge_operation,
            edit.edge_neighbour,
            edit.edge_row,
            edit.edge_slot,
            edit.row_edge,
            edit.row_vertex,
            edit.row_loop,
            edit.row_removed,
            edit.row_added,
            edit.removed_row,
            edit.removed_neighbour,
            edit.removed_slot,
            edit.added_row,
            edit.added_neighbour,
            edit.opposite,
            edit.counters,
        )

    def plan(self, adjacency: Adjacency, operations: int, edit: Edit) -> None:  # noqa: ARG002
        _plan(
            edit.row_vertex,
            edit.row_loop,
            edit.row_removed,
            edit.row_added,
            adjacency.length,
            adjacency.capacity,
            edit.new_length,
            edit.new_start,
            edit.move_work,
            edit.changed_row,
            edit.counters,
        )

    def change(
        self,
        adjacency: Adjacency,
        edit: Edit,
        counts: Counts,
        loop: Array,
        degree: Array,
        report: tuple[Array, ...],
    ) -> None:
        if counts.needed:
            _move_rows(
                edit.move_work[counts.rows],
                counts.rows,
                edit.row_vertex,
                edit.new_start,
                edit.move_work,
                adjacency.start,
                adjacency.length,
                adjacency.end,
                adjacency.pool,
            )
        _place(
            counts.removed + counts.added,
            counts.removed,
            edit.row_vertex,
            edit.row_loop,
            edit.row_removed,
            edit.row_added,
            edit.removed_row,
            edit.removed_neighbour,
            edit.removed_slot,
            edit.added_row,
            edit.added_neighbour,
            edit.new_start,
            adjacency.start,
            adjacency.length,
            adjacency.end,
            adjacency.pool,
        )
        if counts.emptied:
            # the room of what is no longer needed: work and the slots of edges
            hole, filler = edit.row_work, edit.edge_slot
            _find_holes(
                counts.removed,
                edit.row_vertex,
                edit.row_loop,
                edit.row_removed,
                edit.row_added,
                edit.removed_row,
                edit.removed_neighbour,
                edit.removed_slot,
                edit.new_length,
                adjacency.start,
                adjacency.pool,
                hole,
                filler,
                edit.counters,
            )
            _fill_holes(int(edit.counters[_HOLES]), hole, filler, adjacency.pool)
        if report:
            sources, old_degree, *edges = report
            _set_loops(
                edit.row_vertex, edit.removed_row, edit.removed_neighbour, loop, 0, *edges[:2]
            )
            _set_loops(edit.row_vertex, edit.added_row, edit.added_neighbour, loop, 1, *edges[2:])
            _finish_degrees(
                counts.changed,
                edit.changed_row,
                edit.row_vertex,
                edit.row_loop,
                edit.new_length,
                adjacency.length,
                loop,
                degree,
                sources,
                old_degree,
            )
        _finish(
            counts.changed,
            edit.changed_row,
            edit.row_vertex,
            edit.new_length,
            edit.new_start,
            adjacency.end,
            adjacency.start,
            adjacency.length,
            adjacency.capacity,
        )

    def distinct(self, keys: Array, loop: Array) -> tuple[int, int]:
        kept, loops = _distinct(keys, loop)
        return int(kept), int(loops)

    def row_ranges(
        self,
        rows: Array,
        vertices: int,
        most: int,  # noqa: ARG002
        positions: Array,  # noqa: ARG002
    ) -> list[tuple[int, int, int]]:
        # keys are sorted in place here: a range at a time would save little
        return [(0, vertices, len(rows))]

    def keys_of_range(
        self, rows: Array, neighbours: Array, chosen: tuple[int, int, int], positions: Array
    ) -> Array:
        return self.sorted_keys([(1, rows, neighbours)], (0, chosen[1]), positions)

    def row_lengths(
        self, keys: Array, edges: int, low: int, first: Array, length: Array
    ) -> tuple[int, int]:
        packed, longest = _row_lengths(keys, edges, low, first, length)
        return int(packed), int(longest)

    def fill_rows(
        self, keys: Array, edges: int, low: int, first: Array, start: Array, pool: Array
    ) -> None:
        _fill_rows(edges, keys, low, first, start, pool)

    def pack_rows(self, length: Array, begin: int, start: Array, capacity: Array) -> None:
        _pack_rows(length, begin, start, capacity)

    def copy_rows(
        self,
        start: Array,
        length: Array,
        pool: Array,
        new_start: Array,
        new_end: int,
        new_pool: Array,
    ) -> None:
        _copy_rows(new_end + 1, start, length, pool, new_start[: len(length)], new_pool)

    def entries(self, adjacency: Adjacency) -> tuple[Array, Array]:
        before = np.zeros(adjacency.vertices + 1, np.int64)
        np.cumsum(adjacency.length, out=before[1:])
        rows = self.allocate("list of edges", int(before[-1]), np.int32)
        neighbours = self.allocate("list of edges", int(before[-1]), np.int32)
        _list_entries(
            adjacency.vertices,
            adjacency.start,
            adjacency.length,
            before,
            adjacency.pool,
            rows,
            neighbours,
        )
        return rows, neighbours
