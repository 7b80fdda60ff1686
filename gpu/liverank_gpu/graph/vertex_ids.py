"""Which ids are vertices: all below a limit, but for those that are free.

A vertex that is removed leaves its id free. The caller decides which id a new vertex gets: a free
one, or the limit and what follows it. The engine only follows: an id that a batch names in an
insertion, or in `add`, is a vertex after it. A caller that always takes the lowest free id needs no
record of its own: the free ids, which a snapshot holds, decide what comes next.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.types import EdgeBatch

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
