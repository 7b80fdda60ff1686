"""Numba kernels that add to the residual along out-lists, and list the entries that get large.

Few additions run on one core, in order, which is fastest there. Many run on all cores without
atomics: they are first written to buckets by target, and then each bucket is added by one core, in
the order in which one core alone would add them. The number of buckets is fixed, so results do not
depend on the number of threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpu.backends.cpu.rows import edge_amount, first_from, row_weight
from gpu.jit.compile import helper, on_all_cores, sequential, unsigned
from gpu.operations.residual import LISTED, QUEUED

RESIDUAL_L1, RESIDUAL_SUM, MASS, MOVED, MAGNITUDE = range(5)
"""Positions in Tally.sums: see gpu.operations.residual.ResidualDelta."""

SUMS = 5

LISTED_COUNT, QUEUED_COUNT, QUEUED_EDGES, ADDITIONS, ROUNDS, VERTICES, ENTRIES = range(7)
"""Positions in Tally.counts: candidates; the next work-list and its out-edges; additions, rounds,
distinct vertices pushed, and entries of work-lists.
"""

COUNTS = 7

PARALLEL_EDGES = 1 << 17
"""Fewer additions run on one core."""

_BUCKETS = 64


class Tally(NamedTuple):
    """What an operation counts and adds up.

    counts  int64[COUNTS]
    sums    float64[SUMS]
    """

    counts: Any
    sums: Any


class WorkLists(NamedTuple):
    """The residual and its lists of large entries.

    r            values[n]
    marks        int32[n]: see gpu.operations.residual.Residual
    candidates   int32[capacity]: entries with |r| > floor
    queue        int32[capacity], the next work-list; empty if nothing is to be queued
    out_lengths  int32[n]
    floor, threshold, edge_weight  an entry is queued if |r| > threshold·(1 + edge_weight·length)
    """

    r: Any
    marks: Any
    candidates: Any
    queue: Any
    out_lengths: Any
    floor: float
    threshold: float
    edge_weight: float


@helper
def threshold_of(lists, v):  # type: ignore[no-untyped-def]
    """What |r[v]| must exceed for v to be pushed."""
    return lists.threshold * (1.0 + lists.edge_weight * lists.out_lengths[v])


@helper
def enqueue(vertices, lists, counts):  # type: ignore[no-untyped-def]
    """Lists every v of `vertices` whose |r[v]| is above the floor as a candidate, and queues it if
    it is above its threshold. The queue is never longer than the candidates.
    """
    listed = counts[LISTED_COUNT]
    queued = counts[QUEUED_COUNT]
    queued_edges = counts[QUEUED_EDGES]
    for v in vertices:
        size = abs(np.float64(lists.r[v]))
        if size <= lists.floor:
            continue
        mark = lists.marks[v]
        if not mark & LISTED:
            if listed < len(lists.candidates):
                lists.candidates[listed] = v
                mark |= LISTED
            listed += 1
        if (
            size > lists.threshold
            and mark & LISTED
            and not mark & QUEUED
            and size > threshold_of(lists, v)
        ):
            lists.queue[queued] = v
            queued += 1
            queued_edges += lists.out_lengths[v]
            mark |= QUEUED
        lists.marks[v] = mark
    counts[LISTED_COUNT] = listed
    counts[QUEUED_COUNT] = queued
    counts[QUEUED_EDGES] = queued_edges


@sequential
def spread_in_order(sources, contributions, edges, outgoing, lists, tally):  # type: ignore[no-untyped-def]
    """r[v] += contributions[i] for every v in the out-list of sources[i], times the weight of the
    edge, on one core.

    edges  number of entries of these lists
    """
    row_starts, row_lengths, column_indices, weights = outgoing
    r, floor = lists.r, lists.floor
    above_floor = np.empty(edges + 1, np.int32)
    found = 0
    residual_l1 = 0.0
    residual_sum = 0.0
    moved = 0.0
    magnitude = 0.0
    for place in range(len(sources)):
        u = sources[place]
        contribution = contributions[place]
        sent = row_weight(row_lengths, weights, row_starts, u)
        residual_sum += contribution * sent
        moved += abs(contribution) * sent
        for slot in range(row_starts[u], row_starts[u] + row_lengths[u]):
            v = unsigned(column_indices[unsigned(slot)])
            old = np.float64(r[v])
            r[v] = old + edge_amount(contribution, weights, slot)
            size = abs(np.float64(r[v]))
            residual_l1 += size - abs(old)
            magnitude += size
            # without a branch, which would be unpredictable
            above_floor[unsigned(found)] = v
            found += size > floor
    tally.sums[RESIDUAL_L1] += residual_l1
    tally.sums[RESIDUAL_SUM] += residual_sum
    tally.sums[MOVED] += moved
    tally.sums[MAGNITUDE] += magnitude
    tally.counts[ADDITIONS] += edges
    enqueue(above_floor[:found], lists, tally.counts)


@sequential
def _count_targets(  # type: ignore[no-untyped-def]
    first_chunk, last_chunk, chunks, sources, ends, outgoing, shift, sizes
):
    """sizes[chunk, bucket]: how many of the chunk's edges have their target in the bucket."""
    row_starts, row_lengths, column_indices, _ = outgoing
    edges = ends[-1]
    for chunk in range(first_chunk, last_chunk):
        first = edges * chunk // chunks
        last = edges * (chunk + 1) // chunks
        place = first_from(ends, len(ends), first + 1)
        while first < last:
            u = sources[place]
            before = ends[place] - row_lengths[u]
            stop = min(last, ends[place])
            for slot in range(row_starts[u] + first - before, row_starts[u] + stop - before):
                sizes[chunk, unsigned(column_indices[unsigned(slot)] >> shift)] += 1
            first = stop
            place += 1


