"""The order in which a graph numbers its vertices inside: the ids that callers know, and positions.

All arrays over vertices, all lists and all answers of the backends are in positions. Ids become
positions where a batch is packed into keys (Backend.sorted_keys), and positions ids where an answer
leaves the engine; both by the one map that is kept here. It is chosen when the first edges are
loaded and covers the vertices of that moment: a later vertex has its id for a position, so the map
never grows.

Why it matters. A sweep reads a number of y for each edge, at the position of the neighbour, and the
device fetches whole cache lines. Where the most linked-to vertices stand next to each other, one
line serves many edges, and the lines that are used most stay in the cache. Where the ids already
say who is linked to whom (pages sorted by address, roads by place) that is worth more and is kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.backends.base import Array, Backend
from gpu.types import Ranking, VertexOrder

_LEAST = 1 << 16
"""Vertices and edges below which ``auto`` keeps the given order: all of y fits any cache."""

_LINE = 16
"""Vertices whose values share a cache line: 128 bytes of float64, 64 of float32."""

_WINDOWS, _WINDOW = 8, 1 << 16
"""So many stretches of so many edges are looked at, of rows that sweeps visit one after the other;
of what they read, a cache holds everything."""

_GAIN = 0.9
"""``auto`` renumbers where that leaves fewer than this share of the lines to read."""

_CHUNK = 1 << 26
"""Edges looked through at once."""


class Numbering:
    """A bijection of ids and positions on a backend's device.

    positions  int32[m]: the position of each id below m; all others are their own
    ids        int32[m]: the id at each position below m
    """

    def __init__(self, backend: Backend, ids: Array | None = None) -> None:
        self._backend = backend
        self.ids: Array = backend.allocate("vertex order", 0, np.int32) if ids is None else ids
        count = len(self.ids)
        self.positions: Array = backend.allocate("vertex order", count, np.int32)
        self.positions[self.ids] = backend.xp.arange(count, dtype=np.int32)

    @property
    def given(self) -> bool:
        """Whether every id is its own position."""
        return len(self.ids) == 0

    def positions_of(self, ids: Array) -> Array:
        """integer[k] on the device: the positions of ids of the host or the device, each that of a
        vertex.
        """
        xp = self._backend.xp
        return _mapped(xp, xp.asarray(ids), self.positions)

    def ids_of(self, positions: Array) -> NDArray[np.int64]:
        """int64[k] on the host: the ids at positions of the host or the device."""
        if not self.given:
            positions = _mapped(self._backend.xp, self._backend.xp.asarray(positions), self.ids)
        return np.asarray(self._backend.to_host(positions), np.int64)

    def sorted_by_id(self, positions: Array) -> Array:
        """Distinct positions of the device, in the order of their ids."""
        xp = self._backend.xp
        if self.given:
            return xp.sort(positions)
        return positions[xp.argsort(_mapped(xp, positions, self.ids))]

    def by_id(self, values: Array) -> Array:
        """An array over positions as one over ids: another one, or the same where the order is the
        given one.
        """
        if self.given:
            return values
        renumbered = len(self.positions)
        arranged = self._backend.xp.empty_like(values)
        arranged[:renumbered] = values[self.positions]
        arranged[renumbered:] = values[renumbered:]
        return arranged

    def top_k(self, values: Array, k: int) -> tuple[NDArray[np.int64], Ranking]:
        """Ids and values of the k largest of float64[n] over positions, on the host; ties by id.
        0 ≤ k ≤ n.
        """
        places, best = self._backend.top_k(values, k)
        if self.given or k == 0:
            return places, best
        above = int(np.count_nonzero(best > best[-1]))
        # of the vertices that tie for the last places, those of the lowest ids
        tied = self.ids_of(self._backend.xp.flatnonzero(values == best[-1]))
        last = np.sort(np.partition(tied, k - above - 1)[: k - above])
        first = self.ids_of(places[:above])
        ids = np.concatenate([first[np.lexsort((first, -best[:above]))], last])
        return ids, best

    def top_columns(
        self, values: Array, places: NDArray[np.int64]
    ) -> list[tuple[NDArray[np.int64], Ranking]]:
        """`top_k` of the first len(places) columns of float64[n, columns] over positions."""
        tops = self._backend.top_columns(values, places)
        if self.given:
            return tops
        found = []
        for column, (positions, best) in enumerate(tops):
            if len(best) < 2 or (best[-1] == best[-2] and len(best) < len(values)):
                # others may tie for the last place
                found.append(self.top_k(values[:, column].copy(), len(best)))
                continue
            ids = self.ids_of(positions)
            by_rank = np.lexsort((ids, -best))
            found.append((ids[by_rank], best[by_rank]))
        return found

    @property
    def nbytes(self) -> int:
        return int(self.positions.nbytes + self.ids.nbytes)


def numbering_of(
    backend: Backend, order: VertexOrder, sources: Array, targets: Array, vertices: int
) -> Numbering:
    """The numbering for a graph that is about to get its first edges.

    sources, targets  integer[m], m ≥ 1, columns as Backend.columns has them
    """
    few = min(vertices, len(sources)) < _LEAST
    given = Numbering(backend)
    if order == "given" or (order == "auto" and few):
        return given
    xp = backend.xp
    in_degree = xp.bincount(targets, minlength=vertices)
    degree = xp.bincount(sources, minlength=vertices) + in_degree
    by_degree = Numbering(backend, _by_falling_degree(xp, degree))
    if order == "degree":
        return by_degree
    before, after = (
        lines_read(backend, numbering, sources, targets, in_degree)
        for numbering in (given, by_degree)
    )
    return by_degree if after < _GAIN * before else given


def bytes_to_choose(edges: int, vertices: int) -> int:
    """An upper bound on the memory that `numbering_of` takes beside the columns: degrees and their
    sorting, the edges looked through at once. 8 bytes a vertex stay.
    """
    return 64 * vertices + 2 * edges + 16 * min(edges, _CHUNK)


def _by_falling_degree(xp: Any, degree: Array) -> Array:
    """int32[n]: all vertices, those of higher degree first; where no power of two lies between
    their degrees, in the order given.

    Coarse groups leave vertices together that were (Faldu, Diamond and Grot, "A closer look at
    lightweight graph reordering", IISWC 2019, section IV) and cost nothing where nothing was.
    """
    # the exponent of d is the number of its binary digits; 16-bit keys are sorted in O(n)
    digits = xp.frexp(degree.astype(np.float64))[1]
    return xp.argsort((64 - digits).astype(np.uint16), kind="stable").astype(np.int32)


def lines_read(
    backend: Backend, numbering: Numbering, sources: Array, targets: Array, in_degree: Array
) -> float:
    """How many cache lines a sweep reads per edge, from a sample that depends on the graph alone.

    numbering  of all vertices, or the given one
    in_degree  integer[n], by id

    Sweeps visit the rows in the order of their positions. The sample is a few stretches of rows,
    evenly spaced by edges; a line that is read several times in a stretch is counted once.
    """
    xp, edges, vertices = backend.xp, len(sources), len(in_degree)
    ends = xp.cumsum(in_degree if numbering.given else in_degree[numbering.ids])
    begins = np.arange(_WINDOWS) * (edges // _WINDOWS)
    window = min(_WINDOW, max(1, edges // _WINDOWS))
    limits = backend.to_host(
        xp.searchsorted(ends, backend.to_device(np.stack([begins, begins + window])), "right")
    )
    stretch = xp.zeros(vertices, np.int8)
    for number, (first, last) in enumerate(limits.T.tolist(), start=1):
        stretch[first : last + 1] = number
    stretch = numbering.by_id(stretch)
    lines = vertices // _LINE + 1
    found = []
    for begin in range(0, edges, _CHUNK):
        chunk = slice(begin, begin + _CHUNK)
        number = stretch[targets[chunk]]
        seen = xp.flatnonzero(number)
        read = _mapped(xp, sources[chunk][seen], numbering.positions) // _LINE
        found.append(number[seen].astype(np.int64) * lines + read)
    reads = xp.concatenate(found)
    all_reads = backend.to_host(xp.bincount(reads // lines, minlength=_WINDOWS + 1))
    distinct = backend.to_host(xp.bincount(xp.unique(reads) // lines, minlength=_WINDOWS + 1))
    looked_at = all_reads > 0
    return float(np.mean(distinct[looked_at] / all_reads[looked_at]))


def _mapped(xp: Any, values: Array, table: Array) -> Array:
    """table[v] of each v below its length, the others as they are."""
    if len(table) == 0:
        return values
    known = values < len(table)
    return xp.where(known, table[xp.where(known, values, 0)], values)
