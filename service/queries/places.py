"""Places in the order of ranks, and what is proven about them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from gpu import proven_descents


@dataclass(frozen=True, slots=True)
class Places:
    """Some places one after the other.

    vertices, ranks  keys, or ids; highest rank first
    settled          how many of the first places are proven to be theirs
    settled_set      whether it is proven that these vertices have these places, in any order
    groups           numbers of places one after the other. The order of the groups is proven, the
                     order within a group of several is not
    """

    vertices: list[Any]
    ranks: list[float]
    settled: int
    settled_set: bool
    groups: list[int]

    @classmethod
    def of(
        cls, vertices: list[Any], ranks: list[float], error_bound: float, before: int, count: int
    ) -> Places:
        """`count` of these places from number `before` on, or all if there are fewer.

        vertices, ranks  of one place more on either side, if the graph has them
        """
        chosen = slice(before, before + count)
        chosen_ranks = ranks[chosen]
        if not chosen_ranks:
            return cls([], [], 0, True, [])
        descents = proven_descents(np.array(ranks), error_bound).tolist()
        end = before + len(chosen_ranks)
        first = before == 0 or descents[before - 1]
        last = end >= len(ranks) or descents[end - 1]
        within = descents[before : end - 1]
        bounds = [0, *(place for place, proven in enumerate(within, 1) if proven)]
        groups = [later - each for each, later in pairwise([*bounds, len(chosen_ranks)])]
        proven = [first, *within, last]
        settled = 0
        while settled < len(chosen_ranks) and proven[settled] and proven[settled + 1]:
            settled += 1
        return cls(vertices[chosen], chosen_ranks, settled, first and last, groups)
