"""Runs of programs on one graph."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import get_args
from weakref import WeakSet

import numpy as np

from gpu.errors import InvalidValue, OutOfMemory, UnknownVertex
from gpu.graph.dynamic_graph import DynamicGraph
from gpu.graph.sharing import SharedGraph, copied_bytes, detach
from gpu.operations.programs import Mode, Schedule, VertexProgram
from gpu.operations.update import GraphUpdate
from gpu.programs.algorithms import (
    CLUSTERING,
    CORES,
    DENSEST,
    LABELS,
    TRIANGLES,
    Algorithm,
    Order,
)
from gpu.programs.answer import Answer
from gpu.programs.builtin import COMPONENTS, DISTANCES, LEVELS, PAGERANK
from gpu.programs.running import ProgramRun, RunningAlgorithm, RunningVertexProgram, Work
from gpu.programs.truss import SUPPORT, TRUSSNESS
from gpu.stage_timer import StageTimer
from gpu.types import EdgeBatch

AnyProgram = VertexProgram | Algorithm | str

PROGRAMS: dict[str, VertexProgram | Algorithm] = {
    each.name: each
    for each in (
        *(PAGERANK, LEVELS, DISTANCES, COMPONENTS),
        *(LABELS, CORES, DENSEST, TRIANGLES, CLUSTERING, SUPPORT, TRUSSNESS),
    )
}
"""The built-in programs, by name."""

_VERTEX_BYTES, _EDGE_BYTES = 64, 48
"""Bytes of a vertex in a run, at most: two values, lists, marks; and of an edge in an algorithm:
keys, sorted keys, their order.
"""


class Programs:
    """The runs on one graph, and the answers from which later ones may continue. A run that a batch
    interrupts continues on a copy of the graph as it was.
    """

    def __init__(self, graph: DynamicGraph) -> None:
        self._graph = graph
        self._running: list[ProgramRun] = []
        self._answers: WeakSet[Answer] = WeakSet()
        self._timer = StageTimer(graph.backend.device)

    @property
    def nbytes(self) -> int:
        """Bytes of the copies of the graph."""
        copies = {id(run.shared.graph.outgoing): run.shared.nbytes for run in list(self._running)}
        return sum(copies.values())

    def prepare(self, batch: EdgeBatch) -> None:
        """To be called before each batch: runs get a copy of the graph. They fail if there is no
        memory for it beside the batch.
        """
        running = [run for run in self._running if not run.done]
        vertices = max(batch.vertices, self._graph.vertices)
        beside = self._graph.bytes_needed(batch.operations, vertices) if running else 0
        try:
            detach([run.shared for run in running], beside)
        except OutOfMemory as error:
            for run in running:
                if not run.shared.is_copied:
                    run.fail(error)

    def follow(self, update: GraphUpdate) -> None:
        """To be called after each batch."""
        for run in self._running:
            run.follow(update)
        for answer in self._answers:
            answer.follow(update)

    def run(
        self,
        program: AnyProgram,
        after: Answer | None = None,
        mode: str = "synchronous",
        schedule: str = "vertices",
        given: Mapping[str, float] | None = None,
        order: Order = None,
    ) -> Answer:
        """Runs a program to its end: see `begin`, which raises the same errors."""
        with self._graph.backend.device.detecting_loss():
            running = self._begun(program, after, mode, schedule, given or {}, order, 0)
            try:
                while not running.done:
                    running.step(inf)
                return running.answer()
            finally:
                self.close(running)

    def begin(
        self,
        program: AnyProgram,
        after: Answer | None = None,
        mode: str = "synchronous",
        schedule: str = "vertices",
        given: Mapping[str, float] | None = None,
        order: Order = None,
    ) -> ProgramRun:
        """Begins to run a program on the graph as it is now, to be closed. Batches may come between
        its steps, as long as there is memory for a copy of the graph.

        program  a VertexProgram, a built-in one, or its name in PROGRAMS
        after    an answer of the same program and parameters. If the program is monotone and its
                 values depend on edges alone, the run continues from there, with what insertions
                 changed; it starts again if an edge was deleted along which a value may have come,
                 if vertices were removed, or if edges expired. The receipt says which
        mode     ``asynchronous``: values change in place within a superstep, for monotone programs
                 and those with every vertex active; the receipt's counts may vary from run to run
        schedule ``vertices``: a superstep passes over the edges of active vertices, or gathers by
                 vertex; ``edges``: it passes over all edges, and leaves out those of others. Of a
                 sum of floats the rounding then varies from run to run
        given    parameters in place of their defaults; ``source`` is the id of a vertex
        order    int32[k] on the host, the place of each id among the first k vertices: by it,
                 instead of by ids, ``labels`` breaks ties. Later ids follow; None: ids

        Raises InvalidValue, UnknownVertex for the source, OutOfMemory.
        """
        with self._graph.backend.device.detecting_loss():
            return self._begun(
                program, after, mode, schedule, given or {}, order, copied_bytes(self._graph)
            )

    def close(self, running: ProgramRun) -> None:
        """Ends it, done or not, and takes its arrays back."""
        if running in self._running:
            self._running.remove(running)
        running.close()

    def _begun(
        self,
        program: AnyProgram,
        after: Answer | None,
        mode: str,
        schedule: str,
        given: Mapping[str, float],
        order: Order,
        copied: int,
    ) -> ProgramRun:
        """copied: bytes of a copy of the graph, if one may be needed"""
        if isinstance(program, str) and program in PROGRAMS:
            program = PROGRAMS[program]
        if not isinstance(program, VertexProgram | Algorithm):
            known = ", ".join(PROGRAMS)
            raise InvalidValue("program", program, f"a VertexProgram, or one of {known}")
        parameters = program.parameter_values(given)
        by_mode = self._checked(program, mode, parameters)
        by = self._schedule(program, schedule)
        purpose = "a program and a copy of the graph" if copied else "a program"
        edges = self._graph.arcs if isinstance(program, Algorithm) else 0
        needed = _VERTEX_BYTES * self._graph.vertices + _EDGE_BYTES * edges + copied
        self._graph.backend.device.require(purpose, needed)
        shared = SharedGraph(self._graph)
        work = Work(shared, program, parameters, order, by_mode, by, self._timer, self._answers)
        running: ProgramRun
        if isinstance(program, Algorithm):
            running = RunningAlgorithm(work, program)
        else:
            continued = after is not None and self._continues(program, parameters, after)
            running = RunningVertexProgram(work, program, after if continued else None)
        self._running.append(running)
        return running

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

    def _schedule(self, program: VertexProgram | Algorithm, schedule: str) -> Schedule:
        """The schedule. Raises InvalidValue for what cannot be run."""
        if schedule not in get_args(Schedule):
            raise InvalidValue("schedule", schedule, "'vertices' or 'edges'")
        if schedule == "edges" and isinstance(program, Algorithm):
            raise InvalidValue("schedule", schedule, f"'vertices' for {program.name}")
        return "edges" if schedule == "edges" else "vertices"

    def _continues(
        self, program: VertexProgram, parameters: Mapping[str, float], after: Answer
    ) -> bool:
        known = isinstance(after, Answer)
        if not known or after.program is not program or after.parameters != parameters:
            raise InvalidValue("after", after, "an answer of this program and these parameters")
        same = after in self._answers and after.permutation is self._graph.permutation
        return program.continues and same and not after.since.stale
