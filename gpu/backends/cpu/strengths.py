"""Strengths of weighted graphs on ``cpu``."""

from __future__ import annotations

import numpy as np

from gpu.backends.cpu.rows import BLOCK
from gpu.jit.compile import kernel
from gpu.operations.csr import Csr
from gpu.operations.device import Array

_ROWS = 1 << 9
"""Rows that a core takes at a time."""


@kernel(_ROWS)
def _sum_weights(first, last, vertices, row_starts, row_lengths, weights, loop, strength):  # type: ignore[no-untyped-def]
    for place in range(first, last):
        v = vertices[place]
        begin = row_starts[v]
        end = begin + row_lengths[v]
        own = np.float64(loop[v])
        total = own
        while begin < end:
            stop = min(begin + BLOCK, end)
            block = 0.0
            for slot in range(begin, stop):
                block += np.float64(weights[slot])
            total += block
            begin = stop
        if row_lengths[v] > 0 and total == own:
            # a loop so heavy that it swallowed the other weights: GraphView.degree is above it
            total = np.nextafter(own, np.inf)
        strength[v] = total


def sum_weights(csr: Csr, vertices: Array, loop: Array, strength: Array) -> None:
    """See RebuildOperations.sum_weights; vertices: int32[k]."""
    _sum_weights(
        len(vertices),
        vertices,
        csr.row_starts,
        csr.row_lengths,
        csr.weights,
        loop,
        strength,
    )
