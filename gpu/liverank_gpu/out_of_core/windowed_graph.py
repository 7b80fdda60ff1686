"""A graph whose in-lists are streamed, as a solve reads it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from liverank_gpu.graph.permutation import VertexPermutation
from liverank_gpu.graph.vertex_ids import VertexIds
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Csr, GraphView, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.operation import Operation, Result, Run, combined
from liverank_gpu.operations.sweeps import PartialSweeps
from liverank_gpu.out_of_core.spool import PackedEdges
from liverank_gpu.out_of_core.window_stream import Windows, WindowStream


@dataclass(frozen=True, slots=True)
class StreamedRows:
    """One direction of a graph whose entries are streamed.

    csr             row starts in the window of each row; no entries
    longest         length of the longest row
    strength_depth  see liverank_gpu.pagerank.ranked_graph.NeighbourLists
    """

    csr: Csr
    longest: int
    strength_depth: int

    def partition(self) -> Rows:
        """Raises NotImplementedError."""
        raise NotImplementedError("rows that are streamed are grouped by window")


class WindowRun:
    """Runs operations window by window, if they read in-lists (liverank_gpu.operations.operation.
    Run). The sums of the windows are added up, so results depend on the order of windows, which
    alternates, by rounding alone.
    """

    def __init__(self, local: Run, stream: WindowStream) -> None:
        """local  that of the backend, which is given each window"""
        self._local, self._stream = local, stream

    def __call__(self, operation: Operation[Result], /) -> Result:
        if not operation.in_rows:
            return self._local(operation)
        graph: GraphView = operation.graph  # type: ignore[attr-defined]
        starts, lengths = graph.incoming.row_starts, graph.incoming.row_lengths
        results = []
        for window, slots in self._stream:
            view = graph._replace(incoming=Csr(starts, lengths, *slots))
            results.append(self._local(operation.over(view, window.rows)))
        total: Result = combined(operation, results, sum)
        return total


def permutation_of(backend: Backend, packed: PackedEdges) -> VertexPermutation:
    """Ids and positions of packed edges."""
    ids = backend.device.to_device(packed.ids) if len(packed.ids) else None
    return VertexPermutation(backend, ids)


class WindowedGraph:
    """A liverank_gpu.pagerank.ranked_graph.RankedGraph of which a solve sweeps over all vertices:
    it has no out-lists. It does not change.

    backend  the backend, with sweeps over windows
    """

    def __init__(self, backend: Backend, packed: PackedEdges, slots: int) -> None:
        """slots  of one buffer. Raises OutOfMemory, OSError."""
        device = backend.device
        self.vertices = self.columns = len(packed.row_lengths)
        self.edges, self.arcs, self.fixed_loops = packed.edges, packed.arcs, packed.fixed_loops
        self.directed, self.weighted = packed.directed, packed.weighted
        self.loop = device.to_device(packed.loop)
        self.degree = device.to_device(packed.degree)
        windows = Windows.of(backend, packed, slots)
        nothing = (device.allocate("windows of in-lists", 0, dtype) for dtype in packed.dtypes)
        rows = Csr(windows.row_starts, windows.row_lengths, *nothing)
        depth = packed.strength_depth
        self.incoming = StreamedRows(rows, int(packed.row_lengths.max(initial=0)), depth)
        no_rows = rows._replace(row_starts=rows.row_starts[:0], row_lengths=rows.row_lengths[:0])
        self.outgoing = StreamedRows(no_rows, packed.longest_outgoing, depth)
        self.ids, self.permutation = VertexIds(self.vertices), permutation_of(backend, packed)
        self.free: Array = device.allocate("vertices", 0, np.int32)
        linked = (self.degree != self.loop) | (windows.row_lengths != 0)
        self.connected = int(device.sum(linked))
        self.stream = WindowStream(backend, packed, windows.windows)
        sweeps, run = PartialSweeps(backend.sweeps), WindowRun(backend.run, self.stream)
        self.backend = replace(backend, sweeps=sweeps, run=run, components=None)

    def total(self, values: Array) -> float:
        """Σ over the vertices of an array over them."""
        return float(self.backend.device.sum(values))

    def count(self, found: int) -> int:
        """`found`: all vertices are here."""
        return found

    @property
    def view(self) -> GraphView:
        """The graph as kernels read it, but for the entries of rows."""
        return GraphView(
            self.vertices,
            self.arcs,
            self.outgoing.csr,
            self.incoming.csr,
            self.loop,
            self.degree,
            self.incoming.longest,
        )

    def sweep_view(self, largest_sum: float, of_query: bool = False) -> GraphView:  # noqa: ARG002
        """The view: pages are not streamed."""
        return self.view

    def in_rows(self) -> Rows:
        """No rows: those of each window are kept with it."""
        return Rows(self.free, np.zeros(1, np.int64))
