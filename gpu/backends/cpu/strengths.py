"""Strengths of weighted graphs on ``cpu``, and scaling of rows."""

from __future__ import annotations

import numpy as np

from gpu.backends.cpu.rows import BLOCK
from gpu.jit.compile import kernel, sequential
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


@sequential  # once in several half-lives; the warm-up of a graph without weights leaves it out
def scale_rows(outgoing, incoming, factors, loop, strength):  # type: ignore[no-untyped-def]
    """See RebuildOperations.scale_rows."""
    for v in range(len(loop)):
        factor = factors[v]
        if factor != 1.0:
            for slot in range(
                outgoing.row_starts[v], outgoing.row_starts[v] + outgoing.row_lengths[v]
            ):
                outgoing.weights[slot] *= factor
            loop[v] *= factor
            strength[v] *= factor
        for slot in range(incoming.row_starts[v], incoming.row_starts[v] + incoming.row_lengths[v]):
            incoming.weights[slot] *= factors[incoming.column_indices[slot]]


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
