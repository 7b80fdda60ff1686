"""Core numbers on ``cpu``."""

from __future__ import annotations

import numpy as np

from gpu.jit.compile import sequential, unsigned
from gpu.operations.cores import CoreOperations
from gpu.operations.csr import Csr
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


class CpuCores(CoreOperations):
    """See CoreOperations."""

    def core_numbers(self, lists: Csr) -> Array:
        degree = lists.row_lengths.copy()
        order, place = np.empty((2, len(degree)), np.int32)
        longest = int(degree.max()) if len(degree) else 0
        first = np.zeros(longest + 2, np.int64)
        _core_numbers(tuple(lists), degree, order, place, first)
        return degree
