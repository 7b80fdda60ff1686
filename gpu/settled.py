"""The first places of a personalized walk, and how many of them are proven.

With ``M = (I - αP̄ᵀ)⁻¹`` the solution is y* = y + M r. M is not negative, so what r⁺ adds and what
r⁻ takes bound y* from both sides. What mass Σ at other vertices can add to vertex v is at most
α·N_v·Σ: it has to make a step to get there, and from there it comes back N_v - 1 times at most,

    N_v = 1 / (1 - αℓ/d - α²(1 - ℓ/d)),   1 where v dangles,

ℓ = 1 where v has a loop and d its degree: the loop is a return in one step, all else takes two. So

    y_v - N_v·(r⁻_v + α(Σr⁻ - r⁻_v))  ≤  y*_v  ≤  y_v + N_v·(r⁺_v + α(Σr⁺ - r⁺_v)).

The order of y* is that of the ranks. Place i is settled, and all before it, where its lower bound
is above the upper bounds of all vertices behind it; equal ranks never are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.backends.base import reach
from gpu.types import Ranking
from gpu.walk import Walk


@dataclass(frozen=True, slots=True)
class Leading:
    """The first places of a walk.

    vertices  int64[k], ids, the largest y first, equal ones by id
    values    float64[k], y
    settled   how many of the first places are proven
    enough    about what ‖r‖₁ has to come down to for all k to be proven, if the gaps between them
              stay as they are: bounds are as wide as ‖r‖₁ is large
    """

    vertices: NDArray[np.int64]
    values: Ranking
    settled: int
    enough: float


def leading(walk: Walk, k: int) -> Leading:
    """The first k places, or all n where there are fewer."""
    graph, backend, damping = walk.graph, walk.graph.backend, walk.options.damping
    touched = walk.touched
    values, residuals = walk.space.values, walk.space.residual.values
    if touched is not None:
        values, residuals = values[touched], residuals[touched]
    rising = 0.5 * (walk.l1 + walk.sum) + walk.uncertainty
    falling = 0.5 * (walk.l1 - walk.sum) + walk.uncertainty
    places = min(k + 1, len(values))
    if touched is None:
        vertices, best_values = graph.numbering.top_k(values, places)
        best = backend.to_host(graph.numbering.positions_of(vertices)).astype(np.int64)
    else:
        best, best_values = backend.top_k(values, places)
        vertices = graph.numbering.ids_of(touched[backend.to_device(best)])
    on_device = backend.to_device(best)
    at = on_device if touched is None else touched[on_device]
    left, degree, loop = map(
        backend.to_host, (residuals[on_device], graph.degree[at], graph.loop[at])
    )
    best_upper = best_values + reach(np, left, degree, loop, damping, rising)
    best_lower = best_values - reach(np, -left, degree, loop, damping, falling)
    outside = -np.inf
    if places < len(values):
        # of the last of the best too, which comes behind all other places anyhow
        outside = backend.highest_bound(
            graph, touched, values, residuals, damping, rising, float(best_values[-1])
        )
    if len(values) < graph.vertices:
        outside = max(outside, damping * rising / (1.0 - damping))
    behind = np.maximum.accumulate(np.append(best_upper, outside)[::-1])[::-1][1:]
    secure = best_lower > behind
    settled = len(secure) if secure.all() else int(np.argmin(secure))
    gaps = (best_values - np.append(best_values[1:], 0.0))[:k]
    widths = np.maximum(gaps + (behind - best_lower)[:k], gaps)
    enough = walk.l1 * float(np.min(gaps / np.maximum(widths, np.finfo(float).tiny), initial=1.0))

    vertices, best_values = vertices[:k], best_values[:k]
    missing = min(k, graph.vertices) - len(vertices)
    if missing > 0:
        # nothing else was ever reached: ranks of 0, in the order of ids
        some = np.arange(min(graph.vertices, len(vertices) + missing))
        rest = some[~np.isin(some, vertices)][:missing]
        vertices = np.concatenate([vertices, rest])
        best_values = np.concatenate([best_values, np.zeros(missing)])
    return Leading(vertices, best_values, min(settled, k), enough)


def settled_by_gaps(best: Ranking, missing: float, k: int) -> int:
    """How many of the first k places are proven where all that is known is the size of the error.

    best     float64[…], the largest y, falling: k + 1 of them, or all there are
    missing  the most by which two entries of y* can be nearer to each other than those of y: what
             is still to be added and taken away, together
    """
    secure = best[:-1] - best[1:] > missing
    leading_places = len(secure) if secure.all() else int(np.argmin(secure))
    if len(best) <= k and leading_places == len(secure):
        return len(best)
    return min(leading_places, k)
