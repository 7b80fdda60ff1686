"""Core numbers on ``cpu``."""

from __future__ import annotations

import numpy as np

from gpu.backends.cpu.rows import CHUNKS
from gpu.jit.compile import helper, kernel, sequential, unsigned
from gpu.operations.cores import CoreOperations
from gpu.operations.csr import Csr, Rows
from gpu.operations.device import Array


@sequential
def _core_numbers(lists, degree, order, place, first):  # type: ignore[no-untyped-def]
    """Batagelj and Zaveršnik, "An O(m) algorithm for cores decomposition of networks" (2003).

    degree  int32[n], receives the core numbers
    order   int32[n], receives the vertices by degree
    place   int32[n], receives the place of each in `order`
    first   int64[longest row + 2], zero before: where vertices of each degree begin in `order`
    """
    row_starts, row_lengths, column_indices, _ = lists
    for v in range(len(degree)):
        first[degree[v] + 1] += 1
    for d in range(1, len(first)):
        first[d] += first[d - 1]
    for v in range(len(degree)):
        place[v] = first[degree[v]]
        order[place[v]] = v
        first[degree[v]] += 1
    for d in range(len(first) - 1, 0, -1):
        first[d] = first[d - 1]
    first[0] = 0
    for at in range(len(order)):
        v = unsigned(order[at])
        core = degree[v]
        begin = row_starts[v]
        for slot in range(begin, begin + row_lengths[v]):
            u = unsigned(column_indices[unsigned(slot)])
            above = degree[u]
            if above <= core:
                continue
            # u changes places with the first vertex of its degree, which then begins behind it
            old, new = unsigned(place[u]), unsigned(first[unsigned(above)])
            w = order[new]
            order[old], order[new] = w, order[old]
            place[unsigned(w)] = old
            place[u] = new
            first[unsigned(above)] += 1
            degree[u] = above - 1


@helper
def _reaching(column_indices, begin, end, bounds, least):  # type: ignore[no-untyped-def]
    """Neighbours whose bounds are at least this, of which as many are enough."""
    found = 0
    for slot in range(unsigned(begin), unsigned(end)):
        if bounds[unsigned(column_indices[slot])] >= least:
            found += 1
            if found >= least:
                break
    return found


@kernel(CHUNKS)
def _lower_cores(  # type: ignore[no-untyped-def]
    first, last, groups, order, lists, bounds, blocks, shift, now, fallen
):
    """fallen: int64[groups], how many bounds fell."""
    row_starts, row_lengths, column_indices, _ = lists
    for group in range(first, last):
        fell = 0
        for place in range(groups[group], groups[group + 1]):
            v = unsigned(order[place])
            begin = row_starts[v]
            end = begin + row_lengths[v]
            bound = bounds[v]
            low = _reaching(column_indices, begin, end, bounds, bound)
            if low >= bound:
                continue
            high = bound - 1
            while low < high:
                middle = (low + high + 1) // 2
                if _reaching(column_indices, begin, end, bounds, middle) >= middle:
                    low = middle
                else:
                    high = middle - 1
            bounds[v] = low
            blocks[v >> shift] = now
            fell += 1
        fallen[group] = fell


class CpuCores(CoreOperations):
    """See CoreOperations."""

    def core_numbers(self, lists: Csr) -> Array:
        degree = lists.row_lengths.copy()
        order, place = np.empty((2, len(degree)), np.int32)
        longest = int(degree.max()) if len(degree) else 0
        first = np.zeros(longest + 2, np.int64)
        _core_numbers(tuple(lists), degree, order, place, first)
        return degree

    def lower_cores(
        self, lists: Csr, rows: Rows, bounds: Array, blocks: Array, shift: int, now: int
    ) -> int:
        groups = len(rows.groups) - 1
        fallen = np.zeros(groups, np.int64)
        shared = (tuple(lists), bounds, blocks, shift, now, fallen)
        _lower_cores(groups, rows.groups, rows.order, *shared)
        return int(fallen.sum())
