"""Loops that turn edges in any order into rows: see gpu.out_of_core.spool.

An edge is a key, ``target << 32 | source``, and in a weighted graph a weight beside it; otherwise
weights are None. Loops run on the calling thread: weights are added up in the order of the keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.backends.cpu.apply_kernels import packed_slots
from gpu.jit.compile import helper, sequential, unsigned

Weights = NDArray[np.float32] | None

_TARGET_BITS = 32
_SOURCE = (1 << _TARGET_BITS) - 1

_DIGIT_BITS = 11
"""Keys are sorted by this many bits at a time: the ends of so many lists stay in cache."""


@sequential
def count_ends(keys, in_degree, out_degree):  # type: ignore[no-untyped-def]
    """Adds to in_degree, int64[n], and out_degree, int32[n], the number of keys of each target and
    of each source. Returns the largest in-degree of these targets.
    """
    largest = np.int64(0)
    for at in range(len(keys)):
        target = unsigned(keys[at] >> _TARGET_BITS)
        in_degree[target] += 1
        out_degree[unsigned(keys[at] & _SOURCE)] += 1
        largest = max(largest, in_degree[target])
    return largest


@sequential
def renumber(keys, positions):  # type: ignore[no-untyped-def]
    """Replaces ids, in keys, by their positions, int32[n]."""
    for at in range(len(keys)):
        target = np.int64(positions[unsigned(keys[at] >> _TARGET_BITS)])
        keys[at] = target << _TARGET_BITS | np.int64(positions[unsigned(keys[at] & _SOURCE)])


@helper
def _last_from(numbers, most):  # type: ignore[no-untyped-def]
    """The index of the last of some ascending numbers that is ≤ most; the first one is."""
    low = np.int64(0)
    span = len(numbers)
    while span > 1:  # without branches to mispredict
        half = span // 2
        low = low + half if numbers[low + half] <= most else low
        span -= half
    return low


@sequential
def _sort_by_bucket(  # type: ignore[no-untyped-def]
    keys, weights, first_keys, buckets, bounds, sorted_keys, sorted_weights
):
    for at in range(len(keys)):
        bucket = _last_from(first_keys, keys[at])
        buckets[at] = bucket
        bounds[bucket + 2] += 1
    for bucket in range(len(first_keys)):
        bounds[bucket + 2] += bounds[bucket + 1]
    for at in range(len(keys)):
        place = bounds[buckets[at] + 1]
        bounds[buckets[at] + 1] = place + 1
        sorted_keys[place] = keys[at]
        if weights is not None:
            sorted_weights[place] = weights[at]


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
    sorted_weights = columns[1] if weights else None
    _sort_by_bucket(
        keys,
        weights[0] if weights else None,
        first_keys,
        buckets,
        bounds,
        columns[0],
        sorted_weights,
    )
    return bounds[:-1], columns


@sequential
def _sort_by_digit(keys, weights, shift, places, sorted_keys, sorted_weights):  # type: ignore[no-untyped-def]
    mask = len(places) - 2
    for at in range(len(places)):
        places[at] = 0
    for at in range(len(keys)):
        places[unsigned((keys[at] >> shift & mask) + 1)] += 1
    for digit in range(mask + 1):
        places[digit + 1] += places[digit]
    for at in range(len(keys)):
        digit = unsigned(keys[at] >> shift & mask)
        place = unsigned(places[digit])
        places[digit] += 1
        sorted_keys[place] = keys[at]
        sorted_weights[place] = weights[at]


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
            _sort_by_digit(keys, weights, shift, places, *others)
            (keys, weights), others = others, (keys, weights)
    return keys, weights


@helper
def _filled(column_indices, slot):  # type: ignore[no-untyped-def]
    """Repeats the last entry up to the begin of the next row. Returns that slot."""
    end = packed_slots(slot)
    for place in range(slot, end):
        column_indices[unsigned(place)] = column_indices[unsigned(slot - 1)]
    return end


@sequential
def pack_keys(  # type: ignore[no-untyped-def]
    keys, weights, keep_repeats, fixed_loops, loop, row_lengths, out_lengths, sent,
    column_indices, row_weights
):  # fmt: skip
    """Writes rows one after the other, each from a multiple of ALIGNMENT slots on.

    keys         int64[k], ascending
    keep_repeats whether each of equal keys is an edge, or the last one alone
    loop         see gpu.operations.csr.GraphView: set for loops, which are in no row, unless all
                 vertices have a fixed one
    row_lengths, out_lengths  int32[n], to which the edges are added
    sent         float64[n], to which weights are added, by source; unused without weights
    column_indices  written; a row's last source also in the slots behind it, so that these name no
                 source that no row has
    row_weights  written, and untouched in the slots between rows

    Returns the number of slots, and of edges.
    """
    slot = np.int64(0)
    edges = np.int64(0)
    row = np.int64(-1)
    for at in range(len(keys)):
        key = keys[at]
        if not keep_repeats and at + 1 < len(keys) and keys[at + 1] == key:
            continue
        target = key >> _TARGET_BITS
        source = key & _SOURCE
        if source == target:
            if not fixed_loops:
                loop[unsigned(target)] = 1 if weights is None else weights[at]
            continue
        if target != row:
            row = target
            slot = _filled(column_indices, slot)
        column_indices[unsigned(slot)] = source
        if weights is not None:
            row_weights[unsigned(slot)] = weights[at]
            sent[unsigned(source)] += np.float64(weights[at])
        row_lengths[unsigned(target)] += 1
        out_lengths[unsigned(source)] += 1
        slot += 1
        edges += 1
    return _filled(column_indices, slot), edges
