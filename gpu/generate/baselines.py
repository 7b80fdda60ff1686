"""The sequential models that preferential attachment is compared with, on one core.

They draw from Numba's generator and share no code with gpu.generate.preferential_attachment. Both
begin with a clique of d vertices (for d = 1, one vertex) and return int32[n - d, d]: the vertices
that each later vertex links to, without repeats.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.jit.compile import sequential


def barabasi_albert(vertices: int, edges_per_vertex: int, seed: int) -> NDArray[np.int32]:
    """Each edge leads to an earlier vertex with a probability proportional to its degree.

    Batagelj and Brandes, "Efficient generation of large random networks" (Physical Review E 71,
    2005), algorithm 5, with parallel edges redrawn. O(edges) time; 12 bytes an edge.
    """
    links = np.empty((vertices - edges_per_vertex, edges_per_vertex), np.int32)
    _barabasi_albert(vertices, links, seed)
    return links


def copy_model(
    vertices: int, edges_per_vertex: int, probability: float, seed: int
) -> NDArray[np.int32]:
    """Each edge leads to a uniformly chosen earlier vertex with this probability, else to where one
    of its edges leads.

    Kumar et al., "Stochastic models for the web graph" (FOCS 2000), as Alam and Perumalla have it
    in section 2.4. O(edges) time; 4 bytes an edge.
    """
    links = np.empty((vertices - edges_per_vertex, edges_per_vertex), np.int32)
    _copy_model(vertices, probability, links, seed)
    return links


@sequential
def _barabasi_albert(vertices, links, seed):  # type: ignore[no-untyped-def]
    np.random.seed(seed)
    d = links.shape[1]
    # each vertex occurs as often as it has edges
    ends = np.empty(d * (d - 1) + 2 * links.size + 1, np.int32)
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
            target = ends[np.random.randint(0, count)]
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


@sequential
def _copy_model(vertices, probability, links, seed):  # type: ignore[no-untyped-def]
    np.random.seed(seed)
    d = links.shape[1]
    for v in range(d, vertices):
        chosen = 0
        while chosen < d:
            target = np.random.randint(0, v)
            if np.random.random() >= probability:
                if target >= d:
                    target = links[target - d, np.random.randint(0, d)]
                elif d > 1:
                    target = (target + 1 + np.random.randint(0, d - 1)) % d
            repeated = False
            for earlier in range(chosen):
                repeated |= links[v - d, earlier] == target
            if not repeated:
                links[v - d, chosen] = target
                chosen += 1
