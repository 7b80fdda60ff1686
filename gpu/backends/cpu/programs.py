"""Vertex programs on ``cpu``."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gpu.backends.cpu.program_loops import LEAST_MESSAGES, NEXT, RECEIVED, ProgramLoops
from gpu.backends.cpu.rows import chunk_rows
from gpu.operations.device import Array
from gpu.operations.program_parameters import parameter_record
from gpu.operations.programs import (
    AGGREGATE_IDENTITY,
    LOOKING_PART,
    Mode,
    ProgramGraph,
    ProgramOperations,
    ProgramState,
    VertexProgram,
)


class CpuPrograms(ProgramOperations):
    """See ProgramOperations."""

    def __init__(self) -> None:
        self._compiled: dict[str, ProgramLoops] = {}

    def _loops(self, program: VertexProgram) -> ProgramLoops:
        if program.digest not in self._compiled:
            self._compiled[program.digest] = ProgramLoops(program)
        return self._compiled[program.digest]

    def initialise(
        self,
        program: VertexProgram,
        parameters: Mapping[str, float],
        graph: ProgramGraph,
        first: int,
        state: ProgramState,
    ) -> None:
        counts = np.array([state.count, 0])
        self._loops(program).initialise(
            len(state.values) - first,
            first,
            arguments_of_vertex(program, graph),
            graph.absent,
            parameter_tuple(parameters, graph.vertices),
            state.values,
            state.active,
            counts,
        )
        state.count = int(counts[NEXT])

    def run(
        self,
        program: VertexProgram,
        parameters: Mapping[str, float],
        graph: ProgramGraph,
        mode: Mode,
        supersteps: int,
        state: ProgramState,
    ) -> None:
        loops = self._loops(program)
        given = parameter_tuple(parameters, graph.vertices)
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
        found = np.zeros(1, np.int32)
        given = parameter_tuple(parameters, len(values))
        self._loops(program).supports(len(edges[0]), *edges, given, values, found)
        return bool(found[0])


def parameter_tuple(parameters: Mapping[str, float], vertices: int) -> tuple[float, ...]:
    """The number of vertices and the parameters, as loops take them."""
    return tuple(parameter_record(parameters, vertices)[()])


def arguments_of_vertex(program: VertexProgram, graph: ProgramGraph) -> tuple[Array | None, ...]:
    """Ids, degrees and in-degrees; None for what no function names, so that loops are compiled for
    fewer kinds of graphs.
    """
    named, view = program.named, graph.view
    return (
        graph.ids if "vertex" in named else None,
        view.degree if named & {"out_degree", "share"} else None,
        view.incoming.row_lengths if "in_degree" in named else None,
    )


def _run_active(
    program: VertexProgram,
    loops: ProgramLoops,
    given: tuple[float, ...],
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
    vertex, active = arguments_of_vertex(program, graph), state.active
    degree = view.degree if "share" in program.named else None
    directions = (view.outgoing, view.incoming)[: 2 if graph.both else 1]
    looks = program.first_wins and state.fresh and not in_place
    for _ in range(supersteps):
        if state.count == 0:
            break
        sending = active[: state.count]
        if looks and _many(graph, sending):
            found = _look(loops, given, graph, degree, sending, marks, state)
            following[: len(found)] = found
            active, following = following, active
            state.count = len(found)
            state.supersteps += 1
            continue
        counts = np.zeros(2, np.int64)
        if in_place:
            marks[sending] = 0  # whoever improves their values from here on lists them again
        arrays = (state.values, accumulated, marks)
        listed = following if in_place else received
        for lists in directions:
            groups, messages = _groups(lists.row_lengths[sending], sending)
            state.edges += messages
            chosen = (groups, sending, tuple(lists))
            send(len(groups) - 1, *chosen, degree, given, *arrays, listed, counts)
        if not in_place:
            loops.receive(
                int(counts[RECEIVED]),
                received,
                vertex,
                state.supersteps,
                given,
                *arrays,
                following,
                counts,
            )
        active, following = following, active
        state.count = int(counts[NEXT])
        state.supersteps += 1
    state.active = active


def _many(graph: ProgramGraph, active: NDArray[np.int32]) -> bool:
    """Whether so many edges leave the active vertices that looking for them is cheaper."""
    messages = int(graph.view.outgoing.row_lengths[active].sum(dtype=np.int64))
    return messages * LOOKING_PART > graph.view.edges


def _look(
    loops: ProgramLoops,
    given: tuple[float, ...],
    graph: ProgramGraph,
    degree: Array | None,
    active: NDArray[np.int32],
    marks: NDArray[np.int32],
    state: ProgramState,
) -> NDArray[np.int32]:
    """A superstep of vertices that look for an active in-neighbour. Returns those that are active
    next.
    """
    rows, incoming = graph.in_rows, tuple(graph.view.incoming)
    assert rows is not None
    marks[active] = 1
    count = len(rows.groups) - 1
    found = np.empty(rows.count + 2 * count, np.int32)
    loops.look(count, rows.groups, rows.order, incoming, degree, given, state.values, marks, found)
    marks[active] = 0
    listed, read = found[rows.count :].reshape(-1, 2).T
    state.edges += int(read.sum(dtype=np.int64))
    parts = zip(rows.groups[:-1].tolist(), listed.tolist(), strict=True)
    return np.concatenate([found[first : first + some] for first, some in parts])


def _groups(lengths: NDArray[np.int32], active: NDArray[np.int32]) -> tuple[NDArray[np.int64], int]:
    """Parts of the active vertices with about equal numbers of messages, and how many these are."""
    messages = int(lengths.sum(dtype=np.int64))
    if messages + len(active) < LEAST_MESSAGES:
        return np.array([0, len(active)]), messages
    return chunk_rows(active, lengths).groups, messages


def _run_all(
    program: VertexProgram,
    loops: ProgramLoops,
    given: tuple[float, ...],
    graph: ProgramGraph,
    supersteps: int,
    state: ProgramState,
) -> None:
    view, rows = graph.view, graph.in_rows
    assert rows is not None
    values = state.values
    new_values = values.copy() if supersteps else values
    count = len(rows.groups) - 1
    vertex, chunks = arguments_of_vertex(program, graph), (rows.groups, rows.order)
    incoming = tuple(view.incoming)
    loop = view.loop if program.loops else None
    start = AGGREGATE_IDENTITY[program.aggregator]
    combine = {"sum": np.add, "min": np.minimum, "max": np.maximum}[program.aggregator]

    def aggregated() -> float:
        aggregates = np.full(count, start)
        loops.aggregate(count, *chunks, vertex, graph.absent, given, values, aggregates)
        total = start
        for each in aggregates.tolist():  # in the order of the groups
            total = float(combine(total, each))
        return total

    state.aggregate, state.count = aggregated(), graph.vertices
    for _ in range(supersteps):
        changed = np.zeros(count, np.uint8)
        numbers = (state.supersteps, state.aggregate, given)
        arrays = (incoming, loop, vertex, graph.absent)
        loops.gather(count, *chunks, *arrays, *numbers, values, new_values, changed)
        values, new_values = new_values, values
        state.supersteps += 1
        state.edges += view.edges
        state.aggregate = aggregated()
        if not changed.any():
            state.count = 0
            break
    state.values = values
