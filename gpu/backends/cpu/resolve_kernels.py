"""Numba kernels that find what a batch changes in one direction of a graph: the steps of
resolve_update.cu of ``cuda``, on the same arrays.

`locate` reads the named rows on all cores, which share them by work. The other steps go along the
sorted batch, which is cheaper than its sort, on one core. Kernels take groups of arrays of a
BatchPlan as tuples (gpu.backends.plan_arrays). Weights are None for an unweighted graph; each kind
of graph is compiled separately.
"""

from __future__ import annotations

import numpy as np

from gpu.backends.cpu.rows import first_from
from gpu.jit.compile import helper, kernel, sequential
from gpu.operations.update import COUNTERS, LAST_PLACE, LOOP_REWEIGHTED, NEIGHBOUR

NO_KEY = np.iinfo(np.int64).max

UNITS = 1 << 13
"""Units of work, rows and entries, that a core takes at a time."""

_FEW_EDGES = 8
"""Edges of a row up to which each is compared with all entries, instead of a search per entry."""

_STRIP = 256
"""Entries that are compared with an edge before the result is tested."""

_EDGES, _ROWS, _INSERTED, _DELETED, _REMOVED, _ADDED, _REWEIGHTED, _EXCEEDED = map(
    COUNTERS.index,
    ("EDGES", "ROWS", "INSERTED", "DELETED", "REMOVED", "ADDED", "REWEIGHTED", "EXCEEDED"),
)


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
    row_starts, row_lengths, column_indices, _ = csr
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


@helper
def summed_weight(weights, first, last, present, adds):  # type: ignore[no-untyped-def]
    """The weight of an edge after these insertions, in the order in which they were sent.

    present  its weight before them, 0 if it is absent
    """
    if not adds:
        return np.float64(weights[last - 1])
    total = np.float64(present)
    for at in range(first, last):
        total += np.float64(weights[at])
    return np.float64(np.float32(total))


@sequential
def decide(  # type: ignore[no-untyped-def]
    keys,
    loop,
    fixed_loops,
    directed,
    edge_arrays,
    row_edge,
    row_changes,
    removed_arrays,
    added_arrays,
    opposite,
    counters,
    weights,
    adds,
    row_starts,
    slot_weights,
    removed_weights,
    added_weights,
    opposite_weights,
):
    """Lists the removed and the added edges, and their keys for the transpose.

    weights  float32[keys], those of the operations, and other weights: None if unweighted
    """
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
        first = edge_operation[edge]
        last = edge_operation[edge + 1]
        deletes = keys[first] & 1 == 0
        inserts = keys[last - 1] & 1 == 1
        present = edge_slot[edge] >= 0
        if is_loop:
            present = vertex < len(loop) and loop[vertex] != 0
        counted = directed or vertex <= neighbour
        if counted and present and deletes:
            counters[_DELETED] += 1
        if counted and inserts and (deletes or not present):
            counters[_INSERTED] += 1
        removed = present and deletes and not inserts
        added = inserts and not present
        if weights is not None:
            before = 0.0
            if present:
                slot = row_starts[vertex] + edge_slot[edge] if not is_loop else np.int64(0)
                before = np.float64(loop[vertex] if is_loop else slot_weights[slot])
            after = 0.0 if deletes else before
            if inserts:
                while keys[first] & 1 == 0:
                    first += 1
                after = summed_weight(weights, first, last, after, adds)
                if np.isinf(after) and counters[_EXCEEDED] == 0:
                    counters[_EXCEEDED] = LAST_PLACE - last
                if counted and present and not deletes and after != before:
                    counters[_REWEIGHTED] += 1
            removed = present and after != before
            added = after > 0.0 and after != before
        if not removed and not added:
            continue
        if is_loop:
            row_loop[row] = 1 if added else -1
            if removed and added:
                row_loop[row] = LOOP_REWEIGHTED
        elif weights is None:
            opposite[removals + additions] = neighbour << 32 | vertex << 1 | (1 if added else 0)
        else:
            # an edge with another weight is counted twice
            opposite[edge] = neighbour << 32 | vertex << 1 | (1 if added else 0)
            opposite_weights[edge] = after
        if removed:
            removed_row[removals] = row
            removed_neighbour[removals] = neighbour
            removed_slot[removals] = edge_slot[edge]
            if weights is not None:
                removed_weights[removals] = before
            removals += 1
        if added:
            added_row[additions] = row
            added_neighbour[additions] = neighbour
            if weights is not None:
                added_weights[additions] = after
            additions += 1
    row_removed[rows] = removals
    row_added[rows] = additions
    counters[_REMOVED] = removals
    counters[_ADDED] = additions
