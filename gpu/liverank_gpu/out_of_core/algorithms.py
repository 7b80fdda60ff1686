"""Built-in algorithms on a graph whose edges are in a file, and what they are made of."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cpu.graph import sorted_by_bucket, sorted_by_key
from liverank_gpu.errors import InvalidValue
from liverank_gpu.graph.packed_csr import row_blocks, row_sums
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
from liverank_gpu.out_of_core.ranking import Budget
from liverank_gpu.out_of_core.spool import EdgeSpool, PackedEdges, ScratchColumns, padded
from liverank_gpu.out_of_core.windows import (
    ActiveWindows,
    Window,
    WindowedGraph,
    WindowedProgram,
    Windows,
    WindowStream,
)
from liverank_gpu.programs.algorithms import (
    CLUSTERING,
    CORES,
    DENSEST,
    LABELS,
    PEEL,
    TRIANGLES,
    Computed,
    Order,
    Parts,
    clustering_of,
    densest_part,
    first_labels,
    most_frequent,
)
from liverank_gpu.programs.truss import NO_TRIANGLES, SUPPORT, TRUSSNESS
from liverank_gpu.programs.views import distinct

# The edges of a packed graph without direction, in a spool of their own, to be packed again.

Ends = tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]]]
"""Sources and targets."""

_PIECE = 1 << 16
"""Slots that are read at once, unless a row has more: they are part of no budget."""


def neighbours(packed: PackedEdges, folder: Path | None, repeats: bool = False) -> EdgeSpool:
    """The edges in the rows of both ends. Raises OSError.

    repeats  whether an edge in each direction counts twice
    """
    return _filled(EdgeSpool(folder, directed=False, repeats=repeats), _edges(packed))


def oriented(packed: PackedEdges, folder: Path | None) -> tuple[EdgeSpool, NDArray[np.int32]]:
    """Each edge once, in the row of the end of lower rank, and the rank of each position, int32[n].
    Ranks ascend by the number of entries, so that no row is long. Raises OSError.
    """
    vertices = len(packed.row_lengths)
    entries = packed.row_lengths + packed.out_lengths
    rank = np.empty(vertices, np.int32)
    rank[np.argsort(entries, kind="stable")] = np.arange(vertices, dtype=np.int32)

    def edges() -> Iterator[Ends]:
        for sources, targets in _edges(packed):
            ends = rank[sources], rank[targets]
            if not packed.directed:
                ascending = ends[0] < ends[1]
                ends = ends[0][ascending], ends[1][ascending]
            yield np.maximum(*ends), np.minimum(*ends)

    return _filled(EdgeSpool(folder), edges()), rank


def _filled(spool: EdgeSpool, edges: Iterator[Ends]) -> EdgeSpool:
    """The spool with these edges added; closed if that fails."""
    try:
        for sources, targets in edges:
            spool.add(sources, targets)
    except BaseException:
        spool.close()
        raise
    return spool


def _edges(packed: PackedEdges) -> Iterator[Ends]:
    """A piece at a time."""
    for targets, sources in packed.entries(_PIECE):
        yield sources, targets


# ---- values of edges in the order of ids, in files that are mapped ----

_BITS = 32
_HIGHER = (1 << _BITS) - 1


def sorted_by_id(
    packed: PackedEdges,
    values: ScratchColumns,
    ids: NDArray[np.int32],
    most_edges: int,
    folder: Path | None,
    more: int = 0,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """The edges with their values, by the lower id and then by the higher one: these, int64[m]
    each, and values, int32[m], mapped from files without names.

    packed      each edge once
    values      int32 of each slot, in one column
    ids         int32[n], of each row
    most_edges  that are sorted at once, unless a single lower id has more
    folder      of the files; None for the system's folder of temporary files
    more        is added to each value

    Raises OSError.
    """

    def pieces() -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32]]]:
        # fewer: there are more columns than while a bucket is sorted
        for targets, sources, of_edges in packed.entries(max(1, most_edges // 4), values):
            ends = ids[targets], ids[sources]
            keys = np.minimum(*ends).astype(np.int64)
            keys <<= _BITS
            keys |= np.maximum(*ends)
            yield keys, of_edges

    degree = np.zeros(len(ids), np.int64)  # edges of each lower id
    for keys, _ in pieces():
        np.add.at(degree, keys >> _BITS, 1)
    blocks = list(row_blocks(degree, most_edges))
    first_keys = np.array([block.start for block in blocks], np.int64) << _BITS
    places = np.append(0, np.cumsum([int(degree[block].sum()) for block in blocks]))
    del degree
    ends = places[:-1].copy()
    with ScratchColumns(2, folder) as buckets:
        for piece in pieces():
            buckets.write_by_bucket(ends, *sorted_by_bucket(first_keys, *piece))
        with ScratchColumns(3, folder) as found:
            for first, count in zip(places[:-1].tolist(), np.diff(places).tolist(), strict=True):
                _sort(buckets, first, count, more, found)
            sources, targets, of_edges = found.mapped(int(places[-1]), np.int64, np.int64, np.int32)
    return sources, targets, of_edges


def _sort(buckets: ScratchColumns, first: int, count: int, more: int, into: ScratchColumns) -> None:
    """Sorts some edges. Raises OSError."""
    keys, values = np.empty(count, np.int64), np.empty(count, np.int32)
    buckets.read(first, keys, values)
    keys, values = sorted_by_key(keys, values)
    into.write(first, keys >> _BITS, keys & _HIGHER, values + np.int32(more))


# ---- label propagation on a graph whose edges are in a file ----
#
# A superstep is a pass over the windows: each has the whole lists of its vertices, so what their
# neighbours vote for is counted there. All vertices change their labels at the end of the pass. A
# window is skipped if no neighbour of its vertices has changed its label in the superstep before.


class WindowedLabels:
    """Labels that are propagated: see liverank_gpu.programs.algorithms.

    labels     int32[n] on the device, by position
    edges      entries read so far
    processed  windows that were processed
    """

    TEMPORARY_BYTES = 96
    """For each slot of a window, at most: votes, their runs, and the order of these. Half of it on
    ``cpu``, where sorting takes fewer copies.
    """

    def __init__(self, graph: WindowedGraph, labels: Array) -> None:
        """graph   each edge in the rows of both ends, as often as it counts
        labels  int32[n] on the device, the first ones
        """
        self._graph, self.labels = graph, labels
        self._windows = ActiveWindows(graph.backend, graph.vertices, len(graph.stream.windows))
        self._windows.activate_all()
        self.edges = self.processed = 0

    @property
    def is_active(self) -> bool:
        """Whether a label may change."""
        return any(map(self._windows.is_active, self._graph.stream.windows))

    def propagate(self) -> None:
        """One superstep. Raises OSError."""
        stream, windows, xp = self._graph.stream, self._windows, self._graph.backend.xp
        lists, following = self._graph.view.incoming, self.labels.copy()
        for window, slots in stream.visit(windows.is_active):
            windows.note_sources(window, slots[0], sends_back=False)
            rows = window.vertices
            votes = self._votes(Csr(lists.row_starts[rows], lists.row_lengths[rows], slots[0]))
            self.edges += len(votes)
            following[rows] = most_frequent(xp, votes, self.labels[rows])
            self.processed += 1
        windows.activate(xp.flatnonzero(following != self.labels), stream.passes)
        windows.since[:] = stream.passes
        self.labels = following

    def _votes(self, lists: Csr) -> Array:
        """int64[m], row << 32 | label of the neighbour."""
        rows, neighbours, _ = self._graph.backend.rebuild.entries(lists)
        votes: Array = rows.astype(np.int64)
        del rows
        votes <<= 32
        votes |= self.labels[neighbours]
        return votes


# ---- vertices of low degree are removed from a graph whose edges are in a file ----


class WindowedPeeling:
    """A liverank_gpu.programs.algorithms.Peeling in windows: each removal is a pass over the
    windows that have one of its vertices as a source.

    present    bool[n], by position
    processed  windows that were processed
    """

    def __init__(self, graph: WindowedGraph) -> None:
        """graph  each edge in the rows of both ends. Raises OutOfMemory."""
        self._graph, xp = graph, graph.backend.xp
        # no degree falls below 0, so that no vertex becomes active by itself
        self._running = WindowedProgram(graph, PEEL, {"k": 0}, "synchronous")
        self._running.values[:] = graph.view.incoming.row_lengths
        self.present: Array = xp.ones(graph.vertices, np.bool_)

    @property
    def processed(self) -> int:
        return self._running.processed

    @property
    def degrees(self) -> Array:
        """int32[…], of the vertices that are present."""
        return self._running.values[self.present]

    @property
    def work(self) -> tuple[int, int]:
        """Supersteps and edges."""
        return self._graph.stream.passes, self._running.messages

    def remove_below(self, k: int) -> None:
        """Removes all vertices of a degree below k, at once. Raises OSError."""
        low = self.present & (self._running.values < k)
        self._running.send(self._graph.backend.xp.flatnonzero(low))
        self.present = self.present & ~low


# ---- core numbers of a graph whose edges are in a file ----
#
# Bounds begin as degrees and fall to the h-index of those of the neighbours, until none does: see
# LowerCores, and for parts of a graph Montresor, De Pellegrini and Miorandi,
# "Distributed k-core decomposition" (TPDS 2013). Bounds change in place, so a window sees what
# those before it have changed in the same pass.


class WindowedCores:
    """Bounds that fall to the core numbers.

    bounds     int32[n] on the device, by position
    edges      entries read so far
    processed  windows that were processed
    """

    def __init__(self, graph: WindowedGraph) -> None:
        """graph  each edge in the rows of both ends"""
        self._graph, self._device = graph, graph.backend.device
        self.bounds: Array = graph.view.incoming.row_lengths.copy()
        self._windows = ActiveWindows(graph.backend, graph.vertices, len(graph.stream.windows))
        self._windows.activate_all()
        self.edges = self.processed = 0

    def lower(self) -> None:
        """Lowers bounds until none falls. Raises OSError."""
        stream, windows = self._graph.stream, self._windows
        while any(map(windows.is_active, stream.windows)):
            for window, slots in stream.visit(windows.is_active):
                windows.note_sources(window, slots[0], sends_back=False)
                self.processed += 1
                lists = self._graph.view.incoming
                fallen = self._graph.local(
                    LowerCores(
                        Csr(lists.row_starts, lists.row_lengths, slots[0]),
                        window.rows,
                        self.bounds,
                        windows.blocks,
                        windows.shift,
                        self.processed,
                    )
                )
                windows.since[window.number] = self.processed
                if fallen:
                    windows.refresh()
                self.edges += int(self._device.sum(lists.row_lengths[window.vertices]))


# ---- triangles of a graph whose edges are in a file ----
#
# The edges are oriented and divided into windows of rows. A triangle u, v, w, in the order of
# ranks, is found where the windows of u and v are both in memory.
#
# By vertex, every pair of windows is compared once. A pass keeps the first window of those that
# are left, or the last, while the others stream by, and leaves it out afterwards; passes alternate
# in direction as those of the stream do. By edge, all windows stream by each: so counts are
# complete when they leave memory.


class WindowedTriangles:
    """Triangles of oriented rows (liverank_gpu.out_of_core.algorithms.oriented), to be closed.

    stream  of the rows
    pairs   of windows that were compared
    """

    BUFFERS = 3
    """The window that is kept, and the two of the stream."""

    BUFFERS_BY_EDGE = 5
    """The counts of the window that is kept, too, and a copy of them on the host."""

    def __init__(self, backend: Backend, oriented: PackedEdges, slots: int) -> None:
        """slots  of one buffer. Raises OutOfMemory, OSError."""
        self._backend, self._vertices = backend, len(oriented.row_lengths)
        self._windows = Windows.of(backend, oriented, slots)
        self.pairs = 0
        room = max(window.slots for window in self._windows.windows)
        self._kept = backend.device.allocate("windows of rows", room, np.int32)
        self.stream = WindowStream(backend, oriented, self._windows.windows)

    def count(self) -> Array:
        """int64[n] on the device, by rank. Raises OSError."""
        triangles: Array = self._backend.xp.zeros(self._vertices, np.int64)
        first, last = 0, len(self.stream.windows) - 1
        ascending = True
        while first <= last:
            kept = None
            for window, (entries,) in self.stream.visit(partial(_is_between, first, last)):
                if kept is None:
                    kept = self._keep(window, entries)
                streamed = self._rows(window, entries)
                pair = (kept, streamed) if ascending else (streamed, kept)
                self._backend.run(CountBetween(*pair, triangles))
                self._backend.device.synchronize()
                self.pairs += 1
            first, last = (first + 1, last) if ascending else (first, last - 1)
            ascending = not ascending
        return triangles

    def count_by_edge(self) -> Iterator[tuple[Window, Array]]:
        """Windows in order, with the triangles of each of their edges: int32[slots] on the device.
        Raises OSError.
        """
        run, device = self._backend.run, self._backend.device
        for window in self.stream.windows:
            alone = partial(_is_between, window.number, window.number)
            for _, (entries,) in self.stream.visit(alone):
                kept = self._keep(window, entries)
                device.synchronize()
            counts: Array = self._backend.xp.zeros(window.slots, np.int32)
            for other, (entries,) in self.stream:
                rows = self._rows(other, entries)
                if other.number >= window.number:
                    run(CountEntriesBetween(kept, rows, True, counts))
                if other.number <= window.number:
                    run(CountEntriesBetween(rows, kept, False, counts))
                device.synchronize()
                self.pairs += 1
            yield window, counts

    def close(self) -> None:
        """Frees the windows."""
        self.stream.close()
        self._kept = self._kept[:0].copy()

    def _keep(self, window: Window, entries: Array) -> RowWindow:
        self._kept[: window.slots] = entries
        return self._rows(window, self._kept)

    def _rows(self, window: Window, entries: Array) -> RowWindow:
        lists = Csr(self._windows.row_starts, self._windows.row_lengths, entries)
        return RowWindow(window.vertices.start, window.vertices.stop, lists)


def _is_between(first: int, last: int, window: Window) -> bool:
    return first <= window.number <= last


# ---- trussness of the edges of a graph that are in a file ----
#
# Bounds begin as the numbers of triangles, and fall until as many triangles of an edge have at
# least its bound on both other edges: see liverank_gpu.programs.truss. They are in a file beside
# the edges. An iteration takes one interval of rows after the other: while all windows stream by,
# the triangles of each of its edges are counted by the least bound of their edges, and from these
# counts follows the highest bound that is supported. Later intervals see what has changed; those
# are left out of whose edges no end has had an edge that fell since.


class WindowedTrusses:
    """Bounds of λ that fall to it, to be closed.

    stream      of the rows and bounds
    pairs       of intervals and windows that were compared
    examined    examinations of an edge so far
    iterations  passes over all intervals so far
    intervals   in the first iteration
    finished    whether all bounds are supported
    """

    BUFFERS = 16
    """Of a slot of the interval's window its entry, its bound and 8 bytes, the place of its counts;
    entries and bounds of the two windows of the stream; and as much again for the counts.
    """

    COUNT_BYTES = 64
    """Of a count, at most: it, its sums, and what they are compared with."""

    def __init__(
        self,
        backend: Backend,
        oriented: PackedEdges,
        bounds: ScratchColumns,
        slots: int,
        most_counts: int,
    ) -> None:
        """oriented     see liverank_gpu.out_of_core.algorithms
        bounds       int32 of each slot: the triangles of the edge
        slots        of one buffer
        most_counts  triangles of its edges, and slots, of an interval, unless a single row has more

        Raises OutOfMemory, OSError.
        """
        self._backend, self._bounds, self._most_counts = backend, bounds, most_counts
        columns = oriented.beside(bounds)
        self._windows = Windows.of(backend, columns, slots)
        self._lengths = oriented.row_lengths
        room = max(window.slots for window in self._windows.windows)
        allocate = backend.device.allocate
        self._kept = [allocate("windows of rows", room, np.int32) for _ in range(2)]
        self._places = allocate("windows of rows", room, np.int64)
        self.stream = WindowStream(backend, columns, self._windows.windows)
        # the last interval in which an edge of a vertex fell, and in which a row was examined
        vertices = len(oriented.row_lengths)
        self._fell, self._seen = np.zeros(vertices, np.int32), np.zeros(vertices, np.int32)
        self._examinations = 0
        self.pairs = self.examined = self.iterations = self.intervals = 0
        self.finished = False

    def lower(self, by_bisection: bool) -> None:
        """One iteration.

        by_bisection  whether a bound falls to the highest one that is supported, or by one

        Raises OSError.
        """
        fallen = 0
        for window in self.stream.windows:
            for rows, slots in self._intervals(window):
                fallen += self._lower(window, rows, slots, by_bisection)
                self.intervals += self.iterations == 0
        self.iterations += 1
        self.finished = fallen == 0

    def _intervals(self, window: Window) -> list[tuple[slice, slice]]:
        """Rows to be examined of a window, which is kept, and their slots in it."""
        for _, columns in self.stream.visit(partial(operator.is_, window)):
            for kept, column in zip(self._kept, columns, strict=True):
                kept[: window.slots] = column
            self._backend.device.synchronize()
        to_host = self._backend.device.to_host
        entries, bounds = (to_host(kept[: window.slots]) for kept in self._kept)
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
        entries, kept_bounds = self._kept
        bounds, places = kept_bounds[slots], self._places[slots]
        ends = xp.cumsum(bounds + 1, dtype=np.int64)
        places[:] = ends - 1 - bounds
        counts: Array = xp.zeros(int(ends[-1]), np.int32)
        del ends
        first, end = (window.vertices.start + row for row in (rows.start, rows.stop))
        kept = self._rows(first, end, entries)
        for other, (there, bounds_there) in self.stream:
            streamed = self._rows(other.vertices.start, other.vertices.stop, there)
            if other.number >= window.number:
                of_kept = EdgeBounds(kept_bounds, bounds_there, self._places)
                backend.run(CountEntriesBetween(kept, streamed, True, counts, of_kept))
            if other.number <= window.number:
                of_kept = EdgeBounds(bounds_there, kept_bounds, self._places)
                backend.run(CountEntriesBetween(streamed, kept, False, counts, of_kept))
            backend.device.synchronize()
            self.pairs += 1
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
            self._fell[backend.device.to_host(entries[slots][lower])] = self._examinations
            bounds[:] = supported
            self._bounds.write(window.first + slots.start, backend.device.to_host(bounds))
            self.stream.reload(window, slots)
        return int(fell.sum())

    def close(self) -> None:
        """Frees the windows."""
        self.stream.close()
        self._places = self._places[:0].copy()
        self._kept = []

    def _rows(self, first: int, end: int, entries: Array) -> RowWindow:
        lists = Csr(self._windows.row_starts, self._windows.row_lengths, entries)
        return RowWindow(first, end, lists)


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


# ---- built-in algorithms on a graph whose edges are in a file ----
#
# Their edges have no direction, so those of a directed graph are packed again, without it: for
# triangles each in the row of one end, else in the rows of both, for labels once for each
# direction.


class Packed(NamedTuple):
    """A graph in a file, and what there is for it in memory."""

    edges: PackedEdges
    budget: Budget


class Surroundings(NamedTuple):
    """What an algorithm runs in.

    memory  the budget, in bytes
    packed  the edges as programs read them
    folder  for files; None for the system's folder of temporary files
    repack  (spool, number of buffers, longest row that is sorted later) → Packed: packs other edges
            within the same budget; spends the spool. Raises InvalidValue, OSError
    order   see liverank_gpu.programs.running.Programs.begin
    """

    backend: Backend
    memory: int
    packed: Packed
    folder: Path | None
    repack: Callable[[EdgeSpool, int, int], Packed]
    order: Order = None


class Streamed(NamedTuple):
    """What an algorithm found, and what it read.

    computed   values by position, or those of edges and their ends on the host; supersteps are
               passes over the windows
    processed  windows, or pairs of windows, that were processed
    stream     of the windows, closed
    """

    computed: Computed
    processed: int
    stream: WindowStream


def _count(around: Surroundings) -> tuple[Array, NDArray[np.int64], WindowedTriangles, int]:
    """Triangles on the device and neighbours on the host, by position; what counted them; edges."""
    spool, rank = oriented(around.packed.edges, around.folder)
    edges, budget = around.repack(spool, WindowedTriangles.BUFFERS, 0)
    with edges.file:
        counting = WindowedTriangles(around.backend, edges, budget.window_slots)
        try:
            triangles = counting.count()
        finally:
            counting.close()
    degree = (edges.row_lengths + edges.out_lengths)[rank]
    return triangles[around.backend.device.to_device(rank)], degree, counting, edges.arcs


def _triangles(around: Surroundings) -> Streamed:
    triangles, _, counting, edges = _count(around)
    total = float(around.backend.device.sum(triangles)) / 3.0
    computed = Computed(triangles, counting.stream.passes, edges, {"triangles": total})
    return Streamed(computed, counting.pairs, counting.stream)


def _clustering(around: Surroundings) -> Streamed:
    backend = around.backend
    triangles, degree, counting, edges = _count(around)
    on_device = backend.device.to_device(degree)
    values, summary = clustering_of(backend.xp, triangles, on_device, len(degree))
    computed = Computed(values, counting.stream.passes, edges, summary)
    return Streamed(computed, counting.pairs, counting.stream)


class _Support(NamedTuple):
    """Triangles of each edge of a graph whose edges are in a file.

    packed     the oriented edges
    triangles  int32 of each slot
    ids        int32[n], of each row
    total      of all edges
    largest    of an edge
    of_row     of the edges of a row, and its slots, at most
    """

    packed: Packed
    triangles: ScratchColumns
    ids: NDArray[np.int32]
    total: int
    largest: int
    of_row: int
    counting: WindowedTriangles

    def by_id(self, around: Surroundings, more: int = 0) -> tuple[NDArray[Any], ...]:
        """See liverank_gpu.out_of_core.algorithms."""
        edges, budget = self.packed
        most = budget.bucket_edges
        return sorted_by_id(edges, self.triangles, self.ids, most, around.folder, more)


@contextmanager
def _counted(around: Surroundings, buffers: int) -> Iterator[_Support]:
    given = around.packed.edges
    spool, rank = oriented(given, around.folder)
    longest = int((given.row_lengths + given.out_lengths).max())
    packed = around.repack(spool, buffers, longest)
    with packed.edges.file, ScratchColumns(1, around.folder) as triangles:
        slots = packed.budget.window_slots
        counting = WindowedTriangles(around.backend, packed.edges, slots)
        total = largest = of_row = 0
        try:
            for window, counts in counting.count_by_edge():
                on_host = around.backend.device.to_host(counts)
                triangles.write(window.first, on_host)
                total += int(on_host.sum(dtype=np.int64))
                largest = max(largest, int(on_host.max(initial=0)))
                lengths = padded(packed.edges.row_lengths[window.vertices])
                of_row = max(of_row, int((row_sums(lengths, on_host) + lengths).max()))
        finally:
            counting.close()
        del counts, on_host
        ids = np.empty(len(rank), np.int32)
        ids[rank] = given.ids if len(given.ids) else np.arange(len(rank))
        yield _Support(packed, triangles, ids, total, largest, of_row, counting)


def _support(around: Surroundings) -> Streamed:
    with _counted(around, WindowedTriangles.BUFFERS_BY_EDGE) as found:
        sources, targets, values = found.by_id(around)
    summary = {"triangles": found.total / 3.0, "largest": float(found.largest)}
    counting, ends = found.counting, (sources, targets)
    computed = Computed(values, counting.stream.passes, len(values), summary, ends=ends)
    return Streamed(computed, counting.pairs, counting.stream)


def _trussness(around: Surroundings, binary: int, iterations: int, partitions: int) -> Streamed:
    with _counted(around, WindowedTrusses.BUFFERS) as found:
        edges, budget = found.packed
        each = 2 * WindowedTrusses.COUNT_BYTES  # half of the budget is for windows
        most = budget.streamed // each
        if found.of_row > most:
            least = around.memory + each * found.of_row - budget.streamed
            requirement = f"at least {least:,} bytes for the triangles of each vertex"
            raise InvalidValue("memory", around.memory, requirement)
        most = max(1, min(most, -(-(found.total + edges.slots) // partitions)))
        slots = budget.window_slots
        trusses = WindowedTrusses(around.backend, edges, found.triangles, slots, most)
        try:
            while not trusses.finished and trusses.iterations < iterations:
                trusses.lower(by_bisection=binary == 1)
        finally:
            trusses.close()
        sources, targets, values = found.by_id(around, NO_TRIANGLES)
    trusses.stream.passes += found.counting.stream.passes
    trusses.stream.bytes_loaded += found.counting.stream.bytes_loaded
    summary = {
        "largest": float(values.max(initial=0)),
        "partitions": float(trusses.intervals),
    }
    computed = Computed(
        values, trusses.stream.passes, trusses.examined, summary, trusses.finished,
        (sources, targets),
    )  # fmt: skip
    return Streamed(computed, found.counting.pairs + trusses.pairs, trusses.stream)


@contextmanager
def _neighbours(around: Surroundings, repeats: bool = False) -> Iterator[WindowedGraph]:
    """The graph with each edge in the rows of both ends.

    repeats  whether an edge in each direction is there twice
    """
    edges, budget = around.packed
    if edges.directed:
        edges, budget = around.repack(neighbours(edges, around.folder, repeats), 2, 0)
    try:
        graph = WindowedGraph(around.backend, edges, budget.window_slots)
        try:
            yield graph
        finally:
            graph.stream.close()
    finally:
        if edges is not around.packed.edges:
            edges.file.close()


def _cores(around: Surroundings) -> Streamed:
    with _neighbours(around) as graph:
        cores = WindowedCores(graph)
        cores.lower()
    summary = {"largest": float(cores.bounds.max())}
    computed = Computed(cores.bounds, graph.stream.passes, cores.edges, summary)
    return Streamed(computed, cores.processed, graph.stream)


def _densest(around: Surroundings, epsilon: float) -> Streamed:
    with _neighbours(around) as graph:
        peeling = WindowedPeeling(graph)
        computed = _ended(densest_part(peeling, epsilon, graph.vertices, graph.backend.device))
    return Streamed(computed, peeling.processed, graph.stream)


def _labels(around: Surroundings, iterations: int) -> Streamed:
    with _neighbours(around, repeats=True) as graph:
        own = np.arange(graph.vertices, dtype=np.int32)
        ids = around.packed.edges.ids if len(around.packed.edges.ids) else own
        on_device = around.backend.device.to_device(ids)
        labels, named = first_labels(around.backend, on_device, around.order)
        found = WindowedLabels(graph, labels)
        while found.is_active and graph.stream.passes < iterations:
            found.propagate()
    communities = float(len(distinct(around.backend.xp, found.labels)))
    summary = {"communities": communities}
    values = named[found.labels]
    computed = Computed(values, graph.stream.passes, found.edges, summary)
    return Streamed(computed, found.processed, graph.stream)


def _ended(parts: Parts) -> Computed:
    """What an algorithm returns at its end."""
    while True:
        try:
            next(parts)
        except StopIteration as end:
            found: Computed = end.value
            return found


class StreamedAlgorithm(NamedTuple):
    """How an algorithm runs.

    run        (surroundings, **parameters) → Streamed
    temporary  see Budget
    """

    run: Callable[..., Streamed]
    temporary: int = 0


ALGORITHMS = {
    LABELS: StreamedAlgorithm(_labels, WindowedLabels.TEMPORARY_BYTES),
    CORES: StreamedAlgorithm(_cores),
    DENSEST: StreamedAlgorithm(_densest),
    TRIANGLES: StreamedAlgorithm(_triangles),
    CLUSTERING: StreamedAlgorithm(_clustering),
    SUPPORT: StreamedAlgorithm(_support),
    TRUSSNESS: StreamedAlgorithm(_trussness),
}
"""Those that run out of core."""
