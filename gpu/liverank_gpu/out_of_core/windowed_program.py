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

from liverank_gpu.operations.csr import Csr, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.program_windows import Gathered, WindowState
from liverank_gpu.operations.programs import Mode, ProgramGraph, ProgramState, VertexProgram
from liverank_gpu.out_of_core.active_windows import NEVER, ActiveWindows
from liverank_gpu.out_of_core.window_stream import Window
from liverank_gpu.out_of_core.windowed_graph import WindowedGraph


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
        self._windows = ActiveWindows(self._backend, vertices, len(graph.stream.windows))
        self._state = self._initial()

    def _initial(self) -> WindowState:
        program, xp, device = self._program, self._backend.xp, self._backend.device
        vertices = self._graph.vertices

        def column(dtype: type[np.generic]) -> Array:
            return device.allocate("values of a program", vertices, dtype)

        state = ProgramState(column(np.dtype(program.dtype).type), column(np.int32))
        self._backend.programs.initialise(program, self._parameters, self._viewed, 0, state)
        steps = xp.full(0 if program.every_vertex else vertices, NEVER, np.int32)
        if not program.every_vertex:
            listed = state.active[: state.count]
            steps[listed] = 0
            self._windows.activate(listed, 0)
        values, in_place = state.values, self._in_place
        return WindowState(
            values,
            values if in_place else values.copy(),
            steps,
            steps if in_place else steps.copy(),
            self._windows.blocks,
            self._windows.shift,
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
            if not any(map(self._windows.is_active, self._graph.stream.windows)):
                return True
            self._pass()
        return not any(map(self._windows.is_active, self._graph.stream.windows))

    def send(self, active: Array) -> None:
        """One superstep of a synchronous run in which these vertices are active, integer[…], and no
        others. None becomes active by it. Raises OSError.
        """
        state, step = self._state, self._graph.stream.passes
        state.steps[active] = step
        self._windows.activate(active, step)
        self._pass()

    def _pass(self) -> None:
        """The windows that are active: in a synchronous run one superstep, of which each is one
        step; else each window is one.
        """
        state, stream, windows = self._state, self._graph.stream, self._windows
        state.superstep = stream.passes
        if not self._in_place:
            state.new_values[:] = state.values
        for window, slots in stream.visit(windows.is_active):
            windows.note_sources(window, slots[0], self._viewed.both)
            self.processed += 1
            now = self.processed if self._in_place else stream.passes
            since = int(windows.since[window.number])
            gathered = self._gather(window, slots, since, now)
            self.messages += gathered.messages
            if self._in_place:
                windows.since[window.number] = now
                if gathered.active:
                    windows.refresh()
        if not self._in_place:
            self._swap()
            windows.since[:] = stream.passes
            windows.refresh()

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
        self._backend.programs.run(self._program, self._parameters, graph, "synchronous", 0, state)
        return state.aggregate
