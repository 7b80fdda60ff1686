"""The vertices of one shard, and those of all shards whose in-lists are identical."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.graph.packed_csr import entries_of
from liverank_gpu.operations.csr import Csr
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import NO_PART, returned_parts
from liverank_gpu.operations.select import TopK
from liverank_gpu.pagerank.places import (
    Entries,
    GraphVertices,
    IdenticalLists,
    affordable_lists,
    longest_compared,
)
from liverank_gpu.sharded.communicator import Communicator
from liverank_gpu.sharded.graph import ReversedShard, ShardGraph
from liverank_gpu.types import Ranking

# Vertices of all shards with identical in-lists: liverank_gpu.pagerank.places over shards.
#
# Columns name a vertex differently on each shard, so lists are compared as positions. What one step
# reads of all shards together is at most what one device would read; every shard gets that and
# looks at it on the host, so that all take the same decisions.

AnyShard = ShardGraph | ReversedShard

United = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Returns the rows of the tables float64[…, columns] of all shards: the same on each of them."""

_SOURCE, _WEIGHT = 1, 2


def identical_in_lists(
    graph: AnyShard, vertices: NDArray[np.int64], united: United
) -> IdenticalLists:
    """The classes that these vertices belong to: int64[c], distinct ids, the same on all shards."""
    search = _Search(graph, united)
    lengths, parts = search.figures(graph.permutation.positions_of(vertices))
    longest = longest_compared(len(vertices), graph.backend.sizes.compared)
    compared = np.flatnonzero((lengths > 0) & (lengths <= longest) & (parts != NO_PART))
    if len(compared) == 0:
        return IdenticalLists([])
    lengths, parts = lengths[compared], parts[compared]
    positions = graph.permutation.positions_of(vertices[compared])
    table = united(search.lists(graph.incoming.csr, positions, np.arange(len(compared))))
    table = _by_list(table)
    starts = _starts_of(lengths)
    first = _first_of_each_kind([table[:, _SOURCE], table[:, _WEIGHT]], starts, lengths, parts)
    pairs = search.with_same_list(table, starts[first], lengths[first], parts[first])
    return IdenticalLists.of(*pairs, graph.permutation)


def _starts_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each list starts, one after the other."""
    return np.cumsum(lengths) - lengths


def _first_of_each_kind(
    columns: Sequence[NDArray[Any]],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    returned: NDArray[np.int64],
) -> NDArray[np.int64]:
    """The number of the first of each kind of list.

    columns   of the entries of lists, each of these in ascending order
    returned  see `returned_parts`
    """
    kinds: dict[tuple[object, ...], int] = {}
    for number, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        parts = [column[start : start + length].tobytes() for column in columns]
        kinds.setdefault((int(returned[number]), *parts), number)
    return np.array(list(kinds.values()), np.int64)


def _by_list(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64[…, 3], the number of a list, a source and a weight: lists in order, each ascending"""
    return table[np.lexsort((table[:, _SOURCE], table[:, 0]))]


