"""Vertex programs on a graph in shards: the supersteps of one, and runs as their owner sees them.

A vertex pulls from its in-neighbours (liverank_gpu.programs.pulling). What it reads of them is by
column (liverank_gpu.sharded.columns): ids and degrees, sent once, and values. Where every vertex is
active all values are sent after each superstep, as contributions are after a sweep; else those of
the vertices that are active next, with their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf, prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends import host_backend
from liverank_gpu.errors import InvalidValue, ShardLost
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.graph.reading import SharedGraph
from liverank_gpu.graph.vertices import VertexIds, VertexPermutation
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Run, runs
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.programs import (
    InitialiseProgram,
    Mode,
    RunProgram,
    VertexProgram,
    run_every_vertex,
)
from liverank_gpu.programs.algorithms import Algorithm, Computed, EdgeValues, Order, Parts
from liverank_gpu.programs.answer import Answer
from liverank_gpu.programs.pulling import Together, run_pulling
from liverank_gpu.programs.running import (
    PROGRAMS,
    UNLIMITED,
    AnyProgram,
    ProgramLimits,
    ProgramRun,
    Programs,
    Work,
)
from liverank_gpu.programs.saved import SavedRun
from liverank_gpu.sharded.columns import Columns, Numbering, by_position
from liverank_gpu.sharded.communicator import Communicator

_ROW_BYTES = 4
_COMBINED: dict[str, Callable[[list[float]], float]] = {"sum": sum, "min": min, "max": max}


class ShardPrograms(Together):
    """The supersteps of one shard. The numbers of active vertices in states are those of all."""

    def __init__(self, local: Backend, communicator: Communicator, run: Run) -> None:
        """run: of operations over all shards"""
        super().__init__(local)
        self._communicator, self._run_all = communicator, run
        self._columns = Columns(local, communicator)

    @runs
    def _initialise(self, do: InitialiseProgram) -> None:
        self.backend.run(do)
        do.state.active = do.state.active[: do.state.count]
        do.state.count = self.total(do.state.count)

    @runs
    def _run(self, do: RunProgram) -> None:
        # that of the graph as it is read, which may be a copy of an earlier one
        rank, size = self._communicator.rank, self._communicator.size
        self._columns.numbering = Numbering(rank, size, len(do.graph.ids) // (size + 1))
        if not do.program.every_vertex:
            run_pulling(do, self)
            return
        state, rows = do.state, len(do.state.values)
        state.values = self.over_columns(state.values)
        run_every_vertex(do, self._run_all, lambda values: self.aggregate(do, values[:rows]))
        state.values = state.values[:rows].copy()

    def over_columns(self, values: Array) -> Array:
        return self._columns.gathered(values)

    def total(self, number: int) -> int:
        return int(self._communicator.sums([number])[0])

    def aggregate(self, do: RunProgram, values: Array) -> float:
        own = self._communicator.gather([super().aggregate(do, values)])
        return _COMBINED[do.program.aggregator](own[:, 0].tolist())

    def named(self, columns: Sequence[Array], vertices: int) -> Array:  # noqa: ARG002
        return self._columns.sent(self.backend.xp.concatenate(columns))

    def tell(self, active: Array, values: Array, steps: Array, now: int) -> int:
        xp, size, numbering = self.backend.xp, self._communicator.size, self._columns.numbering
        own = values[active]
        each: int = own.itemsize * prod(own.shape[1:])
        sent = xp.concatenate([own.reshape(-1).view(np.uint8), active.view(np.uint8)])
        parts = self._communicator.all_to_all([sent] * size)
        for rank, part in enumerate(parts):
            if rank != numbering.rank:
                end = len(part) // (each + _ROW_BYTES) * each
                columns = part[end:].view(np.int32) + np.int32((rank + 1) * numbering.room)
                values[columns] = part[:end].view(values.dtype).reshape(-1, *values.shape[1:])
                steps[columns] = now
        return sum(map(len, parts)) // (each + _ROW_BYTES)


class Told(NamedTuple):
    """What one shard tells of a run after a part of it.

    supersteps, edges  of all shards, so far
    found              once it is done: of own vertices, arrays on the host
    ids                then, of the first shard: see VertexPermutation
    """

    supersteps: int
    edges: int
    found: Computed | None = None
    ids: NDArray[np.int32] | None = None


class ShardRuns:
    """The runs of one shard, by number. All shards call the same methods together."""

    def __init__(self, programs: Programs, leads: bool) -> None:
        """leads: whether it is the first shard"""
        self._programs, self._leads = programs, leads
        self._runs: dict[int, ProgramRun] = {}

    def begin(
        self,
        number: int,
        program: AnyProgram,
        mode: Mode,
        given: Mapping[str, float],
        order: Order,
        resume: SavedRun | None,
        limits: ProgramLimits,
    ) -> None:
        """See Programs.begin."""
        asked = (program, None, mode, given, order, resume, limits)
        self._runs[number] = self._programs.begin(*asked)

    def state(self, number: int) -> SavedRun | None:
        """See ProgramRun.state: of the first shard. Raises InvalidValue, OutOfMemory."""
        saved = self._runs[number].state()
        return saved if self._leads else None

    def step(self, number: int, most: int) -> Told:
        """Up to so many supersteps. Raises OutOfMemory."""
        run = self._runs[number]
        run.step(inf, most)
        if not run.done:
            return Told(run.supersteps, run.edges)
        found, graph = run.computed, run.shared.graph
        host = graph.backend.device.to_host
        edge_values = found.edge_values
        if edge_values is not None:
            edge_values = EdgeValues(*map(host, edge_values))
        values = host(found.values)
        found = found._replace(values=values, edge_values=edge_values, kept=None)
        ids = host(graph.permutation.ids) if self._leads else None
        return Told(run.supersteps, run.edges, found, ids)

    def close(self, number: int) -> None:
        """Forgets it, if it is there."""
        if (run := self._runs.pop(number, None)) is not None:
            self._programs.close(run)


# ---- the runs as the owner of the graph sees them ----


class ShardedRun(ProgramRun):
    """See ProgramRun. Its answer is gathered into the memory of this process. Steps raise ShardLost
    too.
    """

    def __init__(
        self,
        call: Callable[..., list[Any]],
        number: int,
        work: Work,
        resume: SavedRun | None,
        *given: Any,
    ) -> None:
        """call   calls a method of all ShardRuns, which know the run by its number
        given  what they begin with
        """
        self._call, self._number, self._given = call, number, given
        super().__init__(work, None, resume)

    def _parts_of(self, _: Work, __: Answer | None, resume: SavedRun | None) -> Parts:
        self._call("begin", self._number, *self._given)
        return self._steps(Told(resume.supersteps, resume.edges) if resume else Told(0, 0))

    def _steps(self, begun: Told) -> Parts:
        told = [begun]
        while told[0].found is None:
            most = yield told[0].supersteps, told[0].edges
            told = self._call("step", self._number, most)
        self.shared.graph.permutation = VertexPermutation(host_backend(), told[0].ids)
        parts = [each.found for each in told if each.found is not None]
        values, edge_values = by_position([each.values for each in parts]), None
        if parts[0].edge_values is not None:
            of_all = zip(*(each.edge_values for each in parts), strict=True)
            edge_values = EdgeValues(*map(np.concatenate, of_all))
        return parts[0]._replace(values=values, edge_values=edge_values)

    def state(self, note: Mapping[str, float] | None = None) -> SavedRun:
        """See ProgramRun."""
        saved: SavedRun = self._call("state", self._number)[0]
        return replace(saved, note=note or {})

    def hash(self, seconds: float) -> bool:  # noqa: ARG002
        """True: the shards do it when the first state is asked for."""
        return True

    def answer(self) -> Answer:
        """See ProgramRun. No run continues from it."""
        answer = super().answer()
        answer.since.stale = True
        return answer

    def close(self) -> None:
        super().close()
        with suppress(ShardLost):
            self._call("close", self._number)


class ShardedPrograms(Programs):
    """See Programs: of vertex programs in synchronous mode, and of algorithms `in_shards`. A run
    with an earlier answer begins again, and limits of memory are those of each shard.
    """

    def __init__(
        self,
        graph: DynamicGraph,
        ids: Callable[[], VertexIds],
        call: Callable[..., list[Any]],
        numbers: Callable[[], int],
    ) -> None:
        """graph    without vertices, in this process
        ids      which ids are vertices
        call     calls a method of all ShardRuns
        numbers  gives new ones
        """
        super().__init__(graph)
        self._known_ids, self._call, self._new_number = ids, call, numbers

    @property
    def _ids(self) -> VertexIds:
        return self._known_ids()

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
        alone: bool = False,  # noqa: ARG002
    ) -> ShardedRun:
        """See Programs.begin. Raises ShardLost too."""
        program, parameters, by_mode = self._resolved(program, after, mode, given or {}, resume)
        if isinstance(program, Algorithm) and not program.in_shards:
            raise InvalidValue("program", program.name, f"{_IN_SHARDS} on a graph in shards")
        if by_mode == "asynchronous":
            raise InvalidValue("mode", mode, "'synchronous' on a graph in shards")
        if after is not None:
            self._continues(program, parameters, after)
        work = Work(
            SharedGraph(self._graph),
            *(program, parameters, order, by_mode),
            *(self._timer, self._answers, limits.supersteps),
        )
        number = self._new_number()
        sent = program.name if PROGRAMS.get(program.name) is program else program
        try:
            begun = (sent, by_mode, parameters, order, resume, limits)
            return ShardedRun(self._call, number, work, resume, *begun)
        except BaseException:
            with suppress(Exception):  # what shards have begun
                self._call("close", number)
            raise


_IN_SHARDS = "a VertexProgram, or one of " + ", ".join(
    name for name, each in PROGRAMS.items() if isinstance(each, VertexProgram) or each.in_shards
)
