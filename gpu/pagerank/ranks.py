"""A published copy of the ranks: immutable, on the backend's device, readable from any thread."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.errors import UnknownVertex
from gpu.graph.permutation import VertexPermutation
from gpu.operations.backend import Backend
from gpu.operations.device import Array
from gpu.types import REMOVED, Ranking

_FREE = -np.inf
"""In place of the y of a free id: it is in no list of the largest."""


class Ranks:
    """The ranks of one moment; they sum to 1. Later batches do not change them.

    count        number of ranked vertices: the ids below `id_limit` that were not free
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
    ) -> None:
        """values  values[n], y over positions: its own from now on
        mass    Σy
        free    int32[…], the positions of free ids
        """
        if len(free):
            values[free] = _FREE
        self.count = len(values) - len(free)
        self.id_limit = len(values)
        self.error_bound = error_bound
        self._backend = backend
        self._permutation = permutation
        self._values = values
        self._mass = mass

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
        with device.reading():
            values = self._values[self._permutation.positions_of(vertices)]
            ranks = device.to_host(values).astype(np.float64) / self._mass
        removed = np.flatnonzero(ranks == _FREE)
        if len(removed):
            place = int(removed[0])
            raise UnknownVertex(f"vertices[{place}]", int(vertices[place]), REMOVED)
        return ranks

    def top(self, k: int, offset: int = 0) -> tuple[NDArray[np.int64], Ranking]:
        """Ids and ranks of places offset … offset+k-1, highest first; ties by id."""
        last = min(offset + k, self.count)
        with self._backend.device.reading():
            vertices, values = self._permutation.top_k(self._values, last)
        return vertices[offset:], values[offset:] / self._mass

    def to_numpy(self) -> Ranking:
        """float64[id_limit], all ranks on the host; 0 for a free id."""
        device = self._backend.device
        with device.reading():
            values = device.to_host(self._permutation.by_id(self._values))
            ranks = values.astype(np.float64) / self._mass
        ranks[ranks == _FREE] = 0.0
        return ranks