@sequential
def _write_additions(  # type: ignore[no-untyped-def]
    first_chunk,
    last_chunk,
    chunks,
    sources,
    contributions,
    ends,
    outgoing,
    shift,
    offsets,
    targets,
    amounts,
):
    """Writes the chunk's additions to each bucket from offsets[chunk, bucket] on."""
    row_starts, row_lengths, column_indices, weights = outgoing
    edges = ends[-1]
    for chunk in range(first_chunk, last_chunk):
        first = edges * chunk // chunks
        last = edges * (chunk + 1) // chunks
        place = first_from(ends, len(ends), first + 1)
        while first < last:
            u = sources[place]
            before = ends[place] - row_lengths[u]
            stop = min(last, ends[place])
            for slot in range(row_starts[u] + first - before, row_starts[u] + stop - before):
                v = column_indices[unsigned(slot)]
                bucket = unsigned(v >> shift)
                at = offsets[chunk, bucket]
                targets[unsigned(at)] = v
                amounts[unsigned(at)] = edge_amount(contributions[place], weights, slot)
                offsets[chunk, bucket] = at + 1
            first = stop
            place += 1


@sequential
def _add_buckets(  # type: ignore[no-untyped-def]
    first_bucket, last_bucket, limits, targets, amounts, r, floor, sums, above_floor
):
    """Adds what is between limits[bucket] and the next, and moves the targets that are now above
    the floor to the front, up to above_floor[bucket].
    """
    for bucket in range(first_bucket, last_bucket):
        residual_l1 = 0.0
        residual_sum = 0.0
        moved = 0.0
        magnitude = 0.0
        found = limits[bucket]
        for at in range(limits[bucket], limits[bucket + 1]):
            v = unsigned(targets[unsigned(at)])
            amount = amounts[unsigned(at)]
            old = np.float64(r[v])
            r[v] = old + amount
            size = abs(np.float64(r[v]))
            residual_l1 += size - abs(old)
            residual_sum += amount
            moved += abs(amount)
            magnitude += size
            if size > floor:
                # this slot has been read already
                targets[unsigned(found)] = v
                found += 1
        sums[bucket, RESIDUAL_L1] = residual_l1
        sums[bucket, RESIDUAL_SUM] = residual_sum
        sums[bucket, MOVED] = moved
        sums[bucket, MAGNITUDE] = magnitude
        above_floor[bucket] = found


_count_targets_on_all_cores = on_all_cores(_count_targets)
_write_additions_on_all_cores = on_all_cores(_write_additions)
_add_buckets_on_all_cores = on_all_cores(_add_buckets)


@sequential
def spread_in_buckets(sources, contributions, edges, outgoing, lists, tally):  # type: ignore[no-untyped-def]
    """`spread_in_order` on all cores."""
    # chunks of equal numbers of edges: a hub has many
    ends = np.empty(len(sources), np.int64)
    end = np.int64(0)
    for place in range(len(sources)):
        end += outgoing.row_lengths[sources[place]]
        ends[place] = end
    chunks = _BUCKETS
    shift = 0
    while len(lists.r) > _BUCKETS << shift:
        shift += 1
    offsets = np.zeros((chunks, _BUCKETS), np.int64)
    _count_targets_on_all_cores(chunks, 1, chunks, sources, ends, outgoing, shift, offsets)
    limits = np.empty(_BUCKETS + 1, np.int64)
    position = np.int64(0)
    for bucket in range(_BUCKETS):
        limits[bucket] = position
        for chunk in range(chunks):
            size = offsets[chunk, bucket]
            offsets[chunk, bucket] = position
            position += size
    limits[_BUCKETS] = position
    targets = np.empty(edges, np.int32)
    amounts = np.empty(edges, np.float64)
    _write_additions_on_all_cores(
        chunks, 1, chunks, sources, contributions, ends, outgoing, shift, offsets, targets, amounts
    )
    sums = np.zeros((_BUCKETS, SUMS))
    above_floor = np.empty(_BUCKETS, np.int64)
    _add_buckets_on_all_cores(
        _BUCKETS, 1, limits, targets, amounts, lists.r, lists.floor, sums, above_floor
    )
    for bucket in range(_BUCKETS):
        for place in range(SUMS):
            tally.sums[place] += sums[bucket, place]
        enqueue(targets[limits[bucket] : above_floor[bucket]], lists, tally.counts)
    tally.counts[ADDITIONS] += edges


@helper
def spread_rows(sources, contributions, edges, outgoing, lists, tally):  # type: ignore[no-untyped-def]
    """`spread_in_order`, or `spread_in_buckets` where that is faster."""
    if edges >= PARALLEL_EDGES:
        spread_in_buckets(sources, contributions, edges, outgoing, lists, tally)
    else:
        spread_in_order(sources, contributions, edges, outgoing, lists, tally)
