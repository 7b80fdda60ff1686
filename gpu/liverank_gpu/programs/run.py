"""Runs of programs on one graph."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import get_args
from weakref import WeakSet

import numpy as np

from liverank_gpu.errors import InvalidValue, OutOfMemory, UnknownVertex
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.graph.sharing import SharedGraph, copied_bytes, detach
from liverank_gpu.operations.programs import Mode, VertexProgram
from liverank_gpu.operations.update import GraphUpdate
from liverank_gpu.programs.algorithms import (
    CLUSTERING,
    CORES,
    DENSEST,
    LABELS,
    TRIANGLES,
    Algorithm,
    Order,
)
from liverank_gpu.programs.answer import Answer
from liverank_gpu.programs.builtin import COMPONENTS, DISTANCES, LEVELS, PAGERANK
from liverank_gpu.programs.running import ProgramRun, RunningAlgorithm, RunningVertexProgram, Work
from liverank_gpu.programs.truss import SUPPORT, TRUSSNESS
from liverank_gpu.stage_timer import StageTimer
from liverank_gpu.types import EdgeBatch

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
        if not self._running:
            return
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
        for answer in self._answers if len(self._answers) else ():
            answer.follow(update)

    def run(
        self,
        program: AnyProgram,
        after: Answer | None = None,
        mode: str = "synchronous",
        given: Mapping[str, float] | None = None,
        order: Order = None,
    ) -> Answer:
        """Runs a program to its end: see `begin`, which raises the same errors."""
        with self._graph.backend.device.detecting_loss():
            running = self._begun(program, after, mode, given or {}, order, 0)
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
        mode     ``asynchronous``: values change in place within a superstep, for monotone programs;
                 the receipt's counts may vary from run to run
        given    parameters in place of their defaults; ``source`` is the id of a vertex
        order    int32[k] on the host, the place of each id among the first k vertices: by it,
                 instead of by ids, ``labels`` breaks ties. Later ids follow; None: ids

        Raises InvalidValue, UnknownVertex for the source, OutOfMemory.
        """
        with self._graph.backend.device.detecting_loss():
            copied = copied_bytes(self._graph)
            return self._begun(program, after, mode, given or {}, order, copied)

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
        purpose = "a program and a copy of the graph" if copied else "a program"
        edges = self._graph.arcs if isinstance(program, Algorithm) else 0
        needed = _VERTEX_BYTES * self._graph.vertices + _EDGE_BYTES * edges + copied
        self._graph.backend.device.require(purpose, needed)
        shared = SharedGraph(self._graph)
        work = Work(shared, program, parameters, order, by_mode, self._timer, self._answers)
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
        if mode == "asynchronous" and (isinstance(program, Algorithm) or not program.monotone):
            raise InvalidValue("mode", mode, f"'synchronous' for {program.name}")
        named = program.named if isinstance(program, VertexProgram) else set()
        if self._graph.decay and "weight" in named:
            raise InvalidValue("program", program.name, "one without weights under half_life")
        source = parameters.get("source")
        if source is not None and len(self._graph.ids.vertices_among(np.array([source]))) == 0:
            raise UnknownVertex("source", source, "the id of a vertex")
        return "asynchronous" if mode == "asynchronous" else "synchronous"

    def _continues(
        self, program: VertexProgram, parameters: Mapping[str, float], after: Answer
    ) -> bool:
        known = isinstance(after, Answer)
        if not known or after.program is not program or after.parameters != parameters:
            raise InvalidValue("after", after, "an answer of this program and these parameters")
        same = after in self._answers and after.permutation is self._graph.permutation
        return program.continues and same and not after.since.stale
