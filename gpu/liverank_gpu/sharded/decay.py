"""Weights that decay, on a graph in shards: liverank_gpu.graph.decay, whose exponents every shard
has.

What a slice of a batch says of each row that it names, two numbers, is sent to all shards. So all
decide alike about rows, while each looks at no other insertions than those of its slice, and at no
other lists than its own.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.graph.batch import Columns
from liverank_gpu.graph.decay import (
    Decay,
    DecayingGraph,
    both_arcs,
    edge_keys,
    expired_among,
    factors_at,
    highest_of,
)
from liverank_gpu.graph.vertices import NO_IDS
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.sharded.columns import Numbering
from liverank_gpu.sharded.communicator import Communicator


class DecayingShard(DecayingGraph, Protocol):
    """The parts of a shard that decay reads and scales; the lengths of arrays are those of rows."""

    numbering: Numbering

    def own_rows(self, ids: NDArray[np.int64]) -> tuple[Array, Array]:
        """See ShardGraph.own_rows."""


class ShardDecay(Decay[DecayingShard]):
    """See Decay. All shards call its methods together, each with its slice of the batch."""

    def __init__(self, half_life: float, backend: Backend, communicator: Communicator) -> None:
        super().__init__(half_life)
        self._device, self._xp = backend.device, backend.xp
        self._communicator = communicator

    def _on_any(self, condition: bool) -> bool:
        return self._communicator.sums([condition])[0] > 0.0

    def _highest(
        self, ids: NDArray[np.int64], highest: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return highest_of(self._united(ids), self._united(highest))

    def _are_empty(self, graph: DecayingShard, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        own, places = self._own(graph, rows[rows < graph.ids.limit])
        occupied = self._device.to_host(graph.degree[own]) > 0.0
        return ~np.isin(rows, self._united(rows[rows < graph.ids.limit][places[occupied]]))

    def _factors_of(
        self, graph: DecayingShard, ids: NDArray[np.int64], shifts: NDArray[np.int64], vertices: int
    ) -> Array:
        # own rows are the first columns
        assert graph.numbering.for_positions(vertices) == graph.numbering
        positions = graph.permutation.positions_of(ids)
        columns = graph.numbering.columns_of(positions, self._xp)
        return factors_at(graph.backend, columns, shifts, graph.numbering.columns)

    def _expired_arcs(
        self,
        graph: DecayingShard,
        ids: NDArray[np.int64],
        shifts: NDArray[np.int64],
        removed: NDArray[np.int64],
    ) -> tuple[Columns, int]:
        """Those in own lists; of an undirected graph, those of the edges that this shard counts."""
        if len(ids) == 0:
            return (NO_IDS, NO_IDS), 0
        rows, places = self._own(graph, ids)

        def ids_of(columns: Array) -> NDArray[np.int64]:
            return graph.permutation.ids_of(graph.numbering.positions_at(columns, self._xp))

        arcs = expired_among(graph, rows, shifts[places], removed, ids_of)
        edges = len(arcs[0])
        if not graph.directed:
            # an edge may have expired in the rows of two shards
            keys = edge_keys(*arcs)
            size = self._communicator.size
            parts = [
                self._device.to_device(keys[(keys >> 32) % size == rank]) for rank in range(size)
            ]
            received = self._communicator.all_to_all(parts)
            keys = np.unique(self._device.to_host(self._xp.concatenate(received)))
            arcs, edges = both_arcs(keys), len(keys)
        return arcs, int(self._communicator.sums([edges])[0])

    def bytes_needed(self, graph: DecayingShard, vertices: int) -> int:
        return super().bytes_needed(graph, vertices) + 4 * graph.numbering.columns

    def _own(self, graph: DecayingShard, ids: NDArray[np.int64]) -> tuple[Array, NDArray[np.int64]]:
        """See ShardGraph.own_rows; which they are, on the host."""
        rows, places = graph.own_rows(ids)
        return rows, self._device.to_host(places)

    def _united(self, own: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of all shards, by rank."""
        sent = self._device.to_device(own)
        return self._device.to_host(self._communicator.united(sent, self._xp))
