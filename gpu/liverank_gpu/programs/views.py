"""A graph as programs read it, with and without directions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.csr import Csr
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.programs import ProgramGraph, VertexProgram


def ids_by_position(graph: DynamicGraph) -> Array:
    """int32[n], the id at each position."""
    ids = graph.backend.xp.arange(graph.vertices, dtype=np.int32)
    known = graph.permutation.ids
    ids[: len(known)] = known
    return ids


def absent_positions(graph: DynamicGraph) -> Array:
    """uint8[n], 1 at the positions of free ids."""
    absent = graph.backend.xp.zeros(graph.vertices, np.uint8)
    absent[graph.free] = 1
    return absent


def distinct(xp: Any, values: Array) -> Array:
    """The values in ascending order, each once; NumPy's own takes a hundred times as long."""
    values = xp.sort(values)
    return values[xp.concatenate([values[:1] == values[:1], values[1:] != values[:-1]])]


def program_graph(graph: DynamicGraph, program: VertexProgram) -> ProgramGraph:
    """The graph for a program, until the next batch."""
    view = graph.view
    if view.weighted and not program.reads_weights:
        view = view._replace(
            outgoing=view.outgoing._replace(weights=None),
            incoming=view.incoming._replace(weights=None),
            loop=(view.loop != 0).astype(np.uint8),
            degree=view.outgoing.row_lengths,
        )
    return ProgramGraph(
        view,
        graph.in_rows() if program.every_vertex or program.first_wins else None,
        ids_by_position(graph),
        absent_positions(graph),
        graph.ids.count,
        program.direction == "both" and graph.directed,
    )


# ---- the edges of a graph without direction and loops ----


class Edges(NamedTuple):
    """Edges by id, in ascending order.

    sources, targets  int64[m], the lower and the higher id
    order             int64[m], the place of each edge in Undirected
    """

    sources: Array
    targets: Array
    order: Array


class Undirected(NamedTuple):
    """Each edge once: from the end of fewer entries to that of more. Ends are named by rank in this
    order.

    rank    int64[n], of each position
    keys    int64[m], ascending: lower rank << 32 | higher rank
    degree  int64[n], number of neighbours, by rank
    """

    rank: Array
    keys: Array
    degree: Array

    @classmethod
    def of(cls, graph: DynamicGraph) -> Undirected:
        xp, vertices, csr = graph.backend.xp, graph.vertices, graph.outgoing.csr
        rows, neighbours, _ = graph.backend.rebuild.entries(csr)
        lengths = csr.row_lengths + graph.incoming.csr.row_lengths
        rank = xp.empty(vertices, np.int64)
        rank[xp.argsort(lengths, kind="stable")] = xp.arange(vertices)
        first, second = rank[rows], rank[neighbours]
        keys = xp.minimum(first, second) << 32 | xp.maximum(first, second)
        keys = distinct(xp, keys) if graph.directed else xp.sort(keys[first < second])
        ends = (keys >> 32, keys & 0xFFFFFFFF)
        degree = sum(xp.bincount(each, minlength=vertices) for each in ends)
        return cls(rank, keys, degree)

    @property
    def sources(self) -> Array:
        """int32[m], the rank of each edge's lower end."""
        return (self.keys >> 32).astype(np.int32)

    def lists(self, xp: Any, keys: Array) -> Csr:
        """Packed rows of ascending keys."""
        vertices = len(self.rank)
        starts = xp.searchsorted(keys, xp.arange(vertices + 1) << 32)
        lengths = (starts[1:] - starts[:-1]).astype(np.int32)
        return Csr(starts[:-1].astype(np.int64), lengths, (keys & 0xFFFFFFFF).astype(np.int32))

    def positions(self, xp: Any) -> Array:
        """int64[n], the position of each rank."""
        position = xp.empty_like(self.rank)
        position[self.rank] = xp.arange(len(self.rank))
        return position

    def by_id(self, graph: DynamicGraph) -> Edges:
        """The edges by id."""
        xp = graph.backend.xp
        ids = ids_by_position(graph)[self.positions(xp)].astype(np.int64)
        ends = ids[self.keys >> 32], ids[self.keys & 0xFFFFFFFF]
        keys = xp.minimum(*ends) << 32 | xp.maximum(*ends)
        order = xp.argsort(keys)
        keys = keys[order]
        return Edges(keys >> 32, keys & 0xFFFFFFFF, order)


def neighbour_lists(graph: DynamicGraph) -> Csr:
    """The neighbours of each position, without direction, loops and weights."""
    if not graph.directed:
        return graph.outgoing.csr._replace(weights=None)
    xp, edges = graph.backend.xp, Undirected.of(graph)
    position = edges.positions(xp)
    ends = position[edges.keys >> 32], position[edges.keys & 0xFFFFFFFF]
    both = xp.concatenate([ends[0] << 32 | ends[1], ends[1] << 32 | ends[0]])
    return edges.lists(xp, xp.sort(both))
