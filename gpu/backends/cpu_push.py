"""Numba kernels of the ``cpu`` backend that add to the residual: spread, push, refresh.

No fast-math here: `taken = (y + x) - y` must be what it says. Rounds of few edges run on one core,
in order, which is fastest there. Larger rounds run on all cores without atomics: the additions are
first written out in buckets by target, and then each bucket is added by one core, in the order that
one core alone would have. The buckets' number is fixed, so the results do not depend on the number
of threads.
"""

from __future__ import annotations

import numpy as np

from gpu.backends.base import LISTED, QUEUED, SOLVE_SHIFT
from gpu.backends.cpu_graph import first_from
from gpu.backends.parallel import helper, on_all_cores, sequential, unsigned

L1, SUM, TOTAL, MOVED, MAGNITUDE, SUMS = 0, 1, 2, 3, 4, 5
"""Places in the array of sums (see base.Moved), and how many there are."""

N_LISTED, N_QUEUED, QUEUED_EDGES, EDGES, ROUNDS, VERTICES, COUNTS = 0, 1, 2, 3, 4, 5, 6
"""Places in the array of counts: candidates, next work-list and its out-edges; additions, rounds
and distinct vertices pushed."""

GOAL, FLOOR, WORK, OUT_OF_ROUNDS = 0, 1, 2, 3

PARALLEL_EDGES = 1 << 17
"""Rounds of fewer edges run on one core."""

_BUCKETS = 64

_SHORT_EDGES = 1 << 11
"""Out-edges of a work-list below which θ falls before the list is empty: near the end of a θ mass
goes to and fro between a few vertices, for hundreds of rounds.
"""

_MOST_TAILS = 8
"""Rounds of short lists at the floor before the push ends there."""


@helper
def _join(  # type: ignore[no-untyped-def]
    lifted, r, marks, floor, threshold, weight, length, candidates, queue, counts
):
    """Puts every v of `lifted` whose |r[v]| is above the floor on the candidates, and on the queue
    if it is above θ. There are never more queued than candidates.
    """
    listed = counts[N_LISTED]
    queued = counts[N_QUEUED]
    queued_edges = counts[QUEUED_EDGES]
    for v in lifted:
        size = abs(np.float64(r[v]))
        if size <= floor:
            continue
        mark = marks[v]
        if not mark & LISTED:
            if listed < len(candidates):
                candidates[listed] = v
                mark |= LISTED
            listed += 1
        if (
            size > threshold
            and mark & LISTED
            and not mark & QUEUED
            and size > threshold * (1.0 + weight * length[v])
        ):
            queue[queued] = v
            queued += 1
            queued_edges += length[v]
            mark |= QUEUED
        marks[v] = mark
    counts[N_LISTED] = listed
    counts[N_QUEUED] = queued
    counts[QUEUED_EDGES] = queued_edges


@sequential
def _spread_in_order(  # type: ignore[no-untyped-def]
    sources,
    shares,
    edges,
    start,
    length,
    pool,
    r,
    marks,
    floor,
    threshold,
    weight,
    candidates,
    queue,
    counts,
    sums,
):
    lifted = np.empty(edges + 1, np.int32)
    found = 0
    l1 = 0.0
    total = 0.0
    moved = 0.0
    magnitude = 0.0
    for place in range(len(sources)):
        u = sources[place]
        share = shares[place]
        total += share * length[u]
        moved += abs(share) * length[u]
        for slot in range(start[u], start[u] + length[u]):
            v = unsigned(pool[unsigned(slot)])
            old = np.float64(r[v])
            r[v] = old + share
            size = abs(np.float64(r[v]))
            l1 += size - abs(old)
            magnitude += size
            # without a branch, which could not be foretold
            lifted[unsigned(found)] = v
            found += size > floor
    sums[L1] += l1
    sums[SUM] += total
    sums[MOVED] += moved
    sums[MAGNITUDE] += magnitude
    counts[EDGES] += edges
    _join(lifted[:found], r, marks, floor, threshold, weight, length, candidates, queue, counts)


