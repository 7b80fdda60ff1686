"""What a budget is spent on, in bytes.

    keys of the caller | arrays over the vertices | two buffers of in-lists

While the file is prepared, the part of the two buffers sorts edges, a bucket at a time, and the
arrays over the vertices are fewer than later.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpu.errors import InvalidValue
from gpu.operations.backend import Backend
from gpu.operations.csr import ALIGNMENT
from gpu.pagerank.workspace import workspace_bytes
from gpu.types import Storage

SLOT_BYTES = 4
"""Of an entry of an in-list."""

SORT_BYTES = 96
"""For each edge or row of a bucket that is sorted and packed, at most."""

_GRAPH_BYTES = 4 + 1 + 8 + 4 + 4
"""Degree, loop, start and length of the row, its place in the order of rows."""

_PASS_BYTES = 16
"""Temporary arrays of a pass over all vertices, for each of them."""

_MOST_SLOTS = 1 << 26
"""Of one buffer: larger ones do not make transfers faster."""

_LEAST_STREAM = 1 << 16
"""Bytes of both buffers, at least, so that there are not too many windows."""


def vertex_bytes(backend: Backend, storage: Storage) -> int:
    """Bytes of all arrays over the vertices, for each vertex."""
    value = np.dtype(storage).itemsize
    exact_contributions = 8 if storage == "float64" else 0
    quantized = 2 * np.dtype(backend.sweeps.contribution_dtypes[storage]).itemsize
    # the candidate list of a workspace is an eighth of 4 bytes
    iterate = 2 * value + 4 + 1 + exact_contributions + quantized
    return _GRAPH_BYTES + iterate + _PASS_BYTES


@dataclass(frozen=True, slots=True)
class Budget:
    """How a budget is divided for one graph.

    streamed  bytes left for the two buffers, or for a bucket to be sorted
    """

    streamed: int

    @classmethod
    def divide(
        cls,
        memory: int,
        reserved: int,
        vertices: int,
        each: int,
        longest: int,
    ) -> Budget:
        """memory    the budget, in bytes
        reserved  bytes of the caller's own arrays, of keys
        vertices  number of vertices
        each      bytes of all arrays over the vertices, for each of them
        longest   upper bound on the length of an in-list, repeats of edges included

        Raises InvalidValue, which names the least budget that works, if it is too small.
        """
        values = reserved + vertices * each + workspace_bytes(0)
        row = max(SORT_BYTES * longest, 2 * SLOT_BYTES * (longest + ALIGNMENT), _LEAST_STREAM)
        if memory < values + row:
            raise InvalidValue(
                "memory",
                memory,
                f"at least {values + row:,} bytes: {values:,} for {vertices:,} vertices and their "
                f"keys, {row:,} to stream their edges",
            )
        return cls(memory - values)

    @property
    def bucket_edges(self) -> int:
        """Edges, and rows, that are sorted at once."""
        return self.streamed // SORT_BYTES

    @property
    def window_slots(self) -> int:
        """Slots, and rows, of one buffer at most."""
        return min(self.streamed // (2 * SLOT_BYTES), _MOST_SLOTS)
