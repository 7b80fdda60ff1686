"""Vertices with identical in-lists, whose exact ranks are equal.

A rank follows from the in-list of its vertex, from what the vertex returns to itself by its loop,
and from its part of the right-hand side. Where the first two are the same for several vertices
(equal sources, and equal weights; no loops, or loops of equal probability), only the third can tell
them apart, and for global ranks that is the same everywhere. No bound can separate such vertices,
since there is nothing to separate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.graph.rows import entries_of
from gpu.graph.vertex_ids import NO_IDS, looked_up
from gpu.operations.csr import Csr
from gpu.operations.device import Array
from gpu.operations.rebuild import Entries
from gpu.pagerank.ranked_graph import RankedGraph
from gpu.types import Ranking

MOST_SOURCES = 1024
"""The longest in-list that is compared: longer ones are hardly ever identical."""

_MOST_ENTRIES = 1 << 18
"""The most entries of lists that one step of a search reads; what exceeds it is left out, the
longest lists first.
"""


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

    def labels(self, vertices: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64[k], the number of each vertex's class, or -1."""
        return looked_up(self._ids, self._labels, vertices, -1)


def identical_in_lists(graph: RankedGraph, vertices: NDArray[np.int64]) -> IdenticalLists:
    """The classes that these vertices belong to: int64[c], distinct ids.

    In-lists that are empty, or longer than MOST_SOURCES, are not compared; none is if there is no
    memory for it.
    """
    try:
        return _compared(graph, vertices)
    except MemoryError:
        return IdenticalLists([])


def _compared(graph: RankedGraph, vertices: NDArray[np.int64]) -> IdenticalLists:
    """See identical_in_lists. Raises MemoryError."""
    device, incoming = graph.backend.device, graph.incoming.csr
    positions = graph.permutation.positions_of(vertices)
    lengths = device.to_host(incoming.row_lengths[positions]).astype(np.int64)
    compared = np.flatnonzero((lengths > 0) & (lengths <= MOST_SOURCES))
    compared = compared[affordable_lists(lengths[compared])]
    if len(compared) == 0:
        return IdenticalLists([])
    positions, lengths = positions[device.to_device(compared)], lengths[compared]
    entries = _sorted(graph, incoming, positions)
    returned = device.to_host(returned_parts(graph, positions))
    columns = [device.to_host(each) for each in entries[1:] if each is not None]
    starts = starts_of(lengths)
    first = first_of_each_kind(columns, starts, lengths, returned)
    lists = _Lists(entries, starts[first], lengths[first])
    return IdenticalLists(
        [each for each in _members(graph, lists, returned[first]) if len(each) > 1]
    )


@dataclass(frozen=True, slots=True)
class _Lists:
    """Some lists among sorted entries: where they start, and their lengths, both on the host."""

    entries: Entries
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]


def affordable_lists(lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which lists to read: the shortest ones, of _MOST_ENTRIES together."""
    order = np.argsort(lengths, kind="stable")
    affordable = np.zeros(len(lengths), np.bool_)
    affordable[order] = np.cumsum(lengths[order]) <= _MOST_ENTRIES
    return affordable


def starts_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each list starts, one after the other."""
    return np.cumsum(lengths) - lengths


def _sorted(graph: RankedGraph, csr: Csr, positions: Array) -> Entries:
    """The lists of some vertices one after the other, each in ascending order; rows are numbers of
    these vertices.
    """
    rows, neighbours, weights = entries_of(graph.backend, csr, positions)
    order = graph.backend.xp.argsort((rows.astype(np.int64) << 32) | neighbours)
    return Entries(rows, neighbours[order], None if weights is None else weights[order])


def returned_parts(graph: RankedGraph, positions: Array) -> Array:
    """float64[k]: equal numbers where loops return the same part of a rank, 0 where there are none.
    NaN where a weighted loop does, beside other out-edges: sums of weights are rounded.
    """
    xp, loop, degree = graph.backend.xp, graph.loop[positions], graph.degree[positions]
    beside = np.nan if graph.weighted else degree.astype(np.float64)
    return xp.where(loop == 0, 0.0, xp.where(degree == loop, 1.0, beside))


def first_of_each_kind(
    columns: Sequence[NDArray[Any]],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    returned: Ranking,
) -> NDArray[np.int64]:
    """The number of the first of each kind of list.

    columns   of the entries of lists, each of these in ascending order
    returned  see `returned_parts`
    """
    kinds: dict[tuple[object, ...], int] = {}
    for number, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        parts = [column[start : start + length].tobytes() for column in columns]
        kinds.setdefault((float(returned[number]), *parts), number)
    return np.array(list(kinds.values()), np.int64)


def _members(graph: RankedGraph, lists: _Lists, returned: Ranking) -> list[NDArray[np.int64]]:
    """The ids of all vertices that have each of these in-lists, ascending; none where the search
    would read too much.

    A vertex that has the list is an out-neighbour of all of its sources, hence of the one with the
    fewest out-edges.
    """
    device, xp = graph.backend.device, graph.backend.xp
    outgoing, incoming = graph.outgoing.csr, graph.incoming.csr
    sources = lists.entries.neighbours
    degrees = device.to_host(outgoing.row_lengths[sources]).astype(np.int64)
    nearest = np.array(
        [
            start + int(np.argmin(degrees[start : start + length]))
            for start, length in zip(lists.starts, lists.lengths, strict=True)
        ],
        np.int64,
    )
    classes = np.flatnonzero(affordable_lists(degrees[nearest]))
    rows, reached, _ = entries_of(
        graph.backend, outgoing, sources[device.to_device(nearest[classes])]
    )
    number = device.to_device(classes)[rows]
    # NaN is not equal to itself: such a vertex has no class
    alike = incoming.row_lengths[reached] == device.to_device(lists.lengths)[number]
    alike &= returned_parts(graph, reached) == device.to_device(returned)[number]
    number, reached = device.to_host(number[alike]), reached[alike]
    totals = lists.lengths * np.bincount(number, minlength=len(lists.lengths))
    affordable = affordable_lists(totals)[number]
    number, reached = number[affordable], reached[device.to_device(np.flatnonzero(affordable))]

    found = _sorted(graph, incoming, reached)
    lengths = lists.lengths[number]
    shift = device.to_device(lists.starts[number] - starts_of(lengths))
    same = xp.arange(len(found.rows)) + shift[found.rows]
    differs = found.neighbours != sources[same]
    if found.weights is not None and lists.entries.weights is not None:
        differs |= found.weights != lists.entries.weights[same]
    different = xp.zeros(len(number), np.bool_)
    different[found.rows[differs]] = True
    identical = device.to_host(~different)
    number, ids = number[identical], graph.permutation.ids_of(reached)[identical]
    ids = ids[np.lexsort((ids, number))]
    return np.split(ids, np.searchsorted(number, np.arange(1, len(lists.lengths))))
