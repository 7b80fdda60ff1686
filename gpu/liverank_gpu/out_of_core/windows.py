"""In-lists in windows, of which two are in memory, as solves and programs read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cpu.device import available_bytes
from liverank_gpu.errors import OutOfMemory
from liverank_gpu.graph.packed_csr import RowLengths, row_blocks
from liverank_gpu.graph.ranked_graph import RankedGraph
from liverank_gpu.graph.vertices import VertexIds, VertexPermutation
from liverank_gpu.operations import programs as op
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Csr, GraphView, Operation, Result, Rows, combined
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.sweeps import PartialSweeps
from liverank_gpu.out_of_core.spool import PackedEdges, ScratchColumns, padded

# ---- in-lists through two buffers: while one is computed, a thread fills the other ----
#
# A sweep goes through the windows in the order opposite to that of the last one, so that it begins
# with the two that are in the buffers.

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
        return self.visit(_every_window)

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


# ---- a graph whose in-lists are streamed, as a solve reads it ----


def permutation_of(backend: Backend, packed: PackedEdges) -> VertexPermutation:
    """Ids and positions of packed edges."""
    ids = backend.device.to_device(packed.ids) if len(packed.ids) else None
    return VertexPermutation(backend, ids)


class WindowedGraph(RankedGraph):
    """A RankedGraph of which a solve sweeps over all vertices:
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
        self.incoming = RowLengths(rows, int(packed.row_lengths.max(initial=0)), depth)
        no_rows = rows._replace(row_starts=rows.row_starts[:0], row_lengths=rows.row_lengths[:0])
        self.outgoing = RowLengths(no_rows, packed.longest_outgoing, depth)
        self.ids, self.permutation = VertexIds(self.vertices), permutation_of(backend, packed)
        self.free: Array = device.allocate("vertices", 0, np.int32)
        linked = (self.degree != self.loop) | (windows.row_lengths != 0)
        self.connected = int(device.sum(linked))
        self.stream = WindowStream(backend, packed, windows.windows)
        self.run = WindowRun(backend, self.view, self.stream)
        sweeps = PartialSweeps(backend.sweeps)
        self.backend = replace(backend, sweeps=sweeps, run=self.run, components=None)

    def program_graph(self, program: op.VertexProgram) -> op.ProgramGraph:
        """The graph for a program. Raises OutOfMemory."""
        xp, vertices, lengths = self.backend.xp, self.vertices, self.view.incoming.row_lengths
        rows = None
        if program.every_vertex or program.aggregates:
            allocate = self.backend.device.allocate
            order = allocate("values of a program", vertices, np.int32)
            bins = allocate("values of a program", vertices, np.uint8)
            rows = Rows(order, self.backend.rebuild.partition(lengths, order, bins))
        same = self.permutation.is_identity
        return op.ProgramGraph(
            self.view,
            rows,
            xp.arange(vertices, dtype=np.int32) if same else self.permutation.ids,
            xp.zeros(vertices, np.uint8),
            vertices,
            program.direction == "both" and self.directed,
        )

    def in_rows(self) -> Rows:
        """No rows: those of each window are kept with it."""
        return Rows(self.free, np.zeros(1, np.int64))


# ---- which windows have something to do: those of whose sources one became active since ----
#
# Vertices are divided into blocks. Each window knows from which blocks its edges come, from when
# it was first loaded on, and each block when one of its vertices last became active.

_MOST_BLOCKS = 1 << 12
"""Blocks of vertices; fewer, so that all windows together have one flag a vertex at most."""

_PIECE = 1 << 16
"""Slots whose blocks are noted at once, or one part in _PARTS of a window."""

_PARTS = 64


