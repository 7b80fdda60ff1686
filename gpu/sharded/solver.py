"""How the shards solve: as one device does, but the residual is never recomputed in parts."""

from __future__ import annotations

from gpu.pagerank.global_iterate import GlobalIterate
from gpu.pagerank.published import PublishedSolver
from gpu.pagerank.settle import settle_places
from gpu.pagerank.solver import AcceleratedSolver
from gpu.pagerank.strategies import Solve, Solved, Strategy
from gpu.sharded.own_vertices import OwnVertices
from gpu.types import Form


class ShardSolver(AcceleratedSolver):
    """See AcceleratedSolver."""

    def __init__(
        self, iterate: GlobalIterate, vertices: OwnVertices, strategy: Strategy, asked: Solve
    ) -> None:
        super().__init__(iterate, strategy, asked)
        self._vertices = vertices

    def _update_residual(self) -> None:
        if self._iterate.stale:
            self._iterate.recompute_residual()

    def _settled(self, solved: Solved) -> Solved:
        k, target = self._asked.settle, self._asked.target
        return settle_places(self._iterate, solved, k, target, self._vertices)


def shard_solver(
    iterate: GlobalIterate, vertices: OwnVertices, strategy: Strategy, form: Form, asked: Solve
) -> ShardSolver | PublishedSolver:
    """What runs a strategy: see gpu.pagerank.solver.solver_of."""
    iterate.trace = [] if asked.trace else None
    if form == "published":
        return PublishedSolver(iterate, strategy)
    return ShardSolver(iterate, vertices, strategy, asked)
