"""Which places in the order of global ranks are proven.

Let e = R - R* be the error of the ranks R. Both sum to 1, so Σe = 0, and if ‖e‖₁ ≤ B, then no e_v
is further from 0 than B/2, and no two differ by more than B. So two vertices whose ranks differ by
more than B are in their true order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.device import Array
from liverank_gpu.types import Ranking

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