class _Search:
    """What one shard knows, and what follows about all."""

    def __init__(self, graph: AnyShard, united: United) -> None:
        self.graph, self.united = graph, united

    def _own(self, positions: Array) -> tuple[Array, NDArray[np.int64]]:
        """The rows of those positions that are here, and which they are."""
        rows, here = self.graph.own_rows_at(positions)
        return rows, self.graph.backend.device.to_host(here)

    def figures(self, positions: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """int64[k], the length of each in-list, and what loops return: see `returned_parts`."""
        rows, here = self._own(positions)
        graph, to_host = self.graph, self.graph.backend.device.to_host
        parts = returned_parts(graph.loop[rows], graph.degree[rows])
        own = (here, to_host(graph.incoming.csr.row_lengths[rows]), to_host(parts))
        table = self.united(np.column_stack(own).astype(np.float64)).astype(np.int64)
        _, lengths, parts = table[np.argsort(table[:, 0])].T
        return lengths, parts

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

    def with_same_list(
        self,
        table: NDArray[np.float64],
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        parts: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of all vertices with one of these lists of the table the number of that, and the
        position; none where the search would read too much. They are out-neighbours of the source
        with the fewest out-edges.
        """
        graph, device = self.graph, self.graph.backend.device
        sources, degrees = self._fewest_out_edges(table, starts, lengths)
        kinds = np.flatnonzero(affordable_lists(lengths * degrees, graph.backend.sizes.compared))
        own = self.lists(graph.outgoing.csr, device.to_device(sources[kinds]), kinds)
        reached = self.united(own[:, :2]).astype(np.int64)
        reached = reached[np.lexsort((reached[:, 1], reached[:, 0]))]
        kind, positions = reached.T
        found_lengths, found_parts = self.figures(device.to_device(positions))
        alike = (found_lengths == lengths[kind]) & (found_parts == parts[kind])
        kind, positions = kind[alike], positions[alike]

        numbers = np.arange(len(kind))
        own = _by_list(self.lists(graph.incoming.csr, device.to_device(positions), numbers))
        numbers, own_lengths = np.unique(own[:, 0].astype(np.int64), return_counts=True)
        expected = np.repeat(starts[kind[numbers]] - _starts_of(own_lengths), own_lengths)
        differs = (own[:, 1:] != table[expected + np.arange(len(own)), 1:]).any(axis=1)
        identical = numbers[~np.isin(numbers, own[differs, 0])]
        pairs = np.column_stack((kind[identical], positions[identical])).astype(np.float64)
        kind, positions = self.united(pairs).astype(np.int64).T
        return kind, positions

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


# The vertices that one shard owns: their rows and ids, and what follows about all vertices.


class OwnVertices(GraphVertices):
    """The vertices of one shard; sums and entries are combined with those of the others, so all
    shards have to call these together.
    """

    graph: AnyShard
    divided = True

    def __init__(self, graph: AnyShard, communicator: Communicator) -> None:
        super().__init__(graph)
        self._communicator, self.leads = communicator, communicator.rank == 0

    def reversed(self) -> OwnVertices:
        assert isinstance(self.graph, ShardGraph)
        return OwnVertices(ReversedShard(self.graph, self._communicator), self._communicator)

    def rows_of(self, ids: NDArray[np.int64]) -> tuple[Array, Array]:
        return self.graph.own_rows(ids)

    def to_ids(self, rows: Array) -> Array:
        return self.graph.permutation.to_ids(self.graph.numbering.positions_of(rows))

    def values_at(self, values: Array, ids: NDArray[np.int64]) -> Ranking:
        to_host = self.graph.backend.device.to_host
        rows, here = self.rows_of(ids)
        own = np.zeros(len(ids))
        own[to_host(here)] = to_host(values[rows])
        # exact: of what is summed up, all but one are 0
        return np.array(self.sums(own.tolist())) if len(ids) else own

    def first(self, values: Ranking) -> Ranking:
        own = values[: len(values) if self.leads else 0]
        return self._united(own[:, np.newaxis])[:, 0]

    def sums(self, values: Sequence[float]) -> list[float]:
        return self._communicator.sums(values)

    def highest(self, value: float) -> float:
        return float(self._communicator.gather([value]).max())

    def identical_to(self, vertices: NDArray[np.int64]) -> IdenticalLists:
        return identical_in_lists(self.graph, vertices, self._united)

    def merged(self, leading: Entries, k: int) -> Entries:
        table = self._united(np.column_stack(leading).astype(np.float64, copy=False))
        ids = table[:, 0].astype(np.int64)
        first = np.lexsort((ids, -table[:, 1]))[:k]
        return Entries(ids[first], *table[first, 1:].T)

    def merged_columns(self, tops: list[TopK], counts: NDArray[np.int64]) -> list[TopK]:
        columns = np.repeat(np.arange(len(tops)), [len(ids) for ids, _ in tops])
        ids, values = (np.concatenate(each) for each in zip(*tops, strict=True))
        table = self._united(np.column_stack([columns, ids, values]).astype(np.float64, copy=False))
        table = table[np.lexsort((table[:, 1], -table[:, 2], table[:, 0]))]
        firsts = np.searchsorted(table[:, 0], np.arange(len(tops)))
        found = [table[first : first + k] for first, k in zip(firsts, counts, strict=True)]
        return [(each[:, 1].astype(np.int64), each[:, 2]) for each in found]

    def _united(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """The rows of the tables of all shards."""
        device, xp = self.graph.backend.device, self.graph.backend.xp
        own = device.to_device(table.reshape(-1))
        return device.to_host(self._communicator.united(own, xp)).reshape(-1, table.shape[1])
