"""A published copy of the ranks: immutable, on the backend's device, readable from any thread."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.errors import InvalidValue
from gpu.graph.permutation import VertexPermutation
from gpu.operations.backend import Backend
from gpu.operations.device import Array
from gpu.types import Ranking


class Ranks:
    """The ranks of one moment; they sum to 1. Later batches do not change them.

    count        number of ranked vertices: the ids 0 … count-1
    error_bound  proven upper bound on the L1 distance to the exact ranks of that graph
    """

    def __init__(
        self,
        backend: Backend,
        permutation: VertexPermutation,
        values: Array,
        mass: float,
        error_bound: float,
    ) -> None:
        self.count = len(values)
        self.error_bound = error_bound
        self._backend = backend
        self._permutation = permutation
        self._values = values
        self._mass = mass

    def of(self, vertices: NDArray[np.integer[Any]]) -> Ranking:
        """float64[len(vertices)]: the rank of each id. Raises InvalidValue for an id that is not in
        0 … count-1.
        """
        vertices = np.asarray(vertices, np.int64)
        outside = np.flatnonzero((vertices < 0) | (vertices >= self.count))
        if len(outside):
            place = int(outside[0])
            raise InvalidValue(
                f"vertices[{place}]", int(vertices[place]), f"an id below {self.count}"
            )
        device = self._backend.device
        with device.reading():
            values = self._values[self._permutation.positions_of(vertices)]
            return device.to_host(values).astype(np.float64) / self._mass

    def top(self, k: int, offset: int = 0) -> tuple[NDArray[np.int64], Ranking]:
        """Ids and ranks of places offset … offset+k-1, highest first; ties by id."""
        last = min(offset + k, self.count)
        with self._backend.device.reading():
            vertices, values = self._permutation.top_k(self._values, last)
        return vertices[offset:], values[offset:] / self._mass

    def to_numpy(self) -> Ranking:
        """float64[count], all ranks on the host."""
        device = self._backend.device
        with device.reading():
            values = device.to_host(self._permutation.by_id(self._values))
            return values.astype(np.float64) / self._mass
