"""Triangles of a graph whose edges are in a file.

The edges are oriented and divided into windows of rows. A triangle u, v, w, in the order of ranks,
is found where the windows of u and v are both in memory.

By vertex, every pair of windows is compared once. A pass keeps the first window of those that are
left, or the last, while the others stream by, and leaves it out afterwards; passes alternate in
direction as those of the stream do. By edge, all windows stream by each: so counts are complete
when they leave memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Csr
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.triangles import RowWindow
from liverank_gpu.out_of_core.spool import PackedEdges
from liverank_gpu.out_of_core.window_stream import Window, Windows, WindowStream


class WindowedTriangles:
    """Triangles of oriented rows (liverank_gpu.out_of_core.undirected.oriented), to be closed.

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
                self._backend.triangles.count_between(*pair, triangles)
                self._backend.device.synchronize()
                self.pairs += 1
            first, last = (first + 1, last) if ascending else (first, last - 1)
            ascending = not ascending
        return triangles

    def count_by_edge(self) -> Iterator[tuple[Window, Array]]:
        """Windows in order, with the triangles of each of their edges: int32[slots] on the device.
        Raises OSError.
        """
        operations, device = self._backend.triangles, self._backend.device
        for window in self.stream.windows:
            alone = partial(_is_between, window.number, window.number)
            for _, (entries,) in self.stream.visit(alone):
                kept = self._keep(window, entries)
                device.synchronize()
            counts: Array = self._backend.xp.zeros(window.slots, np.int32)
            for other, (entries,) in self.stream:
                rows = self._rows(other, entries)
                if other.number >= window.number:
                    operations.count_entries_between(kept, rows, True, counts)
                if other.number <= window.number:
                    operations.count_entries_between(rows, kept, False, counts)
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