@sequential
def _count_targets(  # type: ignore[no-untyped-def]
    first_chunk, last_chunk, chunks, sources, ends, start, length, pool, shift, sizes
):
    """sizes[chunk, bucket]: how many of the chunk's edges lead to the bucket."""
    edges = ends[-1]
    for chunk in range(first_chunk, last_chunk):
        first = edges * chunk // chunks
        last = edges * (chunk + 1) // chunks
        place = first_from(ends, len(ends), first + 1)
        while first < last:
            u = sources[place]
            before = ends[place] - length[u]
            stop = min(last, ends[place])
            for slot in range(start[u] + first - before, start[u] + stop - before):
                sizes[chunk, unsigned(pool[unsigned(slot)] >> shift)] += 1
            first = stop
            place += 1


@sequential
def _write_additions(  # type: ignore[no-untyped-def]
    first_chunk,
    last_chunk,
    chunks,
    sources,
    shares,
    ends,
    start,
    length,
    pool,
    shift,
    offsets,
    targets,
    amounts,
):
    """Writes the chunk's additions to each bucket from offsets[chunk, bucket] on."""
    edges = ends[-1]
    for chunk in range(first_chunk, last_chunk):
        first = edges * chunk // chunks
        last = edges * (chunk + 1) // chunks
        place = first_from(ends, len(ends), first + 1)
        while first < last:
            u = sources[place]
            before = ends[place] - length[u]
            stop = min(last, ends[place])
            for slot in range(start[u] + first - before, start[u] + stop - before):
                v = pool[unsigned(slot)]
                bucket = unsigned(v >> shift)
                at = offsets[chunk, bucket]
                targets[unsigned(at)] = v
                amounts[unsigned(at)] = shares[place]
                offsets[chunk, bucket] = at + 1
            first = stop
            place += 1


@sequential
def _add_buckets(  # type: ignore[no-untyped-def]
    first_bucket, last_bucket, limits, targets, amounts, r, floor, seen, lifted
):
    """Adds what is between limits[bucket] and the next; moves those lifted above the floor to the
    front of it, up to lifted[bucket].
    """
    for bucket in range(first_bucket, last_bucket):
        l1 = 0.0
        total = 0.0
        moved = 0.0
        magnitude = 0.0
        found = limits[bucket]
        for at in range(limits[bucket], limits[bucket + 1]):
            v = unsigned(targets[unsigned(at)])
            amount = amounts[unsigned(at)]
            old = np.float64(r[v])
            r[v] = old + amount
            size = abs(np.float64(r[v]))
            l1 += size - abs(old)
            total += amount
            moved += abs(amount)
            magnitude += size
            if size > floor:
                # its own slot is free by now
                targets[unsigned(found)] = v
                found += 1
        seen[bucket, L1] = l1
        seen[bucket, SUM] = total
        seen[bucket, MOVED] = moved
        seen[bucket, MAGNITUDE] = magnitude
        lifted[bucket] = found


_count_targets_on_all_cores = on_all_cores(_count_targets)
_write_additions_on_all_cores = on_all_cores(_write_additions)
_add_buckets_on_all_cores = on_all_cores(_add_buckets)


@sequential
def _spread_in_buckets(  # type: ignore[no-untyped-def]
    sources,
    shares,
    edges,
    start,
    length,
    pool,
    r,
    marks,
    floor,
    threshold,
    weight,
    candidates,
    queue,
    counts,
    sums,
):
    # cut the concatenated out-lists into chunks of equal numbers of edges: a hub has many
    ends = np.empty(len(sources), np.int64)
    end = np.int64(0)
    for place in range(len(sources)):
        end += length[sources[place]]
        ends[place] = end
    chunks = _BUCKETS
    shift = 0
    while len(r) > _BUCKETS << shift:
        shift += 1
    offsets = np.zeros((chunks, _BUCKETS), np.int64)
    _count_targets_on_all_cores(
        chunks, 1, chunks, sources, ends, start, length, pool, shift, offsets
    )
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
        chunks,
        1,
        chunks,
        sources,
        shares,
        ends,
        start,
        length,
        pool,
        shift,
        offsets,
        targets,
        amounts,
    )
    seen = np.zeros((_BUCKETS, SUMS))
    lifted = np.empty(_BUCKETS, np.int64)
    _add_buckets_on_all_cores(_BUCKETS, 1, limits, targets, amounts, r, floor, seen, lifted)
    for bucket in range(_BUCKETS):
        for place in range(SUMS):
            sums[place] += seen[bucket, place]
        _join(
            targets[limits[bucket] : lifted[bucket]],
            r,
            marks,
            floor,
            threshold,
            weight,
            length,
            candidates,
            queue,
            counts,
        )
    counts[EDGES] += edges


