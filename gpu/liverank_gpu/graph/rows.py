"""Some rows of a direction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Csr
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.rebuild import Entries


def entries_of(backend: Backend, csr: Csr, positions: Array) -> Entries:
    """The entries of some rows, integer[k] positions, one row after the other. In place of rows
    they have the numbers of these, from 0 on.
    """
    return backend.rebuild.entries(csr.at(positions))


def rows_of(backend: Backend, csr: Csr, positions: Array) -> Entries:
    """The entries of some rows, int32[k] distinct positions."""
    entries = entries_of(backend, csr, positions)
    return entries._replace(rows=positions[entries.rows])


def row_sums(lengths: NDArray[np.integer[Any]], values: NDArray[Any]) -> NDArray[np.int64]:
    """int64[n]: the sum of the values of each row of these lengths; rows lie one after the other.

    values  integer or bool, one for each entry
    """
    sums = np.zeros(len(lengths), np.int64)
    filled = lengths > 0
    if len(values):
        begins = (np.cumsum(lengths, dtype=np.int64) - lengths)[filled]
        sums[filled] = np.add.reduceat(values, begins, dtype=np.int64)
    return sums


def row_blocks(lengths: NDArray[np.integer[Any]], limit: int) -> Iterator[slice]:
    """Splits rows of these lengths into blocks of at least one row, and of at most `limit` rows and
    `limit` entries, unless a single row has more.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    first = 0
    while first < len(ends):
        before = ends[first - 1] if first else 0
        fitting = int(np.searchsorted(ends, before + limit, "right"))
        last = min(max(first + 1, fitting), first + limit)
        yield slice(first, last)
        first = last
