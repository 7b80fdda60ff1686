"""Programs that run in steps, between which batches may come."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import inf
from typing import NamedTuple
from weakref import WeakSet

import numpy as np

from liverank_gpu.graph.sharing import SharedGraph
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.programs import Mode, ProgramGraph, ProgramState, VertexProgram
from liverank_gpu.operations.update import EdgeChanges, GraphUpdate
from liverank_gpu.programs.algorithms import Algorithm, Computed, Order, Parts
from liverank_gpu.programs.answer import Answer, Receipt, Since
from liverank_gpu.programs.views import distinct, program_graph
from liverank_gpu.stage_timer import StageTimer

SUPERSTEPS_AT_ONCE = 1024
"""Supersteps that a backend runs before it reports, at most."""


class Work(NamedTuple):
    """What a run is of.

    shared      the graph
    parameters  all of the program's
    order       see Programs.begin
    timer       that of all runs: no two steps overlap
    answers     those that follow batches
    """

    shared: SharedGraph
    program: VertexProgram | Algorithm
    parameters: Mapping[str, float]
    order: Order
    mode: Mode
    timer: StageTimer
    answers: WeakSet[Answer]


class ProgramRun(ABC):
    """A program that runs: `step` until `done`, then `answer`. Batches may come between two steps;
    the answer is that of the graph when the run began.

    shared      the graph
    supersteps  done so far
    edges       read so far
    seconds     spent so far
    """

    def __init__(self, work: Work) -> None:
        self.shared = work.shared
        self.supersteps = self.edges = 0
        self.seconds = 0.0
        self._work = work
        self._since = Since()
        self._error: Exception | None = None
        self._computed: Computed | None = None

    @property
    def done(self) -> bool:
        """Whether there is an answer, or an error."""
        return self._computed is not None or self._error is not None

    def step(self, seconds: float) -> None:
        """Continues by one part of the work, about this long if the program can be divided so: by
        one superstep at least, 1,024 at most. Raises OutOfMemory, DeviceLost; it then ends with
        this error.
        """
        if self.done:
            return
        device = self.shared.graph.backend.device
        try:
            with device.detecting_loss():
                self._work.timer.begin()
                self._computed = self._advance(seconds)
                self._work.timer.end("run")
                took = self._work.timer.seconds()["run"]
        except Exception as error:
            self.fail(error)
            raise
        self.seconds += took
        self._took(took, seconds)

    def answer(self) -> Answer:
        """The answer, once it is done. Raises the error with which it ended."""
        if self._error is not None:
            raise self._error
        assert self._computed is not None, "it is not done"
        values, supersteps, edges, summary, finished, ends = self._computed
        graph, work = self.shared.graph, self._work
        receipt = Receipt(
            work.program.name,
            work.mode,
            supersteps,
            edges,
            self.seconds,
            self._continued,
            finished,
        )
        answer = Answer(
            graph.backend,
            graph.permutation,
            values,
            work.program,
            work.parameters,
            receipt,
            summary,
            self._since,
            ends,
        )
        if finished:
            work.answers.add(answer)
        else:
            answer.since.stale = True
        return answer

    def follow(self, update: GraphUpdate) -> None:
        """Notes what a batch did that came while it runs."""
        xp = self.shared.graph.backend.xp
        self._since.note(update, self._work.program, _any_is_gone, xp)

    def fail(self, error: Exception) -> None:
        """Ends it with an error."""
        self._error = error

    def close(self) -> None:
        """Forgets its arrays."""
        self._computed = None

    _continued = False

    @abstractmethod
    def _advance(self, seconds: float) -> Computed | None:
        """One part of the work; returns what it found at the end."""

    @abstractmethod
    def _took(self, took: float, seconds: float) -> None:
        """Learns how long a part took that was meant to take `seconds`."""


def _any_is_gone(program: VertexProgram, changes: EdgeChanges) -> bool:  # noqa: ARG001
    """Which values there will be is not known yet, so any edge may matter."""
    return len(changes.removed_sources) > 0


class RunningAlgorithm(ProgramRun):
    """An Algorithm that runs."""

    def __init__(self, work: Work, algorithm: Algorithm) -> None:
        super().__init__(work)
        given = {"order": work.order} if algorithm.ordered else {}
        self._parts: Parts = algorithm.compute(work.shared.graph, **work.parameters, **given)
        next(self._parts)  # to the beginning of its work

    def _advance(self, seconds: float) -> Computed | None:  # noqa: ARG002
        try:
            self.supersteps, self.edges = next(self._parts)
        except StopIteration as end:
            computed: Computed = end.value
            self.supersteps, self.edges = computed.supersteps, computed.edges
            return computed
        return None

    def _took(self, took: float, seconds: float) -> None:
        """Its parts are what they are."""

    def close(self) -> None:
        super().close()
        self._parts.close()


class RunningVertexProgram(ProgramRun):
    """A VertexProgram that runs."""

    def __init__(self, work: Work, program: VertexProgram, after: Answer | None) -> None:
        """after: the answer to continue from"""
        super().__init__(work)
        self._program = program
        self._at_once = 1
        self._view: ProgramGraph | None = None
        self._view_is_copied = False
        self._continued = after is not None
        self._state: ProgramState | None = self._initial(after)

    def close(self) -> None:
        super().close()
        self._state = self._view = None

    def _initial(self, after: Answer | None) -> ProgramState:
        """Values and active vertices to start from."""
        graph, program = self.shared.graph, self._program
        xp, known = graph.backend.xp, 0
        values = xp.empty(graph.vertices, program.dtype)
        state = ProgramState(values, xp.empty(graph.vertices, np.int32))
        if after is not None:
            known = len(after.by_position)
            state.fresh = False
            values[:known] = after.by_position
            active = _senders(program, after, known)
            state.active[: len(active)] = active
            state.count = len(active)
        if known < graph.vertices:
            view, parameters = self._graph_view(), self._work.parameters
            graph.backend.programs.initialise(program, parameters, view, known, state)
        if program.every_vertex:
            state.count = graph.vertices
        return state

    def _graph_view(self) -> ProgramGraph:
        """The graph for the program; another one when its arrays are copies."""
        if self._view is None or self._view_is_copied != self.shared.is_copied:
            self._view = program_graph(self.shared.graph, self._program)
            self._view_is_copied = self.shared.is_copied
        return self._view

    def _advance(self, seconds: float) -> Computed | None:
        graph, program, state = self.shared.graph, self._program, self._state
        assert state is not None, "it is closed"
        left = program.supersteps - state.supersteps
        if graph.vertices and state.count and left > 0:
            at_once = SUPERSTEPS_AT_ONCE if seconds == inf else self._at_once
            graph.backend.programs.run(
                program,
                self._work.parameters,
                self._graph_view(),
                self._work.mode,
                min(at_once, left),
                state,
            )
        self.supersteps, self.edges = state.supersteps, state.edges
        if graph.vertices and state.count and state.supersteps < program.supersteps:
            return None
        summary = {"aggregate": state.aggregate} if program.every_vertex else {}
        finished = graph.vertices == 0 or state.count == 0
        return Computed(state.values, state.supersteps, state.edges, summary, finished)

    def _took(self, took: float, seconds: float) -> None:
        if took < seconds / 2:
            self._at_once = min(2 * self._at_once, SUPERSTEPS_AT_ONCE)
        elif took > seconds:
            self._at_once = max(self._at_once // 2, 1)


def _senders(program: VertexProgram, after: Answer, known: int) -> Array:
    """int32[…], distinct: vertices of the answer whose messages may be new."""
    xp = after.backend.xp
    if after.since.everything:
        return xp.flatnonzero(after.by_position != program.identity).astype(np.int32)
    if not after.since.sources:
        return xp.zeros(0, np.int32)
    named = distinct(xp, xp.concatenate(after.since.sources))
    named = named[named < known]
    return named[after.by_position[named] != program.identity]
