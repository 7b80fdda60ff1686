"""A graph whose edges are in a file as algorithms read it: see liverank_gpu.programs.algorithms.

Its edges have no direction there, so those of a directed graph are packed again, without it: for
triangles each in the row of one end, else in the rows of both, for labels once for each direction.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import InvalidValue
from liverank_gpu.graph.packed_csr import ends_and_slots, row_blocks, row_sums
from liverank_gpu.operations.analysis import (
    CountBetween,
    CountEntriesBetween,
    EdgeBounds,
    LowerCores,
    RowWindow,
)
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Csr
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.programs import (
    InitialiseProgram,
    Mode,
    ProgramGraph,
    ProgramState,
    RunProgram,
    VertexProgram,
)
from liverank_gpu.out_of_core.ranking import Budget
from liverank_gpu.out_of_core.spool import (
    EdgeSpool,
    PackedEdges,
    ScratchColumns,
    neighbours,
    oriented,
    padded,
    sorted_by_id,
)
from liverank_gpu.out_of_core.windows import (
    EdgeValueFile,
    Window,
    WindowedGraph,
    Windows,
    WindowStream,
)
from liverank_gpu.programs.algorithms import (
    PEEL,
    Computed,
    DnGraphs,
    EdgeValues,
)
from liverank_gpu.programs.continued import Earlier, EdgeTriangles, VertexTriangles
from liverank_gpu.programs.dn_graphs import BYTES_AT_ONCE, dn_graph_edges, dn_graph_labels

VOTE_BYTES = 96
"""For each slot of a window, at most: votes, their runs, and the order of these. Half of it on
``cpu``, where sorting takes fewer copies.
"""


class WindowedNeighbours:
    """See liverank_gpu.programs.algorithms.Neighbours. A window is skipped if no neighbour of its
    vertices has changed since it was last processed.
    """

    def __init__(self, graph: WindowedGraph) -> None:
        """graph  each edge in the rows of both ends, as often as it counts"""
        self._graph, self.run, self._active = graph, graph.backend.run, graph.run.active
        self._active.begin(slice(None))
        self._viewed: ProgramGraph | None = None
        self._entries = 0

    @property
    def work(self) -> tuple[int, int]:
        return self._graph.stream.passes, self._entries

    def core_numbers(self) -> tuple[Array, None]:
        """Bounds begin as degrees and fall to the h-index of those of the neighbours, until none
        does: see LowerCores, and for parts of a graph Montresor, De Pellegrini and Miorandi,
        "Distributed k-core decomposition" (TPDS 2013). Bounds change in place, so a window sees
        what those before it have changed in the same pass.
        """
        active, device = self._active, self._graph.backend.device
        lengths = self._graph.view.incoming.row_lengths
        bounds, now = lengths.copy(), 0
        while active.any_active:
            for window, view in self._graph.run.visit_active():
                now += 1
                lists = view.incoming._replace(weights=None)
                fallen = self.run(
                    LowerCores(lists, window.rows, bounds, active.blocks, active.shift, now)
                )
                active.since[window.number] = now
                if fallen:
                    active.refresh()
                self._entries += int(device.sum(lengths[window.vertices]))
        return bounds, None

    def continued_cores(self, earlier: Earlier) -> None:
        """No answer of edges in a file is continued."""

    def votes(self, labels: Array) -> Iterator[tuple[slice, Array]]:
        for window, view in self._graph.run.visit_active():
            yield window.vertices, self._votes(view.incoming, window.vertices, labels)

    def _votes(self, lists: Csr, rows: slice, labels: Array) -> Array:
        own = Csr(lists.row_starts[rows], lists.row_lengths[rows], lists.column_indices)
        places, neighbours, _ = self._graph.backend.rebuild.entries(own)
        votes: Array = places.astype(np.int64)
        del places
        votes <<= 32
        votes |= labels[neighbours]
        self._entries += len(votes)
        return votes

    def changed(self, flags: Array) -> bool:
        passes = self._graph.stream.passes
        self._active.activate(self._graph.backend.xp.flatnonzero(flags), passes)
        self._active.since[:] = passes
        return self._active.any_active

    def program_graph(self) -> ProgramGraph:
        if self._viewed is None:
            self._viewed = self._graph.program_graph(PEEL)
        return self._viewed


# ---- triangles of a graph whose edges are in a file ----
#
# The edges are oriented and divided into windows of rows. A triangle u, v, w, in the order of
# ranks, is found where the windows of u and v are both in memory.
#
# By vertex, every pair of windows is compared once. A pass keeps the first window of those that
# are left, or the last, while the others stream by, and leaves it out afterwards; passes alternate
# in direction as those of the stream do. By edge, all windows stream by each: so counts are
# complete when they leave memory.


BUFFERS_BY_VERTEX = 3
"""The window that is kept, and the two of the stream."""

BUFFERS_BY_EDGE = 5
"""The counts of the window that is kept, too, and a copy of them on the host."""


class WindowPairs:
    """Windows of oriented rows (liverank_gpu.out_of_core.spool.oriented), of which one is kept
    while others stream by. To be closed.

    stream  of the rows
    kept    int32[…], each column of the window that is kept
    pairs   of windows that were compared
    """

    def __init__(self, backend: Backend, oriented: PackedEdges, slots: int) -> None:
        """slots  of one buffer. Raises OutOfMemory, OSError."""
        self._backend, self._vertices = backend, len(oriented.row_lengths)
        self._windows = Windows.of(backend, oriented, slots)
        self.pairs = 0
        self.room = max(window.slots for window in self._windows.windows)
        allocate = backend.device.allocate
        self.kept = [allocate("windows of rows", self.room, np.int32) for _ in oriented.dtypes]
        self.stream = WindowStream(backend, oriented, self._windows.windows)

    def keep(self, window: Window) -> None:
        """Reads a window. Raises OSError."""
        for _, columns in self.stream.visit(partial(operator.is_, window)):
            self._keep(window, columns)
            self._backend.device.synchronize()

    def _keep(self, window: Window, columns: tuple[Array, ...]) -> None:
        for kept, column in zip(self.kept, columns, strict=True):
            kept[: window.slots] = column

    def count_by_vertex(self) -> Array:
        """int64[n] on the device, by rank. Raises OSError."""
        triangles: Array = self._backend.xp.zeros(self._vertices, np.int64)
        first, last = 0, len(self.stream.windows) - 1
        ascending = True
        while first <= last:
            kept = None
            for window, columns in self.stream.visit(partial(_is_between, first, last)):
                if kept is None:
                    self._keep(window, columns)
                    kept = self._rows(window.vertices, self.kept[0])
                streamed = self._rows(window.vertices, columns[0])
                pair = (kept, streamed) if ascending else (streamed, kept)
                self._backend.run(CountBetween(*pair, triangles))
                self._backend.device.synchronize()
                self.pairs += 1
            first, last = (first + 1, last) if ascending else (first, last - 1)
            ascending = not ascending
        return triangles

    def count_by_edge(
        self, window: Window, rows: slice, counts: Array, places: Array | None = None
    ) -> None:
        """Counts the triangles of the edges of some rows of the window that is kept. Raises
        OSError.

        counts  int32[…], zero: see CountEntriesBetween
        places  int64[slots]: EdgeBounds.places, if the second column has bounds
        """
        run, kept = self._backend.run, self._rows(rows, self.kept[0])
        for other, columns in self.stream:
            streamed = self._rows(other.vertices, columns[0])
            of_lowest = of_middle = None
            if places is not None:
                of_lowest = EdgeBounds(self.kept[1], columns[1], places)
                of_middle = EdgeBounds(columns[1], self.kept[1], places)
            if other.number >= window.number:
                run(CountEntriesBetween(kept, streamed, True, counts, of_lowest))
            if other.number <= window.number:
                run(CountEntriesBetween(streamed, kept, False, counts, of_middle))
            self._backend.device.synchronize()
            self.pairs += 1

    def _rows(self, rows: slice, entries: Array) -> RowWindow:
        lists = Csr(self._windows.row_starts, self._windows.row_lengths, entries)
        return RowWindow(rows.start, rows.stop, lists)

    def close(self) -> None:
        """Frees the windows."""
        self.stream.close()
        self.kept = []


def _is_between(first: int, last: int, window: Window) -> bool:
    return first <= window.number <= last


# ---- trussness of the edges of a graph that are in a file ----
#
# Bounds (see liverank_gpu.programs.algorithms) are in a file beside the edges. An iteration takes
# one interval of rows after the other: while all windows stream by, the triangles of each of its
# edges are counted by the least bound of their edges, and from these counts follows the highest
# bound that is supported. Later intervals see what has changed; those are left out of whose edges
# no end has had an edge that fell since.


@dataclass(frozen=True, slots=True)
class Support:
    """Triangles of each edge of a graph whose edges are in a file.

    edges    oriented
    budget   theirs
    counts   int32 of each slot: the triangles of the edge
    ids      int32[n], of each row
    folder   of files; None for the system's folder of temporary files
    total    of all edges
    largest  of an edge
    of_row   of the edges of a row, and its slots, at most
    passes   over the edges
    """

    edges: PackedEdges
    budget: Budget
    counts: ScratchColumns
    ids: NDArray[np.int32]
    folder: Path | None
    total: int
    largest: int
    of_row: int
    passes: int

    def by_id(self, more: int = 0) -> tuple[NDArray[Any], ...]:
        """See liverank_gpu.out_of_core.spool.sorted_by_id."""
        most = self.budget.bucket_edges
        return sorted_by_id(self.edges, self.counts, self.ids, most, self.folder, more)


class WindowedTrusses:
    """Bounds of λ in a file: see liverank_gpu.programs.algorithms.Trusses. To be closed.

    pairs  windows of the rows and bounds; it counts intervals and windows that were compared
    """

    BUFFERS = 16
    """Of a slot of the interval's window its entry, its bound and 8 bytes, the place of its counts;
    entries and bounds of the two windows of the stream; and as much again for the counts.
    """

    COUNT_BYTES = 64
    """Of a count, at most: it, its sums, and what they are compared with."""

    def __init__(self, backend: Backend, support: Support, most_counts: int) -> None:
        """support      the triangles of each edge, which become the bounds
        most_counts  triangles of its edges, and slots, of an interval, unless a single row has more

        Raises OutOfMemory, OSError.
        """
        self._backend, self._support, self._most_counts = backend, support, most_counts
        self._bounds, self._lengths = support.counts, support.edges.row_lengths
        columns = support.edges.beside(support.counts)
        self.pairs = WindowPairs(backend, columns, support.budget.window_slots)
        self._places = backend.device.allocate("windows of rows", self.pairs.room, np.int64)
        # the last interval in which an edge of a vertex fell, and in which a row was examined
        vertices = len(self._lengths)
        self._fell, self._seen = np.zeros(vertices, np.int32), np.zeros(vertices, np.int32)
        self._examinations = 0
        self.examined = self.iterations = self.partitions = 0
        self.finished = False

    def lower(self, by_bisection: bool) -> None:
        fallen = 0
        for window in self.pairs.stream.windows:
            for rows, slots in self._intervals(window):
                fallen += self._lower(window, rows, slots, by_bisection)
                self.partitions += self.iterations == 0
        self.iterations += 1
        self.finished = fallen == 0

    def _intervals(self, window: Window) -> list[tuple[slice, slice]]:
        """Rows to be examined of a window, which is kept, and their slots in it."""
        self.pairs.keep(window)
        to_host = self._backend.device.to_host
        entries, bounds = (to_host(kept[: window.slots]) for kept in self.pairs.kept)
        lengths = padded(self._lengths[window.vertices])
        begins = np.append(0, np.cumsum(lengths))
        sources = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        sources += window.vertices.start
        # the other edges of a triangle are at one of the ends
        fell = np.maximum(self._fell[sources], self._fell[entries])
        marked = row_sums(lengths, (bounds > 0) & (fell >= self._seen[sources]))
        return [
            (rows, slice(*begins[[rows.start, rows.stop]].tolist()))
            for rows in row_blocks(row_sums(lengths, bounds) + lengths, self._most_counts)
            if marked[rows].any()
        ]

    def _lower(self, window: Window, rows: slice, slots: slice, by_bisection: bool) -> int:
        """Lowers the bounds of some rows of the window that is kept; returns how many fell."""
        backend, xp = self._backend, self._backend.xp
        entries, bounds = (kept[slots] for kept in self.pairs.kept)
        places = self._places[slots]
        ends = xp.cumsum(bounds + 1, dtype=np.int64)
        places[:] = ends - 1 - bounds
        counts: Array = xp.zeros(int(ends[-1]), np.int32)
        del ends
        first, end = (window.vertices.start + row for row in (rows.start, rows.stop))
        self.pairs.count_by_edge(window, slice(first, end), counts, self._places)
        supported = supported_bounds(xp, bounds, places, counts)
        del counts
        if not by_bisection:
            supported = xp.where(supported < bounds, bounds - 1, bounds)
        self.examined += int(backend.device.sum(bounds > 0))
        lower = supported < bounds
        fell = backend.device.to_host(lower)
        self._examinations += 1
        self._seen[first:end] = self._examinations
        if fell.any():
            sources = np.repeat(np.arange(first, end), padded(self._lengths[first:end]))
            self._fell[sources[fell]] = self._examinations
            self._fell[backend.device.to_host(entries[lower])] = self._examinations
            bounds[:] = supported
            self._bounds.write(window.first + slots.start, backend.device.to_host(bounds))
            self.pairs.stream.reload(window, slots)
        return int(fell.sum())

    def order(self) -> None:
        """No answer of edges in a file is continued."""

    def found(self, more: int) -> tuple[Array, tuple[Array, Array], int]:
        self.close()  # edges are sorted in the memory of the windows
        sources, targets, values = self._support.by_id(more)
        return values, (sources, targets), self._support.passes + self.pairs.stream.passes

    def close(self) -> None:
        """Frees the windows."""
        self.pairs.close()
        self._places = self._places[:0].copy()


def supported_bounds(xp: Any, bounds: Array, places: Array, counts: Array) -> Array:
    """int32[k]: the highest bound, up to its own, that each edge has as many triangles of.

    counts  int32[…]: of each edge, from its place on, the triangles with a least bound of 0, 1, …
            up to its own
    """
    sums = xp.cumsum(counts, dtype=np.int64)
    last = places + bounds
    begins = xp.zeros(len(counts), np.int32)
    begins[places] = 1
    edge = xp.cumsum(begins, dtype=np.int32)
    edge -= 1
    at = xp.arange(len(counts)) - places[edge]
    # triangles with at least this bound; they become fewer from each to the next
    above = sums[last][edge] - sums + counts
    is_supported = xp.cumsum((at > 0) & (above >= at), dtype=np.int32)
    return is_supported[last] - is_supported[places]


# ---- the graph, which is packed again as an algorithm reads it ----


class FileGraph:
    """See liverank_gpu.programs.algorithms.AnalysedGraph. It runs vertex programs too.

    windows, in_memory       of the last stream: see OutOfCoreAnswer
    processed, bytes_loaded  of all streams
    pack_seconds             time to pack the edges again
    """

    def __init__(
        self,
        backend: Backend,
        packed: PackedEdges,
        budget: Budget,
        folder: Path | None,
    ) -> None:
        """budget  of `packed`, with two buffers
        folder  for files; None for the system's folder of temporary files
        """
        self.backend, self.vertices = backend, len(packed.row_lengths)
        self._packed, self._budget, self._folder = packed, budget, folder
        self.windows = self.processed = self.bytes_loaded = 0
        self.in_memory, self.pack_seconds = False, 0.0

    @property
    def _ids(self) -> NDArray[np.int32]:
        packed = self._packed.ids
        return packed if len(packed) else np.arange(self.vertices, dtype=np.int32)

    @property
    def ids(self) -> Array:
        return self.backend.device.to_device(self._ids)

    def count(self, found: int) -> int:
        return found

    def united(self, values: Array) -> Array:
        return values

    @property
    def absent(self) -> Array:
        return self.backend.xp.zeros(self.vertices, np.uint8)

    def _repack(
        self, spool: EdgeSpool, buffers: int, longest: int = 0
    ) -> tuple[PackedEdges, Budget]:
        """Other edges within the same budget; spends the spool.

        longest  row that is sorted later

        Raises InvalidValue, OSError.
        """
        begun = time.perf_counter()
        try:
            budget = self._budget.of_others(max(spool.longest, longest), buffers)
            edges = spool.pack(self.vertices, budget.bucket_edges, fixed_loops=False)
        finally:
            spool.close()
        self.pack_seconds += time.perf_counter() - begun
        return edges, budget

    @contextmanager
    def _pairs(self, edges: PackedEdges, budget: Budget) -> Iterator[WindowPairs]:
        pairs = WindowPairs(self.backend, edges, budget.window_slots)
        try:
            yield pairs
        finally:
            pairs.close()
            self._note(pairs.stream, pairs.pairs)

    def _note(self, stream: WindowStream, processed: int) -> None:
        """Adds what a stream did that is closed."""
        self.windows, self.in_memory = len(stream.windows), stream.in_memory
        self.processed += processed
        self.bytes_loaded += stream.bytes_loaded

    @contextmanager
    def _windowed(self, edges: PackedEdges, budget: Budget) -> Iterator[WindowedGraph]:
        graph = WindowedGraph(self.backend, edges, budget.window_slots)
        try:
            yield graph
        finally:
            graph.stream.close()
            self._note(graph.stream, graph.run.processed)

    def run(self, program: VertexProgram, parameters: Mapping[str, float], mode: Mode) -> Computed:
        """Runs a program to its end. Raises OutOfMemory, OSError."""
        allocate = self.backend.device.allocate
        with self._windowed(self._packed, self._budget) as graph:
            viewed = graph.program_graph(program)
            values = program.values.array(self.vertices, partial(allocate, "values of a program"))
            state = ProgramState(values, allocate("values of a program", self.vertices, np.int32))
            self.backend.run(InitialiseProgram(program, parameters, viewed, 0, state))
            run = RunProgram(program, parameters, viewed, mode, program.supersteps, state)
            if program.edges is None:
                graph.run(run)
                return Computed.by(program, state)
            file = EdgeValueFile(self.backend, graph.stream, program.edges, self._folder)
            with closing(file) as edge_values:
                edge_values.fill(program.edge_initial)
                graph.run.edge_values = edge_values
                graph.run(run)
                edges = self._edge_values(graph, viewed.ids, edge_values)
        return Computed.by(program, state)._replace(edge_values=edges)

    def _edge_values(
        self, graph: WindowedGraph, ids: Array, edge_values: EdgeValueFile
    ) -> EdgeValues:
        """The values of all edges, mapped from files."""
        layout, count = edge_values.layout, 0
        kind = np.dtype((np.int64, (layout.words,))) if layout.is_record else layout.dtype
        starts, lengths = graph.view.incoming.row_starts, graph.view.incoming.row_lengths
        with ScratchColumns(3, self._folder) as columns:
            for window, (column_indices, *_) in graph.stream:
                rows = window.vertices
                own = Csr(starts[rows], lengths[rows], column_indices)
                ends, slots = ends_and_slots(self.backend, own)
                found = (
                    *(ids[ends[0]], ids[ends[1] + rows.start]),
                    edge_values.load(window)[slots],
                )
                columns.write(count, *map(self.backend.device.to_host, found))
                count += len(slots)
            return EdgeValues(*columns.mapped(count, np.int32, np.int32, kind))

    @contextmanager
    def neighbours(self, repeats: bool = False) -> Iterator[WindowedNeighbours]:
        if not self._packed.directed:
            with self._windowed(self._packed, self._budget) as graph:
                yield WindowedNeighbours(graph)
            return
        edges, budget = self._repack(
            neighbours(self._packed, self._folder, self.backend.sizes, repeats), buffers=2
        )
        with edges.file, self._windowed(edges, budget) as graph:
            yield WindowedNeighbours(graph)

    def near_rows(self) -> None:
        """No answer of edges in a file is continued."""

    def vertex_triangles(self) -> VertexTriangles:
        spool, rank = oriented(self._packed, self._folder, self.backend.sizes)
        edges, budget = self._repack(spool, BUFFERS_BY_VERTEX)
        with edges.file, self._pairs(edges, budget) as pairs:
            counts = pairs.count_by_vertex()
        degree = self.backend.device.to_device((edges.row_lengths + edges.out_lengths)[rank])
        counts = counts[self.backend.device.to_device(rank)]
        return VertexTriangles(counts, degree, slice(None), edges.arcs, pairs.stream.passes)

    def edge_triangles(self) -> EdgeTriangles:
        with self._supported(BUFFERS_BY_EDGE) as support:
            sources, targets, values = support.by_id()
        total, largest, passes = support.total, support.largest, support.passes
        return EdgeTriangles(values, (sources, targets), total, largest, passes, len(values))

    @contextmanager
    def trusses(self, partitions: int) -> Iterator[WindowedTrusses]:
        with self._supported(WindowedTrusses.BUFFERS) as support:
            each = 2 * WindowedTrusses.COUNT_BYTES  # half of the budget is for windows
            most = support.budget.streamed // each
            if support.of_row > most:
                least = support.budget.values + each * support.of_row
                requirement = f"at least {least:,} bytes for the triangles of each vertex"
                raise InvalidValue("memory", support.budget.memory, requirement)
            of_part = -(-(support.total + support.edges.slots) // partitions)
            trusses = WindowedTrusses(self.backend, support, max(1, min(most, of_part)))
            try:
                yield trusses
            finally:
                trusses.close()
                self._note(trusses.pairs.stream, trusses.pairs.pairs)

    def dn_graphs(self, lambdas: Array, ends: tuple[Array, Array]) -> DnGraphs:
        """On the host, as the edges are in files. Raises OSError."""
        at_once = max(1, self._budget.streamed // BYTES_AT_ONCE)

        def parts() -> Iterator[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]:
            for first in range(0, len(lambdas), at_once):
                part = slice(first, first + at_once)
                yield ends[0][part], ends[1][part], lambdas[part]

        labels, highest = dn_graph_labels(np, self.vertices, parts)
        count = int(np.count_nonzero(labels == np.arange(self.vertices, dtype=np.int32)))
        with ScratchColumns(4, self._folder) as found:
            edges = 0
            for columns in dn_graph_edges(labels, highest, parts):
                found.write(edges, *columns)
                edges += len(columns[0])
            dtypes = np.int64, np.int64, np.int32, np.int32
            sources, targets, of_edges, of_graphs = found.mapped(edges, *dtypes)
        return DnGraphs(of_edges, of_graphs, (sources, targets), count)

    @contextmanager
    def _supported(self, buffers: int) -> Iterator[Support]:
        """The triangles of each edge, in files that are there until this ends."""
        given, to_host = self._packed, self.backend.device.to_host
        spool, rank = oriented(given, self._folder, self.backend.sizes)
        longest = int((given.row_lengths + given.out_lengths).max())
        edges, budget = self._repack(spool, buffers, longest)
        with edges.file, ScratchColumns(1, self._folder) as triangles:
            total = largest = of_row = 0
            with self._pairs(edges, budget) as pairs:
                for window in pairs.stream.windows:
                    pairs.keep(window)
                    counts = self.backend.xp.zeros(window.slots, np.int32)
                    pairs.count_by_edge(window, window.vertices, counts)
                    on_host = to_host(counts)
                    triangles.write(window.first, on_host)
                    total += int(on_host.sum(dtype=np.int64))
                    largest = max(largest, int(on_host.max(initial=0)))
                    lengths = padded(edges.row_lengths[window.vertices])
                    of_row = max(of_row, int((row_sums(lengths, on_host) + lengths).max()))
            del counts, on_host
            ids = np.empty(len(rank), np.int32)
            ids[rank] = self._ids
            passes = pairs.stream.passes
            yield Support(
                edges, budget, triangles, ids, self._folder, total, largest, of_row, passes
            )
