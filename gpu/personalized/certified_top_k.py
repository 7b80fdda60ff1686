"""The first places of a personalized query, and how many of them are certified.

With ``M = (I - αP̄ᵀ)⁻¹`` the solution is y* = y + M·r. M is not negative, so what r⁺ adds and what
r⁻ subtracts bound y* from both sides. What residual mass Σ at other vertices can add to vertex v is
at most α·N_v·Σ: it takes a step to get there, and returns to v at most N_v - 1 times,

    N_v = 1 / (1 - αℓ/d - α²(1 - ℓ/d)),   1 where v dangles,

ℓ = 1 where v has a loop and d its out-degree: the loop is a return in one step, all else takes two.
So

    y_v - N_v·(r⁻_v + α(Σr⁻ - r⁻_v))  ≤  y*_v  ≤  y_v + N_v·(r⁺_v + α(Σr⁺ - r⁺_v)).

The order of y* is that of the ranks. Place i is certified, and all before it, if its lower bound is
above the upper bounds of all vertices behind it. Equal ranks never are. In the same way the first i
places are a certified set, in any order, if the least of their lower bounds is above those.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.operations.device import Array
from gpu.operations.select import residual_bound
from gpu.pagerank.places import ProvenPlaces, without
from gpu.personalized.iterate import PersonalizedIterate
from gpu.personalized.vertices import LeadingEntries
from gpu.types import Ranking


@dataclass(frozen=True, slots=True)
class CertifiedTopK:
    """The first places of an iterate.

    vertices   int64[k], ids, largest y first, ties by id
    values     float64[k], y
    proven     what is proven about these places
    sufficient_residual  about what ‖r‖₁ has to fall to for all k to be certified, if the gaps
                         between them stay: bounds are as wide as ‖r‖₁ is large
    """

    vertices: NDArray[np.int64]
    values: Ranking
    proven: ProvenPlaces
    sufficient_residual: float


def certified_top_k(
    iterate: PersonalizedIterate, k: int, among: NDArray[np.int64] | None = None
) -> CertifiedTopK:
    """The first k places, or all if there are fewer.

    among  int64[a], distinct ids, ascending: only these have places; None for all vertices
    """
    graph, found = iterate.graph, iterate.vertices
    certificate, damping = iterate.certificate, iterate.options.damping
    # the vertices that are looked at, by ascending id: all, those touched, or those asked for
    chosen, count = iterate.touched, graph.ids.count
    if among is not None:
        (chosen, _), count = found.rows_of(among), len(among)
    elif chosen is not None and len(graph.free):
        chosen = chosen[~graph.backend.xp.isin(chosen, graph.free)]
    values, residuals = iterate.workspace.values, iterate.workspace.residual.values
    if chosen is not None:
        values, residuals = values[chosen], residuals[chosen]
    l1, total = certificate.residual_l1, certificate.residual_sum
    positive = 0.5 * (l1 + total) + certificate.uncertainty
    negative = 0.5 * (l1 - total) + certificate.uncertainty
    wanted = min(k + 1, count)
    own = _leading_entries(iterate, chosen, values, residuals, wanted)
    best = found.merged(own, wanted)
    if len(best.values) == 0:
        nothing = ProvenPlaces(0, True, ())
        return CertifiedTopK(np.empty(0, np.int64), np.empty(0), nothing, float(l1))
    vertices, best_values = best.vertices, best.values
    kind = (best.degree, best.loop, damping)
    upper = best_values + residual_bound(np, best.residuals, *kind, positive)
    lower = best_values - residual_bound(np, -best.residuals, *kind, negative)
    others, last = -np.inf, float(best_values[-1])
    (looked_at,) = found.sums([len(values)])
    if len(best_values) < looked_at:
        # includes the last of the best, which is behind all other places anyhow
        if (own.values <= last).any():
            others = graph.backend.select.highest_bound(
                graph.view, chosen, values, residuals, damping, positive, last
            )
        others = found.highest(others)
    if looked_at < count:
        others = max(others, damping * positive / (1.0 - damping))
    behind = np.maximum.accumulate(np.append(upper, others)[::-1])[::-1][1:]
    boundaries = (np.minimum.accumulate(lower) > behind)[:k]
    gaps = (best_values - np.append(best_values[1:], 0.0))[:k]
    widths = np.maximum(gaps + (behind - lower)[:k], gaps)
    narrowest = float(np.min(gaps / np.maximum(widths, np.finfo(float).tiny), initial=1.0))

    vertices, best_values = vertices[:k], best_values[:k]
    missing = min(k, count) - len(vertices)
    if missing > 0:
        # no other vertex was reached: ranks of 0, in the order of ids
        most = len(vertices) + missing + graph.ids.free_count
        some = np.arange(min(graph.ids.limit, most))
        rest = some[~(np.isin(some, vertices) | graph.ids.is_free(some))][:missing]
        vertices = np.concatenate([vertices, rest])
        best_values = np.concatenate([best_values, np.zeros(missing)])
        boundaries = np.append(boundaries, np.zeros(missing, np.bool_))
        # there is nothing behind the last of all
        boundaries[-1] = len(vertices) == count
    return CertifiedTopK(vertices, best_values, ProvenPlaces.of(boundaries), float(l1) * narrowest)


def _leading_entries(
    iterate: PersonalizedIterate, chosen: Array | None, values: Array, residuals: Array, most: int
) -> LeadingEntries:
    """The entries with the largest y that are here, at most so many.

    chosen             int32[c], rows by ascending id; None for all
    values, residuals  y and r there
    """
    graph, found, device = iterate.graph, iterate.vertices, iterate.graph.backend.device
    if chosen is None:
        with without(values, graph.free):
            vertices, best = found.top_k(values, min(most, len(values) - len(graph.free)))
        places = rows = found.rows_of(vertices)[0]
    else:
        indices, best = graph.backend.select.top_k(values, min(most, len(values)))
        places = device.to_device(indices)
        rows = chosen[places]
        vertices = found.ids_of(rows)
    columns = (residuals[places], graph.degree[rows], graph.loop[rows])
    return LeadingEntries(vertices, best, *map(device.to_host, columns))


def proven_by_gaps(best: Ranking, solution_error: float, k: int) -> ProvenPlaces:
    """What is proven about the first k places if only the size of the error is known.

    best            float64[…], the largest y, descending: k + 1 of them, or all there are
    solution_error  ‖y* - y‖₁ at most: no two entries come closer by more
    """
    boundaries = best[:-1] - best[1:] > solution_error
    if 0 < len(best) <= k:
        # there is nothing behind the last
        boundaries = np.append(boundaries, True)
    return ProvenPlaces.of(boundaries[:k])
