"""Vertex programs on ``cuda``: their source, their supersteps, and those on windows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

import numpy as np

from liverank_gpu.backends.cuda.device import Kernel
from liverank_gpu.backends.cuda.kernels import loader as cu
from liverank_gpu.backends.cuda.launcher import Launcher, OnDevice, blocks_for
from liverank_gpu.operations import programs as op
from liverank_gpu.operations.csr import Rows, runs
from liverank_gpu.operations.device import Array

# ---- the translation unit of a vertex program: its functions in C++, then the kernels ----

KERNELS = ("initialise", "supports_any")
ACTIVE_KERNELS = ("run_active<false>", "run_active<true>")
ALL_KERNELS = ("run_all",)
WINDOW_KERNELS = ("gather_window",)

ACTIVE_BLOCKS, ALL_BLOCKS = 4, 3
"""Blocks of `run_active`, and of `run_all` and `gather_window`, that are resident on a
multiprocessor.
"""

Unit = Literal["vertices", "window"]
"""What the kernels of a translation unit pass over."""


def program_kernels(program: op.VertexProgram, unit: Unit = "vertices") -> tuple[str, ...]:
    """The name expressions of a program's kernels in a translation unit."""
    if unit == "window":
        return WINDOW_KERNELS
    if program.every_vertex or program.pulls:
        return (*KERNELS, *ALL_KERNELS)
    return (*KERNELS, *(ACTIVE_KERNELS if program.monotone else ACTIVE_KERNELS[:1]))


def program_source(program: op.VertexProgram, weighted: bool, unit: Unit = "vertices") -> str:
    """The whole text of a translation unit: the kernels of whole graphs, or that of windows."""
    lines = [
        "struct Program {",
        *op.definitions(program),
        "};",
        f"#define IDENTITY ({program.values.literal(program.identity)})",
        f"#define AGGREGATE_IDENTITY {op.number(op.AGGREGATE_IDENTITY[program.aggregator])}",
        f"constexpr int ACTIVE_BLOCKS = {ACTIVE_BLOCKS}, ALL_BLOCKS = {ALL_BLOCKS};",
        f"constexpr int LOOKING_PART = {op.LOOKING_PART};",
    ]
    gathers = program.every_vertex or program.pulls
    run = "window" if unit == "window" else "all" if gathers else "active"
    before, after = cu.program_parts(weighted, f"run_{run}.cuh")
    return "\n".join([before, '#line 1 "program"', *lines, after])


# ---- vertex programs on ``cuda`` ----

_VERTICES_OF_A_BLOCK = 64
"""Vertices of a graph for each block of a launch, at least."""

_NEVER = 2**62
"""Edges of a graph in which no vertex looks for active in-neighbours."""


