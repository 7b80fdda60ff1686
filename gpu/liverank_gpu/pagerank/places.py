"""What is proven about places in the order of ranks: by bounds, and by identical in-lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.graph.dynamic_graph import DynamicGraph, ReversedGraph
from liverank_gpu.graph.ranked_graph import RankedGraph
from liverank_gpu.graph.vertices import NO_IDS, VertexPermutation, looked_up
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.select import TopK
from liverank_gpu.pagerank.certificate import UNIT_ROUNDOFF
from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.types import Ranking

# ---- vertices with identical in-lists, whose exact ranks are equal ----
#
# A rank follows from the in-list of its vertex, from what the vertex returns to itself by its loop,
# and from its part of the right-hand side. Where the first two are the same for several vertices
# (equal sources, and equal weights; no loops, or loops of equal probability), only the third can
# tell them apart, and for global ranks that is the same everywhere. No bound can separate such
# vertices, since there is nothing to separate.

MOST_SOURCES = 1024
"""The longest in-list that is compared: longer ones are hardly ever identical."""


class IdenticalLists:
    """Classes of vertices with identical in-lists.

    members  for each class int64[…], the ids of all its vertices, ascending; at least two
    """

    def __init__(self, members: list[NDArray[np.int64]]) -> None:
        self.members = members
        ids = np.concatenate([NO_IDS, *members])
        labels = np.repeat(np.arange(len(members)), [len(each) for each in members])
        order = np.argsort(ids)
        self._ids, self._labels = ids[order], labels[order]

    @classmethod
    def of(
        cls,
        numbers: NDArray[np.int64],
        positions: NDArray[np.int64],
        permutation: VertexPermutation,
    ) -> IdenticalLists:
        """From pairs, int64[…] each: the number of a list, and the position of a vertex with it."""
        shared = (np.bincount(numbers) > 1)[numbers]
        if not shared.any():
            return cls([])
        numbers, ids = numbers[shared], permutation.ids_of(positions[shared])
        order = np.lexsort((ids, numbers))
        return cls(np.split(ids[order], np.flatnonzero(np.diff(numbers[order])) + 1))

    def labels(self, vertices: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64[k], the number of each vertex's class, or -1."""
        return looked_up(self._ids, self._labels, vertices, -1)


def identical_in_lists(graph: RankedGraph, vertices: NDArray[np.int64]) -> IdenticalLists:
    """The classes that these vertices belong to: int64[c], distinct ids.

    In-lists that are empty, or longer than `longest_compared`, are not compared; none is if there
    is no memory for it.
    """
    try:
        return _compared(graph, vertices)
    except MemoryError:
        return IdenticalLists([])


def _compared(graph: RankedGraph, vertices: NDArray[np.int64]) -> IdenticalLists:
    """See identical_in_lists. Raises MemoryError."""
    lists, view, permutation = graph.backend.lists, graph.view, graph.permutation
    most = graph.backend.sizes.compared
    longest = longest_compared(len(vertices), most)
    found = lists.fingerprints(view, permutation.positions_of(vertices), longest)
    compared = np.flatnonzero(found.lengths)
    if len(compared) == 0:
        return IdenticalLists([])
    _, first = np.unique(found.hashes[compared], return_index=True)
    kinds = found.at(compared[np.sort(first)])
    # a vertex that has the list is an out-neighbour of all of its sources
    kinds = kinds.at(affordable_lists(kinds.lengths * kinds.out_edges, most))
    if len(kinds.positions) == 0:
        return IdenticalLists([])
    numbers, others = lists.with_same_list(view, kinds)
    if len(others) == 0:
        return IdenticalLists([])
    numbers = np.concatenate([np.arange(len(kinds.positions)), numbers])
    return IdenticalLists.of(numbers, np.concatenate([kinds.positions, others]), permutation)


