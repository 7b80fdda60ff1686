"""Programs on edges that arrive in any order, within a memory budget."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import InvalidValue, UnknownVertex
from liverank_gpu.operations.programs import Mode, VertexProgram
from liverank_gpu.out_of_core.algorithms import ALGORITHMS, Packed, Surroundings
from liverank_gpu.out_of_core.ranking import Budget, OutOfCoreEdges, algorithm_bytes, program_bytes
from liverank_gpu.out_of_core.spool import EdgeSpool, PackedEdges
from liverank_gpu.out_of_core.windows import (
    WindowedGraph,
    WindowedProgram,
    WindowStream,
    permutation_of,
)
from liverank_gpu.programs.algorithms import Algorithm, Order
from liverank_gpu.programs.answer import Answer, Receipt, Since
from liverank_gpu.programs.running import PROGRAMS


@dataclass(frozen=True, slots=True)
class OutOfCoreAnswer:
    """What a program computed on a graph whose edges were streamed.

    answer        values by id, and the receipt, whose supersteps are passes over the windows. No
                  run continues from it. Values of edges, and the edges, are mapped from files
                  without names: dtype[m] and int64[m]
    edges         number of edges, without repeats
    windows       number of intervals of vertices
    processed     windows that were processed, in all passes: others were skipped. Of triangles
                  pairs of windows
    bytes_loaded  bytes of in-lists that were read from the file, or copied to the device
    in_memory     whether the in-lists were in page-locked memory of the host
    pack_seconds  time to sort the edges; 0 if a run before this one did, unless the program needs
                  them without direction
    """

    answer: Answer
    edges: int
    windows: int
    processed: int
    bytes_loaded: int
    in_memory: bool
    pack_seconds: float


class OutOfCorePrograms(OutOfCoreEdges):
    """Runs programs on edges that arrive in any order. All edges are added before the first
    run.

    vertices  number of vertices, at least, until the first run; more if the edges need them
    reserved  bytes of the budget that the caller uses, for keys
    order     see liverank_gpu.programs.running.Programs.begin
    """

    vertices = 0
    reserved = 0
    order: Order = None
    _packed_edges: PackedEdges | None = None

    def run(
        self,
        program: VertexProgram | Algorithm | str,
        mode: Mode | None = None,
        **parameters: float,
    ) -> OutOfCoreAnswer:
        """Runs a program to its end. Its values are those that Engine.run finds on the same graph.

        program     a VertexProgram, a built-in one or its name: pagerank, levels, distances,
                    components, labels, cores, densest, triangles, clustering, support,
                    trussness
        mode        ``asynchronous``: windows see what those before them have changed in the same
                    pass; for monotone programs, whose default it is. Others are ``synchronous``
        parameters  in place of their defaults; ``source`` is the id of a vertex

        Raises InvalidValue, also with the least budget that works if this one is too small, and
        after a run that failed to sort the edges; UnknownVertex for the source; OutOfMemory if
        there is less memory than the budget allows; DeviceLost, OSError.
        """
        program = self.named(program)
        values = program.parameter_values(parameters)
        checked = self._mode(program, mode)
        vertices, weighted = self._count(), self._options.weighted
        temporary = 0
        if isinstance(program, Algorithm):
            each, temporary = algorithm_bytes(self.backend, weighted), ALGORITHMS[program].temporary
        else:
            each = program_bytes(self.backend, program.dtype, weighted)
        budget = self._divided(vertices, each, self.reserved, temporary)
        source = values.get("source")
        if source is not None and not 0 <= source < vertices:
            raise UnknownVertex("source", source, "the id of a vertex")
        started, pack_seconds = time.perf_counter(), 0.0
        if self._packed_edges is None:
            self._packed_edges = self._packed(vertices, budget)
            pack_seconds = time.perf_counter() - started
        doing = f"running {program.name} over"
        with self.backend.device.detecting_loss():
            if isinstance(program, Algorithm):
                self._require(self._packed_edges, each, budget, doing)
                packed = Packed(self._packed_edges, budget)
                return self._compute(program, values, packed, each, pack_seconds)
            graph = self._windowed(self._packed_edges, each, budget, doing)
            return run_windowed(graph, program, values, checked, pack_seconds)

    def _compute(
        self,
        algorithm: Algorithm,
        parameters: Mapping[str, float],
        packed: Packed,
        each: int,
        pack_seconds: float,
    ) -> OutOfCoreAnswer:
        """Runs an algorithm. Raises InvalidValue, OutOfMemory, OSError."""
        started, packing = time.perf_counter(), 0.0
        streamed = ALGORITHMS[algorithm]

        def repack(spool: EdgeSpool, buffers: int, longest: int) -> Packed:
            nonlocal packing
            begun = time.perf_counter()
            try:
                vertices = len(packed.edges.row_lengths)
                budget = Budget.divide(
                    self._memory, self.reserved, vertices, each, max(spool.longest, longest),
                    buffers=buffers, temporary=streamed.temporary,
                )  # fmt: skip
                edges = spool.pack(vertices, budget.bucket_edges, fixed_loops=False)
            finally:
                spool.close()
            packing = time.perf_counter() - begun
            return Packed(edges, budget)

        around = Surroundings(self.backend, self._memory, packed, self._scratch, repack, self.order)
        computed, processed, stream = streamed.run(around, **parameters)
        receipt = Receipt(
            algorithm.name, "synchronous", computed.supersteps, computed.edges,
            time.perf_counter() - started - packing, continued=False, finished=computed.finished,
        )  # fmt: skip
        answer = (Answer if computed.ends is None else _AnswerOfEdges)(
            self.backend,
            permutation_of(self.backend, packed.edges),
            computed.values,
            algorithm,
            parameters,
            receipt,
            computed.summary,
            Since(stale=True),
            computed.ends,
        )
        return _streamed(answer, packed.edges.edges, processed, stream, pack_seconds + packing)

    def _count(self) -> int:
        """The number of vertices."""
        if self._packed_edges is not None:
            return len(self._packed_edges.row_lengths)
        return max(self.vertices, self._spool.vertices)

    @staticmethod
    def named(program: VertexProgram | Algorithm | str) -> VertexProgram | Algorithm:
        """The program. Raises InvalidValue for an unknown name, and for an algorithm that is not
        built in.
        """
        found = PROGRAMS.get(program) if isinstance(program, str) else program
        if found is not None and _runs(found):
            return found
        name = getattr(found, "name", program)
        raise InvalidValue("program", name, f"one of {', '.join(PROGRAMS)} for a graph out of core")

    def _mode(self, program: VertexProgram | Algorithm, mode: str | None) -> Mode:
        """Raises InvalidValue for what cannot be run."""
        if isinstance(program, Algorithm):
            if mode not in (None, "synchronous"):
                raise InvalidValue("mode", mode, f"'synchronous' for {program.name}")
            return "synchronous"
        against_edges = program.direction == "both" and self._options.directed
        if against_edges and not program.monotone:
            raise InvalidValue(
                "program", program.name, "monotone, or in direction 'out', for a graph out of core"
            )
        if mode is None:
            return "asynchronous" if program.monotone else "synchronous"
        if mode not in get_args(Mode):
            raise InvalidValue("mode", mode, "'synchronous' or 'asynchronous'")
        if mode == "synchronous":
            if against_edges:
                requirement = f"'asynchronous' for {program.name} on a graph out of core"
                raise InvalidValue("mode", mode, requirement)
            return "synchronous"
        if not program.monotone:
            raise InvalidValue("mode", mode, f"'synchronous' for {program.name}")
        return "asynchronous"

    def close(self) -> None:
        """Frees the files."""
        super().close()
        if self._packed_edges is not None:
            self._packed_edges.file.close()


class _AnswerOfEdges(Answer):
    """One whose arrays are on the host: they are mapped from files."""

    @property
    def values(self) -> NDArray[Any]:
        values: NDArray[Any] = self.by_position
        return values

    @property
    def edges(self) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        return self._ends


def _runs(program: VertexProgram | Algorithm) -> bool:
    known = isinstance(program, Algorithm) and program in ALGORITHMS
    return known or isinstance(program, VertexProgram)


def run_windowed(
    graph: WindowedGraph,
    program: VertexProgram,
    parameters: Mapping[str, float],
    mode: Mode,
    pack_seconds: float = 0.0,
) -> OutOfCoreAnswer:
    """The answer of a program on a graph, whose stream is closed.

    parameters, mode  checked, as OutOfCorePrograms.run does

    Raises OutOfMemory, OSError.
    """
    started = time.perf_counter()
    stream = graph.stream
    try:
        running = WindowedProgram(graph, program, parameters, mode)
        finished = running.run()
    finally:
        stream.close()
    seconds = time.perf_counter() - started
    receipt = Receipt(
        program.name, mode, stream.passes, running.messages, seconds, continued=False,
        finished=finished,
    )  # fmt: skip
    summary = {"aggregate": running.aggregate} if program.every_vertex else {}
    answer = Answer(
        graph.backend,
        graph.permutation,
        running.values,
        program,
        parameters,
        receipt,
        summary,
        Since(stale=True),
    )
    return _streamed(answer, graph.edges, running.processed, stream, pack_seconds)


def _streamed(
    answer: Answer, edges: int, processed: int, stream: WindowStream, pack_seconds: float
) -> OutOfCoreAnswer:
    return OutOfCoreAnswer(
        answer,
        edges,
        len(stream.windows),
        processed,
        stream.bytes_loaded,
        stream.in_memory,
        pack_seconds,
    )
