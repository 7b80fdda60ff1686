"""Numba kernels that find, plan and apply what a batch changes in one direction of a graph: the
steps of resolve_update.cu and apply_update.cu of ``cuda``, on the same arrays.

Steps that read or copy rows run on all cores, which share them by work. Steps along the sorted
batch are cheaper than its sort and run on one core. Kernels take groups of arrays of a BatchPlan as
tuples (gpu.backends.plan_arrays).
"""

from __future__ import annotations

import numpy as np

from gpu.backends.cpu.rows import first_from
from gpu.jit.compile import helper, kernel, sequential
from gpu.operations.csr import ALIGNMENT
from gpu.operations.update import COUNTERS

NO_KEY = np.iinfo(np.int64).max
NEIGHBOUR = 0x7FFFFFFF

UNITS = 1 << 13
"""Units of work, rows and entries, that a core takes at a time."""

ITEMS = 1 << 12
"""Edges, rows or slots that a core takes at a time."""

_FEW_EDGES = 8
"""Edges of a row up to which each is compared with all entries, instead of a search per entry."""

_STRIP = 256
"""Entries that are compared with an edge before the result is tested."""


(_EDGES, _ROWS, _INSERTED, _DELETED, _REMOVED, _ADDED, _CHANGED) = map(
    COUNTERS.index, ("EDGES", "ROWS", "INSERTED", "DELETED", "REMOVED", "ADDED", "CHANGED")
)
(_NEEDED, _MOST, _GROWTH, _EMPTIED, _MISBINNED, _LONGEST, _HOLES) = map(
    COUNTERS.index, ("NEEDED", "MOST", "GROWTH", "EMPTIED", "MISBINNED", "LONGEST", "HOLES")
)


