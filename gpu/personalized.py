"""Personalized PageRank: ranks as seen from a few seeds.

Solves ``y = αP̄ᵀy + (1-α)·s`` with the seeds s summing to 1; ranks are y / Σy. Dangling mass
returns to the seeds (NetworkX's default), which only changes the scale and drops out. y grows from
zero: with the residual ``r ≥ 0`` spread over the in-lists at each sweep, y is a lower bound of the
solution and ``E = Σr / (1-α)`` bounds all that is missing, so the L1 error of the ranks is at most
2E / (Σy + E).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.errors import InvalidValue
from gpu.graph import Graph
from gpu.types import Options, Personalized, Ranking

METHODS = ("hybrid", "pull")
"""``pull``: dense sweeps over the in-lists. ``hybrid``: the cheapest method there is, which today
is ``pull``.
"""


def personalized(
    graph: Graph,
    options: Options,
    seeds: NDArray[np.int64],
    weights: Ranking | None,
    k: int,
    method: str,
    target_error: float | None,
) -> Personalized:
    """See gpu.engine.Engine.personalized."""
    if method not in METHODS:
        raise InvalidValue("method", method, "one of " + ", ".join(METHODS))
    if k < 1:
        raise InvalidValue("k", k, "at least 1")
    target = options.target_error if target_error is None else target_error
    if not 0.0 < target <= 2.0:
        raise InvalidValue("target_error", target, "a number above 0 and at most 2")
    teleport = _teleport(graph, seeds, weights)
    backend, xp, damping = graph.backend, graph.backend.xp, options.damping
    zeros = xp.zeros(graph.vertices)
    degree = xp.maximum(graph.degree, 1)
    leaving = 1.0 - damping * graph.loop / degree
    values = (1.0 - damping) * backend.to_device(teleport) / leaving
    contributions = xp.where(graph.degree > 0, values / degree, 0.0)
    step, new_contributions = xp.empty_like(values), xp.empty_like(values)
    total = float(values.sum())
    # each sweep rounds anew what is left, α to the power of the sweep: (1-α)² instead of the
    # solver's (1-α)
    depth = backend.sum_depth(graph.incoming.longest)
    rounding = 6.0 * (depth + 4.0) * 2.0**-53 / (1.0 - damping) ** 2
    for iteration in range(1, options.max_iterations + 1):  # noqa: B007
        sweep = backend.pull(
            graph,
            graph.incoming.rows,
            zeros,
            contributions,
            0.0,
            damping,
            step,
            new_contributions,
        )
        values += step
        total += sweep.mass.total
        contributions, new_contributions = new_contributions, contributions
        # what the step took into y left its residual, αc; the next sweep's is at most α of it
        missing = damping * sweep.residual_l1 / (1.0 - damping)
        bound = 2.0 * missing / (total + missing) + rounding
        if bound <= target:
            break
    places = min(k + 1, graph.vertices)
    vertices, best = graph.numbering.top_k(values, places)
    return Personalized(
        vertices=vertices[:k],
        ranks=best[:k] / total,
        error_bound=min(2.0, bound),
        settled=_settled(best, missing + rounding * total, k),
        method="pull",
        iterations=iteration,
    )


def _teleport(graph: Graph, seeds: NDArray[np.int64], weights: Ranking | None) -> Ranking:
    """float64[n] by position, the seeds' weights scaled to sum 1."""
    vertices = graph.vertices
    seeds = np.asarray(seeds, np.int64)
    weights = np.ones(len(seeds)) if weights is None else np.asarray(weights, np.float64)
    if len(seeds) == 0:
        raise InvalidValue("seeds", [], "at least one vertex")
    for place, seed in enumerate(seeds.tolist()):
        if not 0 <= seed < vertices:
            raise InvalidValue(f"seeds[{place}]", seed, f"an id below {vertices}")
    if len(weights) != len(seeds):
        raise InvalidValue("weights", f"length {len(weights)}", f"{len(seeds)} long, as seeds")
    for place, weight in enumerate(weights.tolist()):
        if not (np.isfinite(weight) and weight > 0.0):
            raise InvalidValue(f"weights[{place}]", weight, "a finite number above 0")
    teleport = np.zeros(vertices)
    positions = graph.backend.to_host(graph.numbering.positions_of(seeds))
    np.add.at(teleport, positions, weights / weights.sum())
    return teleport


def _settled(best: Ranking, missing: float, k: int) -> int:
    """How many leading places no other vertex can still take: each gap exceeds all that is
    missing.
    """
    secure = best[:-1] - best[1:] > missing
    leading = len(secure) if secure.all() else int(np.argmin(secure))
    everything_listed = len(best) <= k
    return len(best) if everything_listed and leading == len(secure) else min(leading, k)
