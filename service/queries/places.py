"""Places in the order of ranks, and what is proven about them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from gpu import proven_descents


class RankedVertices(NamedTuple):
    """Vertices one after the other in the order of ranks, highest first.

    vertices, ranks  keys, or ids
    ties             a number for each tie among them, -1 for a vertex in none: gpu.Ranks.ties_of
    """

    vertices: list[Any]
    ranks: list[float]
    ties: list[int]

    def part(self, first: int, end: int) -> RankedVertices:
        part = slice(first, end)
        return RankedVertices(self.vertices[part], self.ranks[part], self.ties[part])


@dataclass(frozen=True, slots=True)
class Places:
    """Some places one after the other.

    vertices, ranks  keys, or ids; highest rank first
    settled          how many of the first places are proven to be theirs
    settled_set      whether it is proven that these vertices have these places, in any order
    groups           numbers of places one after the other. The order of the groups is proven, the
                     order within a group of several is not, unless it is a tie
    ties             numbers of the groups, from 0 on, whose vertices are proven to have equal ranks
    """

    vertices: list[Any]
    ranks: list[float]
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
        if not ranks:
            return cls([], [], 0, True, [], [])
        # a tie is proven to be above or below all other vertices
        above = proven_descents(np.array(listed.ranks), error_bound)
        above |= np.diff(listed.ties) != 0
        tied = np.array(listed.ties[1:]) >= 0
        end = before + len(ranks)
        proven = [True, *(above | tied).tolist(), True][before : end + 1]
        settled = 0
        while settled < len(ranks) and proven[settled] and proven[settled + 1]:
            settled += 1
        borders = [place for place in range(before + 1, end) if above[place - 1]]
        groups = [later - each for each, later in pairwise([before, *borders, end])]
        firsts = accumulate(groups[:-1], initial=0)
        of_ties = [number for number, first in enumerate(firsts) if ties[first] >= 0]
        return cls(vertices, ranks, settled, proven[0] and proven[-1], groups, of_ties)