def longest_compared(count: int, most: int) -> int:
    """The longest in-list that is compared if `count` vertices are asked for, so that they have
    at most `most` entries together, or one each.
    """
    return min(MOST_SOURCES, max(1, most // max(1, count)))


def affordable_lists(entries: NDArray[np.int64], most: int) -> NDArray[np.bool_]:
    """Which lists to look for: those that take the fewest entries, of `most` together."""
    order = np.argsort(entries, kind="stable")
    affordable = np.zeros(len(entries), np.bool_)
    affordable[order] = np.cumsum(entries[order]) <= most
    return affordable


# ---- which places in the order of global ranks are proven ----
#
# Let e = R - R* be the error of the ranks R. Both sum to 1, so Σe = 0, and if ‖e‖₁ ≤ B, then no
# e_v is further from 0 than B/2, and no two differ by more than B. So two vertices whose ranks
# differ by more than B are in their true order.

SettledTarget = Literal["settled-top-k", "settled-set"]
SETTLED_TARGETS: tuple[SettledTarget, ...] = get_args(SettledTarget)
"""What is to be proven of the first k places: which vertex has each of them; or which vertices have
them, in any order.
"""

QUOTIENT_ROUNDOFF = 2.0**-50
"""Of both ranks, which are quotients, and of their comparison, relative to the larger one."""


class ProvenPlaces(NamedTuple):
    """What is proven about the first places, in the order of ranks, and of ids where ranks are
    exactly equal.

    settled      how many of the first are held by the right vertex
    settled_set  whether these vertices have these places, in any order
    groups       numbers of places one after the other. The order of the groups is proven, the order
                 within a group of several is not, unless it is a tie
    ties         numbers of the groups, from 0 on, whose vertices are proven to have equal ranks;
                 behind the last group there may be more of them
    """

    settled: int
    settled_set: bool
    groups: tuple[int, ...]
    ties: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, boundaries: NDArray[np.bool_], tied: NDArray[np.int64] | None = None
    ) -> ProvenPlaces:
        """boundaries  bool[k]: whether each place and all before it are proven to be before all
                       behind it
        tied           int64[k]: a number of its own for the places of each tie, with boundaries
                       within; -1 for other places. None if there are no ties
        """
        count = len(boundaries)
        if count == 0:
            return cls(0, True, ())
        settled = count if boundaries.all() else int(np.argmin(boundaries))
        ends = boundaries.copy()
        if tied is not None:
            ends[:-1] &= (tied[1:] != tied[:-1]) | (tied[1:] < 0)
        borders = sorted({0, *(np.flatnonzero(ends) + 1).tolist(), count})
        groups = tuple(end - first for first, end in pairwise(borders))
        ties: tuple[int, ...] = ()
        if tied is not None:
            ties = tuple(np.flatnonzero(tied[borders[:-1]] >= 0).tolist())
        return cls(settled, bool(boundaries[-1]), groups, ties)

    def meet(self, target: SettledTarget) -> bool:
        """Whether what the target asks is proven of all of these places."""
        if target == "settled-set":
            return self.settled_set
        return self.settled == sum(self.groups)

    def first(self, k: int) -> ProvenPlaces:
        """What is proven about the first k of these places."""
        groups = np.array(self.groups, np.int64)
        tied = np.full(len(groups), -1)
        tied[list(self.ties)] = self.ties
        tied = np.repeat(tied, groups)
        boundaries = tied >= 0
        boundaries[np.cumsum(groups) - 1] = True
        boundaries[-1:] = self.settled_set
        return ProvenPlaces.of(boundaries[:k], tied[:k])


def rank_error(error_bound: float) -> float:
    """How far any single rank can be off. error_bound: on the L1 error of all."""
    return 0.5 * error_bound


def proven_descents(ranks: Ranking, error_bound: float) -> NDArray[np.bool_]:
    """bool[max(k-1, 0)]: whether each place, and all before it, are proven to be above the next one
    and all behind it. Equal ranks never are.

    ranks  float64[k], descending
    """
    return ranks[:-1] - ranks[1:] > error_bound + QUOTIENT_ROUNDOFF * ranks[:-1]


@contextmanager
def replaced(values: Array, rows: Array, others: Array | float) -> Iterator[None]:
    """`others` are in place of these rows of values[n] or values[n, columns], until it is left."""
    if len(rows) == 0:
        yield
        return
    saved = values[rows]
    values[rows] = others
    try:
        yield
    finally:
        values[rows] = saved


def without(values: Array, free: Array) -> AbstractContextManager[None]:
    """Free ids come last in values[n] or values[n, columns] over positions, until it is left."""
    return replaced(values, free, -np.inf)


# ---- the vertices of a graph as solves and queries that order them find them ----
#
# A graph on one device has all of them. A shard has those that it owns, and combines what it finds
# with what the others do: see liverank_gpu.sharded.vertices.


class Entries(NamedTuple):
    """Entries of an iterate on the host; of the largest y the largest first, ties by id.

    vertices      int64[k], ids
    values        float64[k], y
    residuals     float64[k], r
    degree, loop  [k], see GraphView
    """

    vertices: NDArray[np.int64]
    values: Ranking
    residuals: Ranking
    degree: Array
    loop: Array

    def at(self, places: NDArray[Any]) -> Entries:
        """Those at indices, or where flags are set."""
        return Entries(*(column[places] for column in self))

    def first(self, most: int) -> Entries:
        """Those with the largest y, at most so many."""
        least = -np.inf
        if 0 < most < len(self.values):
            last = len(self.values) - most
            least = np.partition(self.values, last)[last]
        largest = self.at(self.values >= least)
        return largest.at(np.lexsort((largest.vertices, -largest.values))[:most])


class GraphVertices:
    """All vertices of a graph on one device.

    graph    its arrays over vertices are by row
    divided  whether others have a part of them
    leads    whether this process is the first of those that have them
    """

    divided, leads = False, True

    def __init__(self, graph: RankedGraph) -> None:
        self.graph = graph

    def reversed(self) -> GraphVertices:
        """Those of the graph for walks against its edges. Raises OutOfMemory."""
        assert isinstance(self.graph, DynamicGraph)
        return GraphVertices(ReversedGraph(self.graph))

    def rows_of(self, ids: NDArray[np.int64]) -> tuple[Array, Array | slice]:
        """int32[r] on the device: the rows of those of `ids` that are here, in their order; and
        which they are.
        """
        return self.graph.permutation.positions_of(ids).astype(np.int32), slice(None)

    def to_ids(self, rows: Array) -> Array:
        """integer[r] on the device."""
        return self.graph.permutation.to_ids(rows)

    def ids_of(self, rows: Array) -> NDArray[np.int64]:
        """int64[r] on the host, of rows on the host or the device."""
        backend = self.graph.backend
        ids = self.to_ids(backend.xp.asarray(rows))
        return np.asarray(backend.device.to_host(ids), np.int64)

    def values_at(self, values: Array, ids: NDArray[np.int64]) -> Ranking:
        """float64[k] on the host: values[n] by row, of these vertices."""
        return self.graph.backend.device.to_host(values[self.rows_of(ids)[0]])

    def spread(self, ids: NDArray[np.int64], values: Ranking) -> Array:
        """float64[n] by row: values of these ids, and 0 elsewhere. Raises OutOfMemory."""
        device, (rows, here) = self.graph.backend.device, self.rows_of(ids)
        spread = device.allocate("the ranks of a view", self.graph.vertices, np.float64)
        spread.fill(0.0)
        spread[rows] = device.to_device(values)[here]
        return spread

    def first(self, values: Ranking) -> Ranking:
        """What the first process has."""
        return values

    def top_k(self, values: Array, k: int) -> TopK:
        """Ids and values of the k largest of values[n] by row, on the host; ties by id."""
        return self.graph.backend.select.top_k(values, k, self.to_ids)

    def top_k_columns(self, values: Array, counts: NDArray[np.int64]) -> list[TopK]:
        """`top_k` of the first len(counts) columns of values[n, columns], each of its count."""
        return self.graph.backend.select.top_k_columns(values, counts, self.to_ids)

    def leading(self, values: Array, residuals: Array, most: int) -> Entries:
        """Of y and r by row the entries with the largest y that are here, at most so many."""
        graph, to_host = self.graph, self.graph.backend.device.to_host
        with without(values, graph.free):
            vertices, best = self.top_k(values, min(most, len(values) - len(graph.free)))
        rows = self.rows_of(vertices)[0]
        columns = (residuals[rows], graph.degree[rows], graph.loop[rows])
        return Entries(vertices, best, *map(to_host, columns))

    def entries_at(self, rows: Array, values: Array, residuals: Array) -> Entries:
        """The entries at rows, int32[k] on the device, on the host.

        values, residuals  float64[n], y and r by row
        """
        graph, to_host = self.graph, self.graph.backend.device.to_host
        columns = (values[rows], residuals[rows], graph.degree[rows], graph.loop[rows])
        return Entries(self.ids_of(rows), *map(to_host, columns))

    def sums(self, values: Sequence[float]) -> list[float]:
        """Numbers added up over the whole graph, of what they are here."""
        return list(values)

    def highest(self, value: float) -> float:
        """The largest number of the whole graph, of what it is here."""
        return value

    def identical_to(self, vertices: NDArray[np.int64]) -> IdenticalLists:
        """Those of distinct ids whose in-lists others have too."""
        return identical_in_lists(self.graph, vertices)

    def merged(self, leading: Entries, k: int) -> Entries:
        """The first k entries of the whole graph, from the first k here."""
        assert len(leading.values) <= k
        return leading

    def merged_columns(self, tops: list[TopK], counts: NDArray[np.int64]) -> list[TopK]:  # noqa: ARG002
        """The first places of several vectors of the whole graph, from as many here."""
        return tops


# ---- what bounds on the exact values prove about places ----
#
# Vertices are ordered by rank, and by id where ranks are equal. A vertex is before another one if
# its lower bound is above the upper bound of the other; or if it is known that their exact ranks
# are equal (liverank_gpu.pagerank.places) and its id is lower. Such a *tie* is one vertex
# with several ids: what bounds one of them bounds all.

CHECK, _RARE_CHECK = 0.25, 1e-3
"""Places are looked at again when their bounds are _RARE_CHECK as wide as they were; sooner, from
CHECK on, if the gaps between them say that it may be enough.
"""

_EQUAL = 1e-6
"""How far values may be apart, relative to the larger one, that rounding alone separates: in blocks
residuals are float32.
"""


class Tie(NamedTuple):
    """Vertices of equal rank, of which some are among the places.

    places   int64[…], those that they have before `with_ties` orders them: indices from 0
    members  int64[…], the ids of all of them, ascending
    """

    places: NDArray[np.int64]
    members: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BoundedPlaces:
    """The first places, and bounds on the exact values.

    vertices      int64[p], ids
    values        float64[p], descending, equal ones by id
    lower, upper  float64[p], bounds on the exact values, or what `by_gaps` has in their place
    others        upper bound, of the same kind, on all other vertices but for members of ties
    ties          none of them shares a vertex with another
    labels        int64[p], the number of the tie that each vertex belongs to, or -1
    """

    vertices: NDArray[np.int64]
    values: Ranking
    lower: Ranking
    upper: Ranking
    others: float
    ties: tuple[Tie, ...] = ()
    labels: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def by_gaps(
        cls, vertices: NDArray[np.int64], values: Ranking, error: float, others: float
    ) -> BoundedPlaces:
        """If only the size of the error is known: ‖y* - y‖₁ ≤ `error`, so that no two entries come
        closer by more. So they can be compared: if `lower` of a vertex is above `upper` of another,
        its exact value is the larger one. By themselves they bound nothing.

        others  the largest y of other vertices, or more; -inf if there are none
        """
        behind = others if others == -np.inf else others + error
        return cls(vertices, values, values, values + error, behind)

    @property
    def tied_to_next(self) -> NDArray[np.bool_]:
        """bool[p-1]: whether the vertices of each place and of the next one are of one tie."""
        if not self.ties:
            return np.zeros(max(0, len(self.vertices) - 1), np.bool_)
        return np.asarray((self.labels[1:] >= 0) & (self.labels[1:] == self.labels[:-1]))

    @property
    def behind(self) -> Ranking:
        """float64[p]: upper bounds on all that is behind each place."""
        bounds = np.append(self.upper, self.others)
        behind: Ranking = np.maximum.accumulate(bounds[::-1])[::-1][1:]
        return behind

    @property
    def _descents(self) -> NDArray[np.bool_]:
        """bool[p]: whether the bounds alone prove that each place, and all before it, are above all
        behind it.
        """
        return np.minimum.accumulate(self.lower) > self.behind

    def alike(self, values: Ranking) -> NDArray[np.int64]:
        """The vertices that may tie: the bounds do not tell their places apart from one beside
        them, and they have nearly the same of something that is equal in exact arithmetic where
        in-lists are identical, and above 0.

        values  float64[p], that
        """
        descents = self._descents
        if descents[:-1].all():
            return self.vertices[:0]
        group: NDArray[np.int64] = np.cumsum(descents) - descents
        places = np.flatnonzero((np.bincount(group)[group] > 1) & (values > 0.0))
        places = places[np.argsort(values[places])]
        near = np.diff(values[places]) <= _EQUAL * values[places][1:]
        alike = np.append(near, False) | np.append(False, near)
        found: NDArray[np.int64] = self.vertices[places[alike[: len(places)]]]
        return found

    def with_ties(
        self,
        ties: Sequence[Tie],
        highest_other: Callable[[NDArray[np.int64]], float] | None = None,
    ) -> BoundedPlaces:
        """The same places with each tie's vertices in the order of their ids, and their values
        equal. Exchanging vertices of a tie changes no error, nor does their mean.

        highest_other  an upper bound on all vertices but those of these ids; None leaves `others`,
                       which bounds ties that end behind the last place too
        """
        if not ties:
            return self
        vertices, values = self.vertices.copy(), self.values.copy()
        lower, upper = self.lower.copy(), self.upper.copy()
        labels = np.full(len(vertices), -1, np.int64)
        for label, (places, members) in enumerate(ties):
            labels[places] = label
            vertices[places] = members[: len(places)]
            values[places] = values[places].mean()
            lower[places] = lower[places].max()
            upper[places] = upper[places].min()
        order = np.lexsort((vertices, -values))
        others = self.others
        # otherwise no vertex of a tie is among the others, which include those of the last value
        last = self.values == self.values[-1]
        goes_on = any(len(tie.members) > len(tie.places) for tie in ties)
        goes_on |= bool((labels[last] >= 0).any())
        if highest_other is not None and goes_on:
            listed = [self.vertices, *(tie.members for tie in ties)]
            others = highest_other(np.unique(np.concatenate(listed)))
        return BoundedPlaces(
            vertices[order],
            values[order],
            lower[order],
            upper[order],
            others,
            tuple(ties),
            labels[order],
        )

    def certified(self, k: int) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """What is proven about the first k places: the arguments of ProvenPlaces.of."""
        boundaries, tied = self._descents, np.full(len(self.vertices), -1, np.int64)
        end = 0
        for label, run in groupby(self.labels.tolist()):
            first, end = end, end + sum(1 for _ in run)
            if label < 0:
                continue
            places, members = self.ties[label]
            together = end - first == len(places) and boundaries[end - 1]
            together = together and (first == 0 or boundaries[first - 1])
            if together:
                boundaries[first:end] = True
                tied[first:end] = label
            if len(members) > len(places):
                # the other members are behind the last one, wherever that is
                boundaries[end if together else first :] = False
        return boundaries[:k], tied[:k]

    def deciding(self, k: int, target: SettledTarget) -> NDArray[np.int64]:
        """int64[…]: the places, from 0 on, behind which there has to be a proven gap for `target`
        to be proven of the first k. None of them is before another one of the same tie; what
        follows a tie that goes on behind place k decides too, and is not among them.
        """
        ends = ~np.append(self.tied_to_next, False)
        gaps = np.flatnonzero(ends[: min(k, len(self.vertices))])
        return gaps[-1:] if target == "settled-set" else gaps

    def narrowest_gap(self, k: int, target: SettledTarget) -> float:
        """The least that a deciding gap is of what would be certified."""
        gaps = self.values - np.append(self.values[1:], 0.0)
        widths = np.maximum(gaps + self.behind - self.lower, gaps)
        parts = gaps / np.maximum(widths, np.finfo(float).tiny)
        return float(np.min(parts[self.deciding(k, target)], initial=1.0))

    def next_check(self, k: int, target: SettledTarget, size: float) -> float:
        """What `size`, which bounds are as wide as, should be when these places are looked at
        again because `target` was not proven: about what suffices if the gaps stay.
        """
        return size * min(max(self.narrowest_gap(k, target), _RARE_CHECK), CHECK)


# ---- the first places of global ranks, and what is proven about them ----
#
# Two ranks are in their true order where they differ by more than the error bound
# (liverank_gpu.pagerank.places). Vertices with identical in-lists have equal ranks: each gets the
# mean of what they have. That changes no error, since it is the mean of all ways to exchange these
# vertices, of which none changes it; but the mean is rounded. Their order, by id, then counts as
# proven if no other rank is within the error bound of theirs.


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
        returned = iterate.options.damping * (leading.loop / np.maximum(leading.degree, 1e-300))
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
