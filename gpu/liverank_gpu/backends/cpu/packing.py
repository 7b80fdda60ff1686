"""Loops that turn edges in any order into rows: see liverank_gpu.out_of_core.spool.

An edge is a key, ``target << 32 | source``, and in a weighted graph a weight beside it; otherwise
weights are None. Loops run on the calling thread: weights are added up in the order of the keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.native import kernels

_DIGIT_BITS = 11
"""Keys are sorted by this many bits at a time: the ends of so many lists stay in cache."""


count_ends: Any = kernels.count_ends
"""``count_ends(keys, in_degree, out_degree)`` adds to in_degree, int64[n], and to out_degree,
int32[n], the number of keys of each target and of each source. Returns the largest in-degree of
these targets.
"""

renumber: Any = kernels.renumber
"""``renumber(keys, positions)`` replaces ids, in keys, by their positions, int32[n]."""

pack_keys: Any = kernels.write_rows
"""``pack_keys(keys, weights, keep_repeats, fixed_loops, loop, row_lengths, out_lengths, sent,
column_indices, row_weights)`` writes rows one after the other, each from a multiple of ALIGNMENT
slots on.

keys         int64[k], ascending
keep_repeats whether each of equal keys is an edge, or the last one alone
loop         see liverank_gpu.operations.csr.GraphView: set for loops, which are in no row, unless
             all vertices have a fixed one
row_lengths, out_lengths  int32[n], to which the edges are added
sent         float64[n], to which weights are added, by source; without weights out_lengths
column_indices  written; a row's last source also in the slots behind it, so that these name no
             source that no row has
row_weights  written, and untouched in the slots between rows

Returns the number of slots, and of edges.
"""


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
    values, sorted_values = map(_bits, (*weights, columns[1])) if weights else (None, None)
    kernels.sort_by_bucket(keys, values, first_keys, buckets, bounds, columns[0], sorted_values)
    return bounds[:-1], columns


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
            kernels.sort_by_digit(keys, _bits(weights), shift, places, others[0], _bits(others[1]))
            (keys, weights), others = others, (keys, weights)
    return keys, weights


def _bits(values: NDArray[Any]) -> NDArray[Any]:
    """Values that are only moved, as unsigned integers of their size."""
    return values.view(f"u{values.itemsize}")
