"""Trussness of the edges of a graph that are in a file.

Bounds begin as the numbers of triangles, and fall until as many triangles of an edge have at least
its bound on both other edges: see liverank_gpu.programs.truss. They are in a file beside the edges.
An iteration takes one interval of rows after the other: while all windows stream by, the triangles
of each of its edges are counted by the least bound of their edges, and from these counts follows
the highest bound that is supported. Later intervals see what has changed; those are left out of
whose edges no end has had an edge that fell since.
"""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

import numpy as np

from liverank_gpu.graph.rows import row_blocks, row_sums
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Csr
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.triangles import EdgeBounds, RowWindow
from liverank_gpu.out_of_core.scratch_file import ScratchColumns
from liverank_gpu.out_of_core.spool import PackedEdges, padded
from liverank_gpu.out_of_core.window_stream import Window, Windows, WindowStream


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
        """oriented     see liverank_gpu.out_of_core.undirected
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
                backend.triangles.count_entries_between(kept, streamed, True, counts, of_kept)
            if other.number <= window.number:
                of_kept = EdgeBounds(bounds_there, kept_bounds, self._places)
                backend.triangles.count_entries_between(streamed, kept, False, counts, of_kept)
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
