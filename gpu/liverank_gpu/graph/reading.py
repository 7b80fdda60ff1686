"""A graph read while it goes on: edges of some vertices or captured, a subgraph, and all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import InvalidValue, OutOfMemory
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.graph.in_pages import InPages
from liverank_gpu.graph.packed_csr import entries_of, find, row_blocks, rows_of
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Csr
from liverank_gpu.operations.device import Array, DeviceOperations
from liverank_gpu.types import EdgeBatch

# Memory for copies of the device's arrays, made ready by the thread that wants the copies.

_SPARE_PART = 8
"""A staging buffer has one spare element in _SPARE_PART, for batches before the copy."""


class StagingBuffer:
    """Memory for copies of named arrays, on their device. It is touched, because first touch costs
    20 times the copy.
    """

    def __init__(self, device: DeviceOperations, sources: Mapping[str, Array]) -> None:
        """Raises OutOfMemory."""
        self._arrays: dict[str, Array] = {}
        with device.reading():
            for name, source in sources.items():
                count = len(source) + len(source) // _SPARE_PART
                array = device.allocate("a copy of the graph", count, source.dtype.type)
                array.fill(0)
                self._arrays[name] = array

    def copies(self, sources: Mapping[str, Array]) -> dict[str, Array]:
        """Copies, in the memory kept for them, or elsewhere if they do not fit."""
        return {name: self._copy(name, source) for name, source in sources.items()}

    def _copy(self, name: str, source: Array) -> Array:
        array = self._arrays[name]
        if len(array) < len(source):
            return source.copy()
        array[: len(source)] = source
        return array[: len(source)]


# Reading edges while the graph changes: a copy of all of them, and the lists of a few vertices.
#
# buffer = reader.buffer()             any thread: memory
# captured = reader.capture(buffer)    the owner, between two batches: a copy at the bandwidth of
#                                      memory, of the out-lists alone
# for edges in captured.blocks(): …    any thread

BLOCK_EDGES = 1 << 17
"""Edges of a block, and at least one row."""

Direction = Literal["out", "in"]


class EdgeBlock(NamedTuple):
    """Edges on the host.

    sources, targets  int64[k], ids
    weights           float32[k]; None for an unweighted graph
    """

    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    weights: NDArray[np.float32] | None

    def within(self, vertices: NDArray[np.int64]) -> EdgeBlock:
        """The edges whose targets are in `vertices`."""
        return self.only(np.isin(self.targets, vertices))

    @classmethod
    def joined(cls, blocks: Sequence[EdgeBlock]) -> EdgeBlock:
        """The edges of at least one block, one after the other."""
        weights = [block.weights for block in blocks if block.weights is not None]
        return cls(
            np.concatenate([block.sources for block in blocks]),
            np.concatenate([block.targets for block in blocks]),
            np.concatenate(weights) if weights else None,
        )

    def only(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> EdgeBlock:
        """Some of the edges: where it is so, or at these places."""
        weights = None if self.weights is None else self.weights[chosen]
        return EdgeBlock(self.sources[chosen], self.targets[chosen], weights)


class Neighbours(NamedTuple):
    """Neighbours of a vertex, itself included if it has a loop.

    degree   number of all of them
    ids      int64[k]
    weights  float32[k], of the edges; None for an unweighted graph
    """

    degree: int
    ids: NDArray[np.int64]
    weights: NDArray[np.float32] | None


class CapturedEdges:
    """The edges of one moment, which later batches do not change.

    edges  their number
    """

    def __init__(self, graph: DynamicGraph, arrays: dict[str, Array]) -> None:
        """arrays: copies of _captured_arrays."""
        self.edges = graph.edges
        self._directed = graph.directed
        self._backend = graph.backend
        self._permutation = graph.permutation  # which never changes
        self._loop = arrays.get("loop")
        self._csr = Csr(
            arrays["starts"], arrays["lengths"], arrays["column indices"], arrays.get("weights")
        )
        graph.backend.device.synchronize()

    def blocks(self) -> Iterator[EdgeBlock]:
        """All edges, in blocks of about BLOCK_EDGES, the edges of a source together. The source of
        an undirected edge is the lower id.
        """
        device = self._backend.device
        with device.reading():
            lengths = device.to_host(self._csr.row_lengths)
        # rows without entries may have loops
        for rows in row_blocks(lengths, BLOCK_EDGES):
            yield self._block(rows)

    def _block(self, rows: slice) -> EdgeBlock:
        with self._backend.device.reading():
            positions = self._backend.xp.arange(rows.start, rows.stop, dtype=np.int32)
            ids_of = self._permutation.ids_of
            edges = _listed(self._backend, ids_of, self._csr, self._loop, positions)
        return edges if self._directed else edges.only(edges.sources <= edges.targets)


class EdgeReader:
    """Reads the edges of a graph: only for its owner, between two batches, except `buffer`."""

    def __init__(self, graph: DynamicGraph) -> None:
        self._graph = graph

    def _detecting_loss(self) -> AbstractContextManager[None]:
        return self._graph.backend.device.detecting_loss()

    def buffer(self) -> StagingBuffer:
        """Memory for a capture. Any thread may call this, concurrent with the owner.

        Raises OutOfMemory.
        """
        sources = _captured_arrays(self._graph)
        device = self._graph.backend.device
        device.require("a copy of the edges", sum(array.nbytes for array in sources.values()))
        return StagingBuffer(device, sources)

    def capture(self, buffer: StagingBuffer) -> CapturedEdges:
        """A copy of all edges."""
        with self._detecting_loss():
            return CapturedEdges(self._graph, buffer.copies(_captured_arrays(self._graph)))

    def neighbours(self, vertex: int, direction: Direction, limit: int) -> Neighbours:
        """Up to `limit` neighbours of a vertex, in no particular order.

        vertex     its id
        direction  ``out``: targets of its edges; ``in``: sources
        """
        with self._detecting_loss():
            return self._neighbours(vertex, direction, limit)

    def _neighbours(self, vertex: int, direction: Direction, limit: int) -> Neighbours:
        graph = self._graph
        rows = graph.outgoing if direction == "out" else graph.incoming
        starts, lengths, column_indices, weights = rows.csr
        to_host = graph.backend.device.to_host
        position = self._rows_of(np.array([vertex]))
        length = int(to_host(lengths[position])[0])
        begin = int(to_host(starts[position])[0])
        slots = slice(begin, begin + min(length, limit))
        ids = self._ids_of(column_indices[slots])
        amounts = None if weights is None else to_host(weights[slots])
        loop = None if graph.fixed_loops else to_host(graph.loop[position])
        if loop is not None and loop[0]:
            length += 1
            if len(ids) < limit:
                ids = np.append(ids, vertex)
                amounts = None if amounts is None else np.append(amounts, loop)
        return Neighbours(length, ids, amounts)

    def steps_to(self, vertex: int, limit: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """int64[d] and float64[d]: the in-neighbours of a vertex, by id, itself included if it has
        a loop, and the probability of the step to it from each, the weight of the edge / W.

        Raises InvalidValue if there are more than `limit`.
        """
        found = self.neighbours(vertex, "in", limit)
        ids = found.ids
        if found.degree > limit:
            expected = f"a vertex with at most {limit:,} in-edges, this has {found.degree:,}"
            raise InvalidValue("vertex", vertex, expected)
        weights = np.ones(len(ids)) if found.weights is None else found.weights.astype(np.float64)
        if self._fixed_loops:
            ids = np.append(ids, vertex)
            weights = np.append(weights, self.strengths(ids[-1:])[1])
        return ids, weights / self.strengths(ids)[0]

    @property
    def _fixed_loops(self) -> bool:
        return self._graph.fixed_loops

    def strengths(self, vertices: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64[2, k]: W of these vertices, the sum of the weights of the out-edges and the loop,
        and the weight of the loop.
        """
        with self._detecting_loss():
            graph, rows = self._graph, self._rows_of(vertices)
            to_host = graph.backend.device.to_host
            return np.stack([to_host(each[rows]) for each in (graph.degree, graph.loop)]).astype(
                np.float64
            )

    def are_isolated(self, vertices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """bool[k]: whether each of these vertices, by id, has no edge in either direction."""
        with self._detecting_loss():
            isolated = self._have_no_edge(self._rows_of(vertices))
            return self._graph.backend.device.to_host(isolated)

    def _have_no_edge(self, rows: Array) -> Array:
        """bool[k], of int32[k]."""
        graph = self._graph
        lists = (graph.outgoing.csr, graph.incoming.csr)
        isolated = sum(csr.row_lengths[rows] for csr in lists) == 0
        return isolated if graph.fixed_loops else isolated & (graph.loop[rows] == 0)

    def out_edges(self, vertices: NDArray[np.int64], limit: int) -> EdgeBlock:
        """The edges from these vertices: distinct ids. An undirected edge between two of them is
        listed once.

        Raises InvalidValue if there may be more than `limit`.
        """
        with self._detecting_loss():
            return self._out_edges(vertices, limit)

    def count_out_edges(self, vertices: NDArray[np.int64]) -> int:
        """Upper bound on the number of edges from these vertices: distinct ids."""
        with self._detecting_loss():
            return self._count_out_edges(vertices)

    def _count_out_edges(self, vertices: NDArray[np.int64]) -> int:
        graph, rows = self._graph, self._rows_of(vertices)
        lengths = graph.outgoing.csr.row_lengths[rows]
        if not graph.fixed_loops:
            lengths = lengths + (graph.loop[rows] != 0)
        return int(graph.total(lengths))

    def _out_edges(self, vertices: NDArray[np.int64], limit: int) -> EdgeBlock:
        graph, outgoing = self._graph, self._graph.outgoing.csr
        positions = self._rows_of(vertices)
        found = self._count_out_edges(vertices)
        if found > limit:
            raise InvalidValue(
                "vertices",
                len(vertices),
                f"vertices with at most {limit:,} out-edges together, these have {found:,}; "
                "export all edges instead",
            )
        loop = None if graph.fixed_loops else graph.loop
        edges = _listed(graph.backend, self._ids_of, outgoing, loop, positions)
        if graph.directed:
            return edges
        return edges.only((edges.sources <= edges.targets) | ~np.isin(edges.targets, vertices))

    def exponents(self, vertices: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64[k]: the weights of the edges from each of these vertices, as they are read, are to
        be multiplied by 2 to this power. Of a graph whose weights decay: see
        liverank_gpu.graph.decay.
        """
        assert self._graph.decay is not None
        return self._graph.decay.exponents[vertices]

    def _rows_of(self, vertices: NDArray[np.int64]) -> Array:
        """int32[…]: the rows of vertices."""
        return self._graph.permutation.positions_of(vertices).astype(np.int32)

    def _ids_of(self, columns: Array) -> NDArray[np.int64]:
        """The ids of rows, or of entries of lists."""
        return self._graph.permutation.ids_of(columns)


# ---- reading a whole graph while batches change it, by copy on write ----
#
# shared = SharedGraph(graph)      reads the arrays of the graph, until `detach`
# detach([shared, …])              before a batch: one copy, which all of them share
#
# So a reader that ends before the next batch costs nothing, and one that does not costs a copy at
# the bandwidth of memory.


class SharedGraph:
    """A graph at one moment, for reading alone.

    graph      it: apply no batch to it
    is_copied  whether its arrays are a copy, which several may share
    nbytes     of the copy
    """

    def __init__(self, graph: DynamicGraph) -> None:
        self.graph = copy(graph)
        self.graph.in_pages = InPages(graph.backend)  # those of the graph are not kept from it
        self.is_copied = False
        self.nbytes = 0


def copied_bytes(graph: DynamicGraph) -> int:
    """Bytes of the arrays of a copy."""
    loops = graph.loop.nbytes + graph.degree.nbytes
    return graph.outgoing.copied_bytes + graph.incoming.copied_bytes + int(loops)


def detach(readers: Iterable[SharedGraph], beside: int) -> None:
    """Gives readers of the same graph one copy of it, if they have none.

    beside  bytes that are to be available after it

    Raises OutOfMemory; they then read the graph still.
    """
    attached = [each for each in readers if not each.is_copied]
    if not attached:
        return
    source = attached[0].graph
    device, needed = source.backend.device, copied_bytes(source)
    purpose = "a copy of the graph for a program"
    device.require(purpose, needed + beside)
    try:
        outgoing, incoming = source.outgoing.copied(), source.incoming.copied()
        loop, degree = source.loop.copy(), source.degree.copy()
        ids = source.ids.copied()
    except MemoryError as error:
        raise OutOfMemory(purpose, needed, device.memory_available()) from error
    for each in attached:
        graph = each.graph
        graph.outgoing, graph.incoming = outgoing, incoming
        graph.loop, graph.degree, graph.ids = loop, degree, ids
        each.is_copied, each.nbytes = True, needed


# ---- the subgraph of some vertices ----


def induced_subgraph(
    graph: DynamicGraph, vertices: NDArray[np.int64]
) -> Iterator[DynamicGraph | None]:
    """The graph of the edges between these vertices, which are 0, 1, … in it, after None for each
    step on the way there, between which the graph must not change. Its edges are directed: an
    undirected edge is two. Weights that decay are those of now but for a factor for each row, which
    no probability depends on, and stay. The cost follows the out-lists of the vertices. All shards
    of a graph take the steps together, and each gets all of it.

    vertices  int64[k], ids of vertices, distinct and ascending; at least one

    Raises OutOfMemory.
    """
    backend, xp, csr = graph.local, graph.backend.xp, graph.outgoing.csr
    at_once = backend.sizes.gathered
    # to find a better order takes longer than the few sweeps that such a graph is made for
    subgraph = DynamicGraph(backend, graph.dangling, "given", graph.weighted)
    purpose, count = f"the subgraph of {len(vertices):,} vertices", len(vertices)
    positions = graph.permutation.positions_of(vertices)
    order = xp.argsort(positions).astype(np.int32)
    ascending = positions[order]
    rows, here = graph.own_rows_at(positions)
    lengths = backend.device.to_host(csr.row_lengths[rows])
    backend.device.require(purpose, 40 * min(int(lengths.sum(dtype=np.int64)), at_once))
    nothing = xp.empty(0, np.int32)
    gathered = [(nothing, nothing, *([xp.empty(0, np.float32)] if graph.weighted else []))]
    blocks = list(row_blocks(lengths, at_once))
    for block in [*blocks, *[slice(0, 0)] * (graph.count(len(blocks)) - len(blocks))]:
        numbers, columns, weights = entries_of(backend, csr, rows[block])
        neighbours = graph.positions_at(columns)
        places, inside = find(xp, ascending, neighbours)
        arcs = (here[numbers[inside] + block.start], order[places[inside]])
        gathered.append(arcs if weights is None else (*arcs, weights[inside]))
        yield None
    if not graph.fixed_loops:
        loop = graph.loop[rows]
        own = xp.flatnonzero(loop)
        loops = here[own].astype(np.int32)
        gathered.append((loops, loops, loop[own]) if graph.weighted else (loops, loops))
    sources, targets, *weighted = (
        graph.united(xp.concatenate(each)) for each in zip(*gathered, strict=True)
    )
    backend.device.require(purpose, subgraph.bytes_needed(len(sources), count))
    weights = weighted[0] if weighted else None
    subgraph.apply(EdgeBatch(sources, targets, vertices=count, weights=weights))
    yield subgraph


def _captured_arrays(graph: DynamicGraph) -> dict[str, Array]:
    lists = graph.outgoing.arrays()
    return lists if graph.fixed_loops else lists | {"loop": graph.loop}


def _listed(
    backend: Backend,
    ids_of: Callable[[Array], NDArray[np.int64]],
    csr: Csr,
    loop: Array | None,
    positions: Array,
) -> EdgeBlock:
    """The edges of some rows, int32[k] distinct positions. loop: of all vertices, or None."""
    xp = backend.xp
    rows, neighbours, weights = rows_of(backend, csr, positions)
    if loop is not None:
        loops = positions[loop[positions] != 0]
        rows, neighbours = (xp.concatenate([column, loops]) for column in (rows, neighbours))
        weights = None if weights is None else xp.concatenate([weights, loop[loops]])
    return EdgeBlock(
        ids_of(rows),
        ids_of(neighbours),
        None if weights is None else backend.device.to_host(weights),
    )
