"""How the shards solve: as one device does, but the residual is never recomputed in parts."""

from __future__ import annotations

from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.pagerank.published import PublishedSolver
from liverank_gpu.pagerank.solver import AcceleratedSolver
from liverank_gpu.pagerank.strategies import Solve, Strategy
from liverank_gpu.sharded.own_vertices import OwnVertices
from liverank_gpu.types import Form


class ShardSolver(AcceleratedSolver):
    """See AcceleratedSolver."""

    def _update_residual(self) -> None:
        if self._iterate.stale:
            self._iterate.recompute_residual()


def shard_solver(
    iterate: GlobalIterate, vertices: OwnVertices, strategy: Strategy, form: Form, asked: Solve
) -> ShardSolver | PublishedSolver:
    """What runs a strategy: see liverank_gpu.pagerank.solver.solver_of."""
    iterate.trace = [] if asked.trace else None
    if form == "published":
        return PublishedSolver(iterate, strategy)
    return ShardSolver(iterate, strategy, asked, vertices)
