"""A graph that is ranked once: in-lists alone, in arrays of their size, in the order of the ids.

A solve reads in-lists, out-degrees, or the sums of weights of out-edges, and loops. So edges are
sorted in one direction, and out-degrees are counted as the rows are filled. An undirected graph has
the same lists in both directions. Where a solve by components is tried, out-lists are made then.

Traffic for each edge on ``cuda``: 8 bytes from the host; 16 to make a key, 128 to sort it by eight
digits, 16 to drop repeats, 16 to count rows, 12 to fill them, and 8 and an addition at random to
count out-degrees. A sweep then takes 6 for each edge and 60 for each vertex.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from liverank_gpu.graph.batch import Columns, both_directions, not_loops
from liverank_gpu.graph.packed_csr import (
    LOADED_AT_ONCE,
    VERTEX_BYTES,
    PackedCsr,
    RowLengths,
    slot_bytes,
)
from liverank_gpu.graph.ranked_graph import RankedGraph
from liverank_gpu.graph.rebuild import degrees_of
from liverank_gpu.graph.vertices import VertexIds, VertexPermutation
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import ALIGNMENT, Csr, GraphView, loop_dtype, strength_dtype
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import Entries
from liverank_gpu.types import Options


def static_bytes(options: Options, edges: int, vertices: int) -> int:
    """Upper bound on the memory that a StaticGraph takes, its peak included."""
    arcs, weighted = edges if options.directed else 2 * edges, options.weighted
    slots = slot_bytes(weighted) * (arcs + (ALIGNMENT - 1) * min(arcs, vertices))
    # a weighted sort moves keys, weights and their places; entries are listed to sum weights
    sort = (40 if weighted else 16) * min(arcs, 2 * LOADED_AT_ONCE)
    listed = 20 * arcs if weighted and options.directed else 0
    kept = sum(np.dtype(of(weighted)).itemsize for of in (loop_dtype, strength_dtype))
    # columns, of an undirected graph both those given and those of all arcs; row lengths
    columns = 8 * edges + (0 if options.directed else 8 * arcs)
    return columns + slots + max(sort, listed) + (VERTEX_BYTES + 8 + kept + 8) * vertices


class StaticGraph(RankedGraph):
    """A RankedGraph that does not change, of which a solve sweeps
    over all vertices.

    edges      number of distinct edges; the loops of the ``self-loop`` policy are not counted
    connected  vertices with an edge other than their own loop
    others     see liverank_gpu.graph.dynamic_graph.DynamicGraph
    """

    def __init__(
        self,
        backend: Backend,
        options: Options,
        columns: Columns,
        weights: Array | None,
        vertices: int,
    ) -> None:
        """columns  ids below `vertices`, integer[m] each on the host or the device. Of edges that
                 are repeated, one counts
        weights  float32[m], of a weighted graph alone; the last one of equal edges counts

        Raises OutOfMemory, MemoryError.
        """
        self.vertices = self.columns = vertices
        self.weighted, self.directed = options.weighted, options.directed
        self.fixed_loops = options.dangling == "self-loop"
        self.ids, self.permutation = VertexIds(vertices), VertexPermutation(backend)
        self.free: Array = backend.device.allocate("vertices", 0, np.int32)
        self.backend = backend
        needed = static_bytes(options, len(columns[0]), vertices)
        backend.device.require(f"ranking {len(columns[0]):,} edges", needed)
        allocate, xp = backend.device.allocate, backend.xp
        weights = None if weights is None else xp.asarray(weights)
        columns = backend.graph.columns(*columns)
        if not self.directed:
            if weights is not None:
                opposite = xp.asarray(not_loops(backend, columns))
                weights = xp.concatenate([weights, weights[opposite]])
            columns = both_directions(backend, columns)
        sources, targets = columns
        self.loop = allocate("vertices", vertices, loop_dtype(self.weighted))
        self.loop.fill(0)
        lengths: Array = None
        if self.directed:
            lengths = allocate("vertices", vertices, np.int32)
            lengths.fill(0)
        self.incoming = PackedCsr(backend, vertices, self.weighted, grows=False)
        entries = Entries(targets, sources, weights)
        loaded = self.incoming.load(entries, self.loop, self._identity, counts=lengths)
        del sources, targets, weights, entries, columns
        loops = 0 if self.fixed_loops else loaded.loops
        if self.fixed_loops:
            self.loop.fill(1)
        self.arcs = loaded.edges + loops
        self.edges = (loaded.edges if self.directed else loaded.edges // 2) + loops
        self.outgoing: PackedCsr | RowLengths = self.incoming
        if self.directed:
            self.degree = self._degrees(lengths)
            # weights are added one after the other, then the loop, then a step above that
            longest = int(lengths.max()) if self.weighted and vertices else 0
            csr = self.incoming.csr
            none = csr.column_indices[:0], None if csr.weights is None else csr.weights[:0]
            self.outgoing = RowLengths(
                Csr(csr.row_starts[:0], lengths, *none), longest, longest + 2
            )
        else:
            self.degree = degrees_of(backend, self.incoming, self.loop, self.weighted)
        linked = self.incoming.csr.row_lengths | self.outgoing.csr.row_lengths
        self.connected = int(backend.device.sum(linked != 0))

    @property
    def _identity(self) -> Array:
        return self.backend.device.allocate("vertex order", 0, np.int32)

    def _degrees(self, lengths: Array) -> Array:
        """GraphView.degree, of a directed graph."""
        xp = self.backend.xp
        if not self.weighted:
            return lengths + self.loop
        entries = self.backend.rebuild.entries(self.incoming.csr)
        own = self.loop.astype(np.float64)
        sums = xp.bincount(entries.neighbours, entries.weights, minlength=self.vertices)
        degree = sums.astype(np.float64, copy=False) + own
        # a loop so heavy that it swallowed the other weights
        swallowed = (lengths > 0) & (degree == own)
        return xp.where(swallowed, xp.nextafter(degree, np.inf), degree)

    @cached_property
    def whole(self) -> GraphView:
        """The view with out-lists, which are made first of a directed graph. Raises OutOfMemory."""
        if not self.directed:
            return self.view
        backend, vertices = self.backend, self.vertices
        rows, neighbours, weights = backend.rebuild.entries(self.incoming.csr)
        no_loops = backend.device.allocate("vertices", vertices, loop_dtype(self.weighted))
        no_loops.fill(0)
        outgoing = PackedCsr(backend, vertices, self.weighted, grows=False)
        outgoing.load(Entries(neighbours, rows, weights), no_loops, self._identity)
        return self.view._replace(outgoing=outgoing.csr)
