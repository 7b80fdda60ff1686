"""Programs that run in steps, between which batches may come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from time import perf_counter
from typing import Any, NamedTuple, get_args
from weakref import WeakSet

import numpy as np

from liverank_gpu.errors import InvalidValue, OutOfMemory, UnknownVertex, without_frames
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.graph.packed_csr import distinct, ends_and_slots
from liverank_gpu.graph.reading import SharedGraph, copied_bytes, detach
from liverank_gpu.graph.vertices import VertexIds
from liverank_gpu.operations.device import Array, StageTimer
from liverank_gpu.operations.graph import EdgeChanges, GraphUpdate
from liverank_gpu.operations.programs import (
    InitialiseProgram,
    Mode,
    ProgramGraph,
    ProgramState,
    RunProgram,
    VertexProgram,
)
from liverank_gpu.programs.algorithms import (
    CLUSTERING,
    COMPONENTS,
    CORES,
    DENSEST,
    DISTANCES,
    DN_GRAPHS,
    LABELS,
    LEVELS,
    PAGERANK,
    PATHS,
    SUPPORT,
    TRIANGLES,
    TRUSSNESS,
    Algorithm,
    Computed,
    EdgeValues,
    Order,
    Parts,
)
from liverank_gpu.programs.answer import Answer, Receipt, Since
from liverank_gpu.programs.pulling import Together, run_pulling
from liverank_gpu.programs.saved import SavedRun, fingerprint_parts, restored, saved_run
from liverank_gpu.programs.views import MemoryGraph, ids_by_position, program_graph
from liverank_gpu.types import EdgeBatch

SUPERSTEPS_AT_ONCE = 1024
"""Supersteps that a backend runs before it reports, at most."""


class ProgramLimits(NamedTuple):
    """Of one run of a program.

    supersteps  of a vertex program, after which it ends as it does after its own
    memory      bytes, beside the graph
    """

    supersteps: float = inf
    memory: float = inf


UNLIMITED = ProgramLimits()


class Work(NamedTuple):
    """What a run is of.

    shared      the graph
    parameters  all of the program's
    order       see Programs.begin
    timer       that of all runs: no two steps overlap
    answers     those that follow batches
    supersteps  of a vertex program, at most
    """

    shared: SharedGraph
    program: VertexProgram | Algorithm
    parameters: Mapping[str, float]
    order: Order
    mode: Mode
    timer: StageTimer
    answers: WeakSet[Answer]
    supersteps: float


class ProgramRun:
    """A program that runs: `step` until `done`, then `answer`. Batches may come between two steps;
    the answer is that of the graph when the run began.

    shared      the graph
    program     what runs
    supersteps  done so far
    edges       read so far
    seconds     spent so far
    """

    def __init__(self, work: Work, after: Answer | None, resume: SavedRun | None = None) -> None:
        """after   of the same program: the answer to continue from
        resume  of the same program: the state to go on with
        """
        self.shared, self.program = work.shared, work.program
        self.seconds = 0.0
        self._work, self._continued = work, after is not None
        self._state: ProgramState | None = None
        self._hashed = resume.graph if resume else 0  # `restored` compares them
        self._hashing = iter(()) if resume else fingerprint_parts(self.shared)
        self._parts = self._parts_of(work, after, resume)
        self.supersteps, self.edges = next(self._parts)  # to the beginning of its work
        self._at_once = 1
        self._since = Since()
        self._error: Exception | None = None
        self._computed: Computed | None = None

    @property
    def done(self) -> bool:
        """Whether there is an answer, or an error."""
        return self._computed is not None or self._error is not None

    def step(self, seconds: float, most: int = SUPERSTEPS_AT_ONCE) -> None:
        """Continues by one part of the work, about this long if the program can be divided so: by
        one superstep at least, `most` at most. Raises OutOfMemory, DeviceLost; it then ends with
        this error.
        """
        if self.done:
            return
        device = self.shared.graph.backend.device
        try:
            with device.detecting_loss():
                self._work.timer.begin()
                self._advance(min(SUPERSTEPS_AT_ONCE if seconds == inf else self._at_once, most))
                self._work.timer.end("run")
                took = self._work.timer.seconds()["run"]
        except Exception as error:
            self.fail(error)
            raise
        self.seconds += took
        if took < seconds / 2:
            self._at_once = min(2 * self._at_once, SUPERSTEPS_AT_ONCE)
        elif took > seconds:
            self._at_once = max(self._at_once // 2, 1)

    def _advance(self, at_once: int) -> None:
        """One part of the work."""
        try:
            self.supersteps, self.edges = self._parts.send(at_once)
        except StopIteration as end:
            self._computed = found = end.value
            self.supersteps, self.edges = found.supersteps, found.edges

    def state(self, note: Mapping[str, float] | None = None) -> SavedRun:
        """Where it has got to, for a later run on the same graph to go on from: see Programs.begin.

        note  that the state is to have

        Raises InvalidValue for a program that is no VertexProgram; OutOfMemory, DeviceLost.
        """
        work, graph = self._work, self.shared.graph
        if not isinstance(work.program, VertexProgram) or self._state is None:
            raise InvalidValue("program", work.program.name, "a VertexProgram, to save its state")
        with graph.backend.device.detecting_loss():
            self.hash(inf)
            given = (graph, work.program, work.parameters, work.mode, self._state, self._hashed)
            return replace(saved_run(*given), note=note or {})

    def hash(self, seconds: float) -> bool:
        """Works about this long at the fingerprint of the graph, which the first `state` needs;
        whether it is done. Raises as `state`.
        """
        end = perf_counter() + seconds
        with self.shared.graph.backend.device.detecting_loss():
            try:
                for hashed in self._hashing:
                    self._hashed = hashed
                    if perf_counter() >= end:
                        return False
            except BaseException:
                self._hashing = fingerprint_parts(self.shared)  # it begins again
                raise
        return True

    @property
    def computed(self) -> Computed:
        """What it found, once it is done. Raises the error with which it ended."""
        if self._error is not None:
            raise self._error
        assert self._computed is not None, "it is not done"
        return self._computed

    def answer(self) -> Answer:
        """The answer, once it is done. Raises the error with which it ended."""
        graph, work, computed = self.shared.graph, self._work, self.computed
        receipt = Receipt.of(computed, work.program.name, work.mode, self.seconds, self._continued)
        answer = Answer(
            graph.backend,
            graph.permutation,
            work.program,
            work.parameters,
            computed,
            receipt,
            self._since,
        )
        if computed.finished:
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
        self._computed = self._state = None
        if self._error is not None:
            without_frames(self._error)
        self._parts.close()

    def _parts_of(self, work: Work, after: Answer | None, resume: SavedRun | None) -> Parts:
        program, graph = work.program, work.shared.graph
        if isinstance(program, VertexProgram):
            if resume is not None:
                state, view = restored(graph, program, resume), None
            else:
                state, view = _initial(work, program, after)
            self._state = state
            return _supersteps(work, program, state, view)
        given: dict[str, Any] = {"order": work.order} if program.ordered else {}
        if program.continues:
            given["earlier"] = None if after is None else after.earlier
        return program.compute(MemoryGraph(graph), **work.parameters, **given)


def may_be_asynchronous(program: VertexProgram | Algorithm) -> bool:
    """Whether its values may change in place: one number each, and monotone."""
    return isinstance(program, VertexProgram) and program.monotone and not program.values.is_record


def _any_is_gone(program: VertexProgram, changes: EdgeChanges) -> bool:  # noqa: ARG001
    """Which values there will be is not known yet, so any edge may matter."""
    return len(changes.removed_sources) > 0


def _initial(
    work: Work, program: VertexProgram, after: Answer | None
) -> tuple[ProgramState, ProgramGraph | None]:
    """Values and active vertices to start from, and the graph if they were taken from it."""
    graph, known, view = work.shared.graph, 0, None
    values = program.values.array(graph.vertices, graph.backend.xp.empty)
    state = ProgramState(values, graph.backend.xp.empty(graph.vertices, np.int32))
    if after is not None:
        known = len(after.by_position)
        state.fresh = False
        values[:known] = after.by_position
        active = _senders(program, after, known)
        state.active[: len(active)] = active
        state.count = len(active)
    if known < graph.ids.limit:
        view = program_graph(graph, program)
        graph.backend.run(InitialiseProgram(program, work.parameters, view, known, state))
    if program.every_vertex:
        state.count = graph.ids.limit
    if program.edges is not None:
        slots, xp = len(graph.incoming.csr.column_indices), graph.backend.xp
        state.edge_values = program.edges.array(slots, xp.empty)
        state.edge_values[:] = xp.asarray(program.edges.element(program.edge_initial))
    return state, view


def _supersteps(
    work: Work, program: VertexProgram, state: ProgramState, view: ProgramGraph | None
) -> Parts:
    """A vertex program that runs."""
    shared, graph, is_copied = work.shared, work.shared.graph, work.shared.is_copied
    limit = int(min(program.supersteps, work.supersteps))
    while True:
        at_once = yield state.supersteps, state.edges
        left = limit - state.supersteps
        if graph.ids.limit and state.count and left > 0:
            if view is None or is_copied != shared.is_copied:
                view, is_copied = program_graph(graph, program), shared.is_copied
            most = min(at_once, left)
            run = RunProgram(program, work.parameters, view, work.mode, most, state)
            if program.pulls and not program.every_vertex and not graph.divided:
                run_pulling(run, Together(graph.backend))
            else:
                graph.backend.run(run)
        if not (graph.ids.limit and state.count) or state.supersteps >= limit:
            found = Computed.by(program, state)
            if state.edge_values is None:
                return found
            ends, slots = ends_and_slots(graph.backend, graph.incoming.csr)
            sources, targets = map(ids_by_position(graph).__getitem__, ends)
            edge_values = EdgeValues(sources, targets, state.edge_values[slots])
            return found._replace(edge_values=edge_values)


def _senders(program: VertexProgram, after: Answer, known: int) -> Array:
    """int32[…], distinct: vertices of the answer whose messages may be new."""
    xp = after.backend.xp
    if after.since.everything:
        differs = program.values.differs(xp, after.by_position, program.identity)
        return xp.flatnonzero(differs).astype(np.int32)
    if not after.since.sources:
        return xp.zeros(0, np.int32)
    named = distinct(xp, xp.concatenate(after.since.sources))
    named = named[named < known]
    return named[program.values.differs(xp, after.by_position[named], program.identity)]


# ---- runs of programs on one graph ----

AnyProgram = VertexProgram | Algorithm | str

PROGRAMS: dict[str, VertexProgram | Algorithm] = {
    each.name: each
    for each in (
        *(PAGERANK, LEVELS, DISTANCES, PATHS, COMPONENTS),
        *(LABELS, CORES, DENSEST, TRIANGLES, CLUSTERING, SUPPORT, TRUSSNESS, DN_GRAPHS),
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
        running = self.begin(program, after, mode, given, order, alone=True)
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
        resume: SavedRun | None = None,
        limits: ProgramLimits = UNLIMITED,
        *,
        alone: bool = False,
    ) -> ProgramRun:
        """Begins to run a program on the graph as it is now, to be closed. Batches may come between
        its steps, as long as there is memory for a copy of the graph.

        program  a VertexProgram, a built-in one, or its name in PROGRAMS
        after    an answer of the same program and parameters. If the program is monotone and its
                 values depend on edges alone, the run continues from there, with what insertions
                 changed; it starts again if an edge was deleted along which a value may have come,
                 if vertices were removed, or if edges expired. Algorithms that continue do after
                 any batch that did not rebuild the lists, unless too much would be read. The
                 receipt says which
        mode     ``asynchronous``: values change in place within a superstep, for monotone programs;
                 the receipt's counts may vary from run to run
        given    parameters in place of their defaults; ``source`` is the id of a vertex
        order    int32[k] on the host, the place of each id among the first k vertices: by it,
                 instead of by ids, ``labels`` breaks ties. Later ids follow; None: ids
        resume   the state of a run of the same vertex program, parameters and mode on a graph with
                 these edges, in this process or another: it goes on from there
        limits   of this run: OutOfMemory if it may need more memory
        alone    no batch comes before it is closed: there need be no memory for a copy

        Raises InvalidValue, UnknownVertex for the source, OutOfMemory.
        """
        program, parameters, by_mode = self._resolved(program, after, mode, given or {}, resume)
        graph, of_vertex, of_edge = self._graph, _VERTEX_BYTES, _EDGE_BYTES
        with graph.backend.device.detecting_loss():
            copied = 0 if alone else copied_bytes(graph)
            purpose = "a program and a copy of the graph" if copied else "a program"
            # those that are here
            edges = (
                max(graph.outgoing.packed, graph.incoming.packed) if graph.divided else graph.arcs
            )
            if isinstance(program, VertexProgram):
                of_vertex += 3 * program.values.dtype.itemsize if program.pulls else 0
                of_edge = 0 if program.edges is None else 2 * program.edges.dtype.itemsize + 32
            needed = of_vertex * graph.columns + of_edge * edges + copied
            if needed > limits.memory:
                raise OutOfMemory(f"{purpose} with a limit of memory", needed, int(limits.memory))
            graph.backend.device.require(purpose, needed)
            kept = (self._timer, self._answers, limits.supersteps)
            work = Work(SharedGraph(graph), program, parameters, order, by_mode, *kept)
            continued = (
                (isinstance(program, VertexProgram) or program.continues)
                and after is not None
                and self._continues(program, parameters, after)
            )
            running = ProgramRun(work, after if continued else None, resume)
        self._running.append(running)
        return running

    def close(self, running: ProgramRun) -> None:
        """Ends it, done or not, and takes its arrays back."""
        if running in self._running:
            self._running.remove(running)
        running.close()

    @property
    def _ids(self) -> VertexIds:
        """Which ids are vertices."""
        return self._graph.ids

    def _resolved(
        self,
        program: AnyProgram,
        after: Answer | None,
        mode: str,
        given: Mapping[str, float],
        resume: SavedRun | None,
    ) -> tuple[VertexProgram | Algorithm, dict[str, float], Mode]:
        """The program, all of its parameters, and the mode. Raises InvalidValue for what cannot be
        run, UnknownVertex.
        """
        if isinstance(program, str) and program in PROGRAMS:
            program = PROGRAMS[program]
        if not isinstance(program, VertexProgram | Algorithm):
            known = ", ".join(PROGRAMS)
            raise InvalidValue("program", program, f"a VertexProgram, or one of {known}")
        parameters = program.parameter_values(given)
        if mode not in get_args(Mode):
            raise InvalidValue("mode", mode, "'synchronous' or 'asynchronous'")
        if mode == "asynchronous" and not may_be_asynchronous(program):
            raise InvalidValue("mode", mode, f"'synchronous' for {program.name}")
        named = program.named if isinstance(program, VertexProgram) else set()
        if self._graph.decay and "weight" in named:
            raise InvalidValue("program", program.name, "one without weights under half_life")
        source = parameters.get("source")
        if source is not None and len(self._ids.vertices_among(np.array([source]))) == 0:
            raise UnknownVertex("source", source, "the id of a vertex")
        if resume is not None:
            of_run = (resume.program, resume.parameters, resume.mode)
            digest = program.digest if isinstance(program, VertexProgram) else None
            if of_run != (digest, parameters, mode) or after is not None:
                requirement = "the state of this program with these parameters and mode, no after"
                raise InvalidValue("resume", resume.parameters, requirement)
        return program, parameters, "asynchronous" if mode == "asynchronous" else "synchronous"

    def _continues(
        self, program: VertexProgram | Algorithm, parameters: Mapping[str, float], after: Answer
    ) -> bool:
        known = isinstance(after, Answer)
        if not known or after.program is not program or after.parameters != parameters:
            raise InvalidValue("after", after, "an answer of this program and these parameters")
        same = after in self._answers and after.permutation is self._graph.permutation
        return program.continues and same and not after.since.stale
