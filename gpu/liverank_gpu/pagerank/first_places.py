"""The first places of global ranks, and what is proven about them.

Two ranks are in their true order where they differ by more than the error bound
(liverank_gpu.pagerank.places). Vertices with identical in-lists have equal ranks: each gets the
mean of what they have. That changes no error, since it is the mean of all ways to exchange these
vertices, of which none changes it; but the mean is rounded. Their order, by id, then counts as
proven if no other rank is within the error bound of theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.device import Array
from liverank_gpu.pagerank.bounded_places import BoundedPlaces, Tie
from liverank_gpu.pagerank.certificate import UNIT_ROUNDOFF
from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.pagerank.identical_lists import IdenticalLists
from liverank_gpu.pagerank.places import QUOTIENT_ROUNDOFF, ProvenPlaces, SettledTarget, without
from liverank_gpu.pagerank.vertices import GraphVertices
from liverank_gpu.types import Ranking


@dataclass(frozen=True, slots=True)
class RankTies:
    """Vertices of equal rank, which are published with equal ranks.

    classes  those that were found; each has one of the first places
    values   float64[classes]: the y of their vertices, as it is stored
    proven   bool[classes]: whether the order of all other vertices and these is proven
    error    what the rounding of the values adds to the L1 error of the ranks, at most
    """

    classes: IdenticalLists
    values: Ranking
    proven: NDArray[np.bool_]
    error: float

    def columns(self) -> tuple[NDArray[np.int64], Ranking]:
        """The ids of all their vertices, and the y of each."""
        members = self.classes.members
        values = np.repeat(self.values, [len(each) for each in members])
        return np.concatenate(members), values

    def labels(self, vertices: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64[k], the number of the class whose vertices have places one after the other, by id,
        that each vertex is in; -1 where it is in none.
        """
        labels = self.classes.labels(vertices)
        return np.where((labels >= 0) & self.proven[labels], labels, -1)


@dataclass(frozen=True, slots=True)
class FirstPlaces:
    """The first places, as many as asked for if there are.

    proven    what is proven about these places
    ties      among them; None if there are none
    open_gap  the smallest deciding difference of ranks one after the other that is not proven, but
              for ranks that tie; infinite if there is none
    """

    proven: ProvenPlaces
    ties: RankTies | None
    open_gap: float

    @classmethod
    def of(
        cls, iterate: GlobalIterate, found: GraphVertices, k: int, target: SettledTarget
    ) -> FirstPlaces:
        """Of the first k places, of an iterate whose residual is known. target: what decides."""
        certificate = iterate.certificate
        residuals, mass = iterate.workspace.residual.values, float(certificate.mass)
        leading = found.merged(found.leading(iterate.values, residuals, k + 1), k + 1)
        values = np.asarray(leading.values, np.float64)
        bound = iterate.error_bound
        behind = values[-1] if len(values) > k else -np.inf
        bounded = _bounded(leading.vertices, values, mass, bound, behind)
        # the next Jacobi step, which is equal where in-lists are
        returned = iterate.options.damping * leading.loop / np.maximum(leading.degree, 1e-300)
        alike = bounded.alike(values + leading.residuals / (1.0 - returned))
        ties = _ties(iterate, found, alike, leading.vertices, values) if len(alike) else None
        if ties is not None:
            labels = ties.classes.labels(leading.vertices)
            values = np.where(labels >= 0, ties.values[labels], values)
            order = np.lexsort((leading.vertices, -values))
            vertices, labels = leading.vertices[order], labels[order]
            bound += ties.error
            bounded = _bounded(vertices, values[order], mass, bound, behind).with_ties(
                [
                    Tie(np.flatnonzero(labels == number), members)
                    for number, members in enumerate(ties.classes.members)
                ],
                lambda excluded: _highest_but(iterate, found, excluded) / mass + bound,
            )
        boundaries, tied = bounded.certified(len(values))
        if ties is not None:
            ties = replace(ties, proven=np.isin(np.arange(len(ties.values)), tied))
        gaps = np.append(bounded.values[:-1] - bounded.values[1:], np.inf)
        deciding = bounded.deciding(k, target)
        open_gap = float(gaps[deciding[~boundaries[deciding]]].min(initial=np.inf))
        return cls(ProvenPlaces.of(boundaries[:k], tied[:k]), ties, open_gap)


def _bounded(
    vertices: NDArray[np.int64], values: Ranking, mass: float, bound: float, behind: float
) -> BoundedPlaces:
    """behind: the largest y of all other vertices, or more"""
    ranks = values / mass
    lower = ranks * (1.0 - QUOTIENT_ROUNDOFF)
    return BoundedPlaces(vertices, ranks, lower, ranks + bound, behind / mass + bound)


def _ties(
    iterate: GlobalIterate,
    found: GraphVertices,
    alike: NDArray[np.int64],
    vertices: NDArray[np.int64],
    values: Ranking,
) -> RankTies | None:
    """alike: of the first vertices, and their y, those that may tie"""
    classes = found.identical_to(alike)
    if not classes.members:
        return None
    device, count = iterate.graph.backend.device, len(classes.members)
    sizes = np.array([len(members) for members in classes.members])
    rows, here = found.rows_of(np.concatenate(classes.members))
    numbers = device.to_host(device.to_device(np.repeat(np.arange(count), sizes))[here])
    own = device.to_host(iterate.values[rows]).astype(np.float64)
    # differences from one of them: their sums hardly round
    reference, labels = np.empty(count), classes.labels(vertices)
    reference[labels[labels >= 0]] = values[labels >= 0]
    differences = np.bincount(numbers, own - reference[numbers], count)
    means = reference + np.array(found.sums(differences.tolist())) / sizes
    error = 2.0 * UNIT_ROUNDOFF * float(sizes @ means) / float(iterate.certificate.mass)
    return RankTies(classes, means, np.zeros(count, np.bool_), error)


def _highest_but(
    iterate: GlobalIterate, found: GraphVertices, excluded: NDArray[np.int64]
) -> float:
    """The largest y of all vertices without these."""
    rows: Array = found.rows_of(excluded)[0]
    values, select = iterate.values, iterate.graph.backend.select
    with without(values, iterate.graph.free), without(values, rows):
        _, highest = select.top_k(values, min(1, len(values)))
    return found.highest(float(highest.max(initial=-np.inf)))
