"""The edges of a graph in shards, read: for a snapshot, for exports, around a vertex."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.graph.packed_csr import row_blocks
from liverank_gpu.graph.reading import (
    BLOCK_EDGES,
    CapturedEdges,
    Direction,
    EdgeBlock,
    EdgeReader,
    Neighbours,
)
from liverank_gpu.graph.vertices import NO_IDS
from liverank_gpu.operations.device import Array, DeviceOperations
from liverank_gpu.sharded.columns import expanded, first_entries, overlap
from liverank_gpu.sharded.graph import ShardGraph
from liverank_gpu.types import EdgeBatch

# ---- the out-lists of one shard for a snapshot: on their way out, and on their way in ----
#
# Entries are numbered as in liverank_gpu.sharded.columns.


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


# ---- the edges of a graph in shards: each shard reads the lists of its own vertices ----


class ShardLists(NamedTuple):
    """The out-lists of one shard, on the host.

    vertices  int32[rows], ids
    lengths   int32[rows], of the lists; loops are in no list
    targets   int32[…], ids, list after list
    weights   float32[…], of the edges to `targets`; None for an unweighted graph
    loop      see GraphView.loop; None if the loops are no edges
    """

    vertices: NDArray[np.int32]
    lengths: NDArray[np.int32]
    targets: NDArray[np.int32]
    weights: NDArray[np.float32] | None
    loop: Array | None

    def block(self, rows: slice, slots: slice) -> EdgeBlock:
        """The edges of some rows, whose lists are in these slots."""
        sources = np.repeat(self.vertices[rows], self.lengths[rows])
        targets = self.targets[slots]
        weights = None if self.weights is None else self.weights[slots]
        if self.loop is not None:
            loops = rows.start + np.flatnonzero(self.loop[rows])
            vertices = self.vertices[loops]
            sources, targets = (np.concatenate([each, vertices]) for each in (sources, targets))
            weights = None if weights is None else np.concatenate([weights, self.loop[loops]])
        return EdgeBlock(sources.astype(np.int64), targets.astype(np.int64), weights)


class GatheredEdges(CapturedEdges):
    """All edges of one moment, in the memory of this process.

    edges  their number
    """

    def __init__(self, parts: Sequence[ShardLists], edges: int, directed: bool) -> None:
        self.edges = edges
        self._parts, self._directed = parts, directed

    def blocks(self) -> Iterator[EdgeBlock]:
        for part in self._parts:
            ends = np.concatenate([[0], np.cumsum(part.lengths, dtype=np.int64)])
            for rows in row_blocks(part.lengths, BLOCK_EDGES):
                edges = part.block(rows, slice(ends[rows.start], ends[rows.stop]))
                yield edges if self._directed else edges.only(edges.sources <= edges.targets)

    def joined(self) -> EdgeBlock:
        """All of them, at once."""
        nothing = EdgeBlock(NO_IDS, NO_IDS, None)
        return EdgeBlock.joined(list(self.blocks()) or [nothing])


class ShardEdgeReader(EdgeReader):
    """Reads the edges of one shard: between two batches."""

    _graph: ShardGraph

    def own_neighbours(self, vertex: int, direction: Direction, limit: int) -> Neighbours | None:
        """See EdgeReader.neighbours; None if another shard owns the vertex."""
        own = len(self._rows_of(np.array([vertex])))
        return self.neighbours(vertex, direction, limit) if own else None

    def own_strengths(self, vertices: NDArray[np.int64]) -> NDArray[np.float64]:
        """See EdgeReader.strengths; 0 for vertices of other shards."""
        found = np.zeros((2, len(vertices)))
        own = self._graph.backend.device.to_host(self._graph.own_rows(vertices)[1])
        found[:, own] = self.strengths(vertices)
        return found

    def own_isolated(self, vertices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of own vertices among these that have no edge in either direction."""
        rows = self._rows_of(vertices)
        return self._ids_of(rows[self._have_no_edge(rows)])

    def lists(self) -> ShardLists:
        """All of them."""
        graph, to_host = self._graph, self._graph.backend.device.to_host
        entries = graph.backend.rebuild.entries(graph.outgoing.csr)
        rows = graph.backend.xp.arange(graph.vertices, dtype=np.int32)
        return ShardLists(
            self._ids_of(rows).astype(np.int32),
            to_host(graph.outgoing.csr.row_lengths),
            self._ids_of(entries.neighbours).astype(np.int32),
            None if entries.weights is None else to_host(entries.weights),
            None if graph.fixed_loops else to_host(graph.loop),
        )

    def _rows_of(self, vertices: NDArray[np.int64]) -> Array:
        rows, _ = self._graph.own_rows(vertices)
        return rows

    def _ids_of(self, columns: Array) -> NDArray[np.int64]:
        # a row is the column of an own vertex
        graph = self._graph
        return graph.permutation.ids_of(graph.numbering.positions_at(columns, graph.backend.xp))
