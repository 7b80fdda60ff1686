"""Runs of programs on one graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args
from weakref import WeakSet

import numpy as np

from gpu.errors import InvalidValue, UnknownVertex
from gpu.graph.dynamic_graph import DynamicGraph
from gpu.operations.device import Array
from gpu.operations.programs import Mode, ProgramGraph, ProgramState, VertexProgram
from gpu.operations.update import GraphUpdate
from gpu.programs.algorithms import (
    CLUSTERING,
    CORES,
    DENSEST,
    LABELS,
    TRIANGLES,
    Algorithm,
    Computed,
)
from gpu.programs.answer import Answer, Receipt
from gpu.programs.builtin import COMPONENTS, DISTANCES, LEVELS, PAGERANK
from gpu.programs.views import distinct, program_graph
from gpu.stage_timer import StageTimer

AnyProgram = VertexProgram | Algorithm | str

PROGRAMS: dict[str, VertexProgram | Algorithm] = {
    each.name: each
    for each in (
        *(PAGERANK, LEVELS, DISTANCES, COMPONENTS),
        *(LABELS, CORES, DENSEST, TRIANGLES, CLUSTERING),
    )
}
"""The built-in programs, by name."""

SUPERSTEPS_AT_ONCE = 1024
"""Supersteps that a backend runs before it reports."""

_VERTEX_BYTES, _EDGE_BYTES = 64, 48
"""Bytes of a vertex in a run, at most: two values, lists, marks; and of an edge in an algorithm:
keys, sorted keys, their order.
"""


class Programs:
    """The runs on one graph, and the answers from which later ones may continue."""

    def __init__(self, graph: DynamicGraph) -> None:
        self._graph = graph
        self._answers: WeakSet[Answer] = WeakSet()
        self._timer = StageTimer(graph.backend.device)

    def follow(self, update: GraphUpdate) -> None:
        """To be called after each batch."""
        for answer in self._answers:
            answer.follow(update)

    def run(
        self,
        program: AnyProgram,
        after: Answer | None,
        mode: str,
        given: Mapping[str, float],
    ) -> Answer:
        """Runs a program.

        program  a VertexProgram, a built-in one, or its name in PROGRAMS
        after    an answer of the same program and parameters. If the program is monotone and its
                 values depend on edges alone, the run continues from there, with what insertions
                 changed; it starts again if an edge was deleted along which a value may have come,
                 if vertices were removed, or if edges expired. The receipt says which
        mode     ``asynchronous``: values change in place within a superstep, for monotone programs
                 and those with every vertex active; the receipt's counts may vary from run to run
        given    parameters in place of their defaults; ``source`` is the id of a vertex

        Raises InvalidValue, UnknownVertex for the source, OutOfMemory.
        """
        if isinstance(program, str):
            if program not in PROGRAMS:
                raise InvalidValue("program", program, f"one of {', '.join(PROGRAMS)}")
            program = PROGRAMS[program]
        parameters = program.parameter_values(given)
        order = self._checked(program, mode, parameters)
        backend, vertices = self._graph.backend, self._graph.vertices
        edges = self._graph.arcs if isinstance(program, Algorithm) else 0
        needed = _VERTEX_BYTES * vertices + _EDGE_BYTES * edges
        backend.device.require("a program", needed)
        self._timer.begin()
        continued, finished = False, True
        if isinstance(program, Algorithm):
            computed = program.compute(self._graph, **parameters)
        else:
            view = program_graph(self._graph, program)
            state, continued = self._state(program, parameters, view, after)
            finished = self._finish(program, parameters, view, order, state)
            summary = {"aggregate": state.aggregate} if program.every_vertex else {}
            computed = Computed(state.values, state.supersteps, state.edges, summary)
        self._timer.end("run")
        values, supersteps, edges, summary = computed
        seconds = self._timer.seconds()["run"]
        receipt = Receipt(program.name, order, supersteps, edges, seconds, continued, finished)
        permutation = self._graph.permutation
        answer = Answer(backend, permutation, values, program, parameters, receipt, summary)
        if finished:
            self._answers.add(answer)
        else:
            answer.since.stale = True
        return answer

    def _checked(
        self, program: VertexProgram | Algorithm, mode: str, parameters: Mapping[str, float]
    ) -> Mode:
        """The mode. Raises InvalidValue for what cannot be run."""
        if mode not in get_args(Mode):
            raise InvalidValue("mode", mode, "'synchronous' or 'asynchronous'")
        in_order = isinstance(program, Algorithm) or not (program.monotone or program.every_vertex)
        if mode == "asynchronous" and in_order:
            raise InvalidValue("mode", mode, f"'synchronous' for {program.name}")
        named = program.named if isinstance(program, VertexProgram) else set()
        if self._graph.decay and "weight" in named:
            raise InvalidValue("program", program.name, "one without weights under half_life")
        source = parameters.get("source")
        if source is not None and len(self._graph.ids.vertices_among(np.array([source]))) == 0:
            raise UnknownVertex("source", source, "the id of a vertex")
        return "asynchronous" if mode == "asynchronous" else "synchronous"

    def _state(
        self,
        program: VertexProgram,
        parameters: Mapping[str, float],
        view: ProgramGraph,
        after: Answer | None,
    ) -> tuple[ProgramState, bool]:
        """Values and active vertices to start from, and whether they continue an answer."""
        graph, xp = self._graph, self._graph.backend.xp
        values = xp.empty(graph.vertices, program.dtype)
        state = ProgramState(values, xp.empty(graph.vertices, np.int32))
        known, continued = 0, False
        if after is not None and self._continues(program, parameters, after):
            continued, known = True, len(after.by_position)
            state.fresh = False
            values[:known] = after.by_position
            active = self._senders(program, after, known)
            state.active[: len(active)] = active
            state.count = len(active)
        if known < graph.vertices:
            graph.backend.programs.initialise(program, parameters, view, known, state)
        return state, continued

    def _continues(
        self, program: VertexProgram, parameters: Mapping[str, float], after: Answer
    ) -> bool:
        if after.program is not program or after.parameters != parameters:
            raise InvalidValue("after", after, "an answer of this program and these parameters")
        same = after in self._answers and after.permutation is self._graph.permutation
        return program.continues and same and not after.since.stale

    def _senders(self, program: VertexProgram, after: Answer, known: int) -> Array:
        """int32[…], distinct: vertices of the answer whose messages may be new."""
        xp = self._graph.backend.xp
        if after.since.everything:
            return xp.flatnonzero(after.by_position != program.identity).astype(np.int32)
        if not after.since.sources:
            return xp.zeros(0, np.int32)
        named = distinct(xp, xp.concatenate(after.since.sources))
        named = named[named < known]
        return named[after.by_position[named] != program.identity]

    def _finish(
        self,
        program: VertexProgram,
        parameters: Mapping[str, float],
        view: ProgramGraph,
        mode: Mode,
        state: ProgramState,
    ) -> bool:
        """Runs until no vertex is active, or to the last superstep. Returns which."""
        if self._graph.vertices == 0:
            return True
        state.count = self._graph.vertices if program.every_vertex else state.count
        while state.count and state.supersteps < program.supersteps:
            left = min(SUPERSTEPS_AT_ONCE, program.supersteps - state.supersteps)
            programs = self._graph.backend.programs
            programs.run(program, parameters, view, mode, left, state)
        return state.count == 0
