"""What a budget is spent on, in bytes.

    keys of the caller | arrays over the vertices | two or three buffers of in-lists, and
    temporary arrays over one of them

While the file is prepared, the part of the buffers sorts edges, a bucket at a time, and the
arrays over the vertices are fewer than later.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from liverank_gpu.errors import InvalidValue
from liverank_gpu.graph.packed_csr import slot_bytes
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import ALIGNMENT, loop_dtype, strength_dtype
from liverank_gpu.pagerank.workspace import workspace_bytes

_ROW_BYTES = 8 + 4 + 4 + 4
"""Start and length of a row, its place in the order of rows, and the position of an id."""

_ID_BYTES = 4
"""The id at a position."""

_PROGRAM_BYTES = 2 * 4 + 4 + 4 + 1 + 4 + 1 + 1
"""Steps, read and written; the list of the vertices that are active first; ids; which are absent;
the order of all rows, and their bins; and the blocks of the sources of each window.
"""

_PASS_BYTES = 16
"""Temporary arrays of a pass over all vertices, for each of them."""

_MOST_SLOTS = 1 << 26
"""Of one buffer: larger ones do not make transfers faster."""

_LEAST_STREAM = 1 << 16
"""Bytes of both buffers, at least, so that there are not too many windows."""


def vertex_bytes(backend: Backend, weighted: bool = False) -> int:
    """Bytes of all arrays over the vertices, for each vertex."""
    quantized = np.dtype(backend.sweeps.contribution_dtype).itemsize
    # y, r, marks, the candidate list (an eighth of 4 bytes), and contributions, exact and quantized
    iterate = 8 + 8 + 4 + 1 + 8 + 2 * quantized
    kept = sum(np.dtype(of(weighted)).itemsize for of in (strength_dtype, loop_dtype))
    return kept + _ROW_BYTES + _ID_BYTES + iterate + _PASS_BYTES


def program_bytes(backend: Backend, dtype: str, weighted: bool) -> int:
    """Bytes of all arrays over the vertices while a program runs, for each vertex.

    dtype  of its values
    """
    kept = sum(np.dtype(of(weighted)).itemsize for of in (strength_dtype, loop_dtype))
    # which the host keeps for the next program: lengths of both lists, ids, loops, sums of weights
    packed = 4 + 4 + _ID_BYTES + np.dtype(loop_dtype(weighted)).itemsize + (8 if weighted else 0)
    return (
        2 * np.dtype(dtype).itemsize
        + _PROGRAM_BYTES
        + kept
        + (packed if backend.name != "cuda" else 0)
        + _ROW_BYTES
        + _PASS_BYTES
    )


def algorithm_bytes(backend: Backend, weighted: bool) -> int:
    """The same while an algorithm runs, which may have packed the edges again."""
    # lengths of both lists, and loops
    repacked = 4 + 4 + np.dtype(loop_dtype(False)).itemsize
    return program_bytes(backend, "int64", weighted) + (repacked if backend.name != "cuda" else 0)


def sort_bytes(weighted: bool) -> int:
    """For each edge or row of a bucket that is sorted and packed, at most: keys and weights, their
    copies, and slots for as many rows.
    """
    return 48 if weighted else 32


@dataclass(frozen=True, slots=True)
class Budget:
    """How a budget is divided for one graph.

    streamed   bytes left for the buffers, or for a bucket to be sorted
    weighted   whether edges have weights
    buffers    how many there are
    temporary  bytes of temporary arrays for each slot of a window
    """

    streamed: int
    weighted: bool = False
    buffers: int = 2
    temporary: int = 0

    @classmethod
    def divide(
        cls,
        memory: int,
        reserved: int,
        vertices: int,
        each: int,
        longest: int,
        weighted: bool = False,
        buffers: int = 2,
        temporary: int = 0,
    ) -> Budget:
        """memory    the budget, in bytes
        reserved  bytes of the caller's own arrays, of keys
        vertices  number of vertices
        each      bytes of all arrays over the vertices, for each of them
        longest   upper bound on the length of an in-list, repeats of edges included
        weighted, buffers, temporary  see above

        Raises InvalidValue, which names the least budget that works, if it is too small.
        """
        values = reserved + vertices * each + workspace_bytes(0)
        divided = cls(memory - values, weighted, buffers, temporary)
        window = divided.slot_bytes * (longest + ALIGNMENT)
        row = max(sort_bytes(weighted) * longest, window, _LEAST_STREAM)
        if memory < values + row:
            raise InvalidValue(
                "memory",
                memory,
                f"at least {values + row:,} bytes: {values:,} for {vertices:,} vertices and their "
                f"keys, {row:,} to stream their edges",
            )
        return divided

    @property
    def bucket_edges(self) -> int:
        """Edges, and rows, that are sorted at once."""
        return self.streamed // sort_bytes(self.weighted)

    @property
    def slot_bytes(self) -> int:
        """Bytes for each slot of a window, those of all buffers together."""
        return self.buffers * slot_bytes(self.weighted) + self.temporary

    @property
    def window_slots(self) -> int:
        """Slots, and rows, of one buffer at most."""
        return min(self.streamed // self.slot_bytes, _MOST_SLOTS)
