"""Vertices with identical in-lists, whose exact ranks are equal.

A rank follows from the in-list of its vertex, from what the vertex returns to itself by its loop,
and from its part of the right-hand side. Where the first two are the same for several vertices
(equal sources, and equal weights; no loops, or loops of equal probability), only the third can tell
them apart, and for global ranks that is the same everywhere. No bound can separate such vertices,
since there is nothing to separate.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.graph.permutation import VertexPermutation
from liverank_gpu.graph.vertex_ids import NO_IDS, looked_up
from liverank_gpu.pagerank.ranked_graph import RankedGraph

MOST_SOURCES = 1024
"""The longest in-list that is compared: longer ones are hardly ever identical."""

_MOST_ENTRIES = 1 << 20
"""The most entries of lists that one step of a search reads; what exceeds it is left out."""


class IdenticalLists:
    """Classes of vertices with identical in-lists.

    members  for each class int64[…], the ids of all its vertices, ascending; at least two
    """

    def __init__(self, members: list[NDArray[np.int64]]) -> None:
        self.members = members
        ids = np.concatenate([NO_IDS, *members])
        labels = np.repeat(np.arange(len(members)), [len(each) for each in members])
        order = np.argsort(ids)
        self._ids, self._labels = ids[order], labels[order]

    @classmethod
    def of(
        cls,
        numbers: NDArray[np.int64],
        positions: NDArray[np.int64],
        permutation: VertexPermutation,
    ) -> IdenticalLists:
        """From pairs, int64[…] each: the number of a list, and the position of a vertex with it."""
        shared = (np.bincount(numbers) > 1)[numbers]
        if not shared.any():
            return cls([])
        numbers, ids = numbers[shared], permutation.ids_of(positions[shared])
        order = np.lexsort((ids, numbers))
        return cls(np.split(ids[order], np.flatnonzero(np.diff(numbers[order])) + 1))

    def labels(self, vertices: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64[k], the number of each vertex's class, or -1."""
        return looked_up(self._ids, self._labels, vertices, -1)


def identical_in_lists(graph: RankedGraph, vertices: NDArray[np.int64]) -> IdenticalLists:
    """The classes that these vertices belong to: int64[c], distinct ids.

    In-lists that are empty, or longer than `longest_compared`, are not compared; none is if there
    is no memory for it.
    """
    try:
        return _compared(graph, vertices)
    except MemoryError:
        return IdenticalLists([])


def _compared(graph: RankedGraph, vertices: NDArray[np.int64]) -> IdenticalLists:
    """See identical_in_lists. Raises MemoryError."""
    lists, view, permutation = graph.backend.lists, graph.view, graph.permutation
    longest = longest_compared(len(vertices))
    found = lists.fingerprints(view, permutation.positions_of(vertices), longest)
    compared = np.flatnonzero(found.lengths)
    if len(compared) == 0:
        return IdenticalLists([])
    _, first = np.unique(found.hashes[compared], return_index=True)
    kinds = found.at(compared[np.sort(first)])
    # a vertex that has the list is an out-neighbour of all of its sources
    kinds = kinds.at(affordable_lists(kinds.lengths * kinds.out_edges))
    if len(kinds.positions) == 0:
        return IdenticalLists([])
    numbers, others = lists.with_same_list(view, kinds)
    if len(others) == 0:
        return IdenticalLists([])
    numbers = np.concatenate([np.arange(len(kinds.positions)), numbers])
    return IdenticalLists.of(numbers, np.concatenate([kinds.positions, others]), permutation)


def longest_compared(count: int) -> int:
    """The longest in-list that is compared if `count` vertices are asked for, so that they have at
    most _MOST_ENTRIES together, or one each.
    """
    return min(MOST_SOURCES, max(1, _MOST_ENTRIES // max(1, count)))


def affordable_lists(entries: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which lists to look for: those that take the fewest entries, of _MOST_ENTRIES together."""
    order = np.argsort(entries, kind="stable")
    affordable = np.zeros(len(entries), np.bool_)
    affordable[order] = np.cumsum(entries[order]) <= _MOST_ENTRIES
    return affordable
