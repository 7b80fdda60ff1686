"""Vertex programs on windows of in-lists on ``cpu``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpu.backends.cpu.program_loops import Loop, ProgramLoops, count_at, number_at
from gpu.backends.cpu.programs import arguments_of_vertex, parameter_tuple
from gpu.backends.cpu.rows import CHUNKS
from gpu.jit.atomics import compare_and_swap
from gpu.jit.compile import unsigned
from gpu.operations.program_windows import Gathered, ProgramWindowOperations, WindowState
from gpu.operations.programs import ProgramGraph, VertexProgram

# Both functions are compiled with those of a program in place of these: see ProgramLoops.
program_gather: Any = None
program_merge: Any = None
program_apply: Any = None
program_scatter: Any = None
identity: Any = 0.0
every_vertex = is_monotone = has_loops = False
receive: Any = None  # _receive


def _receive(  # type: ignore[no-untyped-def]
    v, gathered, vertex, step, aggregate, parameters, values, new_values, new_steps, blocks
):
    """Gives v its new value. Returns whether it became active."""
    ids, degree, in_lengths = vertex
    _, now, shift, superstep = step
    while True:
        old = values[v]
        new = program_apply(
            old,
            gathered,
            count_at(ids, v),
            number_at(degree, v),
            count_at(in_lengths, v),
            superstep,
            aggregate,
            parameters,
        )
        if not is_monotone:
            new_values[v] = new
            break
        if new == old:
            return False
        if compare_and_swap(new_values, v, old, new):
            break
    if not program_scatter(old, new, parameters):
        return False
    if not every_vertex:
        new_steps[v] = now
        blocks[v >> shift] = now
    return True


def _gather_window(  # type: ignore[no-untyped-def]
    first, last, groups, order, lists, loop, vertex, degree, both, step, aggregate, parameters,
    values, new_values, steps, new_steps, blocks, counts,
):  # fmt: skip
    """See ProgramWindowOperations.gather_window; counts: int64[groups, 2], those of Gathered."""
    row_starts, row_lengths, column_indices, weights = lists
    since = step[0]
    for group in range(first, last):
        became_active = 0
        messages = 0
        for place in range(groups[group], groups[group + 1]):
            v = np.int64(order[place])
            gathered = identity
            received = every_vertex
            sends_back = both and steps[v] >= since
            begin = row_starts[v]
            for slot in range(unsigned(begin), unsigned(begin + row_lengths[v])):
                u = np.int64(column_indices[slot])
                if every_vertex or steps[unsigned(u)] >= since:
                    weight = number_at(weights, slot)
                    share = weight / number_at(degree, u)
                    message = program_gather(values[unsigned(u)], weight, share, parameters)
                    gathered = program_merge(gathered, message, parameters)
                    received = True
                    messages += 1
                if sends_back:
                    weight = number_at(weights, slot)
                    share = weight / number_at(degree, v)
                    message = program_gather(values[v], weight, share, parameters)
                    messages += 1
                    became_active += receive(
                        u, message, vertex, step, aggregate, parameters, values, new_values,
                        new_steps, blocks,
                    )  # fmt: skip
            if has_loops and loop[v] != 0:
                weight = number_at(loop, v)
                share = weight / number_at(degree, v)
                message = program_gather(values[v], weight, share, parameters)
                gathered = program_merge(gathered, message, parameters)
            if received:
                became_active += receive(
                    v, gathered, vertex, step, aggregate, parameters, values, new_values,
                    new_steps, blocks,
                )  # fmt: skip
        counts[group, 0] = became_active
        counts[group, 1] = messages


class CpuProgramWindows(ProgramWindowOperations):
    """See ProgramWindowOperations."""

    def __init__(self) -> None:
        self._compiled: dict[str, Loop] = {}

    def _loop(self, program: VertexProgram) -> Loop:
        if program.digest not in self._compiled:
            loops = ProgramLoops(program)
            loops.add_helper("receive", _receive)
            self._compiled[program.digest] = loops.kernel(_gather_window, CHUNKS)
        return self._compiled[program.digest]

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
        groups = len(rows.groups) - 1
        counts = np.zeros((groups, 2), np.int64)
        self._loop(program)(
            groups,
            rows.groups,
            rows.order,
            tuple(view.incoming),
            view.loop if program.loops else None,
            arguments_of_vertex(program, graph),
            view.degree if "share" in program.named else None,
            graph.both,
            (since, now, state.shift, state.superstep),
            state.aggregate,
            parameter_tuple(parameters, graph.vertices),
            state.values,
            state.new_values,
            state.steps,
            state.new_steps,
            state.blocks,
            counts,
        )
        active, messages = counts.sum(axis=0).tolist()
        return Gathered(active, messages)
