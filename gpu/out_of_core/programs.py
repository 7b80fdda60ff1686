"""Programs on edges that arrive in any order, within a memory budget."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from gpu.errors import InvalidValue, UnknownVertex
from gpu.operations.programs import Mode, VertexProgram
from gpu.out_of_core.budget import program_bytes
from gpu.out_of_core.edges import OutOfCoreEdges
from gpu.out_of_core.spool import PackedEdges
from gpu.out_of_core.windowed_graph import WindowedGraph
from gpu.out_of_core.windowed_program import WindowedProgram
from gpu.programs.answer import Answer, Receipt, Since
from gpu.programs.run import PROGRAMS


@dataclass(frozen=True, slots=True)
class OutOfCoreAnswer:
    """What a program computed on a graph whose edges were streamed.

    answer        values by id, and the receipt, whose supersteps are passes over the windows. No
                  run continues from it
    edges         number of edges, without repeats
    windows       number of intervals of vertices
    processed     windows that were processed, in all passes: others were skipped
    bytes_loaded  bytes of in-lists that were read from the file, or copied to the device
    in_memory     whether the in-lists were in page-locked memory of the host
    pack_seconds  time to sort the edges; 0 if a run before this one did
    """

    answer: Answer
    edges: int
    windows: int
    processed: int
    bytes_loaded: int
    in_memory: bool
    pack_seconds: float


class OutOfCorePrograms(OutOfCoreEdges):
    """Runs vertex programs on edges that arrive in any order. All edges are added before the first
    run.

    vertices  number of vertices, at least, until the first run; more if the edges need them
    reserved  bytes of the budget that the caller uses, for keys
    """

    vertices = 0
    reserved = 0
    _packed_edges: PackedEdges | None = None

    def run(
        self, program: VertexProgram | str, mode: Mode | None = None, **parameters: float
    ) -> OutOfCoreAnswer:
        """Runs a program to its end. Its values are those that Engine.run finds on the same graph.

        program     a VertexProgram, or the name of a built-in one: pagerank, levels, distances,
                    components
        mode        ``asynchronous``: windows see what those before them have changed in the same
                    pass; for monotone programs and those with every vertex active. None: so for
                    monotone programs, else ``synchronous``
        parameters  in place of their defaults; ``source`` is the id of a vertex

        Raises InvalidValue, also with the least budget that works if this one is too small;
        UnknownVertex for the source; OutOfMemory if there is less memory than the budget allows;
        DeviceLost, OSError.
        """
        program = self.named(program)
        values = program.parameter_values(parameters)
        checked = self._mode(program, mode)
        vertices = self._count()
        each = program_bytes(self.backend, program.dtype, self._options.weighted)
        budget = self._divided(vertices, each, self.reserved)
        source = values.get("source")
        if source is not None and not 0 <= source < vertices:
            raise UnknownVertex("source", source, "the id of a vertex")
        started, pack_seconds = time.perf_counter(), 0.0
        if self._packed_edges is None:
            self._packed_edges = self._packed(vertices, budget)
            pack_seconds = time.perf_counter() - started
        with self.backend.device.detecting_loss():
            doing = f"running {program.name} over"
            graph = self._windowed(self._packed_edges, each, budget, doing)
            return run_windowed(graph, program, values, checked, pack_seconds)

    def _count(self) -> int:
        """The number of vertices."""
        if self._packed_edges is not None:
            return len(self._packed_edges.row_lengths)
        return max(self.vertices, self._spool.vertices)

    @staticmethod
    def named(program: VertexProgram | str) -> VertexProgram:
        """The program. Raises InvalidValue for one that `run` refuses: there are algorithms that
        read more than in-lists.
        """
        found = PROGRAMS.get(program) if isinstance(program, str) else program
        if isinstance(found, VertexProgram):
            return found
        known = [name for name, each in PROGRAMS.items() if isinstance(each, VertexProgram)]
        name = getattr(found, "name", program)
        raise InvalidValue("program", name, f"one of {', '.join(known)} for a graph out of core")

    def _mode(self, program: VertexProgram, mode: str | None) -> Mode:
        """Raises InvalidValue for what cannot be run."""
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
        if not (program.monotone or program.every_vertex):
            raise InvalidValue("mode", mode, f"'synchronous' for {program.name}")
        return "asynchronous"

    def close(self) -> None:
        """Frees the files."""
        super().close()
        if self._packed_edges is not None:
            self._packed_edges.file.close()


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
    return OutOfCoreAnswer(
        answer,
        graph.edges,
        len(stream.windows),
        running.processed,
        stream.bytes_loaded,
        stream.in_memory,
        pack_seconds,
    )
