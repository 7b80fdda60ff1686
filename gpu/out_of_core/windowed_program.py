"""A vertex program over the windows of a graph.

Each pass takes the windows in order and skips those of whose vertices no in-neighbour became active
since the window was last processed: each window knows from which blocks of vertices its edges come,
from when it was first loaded on. In an asynchronous run a window reads what windows before it have
changed in the same pass, and is active again only by what changes afterwards.

Parallel sliding windows as Zhang's thesis has them (chapter 5): values stay in memory here, so that
no window of another interval is loaded or written back. Where messages go against edges too, a
vertex that became active sends to its in-neighbours while its own window is there.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gpu.operations.csr import Csr, Rows
from gpu.operations.device import Array
from gpu.operations.program_windows import Gathered, WindowState
from gpu.operations.programs import Mode, ProgramGraph, ProgramState, VertexProgram
from gpu.out_of_core.window_stream import Window
from gpu.out_of_core.windowed_graph import WindowedGraph

_MOST_BLOCKS = 1 << 12
"""Blocks of vertices; fewer, so that all windows together have one flag a vertex at most."""

_PIECE = 1 << 16
"""Slots whose blocks are noted at once, or one part in _PARTS of a window."""

_PARTS = 64

_NEVER = -1
"""The step in which a vertex became active that never did."""


class WindowedProgram:
    """A program that runs.

    processed  windows that were processed, in all passes
    messages   sent so far
    aggregate  that of the values at the end
    """

    def __init__(
        self,
        graph: WindowedGraph,
        program: VertexProgram,
        parameters: Mapping[str, float],
        mode: Mode,
    ) -> None:
        """Gives vertices their first values. Raises OutOfMemory.

        mode  ``asynchronous`` if messages go against edges too
        """
        self._backend, self._graph = graph.backend, graph
        self._program, self._parameters = program, parameters
        self._in_place = mode == "asynchronous"
        xp, vertices = self._backend.xp, graph.vertices
        same = graph.permutation.is_identity
        self._viewed = ProgramGraph(
            graph.view,
            None,
            xp.arange(vertices, dtype=np.int32) if same else graph.permutation.ids,
            xp.zeros(vertices, np.uint8),
            vertices,
            program.direction == "both" and graph.directed,
        )
        self.processed = self.messages = 0
        self.aggregate = 0.0
        windows = len(graph.stream.windows)
        most = max(1, min(_MOST_BLOCKS, vertices // windows))
        shift = max(0, (-(-vertices // most) - 1).bit_length())
        blocks = ((vertices - 1) >> shift) + 1
        self._state = self._initial(shift, blocks)
        # of each window: the blocks of its sources, and the last step in which it was processed
        self._sources = np.ones((windows, blocks), np.bool_)
        self._known = np.zeros(windows, np.bool_)
        self._since = np.zeros(windows, np.int64)
        self._active_blocks = self._backend.device.to_host(self._state.blocks)

    def _initial(self, shift: int, blocks: int) -> WindowState:
        program, xp, device = self._program, self._backend.xp, self._backend.device
        vertices = self._graph.vertices

        def column(dtype: type[np.generic]) -> Array:
            return device.allocate("values of a program", vertices, dtype)

        state = ProgramState(column(np.dtype(program.dtype).type), column(np.int32))
        self._backend.programs.initialise(program, self._parameters, self._viewed, 0, state)
        steps = xp.full(0 if program.every_vertex else vertices, _NEVER, np.int32)
        active_blocks = xp.full(blocks, _NEVER, np.int32)
        if not program.every_vertex:
            listed = state.active[: state.count]
            steps[listed] = 0
            active_blocks[listed >> shift] = 0
        values, in_place = state.values, self._in_place
        return WindowState(
            values,
            values if in_place else values.copy(),
            steps,
            steps if in_place else steps.copy(),
            active_blocks,
            shift,
        )

    @property
    def values(self) -> Array:
        """dtype[n], on the device."""
        return self._state.values

    def run(self) -> bool:
        """Runs to the end. Returns whether it finished, or else was active after its last
        superstep. Raises OSError.
        """
        if self._program.every_vertex:
            return self._run_all()
        while self._graph.stream.passes < self._program.supersteps:
            if not any(map(self._is_active, self._graph.stream.windows)):
                return True
            self._pass()
        return not any(map(self._is_active, self._graph.stream.windows))

    def _is_active(self, window: Window) -> bool:
        """Whether an in-neighbour of its vertices became active since it was processed."""
        newer = self._active_blocks >= self._since[window.number]
        return bool((newer & self._sources[window.number]).any())

    def _pass(self) -> None:
        """The windows that are active: in a synchronous run one superstep, of which each is one
        step; else each window is one.
        """
        state, device, stream = self._state, self._backend.device, self._graph.stream
        state.superstep = stream.passes
        if not self._in_place:
            state.new_values[:] = state.values
        for window, slots in stream.visit(self._is_active):
            if not self._known[window.number]:
                self._note_sources(window, slots[0])
            self.processed += 1
            now = self.processed if self._in_place else stream.passes
            since = int(self._since[window.number])
            gathered = self._gather(window, slots, since, now)
            self.messages += gathered.messages
            if self._in_place:
                self._since[window.number] = now
                if gathered.active:
                    self._active_blocks = device.to_host(state.blocks)
        if not self._in_place:
            self._swap()
            self._since[:] = stream.passes
            self._active_blocks = device.to_host(state.blocks)

    def _run_all(self) -> bool:
        """Supersteps in which every vertex gathers."""
        rows, stream = self._all_rows(), self._graph.stream
        finished = False
        while not finished and stream.passes < self._program.supersteps:
            self._state.aggregate = self._aggregated(rows)
            self._state.superstep = stream.passes
            active = 0
            for window, slots in stream:
                active += self._gather(window, slots, 0, 0).active
                self.processed += 1
            self.messages += self._graph.arcs
            if not self._in_place:
                self._swap()
            finished = active == 0
        self.aggregate = self._aggregated(rows)
        return finished

    def _gather(self, window: Window, slots: tuple[Array, ...], since: int, now: int) -> Gathered:
        view = self._graph.view
        starts, lengths = view.incoming.row_starts, view.incoming.row_lengths
        graph = self._viewed._replace(
            view=view._replace(incoming=Csr(starts, lengths, *slots)), in_rows=window.rows
        )
        operations = self._backend.program_windows
        return operations.gather_window(
            self._program, self._parameters, graph, self._state, since, now
        )

    def _swap(self) -> None:
        state = self._state
        state.values, state.new_values = state.new_values, state.values
        state.steps, state.new_steps = state.new_steps, state.steps

    def _note_sources(self, window: Window, column_indices: Array) -> None:
        """Notes from which blocks the edges of a window come."""
        xp, shift = self._backend.xp, self._state.shift
        flags = xp.zeros(self._sources.shape[1], np.bool_)
        piece = max(_PIECE, len(column_indices) // _PARTS)
        for first in range(0, len(column_indices), piece):
            flags[column_indices[first : first + piece] >> shift] = True
        if self._viewed.both:  # its own vertices send too
            flags[window.vertices.start >> shift : ((window.vertices.stop - 1) >> shift) + 1] = True
        self._sources[window.number] = self._backend.device.to_host(flags)
        self._known[window.number] = True

    def _all_rows(self) -> Rows:
        """All rows, grouped for the aggregate."""
        allocate, vertices = self._backend.device.allocate, self._graph.vertices
        order = allocate("values of a program", vertices, np.int32)
        bins = allocate("values of a program", vertices, np.uint8)
        lengths = self._graph.view.incoming.row_lengths
        return Rows(order, self._backend.rebuild.partition(lengths, order, bins))

    def _aggregated(self, rows: Rows) -> float:
        """The aggregate of the values: a run of no superstep finds it."""
        graph = self._viewed._replace(in_rows=rows)
        nobody: Array = self._backend.xp.empty(0, np.int32)
        state = ProgramState(self._state.values, nobody)
        self._backend.programs.run(self._program, self._parameters, graph, "asynchronous", 0, state)
        return state.aggregate