@helper
def packed_slots(length):  # type: ignore[no-untyped-def]
    """Slots of a row without slack."""
    return (length + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


@helper
def _roomy_slots(length):  # type: ignore[no-untyped-def]
    """Slots of a row that outgrew its capacity: a quarter more than it needs."""
    return packed_slots(length + length // 4)


@helper
def _change_of(row, changes):  # type: ignore[no-untyped-def]
    """A row's vertex, change of its loop, and numbers of entries removed and added."""
    row_vertex, row_loop, row_removed, row_added = changes
    loop = row_loop[row]
    removed = row_removed[row + 1] - row_removed[row] - (1 if loop < 0 else 0)
    added = row_added[row + 1] - row_added[row] - (1 if loop > 0 else 0)
    return row_vertex[row], loop, removed, added


@sequential
def find_rows(keys, row_lengths, edge_arrays, row_arrays, opposite, counters):  # type: ignore[no-untyped-def]
    """Lists the distinct edges and rows of sorted keys."""
    edge_operation, edge_neighbour, edge_row, edge_slot = edge_arrays
    row_edge, row_vertex, row_loop, row_work = row_arrays
    edges = 0
    rows = 0
    work = np.int64(0)
    operations = 0
    before = np.int64(-1)
    for at in range(len(keys)):
        opposite[at] = NO_KEY
        key = keys[at]
        if key == NO_KEY:
            continue
        operations = at + 1
        if key >> 32 != before >> 32:
            vertex = key >> 32
            row_edge[rows] = edges
            row_vertex[rows] = vertex
            row_loop[rows] = 0
            row_work[rows] = work
            work += 1 + (np.int64(row_lengths[vertex]) if vertex < len(row_lengths) else 0)
            rows += 1
        if key >> 1 != before >> 1:
            edge_operation[edges] = at
            edge_neighbour[edges] = key >> 1 & NEIGHBOUR
            edge_row[edges] = rows - 1
            edge_slot[edges] = -1
            edges += 1
        before = key
    edge_operation[edges] = operations
    row_edge[rows] = edges
    row_work[rows] = work
    counters[_EDGES] = edges
    counters[_ROWS] = rows
    return rows, work


@helper
def _index_of(neighbour, entries):  # type: ignore[no-untyped-def]
    # the inner loop has no exit, so that it is vectorised
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


@kernel(UNITS)
def locate(first, last, rows, csr, row_arrays, edge_neighbour, edge_slot):  # type: ignore[no-untyped-def]
    """Finds the slots of the named edges. A unit of work is a row or one of its entries."""
    row_starts, row_lengths, column_indices = csr
    row_edge, row_vertex, _, row_work = row_arrays
    row = first_from(row_work, rows, first + 1) - 1
    while row_work[row] < last:
        vertex = row_vertex[row]
        if vertex < len(row_lengths):
            base = row_work[row] + 1
            count = np.int64(row_lengths[vertex])
            begin = row_starts[vertex]
            first_edge = row_edge[row]
            last_edge = row_edge[row + 1]
            from_slot = max(0, first - base)
            to_slot = min(count, last - base)
            if last_edge - first_edge <= _FEW_EDGES:
                entries = column_indices[begin + from_slot : begin + to_slot]
                for edge in range(first_edge, last_edge):
                    index = _index_of(edge_neighbour[edge], entries)
                    if index >= 0:
                        edge_slot[edge] = from_slot + index
            else:
                neighbours = edge_neighbour[first_edge:last_edge]
                for slot in range(from_slot, to_slot):
                    neighbour = column_indices[begin + slot]
                    index = first_from(neighbours, len(neighbours), neighbour)
                    if index < len(neighbours) and neighbours[index] == neighbour:
                        edge_slot[first_edge + index] = slot
        row += 1


@sequential
def decide(  # type: ignore[no-untyped-def]
    keys,
    loop,
    fixed_loops,
    edge_arrays,
    row_edge,
    row_changes,
    removed_arrays,
    added_arrays,
    opposite,
    counters,
):
    """Lists the removed and the added edges, and their keys for the transpose."""
    edge_operation, edge_neighbour, edge_row, edge_slot = edge_arrays
    row_vertex, row_loop, row_removed, row_added = row_changes
    removed_row, removed_neighbour, removed_slot = removed_arrays
    added_row, added_neighbour = added_arrays
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
def plan_rows(  # type: ignore[no-untyped-def]
    row_changes, row_lengths, capacities, new_length, new_start, move_work, changed_row, counters
):
    """GraphOperations.plan_rows."""
    rows = counters[_ROWS]
    work = np.int64(0)
    for row in range(rows):
        vertex, loop, removed, added = _change_of(row, row_changes)
        known = vertex < len(row_lengths)
        before = np.int64(row_lengths[vertex]) if known else np.int64(0)
        after = before + added - removed
        new_length[row] = after
        move_work[row] = work
        work += 1
        if after > (capacities[vertex] if known else 0):
            new_start[row] = counters[_NEEDED]
            counters[_NEEDED] += _roomy_slots(after)
            work += before
        else:
            new_start[row] = -1
        if removed != 0 or added != 0 or loop != 0:
            changed_row[counters[_CHANGED]] = row
            counters[_CHANGED] += 1
        if added > removed:
            counters[_MOST] += _roomy_slots(after)
        else:
            counters[_EMPTIED] += removed - added
        counters[_GROWTH] += packed_slots(after) - packed_slots(before)
        # chunks have equal work, so what counts is by how much that changes
        counters[_MISBINNED] += abs(after - before)
        counters[_LONGEST] = max(counters[_LONGEST], after)
    move_work[rows] = work


@kernel(UNITS)
def move_rows(first, last, rows, csr, row_vertex, new_start, move_work, end):  # type: ignore[no-untyped-def]
    """Copies the rows that outgrow their capacity behind slot `end`."""
    row_starts, row_lengths, column_indices = csr
    row = first_from(move_work, rows, first + 1) - 1
    while move_work[row] < last:
        if new_start[row] >= 0:
            vertex = row_vertex[row]
            base = move_work[row] + 1
            source = row_starts[vertex]
            target = end + new_start[row]
            count = np.int64(row_lengths[vertex])
            for slot in range(max(0, first - base), min(count, last - base)):
                column_indices[target + slot] = column_indices[source + slot]
        row += 1


@kernel(ITEMS)
def place_changes(  # type: ignore[no-untyped-def]
    first,
    last,
    outgoing,
    removals,
    csr,
    row_changes,
    removed_arrays,
    added_arrays,
    new_start,
    end,
    loop,
    changed_edges,
):
    """Writes the additions, and -1 into the slots of removed entries that none of them takes. For
    the out-lists also updates loops and lists the ends of the changed edges.
    """
    row_starts, row_lengths, column_indices = csr
    _, _, row_removed, row_added = row_changes
    removed_row, removed_neighbour, removed_slot = removed_arrays
    added_row, added_neighbour = added_arrays
    removed_sources, removed_targets, added_sources, added_targets = changed_edges
    for item in range(first, last):
        adds = item >= removals
        at = item - removals if adds else item
        row = added_row[at] if adds else removed_row[at]
        neighbour = added_neighbour[at] if adds else removed_neighbour[at]
        vertex, loop_change, removed, added = _change_of(row, row_changes)
        if outgoing:
            if adds:
                added_sources[at] = vertex
                added_targets[at] = neighbour
            else:
                removed_sources[at] = vertex
                removed_targets[at] = neighbour
        if neighbour == vertex:
            loop[vertex] = 1 if adds else 0
            continue
        base = end + new_start[row] if new_start[row] >= 0 else row_starts[vertex]
        later = 1 if neighbour > vertex else 0
        if adds:
            rank = at - row_added[row] - (later if loop_change > 0 else 0)
            slot = np.int64(row_lengths[vertex]) + rank - removed
            if rank < removed:
                reused = row_removed[row] + rank
                if loop_change < 0 and removed_neighbour[reused] >= vertex:
                    reused += 1
                slot = np.int64(removed_slot[reused])
            column_indices[base + slot] = neighbour
        else:
            rank = at - row_removed[row] - (later if loop_change < 0 else 0)
            if rank >= added:
                column_indices[base + removed_slot[at]] = -1


@sequential
def find_holes(  # type: ignore[no-untyped-def]
    removals, csr, row_changes, removed_arrays, new_length, hole, filler, counters
):
    """Pairs the empty slots of each row that shrinks with the entries behind its new end."""
    row_starts, _, column_indices = csr
    _, _, row_removed, _ = row_changes
    removed_row, removed_neighbour, removed_slot = removed_arrays
    holes = 0
    fillers = 0
    for at in range(removals):
        row = removed_row[at]
        neighbour = removed_neighbour[at]
        vertex, loop, _, added = _change_of(row, row_changes)
        rank = at - row_removed[row] - (1 if loop < 0 and neighbour > vertex else 0)
        if neighbour == vertex or rank < added:
            continue
        begin = row_starts[vertex]
        end = np.int64(new_length[row])
        if removed_slot[at] < end:
            hole[holes] = begin + removed_slot[at]
            holes += 1
        last = column_indices[begin + end + rank - added]
        if last >= 0:
            filler[fillers] = last
            fillers += 1
    counters[_HOLES] = holes
    return holes


@kernel(ITEMS)
def fill_holes(first, last, hole, filler, column_indices):  # type: ignore[no-untyped-def]
    for at in range(first, last):
        column_indices[hole[at]] = filler[at]


@kernel(ITEMS)
def finish_rows(  # type: ignore[no-untyped-def]
    first,
    last,
    outgoing,
    changed_row,
    row_vertex,
    row_loop,
    new_length,
    new_start,
    end,
    csr,
    capacities,
    loop,
    degree,
    sources,
    old_degree,
):
    """Updates starts, lengths and capacities; for the out-lists also degrees, and lists the changed
    rows with their old degrees.
    """
    row_starts, row_lengths, _ = csr
    for at in range(first, last):
        row = changed_row[at]
        vertex = row_vertex[row]
        if outgoing:
            sources[at] = vertex
            old_degree[at] = row_lengths[vertex] + np.int32(loop[vertex]) - row_loop[row]
            degree[vertex] = new_length[row] + np.int32(loop[vertex])
        row_lengths[vertex] = new_length[row]
        if new_start[row] >= 0:
            row_starts[vertex] = end + new_start[row]
            capacities[vertex] = _roomy_slots(new_length[row])