@sequential
def spread(  # type: ignore[no-untyped-def]
    sources,
    shares,
    targets,
    amounts,
    start,
    length,
    pool,
    r,
    marks,
    floor,
    candidates,
    counts,
    sums,
):
    """base.Backend.spread."""
    threshold = np.inf
    weight = 0.0
    queue = candidates[:0]
    edges = np.int64(0)
    for u in sources:
        edges += length[u]
    if edges >= PARALLEL_EDGES:
        _spread_in_buckets(
            sources,
            shares,
            edges,
            start,
            length,
            pool,
            r,
            marks,
            floor,
            threshold,
            weight,
            candidates,
            queue,
            counts,
            sums,
        )
    else:
        _spread_in_order(
            sources,
            shares,
            edges,
            start,
            length,
            pool,
            r,
            marks,
            floor,
            threshold,
            weight,
            candidates,
            queue,
            counts,
            sums,
        )
    for place in range(len(targets)):
        v = targets[place]
        amount = amounts[place]
        old = np.float64(r[v])
        r[v] = old + amount
        size = abs(np.float64(r[v]))
        sums[L1] += size - abs(old)
        sums[MAGNITUDE] += size
        sums[SUM] += amount
        sums[MOVED] += abs(amount)
    counts[EDGES] += len(targets)
    _join(targets, r, marks, floor, threshold, weight, length, candidates, queue, counts)


@helper
def _leaving(d, looped, damping):  # type: ignore[no-untyped-def]
    return 1.0 - damping * looped / d if d > 0 else 1.0


@helper
def _select(  # type: ignore[no-untyped-def]
    threshold,
    weight,
    floor,
    damping,
    length,
    loop,
    degree,
    values,
    r,
    marks,
    candidates,
    queue,
    counts,
):
    """Fills the queue anew with the candidates above θ, drops those that are no longer above the
    floor, and returns the largest θ that one of the others is above. What y has no digits for is
    left out: it waits until it has grown.
    """
    kept = 0
    queued = 0
    queued_edges = 0
    largest = 0.0
    for place in range(counts[N_LISTED]):
        v = candidates[place]
        size = abs(np.float64(r[v]))
        mark = marks[v] & ~QUEUED
        if size <= floor:
            marks[v] = mark & ~LISTED
            continue
        candidates[kept] = v
        kept += 1
        worth = size / (1.0 + weight * length[v])
        if worth > threshold:
            leaving = _leaving(degree[v], loop[v], damping)
            if values.dtype.type(values[v] + r[v] / leaving) != values[v]:
                mark |= QUEUED
                queue[queued] = v
                queued += 1
                queued_edges += length[v]
        else:
            largest = max(largest, worth)
        marks[v] = mark
    counts[N_LISTED] = kept
    counts[N_QUEUED] = queued
    counts[QUEUED_EDGES] = queued_edges
    return largest


