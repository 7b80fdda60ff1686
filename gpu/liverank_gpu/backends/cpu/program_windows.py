"""Vertex programs on windows of in-lists on ``cpu``."""

from __future__ import annotations

from collections.abc import Mapping

from liverank_gpu.backends.cpu.program_library import loops_of
from liverank_gpu.backends.cpu.programs import arguments_of_vertex, packed_parameters
from liverank_gpu.operations.program_windows import Gathered, ProgramWindowOperations, WindowState
from liverank_gpu.operations.programs import ProgramGraph, VertexProgram


class CpuProgramWindows(ProgramWindowOperations):
    """See ProgramWindowOperations."""

    def gather_window(
        self,
        program: VertexProgram,
        parameters: Mapping[str, float],
        graph: ProgramGraph,
        state: WindowState,
        since: int,
        now: int,
    ) -> Gathered:
        rows, view = graph.in_rows, graph.view
        assert rows is not None
        arrays = (state.values, state.new_values, state.steps, state.new_steps, state.blocks)
        return Gathered(
            *loops_of(program).gather_window(
                rows.groups,
                rows.order,
                view.incoming,
                view.loop,
                arguments_of_vertex(graph),
                graph.both,
                packed_parameters(parameters, graph.vertices),
                (*arrays, state.shift, state.superstep, state.aggregate, since, now),
            )
        )
