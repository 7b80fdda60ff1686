"""Numba kernels that plan and apply what a batch changes in one direction of a graph: the steps of
apply_update.cu of ``cuda``, on the same arrays.

Rows are copied on all cores, which share them by work. Kernels take groups of arrays of a BatchPlan
as tuples (gpu.backends.plan_arrays). Weights are None for an unweighted graph; each kind of graph
is compiled separately.
"""

from __future__ import annotations

import numpy as np

from gpu.backends.cpu.resolve_kernels import UNITS
from gpu.backends.cpu.rows import first_from
from gpu.jit.compile import helper, kernel, sequential
from gpu.operations.csr import ALIGNMENT
from gpu.operations.update import COUNTERS, LOOP_REWEIGHTED

ITEMS = 1 << 12
"""Edges, rows or slots that a core takes at a time."""

_ROWS, _CHANGED, _NEEDED, _MOST, _GROWTH, _EMPTIED, _MISBINNED, _LONGEST, _HOLES = map(
    COUNTERS.index,
    (
        "ROWS",
        "CHANGED",
        "NEEDED",
        "MOST",
        "GROWTH",
        "EMPTIED",
        "MISBINNED",
        "LONGEST",
        "HOLES",
    ),
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
def _loses_loop(loop_change):  # type: ignore[no-untyped-def]
    return loop_change < 0 or loop_change == LOOP_REWEIGHTED


@helper
def _change_of(row, changes):  # type: ignore[no-untyped-def]
    """A row's vertex, change of its loop, and numbers of entries removed and added."""
    row_vertex, row_loop, row_removed, row_added = changes
    loop = row_loop[row]
    removed = row_removed[row + 1] - row_removed[row] - (1 if _loses_loop(loop) else 0)
    added = row_added[row + 1] - row_added[row] - (1 if loop > 0 else 0)
    return row_vertex[row], loop, removed, added


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
def move_rows(  # type: ignore[no-untyped-def]
    first, last, rows, csr, row_vertex, new_start, move_work, end, weights
):
    """Copies the rows that outgrow their capacity behind slot `end`."""
    row_starts, row_lengths, column_indices, _ = csr
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
                if weights is not None:
                    weights[target + slot] = weights[source + slot]
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
    weights,
    removed_weights,
    added_weights,
    changed_weights,
):
    """Writes the additions, and -1 into the slots of removed entries that none of them takes. For
    the out-lists also updates loops and lists the ends and weights of the changed edges.
    """
    row_starts, row_lengths, column_indices, _ = csr
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
            if changed_weights is not None:
                if adds:
                    changed_weights[1][at] = added_weights[at]
                else:
                    changed_weights[0][at] = removed_weights[at]
        if neighbour == vertex:
            if weights is None:
                loop[vertex] = 1 if adds else 0
            elif adds:
                loop[vertex] = added_weights[at]
            elif loop_change < 0:
                loop[vertex] = 0.0
            continue
        base = end + new_start[row] if new_start[row] >= 0 else row_starts[vertex]
        later = 1 if neighbour > vertex else 0
        if adds:
            rank = at - row_added[row] - (later if loop_change > 0 else 0)
            slot = np.int64(row_lengths[vertex]) + rank - removed
            if rank < removed:
                reused = row_removed[row] + rank
                if _loses_loop(loop_change) and removed_neighbour[reused] >= vertex:
                    reused += 1
                slot = np.int64(removed_slot[reused])
            column_indices[base + slot] = neighbour
            if weights is not None:
                weights[base + slot] = added_weights[at]
        else:
            rank = at - row_removed[row] - (later if _loses_loop(loop_change) else 0)
            if rank >= added:
                column_indices[base + removed_slot[at]] = -1


@sequential
def find_holes(  # type: ignore[no-untyped-def]
    removals,
    csr,
    row_changes,
    removed_arrays,
    new_length,
    hole,
    filler,
    counters,
    weights,
    filler_weights,
):
    """Pairs the empty slots of each row that shrinks with the entries behind its new end."""
    row_starts, _, column_indices, _ = csr
    _, _, row_removed, _ = row_changes
    removed_row, removed_neighbour, removed_slot = removed_arrays
    holes = 0
    fillers = 0
    for at in range(removals):
        row = removed_row[at]
        neighbour = removed_neighbour[at]
        vertex, loop, _, added = _change_of(row, row_changes)
        rank = at - row_removed[row] - (1 if _loses_loop(loop) and neighbour > vertex else 0)
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
            if weights is not None:
                filler_weights[fillers] = weights[begin + end + rank - added]
            fillers += 1
    counters[_HOLES] = holes
    return holes


@kernel(ITEMS)
def fill_holes(  # type: ignore[no-untyped-def]
    first, last, hole, filler, column_indices, filler_weights, weights
):
    for at in range(first, last):
        column_indices[hole[at]] = filler[at]
        if weights is not None:
            weights[hole[at]] = filler_weights[at]


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
    weights,
):
    """Updates starts, lengths and capacities; for the out-lists also lists the changed rows with
    their old degrees or strengths, and updates the degrees. (Strengths are summed afterwards.)
    """
    row_starts, row_lengths, _, _ = csr
    for at in range(first, last):
        row = changed_row[at]
        vertex = row_vertex[row]
        if outgoing:
            sources[at] = vertex
            if weights is None:
                old_degree[at] = row_lengths[vertex] + np.int32(loop[vertex]) - row_loop[row]
                degree[vertex] = new_length[row] + np.int32(loop[vertex])
            else:
                old_degree[at] = degree[vertex]
        row_lengths[vertex] = new_length[row]
        if new_start[row] >= 0:
            row_starts[vertex] = end + new_start[row]
            capacities[vertex] = _roomy_slots(new_length[row])
