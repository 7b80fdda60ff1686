"""Numba kernels of the residual's operations: push, spread, recomputation and the candidates.

Of a push, the step Δy is what y' - y gives after rounding, and r keeps the rest: never fast-math.
"""

from __future__ import annotations

import numpy as np

from gpu.backends.cpu.rows import diagonal_of, residual_at
from gpu.backends.cpu.spread_kernels import (
    ADDITIONS,
    ENTRIES,
    LISTED_COUNT,
    MAGNITUDE,
    MASS,
    MOVED,
    QUEUED_COUNT,
    QUEUED_EDGES,
    RESIDUAL_L1,
    RESIDUAL_SUM,
    ROUNDS,
    VERTICES,
    Tally,
    WorkLists,
    enqueue,
    spread_rows,
    threshold_of,
)
from gpu.jit.compile import helper, sequential
from gpu.operations.csr import Csr
from gpu.operations.residual import LISTED, PUSH_ENDS, QUEUED, SOLVE_SHIFT

_GOAL, _FLOOR, _WORK, _OUT_OF_ROUNDS = range(len(PUSH_ENDS))

_SHORT_EDGES = 1 << 11
"""Out-edges of a work-list below which θ falls before the list is empty: near the end of a θ, mass
moves to and fro between a few vertices for hundreds of rounds.
"""

_SHORT_ROUNDS = 8
"""Rounds with such lists at the floor before the push ends."""


@helper
def _without_queue(r, marks, candidates, out_lengths, floor):  # type: ignore[no-untyped-def]
    return WorkLists(r, marks, candidates, candidates[:0], out_lengths, floor, np.inf, 0.0)


@sequential
def spread(  # type: ignore[no-untyped-def]
    sources,
    contributions,
    targets,
    amounts,
    row_starts,
    row_lengths,
    column_indices,
    weights,
    r,
    marks,
    candidates,
    floor,
    counts,
    sums,
):
    """ResidualOperations.spread."""
    outgoing, tally = Csr(row_starts, row_lengths, column_indices, weights), Tally(counts, sums)
    lists = _without_queue(r, marks, candidates, row_lengths, floor)
    edges = np.int64(0)
    for u in sources:
        edges += row_lengths[u]
    spread_rows(sources, contributions, edges, outgoing, lists, tally)
    for place in range(len(targets)):
        v = targets[place]
        amount = amounts[place]
        old = np.float64(r[v])
        r[v] = old + amount
        size = abs(np.float64(r[v]))
        sums[RESIDUAL_L1] += size - abs(old)
        sums[MAGNITUDE] += size
        sums[RESIDUAL_SUM] += amount
        sums[MOVED] += abs(amount)
    counts[ADDITIONS] += len(targets)
    enqueue(targets, lists, counts)


@helper
def _requeue(damping, loop, degree, values, lists, counts):  # type: ignore[no-untyped-def]
    """Replaces the queue by the candidates above θ, drops candidates that are no longer above the
    floor, and returns the largest θ that one of the others exceeds. An r too small to change y is
    not queued until it has grown.
    """
    r, marks, candidates = lists.r, lists.marks, lists.candidates
    kept = 0
    queued = 0
    queued_edges = 0
    largest = 0.0
    for place in range(counts[LISTED_COUNT]):
        v = candidates[place]
        size = abs(np.float64(r[v]))
        mark = marks[v] & ~QUEUED
        if size <= lists.floor:
            marks[v] = mark & ~LISTED
            continue
        candidates[kept] = v
        kept += 1
        length = lists.out_lengths[v]
        scaled = size / (1.0 + lists.edge_weight * length)
        if scaled > lists.threshold:
            diagonal = diagonal_of(degree[v], loop[v], damping)
            if values.dtype.type(values[v] + r[v] / diagonal) != values[v]:
                mark |= QUEUED
                lists.queue[queued] = v
                queued += 1
                queued_edges += length
        else:
            largest = max(largest, scaled)
        marks[v] = mark
    counts[LISTED_COUNT] = kept
    counts[QUEUED_COUNT] = queued
    counts[QUEUED_EDGES] = queued_edges
    return largest


@helper
def _push_queued(  # type: ignore[no-untyped-def]
    queue, solve, damping, loop, degree, values, lists, contributions, tally
):
    """Moves the residual of each vertex of `queue` that is above its threshold to y. Returns how
    many of them have out-edges, and how many edges: they are moved to the front of the queue, and
    what each contributes is written.
    """
    counts, sums = tally.counts, tally.sums
    r, marks = lists.r, lists.marks
    pushed = 0
    edges = np.int64(0)
    for place in range(counts[QUEUED_COUNT]):
        u = queue[place]
        mark = marks[u] & ~QUEUED
        residual = np.float64(r[u])
        if abs(residual) <= threshold_of(lists, u):
            marks[u] = mark
            continue
        if mark >> SOLVE_SHIFT != solve:
            mark = mark & LISTED | solve << SOLVE_SHIFT
            counts[VERTICES] += 1
        marks[u] = mark
        d = degree[u]
        diagonal = diagonal_of(d, loop[u], damping)
        old = np.float64(values[u])
        values[u] = old + residual / diagonal
        step = np.float64(values[u]) - old
        r[u] = residual - diagonal * step
        rest = np.float64(r[u])
        sums[RESIDUAL_L1] += abs(rest) - abs(residual)
        sums[RESIDUAL_SUM] += rest - residual
        sums[MASS] += step
        sums[MOVED] += abs(residual)
        if d > 0:
            queue[pushed] = u
            contributions[pushed] = damping * step / d
            pushed += 1
            edges += lists.out_lengths[u]
    counts[QUEUED_COUNT] = 0
    counts[QUEUED_EDGES] = 0
    return pushed, edges


