"""Random and regular graphs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends import backend_named
from liverank_gpu.errors import InvalidValue
from liverank_gpu.native import kernels
from liverank_gpu.operations import generate as op
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.types import VERTEX_LIMIT, BackendName, EdgeBatch

# ---- what generators return, and how their arguments are checked ----

Edges = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Sources and targets, int64[m] each, on the host."""

Columns = tuple[Array, Array]
"""Sources and targets, int32[m] each, where the backend computes."""


def chosen(backend: BackendName | Backend) -> Backend:
    """The backend itself, or the one of this name."""
    return backend if isinstance(backend, Backend) else backend_named(backend)


def check_count(name: str, value: Any, least: int = 1, most: int = VERTEX_LIMIT) -> None:
    """Raises InvalidValue unless `value` is an integer from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidValue(name, value, f"an integer from {least} to {most}")


def check_probability(name: str, value: Any) -> None:
    """Raises InvalidValue unless `value` is a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise InvalidValue(name, value, "a number from 0 to 1")


def edge_list(columns: Columns, backend: BackendName | Backend) -> Edges:
    """The columns that a generator drew on `backend`, as int64 on the host."""
    sources, targets = (chosen(backend).device.to_host(ends) for ends in columns)
    return sources.astype(np.int64), targets.astype(np.int64)


# ---- uniform random graphs, G(n, m) ----


def uniform(
    vertices: int, edges: int, *, seed: int = 0, backend: BackendName | Backend = "cpu"
) -> Columns:
    """`edges` distinct directed edges between distinct vertices, as good as uniformly chosen.

    Edge i is a pseudorandom permutation of the n(n-1) ordered pairs applied to i: a Feistel network
    of 6 rounds with cycle walking (Black and Rogaway, "Ciphers with arbitrary finite domains",
    2002). So edges are distinct whatever thread draws them, and more edges of the same seed and
    vertices begin with these. Returns sources and targets, int32[edges], where `backend` computes.

    Raises InvalidValue for more edges than pairs, OutOfMemory and BackendUnavailable.
    """
    check_count("vertices", vertices)
    check_count("edges", edges, 0, vertices * (vertices - 1))
    start = op.sequence_start(seed, op.UNIFORM_SEQUENCE)
    return chosen(backend).generate.uniform(start, vertices, edges)


# ---- grids, which have low degrees and long paths, as road networks have ----


def grid(rows: int, columns: int, *, keep: float = 1.0, seed: int = 0) -> Edges:
    """A grid in which every vertex is joined to its four neighbours in both directions, like
    streets.

    Vertex `row · columns + column`. A joint (both of its edges) is kept with probability `keep`, so
    that a value below 1 leaves dead ends and detours as in road networks: low degrees and long
    paths, where R-MAT has hubs and short ones. Returns sources and targets, int64[m], without
    repeats; m = 2 · (rows · (columns - 1) + (rows - 1) · columns) where all are kept.

    Raises InvalidValue for less than one row or column, more vertices than ids, or keep out of (0,
    1].
    """
    for name, count in (("rows", rows), ("columns", columns)):
        if count < 1:
            raise InvalidValue(name, count, "an integer of at least 1")
    if rows * columns > VERTEX_LIMIT:
        raise InvalidValue("rows · columns", rows * columns, f"at most {VERTEX_LIMIT}")
    if not 0.0 < keep <= 1.0:
        raise InvalidValue("keep", keep, "a number above 0 and at most 1")
    ids = np.arange(rows * columns, dtype=np.int64).reshape(rows, columns)
    first = np.concatenate([ids[:, :-1].ravel(), ids[:-1, :].ravel()])
    second = np.concatenate([ids[:, 1:].ravel(), ids[1:, :].ravel()])
    if keep < 1.0:
        kept = op.random_numbers(seed, op.KEEP_SEQUENCE, len(first)) < np.uint64(keep * 2.0**64)
        first, second = first[kept], second[kept]
    return np.concatenate([first, second]), np.concatenate([second, first])


# ---- chain-like graphs, as k-mer graphs of genomes are: long paths and few branches ----


def chains(
    vertices: int,
    *,
    length: float = 30.0,
    branching: float = 0.5,
    shuffle: bool = True,
    seed: int = 0,
    backend: BackendName | Backend = "cpu",
) -> Columns:
    """Paths of geometrically distributed length, whose ends may branch off other vertices. Every
    edge has its reverse.

    A vertex ends its path with probability 1/length, else it is joined to the next one. An end is
    joined to a uniformly chosen vertex with probability `branching`, unless that is itself or its
    predecessor. So most degrees are 2 and paths are long. `shuffle` relabels the vertices, so that
    neighbours on a path are not neighbours in memory. Returns sources and targets, int32[m], where
    `backend` computes: first the edges of paths and branches, then their reverses. No edge is
    repeated.

    length     mean number of vertices of a path, at least 1
    branching  from 0 to 1
    Raises InvalidValue and BackendUnavailable.
    """
    check_count("vertices", vertices)
    if not length >= 1.0:
        raise InvalidValue("length", length, "a number of at least 1")
    check_probability("branching", branching)
    device = chosen(backend)
    xp, eleven = device.xp, np.uint64(11)

    def numbers(sequence: int) -> Array:
        return device.generate.random_numbers(op.sequence_start(seed, sequence), 0, vertices)

    ends = numbers(op.CHAIN_END_SEQUENCE) >> eleven < op.threshold(1.0 / length)
    ends[-1:] = True
    branches = ends & (numbers(op.BRANCH_SEQUENCE) >> eleven < op.threshold(branching))
    inner, branching_off = xp.flatnonzero(~ends), xp.flatnonzero(branches)
    # 31 bits of a number times less than 2³¹ vertices: no product is too large
    drawn = numbers(op.BRANCH_TARGET_SEQUENCE)[branching_off] >> np.uint64(33)
    reached = (drawn * np.uint64(vertices) >> np.uint64(31)).astype(np.int64)
    # neither itself nor its predecessor, to which it may be joined already
    kept = (reached != branching_off) & (reached != branching_off - 1)
    # of two ends that branch to each other one edge is enough
    mutual = kept & branches[reached]
    target_of = xp.full(vertices, -1, np.int64)
    target_of[branching_off] = reached
    kept &= ~(mutual & (target_of[reached] == branching_off) & (reached < branching_off))
    first = xp.concatenate([inner, branching_off[kept]])
    second = xp.concatenate([inner + 1, reached[kept]])
    if shuffle:
        labels = xp.argsort(numbers(op.SHUFFLE_SEQUENCE), kind="stable")
        first, second = labels[first], labels[second]
    return tuple(
        xp.concatenate(halves).astype(np.int32) for halves in ((first, second), (second, first))
    )


