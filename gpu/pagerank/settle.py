"""Solves that go on until the first places are proven (gpu.pagerank.places)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gpu.pagerank.global_iterate import GlobalIterate
from gpu.pagerank.places import proven_descents, settled_places, without
from gpu.pagerank.strategies import Solved
from gpu.pagerank.sweeps import sweep_to_target
from gpu.types import LEAST_SINGLE_ERROR, Ranking

_GAP_PART = 0.5
"""What the next bound is of the smallest gap that is not proven: the ranks still move."""

_LEAST_STEP, _MOST_STEP = 0.5, 1e-2
"""The next bound is between these parts of the last one: gaps that are seen early are rough."""


def settle_places(
    iterate: GlobalIterate,
    solved: Solved,
    k: int,
    first_values: Callable[[int], Ranking] | None = None,
) -> Solved:
    """Sweeps on, after a solve, until the first k places are proven, or rounding limits the bound.

    first_values  the largest y, as many as asked for, descending; by default those of `iterate`
    Places of equal rank never are. Returns all that was done, with the number of first places that
    are proven; it converged if these are k, or all.
    """

    def first_ranks() -> Ranking:
        best = _first_values(iterate, k + 1) if first_values is None else first_values(k + 1)
        return best / float(iterate.certificate.mass)

    options, iterations, touched = iterate.options, solved.iterations, solved.touched_vertices
    least = LEAST_SINGLE_ERROR if options.storage == "float32" else 0.0
    wanted = min(k, iterate.graph.ids.count)
    while True:
        bound = iterate.error_bound
        ranks = first_ranks()
        settled = settled_places(ranks, bound, k)
        target = max(_next_bound(ranks, bound), least)
        sweeps_left = options.max_iterations - iterations
        if settled == wanted or sweeps_left <= 0 or target >= bound:
            break
        iterate.options = replace(options, target_error=target)
        try:
            swept = sweep_to_target(iterate, sweeps_left)
        finally:
            iterate.options = options
        iterations += swept.sweeps
        touched = iterate.graph.ids.count
        if not swept.converged:
            settled = settled_places(first_ranks(), iterate.error_bound, k)
            break
    return Solved(iterations, touched, settled == wanted, settled)


def _first_values(iterate: GlobalIterate, count: int) -> Ranking:
    graph = iterate.graph
    with without(iterate.values, graph.free):
        _, best = graph.permutation.top_k(iterate.values, min(count, graph.ids.count))
    return np.asarray(best, np.float64)


def _next_bound(ranks: Ranking, bound: float) -> float:
    """An error bound that may prove more."""
    gaps = (ranks[:-1] - ranks[1:])[~proven_descents(ranks, bound)]
    smallest = float(gaps.min(initial=np.inf))
    return min(max(_GAP_PART * smallest, _MOST_STEP * bound), _LEAST_STEP * bound)
