"""Ranks of edges that arrive in any order, within a memory budget."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends import backend_named
from liverank_gpu.errors import InvalidValue
from liverank_gpu.graph.packed_csr import slot_bytes
from liverank_gpu.graph.vertices import VertexIds
from liverank_gpu.operations.backend import DEFAULT_SIZES, Backend
from liverank_gpu.operations.csr import ALIGNMENT, loop_dtype, strength_dtype
from liverank_gpu.out_of_core.spool import EdgeSpool, PackedEdges
from liverank_gpu.out_of_core.windows import WindowedGraph
from liverank_gpu.pagerank.gate import passed
from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.pagerank.iterate import workspace_bytes
from liverank_gpu.pagerank.ranks import Ranks
from liverank_gpu.pagerank.strategies import TABLE, Solve, Solved
from liverank_gpu.pagerank.sweeps import SWEEP_KINDS, iterate_to_tolerance, sweep_to_target
from liverank_gpu.personalized.iterate import WorkspacePool
from liverank_gpu.personalized.query import Query, QueryContext, no_deflation
from liverank_gpu.personalized.resolve import ResolvedView
from liverank_gpu.types import BackendName, Options, Result, Trace, ViewQuery

# ---- what a budget is spent on, in bytes ----
#
#     keys of the caller | arrays over the vertices | two or three buffers of in-lists, and
#     temporary arrays over one of them
#
# While the file is prepared, the part of the buffers sorts edges, a bucket at a time, and the
# arrays over the vertices are fewer than later.

_ROW_BYTES = 8 + 4 + 4 + 4
"""Start and length of a row, its place in the order of rows, and the position of an id."""

_ID_BYTES = 4
"""The id at a position."""

_PROGRAM_BYTES = 2 * 4 + 4 + 4 + 1 + 4 + 1 + 1
"""Steps, read and written; the list of the vertices that are active first; ids; which are absent;
the order of all rows, and their bins; and the blocks of the sources of each window.
"""

_PASS_BYTES = 16
"""Temporary arrays of a pass over all vertices, for each of them."""

_MOST_SLOTS = 1 << 26
"""Of one buffer: larger ones do not make transfers faster."""


def vertex_bytes(backend: Backend, weighted: bool = False) -> int:
    """Bytes of all arrays over the vertices, for each vertex."""
    quantized = np.dtype(backend.sweeps.contribution_dtype).itemsize
    # y, r, marks, the candidate list (an eighth of 4 bytes), and contributions, exact and quantized
    iterate = 8 + 8 + 4 + 1 + 8 + 2 * quantized
    kept = sum(np.dtype(of(weighted)).itemsize for of in (strength_dtype, loop_dtype))
    return kept + _ROW_BYTES + _ID_BYTES + iterate + _PASS_BYTES


def view_bytes(backend: Backend) -> int:
    """Bytes that a view takes more, for each vertex: its buffers of contributions have room for an
    eighth more.
    """
    return -(-2 * np.dtype(backend.sweeps.contribution_dtype).itemsize // 8)


SEED_BYTES = 8 + 8 + 4 + 8
"""Of each seed of a view: its id and weight on the host, its position and weight on the device."""


def program_bytes(backend: Backend, value_bytes: int, weighted: bool) -> int:
    """Bytes of all arrays over the vertices while a program runs, for each vertex.

    value_bytes  of one of its values
    """
    kept = sum(np.dtype(of(weighted)).itemsize for of in (strength_dtype, loop_dtype))
    # which the host keeps for the next program: lengths of both lists, ids, loops, sums of weights
    packed = 4 + 4 + _ID_BYTES + np.dtype(loop_dtype(weighted)).itemsize + (8 if weighted else 0)
    return (
        2 * value_bytes
        + _PROGRAM_BYTES
        + kept
        + (packed if backend.name != "cuda" else 0)
        + _ROW_BYTES
        + _PASS_BYTES
    )


def algorithm_bytes(backend: Backend, weighted: bool) -> int:
    """The same while an algorithm runs, which may have packed the edges again."""
    # lengths of both lists, and loops
    repacked = 4 + 4 + np.dtype(loop_dtype(False)).itemsize
    return program_bytes(backend, 8, weighted) + (repacked if backend.name != "cuda" else 0)


def sort_bytes(weighted: bool) -> int:
    """For each edge or row of a bucket that is sorted and packed, at most: keys and weights, their
    copies, and slots for as many rows.
    """
    return 48 if weighted else 32


@dataclass(frozen=True, slots=True)
class Budget:
    """How a budget is divided for one graph. Raises InvalidValue, which names the least budget that
    works, if it is too small.

    memory     the budget, in bytes
    vertices   of the graph
    each       bytes of all arrays over the vertices, for each of them
    longest    upper bound on the length of an in-list, repeats of edges included
    reserved   bytes of the caller's own arrays, of keys
    weighted   whether edges have weights
    buffers    how many there are
    temporary  bytes of temporary arrays for each slot of a window
    least      bytes of the buffers, at least
    """

    memory: int
    vertices: int
    each: int
    longest: int
    reserved: int = 0
    weighted: bool = False
    buffers: int = 2
    temporary: int = 0
    least: int = DEFAULT_SIZES.least_stream

    def __post_init__(self) -> None:
        window = self.slot_bytes * (self.longest + ALIGNMENT)
        row = max(sort_bytes(self.weighted) * self.longest, window, self.least)
        if self.streamed < row:
            raise InvalidValue(
                "memory",
                self.memory,
                f"at least {self.values + row:,} bytes: {self.values:,} for {self.vertices:,} "
                f"vertices and their keys, {row:,} to stream their edges",
            )

    def of_others(self, longest: int, buffers: int) -> Budget:
        """The same for other edges of these vertices, without weights. Raises InvalidValue."""
        return replace(self, longest=longest, weighted=False, buffers=buffers)

    @property
    def values(self) -> int:
        """Bytes of keys and of all arrays over the vertices."""
        return self.reserved + self.vertices * self.each + workspace_bytes(0)

    @property
    def streamed(self) -> int:
        """Bytes left for the buffers, or for a bucket to be sorted."""
        return self.memory - self.values

    @property
    def bucket_edges(self) -> int:
        """Edges, and rows, that are sorted at once."""
        return self.streamed // sort_bytes(self.weighted)

    @property
    def slot_bytes(self) -> int:
        """Bytes for each slot of a window, those of all buffers together."""
        return self.buffers * slot_bytes(self.weighted) + self.temporary

    @property
    def window_slots(self) -> int:
        """Slots, and rows, of one buffer at most."""
        return min(self.streamed // self.slot_bytes, _MOST_SLOTS)


# ---- edges that arrive in any order, and what becomes of them within a memory budget ----


class OutOfCoreEdges:
    """Gathers edges in a file. To be used in a ``with`` statement, or closed; its files have no
    names, so nothing remains of them.

    The budget bounds the arrays of the graph, where the backend computes: values of vertices and
    windows of in-lists, and the edges that are sorted on the host before. On ``cuda`` in-lists are
    kept in page-locked memory of the host if it has room, beside the budget.
    """

    def __init__(
        self,
        memory: int,
        options: Options | None = None,
        backend: BackendName | Backend = "auto",
        scratch: Path | None = None,
    ) -> None:
        """memory   the budget, in bytes
        options  without ``half_life``
        backend  its name, or the backend itself
        scratch  folder for files: 16 bytes an edge at most, 24 if it has a weight, twice that for
                 an undirected graph; None for the system's folder of temporary files

        Raises InvalidValue, BackendUnavailable, OSError.
        """
        self._options = options = options or Options()
        if isinstance(memory, bool) or not isinstance(memory, int) or memory < 1:
            raise InvalidValue("memory", memory, "a number of bytes, at least 1")
        if options.decays:
            raise InvalidValue("half_life", options.half_life, "None for a graph out of core")
        self._memory, self._scratch = memory, scratch
        self.backend = backend if isinstance(backend, Backend) else backend_named(backend)
        self._spool = EdgeSpool(
            scratch, options.directed, options.weighted, sizes=self.backend.sizes
        )

    @property
    def added(self) -> int:
        """Number of edges that were added, repeats included."""
        return self._spool.added

    def add(
        self,
        sources: NDArray[np.integer[Any]],
        targets: NDArray[np.integer[Any]],
        weights: NDArray[Any] | None = None,
    ) -> None:
        """Adds edges: ids from 0 to 2³¹-2, integer[k] each. Repeats are one edge, with the weight
        of the last one.

        weights  number[k], as those of an EdgeBatch, of a weighted graph; None: all are 1

        Raises InvalidValue, OSError.
        """
        self._spool.add(sources, targets, weights)

    def _divided(self, vertices: int, each: int, reserved: int, temporary: int = 0) -> Budget:
        """The budget with `each` bytes for a vertex. Raises InvalidValue.

        temporary  see Budget
        """
        if vertices == 0:
            raise InvalidValue("vertices", vertices, "at least 1")
        longest, weighted = self._spool.longest, self._options.weighted
        asked = (self._memory, vertices, each, longest, reserved, weighted)
        return Budget(*asked, temporary=temporary, least=self.backend.sizes.least_stream)

    def _packed(self, vertices: int, budget: Budget) -> PackedEdges:
        """See EdgeSpool.pack."""
        fixed_loops, order = self._options.dangling == "self-loop", self._options.vertex_order
        return self._spool.pack(vertices, budget.bucket_edges, fixed_loops, order)

    def _require(self, packed: PackedEdges, budget: Budget, doing: str) -> None:
        """Raises OutOfMemory if there is less memory than the budget allows.

        doing  to the vertices, in messages
        """
        vertices, slots = budget.vertices, min(budget.window_slots, packed.slots)
        needed = vertices * budget.each + budget.slot_bytes * slots
        self.backend.device.require(f"{doing} {vertices:,} vertices out of core", needed)

    def close(self) -> None:
        """Frees the files."""
        self._spool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---- ranks of edges that arrive in any order, within a memory budget ----

_STRATEGIES = tuple(name for name, row in TABLE.items() if row.affected in ("all", "residual"))


@dataclass(frozen=True, slots=True)
class OutOfCoreRanks:
    """The ranks of a graph whose edges were streamed.

    ranks         the ranks
    result        what the solve did; its error bound is of a residual that was computed from the
                  final ranks in float64, by a pass over all edges
    edges         number of edges, without repeats
    windows       number of intervals of vertices
    passes        passes over all edges: the sweeps, one for the certificate, and one before them
                  unless they start from in-degrees
    bytes_loaded  bytes of in-lists that were read from the file, or copied to the device
    in_memory     whether the in-lists were in page-locked memory of the host
    pack_seconds  time to sort the edges
    """

    ranks: Ranks
    result: Result
    edges: int
    windows: int
    passes: int
    bytes_loaded: int
    in_memory: bool
    pack_seconds: float


class OutOfCoreRanking(OutOfCoreEdges):
    """Ranks edges that arrive in any order. A form other than ``accelerated`` is not run."""

    def __init__(
        self,
        memory: int,
        options: Options | None = None,
        backend: BackendName | Backend = "auto",
        scratch: Path | None = None,
        view: ViewQuery | None = None,
    ) -> None:
        """view    what to rank for in place of all vertices alike: its teleport distribution,
                damping, target error and direction; its `refresh` has no meaning here
        others  see OutOfCoreEdges

        Raises InvalidValue, BackendUnavailable, OSError.
        """
        # before there is a file
        if view is not None and view.within is not None:
            given = f"{len(view.within)} vertices"
            raise InvalidValue("within", given, "left out for a graph out of core")
        self._reversed = view is not None and ResolvedView.check(options or Options(), view)
        self._view = view
        super().__init__(memory, options, backend, scratch)

    def add(
        self,
        sources: NDArray[np.integer[Any]],
        targets: NDArray[np.integer[Any]],
        weights: NDArray[Any] | None = None,
    ) -> None:
        ends = (targets, sources) if self._reversed else (sources, targets)
        super().add(*ends, weights)

    def rank(
        self,
        vertices: int = 0,
        solve: Solve | None = None,
        reserved: int = 0,
        view: ViewQuery | None = None,
    ) -> OutOfCoreRanks:
        """The ranks of all edges; to be called once.

        vertices  number of vertices, raised to what the edges need
        solve     the strategy is ``static`` or ``naive-dynamic`` (until no rank moves by more than
                  the tolerance), ``residual`` or ``auto`` (until the bound meets the target)
        reserved  bytes of the budget that the caller uses, for keys
        view      in place of that of before, of its direction: where seeds are known by then alone

        Raises InvalidValue, which names the least budget that works if this one is too small, and
        for a second call; OutOfMemory if there is less memory than the budget allows; DeviceLost,
        OSError.
        """
        self._view = view or self._view
        if view is not None and ResolvedView.check(self._options, view) != self._reversed:
            raise InvalidValue("direction", view.direction, "that of the edges that were added")
        solve = self._checked(solve or Solve())
        options, vertices = self._options, max(vertices, self._spool.vertices)
        each, asked = vertex_bytes(self.backend, options.weighted), None
        if self._view is not None and vertices:
            asked = ResolvedView.of_view(VertexIds(vertices), options, self._view)
            each += view_bytes(self.backend)
            reserved += SEED_BYTES * len(asked.seeds.vertices)
        budget = self._divided(vertices, each, reserved)
        started = time.perf_counter()
        packed = self._packed(vertices, budget)
        pack_seconds = time.perf_counter() - started
        with packed.file, self.backend.device.detecting_loss():
            self._require(packed, budget, "ranking")
            graph = WindowedGraph(self.backend, packed, budget.window_slots)
            del packed  # its arrays are on the device
            return rank_windowed(graph, options, solve, pack_seconds, asked)

    def _checked(self, solve: Solve) -> Solve:
        solve = solve.checked(self._options)
        if solve.strategy not in _STRATEGIES:
            requirement = "one of " + ", ".join(_STRATEGIES) + " for a graph out of core"
            raise InvalidValue("strategy", solve.strategy, requirement)
        if self._view is not None and TABLE[solve.strategy].affected == "all":
            raise InvalidValue("strategy", solve.strategy, "residual or auto for a view")
        if solve.form != "accelerated":
            raise InvalidValue("form", solve.form, "'accelerated' for a graph out of core")
        if solve.settle:
            raise InvalidValue("settle", solve.settle, "0 for a graph out of core")
        return solve


def rank_windowed(
    graph: WindowedGraph,
    options: Options,
    solve: Solve,
    pack_seconds: float = 0.0,
    view: ResolvedView | None = None,
) -> OutOfCoreRanks:
    """The ranks of a graph, whose stream is closed.

    solve  checked, of one of the strategies that OutOfCoreRanking.rank names
    view   what to rank for; None: all vertices alike

    Raises OutOfMemory, OSError.
    """
    started = time.perf_counter()
    stream = graph.stream
    try:
        if view is None:
            ranks, solved, trace = _ranked(graph, options, solve)
        else:
            ranks, solved, trace = _viewed(graph, view, solve)
    finally:
        stream.close()
    result = Result(
        solve.strategy,
        solved.iterations,
        graph.vertices,
        ranks.error_bound,
        solved.converged,
        mark_seconds=0.0,
        solve_seconds=time.perf_counter() - started,
        trace=trace,
        **solved.outcome,
    )
    return OutOfCoreRanks(
        ranks,
        result,
        graph.edges,
        len(stream.windows),
        stream.passes,
        stream.bytes_loaded,
        stream.in_memory,
        pack_seconds,
    )


def _ranked(
    graph: WindowedGraph, options: Options, solve: Solve
) -> tuple[Ranks, Solved, Trace | None]:
    iterate = GlobalIterate(graph, options)
    iterate.trace = [] if solve.trace else None
    iterate.cover()
    solved, error_bound = passed(iterate, _solve(iterate, solve.strategy))
    trace = None
    if iterate.trace is not None:
        trace = Trace.of(graph.vertices, solved.iterations, iterate.trace)
    mass, xp, free = float(iterate.certificate.mass), graph.backend.xp, graph.free
    values = xp.maximum(iterate.values, 0.0, out=iterate.values)  # as Engine.publish
    bounds = (mass, error_bound)
    return (
        Ranks(graph.backend, graph.permutation, values, *bounds, free, None, iterate.rhs_scale),
        solved,
        trace,
    )


def _viewed(
    graph: WindowedGraph, view: ResolvedView, solve: Solve
) -> tuple[Ranks, Solved, Trace | None]:
    """Sweeps from nothing, as a query that pulls, and a residual that is computed from y."""
    asked = replace(view, method="pull", trace=solve.trace)
    query = Query(QueryContext(WorkspacePool(graph), asked.options, no_deflation), asked)
    iterate, most, before = query.iterate, asked.options.max_iterations, np.inf
    allocate = graph.backend.device.allocate
    while True:
        while not query.done:
            query.step()
        contributions = allocate("contributions", graph.columns, np.float64)
        iterate.recompute_residual(contributions)
        del contributions
        bound = iterate.error_bound
        converged = bound <= asked.target_error
        if converged or query.iterations >= most or bound >= before:
            break
        before = bound
        query.change(asked)
    solved = Solved(query.iterations, graph.vertices, converged, refused=query.refused)
    return query.ranks(), solved, query.trace()


def _solve(iterate: GlobalIterate, strategy: str) -> Solved:
    """Sweeps from nothing, and a residual that is computed from y: the certificate."""
    options, vertices = iterate.options, iterate.graph.vertices
    if TABLE[strategy].affected == "all":
        swept = iterate_to_tolerance(iterate, options.max_iterations, from_nothing=True)
        iterate.recompute_residual()
        return Solved(swept.sweeps, vertices, swept.converged)
    kinds = [kind for kind in SWEEP_KINDS if not kind.accelerated]
    sweeps = 0
    while True:
        most = options.max_iterations - sweeps
        swept = sweep_to_target(iterate, most, kinds, from_nothing=sweeps == 0)
        iterate.recompute_residual()
        sweeps += swept.sweeps
        converged = iterate.error_bound <= options.target_error
        if converged or not swept.converged or sweeps == options.max_iterations:
            return Solved(sweeps, vertices, converged)
