"""Vertex programs on windows of in-lists on ``cuda``."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from liverank_gpu.backends.cuda.device import Kernel
from liverank_gpu.backends.cuda.kernels.loader import BLOCK
from liverank_gpu.backends.cuda.launcher import Launcher, pointers
from liverank_gpu.backends.cuda.program_source import ALL_BLOCKS, WINDOW_KERNELS, program_source
from liverank_gpu.backends.cuda.programs import blocks_for_rows, parameter_struct, row_groups
from liverank_gpu.operations.program_windows import Gathered, ProgramWindowOperations, WindowState
from liverank_gpu.operations.programs import ProgramGraph, VertexProgram


class CudaProgramWindows(ProgramWindowOperations):
    """See ProgramWindowOperations."""

    def __init__(self, launch: Launcher) -> None:
        self._launch = launch
        self._compiled: dict[tuple[str, bool], Kernel] = {}

    def _kernel(self, program: VertexProgram, weighted: bool) -> Kernel:
        key = (program.digest, weighted)
        if key not in self._compiled:
            text, unit = program_source(program, weighted, "window"), f"program-{program.digest}"
            (kernel,) = WINDOW_KERNELS
            self._compiled[key] = self._launch.device.compile(unit, text, WINDOW_KERNELS)(kernel)
        return self._compiled[key]

    def gather_window(
        self,
        program: VertexProgram,
        parameters: Mapping[str, float],
        graph: ProgramGraph,
        state: WindowState,
        since: int,
        now: int,
    ) -> Gathered:
        view, rows, device = graph.view, graph.in_rows, self._launch.device
        assert rows is not None
        counts = self._launch.xp.zeros(2, np.uint64)
        self._kernel(program, view.weighted)(
            (blocks_for_rows(self._launch, rows.count, ALL_BLOCKS),),
            (BLOCK,),
            (
                *pointers(*view.incoming),
                view.loop,
                view.degree,
                graph.ids,
                rows.order,
                row_groups(rows),
                parameter_struct(parameters, graph.vertices),
                state.values,
                state.new_values,
                state.steps,
                state.new_steps,
                state.blocks,
                np.int32(state.shift),
                np.int32(since),
                np.int32(now),
                np.int32(graph.both),
                np.int64(state.superstep),
                np.float64(state.aggregate),
                counts,
            ),
        )
        active, messages = device.to_host(counts).tolist()
        return Gathered(active, messages)
