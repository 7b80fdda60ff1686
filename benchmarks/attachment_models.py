"""The sequential models that preferential attachment is compared with, on one core; and degrees of
graphs that grew by attachment, with the exponent of their tail.

The models draw from Python's generator and share no code with
liverank_gpu.generate.graphs. Both begin with a clique of d vertices (for d = 1,
one vertex) and return int32[n - d, d]: the vertices that each later vertex links to, without
repeats. They are plain loops, which a benchmark compiles: see `compiled`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.device import Array

Loop = Callable[..., None]


@cache
def compiled(loop: Loop) -> Loop:
    """The loop as machine code. Needs Numba, of the extra ``bench``."""
    import numba

    decorator: Any = numba.njit
    function: Loop = decorator(loop)
    return function


def barabasi_albert(
    vertices: int,
    edges_per_vertex: int,
    seed: int,
    compile_loop: Callable[[Loop], Loop] = lambda loop: loop,
) -> NDArray[np.int32]:
    """Each edge leads to an earlier vertex with a probability proportional to its degree.

    Batagelj and Brandes, "Efficient generation of large random networks" (Physical Review E 71,
    2005), algorithm 5, with parallel edges redrawn. O(edges) time; 12 bytes an edge.
    """
    links = np.empty((vertices - edges_per_vertex, edges_per_vertex), np.int32)
    d = edges_per_vertex
    # each vertex occurs as often as it has edges
    ends = np.empty(d * (d - 1) + 2 * links.size + 1, np.int32)
    compile_loop(_attach_by_degree)(vertices, links, ends, seed)
    return links


def copy_model(
    vertices: int,
    edges_per_vertex: int,
    probability: float,
    seed: int,
    compile_loop: Callable[[Loop], Loop] = lambda loop: loop,
) -> NDArray[np.int32]:
    """Each edge leads to a uniformly chosen earlier vertex with this probability, else to where one
    of its edges leads.

    Kumar et al., "Stochastic models for the web graph" (FOCS 2000), as Alam and Perumalla have it
    in section 2.4. O(edges) time; 4 bytes an edge.
    """
    links = np.empty((vertices - edges_per_vertex, edges_per_vertex), np.int32)
    compile_loop(_attach_by_copies)(vertices, probability, links, seed)
    return links


def _attach_by_degree(vertices: int, links: Any, ends: Any, seed: int) -> None:
    random.seed(seed)
    d = links.shape[1]
    count = 0
    for v in range(d):
        for _ in range(d - 1):
            ends[count] = v
            count += 1
    if d == 1:
        ends[0] = 0
        count = 1
    for v in range(d, vertices):
        chosen = 0
        while chosen < d:
            target = ends[random.randrange(0, count)]
            repeated = False
            for earlier in range(chosen):
                repeated |= links[v - d, earlier] == target
            if not repeated:
                links[v - d, chosen] = target
                chosen += 1
        for edge in range(d):
            ends[count] = v
            ends[count + 1] = links[v - d, edge]
            count += 2


def _attach_by_copies(vertices: int, probability: float, links: Any, seed: int) -> None:
    random.seed(seed)
    d = links.shape[1]
    for v in range(d, vertices):
        chosen = 0
        while chosen < d:
            target = random.randrange(0, v)
            if random.random() >= probability:
                if target >= d:
                    target = links[target - d, random.randrange(0, d)]
                elif d > 1:
                    target = (target + 1 + random.randrange(0, d - 1)) % d
            repeated = False
            for earlier in range(chosen):
                repeated |= links[v - d, earlier] == target
            if not repeated:
                links[v - d, chosen] = target
                chosen += 1


@dataclass(frozen=True, slots=True)
class DegreeDistribution:
    """How many vertices have each degree; degrees that none has are left out.

    degrees, counts  int64[…], ascending degrees
    """

    degrees: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def of_links(cls, xp: Any, links: Array) -> DegreeDistribution:
        """Of the clique of d vertices and the vertices that later ones link to.

        xp     the array module of `links`
        links  int32[n - d, d]
        """
        later, d = links.shape
        degree = xp.bincount(links.ravel(), minlength=later + d)
        degree[:d] += d - 1
        degree[d:] += d
        counts = xp.bincount(degree)
        present = xp.flatnonzero(counts)
        return cls(*(np.array(part.tolist(), np.int64) for part in (present, counts[present])))

    def exponent(self, least: int) -> float:
        """The exponent γ of a power law k^-γ, for the degrees from `least` on: the maximum
        likelihood estimate 1 + N/Σln(k/(least - 1/2)) of Clauset, Shalizi and Newman (SIAM Review
        51, 2009), equation 3.7. NaN without such degrees.
        """
        tail = self.degrees >= least
        degrees, counts = self.degrees[tail], self.counts[tail]
        if len(degrees) == 0:
            return float("nan")
        return float(1.0 + counts.sum() / (counts * np.log(degrees / (least - 0.5))).sum())
