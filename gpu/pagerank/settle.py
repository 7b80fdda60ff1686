"""Solves that go on until the first places are proven (gpu.pagerank.first_places)."""

from __future__ import annotations

from dataclasses import replace

from gpu.pagerank.first_places import FirstPlaces
from gpu.pagerank.global_iterate import GlobalIterate
from gpu.pagerank.places import SettledTarget
from gpu.pagerank.strategies import Solved
from gpu.pagerank.sweeps import sweep_to_target
from gpu.pagerank.vertices import GraphVertices

_GAP_PART = 0.5
"""What the next bound is of the smallest gap that is not proven: the ranks still move."""

_LEAST_STEP, _MOST_STEP = 0.5, 1e-2
"""The next bound is between these parts of the last one: gaps that are seen early are rough."""


def settle_places(
    iterate: GlobalIterate,
    solved: Solved,
    k: int,
    target: SettledTarget,
    vertices: GraphVertices | None = None,
) -> Solved:
    """Sweeps on, after a solve, until the target is proven of the first k places, rounding limits
    the bound, or there are no more sweeps.

    vertices  of the graph; by default those of a graph on one device

    Equal ranks are proven to be if their vertices have identical in-lists, and never for other
    reasons. Returns all that was done, with what is proven of the first places, and ties among
    them; it converged if the target is.
    """
    options, iterations, touched = iterate.options, solved.iterations, solved.touched_vertices
    vertices = vertices or GraphVertices(iterate.graph)
    goes_on = True
    while True:
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
    return Solved(iterations, touched, met, places.proven, places.ties)


def _next_bound(open_gap: float, bound: float) -> float:
    """An error bound that may prove more."""
    return min(max(_GAP_PART * open_gap, _MOST_STEP * bound), _LEAST_STEP * bound)