class CudaPrograms(OnDevice):
    """Vertex programs."""

    def __init__(self, launch: Launcher) -> None:
        super().__init__(launch)
        self._compiled: dict[tuple[str, bool, Unit], dict[str, Kernel]] = {}

    def _kernel(
        self, program: op.VertexProgram, weighted: bool, name: str, unit: Unit = "vertices"
    ) -> Kernel:
        key = (program.digest, weighted, unit)
        if key not in self._compiled:
            expressions = program_kernels(program, unit)
            text = program_source(program, weighted, unit)
            compiled = f"program-{program.digest}"
            load = self._device.compile(compiled, text, expressions)
            self._compiled[key] = {each: load(each) for each in expressions}
        return self._compiled[key][name]

    @runs
    def _initialise(self, do: op.InitialiseProgram) -> None:
        program, parameters, graph = do.program, do.parameters, do.graph
        first, state = do.first, do.state
        view, count = graph.view, len(state.values)
        found = self._device.to_device(np.array([state.count], np.uint64))
        self._kernel(program, view.weighted, "initialise")(
            (self._launch.resident_blocks(count - first),),
            (cu.BLOCK,),
            (
                first,
                count,
                graph.ids,
                view.degree,
                view.incoming.row_lengths,
                graph.absent,
                parameter_struct(parameters, graph.vertices),
                state.values,
                state.active,
                found,
            ),
        )
        state.count = int(self._device.to_host(found)[0])

    @runs
    def _run(self, do: op.RunProgram) -> None:
        program = do.program
        if program.every_vertex and program.edges is not None:
            aggregate = partial(do.aggregate_of, run=self._run_all)
            op.run_every_vertex(do, self._gather, aggregate)
        elif program.every_vertex or program.pulls:
            self._run_all(do)
        else:
            self._run_active(do)

    def _run_active(self, asked: op.RunProgram) -> None:
        program, graph = asked.program, asked.graph
        supersteps, state = asked.supersteps, asked.state
        given = parameter_struct(asked.parameters, graph.vertices)
        xp, view = self._xp, graph.view
        vertices, in_place = view.vertices, asked.mode == "asynchronous"
        accumulated = None if in_place else xp.full(vertices, program.identity, program.number_type)
        received = None if in_place else xp.empty(vertices, np.int32)
        following = xp.empty(vertices, np.int32)
        directions = 2 if graph.both else 1
        slots = sum(
            len(lists.column_indices) for lists in (view.outgoing, view.incoming)[:directions]
        )
        items = xp.empty(directions * vertices + slots // cu.EDGE_CHUNK + 1, np.int64)
        start = np.zeros(cu.PROGRAM_COUNTS["SIZE"], np.int64)
        start[cu.PROGRAM_COUNTS["ACTIVE"]] = state.count
        counts = self._device.to_device(start)
        name = f"run_active<{str(in_place).lower()}>"
        self._kernel(program, view.weighted, name)(
            (blocks_for_rows(self._launch, vertices, ACTIVE_BLOCKS),),
            (cu.BLOCK,),
            (
                view.outgoing,
                view.incoming,
                view.degree,
                graph.ids,
                given,
                state.values,
                accumulated,
                xp.zeros(vertices, np.int32),
                state.active,
                following,
                received,
                items,
                directions,
                vertices,
                view.edges if state.fresh else _NEVER,
                state.supersteps,
                supersteps,
                counts,
            ),
        )
        done, final, messages = self._read(counts)
        if done % 2:
            state.active = following
        state.count = final
        state.supersteps += done
        state.edges += messages

    def _run_all(self, asked: op.RunProgram) -> None:
        program, graph = asked.program, asked.graph
        supersteps, state = asked.supersteps, asked.state
        given = parameter_struct(asked.parameters, graph.vertices)
        xp, view, rows = self._xp, graph.view, graph.in_rows
        assert rows is not None
        new_values = state.values.copy() if supersteps else state.values
        blocks = blocks_for_rows(self._launch, view.vertices, ALL_BLOCKS)
        counts, aggregate = xp.zeros(cu.PROGRAM_COUNTS["SIZE"], np.int64), xp.empty(1)
        self._kernel(program, view.weighted, "run_all")(
            (blocks,),
            (cu.BLOCK,),
            (
                view.incoming,
                view.loop,
                view.degree,
                graph.ids,
                graph.absent,
                rows.order,
                row_groups(rows),
                view.vertices,
                given,
                state.values,
                new_values,
                xp.empty(3 * blocks),
                state.supersteps,
                supersteps,
                counts,
                aggregate,
            ),
        )
        done, final, messages = self._read(counts)
        if done % 2:
            state.values = new_values
        state.count = graph.vertices if final else 0
        state.supersteps += done
        state.edges += messages if program.pulls else done * view.edges
        state.aggregate = float(self._device.to_host(aggregate)[0])

    def _read(self, counts: Array) -> tuple[int, int, int]:
        """Supersteps that were run, what `FINAL` says, and messages."""
        seen = self._device.to_host(counts)
        names = ("SUPERSTEPS", "FINAL", "MESSAGES")
        done, final, messages = (int(seen[cu.PROGRAM_COUNTS[name]]) for name in names)
        return done, final, messages

    @runs
    def _supports_any(self, do: op.SupportsAny) -> bool:
        program, parameters, values = do.program, do.parameters, do.values
        sources, targets, weights = do.edges
        found = self._xp.zeros(1, np.int32)
        self._kernel(program, weights is not None, "supports_any")(
            (self._launch.resident_blocks(len(sources)),),
            (cu.BLOCK,),
            (
                sources,
                targets,
                weights,
                *do.ids,
                len(sources),
                parameter_struct(parameters, len(values)),
                values,
                found,
            ),
        )
        return bool(self._device.to_host(found)[0])

    @runs
    def _gather(self, do: op.Gather) -> op.Gathered:
        program, parameters, graph, state = do.program, do.parameters, do.graph, do.state
        view, rows, device = graph.view, graph.in_rows, self._device
        assert rows is not None
        counts = self._xp.zeros(2, np.uint64)
        self._kernel(program, view.weighted, "gather_window", "window")(
            (blocks_for_rows(self._launch, rows.count, ALL_BLOCKS),),
            (cu.BLOCK,),
            (
                (
                    view.incoming,
                    view.outgoing,
                    (graph.ids, view.degree, view.incoming.row_lengths),
                    view.loop,
                    graph.absent,
                    rows.order,
                    *(state.values, state.new_values),
                    *(state.steps, state.new_steps, state.blocks, state.shift),
                    *(do.since, do.now, graph.both),
                    *(state.superstep, state.aggregate, state.edge_values),
                ),
                row_groups(rows),
                parameter_struct(parameters, graph.vertices),
                counts,
            ),
        )
        active, messages = device.to_host(counts).tolist()
        return op.Gathered(active, messages)


def blocks_for_rows(launch: Launcher, rows: int, resident: int) -> int:
    """Blocks that may synchronise, of which `resident` fit on a multiprocessor: few for small
    graphs, since that takes longer the more there are.
    """
    return blocks_for(rows, _VERTICES_OF_A_BLOCK, launch.device.multiprocessors * resident)


def row_groups(rows: Rows) -> tuple[int, ...]:
    """Rows of programs.cuh."""
    return tuple(rows.groups.tolist())


def parameter_struct(parameters: Mapping[str, float], vertices: int) -> tuple[float, ...]:
    """Parameters of a program."""
    return tuple(op.parameter_record(parameters, vertices).tolist())
