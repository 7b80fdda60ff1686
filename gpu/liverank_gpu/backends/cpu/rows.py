"""Rows on ``cpu``: their chunks, and what kernels in gpu/liverank_gpu/native share with their
callers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.csr import Rows

CHUNK_WORK = 1 << 15
"""Rows plus edges of a chunk, a group of Rows on this backend."""

STRIPE = 1 << 12
"""Vertices that a core takes at a time in passes over all of them, as in rows.h."""

BLOCK = 1024
"""Terms added to one partial sum before it joins the row's, as in rows.h."""

NO_VALUES, NO_MARKS = np.zeros(0), np.zeros(0, np.uint8)


def chunk_rows(order: NDArray[np.int32], row_lengths: NDArray[np.int32]) -> Rows:
    """Groups rows into chunks of about CHUNK_WORK.

    order        int32[k], row ids, ascending
    row_lengths  int32[k], of these rows
    """
    if len(order) == 0:
        return Rows(order, np.zeros(2, np.int64))
    if int(row_lengths.sum(dtype=np.int64)) + len(order) <= CHUNK_WORK:
        return Rows(order, np.array([0, len(order)]))
    work = np.cumsum(row_lengths, dtype=np.int64) + np.arange(1, len(order) + 1)
    chunks = -(-int(work[-1]) // CHUNK_WORK)
    limits = np.arange(1, chunks) * CHUNK_WORK
    groups = np.concatenate([[0], np.searchsorted(work, limits), [len(order)]])
    return Rows(order, np.unique(groups).astype(np.int64))
