"""Where the entries of each shard are in the lists of a liverank_gpu.snapshot.Snapshot.

A snapshot has the out-lists one after the other by position, each padded to a multiple of ALIGNMENT
slots. Shard k of P owns the positions k, k+P, …; its entries are those of its lists, one list after
the other, without padding.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.csr import ALIGNMENT


class Places(NamedTuple):
    """The entries of one shard in a range of slots.

    first, end  they are its entries from `first` to before `end`
    slots       int64[end - first], from the beginning of the range
    """

    first: int
    end: int
    slots: NDArray[np.int64]


class ListLayout:
    """The lists of a snapshot that is spread over shards: about 24 bytes a vertex.

    lengths  int32[n], of the lists by position
    slots    number of slots of all lists
    """

    def __init__(self, lengths: NDArray[np.int32], shards: int) -> None:
        padded = -(-lengths.astype(np.int64) // ALIGNMENT) * ALIGNMENT
        self.slots = int(padded.sum())
        starts = first_entries(padded)
        self._shards = [
            (starts[shard::shards], own := lengths[shard::shards], first_entries(own))
            for shard in range(shards)
        ]

    def places(self, shard: int, first: int, end: int) -> Places:
        """The entries of a shard in slots `first` to before `end`."""
        starts, lengths, entries = self._shards[shard]
        rows, begins, counts = overlap(starts, lengths, first, end)
        if len(counts) == 0:
            return Places(0, 0, counts)
        row = rows.start
        entry = int(entries[row]) + min(int(begins[0] - starts[row]), int(lengths[row]))
        return Places(entry, entry + int(counts.sum()), expanded(begins - first, counts))


def first_entries(lengths: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """int64[n]: the sum of the lengths before each."""
    sums: NDArray[np.int64] = np.cumsum(lengths, dtype=np.int64)
    sums -= lengths
    return sums


def overlap(
    starts: NDArray[np.int64], lengths: NDArray[np.integer[Any]], first: int, end: int
) -> tuple[slice, NDArray[np.int64], NDArray[np.int64]]:
    """What rows [start, start + length), which are ascending and disjoint, have in [first, end).

    Returns which rows these may be, and where each begins there, int64[k], and how much it has.
    """
    lowest = max(0, int(np.searchsorted(starts, first, "right")) - 1)
    rows = slice(lowest, max(lowest, int(np.searchsorted(starts, end, "left"))))
    begins = np.maximum(starts[rows], first)
    counts = np.maximum(0, np.minimum(starts[rows] + lengths[rows], end) - begins)
    return rows, begins, counts


def expanded(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64[Σ counts]: start, start + 1, … of each, `counts` of them."""
    slots: NDArray[np.int64] = np.arange(int(counts.sum()))
    return slots + np.repeat(starts - first_entries(counts), counts)