class ActiveWindows:
    """What windows know.

    shift   the block of v is v >> shift
    blocks  int32[b] on the device: the last step in which one of its vertices became active
    since   int64[w]: the last step in which each window was processed
    """

    def __init__(self, backend: Backend, vertices: int, windows: int) -> None:
        """No vertex is active."""
        self._backend = backend
        most = max(1, min(_MOST_BLOCKS, vertices // windows))
        self.shift = max(0, (-(-vertices // most) - 1).bit_length())
        count = ((vertices - 1) >> self.shift) + 1
        self.blocks: Array = backend.xp.full(count, op.NEVER, np.int32)
        self.since = np.zeros(windows, np.int64)
        self._newest = np.full(count, op.NEVER, np.int32)
        self._sources = np.ones((windows, count), np.bool_)
        self._known = np.zeros(windows, np.bool_)

    def begin(self, vertices: Array | slice) -> None:
        """Makes vertices active in step 0, integer[…] or all, and no others."""
        self.blocks[:] = op.NEVER
        self.since[:] = 0
        self.activate(vertices, 0)

    def activate(self, vertices: Array | slice, step: int) -> None:
        """Makes vertices active, integer[…] or all."""
        self.blocks[vertices if isinstance(vertices, slice) else vertices >> self.shift] = step
        self.refresh()

    def refresh(self) -> None:
        """Takes note of `blocks`, which operations write."""
        self._newest = self._backend.device.to_host(self.blocks)

    @property
    def any_active(self) -> bool:
        """Whether a window is active."""
        return any(map(self._is_active, range(len(self.since))))

    def is_active(self, window: Window) -> bool:
        """Whether a source of the window became active since it was processed."""
        return self._is_active(window.number)

    def _is_active(self, number: int) -> bool:
        newer = self._newest >= self.since[number]
        return bool((newer & self._sources[number]).any())

    def note_sources(self, window: Window, column_indices: Array, sends_back: bool) -> None:
        """Notes from which blocks the edges of a window come, once.

        sends_back  whether its own vertices count too
        """
        if self._known[window.number]:
            return
        flags = self._backend.xp.zeros(len(self._newest), np.bool_)
        piece = max(_PIECE, len(column_indices) // _PARTS)
        for first in range(0, len(column_indices), piece):
            flags[column_indices[first : first + piece] >> self.shift] = True
        if sends_back:
            own = window.vertices
            flags[own.start >> self.shift : ((own.stop - 1) >> self.shift) + 1] = True
        self._sources[window.number] = self._backend.device.to_host(flags)
        self._known[window.number] = True


# ---- operations over the windows of a graph ----
#
# An operation that reads in-lists is given one window after the other. A superstep of a program is
# a pass that skips the windows of whose vertices no in-neighbour became active since the window was
# last processed. In an asynchronous run a window reads what windows before it have changed in the
# same pass, and is active again only by what changes afterwards.
#
# Parallel sliding windows as Zhang's thesis has them (chapter 5): values of vertices stay in memory
# here, so that no window of another interval is loaded or written back. Values of edges are loaded
# with their window and written back after it, by the vertices that they lead to. Where messages go
# against edges too, a vertex that became active sends to its in-neighbours while its own window is
# there.


class EdgeValueFile:
    """The values of edges, in a file by slot: those of one window are in memory.

    layout  of the values
    """

    def __init__(
        self, backend: Backend, stream: WindowStream, layout: op.Layout, folder: Path | None
    ) -> None:
        """Raises OutOfMemory, OSError."""
        self.layout, self._device, self._windows = layout, backend.device, stream.windows
        room = max(window.slots for window in self._windows)
        self._host = layout.array(room, lambda count, dtype: np.empty(count, dtype))
        self._file = ScratchColumns(1, folder)

    def fill(self, value: op.Constant) -> None:
        """Gives all edges a value."""
        self._host[:] = self.layout.element(value)
        for window in self._windows:
            self._file.write(window.first, self._host[: window.slots])

    def load(self, window: Window) -> Array:
        """The values of the slots of a window, to be stored again."""
        here = self._host[: window.slots]
        self._file.read(window.first, here)
        return self._device.to_device(here)

    def store(self, window: Window, values: Array) -> None:
        """Writes them back."""
        self._file.write(window.first, self._device.to_host(values))

    def close(self) -> None:
        """Frees the space on the disk."""
        self._file.close()


class WindowRun:
    """Runs operations window by window, if they read in-lists (liverank_gpu.operations.csr.
    Run). The sums of the windows are added up, so results depend on the order of windows, which
    alternates, by rounding alone.

    local        that of the backend, which is given each window
    processed    windows that were processed
    edge_values  of the program that runs; None if it has none
    """

    def __init__(self, backend: Backend, view: GraphView, stream: WindowStream) -> None:
        self.local, self._backend, self._view, self._stream = backend.run, backend, view, stream
        self.processed = 0
        self.edge_values: EdgeValueFile | None = None

    @cached_property
    def active(self) -> ActiveWindows:
        """Which windows have something to do: for programs alone, whose budget has them."""
        return ActiveWindows(self._backend, self._view.vertices, len(self._stream.windows))

    def __call__(self, operation: Operation[Result], /) -> Result:
        if isinstance(operation, op.RunProgram):
            self._run_program(operation)
            return cast(Result, None)
        if not operation.in_rows:
            return self.local(operation)
        if not operation.divides:
            raise NotImplementedError(f"no {type(operation).__name__} window by window")
        results = [
            self._in_window(operation.over(view, window.rows), window)
            for window, view in self._visit(_every_window)
        ]
        total: Result = combined(operation, results, sum)
        return total

    def _in_window(self, operation: Operation[Result], window: Window) -> Result:
        if self.edge_values is None or not isinstance(operation, op.Gather):
            return self.local(operation)
        values = self.edge_values.load(window)
        state = replace(operation.state, edge_values=values)
        found = self.local(replace(operation, state=state))
        self.edge_values.store(window, values)
        return cast(Result, found)

    def visit_active(self, sends_back: bool = False) -> Iterator[tuple[Window, GraphView]]:
        """The windows that are active, with the in-lists of each.

        sends_back  whether a window is active by its own vertices too
        """
        for window, view in self._visit(self.active.is_active):
            self.active.note_sources(window, view.incoming.column_indices, sends_back)
            yield window, view

    def _visit(self, is_needed: Callable[[Window], bool]) -> Iterator[tuple[Window, GraphView]]:
        starts, lengths = self._view.incoming.row_starts, self._view.incoming.row_lengths
        for window, slots in self._stream.visit(is_needed):
            self.processed += 1
            yield window, self._view._replace(incoming=Csr(starts, lengths, *slots))

    def _run_program(self, do: op.RunProgram) -> None:
        """To its end: which vertices are active after the last superstep is not listed, and the
        count then says whether any is.
        """
        if do.program.every_vertex:
            op.run_every_vertex(do, self, partial(self._aggregated, do))
            return
        state, windows, in_place = do.state, self.active, do.mode == "asynchronous"
        xp = self._backend.xp
        steps = xp.full(len(state.values), op.NEVER, np.int32)
        first = state.active[: state.count]
        steps[first] = 0
        windows.begin(first)
        values = (state.values, state.values if in_place else xp.empty_like(state.values))
        stamps = (steps, steps if in_place else steps.copy())
        step = op.WindowState(*values, *stamps, windows.blocks, windows.shift)
        gather = op.Gather(do.program, do.parameters, do.graph, step)
        last, now = state.supersteps + do.supersteps, 0
        while state.count and state.supersteps < last:
            step.superstep = state.supersteps
            step.aggregate = self._aggregated(do, step.values)
            if not in_place:
                step.new_values[:] = step.values
                now += 1
            for window, view in self.visit_active(do.graph.both):
                now += in_place
                each = gather.over(view, window.rows)
                each.since, each.now = int(windows.since[window.number]), now
                gathered = self._in_window(each, window)
                state.edges += gathered.messages
                if in_place:
                    windows.since[window.number] = now
                    if gathered.active:
                        windows.refresh()
            if not in_place:
                step.values, step.new_values = step.new_values, step.values
                step.steps, step.new_steps = step.new_steps, step.steps
                windows.since[:] = now
                windows.refresh()
            state.supersteps += 1
            state.count = int(windows.any_active)
        state.values = step.values
        state.aggregate = self._aggregated(do, state.values)

    def _aggregated(self, do: op.RunProgram, values: Array) -> float:
        known = not do.program.every_vertex and not do.program.aggregates
        return 0.0 if known else do.aggregate_of(values, self.local)


def _every_window(_: Window) -> bool:
    return True
