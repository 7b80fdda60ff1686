"""Runs a strategy: push and dense sweeps for ``residual``, sweeps for strategies over all vertices,
Jacobi steps for those that follow a frontier.
"""

from __future__ import annotations

import numpy as np

from gpu.operations.device import Array
from gpu.pagerank.frontier import TouchedVertices, solve_affected
from gpu.pagerank.global_iterate import GlobalIterate
from gpu.pagerank.push import push_to_target
from gpu.pagerank.strategies import Solved, Strategy
from gpu.pagerank.sweeps import iterate_to_tolerance, sweep_to_target

_USELESS_BOUND = 0.5
"""An error bound above it means that the old ranks are no better than none."""


def mark_affected(
    iterate: GlobalIterate, strategy: Strategy, touched: TouchedVertices
) -> Array | None:
    """int32[k]: the vertices that the strategy starts from, flagged; None if it needs none."""
    if strategy.affected not in ("reachable", "frontier"):
        return None
    return touched.mark_affected(iterate.graph, strategy, _affected_flags(iterate))


def solve(iterate: GlobalIterate, strategy: Strategy, affected: Array | None) -> Solved:
    """Brings the iterate up to date with the graph, which has at least one vertex.

    affected  from `mark_affected`
    """
    iterate.exclude_free()
    if strategy.affected == "residual":
        return _solve_residual(iterate)
    if affected is None:
        return _solve_all(iterate, strategy)
    return solve_affected(iterate, strategy, affected, _affected_flags(iterate))


def _affected_flags(iterate: GlobalIterate) -> Array:
    return iterate.scratch("affected", np.int32)


def _solve_residual(iterate: GlobalIterate) -> Solved:
    """Pushes while that is cheap, then sweeps, until the bound meets the target."""
    if iterate.stale:
        iterate.recompute_residual()
    else:
        iterate.recompute_slice()
    iterate.workspace.residual.solve += 1
    rounds = vertices = 0
    if iterate.error_bound > _USELESS_BOUND:
        # pushing single vertices would give closed classes a part in the residual
        iterate.reset()
    else:
        rounds, vertices = push_to_target(iterate)
    swept = sweep_to_target(iterate, iterate.options.max_iterations - rounds)
    if swept.sweeps:
        vertices = iterate.graph.ids.count
    return Solved(rounds + swept.sweeps, vertices, swept.converged)


def _solve_all(iterate: GlobalIterate, strategy: Strategy) -> Solved:
    """Sweeps over every vertex; the residual that they leave is the certificate."""
    if strategy.start == "uniform":
        iterate.reset()
    elif iterate.stale:
        iterate.recompute_residual()
    swept = iterate_to_tolerance(iterate, iterate.options.max_iterations)
    return Solved(swept.sweeps, iterate.graph.ids.count, swept.converged)
