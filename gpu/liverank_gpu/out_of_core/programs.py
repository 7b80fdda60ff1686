"""Programs on edges that arrive in any order, within a memory budget."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import InvalidValue, UnknownVertex
from liverank_gpu.operations.programs import Mode, VertexProgram
from liverank_gpu.out_of_core.ranking import OutOfCoreEdges, algorithm_bytes, program_bytes
from liverank_gpu.out_of_core.spool import PackedEdges
from liverank_gpu.out_of_core.views import VOTE_BYTES, FileGraph
from liverank_gpu.out_of_core.windows import permutation_of
from liverank_gpu.programs.algorithms import LABELS, Algorithm, Order, ended
from liverank_gpu.programs.answer import Answer, Receipt, Since
from liverank_gpu.programs.running import PROGRAMS, may_be_asynchronous


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
                    paths, components, labels, cores, densest, triangles, clustering, support,
                    trussness, dn-graphs
        mode        ``asynchronous``: windows see what those before them have changed in the same
                    pass; for monotone programs of one number a vertex, whose default it is. Others
                    are ``synchronous``
        parameters  in place of their defaults; ``source`` is the id of a vertex

        Raises InvalidValue, also with the least budget that works if this one is too small, and
        after a run that failed to sort the edges; UnknownVertex for the source; OutOfMemory if
        there is less memory than the budget allows; DeviceLost, OSError.
        """
        program = self.named(program)
        values = program.parameter_values(parameters)
        checked = self._mode(program, mode)
        vertices, weighted = self._count(), self._options.weighted
        if isinstance(program, Algorithm):
            each = algorithm_bytes(self.backend, weighted)
        else:
            each = program_bytes(self.backend, program.values.dtype.itemsize, weighted)
        temporary = VOTE_BYTES if program is LABELS else 0
        if isinstance(program, VertexProgram) and program.edges is not None:
            temporary = 3 * program.edges.dtype.itemsize  # on the host, and twice on the device
        budget = self._divided(vertices, each, self.reserved, temporary)
        source = values.get("source")
        if source is not None and not 0 <= source < vertices:
            raise UnknownVertex("source", source, "the id of a vertex")
        started, pack_seconds = time.perf_counter(), 0.0
        if self._packed_edges is None:
            self._packed_edges = self._packed(vertices, budget)
            pack_seconds = time.perf_counter() - started
        packed, backend = self._packed_edges, self.backend
        with backend.device.detecting_loss():
            self._require(packed, budget, f"running {program.name} over")
            started = time.perf_counter()
            graph = FileGraph(backend, packed, budget, self._scratch)
            if isinstance(program, Algorithm):
                given: dict[str, Any] = {"order": self.order} if program.ordered else {}
                if program.continues:
                    given["earlier"] = None
                computed = ended(program.compute(graph, **values, **given))
            else:
                computed = graph.run(program, values, checked)
            seconds = time.perf_counter() - started - graph.pack_seconds
            receipt = Receipt.of(computed, program.name, checked, seconds)
            permutation, since = permutation_of(backend, packed), Since(stale=True)
            kind = Answer if computed.ends is None else _AnswerOfEdges
            answer = kind(backend, permutation, program, values, computed, receipt, since)
        return OutOfCoreAnswer(
            answer,
            packed.edges,
            graph.windows,
            graph.processed,
            graph.bytes_loaded,
            graph.in_memory,
            pack_seconds + graph.pack_seconds,
        )

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
        if isinstance(found, VertexProgram) or (found and found in PROGRAMS.values()):
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
        if against_edges and not (program.monotone and not program.pulls):
            needed = "of one number a vertex, without sender and sends" if program.pulls else ""
            needed = f"monotone{needed and ' and '}{needed}"
            raise InvalidValue(
                "program", program.name, f"{needed}, or in direction 'out', for a graph out of core"
            )
        if mode is None:
            return "asynchronous" if may_be_asynchronous(program) else "synchronous"
        if mode not in get_args(Mode):
            raise InvalidValue("mode", mode, "'synchronous' or 'asynchronous'")
        if mode == "synchronous":
            if against_edges:
                requirement = f"'asynchronous' for {program.name} on a graph out of core"
                raise InvalidValue("mode", mode, requirement)
            return "synchronous"
        if not may_be_asynchronous(program):
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

    @property
    def lambdas(self) -> NDArray[np.int32] | None:
        return self._lambdas
