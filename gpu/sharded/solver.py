"""How the shards solve: as one device does, but the residual is never recomputed in parts."""

from __future__ import annotations

from gpu.pagerank.global_iterate import GlobalIterate
from gpu.pagerank.published import PublishedSolver
from gpu.pagerank.push import push_to_target
from gpu.pagerank.settle import settle_places
from gpu.pagerank.solver import USELESS_BOUND, AcceleratedSolver
from gpu.pagerank.strategies import Solved, Strategy
from gpu.pagerank.sweeps import sweep_to_target
from gpu.sharded.own_vertices import OwnVertices
from gpu.types import Form


class ShardSolver(AcceleratedSolver):
    """See AcceleratedSolver."""

    def __init__(
        self, iterate: GlobalIterate, vertices: OwnVertices, strategy: Strategy, settle: int
    ) -> None:
        super().__init__(iterate, strategy, settle)
        self._vertices = vertices

    def solve_residual(self) -> Solved:
        iterate, settle = self._iterate, self._settle
        if iterate.stale:
            iterate.recompute_residual()
        iterate.workspace.residual.solve += 1
        rounds, touched, most = 0, 0, iterate.options.max_iterations
        if iterate.error_bound > USELESS_BOUND:
            swept = sweep_to_target(iterate, most, from_nothing=True)
        else:
            rounds, touched = push_to_target(iterate)
            swept = sweep_to_target(iterate, most - rounds)
        if swept.sweeps:
            touched = iterate.graph.ids.count
        solved = Solved(rounds + swept.sweeps, touched, swept.converged)
        return settle_places(iterate, solved, settle, self._vertices) if settle else solved


def shard_solver(
    iterate: GlobalIterate,
    vertices: OwnVertices,
    strategy: Strategy,
    form: Form,
    traced: bool,
    settle: int,
) -> ShardSolver | PublishedSolver:
    """What runs a strategy: see gpu.pagerank.solver.solver_of."""
    iterate.trace = [] if traced else None
    if form == "published":
        return PublishedSolver(iterate, strategy)
    return ShardSolver(iterate, vertices, strategy, settle)