# ---- R-MAT: skewed degrees and short paths, like links between people or pages ----

RMAT_PROBABILITIES = (0.57, 0.19, 0.19, 0.05)
"""Of an edge lying in the upper left, upper right, lower left, lower right quarter of the
matrix.
"""


def rmat(scale: int, edges_per_vertex: int = 16, *, seed: int = 0, shuffle: bool = True) -> Edges:
    """A graph of 2^scale vertices with a skewed degree distribution, like links between people or
    pages.

    Returns sources and targets, int64[edges_per_vertex · 2^scale], in 0 … 2^scale - 1. Repeated
    edges and self-loops occur, as the model has it. `shuffle` relabels the vertices, so that an id
    says nothing of its degree. The same arguments give the same edges in the same order on any
    number of threads.

    Chakrabarti, Zhan and Faloutsos, "R-MAT: a recursive model for graph mining" (SDM 2004), with
    the quarter probabilities of the Graph500 specification (section 3.3).
    Raises InvalidValue for a scale out of 1 … 30 or fewer than one edge a vertex.
    """
    if not 1 <= scale <= 30:
        raise InvalidValue("scale", scale, "an integer from 1 to 30")
    if edges_per_vertex < 1:
        raise InvalidValue("edges_per_vertex", edges_per_vertex, "an integer of at least 1")
    vertices = 2**scale
    sources = np.empty(vertices * edges_per_vertex, np.int64)
    targets = np.empty_like(sources)
    thresholds = (np.cumsum(RMAT_PROBABILITIES[:3]) * 2.0**64).astype(np.uint64)
    start = op.sequence_start(seed, op.EDGE_SEQUENCE)
    kernels.draw_rmat(start, scale, thresholds, sources, targets)
    if shuffle:
        labels = np.argsort(op.random_numbers(seed, op.LABEL_SEQUENCE, vertices), kind="stable")
        sources, targets = labels[sources], labels[targets]
    return sources, targets


# ---- preferential attachment by the copy model: scale-free graphs without parallel edges ----
#
# Alam and Perumalla, "Generating billion-edge scale-free networks in seconds: performance study of
# a novel GPU-based preferential attachment model" (Oak Ridge National Laboratory, 2017); the copy
# model is that of Kumar et al. (FOCS 2000). A graph is a function of n, d, p and the seed:
#
# - The vertices are 0 … n-1. The first d of them are a clique: edges (v, u) for 0 ≤ u < v < d.
# - A vertex v ≥ d makes edges 0 … d-1, one after another. Edge l makes attempts 0, 1, … until one
#   finds a vertex that v does not link to yet.
# - An attempt draws u uniformly from 0 … v-1. With probability p the edge is *direct*: it leads to
#   u. Else it is a *copy*: it leads to where one of u's edges leads, each with equal probability.
#   The edges of a clique vertex lead to the d-1 others; for d = 1 vertex 0 has none, and is linked
#   to directly.
#
# The numbers of attempt a are numbers 3a, 3a+1 and 3a+2 of the sequence that begins at number
# v·d + l of the seed's own (liverank_gpu.operations.generate): u is ⌊x·v/2⁶⁴⌋, the edge is direct
# where the upper 53 bits of the second number are below ⌈p·2⁵³⌉, and the third number chooses among
# u's edges as the first one chooses u.
#
# The paper's text has four faults, which this specification avoids. It draws u from 1 … v-1, so
# that v = d with p = 1 never ends. It does not test again for duplicates when a queued copy is
# resolved. It loses which edge a queued pair (u, l) belongs to. It does not define the clique of
# d = 1.
#
# The tail of the degrees has the exponent 1 + 1/(1-p); p = 1/2 is the model of Barabási and
# Albert.


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


def check_attachment(vertices: Any, edges_per_vertex: Any, probability: Any) -> None:
    """Raises InvalidValue unless there is such a graph."""
    check_count("edges_per_vertex", edges_per_vertex)
    check_count("vertices", vertices)
    if vertices < edges_per_vertex:
        least = f"at least edges_per_vertex, {edges_per_vertex}"
        raise InvalidValue("vertices", vertices, least)
    check_probability("probability", probability)


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
    check_attachment(vertices, edges_per_vertex, probability)
    device = chosen(backend)
    links = device.generate.preferential_attachment(
        op.sequence_start(seed, op.ATTACHMENT_SEQUENCE),
        vertices,
        edges_per_vertex,
        op.threshold(probability),
    )
    return PreferentialAttachment(links, vertices, edges_per_vertex, device)
