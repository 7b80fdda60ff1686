"""The out-lists of one shard for a snapshot: on their way out, and on their way in.

Entries are numbered as in liverank_gpu.sharded.list_layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.device import Array, DeviceOperations
from liverank_gpu.sharded.graph import ShardGraph
from liverank_gpu.sharded.list_layout import expanded, first_entries, overlap
from liverank_gpu.types import EdgeBatch


class CapturedLists:
    """A copy of the lists, which later batches do not change. Raises OutOfMemory.

    lengths  int32[rows], on the host
    """

    def __init__(self, graph: ShardGraph) -> None:
        self._backend, self._numbering = graph.backend, graph.numbering
        arrays, device = graph.outgoing.arrays(), graph.backend.device
        self._starts = device.to_host(arrays.pop("starts"))
        self.lengths: NDArray[np.int32] = device.to_host(arrays.pop("lengths"))
        self._entries = first_entries(self.lengths)
        self._arrays = {name: _copy(device, array) for name, array in arrays.items()}

    def entries(self, name: str, first: int, end: int) -> NDArray[Any]:
        """Entries `first` to before `end`, on the host: of ``neighbours`` int32, positions; of
        ``weights`` float32.
        """
        rows, begins, counts = overlap(self._entries, self.lengths, first, end)
        slots = expanded(self._starts[rows] + begins - self._entries[rows], counts)
        xp, to_host = self._backend.xp, self._backend.device.to_host
        if name == "weights":
            return to_host(self._arrays["weights"][xp.asarray(slots)])
        columns = self._arrays["column indices"][xp.asarray(slots)]
        return to_host(self._numbering.positions_at(columns, xp).astype(np.int32))


def _copy(device: DeviceOperations, array: Array) -> Array:
    copy = device.allocate("a copy of the graph", len(array), array.dtype.type)
    copy[:] = array
    return copy


class RestoredLists:
    """The lists of a snapshot while they arrive, entry after entry.

    lengths  int32[rows]
    loop     see GraphView.loop
    """

    def __init__(self, lengths: NDArray[np.int32], loop: NDArray[Any], weighted: bool) -> None:
        entries = int(lengths.sum(dtype=np.int64))
        self._lengths, self._loop = lengths, loop
        self._neighbours = np.empty(entries, np.int32)
        self._weights = np.empty(entries if weighted else 0, np.float32)
        self._received = 0

    def add(self, neighbours: NDArray[np.int32], weights: NDArray[np.float32] | None) -> None:
        """Takes the next entries. neighbours  int32[k], positions"""
        first, self._received = self._received, self._received + len(neighbours)
        self._neighbours[first : self._received] = neighbours
        if weights is not None:
            self._weights[first : self._received] = weights

    def batch(self, graph: ShardGraph, vertices: int) -> EdgeBatch:
        """This shard's slice of a batch that inserts all edges, and so many vertices."""
        assert self._received == len(self._neighbours)
        positions = graph.numbering.positions_of(np.arange(len(self._lengths)))
        sources = np.repeat(positions, self._lengths)
        targets: NDArray[Any] = self._neighbours
        weights: NDArray[np.float32] | None = self._weights if graph.weighted else None
        if not graph.directed:
            once = sources < targets  # both ends list the edge
            sources, targets = sources[once], targets[once]
            weights = None if weights is None else weights[once]
        # those of the policy come by themselves
        loops = np.flatnonzero(self._loop) if not graph.fixed_loops else np.empty(0, np.int64)
        if weights is not None:
            weights = np.concatenate([weights, self._loop[loops]])
        sources, targets = (
            graph.permutation.ids_of(np.concatenate([ends, positions[loops]]))
            for ends in (sources, targets)
        )
        return EdgeBatch(sources, targets, vertices=vertices, weights=weights)
