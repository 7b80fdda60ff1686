"""A graph in memory as programs and algorithms read it, with and without directions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.graph.packed_csr import distinct, entries_of
from liverank_gpu.operations.analysis import (
    CoreNumbers,
    CountBetween,
    CountTriangles,
    Interval,
    ListTriangles,
    LowerBounds,
    LowerCores,
    RowWindow,
    TooMuch,
    TriangleLists,
)
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Csr, GraphView
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.programs import ProgramGraph, VertexProgram
from liverank_gpu.programs.algorithms import DnGraphs
from liverank_gpu.programs.continued import (
    CoreOrder,
    Earlier,
    EdgeTriangles,
    VertexTriangles,
    continued_cores,
)
from liverank_gpu.programs.dn_graphs import dn_graph_edges, dn_graph_labels
from liverank_gpu.programs.pulling import ONE_BLOCK, grouped


def ids_by_position(graph: DynamicGraph) -> Array:
    """int32[columns], the id at each position; in shards that of each column."""
    positions = graph.positions_at(graph.backend.xp.arange(graph.columns, dtype=np.int32))
    return graph.permutation.to_ids(positions).astype(np.int32, copy=False)


def absent_positions(graph: DynamicGraph) -> Array:
    """uint8[n], 1 at the positions of free ids."""
    absent = graph.backend.xp.zeros(graph.vertices, np.uint8)
    absent[graph.free] = 1
    return absent


def program_graph(graph: DynamicGraph, program: VertexProgram) -> ProgramGraph:
    """The graph for a program, until the next batch. In shards all call it together."""
    view = graph.view
    if view.weighted and not program.reads_weights:
        view = view._replace(
            outgoing=view.outgoing._replace(weights=None),
            incoming=view.incoming._replace(weights=None),
            loop=(view.loop != 0).astype(np.uint8),
            degree=view.outgoing.row_lengths,
        )
    gathers = program.every_vertex or program.first_wins or program.pulls or graph.divided
    return ProgramGraph(
        view._replace(degree=graph.over_columns(view.degree)),
        graph.in_rows() if gathers else None,
        ids_by_position(graph),
        absent_positions(graph),
        graph.ids.count,
        program.direction == "both" and graph.directed,
    )


_FEW_ENTRIES = 1 << 12
"""May be read in any case, to continue."""

_PART_READ, _PART_CHANGED, _FEW_CHANGES = 4, 1 << 12, 1 << 8
"""To continue core numbers at most one part in so many of all entries is read. It is not tried if
more edges have changed than one part in so many entries, and so many more.
"""


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
        return _packed_lists(xp, len(self.rank), keys)

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


def _edge_triangles(backend: Backend, oriented: Csr, sources: Array) -> Array:
    """int32[m], the triangles of each edge."""
    if len(sources) == 0:
        return backend.xp.zeros(0, np.int32)
    return backend.run(CountTriangles(oriented, sources, every_edge=True))


class MemoryNeighbours:
    """See liverank_gpu.programs.algorithms.Neighbours."""

    def __init__(self, graph: DynamicGraph) -> None:
        self._graph, self.run = graph, graph.backend.run
        self.work = (0, 0)
        self._viewed: ProgramGraph | None = None
        self._entries: tuple[Array, Array] | None = None

    def _read(self, entries: int) -> None:
        self.work = (self.work[0] + 1, self.work[1] + self._graph.count(entries))

    def core_numbers(self) -> tuple[Array, CoreOrder | None]:
        """Peeling: Matula and Beck, "Smallest-last ordering" (JACM 1983). In shards bounds fall as
        out of core (liverank_gpu.out_of_core.views).
        """
        lists = _neighbour_lists(self._graph)
        if self._graph.divided:
            return self._fallen_bounds(lists), None
        self._read(int(self._graph.backend.device.sum(lists.row_lengths)))
        cores, order = self.run(CoreNumbers(lists))
        xp = self._graph.backend.xp
        places = xp.empty_like(order)
        places[order] = xp.arange(len(order), dtype=np.int32)
        return cores, CoreOrder(places, xp.zeros(0, np.int32))

    def _fallen_bounds(self, lists: Csr) -> Array:
        graph, lengths = self._graph, lists.row_lengths
        rows, bounds = grouped(graph.backend, lengths), graph.over_columns(lengths)
        blocks, fallen = graph.backend.xp.zeros(1, np.int32), 1
        while fallen:
            lower = LowerCores(lists, rows, bounds, blocks, ONE_BLOCK, 1)
            fallen = graph.count(graph.local.run(lower) if rows.count else 0)
            self._read(int(graph.backend.device.sum(lengths)))
            own = bounds[: graph.vertices]
            bounds = graph.over_columns(own)
        return own.copy()

    def continued_cores(self, earlier: Earlier) -> tuple[Array, CoreOrder] | None:
        near = MemoryRows(self._graph, _PART_READ)
        changes = earlier.ends.shape[1]
        if changes > near.entries // _PART_CHANGED + _FEW_CHANGES:
            return None
        found = continued_cores(self._graph.backend, near, earlier)
        self._read(near.read)
        return found

    def votes(self, labels: Array) -> Iterator[tuple[slice, Array]]:
        if self._entries is None:
            self._entries = _entries_of_both(self._graph)
        keys, neighbours = self._entries
        self._read(len(keys))
        yield slice(None), keys | self._graph.over_columns(labels)[neighbours]

    def changed(self, flags: Array) -> bool:
        return self._graph.count(int(self._graph.backend.device.sum(flags))) > 0

    def program_graph(self) -> ProgramGraph:
        graph = self._graph
        if self._viewed is None:
            csr = _neighbour_lists(graph)
            lengths = csr.row_lengths
            longest = int(lengths.max()) if graph.vertices else 0
            loops = graph.backend.xp.zeros(graph.vertices, np.uint8)
            degree = graph.over_columns(lengths)
            view = GraphView(graph.vertices, 0, csr, csr, loops, degree, longest)
            rows = grouped(graph.backend, lengths) if graph.divided else None
            ids, absent = ids_by_position(graph), absent_positions(graph)
            self._viewed = ProgramGraph(view, rows, ids, absent, graph.ids.count, both=False)
        elif not graph.directed:  # its arrays may be copies now
            csr = _neighbour_lists(graph)
            view = self._viewed.view._replace(outgoing=csr, incoming=csr)
            self._viewed = self._viewed._replace(view=view)
        return self._viewed


class MemoryRows:
    """See liverank_gpu.operations.analysis.NearRows.

    entries  of the graph
    """

    def __init__(self, graph: DynamicGraph, part_read: int) -> None:
        """part_read  at most one part in so many of all entries is read, and a few more"""
        self._graph, self.read = graph, 0
        self.entries = 2 * graph.arcs if graph.directed else graph.arcs
        self.most = _FEW_ENTRIES + self.entries // part_read
        self.outgoing = graph.outgoing.csr._replace(weights=None)
        self.incoming = graph.incoming.csr._replace(weights=None) if graph.directed else None
        if graph.directed:  # rows of those that were asked for
            self._starts = graph.backend.xp.zeros(graph.vertices, np.int64)
            self._lengths = graph.backend.xp.zeros(graph.vertices, np.int32)

    def of(self, vertices: Array) -> tuple[Array, Array]:
        backend, xp = self._graph.backend, self._graph.backend.xp
        if self.incoming is None:
            self._take(vertices, [self.outgoing])
            places, neighbours, _ = entries_of(backend, self.outgoing, vertices)
            return places, neighbours
        keys = distinct(xp, self.arcs(vertices))
        return keys >> 32, (keys & 0xFFFFFFFF).astype(np.int32)

    def arcs(self, vertices: Array) -> Array:
        backend, xp = self._graph.backend, self._graph.backend.xp
        both = [self.outgoing] if self.incoming is None else [self.outgoing, self.incoming]
        self._take(vertices, both)
        entries = [entries_of(backend, csr, vertices) for csr in both]
        keys = [places.astype(np.int64) << 32 | neighbours for places, neighbours, _ in entries]
        return xp.sort(xp.concatenate(keys))

    def _take(self, vertices: Array, lists: list[Csr]) -> None:
        lengths = lists[0].row_lengths[vertices]
        if len(lists) == 2:
            lengths = lengths + lists[1].row_lengths[vertices]
        self.take(int(self._graph.backend.device.sum(lengths)))

    def take(self, entries: int) -> None:
        self.read += entries
        if self.read > self.most:
            raise TooMuch

    def lists(self, vertices: Array) -> Csr:
        if self.incoming is None:
            return self.outgoing
        places, neighbours = self.of(vertices)
        lengths = self._graph.backend.xp.bincount(places, minlength=len(vertices))
        self._starts[vertices] = self._graph.backend.xp.cumsum(lengths) - lengths
        self._lengths[vertices] = lengths
        return Csr(self._starts, self._lengths, neighbours)


def _entries_of_both(graph: DynamicGraph) -> tuple[Array, Array]:
    """The entries of both directions: rows, in the upper half of an int64, and neighbours."""
    xp, entries = graph.backend.xp, graph.backend.rebuild.entries
    rows, neighbours, _ = entries(graph.outgoing.csr)
    if graph.directed:
        others = entries(graph.incoming.csr)
        rows = xp.concatenate([rows, others[0]])
        neighbours = xp.concatenate([neighbours, others[1]])
    return rows.astype(np.int64) << 32, neighbours


def _neighbour_lists(graph: DynamicGraph) -> Csr:
    """The neighbours of each row, without direction, loops and weights."""
    if not graph.directed:
        return graph.outgoing.csr._replace(weights=None)
    keys, neighbours = _entries_of_both(graph)
    keys |= neighbours
    return _packed_lists(graph.backend.xp, graph.vertices, distinct(graph.backend.xp, keys))


def _packed_lists(xp: Any, rows: int, keys: Array) -> Csr:
    """Packed rows of ascending keys, row << 32 | neighbour."""
    starts = xp.searchsorted(keys, xp.arange(rows + 1) << 32)
    lengths = (starts[1:] - starts[:-1]).astype(np.int32)
    return Csr(starts[:-1].astype(np.int64), lengths, (keys & 0xFFFFFFFF).astype(np.int32))


# ---- trusses: triangles are listed for an interval of rows at a time, all of them once if they fit
# into half of the free memory, else again in each iteration ----

_PAIR_BYTES = 8
"""Bytes of a triangle in the list of one of its edges."""


class MemoryTrusses:
    """See liverank_gpu.programs.algorithms.Trusses."""

    def __init__(self, graph: DynamicGraph, partitions: int) -> None:
        self._backend = backend = graph.backend
        edges = Undirected.of(graph)
        self._by_id = edges.by_id(graph)
        self._oriented = edges.lists(backend.xp, edges.keys)
        self._sources = edges.sources
        self._triangles = _edge_triangles(backend, self._oriented, self._sources)
        self._bounds = self._triangles.copy()
        self._marks = (self._triangles > 0).astype(np.int32)
        self._falls = backend.xp.zeros(len(edges.keys) + 1, np.int64)
        self._intervals = list(self._divided(partitions)) if len(edges.keys) else []
        self.partitions = len(self._intervals)
        self._kept: TriangleLists | None = None
        self.examined = self.iterations = 0
        self.finished = len(edges.keys) == 0

    def _divided(self, partitions: int) -> Iterator[Interval]:
        """Intervals whose lists have at most one part in `partitions` of all triangles and fit into
        half of the free memory, or are those of one row.
        """
        device, oriented = self._backend.device, self._oriented
        ends = device.to_host(oriented.row_starts + oriented.row_lengths)
        # entries of the lists of the edges before each, and of the rows up to each
        before = np.append(0, np.cumsum(device.to_host(self._triangles), dtype=np.int64))
        through = before[ends]
        free = device.memory_available() // (2 * _PAIR_BYTES)
        total, rows = int(through[-1]), len(ends)
        most = min(max(1, free), -(-total // partitions))
        first_row = first_edge = done = 0
        while done < total:
            end_row = int(np.searchsorted(through, done + most, side="right"))
            end_row = min(max(end_row, first_row + 1), rows)
            end_edge = int(ends[end_row - 1])
            yield Interval(first_row, end_row, first_edge, end_edge)
            first_row, first_edge, done = end_row, end_edge, int(through[end_row - 1])

    def _lists(self, interval: Interval) -> TriangleLists:
        if self._kept is not None:
            return self._kept
        xp, backend = self._backend.xp, self._backend
        counts = self._triangles[interval.first_edge : interval.end_edge]
        starts = xp.zeros(len(counts) + 1, np.int64)
        starts[1:] = xp.cumsum(counts, dtype=np.int64)
        size = int(starts[-1])
        others = backend.device.allocate("lists of triangles", 2 * size, np.int32)
        lists = TriangleLists(starts, others.reshape(size, 2))
        backend.run(ListTriangles(self._oriented, self._sources, interval, lists))
        if len(self._intervals) == 1:
            self._kept = lists
        return lists

    def lower(self, by_bisection: bool) -> None:
        """Examines the marked edges of each interval."""
        fallen = 0
        for interval in self._intervals:
            marks = self._marks[interval.first_edge : interval.end_edge]
            if self._kept is None and not int(self._backend.device.sum(marks)):
                continue
            lists = self._lists(interval)
            examined, changed = self._backend.run(
                LowerBounds(interval, lists, by_bisection, self._bounds, self._marks, self._falls)
            )
            self.examined += examined
            fallen += changed
        self.iterations += 1
        self.finished = fallen == 0

    def found(self, more: int) -> tuple[Array, tuple[Array, Array], int]:
        sources, targets, order = self._by_id
        return self._bounds[order] + np.int32(more), (sources, targets), self.iterations

    def order(self) -> Array:
        return self._falls[1:][self._by_id.order]


# ---- triangles in shards ----

_SUMMED = 1 << 22
"""Counts of triangles that each shard sends at a time."""


def _divided_triangles(graph: DynamicGraph) -> VertexTriangles:
    """Of own vertices. Each shard counts the triangles u, v, w, in the order of ranks, whose u it
    owns. The lists of v come from all shards for an interval of ranks at a time: about as many
    entries as a shard has. All shards call it together.

    A *rank* is the place of a vertex among those of all shards, fewest neighbours first.
    """
    backend, xp, united = graph.backend, graph.backend.xp, graph.united
    csr = _neighbour_lists(graph)
    own = graph.positions_at(xp.arange(graph.vertices, dtype=np.int32))
    positions, lengths = united(own), united(csr.row_lengths)
    vertices = len(positions)
    by_position, rank = xp.empty(vertices, np.int32), xp.empty(vertices, np.int64)
    by_position[positions] = lengths
    rank[xp.argsort(by_position, kind="stable")] = xp.arange(vertices)
    own = rank[own]
    rows, neighbours, _ = backend.rebuild.entries(csr)
    first, second = own[rows], rank[graph.positions_at(neighbours)]
    keys = xp.sort((first << 32 | second)[first < second])
    oriented = _packed_lists(xp, vertices, keys)
    lengths = xp.zeros(vertices, np.int32)
    lengths[rank[positions]] = united(oriented.row_lengths[own])
    ends = xp.cumsum(lengths, dtype=np.int64)
    starts, total = ends - lengths, graph.count(len(keys))
    most = -(-total // max(1, graph.count(1)))
    triangles, begin, done = xp.zeros(vertices, np.int64), 0, 0
    lowest = RowWindow(0, vertices, oriented)
    while done < total:
        end = max(begin + 1, int(xp.searchsorted(ends, done + most, side="right")))
        part = xp.searchsorted(keys, xp.asarray([begin << 32, end << 32])).tolist()
        entries = (xp.sort(united(keys[slice(*part)])) & 0xFFFFFFFF).astype(np.int32)
        middle = RowWindow(begin, end, Csr(starts - done, lengths, entries))
        if len(keys):
            graph.local.run(CountBetween(lowest, middle, triangles))
        begin, done = end, int(ends[end - 1])
    counts = xp.empty(len(own), np.int64)
    for begin in range(0, vertices, _SUMMED):
        sent = triangles[begin : begin + _SUMMED]
        sums = united(sent).reshape(-1, len(sent)).sum(axis=0)
        here = (own >= begin) & (own < begin + len(sent))
        counts[here] = sums[own[here] - begin]
    return VertexTriangles(counts, csr.row_lengths, slice(None), total, 1)


# ---- the whole graph ----


class MemoryGraph:
    """See liverank_gpu.programs.algorithms.AnalysedGraph."""

    def __init__(self, graph: DynamicGraph) -> None:
        self._graph, self.backend = graph, graph.backend

    @property
    def vertices(self) -> int:
        return self._graph.ids.count

    @property
    def ids(self) -> Array:
        return ids_by_position(self._graph)[: self._graph.vertices]

    def count(self, found: int) -> int:
        return self._graph.count(found)

    def united(self, values: Array) -> Array:
        return self._graph.united(values)

    @property
    def absent(self) -> Array:
        return absent_positions(self._graph)

    def neighbours(self, repeats: bool = False) -> AbstractContextManager[MemoryNeighbours]:  # noqa: ARG002
        return nullcontext(MemoryNeighbours(self._graph))

    def near_rows(self) -> MemoryRows:
        return MemoryRows(self._graph, part_read=1)

    def vertex_triangles(self) -> VertexTriangles:
        if self._graph.divided:
            return _divided_triangles(self._graph)
        graph, xp = self._graph, self.backend.xp
        edges, counts = Undirected.of(graph), xp.zeros(graph.vertices, np.int64)
        if len(edges.keys):
            oriented = edges.lists(xp, edges.keys)
            found = self.backend.run(CountTriangles(oriented, edges.sources, every_edge=False))
            # each triangle is found at two entries of its first vertex
            first, others = (
                xp.bincount(ends, weights=found, minlength=graph.vertices)
                for ends in (edges.sources, oriented.column_indices)
            )
            counts = (first / 2.0 + others).astype(np.int64)
        return VertexTriangles(counts, edges.degree, edges.rank, len(edges.keys), 1)

    def edge_triangles(self) -> EdgeTriangles:
        edges = Undirected.of(self._graph)
        oriented = edges.lists(self.backend.xp, edges.keys)
        counts = _edge_triangles(self.backend, oriented, edges.sources)
        sources, targets, order = edges.by_id(self._graph)
        total = int(self.backend.device.sum(counts))
        largest = int(counts.max()) if len(counts) else 0
        return EdgeTriangles(counts[order], (sources, targets), total, largest, 1, len(counts))

    def trusses(self, partitions: int) -> AbstractContextManager[MemoryTrusses]:
        return nullcontext(MemoryTrusses(self._graph, partitions))

    def dn_graphs(self, lambdas: Array, ends: tuple[Array, Array]) -> DnGraphs:
        xp, vertices = self.backend.xp, self._graph.vertices

        def parts() -> Iterator[tuple[Array, Array, Array]]:
            yield *ends, lambdas

        labels, highest = dn_graph_labels(xp, vertices, parts)
        [(*found, of_edges, lambdas)] = dn_graph_edges(labels, highest, parts)
        count = int(self.backend.device.sum(labels == xp.arange(vertices)))
        return DnGraphs(of_edges, lambdas, (found[0], found[1]), count)
