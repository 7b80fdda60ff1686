"""Which ids are vertices, and in which order vertices are in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.select import TopK
from liverank_gpu.types import EdgeBatch, VertexOrder

# ---- which ids are vertices: all below a limit, but for those that are free ----
#
# A vertex that is removed leaves its id free. The caller decides which id a new vertex gets: a free
# one, or the limit and what follows it. The engine only follows: an id that a batch names in an
# insertion, or in `add`, is a vertex after it. A caller that always takes the lowest free id needs
# no record of its own: the free ids, which a snapshot holds, decide what comes next.

NO_IDS = np.empty(0, np.int64)


def looked_up(
    ids: NDArray[np.int64], numbers: NDArray[Any], asked: NDArray[np.int64], otherwise: float
) -> NDArray[Any]:
    """dtype[k], the number of each id that is asked for, int64[k].

    ids        int64[n], ascending
    numbers    dtype[n], one of each
    otherwise  for ids that are not among them
    """
    if len(ids) == 0:
        return np.full(len(asked), otherwise, numbers.dtype)
    nearest = np.minimum(np.searchsorted(ids, asked), len(ids) - 1)
    return np.where(ids[nearest] == asked, numbers[nearest], otherwise)


class VertexIds:
    """The ids of one graph, on the host.

    limit       every id is below it
    free_count  number of free ids
    """

    def __init__(self, limit: int = 0, free: NDArray[np.integer[Any]] = NO_IDS) -> None:
        self.limit = limit
        self.free_count = 0
        self._free = np.zeros(0, np.bool_)  # ids behind its end are not free
        if len(free):
            self.reserve(limit)
            self.change(free, NO_IDS, limit)

    @property
    def count(self) -> int:
        """Number of vertices."""
        return self.limit - self.free_count

    def copied(self) -> VertexIds:
        """The same ids, which later changes leave as they are."""
        return VertexIds(self.limit, self.free())

    def free(self) -> NDArray[np.int64]:
        """int64[free_count], ascending."""
        return np.flatnonzero(self._free)

    def is_free(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """bool[k], for ids below the limit."""
        flags = np.zeros(len(ids), np.bool_)
        if self.free_count:
            known = ids < len(self._free)
            flags[known] = self._free[ids[known]]
        return flags

    def vertices_among(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those that are vertices, distinct and ascending; others may be any numbers."""
        if len(ids) == 0:
            return NO_IDS
        inside = np.unique(ids[(ids >= 0) & (ids < self.limit)])
        return inside[~self.is_free(inside)]

    def returning(
        self, backend: Backend, batch: EdgeBatch, removed: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """int64[k], ascending: ids that are free, or that the batch removes, and that it makes
        vertices again.
        """
        if self.free_count == 0 and len(removed) == 0:
            return NO_IDS
        named: list[Array] = [batch.insert_sources, batch.insert_targets]
        columns = [
            column if isinstance(column, np.ndarray) else backend.device.to_host(column)
            for column in named
        ]
        ids = np.unique(np.concatenate([*columns, batch.add]).astype(np.int64, copy=False))
        ids = ids[ids < self.limit]
        return ids[self.is_free(ids) | np.isin(ids, removed)]

    def reserve(self, limit: int) -> None:
        """Makes room for ids below the limit."""
        if limit > len(self._free):
            grown = np.zeros(limit + limit // 4, np.bool_)
            grown[: len(self._free)] = self._free
            self._free = grown

    def change(
        self, removed: NDArray[np.integer[Any]], returned: NDArray[np.int64], limit: int
    ) -> bool:
        """Frees ids of vertices, then takes free ids into use, and raises the limit. Room has been
        reserved. Returns whether other ids are free now.
        """
        self.limit = limit
        if len(removed) == len(returned) == 0:
            return False
        self._free[removed] = True
        self._free[returned] = False
        self.free_count += len(removed) - len(returned)
        return not np.array_equal(removed, returned)


# ---- the order of a graph's vertices in memory: ids, which callers know, and positions ----
#
# All arrays over vertices, all lists and all results of backends are in positions. Ids become
# positions when a batch is packed into keys (PackKeys), and positions become
# ids when a result leaves the engine. The map is chosen when the first edges are loaded and covers
# the vertices of that moment. A later vertex has its id as its position, so the map never grows.
#
# Why it matters: a sweep reads one number of y for each edge, at the position of the neighbour,
# and the device fetches whole cache lines. If the vertices with the most in-links are adjacent,
# one line serves many edges, and hot lines stay in cache. If the ids already express locality
# (pages sorted by address, roads by place) that is worth more, and is kept.

_LINE = 16
"""Vertices whose values share a cache line of 128 bytes."""

_WINDOWS, _WINDOW = 8, 1 << 16
"""Number and length, in edges, of the sampled windows of consecutive rows; a cache is assumed to
hold all that one window reads.
"""

GAIN = 0.9
"""``auto`` permutes if fewer than this part of the cache lines are then read."""


class VertexPermutation:
    """A bijection of ids and positions on a backend's device.

    positions  int32[m]: the position of each id below m; other ids are their own positions
    ids        int32[m]: the id at each position below m
    """

    def __init__(self, backend: Backend, ids: Array | None = None) -> None:
        self._backend = backend
        allocate = backend.device.allocate
        self.ids: Array = allocate("vertex order", 0, np.int32) if ids is None else ids
        count = len(self.ids)
        self.positions: Array = allocate("vertex order", count, np.int32)
        self.positions[self.ids] = backend.xp.arange(count, dtype=np.int32)

    @property
    def is_identity(self) -> bool:
        """Whether every id is its own position."""
        return len(self.ids) == 0

    def positions_of(self, ids: Array) -> Array:
        """integer[k] on the device: the positions of ids on the host or the device, each of a
        vertex.
        """
        xp = self._backend.xp
        return _mapped(xp, xp.asarray(ids), self.positions)

    def ids_of(self, positions: Array) -> NDArray[np.int64]:
        """int64[k] on the host: the ids at positions on the host or the device."""
        if not self.is_identity:
            positions = self.to_ids(self._backend.xp.asarray(positions))
        return np.asarray(self._backend.device.to_host(positions), np.int64)

    def to_ids(self, positions: Array) -> Array:
        """integer[k]: the ids at positions, both on the device."""
        return _mapped(self._backend.xp, positions, self.ids)

    def by_id(self, values: Array) -> Array:
        """An array over positions as one over ids: a copy, or the same array for the identity."""
        if self.is_identity:
            return values
        permuted = len(self.positions)
        arranged = self._backend.xp.empty_like(values)
        arranged[:permuted] = values[self.positions]
        arranged[permuted:] = values[permuted:]
        return arranged

    def by_position(self, values: Array) -> Array:
        """An array over ids as one over positions: a copy, or the same array for the identity."""
        if self.is_identity:
            return values
        arranged = values.copy()
        arranged[: len(self.ids)] = values[self.ids]
        return arranged

    def top_k(self, values: Array, k: int) -> TopK:
        """Ids and values of the k largest of values[n] over positions, on the host; ties by id.
        0 ≤ k ≤ n.
        """
        return self._backend.select.top_k(values, k, self.to_ids)

    @property
    def nbytes(self) -> int:
        return int(self.positions.nbytes + self.ids.nbytes)


def choose_permutation(
    backend: Backend, order: VertexOrder, sources: Array, targets: Array, vertices: int
) -> VertexPermutation:
    """The permutation for a graph that is about to get its first edges.

    sources, targets  integer[m], m ≥ 1, columns of GraphOperations.columns
    """
    small = min(vertices, len(sources)) < backend.sizes.least_permuted
    identity = VertexPermutation(backend)
    if order == "given" or (order == "auto" and small):
        return identity
    xp = backend.xp
    in_degree = xp.bincount(targets, minlength=vertices)
    degree = xp.bincount(sources, minlength=vertices) + in_degree
    by_degree = VertexPermutation(backend, by_descending_degree(xp, degree))
    if order == "degree":
        return by_degree
    before, after = (
        cache_lines_per_edge(backend, permutation, sources, targets, in_degree)
        for permutation in (identity, by_degree)
    )
    return by_degree if after < GAIN * before else identity


def permutation_bytes(edges: int, vertices: int, at_once: int) -> int:
    """Upper bound on the memory that `choose_permutation` takes beside the columns: degrees, their
    sort, and the edges processed at once, Sizes.entries. 8 bytes a vertex remain.
    """
    return 64 * vertices + 2 * edges + 16 * min(edges, at_once)


def by_descending_degree(xp: Any, degree: Array) -> Array:
    """int32[n]: all vertices, higher degrees first; degrees between the same two powers of two keep
    the given order.

    Coarse groups keep neighbouring vertices together (Faldu, Diamond and Grot, "A closer look at
    lightweight graph reordering", IISWC 2019, section IV).
    """
    # the exponent of d is its number of binary digits; 16-bit keys are sorted in O(n)
    digits = xp.frexp(degree.astype(np.float64))[1]
    return xp.argsort((64 - digits).astype(np.uint16), kind="stable").astype(np.int32)


def cache_lines_per_edge(
    backend: Backend,
    permutation: VertexPermutation,
    sources: Array,
    targets: Array,
    in_degree: Array,
) -> float:
    """See `cache_lines_of_chunks`.

    sources, targets  integer[m]
    """
    at_once = backend.sizes.entries
    pieces = (slice(begin, begin + at_once) for begin in range(0, len(sources), at_once))
    chunks = ((sources[piece], targets[piece]) for piece in pieces)
    return cache_lines_of_chunks(backend, permutation, chunks, len(sources), in_degree)


def cache_lines_of_chunks(
    backend: Backend,
    permutation: VertexPermutation,
    chunks: Iterable[tuple[Array, Array]],
    edges: int,
    in_degree: Array,
    longest: int = _WINDOW,
) -> float:
    """How many cache lines a sweep reads per edge, from a sample that depends on the graph alone.

    permutation  of all vertices, or the identity
    chunks       sources and targets, integer[…] each, of all `edges`
    in_degree    integer[n], by id
    longest      edges of a window, at most as many as by default

    Sweeps visit rows in the order of their positions. The sample is a few windows of consecutive
    rows, evenly spaced by edges; a line that is read several times in a window counts once.
    """
    xp, vertices = backend.xp, len(in_degree)
    ends = xp.cumsum(in_degree if permutation.is_identity else in_degree[permutation.ids])
    begins = np.arange(_WINDOWS) * (edges // _WINDOWS)
    length = min(longest, _WINDOW, max(1, edges // _WINDOWS))
    borders = backend.device.to_device(np.stack([begins, begins + length]))
    limits = backend.device.to_host(xp.searchsorted(ends, borders, "right"))
    window = xp.zeros(vertices, np.int8)
    for number, (first, last) in enumerate(limits.T.tolist(), start=1):
        window[first : last + 1] = number
    window = permutation.by_id(window)
    lines = vertices // _LINE + 1
    found = []
    for sources, targets in chunks:
        number = window[targets]
        sampled = xp.flatnonzero(number)
        line = _mapped(xp, sources[sampled], permutation.positions) // _LINE
        found.append(number[sampled].astype(np.int64) * lines + line)
    reads = xp.sort(xp.concatenate(found))
    new = xp.ones(len(reads), bool)
    new[1:] = reads[1:] != reads[:-1]
    # NumPy's `unique` hashes, which takes ten times as long as to sort
    per_window = [
        backend.device.to_host(xp.bincount(each // lines, minlength=_WINDOWS + 1))
        for each in (reads[new], reads)
    ]
    distinct, total = per_window
    sampled_windows = total > 0
    return float(np.mean(distinct[sampled_windows] / total[sampled_windows]))


def _mapped(xp: Any, values: Array, table: Array) -> Array:
    """table[v] for each v below its length, other values unchanged."""
    if len(table) == 0:
        return values
    known = values < len(table)
    return xp.where(known, table[xp.where(known, values, 0)], values)
