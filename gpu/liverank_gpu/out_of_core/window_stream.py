"""In-lists through two buffers: while one is computed, a thread fills the other.

A sweep goes through the windows in the order opposite to that of the last one, so that it begins
with the two that are in the buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cpu.host_memory import available_bytes
from liverank_gpu.errors import OutOfMemory
from liverank_gpu.graph.rows import row_blocks
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.out_of_core.spool import PackedEdges, padded

_PURPOSE = "windows of in-lists"


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """The in-lists of an interval.

    number    from 0 on, in the order of vertices
    vertices  the interval
    rows      its rows, grouped for the kernels
    first     its first slot of all
    slots     how many it has
    """

    number: int
    vertices: slice
    rows: Rows
    first: int
    slots: int


@dataclass(frozen=True, slots=True)
class Windows:
    """The in-lists of a graph in windows.

    row_starts   int64[n] on the device, slots from the begin of the window of each row
    row_lengths  int32[n] on the device
    """

    windows: list[Window]
    row_starts: Array
    row_lengths: Array

    @classmethod
    def of(cls, backend: Backend, packed: PackedEdges, slots: int) -> Windows:
        """Intervals with at most this many slots each, unless a single row has more."""
        vertices, device = len(packed.row_lengths), backend.device
        row_lengths = device.to_device(packed.row_lengths)
        row_starts = device.allocate("vertices", vertices, np.int64)
        order = device.allocate("vertices", vertices, np.int32)
        windows: list[Window] = []
        first = 0
        for block in row_blocks(padded(packed.row_lengths), slots):
            lengths = row_lengths[block]
            bins = device.allocate("vertices", len(lengths), np.uint8)
            groups = backend.rebuild.partition(lengths, order[block], bins)
            order[block] += block.start
            backend.rebuild.pack_rows(lengths, 0, row_starts[block], backend.xp.empty_like(lengths))
            filled = int(padded(packed.row_lengths[block]).sum(dtype=np.int64))
            rows = Rows(order[block], groups)
            windows.append(Window(len(windows), block, rows, first, filled))
            first += filled
        return cls(windows, row_starts, row_lengths)


class WindowStream:
    """Windows of a file, as arrays of the backend.

    windows       all of them, in the order of vertices
    passes        over the windows, so far
    bytes_loaded  by all of them
    in_memory     whether the file has been read into page-locked memory of the host
    """

    def __init__(self, backend: Backend, packed: PackedEdges, windows: list[Window]) -> None:
        """Raises OutOfMemory, OSError."""
        self._backend, self._file, self.windows = backend, packed.file, windows
        self._order = list(windows)
        room = max(window.slots for window in windows)
        allocate, device = backend.device.allocate, backend.device
        self._buffers = [
            tuple(allocate(_PURPOSE, room, dtype) for dtype in packed.dtypes) for _ in windows[:2]
        ]
        on_host = backend.name != "cuda"
        self._host = None if on_host else _read_whole(backend, packed)
        self.in_memory = self._host is not None
        self._staging = self._buffers
        if not on_host and self._host is None:
            self._staging = [
                tuple(device.page_locked(room, dtype) for dtype in packed.dtypes)
                for _ in windows[:2]
            ]
        # what each buffer holds, and what makes the device wait for it
        self._held: list[Window | None] = [None] * len(self._buffers)
        self._ready: list[Future[Callable[[], None]] | None] = [None] * len(self._buffers)
        self._reader = ThreadPoolExecutor(1, "liverank-windows")
        self.passes = self.bytes_loaded = 0
        self._slot_bytes = _slot_bytes(packed)
        # memory of the buffers may still be in use by work that was issued before
        device.synchronize()

    def __iter__(self) -> Iterator[tuple[Window, tuple[Array, ...]]]:
        """Each window with its column indices, int32[slots], and the weights of a weighted graph,
        float32[slots]. Work on it has to be complete when the next one is asked for. Raises
        OSError.
        """
        return self.visit(lambda _: True)

    def visit(
        self, is_needed: Callable[[Window], bool]
    ) -> Iterator[tuple[Window, tuple[Array, ...]]]:
        """The windows that are needed, as above.

        is_needed  asked of a window just before work on the one before it begins
        """
        self.passes += 1
        order = filter(is_needed, self._order)
        window = next(order, None)
        if window is not None:
            self._request(window, busy=None)
        while window is not None:
            buffer = self._held.index(window)
            ready = self._ready[buffer]
            if ready is not None:
                ready.result()()
                self._ready[buffer] = None
            following = next(order, None)
            if following is not None:
                self._request(following, busy=buffer)
            yield window, _first(self._buffers[buffer], window.slots)
            window = following
        self._order.reverse()

    def _request(self, window: Window, busy: int | None) -> None:
        """Has the thread load a window into a buffer that is not busy, unless one holds it."""
        if any(held is window for held in self._held):
            return
        buffer = 0 if busy is None else 1 - busy
        self._held[buffer] = window
        self._ready[buffer] = self._reader.submit(self._load, window, buffer)
        self.bytes_loaded += self._slot_bytes * window.slots

    def _load(self, window: Window, buffer: int) -> Callable[[], None]:
        targets = _first(self._buffers[buffer], window.slots)
        if self._host is not None:
            here = slice(window.first, window.first + window.slots)
            sources = tuple(column[here] for column in self._host)
        else:
            sources = _first(self._staging[buffer], window.slots)
            self._file.read(window.first, *sources)
            if self._staging is self._buffers:
                return _nothing
        started = list(map(self._backend.device.start_copy, sources, targets))

        def wait() -> None:
            for copied in started:
                copied()

        return wait

    def reload(self, window: Window, slots: slice) -> None:
        """To be called between passes when these slots of a window have changed in the file: what
        is in memory of it is loaded again. Raises OSError.
        """
        if self._host is not None:
            here = slice(window.first + slots.start, window.first + slots.stop)
            self._file.read(here.start, *(column[here] for column in self._host))
        self._held = [None if held is window else held for held in self._held]

    def close(self) -> None:
        """Ends the thread, and frees the buffers, once no copy uses them any more."""
        self._reader.shutdown()
        for ready in self._ready:
            if ready is not None and ready.exception() is None:
                ready.result()()
        self._backend.device.synchronize()
        self._buffers, self._staging, self._host = [], [], None


def _read_whole(backend: Backend, packed: PackedEdges) -> tuple[NDArray[Any], ...] | None:
    """The whole file, page-locked; None if the host has no room for it."""
    if _slot_bytes(packed) * packed.slots > available_bytes():
        return None
    try:
        host = tuple(backend.device.page_locked(packed.slots, dtype) for dtype in packed.dtypes)
    except OutOfMemory:
        return None
    packed.file.read(0, *host)
    return host


def _slot_bytes(packed: PackedEdges) -> int:
    return sum(np.dtype(dtype).itemsize for dtype in packed.dtypes)


def _first(columns: tuple[Array, ...], slots: int) -> tuple[Array, ...]:
    return tuple(column[:slots] for column in columns)


def _nothing() -> None:
    """What is done to wait for a file that has been read."""
