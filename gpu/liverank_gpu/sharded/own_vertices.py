"""The vertices that one shard owns: their rows and ids, and what follows about all vertices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.device import Array
from liverank_gpu.operations.select import TopK
from liverank_gpu.pagerank.identical_lists import IdenticalLists
from liverank_gpu.pagerank.vertices import GraphVertices, LeadingEntries
from liverank_gpu.sharded.communicator import Communicator
from liverank_gpu.sharded.graph import ShardGraph
from liverank_gpu.sharded.identical_lists import identical_in_lists
from liverank_gpu.types import Ranking


class OwnVertices(GraphVertices):
    """The vertices of one shard; sums and entries are combined with those of the others, so all
    shards have to call these together.
    """

    graph: ShardGraph

    def __init__(self, graph: ShardGraph, communicator: Communicator) -> None:
        super().__init__(graph)
        self._communicator = communicator

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

    def sums(self, values: Sequence[float]) -> list[float]:
        return self._communicator.sums(values)

    def highest(self, value: float) -> float:
        return float(self._communicator.gather([value]).max())

    def identical_to(self, vertices: NDArray[np.int64]) -> IdenticalLists:
        return identical_in_lists(self.graph, vertices, self._united)

    def merged(self, leading: LeadingEntries, k: int) -> LeadingEntries:
        table = self._united(np.column_stack(leading).astype(np.float64, copy=False))
        ids = table[:, 0].astype(np.int64)
        first = np.lexsort((ids, -table[:, 1]))[:k]
        return LeadingEntries(ids[first], *table[first, 1:].T)

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
