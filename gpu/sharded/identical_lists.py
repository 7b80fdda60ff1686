"""Vertices of all shards with identical in-lists: gpu.pagerank.identical_lists over shards.

Columns name a vertex differently on each shard, so lists are compared as positions. What one step
reads is at most MOST_ENTRIES entries of all shards together, which every shard gets and looks at on
the host, so that all take the same decisions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gpu.graph.rows import entries_of
from gpu.operations.csr import Csr
from gpu.operations.device import Array
from gpu.pagerank.identical_lists import (
    MOST_SOURCES,
    IdenticalLists,
    affordable_lists,
    first_of_each_kind,
    returned_parts,
    starts_of,
)
from gpu.sharded.graph import ShardGraph

United = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Returns the rows of the tables float64[…, columns] of all shards: the same on each of them."""

_SOURCE, _WEIGHT = 1, 2


def identical_in_lists(
    graph: ShardGraph, vertices: NDArray[np.int64], united: United
) -> IdenticalLists:
    """The classes that these vertices belong to: int64[c], distinct ids, the same on all shards."""
    search = _Search(graph, united)
    lengths, parts = search.figures(graph.permutation.positions_of(vertices))
    compared = np.flatnonzero((lengths > 0) & (lengths <= MOST_SOURCES))
    compared = compared[affordable_lists(lengths[compared])]
    if len(compared) == 0:
        return IdenticalLists([])
    lengths, parts = lengths[compared], parts[compared]
    positions = graph.permutation.positions_of(vertices[compared])
    table = united(search.lists(graph.incoming.csr, positions, np.arange(len(compared))))
    table = _by_list(table)
    starts = starts_of(lengths)
    first = first_of_each_kind([table[:, _SOURCE], table[:, _WEIGHT]], starts, lengths, parts)
    members = search.members(table, starts[first], lengths[first], parts[first])
    return IdenticalLists([each for each in members if len(each) > 1])


def _by_list(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64[…, 3], the number of a list, a source and a weight: lists in order, each ascending"""
    return table[np.lexsort((table[:, _SOURCE], table[:, 0]))]


class _Search:
    """What one shard knows, and what follows about all."""

    def __init__(self, graph: ShardGraph, united: United) -> None:
        self.graph, self.united = graph, united

    def _own(self, positions: Array) -> tuple[Array, NDArray[np.int64]]:
        """The rows of those positions that are here, and which they are."""
        rows, here = self.graph.own_rows_at(positions)
        return rows, self.graph.backend.device.to_host(here)

    def figures(self, positions: Array) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """int64[k], the length of each in-list, and what loops return: see `returned_parts`."""
        rows, here = self._own(positions)
        to_host, csr = self.graph.backend.device.to_host, self.graph.incoming.csr
        own = (here, to_host(csr.row_lengths[rows]), to_host(returned_parts(self.graph, rows)))
        table = self.united(np.column_stack(own).astype(np.float64))
        table = table[np.argsort(table[:, 0])]
        return table[:, 1].astype(np.int64), table[:, 2]

    def lists(self, csr: Csr, positions: Array, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64[…, 3]: of the lists of those positions that are here, a row an entry: the number
        of the position, the position of the neighbour, and the weight.
        """
        backend, numbering = self.graph.backend, self.graph.numbering
        rows, here = self._own(positions)
        entries = entries_of(backend, csr, rows)
        neighbours = numbering.positions_at(entries.neighbours, backend.xp)
        to_host = backend.device.to_host
        weights = np.ones(len(neighbours)) if entries.weights is None else to_host(entries.weights)
        columns = (numbers[here][to_host(entries.rows)], to_host(neighbours), weights)
        return np.column_stack(columns).astype(np.float64)

    def members(
        self,
        table: NDArray[np.float64],
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        parts: NDArray[np.float64],
    ) -> list[NDArray[np.int64]]:
        """The ids of all vertices with each of these lists of the table, ascending; none where the
        search would read too much. They are out-neighbours of the source with the fewest out-edges.
        """
        graph, device = self.graph, self.graph.backend.device
        sources, degrees = self._fewest_out_edges(table, starts, lengths)
        kinds = np.flatnonzero(affordable_lists(degrees))
        own = self.lists(graph.outgoing.csr, device.to_device(sources[kinds]), kinds)
        reached = self.united(own[:, :2]).astype(np.int64)
        reached = reached[np.lexsort((reached[:, 1], reached[:, 0]))]
        kind, positions = reached.T
        found_lengths, found_parts = self.figures(device.to_device(positions))
        # NaN is not equal to itself: such a vertex has no class
        alike = (found_lengths == lengths[kind]) & (found_parts == parts[kind])
        totals = lengths * np.bincount(kind[alike], minlength=len(lengths))
        alike &= affordable_lists(totals)[kind]
        kind, positions = kind[alike], positions[alike]

        numbers = np.arange(len(kind))
        own = _by_list(self.lists(graph.incoming.csr, device.to_device(positions), numbers))
        numbers, own_lengths = np.unique(own[:, 0].astype(np.int64), return_counts=True)
        expected = np.repeat(starts[kind[numbers]] - starts_of(own_lengths), own_lengths)
        differs = (own[:, 1:] != table[expected + np.arange(len(own)), 1:]).any(axis=1)
        identical = numbers[~np.isin(numbers, own[differs, 0])]
        pairs = np.column_stack((kind[identical], positions[identical])).astype(np.float64)
        kind, positions = self.united(pairs).astype(np.int64).T
        ids = graph.permutation.ids_of(device.to_device(positions))
        order = np.lexsort((ids, kind))
        return np.split(ids[order], np.searchsorted(kind[order], np.arange(1, len(lengths))))

    def _fewest_out_edges(
        self, table: NDArray[np.float64], starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of each list the position of the source with the fewest out-edges, and how many."""
        backend, all_sources = self.graph.backend, np.unique(table[:, _SOURCE].astype(np.int64))
        rows, here = self._own(backend.device.to_device(all_sources))
        own = backend.device.to_host(self.graph.outgoing.csr.row_lengths[rows])
        degrees = self.united(np.column_stack((here, own)).astype(np.float64)).astype(np.int64)
        degrees = degrees[np.argsort(degrees[:, 0]), 1]
        found = []
        for start, length in zip(starts, lengths, strict=True):
            sources = table[start : start + length, _SOURCE].astype(np.int64)
            of_sources = degrees[np.searchsorted(all_sources, sources)]
            place = int(np.argmin(of_sources))
            found.append((sources[place], of_sources[place]))
        sources, fewest = np.array(found, np.int64).T
        return sources, fewest