@sequential
def push(  # type: ignore[no-untyped-def]
    row_starts,
    row_lengths,
    column_indices,
    weights,
    loop,
    degree,
    values,
    damping,
    r,
    marks,
    candidates,
    floor,
    solve,
    residual_l1,
    residual_sum,
    mass,
    goal,
    threshold,
    edge_weight,
    round_edges,
    most_edges,
    most_rounds,
    counts,
    sums,
):
    """ResidualOperations.push. Returns how it ended, as a position in PUSH_ENDS, and the last θ."""
    outgoing, tally = Csr(row_starts, row_lengths, column_indices, weights), Tally(counts, sums)
    capacity = len(candidates)
    queue = np.empty_like(candidates)
    next_queue = np.empty_like(candidates)
    contributions = np.empty(capacity, np.float64)
    first = True
    selected = False
    short_rounds = 0
    while True:
        size = residual_l1 + sums[RESIDUAL_L1] + abs(residual_sum + sums[RESIDUAL_SUM])
        if size <= goal * (mass + sums[MASS]):
            end = _GOAL
            break
        if counts[LISTED_COUNT] > capacity or counts[ADDITIONS] > most_edges:
            end = _WORK
            break
        short = counts[QUEUED_EDGES] < _SHORT_EDGES and not selected
        if short and counts[QUEUED_COUNT] > 0 and threshold <= floor:
            short_rounds += 1
            if short_rounds > _SHORT_ROUNDS:
                end = _FLOOR
                break
        if counts[QUEUED_COUNT] == 0 or (short and threshold > floor):
            if not first:
                threshold = max(0.5 * threshold, floor)
            first = False
            selection = WorkLists(
                r, marks, candidates, queue, row_lengths, floor, threshold, edge_weight
            )
            largest = _requeue(damping, loop, degree, values, selection, counts)
            if counts[QUEUED_COUNT] == 0:
                if counts[LISTED_COUNT] == 0 or threshold <= max(floor, 0.0):
                    end = _FLOOR
                    break
                # nothing is above θ: it falls at once to where the next halving finds something
                threshold = min(threshold, 1.999 * largest)
                continue
            selected = True
        if counts[QUEUED_EDGES] > round_edges:
            end = _WORK
            break
        if counts[ROUNDS] == most_rounds:
            end = _OUT_OF_ROUNDS
            break
        counts[ROUNDS] += 1
        counts[ENTRIES] += counts[QUEUED_COUNT]
        selected = False
        following = WorkLists(
            r, marks, candidates, next_queue, row_lengths, floor, threshold, edge_weight
        )
        pushed, edges = _push_queued(
            queue, solve, damping, loop, degree, values, following, contributions, tally
        )
        spread_rows(queue[:pushed], contributions[:pushed], edges, outgoing, following, tally)
        queue, next_queue = next_queue, queue
    for place in range(counts[QUEUED_COUNT]):
        marks[queue[place]] &= ~QUEUED
    return end, threshold


@sequential
def recompute_rows(  # type: ignore[no-untyped-def]
    first,
    last,
    incoming,
    loop,
    degree,
    values,
    rhs_scale,
    damping,
    out_lengths,
    r,
    marks,
    candidates,
    floor,
    counts,
    sums,
):
    """ResidualOperations.recompute_rows."""
    lists = _without_queue(r, marks, candidates, out_lengths, floor)
    no_contributions = np.empty(0)
    above_floor = np.empty(last - first, np.int32)
    found = 0
    for v in range(first, last):
        old = np.float64(r[v])
        r[v], _ = residual_at(
            v, incoming, loop, degree, values, no_contributions, rhs_scale, damping
        )
        new = np.float64(r[v])
        size = abs(new)
        sums[RESIDUAL_L1] += size - abs(old)
        sums[RESIDUAL_SUM] += new - old
        sums[MAGNITUDE] += size
        if size > floor:
            above_floor[found] = v
            found += 1
    enqueue(above_floor[:found], lists, counts)


@sequential
def select_candidates(r, marks, floor, candidates):  # type: ignore[no-untyped-def]
    """ResidualOperations.select_candidates. Returns how many entries are above the floor."""
    listed = 0
    for v in range(len(r)):
        if abs(r[v]) > floor:
            if listed < len(candidates):
                candidates[listed] = v
            listed += 1
            marks[v] |= LISTED
        else:
            marks[v] &= ~LISTED
    return listed
