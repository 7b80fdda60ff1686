"""Places in the order of ranks, and what is proven about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from liverank_gpu import proven_descents


class RankedVertices(NamedTuple):
    """Vertices one after the other in the order of ranks, highest first.

    vertices  keys
    ranks     float64[len(vertices)]
    ties      int64[len(vertices)]: a number for each tie among them, -1 for a vertex in none:
              liverank_gpu.Ranks.ties_of
    """

    vertices: pa.Array
    ranks: NDArray[np.float64]
    ties: NDArray[np.int64]

    def part(self, first: int, end: int) -> RankedVertices:
        part = slice(first, end)
        return RankedVertices(self.vertices[part], self.ranks[part], self.ties[part])


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Some places one after the other.

    vertices         keys; highest rank first
    ranks            float64[len(vertices)]
    settled          how many of the first places are proven to be theirs
    settled_set      whether it is proven that these vertices have these places, in any order
    groups           numbers of places one after the other. The order of the groups is proven, the
                     order within a group of several is not, unless it is a tie
    ties             numbers of the groups, from 0 on, whose vertices are proven to have equal ranks
    """

    vertices: pa.Array
    ranks: NDArray[np.float64]
    settled: int
    settled_set: bool
    groups: list[int]
    ties: list[int]

    @classmethod
    def of(cls, listed: RankedVertices, error_bound: float, before: int, count: int) -> Places:
        """`count` of these places from number `before` on, or all if there are fewer.

        listed  with one place more on either side, if the graph has them
        """
        vertices, ranks, ties = listed.part(before, before + count)
        if not len(ranks):
            return cls(vertices, ranks, 0, True, [], [])
        # a tie is proven to be above or below all other vertices
        above = proven_descents(listed.ranks, error_bound)
        above |= np.diff(listed.ties) != 0
        tied = listed.ties[1:] >= 0
        end = before + len(ranks)
        proven = np.concatenate([[True], above | tied, [True]])[before : end + 1]
        unproven = np.flatnonzero(~(proven[:-1] & proven[1:]))
        settled = int(unproven[0]) if len(unproven) else len(ranks)
        borders = 1 + np.flatnonzero(above[before : end - 1])
        firsts = np.concatenate([[0], borders])
        groups = np.diff(firsts, append=len(ranks)).tolist()
        of_ties = np.flatnonzero(ties[firsts] >= 0).tolist()
        return cls(vertices, ranks, settled, bool(proven[0] and proven[-1]), groups, of_ties)
