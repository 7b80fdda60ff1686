"""Preferential attachment by the copy model: scale-free graphs without parallel edges.

Alam and Perumalla, "Generating billion-edge scale-free networks in seconds: performance study of a
novel GPU-based preferential attachment model" (Oak Ridge National Laboratory, 2017); the copy model
is that of Kumar et al. (FOCS 2000). A graph is a function of n, d, p and the seed:

- The vertices are 0 … n-1. The first d of them are a clique: edges (v, u) for 0 ≤ u < v < d.
- A vertex v ≥ d makes edges 0 … d-1, one after another. Edge l makes attempts 0, 1, … until one
  finds a vertex that v does not link to yet.
- An attempt draws u uniformly from 0 … v-1. With probability p the edge is *direct*: it leads to u.
  Else it is a *copy*: it leads to where one of u's edges leads, each with equal probability. The
  edges of a clique vertex lead to the d-1 others; for d = 1 vertex 0 has none, and is linked to
  directly.

The numbers of attempt a are numbers 3a, 3a+1 and 3a+2 of the sequence that begins at number v·d + l
of the seed's own (liverank_gpu.random_numbers): u is ⌊x·v/2⁶⁴⌋, the edge is direct where the upper
53 bits of the second number are below ⌈p·2⁵³⌉, and the third number chooses among u's edges as the
first one chooses u.

The paper's text has four faults, which this specification avoids. It draws u from 1 … v-1, so that
v = d with p = 1 never ends. It does not test again for duplicates when a queued copy is resolved.
It loses which edge a queued pair (u, l) belongs to. It does not define the clique of d = 1.

The tail of the degrees has the exponent 1 + 1/(1-p); p = 1/2 is the model of Barabási and Albert.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from liverank_gpu.errors import InvalidValue
from liverank_gpu.generate.edges import (
    Columns,
    Edges,
    check_count,
    check_probability,
    chosen,
    edge_list,
)
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.random_numbers import ATTACHMENT_SEQUENCE, sequence_start, threshold
from liverank_gpu.types import BackendName, EdgeBatch


@dataclass(frozen=True, slots=True)
class PreferentialAttachment:
    """A graph that grew by preferential attachment.

    links             int32[vertices - d, d], where the backend computes: row v - d has the d
                      vertices that v links to, in the order in which they were drawn
    vertices          n
    edges_per_vertex  d
    """

    links: Array
    vertices: int
    edges_per_vertex: int
    backend: Backend

    @property
    def edges(self) -> int:
        """Number of edges: d(d-1)/2 of the clique, and d of each later vertex."""
        return int(self.edges_before(self.vertices))

    def edges_before(self, vertex: int) -> int:
        """Number of edges of the vertices below `vertex`."""
        d = self.edges_per_vertex
        if vertex <= d:
            return vertex * (vertex - 1) // 2
        return d * (d - 1) // 2 + (vertex - d) * d

    def columns(self, first: int = 0, last: int | None = None) -> Columns:
        """Sources and targets of the edges of vertices first … last - 1, ordered by source: int32,
        where the backend computes. `last` is the number of vertices unless given.
        """
        xp, d = self.backend.xp, self.edges_per_vertex
        last = self.vertices if last is None else last
        in_clique = np.arange(first, min(last, d), dtype=np.int32)
        clique = (
            np.repeat(in_clique, in_clique),
            np.concatenate(
                [np.arange(0, dtype=np.int32), *(np.arange(v, dtype=np.int32) for v in in_clique)]
            ),
        )
        start = max(first, d)
        rows = self.links[start - d : max(last, start) - d]
        sources = xp.arange(start, max(last, start), dtype=np.int32).repeat(d)
        if len(in_clique) == 0:
            return sources, rows.reshape(-1)
        ends = [self.backend.device.to_device(column) for column in clique]
        return xp.concatenate([ends[0], sources]), xp.concatenate([ends[1], rows.reshape(-1)])

    def edge_list(self, first: int = 0, last: int | None = None) -> Edges:
        """The same as int64 on the host."""
        return edge_list(self.columns(first, last), self.backend)

    def stream(self, size: int) -> Iterator[EdgeBatch]:
        """The graph as insertions: `size` vertices a batch arrive in order, each with its edges.
        Columns are where the backend computes; a batch is made when it is asked for.

        Raises InvalidValue for a size below 1.
        """
        check_count("size", size)
        for first in range(0, self.vertices, size):
            last = min(first + size, self.vertices)
            yield EdgeBatch(*self.columns(first, last), vertices=last)


def preferential_attachment(
    vertices: int,
    edges_per_vertex: int,
    *,
    probability: float = 0.5,
    seed: int = 0,
    backend: BackendName | Backend = "cpu",
) -> PreferentialAttachment:
    """The graph that this module specifies, drawn on `backend`; all backends draw the same one.

    vertices          n, at least d
    edges_per_vertex  d, at least 1
    probability       p of a direct edge, from 0 (a star of d centres) to 1 (no preference)

    Raises InvalidValue, OutOfMemory and BackendUnavailable.
    """
    check_count("edges_per_vertex", edges_per_vertex)
    check_count("vertices", vertices)
    if vertices < edges_per_vertex:
        least = f"at least edges_per_vertex, {edges_per_vertex}"
        raise InvalidValue("vertices", vertices, least)
    check_probability("probability", probability)
    device = chosen(backend)
    links = device.generate.preferential_attachment(
        sequence_start(seed, ATTACHMENT_SEQUENCE),
        vertices,
        edges_per_vertex,
        threshold(probability),
    )
    return PreferentialAttachment(links, vertices, edges_per_vertex, device)
