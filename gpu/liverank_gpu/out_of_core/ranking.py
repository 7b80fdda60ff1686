"""Ranks of edges that arrive in any order, within a memory budget."""

from __future__ import annotations

import time
from dataclasses import dataclass

from liverank_gpu.errors import InvalidValue
from liverank_gpu.out_of_core.budget import vertex_bytes
from liverank_gpu.out_of_core.edges import OutOfCoreEdges
from liverank_gpu.out_of_core.windowed_graph import WindowedGraph
from liverank_gpu.pagerank.gate import passed
from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.pagerank.ranks import Ranks
from liverank_gpu.pagerank.schedule import SWEEP_KINDS
from liverank_gpu.pagerank.strategies import TABLE, Solve, Solved
from liverank_gpu.pagerank.sweeps import iterate_to_tolerance, sweep_to_target
from liverank_gpu.trace import Trace
from liverank_gpu.types import Options, Result

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

    def rank(
        self, vertices: int = 0, solve: Solve | None = None, reserved: int = 0
    ) -> OutOfCoreRanks:
        """The ranks of all edges; to be called once.

        vertices  number of vertices, raised to what the edges need
        solve     the strategy is ``static`` or ``naive-dynamic`` (until no rank moves by more than
                  the tolerance), ``residual`` or ``auto`` (until the bound meets the target)
        reserved  bytes of the budget that the caller uses, for keys

        Raises InvalidValue, which names the least budget that works if this one is too small, and
        for a second call; OutOfMemory if there is less memory than the budget allows; DeviceLost,
        OSError.
        """
        solve = self._checked(solve or Solve())
        options, vertices = self._options, max(vertices, self._spool.vertices)
        each = vertex_bytes(self.backend, options.weighted)
        budget = self._divided(vertices, each, reserved)
        started = time.perf_counter()
        packed = self._packed(vertices, budget)
        pack_seconds = time.perf_counter() - started
        with packed.file, self.backend.device.detecting_loss():
            graph = self._windowed(packed, each, budget, "ranking")
            del packed  # its arrays are on the device
            return rank_windowed(graph, options, solve, pack_seconds)

    def _checked(self, solve: Solve) -> Solve:
        solve = solve.checked(self._options)
        if solve.strategy not in _STRATEGIES:
            requirement = "one of " + ", ".join(_STRATEGIES) + " for a graph out of core"
            raise InvalidValue("strategy", solve.strategy, requirement)
        if solve.form != "accelerated":
            raise InvalidValue("form", solve.form, "'accelerated' for a graph out of core")
        if solve.settle:
            raise InvalidValue("settle", solve.settle, "0 for a graph out of core")
        return solve


def rank_windowed(
    graph: WindowedGraph, options: Options, solve: Solve, pack_seconds: float = 0.0
) -> OutOfCoreRanks:
    """The ranks of a graph, whose stream is closed.

    solve  checked, of one of the strategies that OutOfCoreRanking.rank names

    Raises OutOfMemory, OSError.
    """
    started = time.perf_counter()
    stream = graph.stream
    try:
        iterate = GlobalIterate(graph, options)
        iterate.trace = [] if solve.trace else None
        iterate.workspace.extend(graph.vertices)
        solved, error_bound = passed(iterate, _solve(iterate, solve.strategy))
    finally:
        stream.close()
    trace = None
    if iterate.trace is not None:
        trace = Trace.of(graph.vertices, solved.iterations, iterate.trace)
    result = Result(
        solve.strategy,
        solved.iterations,
        graph.vertices,
        error_bound,
        solved.converged,
        mark_seconds=0.0,
        solve_seconds=time.perf_counter() - started,
        trace=trace,
        **solved.outcome,
    )
    mass, xp = float(iterate.certificate.mass), graph.backend.xp
    values = xp.maximum(iterate.values, 0.0, out=iterate.values)  # as Engine.publish
    return OutOfCoreRanks(
        Ranks(graph.backend, graph.permutation, values, mass, error_bound, graph.free),
        result,
        graph.edges,
        len(stream.windows),
        stream.passes,
        stream.bytes_loaded,
        stream.in_memory,
        pack_seconds,
    )


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
