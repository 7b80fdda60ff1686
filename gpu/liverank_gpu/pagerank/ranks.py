"""A published copy of the ranks: immutable, on the backend's device, readable from any thread."""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import InvalidValue, UnknownVertex
from liverank_gpu.graph.vertices import VertexPermutation
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.pagerank.places import RankTies
from liverank_gpu.types import REMOVED, Ranking

_FREE = -np.inf
"""In place of the y of a free id: it is in no list of the largest or of changes."""

_CAPACITY = 1 << 16
"""Changes that are sorted on the host; more are selected on the device."""


class Ranks:
    """The ranks of one moment; they sum to 1. Later batches do not change them.

    count        number of ranked vertices: the ids below `id_limit` that were not free
    base         the part of each rank that no in-edge gives, by teleports and, in a ``uniform``
                 graph, from vertices without out-edges: β/Σy
    id_limit     every ranked id is below it
    error_bound  proven upper bound on the L1 distance to the exact ranks of that graph
    """

    def __init__(
        self,
        backend: Backend,
        permutation: VertexPermutation,
        values: Array,
        mass: float,
        error_bound: float,
        free: Array,
        ties: RankTies | None,
        rhs_scale: float,
        id_limit: int | None = None,
    ) -> None:
        """values  values[n], y over positions: its own from now on
        mass    Σy
        free    int32[…], the positions of no vertex
        ties    vertices that get equal ranks; error_bound contains what that adds
        rhs_scale  β
        id_limit   None: n
        """
        if len(free):
            values[free] = _FREE
        if ties is not None:
            ids, equal = ties.columns()
            values[permutation.positions_of(ids)] = backend.device.to_device(equal)
        self._ties = ties
        self._free = free
        self._written = backend.device.event()  # readers have streams of their own
        self._written.record()
        self.count = len(values) - len(free)
        self.id_limit = len(values) if id_limit is None else id_limit
        self.error_bound = error_bound
        self.base = rhs_scale / mass if mass > 0.0 else 0.0
        self._rhs_scale = rhs_scale
        self._backend = backend
        self._permutation = permutation
        self._values = values
        self._mass = mass

    def bounded(self, error_bound: float) -> Ranks:
        """The same ranks with another bound, for another graph."""
        same = copy(self)
        same.error_bound = error_bound
        return same

    def copied(self) -> tuple[Ranking, float, float]:
        """y over positions on the host, -inf for free ids; Σy; and β."""
        device = self._backend.device
        with device.reading(self._written):
            return device.to_host(self._values), self._mass, self._rhs_scale

    def is_copy_of(self, others: Ranks | None) -> bool:
        """Whether only the bound is another: see `bounded`."""
        return others is not None and self._values is others._values

    def of(self, vertices: NDArray[np.integer[Any]]) -> Ranking:
        """float64[len(vertices)]: the rank of each id. Raises UnknownVertex for an id that is not
        ranked.
        """
        vertices = np.asarray(vertices, np.int64)
        outside = np.flatnonzero((vertices < 0) | (vertices >= self.id_limit))
        if len(outside):
            place = int(outside[0])
            raise UnknownVertex(
                f"vertices[{place}]", int(vertices[place]), f"an id below {self.id_limit}"
            )
        device = self._backend.device
        with device.reading(self._written):
            values = self._values[self._permutation.positions_of(vertices)]
            ranks = device.to_host(values).astype(np.float64) / self._mass
        removed = np.flatnonzero(ranks == _FREE)
        if len(removed):
            place = int(removed[0])
            raise UnknownVertex(f"vertices[{place}]", int(vertices[place]), REMOVED)
        return ranks

    def ties_of(self, vertices: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64[k]: a number for each tie among these ids, -1 for those that are in none.

        The vertices of a tie are proven to have equal ranks, and those of any other vertex to be
        higher or lower: so they have places one after the other, in the order of their ids. Only
        ranks of an update with `settle` have ties, among the first places and wherever these reach.
        """
        if self._ties is None:
            return np.full(len(vertices), -1, np.int64)
        return self._ties.labels(vertices)

    def top(self, k: int, offset: int = 0) -> tuple[NDArray[np.int64], Ranking]:
        """Ids and ranks of places offset … offset+k-1, highest first; ties by id."""
        last = min(offset + k, self.count)
        with self._backend.device.reading(self._written):
            vertices, values = self._permutation.top_k(self._values, last)
        return vertices[offset:], values[offset:] / self._mass

    def explain(
        self,
        vertex: int,
        steps: tuple[NDArray[np.int64], NDArray[np.float64]],
        damping: float,
        k: int,
        restart: float = 1.0,
    ) -> Explanation:
        """See Engine.explain.

        steps    of the graph of these ranks: see EdgeReader.steps_to
        restart  of a view: see Engine.view_steps_to
        """
        if k < 0:
            raise InvalidValue("k", k, "at least 0")
        rank = float(self.of(np.array([vertex]))[0])
        sources, walked = steps
        given = damping * self.of(sources) * walked
        places = np.arange(len(given))
        if k < len(given):  # those that may be among the first k, so that few are sorted
            places = np.flatnonzero(given >= -np.partition(-given, k)[k])
        first = places[np.lexsort((sources[places], -given[places]))[:k]]
        rest = float(np.delete(given, first).sum())
        return Explanation(
            rank, restart * self.base, len(sources), sources[first], given[first], rest
        )

    def to_numpy(self) -> Ranking:
        """float64[id_limit], all ranks on the host; 0 for a free id."""
        device = self._backend.device
        with device.reading(self._written):
            values = self._permutation.by_id(self._values)[: self.id_limit]
            try:
                ranks = device.to_host(values / self._mass)
            except MemoryError:
                ranks = device.to_host(values)
                ranks /= self._mass
        if len(self._free):
            ranks[ranks == _FREE] = 0.0
        return ranks

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return int(self._values.nbytes)

    def warm_up(self) -> None:
        """Compiles what readers use, so that none waits for it."""
        self.top(1)
        RankReference(self).changes(self, 1.0, 1)


class Explanation(NamedTuple):
    """What a rank consists of. The parts add up to it within the error bound of the ranks.

    base           what no in-edge gives: see Ranks
    degree         number of in-neighbours, the vertex itself included if it has a loop
    sources        int64[k], the in-neighbours that give the most, most first, equal ones by id
    contributions  float64[k], damping · rank · weight of the edge / weight of all out-edges, each
    rest           the sum of what the others give
    """

    rank: float
    base: float
    degree: int
    sources: NDArray[np.int64]
    contributions: Ranking
    rest: float


class RankChanges(NamedTuple):
    """Ranks that changed.

    found   number of all of them
    ids     int64[k], those with the largest differences, largest first
    values  float64[k], their new ranks
    """

    found: int
    ids: NDArray[np.int64]
    values: Ranking


class RankReference:
    """The rank last told of each vertex, to compare later ranks with: float64[n] on the backend's
    device, 8 bytes an id. Not thread-safe. Vertices that are added later have rank 0.

    Raises OutOfMemory.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._backend = ranks._backend
        device = self._backend.device
        device.require("the ranks of a subscription", 8 * ranks.id_limit)
        self._permutation = ranks._permutation
        with device.reading(ranks._written):
            self._told: Array = ranks._values.astype(np.float64) / ranks._mass
            self._told[ranks._free] = 0.0

    def of(self, ids: NDArray[np.int64]) -> Ranking:
        """float64[len(ids)]: the rank last told of each id."""
        device = self._backend.device
        with device.reading():
            return device.to_host(self._told[self._permutation.positions_of(ids)])

    def tell(self, ranks: Ranks, ids: NDArray[np.int64]) -> None:
        """The vertices with these ids were told their ranks."""
        self._follow(ranks)
        if len(ids):
            device = ranks._backend.device
            with device.reading():
                told = device.to_device(ranks.of(ids))
                self._told[self._permutation.positions_of(ids)] = told

    def forget(self, ids: NDArray[np.int64]) -> None:
        """The vertices with these ids were removed: whatever has one of them now is a new vertex,
        whose rank last told is 0. To be called before `tell` and `changes` with later ranks.
        """
        known = ids[ids < len(self._told)]
        if len(known):
            with self._backend.device.reading():
                self._told[self._permutation.positions_of(known)] = 0.0

    def changes(self, ranks: Ranks, threshold: float, most: int) -> RankChanges:
        """Which ranks differ by more than `threshold` times the rank last told: the `most` with the
        largest differences. Ties by the order in memory.
        """
        self._follow(ranks)
        backend, mass = ranks._backend, ranks._mass
        with backend.device.reading(ranks._written):
            values = ranks._values
            found, listed = backend.select.list_changed(
                values, mass, self._told, threshold, _CAPACITY
            )
            most = min(found, most)
            if most == 0:
                return RankChanges(found, np.empty(0, np.int64), np.empty(0))
            if found > _CAPACITY:
                difference = abs(values.astype(np.float64) / mass - self._told)
                difference[difference <= threshold * self._told] = 0.0
                difference[ranks._free] = 0.0
                positions, _ = backend.select.top_k(difference, most)
            else:
                positions = backend.device.to_host(listed).astype(np.int64)
                difference = backend.device.to_host(
                    abs(values[listed].astype(np.float64) / mass - self._told[listed])
                )
                last = np.partition(difference, found - most)[found - most]
                largest = np.flatnonzero(difference >= last)
                order = np.lexsort((positions[largest], -difference[largest]))
                positions = positions[largest[order[:most]]]
            ids = ranks._permutation.ids_of(positions)
        return RankChanges(found, ids, ranks.of(ids))

    def _follow(self, ranks: Ranks) -> None:
        """Brings the reference into the order and to the number of vertices of `ranks`."""
        xp, permutation = ranks._backend.xp, ranks._permutation
        with ranks._backend.device.reading(ranks._written):
            moved, length = permutation is not self._permutation, len(ranks._values)
            if moved:
                length = ranks.id_limit
                self._told = self._permutation.by_id(self._told)[:length]
            if (added := length - len(self._told)) > 0:
                self._told = xp.concatenate([self._told, xp.zeros(added)])
            if moved:
                self._told = permutation.by_position(self._told)
                self._permutation = permutation
            if len(ranks._free):
                # whatever comes back is a new vertex
                self._told[ranks._free] = 0.0
