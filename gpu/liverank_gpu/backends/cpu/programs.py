"""Vertex programs on ``cpu``."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cpu.program_library import ProgramLoops, loops_of
from liverank_gpu.backends.cpu.rows import chunk_rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.program_parameters import parameter_record
from liverank_gpu.operations.programs import (
    AGGREGATE_IDENTITY,
    LOOKING_PART,
    Mode,
    ProgramGraph,
    ProgramOperations,
    ProgramState,
    VertexProgram,
)

_NEXT, _RECEIVED = 0, 1
"""Positions in the counts of a superstep: vertices that are active next, and that received."""

_LEAST_MESSAGES = 1 << 15
"""Messages of a superstep below which the calling thread sends all."""


class CpuPrograms(ProgramOperations):
    """See ProgramOperations."""

    def initialise(
        self,
        program: VertexProgram,
        parameters: Mapping[str, float],
        graph: ProgramGraph,
        first: int,
        state: ProgramState,
    ) -> None:
        counts = np.array([state.count, 0])
        loops_of(program).initialise(
            first,
            arguments_of_vertex(graph),
            graph.absent,
            packed_parameters(parameters, graph.vertices),
            state.values,
            state.active,
            counts,
        )
        state.count = int(counts[_NEXT])

    def run(
        self,
        program: VertexProgram,
        parameters: Mapping[str, float],
        graph: ProgramGraph,
        mode: Mode,
        supersteps: int,
        state: ProgramState,
    ) -> None:
        loops = loops_of(program)
        given = packed_parameters(parameters, graph.vertices)
        if program.every_vertex:
            _run_all(program, loops, given, graph, supersteps, state)
        else:
            _run_active(program, loops, given, graph, mode, supersteps, state)

    def supports_any(
        self,
        program: VertexProgram,
        parameters: Mapping[str, float],
        values: Array,
        edges: tuple[Array, Array, Array | None],
    ) -> bool:
        given = packed_parameters(parameters, len(values))
        return bool(loops_of(program).supports(*edges, given, values))


def packed_parameters(parameters: Mapping[str, float], vertices: int) -> Array:
    """int64[…]: the number of vertices and the parameters, the bits of each."""
    return parameter_record(parameters, vertices).reshape(1).view(np.int64)


def arguments_of_vertex(graph: ProgramGraph) -> tuple[Array, Array, Array]:
    """Ids, degrees and in-degrees."""
    return graph.ids, graph.view.degree, graph.view.incoming.row_lengths


def _run_active(
    program: VertexProgram,
    loops: ProgramLoops,
    given: Array,
    graph: ProgramGraph,
    mode: Mode,
    supersteps: int,
    state: ProgramState,
) -> None:
    view, in_place = graph.view, mode == "asynchronous"
    send = loops.send_in_place if in_place else loops.send
    accumulated = np.full(0 if in_place else view.vertices, program.identity, program.dtype)
    marks = np.zeros(view.vertices, np.int32)
    received, following = np.empty((2, view.vertices), np.int32)
    vertex, active = arguments_of_vertex(graph), state.active
    directions = (view.outgoing, view.incoming)[: 2 if graph.both else 1]
    looks = program.first_wins and state.fresh and not in_place
    for _ in range(supersteps):
        if state.count == 0:
            break
        sending = active[: state.count]
        lengths = [lists.row_lengths[sending] for lists in directions]
        messages = [int(each.sum(dtype=np.int64)) for each in lengths]
        # so many edges leave the active vertices that looking for these is cheaper
        if looks and messages[0] * LOOKING_PART > view.edges:
            found = _look(loops, given, graph, sending, marks, state)
            following[: len(found)] = found
            active, following = following, active
            state.count = len(found)
            state.supersteps += 1
            continue
        counts = np.zeros(2, np.int64)
        if in_place:
            marks[sending] = 0  # a vertex whose value improves from here on is listed again
        arrays = (state.values, marks) if in_place else (state.values, accumulated, marks)
        listed = following if in_place else received
        state.edges += sum(messages)
        for lists, own_lengths, own_messages in zip(directions, lengths, messages, strict=True):
            groups = np.array([0, len(sending)])  # one group: the calling thread sends
            if own_messages + len(sending) >= _LEAST_MESSAGES:
                groups = chunk_rows(sending, own_lengths).groups
            send(groups, sending, lists, view.degree, given, *arrays, listed, counts)
        if not in_place:
            loops.receive(
                received,
                vertex,
                state.supersteps,
                given,
                *arrays,
                following,
                counts,
            )
        active, following = following, active
        state.count = int(counts[_NEXT])
        state.supersteps += 1
    state.active = active


def _look(
    loops: ProgramLoops,
    given: Array,
    graph: ProgramGraph,
    active: NDArray[np.int32],
    marks: NDArray[np.int32],
    state: ProgramState,
) -> NDArray[np.int32]:
    """A superstep of vertices that look for an active in-neighbour. Returns those that are active
    next.
    """
    rows, view = graph.in_rows, graph.view
    assert rows is not None
    marks[active] = 1
    count = len(rows.groups) - 1
    found = np.empty(rows.count + 2 * count, np.int32)
    chosen = (rows.groups, rows.order, view.incoming, view.degree)
    loops.look(*chosen, given, state.values, marks, found)
    marks[active] = 0
    listed, read = found[rows.count :].reshape(-1, 2).T
    state.edges += int(read.sum(dtype=np.int64))
    parts = zip(rows.groups[:-1].tolist(), listed.tolist(), strict=True)
    return np.concatenate([found[first : first + some] for first, some in parts])


def _run_all(
    program: VertexProgram,
    loops: ProgramLoops,
    given: Array,
    graph: ProgramGraph,
    supersteps: int,
    state: ProgramState,
) -> None:
    view, rows = graph.view, graph.in_rows
    assert rows is not None
    values = state.values
    new_values = values.copy() if supersteps else values
    count = len(rows.groups) - 1
    vertex, chunks = arguments_of_vertex(graph), (rows.groups, rows.order)
    start = AGGREGATE_IDENTITY[program.aggregator]
    combine = {"sum": np.add, "min": np.minimum, "max": np.maximum}[program.aggregator]

    def aggregated() -> float:
        aggregates = np.full(count, start)
        loops.aggregate(*chunks, vertex, graph.absent, given, values, aggregates)
        total = start
        for each in aggregates.tolist():  # in the order of the groups
            total = float(combine(total, each))
        return total

    state.aggregate, state.count = aggregated(), graph.vertices
    for _ in range(supersteps):
        changed = np.zeros(count, np.uint8)
        numbers = (state.supersteps, state.aggregate, given)
        arrays = (view.incoming, view.loop, vertex, graph.absent)
        loops.gather(*chunks, *arrays, *numbers, values, new_values, changed)
        values, new_values = new_values, values
        state.supersteps += 1
        state.edges += view.edges
        state.aggregate = aggregated()
        if not changed.any():
            state.count = 0
            break
    state.values = values
