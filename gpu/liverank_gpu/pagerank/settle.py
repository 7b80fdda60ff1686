"""Solves that go on until the first places are proven (liverank_gpu.pagerank.first_places)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from liverank_gpu.pagerank.first_places import FirstPlaces
from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.pagerank.places import ProvenPlaces, SettledTarget
from liverank_gpu.pagerank.strategies import Solved
from liverank_gpu.pagerank.sweeps import sweep_to_target
from liverank_gpu.pagerank.vertices import GraphVertices
from liverank_gpu.types import LARGEST_ERROR

_GAP_PART = 0.5
"""What the next bound is of the smallest gap that is not proven: the ranks still move."""

_LEAST_STEP, _MOST_STEP = 0.5, 1e-2
"""The next bound is between these parts of the last one: gaps that are seen early are rough."""


def settle_places(
    iterate: GlobalIterate,
    solved: Solved,
    k: int,
    target: SettledTarget,
    vertices: GraphVertices,
    goes_on: bool = True,
) -> Solved:
    """Sweeps on, after a solve, until the target is proven of the first k places, rounding limits
    the bound, or there are no more sweeps.

    vertices  of the graph, or of a shard
    goes_on   whether there may be sweeps, and not only what is proven now

    Equal ranks are proven to be if their vertices have identical in-lists, and never for other
    reasons. Returns all that was done, with what is proven of the first places, and ties among
    them; it converged if the target is.
    """
    options, iterations, touched = iterate.options, solved.iterations, solved.touched_vertices
    while True:
        if not iterate.certificate.mass > 0.0:
            # no ranks, and no order of them: liverank_gpu.pagerank.gate replaces them
            none = ProvenPlaces.of(np.zeros(min(k, iterate.graph.ids.count), np.bool_))
            return replace(solved, iterations=iterations, converged=False, proven=none)
        places = FirstPlaces.of(iterate, vertices, k, target)
        met = places.proven.meet(target)
        bound, sweeps_left = iterate.error_bound, options.max_iterations - iterations
        next_bound = _next_bound(places.open_gap, bound)
        if met or not goes_on or sweeps_left <= 0 or next_bound >= bound:
            break
        iterate.options = replace(options, target_error=next_bound)
        try:
            swept = sweep_to_target(iterate, sweeps_left)
        finally:
            iterate.options = options
        iterations += swept.sweeps
        touched = iterate.graph.ids.count
        goes_on = swept.converged
    return replace(
        solved,
        iterations=iterations,
        touched_vertices=touched,
        converged=met,
        proven=places.proven,
        ties=places.ties,
    )


def _next_bound(open_gap: float, bound: float) -> float:
    """An error bound that may prove more. `bound` is not capped, as what is to fall."""
    following = min(max(_GAP_PART * open_gap, _MOST_STEP * bound), _LEAST_STEP * bound)
    return min(following, LARGEST_ERROR)
