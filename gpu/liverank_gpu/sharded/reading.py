"""The edges of a graph in shards: each shard reads the lists of its own vertices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.graph.reading import (
    BLOCK_EDGES,
    CapturedEdges,
    Direction,
    EdgeBlock,
    EdgeReader,
    Neighbours,
)
from liverank_gpu.graph.rows import row_blocks
from liverank_gpu.graph.vertex_ids import NO_IDS
from liverank_gpu.operations.device import Array
from liverank_gpu.sharded.graph import ShardGraph


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