@sequential
def push(  # type: ignore[no-untyped-def]
    start,
    length,
    pool,
    loop,
    degree,
    values,
    r,
    marks,
    floor,
    candidates,
    solve,
    damping,
    l1,
    total_residual,
    total,
    goal,
    threshold,
    weight,
    round_edges,
    most_edges,
    most_rounds,
    counts,
    sums,
):
    """base.Backend.push. Returns how it ended (a place in ENDINGS) and the last θ."""
    queue = np.empty_like(candidates)
    taking = np.empty_like(candidates)
    shares = np.empty(len(candidates), np.float64)
    first = True
    selected = False
    tails = 0
    while True:
        met = l1 + sums[L1] + abs(total_residual + sums[SUM]) <= goal * (total + sums[TOTAL])
        if met:
            ended = GOAL
            break
        if counts[N_LISTED] > len(candidates) or counts[EDGES] > most_edges:
            ended = WORK
            break
        short = counts[QUEUED_EDGES] < _SHORT_EDGES and not selected
        if short and counts[N_QUEUED] > 0 and threshold <= floor:
            tails += 1
            if tails > _MOST_TAILS:
                ended = FLOOR
                break
        if counts[N_QUEUED] == 0 or (short and threshold > floor):
            if not first:
                threshold = max(0.5 * threshold, floor)
            first = False
            largest = _select(
                threshold,
                weight,
                floor,
                damping,
                length,
                loop,
                degree,
                values,
                r,
                marks,
                candidates,
                queue,
                counts,
            )
            if counts[N_QUEUED] == 0:
                if counts[N_LISTED] == 0 or threshold <= max(floor, 0.0):
                    ended = FLOOR
                    break
                # nothing is above θ: it falls at once to where the next halving finds something
                threshold = min(threshold, 1.999 * largest)
                continue
            selected = True
        if counts[QUEUED_EDGES] > round_edges:
            ended = WORK
            break
        if counts[ROUNDS] == most_rounds:
            ended = OUT_OF_ROUNDS
            break
        counts[ROUNDS] += 1
        selected = False
        queue, taking = taking, queue
        queued = counts[N_QUEUED]
        edges = np.int64(0)
        taken_count = 0
        for place in range(queued):
            u = taking[place]
            mark = marks[u] & ~QUEUED
            amount = np.float64(r[u])
            if abs(amount) <= threshold * (1.0 + weight * length[u]):
                marks[u] = mark
                continue
            if mark >> SOLVE_SHIFT != solve:
                mark = mark & LISTED | solve << SOLVE_SHIFT
                counts[VERTICES] += 1
            marks[u] = mark
            d = degree[u]
            leaving = _leaving(d, loop[u], damping)
            old = np.float64(values[u])
            values[u] = old + amount / leaving
            taken = np.float64(values[u]) - old
            r[u] = amount - leaving * taken
            left = np.float64(r[u])
            sums[L1] += abs(left) - abs(amount)
            sums[SUM] += left - amount
            sums[TOTAL] += taken
            sums[MOVED] += abs(amount)
            if d > 0:
                taking[taken_count] = u
                shares[taken_count] = damping * taken / d
                taken_count += 1
                edges += length[u]
        counts[N_QUEUED] = 0
        counts[QUEUED_EDGES] = 0
        if edges >= PARALLEL_EDGES:
            _spread_in_buckets(
                taking[:taken_count],
                shares[:taken_count],
                edges,
                start,
                length,
                pool,
                r,
                marks,
                floor,
                threshold,
                weight,
                candidates,
                queue,
                counts,
                sums,
            )
        else:
            _spread_in_order(
                taking[:taken_count],
                shares[:taken_count],
                edges,
                start,
                length,
                pool,
                r,
                marks,
                floor,
                threshold,
                weight,
                candidates,
                queue,
                counts,
                sums,
            )
    for place in range(counts[N_QUEUED]):
        marks[queue[place]] &= ~QUEUED
    return ended, threshold


@sequential
def refresh(  # type: ignore[no-untyped-def]
    first,
    last,
    start,
    length,
    pool,
    loop,
    degree,
    values,
    base,
    damping,
    r,
    marks,
    floor,
    candidates,
    counts,
    sums,
):
    """base.Backend.refresh."""
    queue = candidates[:0]
    lifted = np.empty(last - first, np.int32)
    found = 0
    for v in range(first, last):
        arriving = 0.0
        begin = start[v]
        end = begin + length[v]
        while begin < end:
            stop = min(begin + 1024, end)
            block = 0.0
            for slot in range(begin, stop):
                u = pool[slot]
                block += np.float64(values[u]) / degree[u]
            arriving += block
            begin = stop
        d = degree[v]
        old = np.float64(r[v])
        r[v] = base + damping * arriving - _leaving(d, loop[v], damping) * values[v]
        new = np.float64(r[v])
        size = abs(new)
        sums[L1] += size - abs(old)
        sums[SUM] += new - old
        sums[MAGNITUDE] += size
        if size > floor:
            lifted[found] = v
            found += 1
    _join(lifted[:found], r, marks, floor, np.inf, 0.0, length, candidates, queue, counts)


@sequential
def collect(r, marks, floor, candidates):  # type: ignore[no-untyped-def]
    """base.Backend.collect. Returns how many are above the floor."""
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
