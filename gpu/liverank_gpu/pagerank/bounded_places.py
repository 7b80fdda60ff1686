"""What bounds on the exact values prove about places.

Vertices are ordered by rank, and by id where ranks are equal. A vertex is before another one if its
lower bound is above the upper bound of the other; or if it is known that their exact ranks are
equal (liverank_gpu.pagerank.identical_lists) and its id is lower. Such a *tie* is one vertex with
several ids: what bounds one of them bounds all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.pagerank.places import SettledTarget
from liverank_gpu.types import Ranking

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
