"""Records: a graph in compressed sparse rows, as kernels read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpu.operations.device import Array

ALIGNMENT = 4
"""Slots. Row starts and capacities are multiples of it, so that kernels read 16 bytes at once."""


class Csr(NamedTuple):
    """Neighbour lists of one direction: row v is
    ``column_indices[row_starts[v] : row_starts[v] + row_lengths[v]]``. No loops, no repeats.

    row_starts      int64[n], multiples of ALIGNMENT
    row_lengths     int32[n]
    column_indices  int32[slots]; slots outside all rows are undefined
    """

    row_starts: Array
    row_lengths: Array
    column_indices: Array


class SlackCsr(NamedTuple):
    """A Csr whose rows have room to grow.

    csr          see above
    capacities   int32[n], slots reserved for each row; multiples of ALIGNMENT
    degree_bins  uint8[n], the bin of each row at the last `partition`
    end          first slot behind all reserved ones
    """

    csr: Csr
    capacities: Array
    degree_bins: Array
    end: int


class GraphView(NamedTuple):
    """A directed graph and its transpose at one moment.

    vertices     n
    edges        number of edges
    outgoing     out-lists
    incoming     in-lists
    loop         uint8[n], 1 where the vertex has a self-loop
    degree       int32[n], out-degree, the loop counted once
    longest_row  upper bound on the length of the in-lists
    """

    vertices: int
    edges: int
    outgoing: Csr
    incoming: Csr
    loop: Array
    degree: Array
    longest_row: int


@dataclass(frozen=True, slots=True)
class Rows:
    """A set of rows of one Csr, grouped for the kernels of one backend.

    order   int32[k] on the device: row ids, ascending inside each group
    groups  int64[g+1] on the host: group i is order[groups[i] : groups[i+1]]. On ``cuda`` a group
            is a degree bin, the longest rows first; on ``cpu`` a chunk of about equal work
    """

    order: Array
    groups: NDArray[np.int64]

    @property
    def count(self) -> int:
        return len(self.order)
