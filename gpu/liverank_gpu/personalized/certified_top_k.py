"""The first places of a personalized query, and what is certified of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.graph.ranked_graph import RankedGraph
from liverank_gpu.graph.vertices import NO_IDS
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.select import HighestBound, residual_bound
from liverank_gpu.pagerank.places import (
    BoundedPlaces,
    Entries,
    GraphVertices,
    IdenticalLists,
    ProvenPlaces,
    SettledTarget,
    Tie,
    without,
)
from liverank_gpu.personalized.iterate import PersonalizedIterate, Seeds
from liverank_gpu.types import Ranking

# ---- the ties of personalized queries ----


def _ties_of(
    classes: IdenticalLists,
    vertices: NDArray[np.int64],
    seeds: Seeds,
    among: NDArray[np.int64] | None,
) -> list[Tie]:
    """The ties of a query: vertices with identical in-lists and the same part of the seeds.

    vertices  int64[p], ids at the places
    among     int64[a], ascending: only these vertices have places; None for all
    """
    ties: list[Tie] = []
    labels = classes.labels(vertices)
    listed = np.flatnonzero(labels >= 0)
    listed = listed[np.argsort(labels[listed], kind="stable")]
    present, begins = np.unique(labels[listed], return_index=True)
    if not len(present):
        return ties
    for label, places in zip(present, np.split(listed, begins[1:]), strict=True):
        members = classes.members[label]
        if among is not None:
            members = members[np.isin(members, among, assume_unique=True)]
        weights, held = seeds.weights_at(members), seeds.weights_at(vertices[places])
        for weight in np.unique(held):
            tie = Tie(places[held == weight], members[weights == weight])
            if len(tie.members) > 1:
                ties.append(tie)
    return ties


class Tying(NamedTuple):
    """The places of a query that may tie.

    values       float64[p]: see BoundedPlaces.alike
    highest_but  see BoundedPlaces.with_ties
    """

    places: BoundedPlaces
    values: Ranking
    seeds: Seeds
    among: NDArray[np.int64] | None
    highest_but: Callable[[NDArray[np.int64]], float] | None = None


def with_ties(found: GraphVertices, each: Sequence[Tying]) -> list[BoundedPlaces]:
    """The places of queries with their ties, whose in-lists are compared in one pass."""
    alike = np.unique(np.concatenate([NO_IDS, *(of.places.alike(of.values) for of in each)]))
    if len(alike) == 0:
        return [of.places for of in each]
    classes, tied = found.identical_to(alike), []
    for of in each:
        ties = _ties_of(classes, of.places.vertices, of.seeds, of.among)
        tied.append(of.places.with_ties(ties, of.highest_but))
    return tied


# ---- the first places of a personalized query, and how many of them are certified ----
#
# With ``M = (I - αP̄ᵀ)⁻¹`` the solution is y* = y + M·r. M is not negative, so what r⁺ adds and
# what r⁻ subtracts bound y* from both sides. What residual mass Σ at other vertices can add to
# vertex v is at most α·N_v·Σ: it takes a step to get there, and returns to v at most N_v - 1
# times,
#
#     N_v = 1 / (1 - αℓ/d - α²(1 - ℓ/d)),   1 where v dangles,
#
# ℓ = 1 where v has a loop and d its out-degree: the loop is a return in one step, all else takes
# two. So
#
#     y_v - N_v·(r⁻_v + α(Σr⁻ - r⁻_v))  ≤  y*_v  ≤  y_v + N_v·(r⁺_v + α(Σr⁺ - r⁺_v)).
#
# r is rounded: in L1 it may be off by half the uncertainty U of the certificate. If all that is at
# v, it adds (1 - α)·U/2 there beside α·U/2 for Σr. So Σr⁺ and Σr⁻ are taken larger by max(U,
# U/2α).
#
# The order of y* is that of the ranks. Place i is certified, and all before it, if its lower bound
# is above the upper bounds of all vertices behind it. In the same way the first i places are a
# certified set, in any order, if the least of their lower bounds is above those. Ranks that are
# equal because their vertices have identical in-lists are certified ties
# (liverank_gpu.pagerank.places); the in-lists of vertices whose places are undecided, and
# whose values agree, are compared for that.


_OTHERS = 3
"""Of fewer than this part of all vertices the entries are always copied to the host."""


@dataclass(frozen=True, slots=True)
class CertifiedTopK:
    """The first places of an iterate.

    vertices    int64[k], ids, largest y first, ties by id
    values      float64[k], y; the mean of a tie's vertices for each of them
    proven      what is proven about these places
    others      the largest y of all other vertices, or more; -inf if there are none
    next_check  what ‖r‖₁, which bounds are as wide as, should be when the places are looked at
                again, if the target is not proven
    """

    vertices: NDArray[np.int64]
    values: Ranking
    proven: ProvenPlaces
    others: float
    next_check: float


def certified_top_k(
    iterate: PersonalizedIterate,
    k: int,
    among: NDArray[np.int64] | None = None,
    target: SettledTarget = "settled-top-k",
) -> CertifiedTopK:
    """The first k places, or all if there are fewer.

    among   int64[a], distinct ids, ascending: only these have places; None for all vertices
    target  what `next_check` is for
    """
    values, xp = iterate.workspace.values, iterate.graph.backend.xp
    if among is None:
        here = len(values) - len(iterate.graph.free)
        return _certified(iterate, k, None, target, iterate.touched, here)
    rows, _ = iterate.vertices.rows_of(among)
    # the others have to be put aside, which takes more memory where they are most
    if len(among) <= max(iterate.graph.backend.sizes.copied, iterate.graph.ids.count // _OTHERS):
        return _certified(iterate, k, among, target, rows, len(rows))
    others = xp.ones(len(values), np.bool_)
    others[rows] = False
    with without(values, xp.flatnonzero(others)):
        return _certified(iterate, k, among, target, None, len(rows))


def _certified(
    iterate: PersonalizedIterate,
    k: int,
    among: NDArray[np.int64] | None,
    target: SettledTarget,
    chosen: Array | None,
    here: int,
) -> CertifiedTopK:
    """See certified_top_k.

    chosen  int32[…], the rows that are listed on the host; None: the device looks at all
    here    how many of these rows have places
    """
    graph, found = iterate.graph, iterate.vertices
    certificate, damping = iterate.certificate, iterate.options.damping
    count = graph.ids.count if among is None else len(among)
    values, residuals = iterate.workspace.values, iterate.workspace.residual.values
    listed = None if chosen is None else found.entries_at(chosen, values, residuals)
    if listed is not None and graph.ids.free_count:
        listed = listed.at(~graph.ids.is_free(listed.vertices))
    l1, total = certificate.residual_l1, certificate.residual_sum
    slack = certificate.uncertainty * max(1.0, 0.5 / damping)
    positive, negative = 0.5 * (l1 + total) + slack, 0.5 * (l1 - total) + slack
    wanted = min(k + 1, count)
    if listed is None:
        own = found.leading(values, residuals, min(wanted, here))
    else:
        own = listed.first(wanted)
    best = found.merged(own, wanted)
    if len(best.values) == 0:
        nothing = ProvenPlaces(0, True, ())
        return CertifiedTopK(np.empty(0, np.int64), np.empty(0), nothing, -np.inf, float(l1))
    vertices, best_values = best.vertices, best.values
    upper = best_values + _bound(best, damping, positive)
    lower = best_values - _bound(best._replace(residuals=-best.residuals), damping, negative)
    last = float(best_values[-1])
    (looked_at,) = found.sums([here if listed is None else len(listed.values)])

    def highest_other(listed: Entries | None) -> float:
        bound = -np.inf
        if len(best_values) < looked_at:
            if listed is not None:
                others = listed.at(listed.values <= last)
                bounds = others.values + _bound(others, damping, positive)
                bound = float(bounds.max(initial=-np.inf))
            elif (own.values <= last).any():
                asked = HighestBound(graph.view, values, residuals, damping, positive, last)
                bound = graph.backend.run(asked)
            bound = found.highest(bound)
        unlisted = damping * positive / (1.0 - damping) if looked_at < count else -np.inf
        return max(bound, unlisted)

    def highest_but(excluded: NDArray[np.int64]) -> float:
        if listed is not None:
            return highest_other(listed.at(~np.isin(listed.vertices, excluded)))
        with without(values, found.rows_of(excluded)[0]):
            return highest_other(None)

    # the others include the last of the best, which is behind all other places anyhow
    bounded = BoundedPlaces(vertices, best_values, lower, upper, highest_other(listed))
    # the next Jacobi step: what the in-list sends, whether or not a push has taken it into y yet
    returned = damping * (best.loop / np.maximum(best.degree, 1e-300))
    sent = best_values + best.residuals / (1.0 - returned)
    (bounded,) = with_ties(found, [Tying(bounded, sent, iterate.seeds, among, highest_but)])
    boundaries, tied = bounded.certified(k)
    next_check = bounded.next_check(k, target, float(l1))

    placed, placed_values = bounded.vertices[:k], bounded.values[:k]
    missing = min(k, count) - len(placed)
    if missing > 0:
        # no other vertex was reached: ranks of 0
        placed = np.concatenate([placed, _first_ids(graph, missing, placed)])
        placed_values = np.concatenate([placed_values, np.zeros(missing)])
        boundaries = np.append(boundaries, np.zeros(missing, np.bool_))
        tied = np.append(tied, np.full(missing, -1))
        # there is nothing behind the last of all
        boundaries[-1] = len(placed) == count
    others = -np.inf
    if len(placed) < count:
        left = best_values[~np.isin(vertices, placed)]
        # where places are missing, all that were reached are listed
        others = float(left.max(initial=0.0 if missing > 0 else max(best_values[-1], 0.0)))
    proven = ProvenPlaces.of(boundaries, tied)
    return CertifiedTopK(placed, placed_values, proven, others, next_check)


def _bound(entries: Entries, damping: float, residual_mass: float) -> Ranking:
    """See residual_bound."""
    bounds: Ranking = residual_bound(
        np, entries.residuals, entries.degree, entries.loop, damping, residual_mass
    )
    return bounds


def _first_ids(graph: RankedGraph, count: int, listed: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64[count], the lowest ids of vertices that are not listed; the graph has that many."""
    most = len(listed) + count + graph.ids.free_count
    some = np.arange(min(graph.ids.limit, most))
    return some[~(np.isin(some, listed) | graph.ids.is_free(some))][:count]
