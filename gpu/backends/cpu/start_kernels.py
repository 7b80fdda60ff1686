"""Numba kernels of the start from in-degrees (gpu.pagerank.start)."""

from __future__ import annotations

import numpy as np

from gpu.backends.cpu.rows import STRIPE, diagonal_of, is_isolated
from gpu.backends.cpu.sweep_kernels import (
    MASS,
    NEXT_RESIDUAL_SUM,
    RESIDUAL_L1,
    RESIDUAL_SUM,
    contribution_of,
    next_residual_of,
)
from gpu.jit.compile import kernel, unsigned

CONSTANT, LINEAR, EDGES = range(3)
"""Sums of `sum_in_degrees`."""


@kernel(STRIPE)
def sum_in_degrees(  # type: ignore[no-untyped-def]
    first, last, in_lengths, loop, degree, damping, sums
):
    """What (β + α·c·i) / (1 - αℓ/d) sends to other vertices, of β and of c; and the edges."""
    constant = 0.0
    linear = 0.0
    edges = 0.0
    for vertex in range(first, last):
        v = unsigned(vertex)
        d = degree[v]
        edges += in_lengths[v]
        if d > 0:
            sent = 1.0
            if loop[v]:  # else there would be two divisions a vertex for 1
                sent = (1.0 - np.float64(loop[v]) / d) / diagonal_of(d, loop[v], damping)
            constant += sent
            linear += sent * damping * in_lengths[v]
    stripe = first // STRIPE
    sums[stripe, CONSTANT] = constant
    sums[stripe, LINEAR] = linear
    sums[stripe, EDGES] = edges


@kernel(STRIPE)
def start_from_in_degrees(  # type: ignore[no-untyped-def]
    first,
    last,
    in_lengths,
    loop,
    degree,
    damping,
    rhs_scale,
    mean,
    values,
    r,
    contributions,
    sums,
):
    residual_sum = 0.0
    mass = 0.0
    next_residual_sum = 0.0
    for vertex in range(first, last):
        v = unsigned(vertex)
        d = degree[v]
        diagonal = diagonal_of(d, loop[v], damping)
        if is_isolated(d, loop[v], in_lengths[v]):
            values[v] = rhs_scale / diagonal
            r[v] = 0.0
            contributions[v] = 0.0
            mass += values[v]
            continue
        step = rhs_scale + damping * mean * in_lengths[v]
        contribution = contribution_of(0.0, step, d, diagonal, False)
        values[v] = 0.0
        r[v] = rhs_scale
        contributions[v] = contribution
        residual_sum += rhs_scale
        next_residual_sum += next_residual_of(rhs_scale, contribution, d, damping)
    stripe = first // STRIPE
    sums[stripe, RESIDUAL_L1] = residual_sum
    sums[stripe, RESIDUAL_SUM] = residual_sum
    sums[stripe, MASS] = mass
    sums[stripe, NEXT_RESIDUAL_SUM] = next_residual_sum
