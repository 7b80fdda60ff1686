"""The Numba loop of the ``cpu`` backend for several personalized vectors at once."""

from __future__ import annotations

import numpy as np
from numba import prange

COLUMNS = 32
"""The most vectors that share a pass over the graph."""


def relax_columns(  # type: ignore[no-untyped-def]
    groups,
    order,
    start,
    length,
    pool,
    out_length,
    loop,
    degree,
    shares,
    damping,
    values,
    left,
    new_shares,
    sums,
):
    """base.Backend.relax_columns; sums: float64[groups, 3, columns]."""
    columns = values.shape[1]
    for group in prange(len(groups) - 1):
        arriving = np.zeros(columns)
        seen = np.zeros((3, columns))
        for place in range(groups[group], groups[group + 1]):
            v = order[place]
            count = length[v]
            for column in range(columns):
                arriving[column] = 0.0
            for slot in range(start[v], start[v] + count):
                u = pool[slot]
                for column in range(columns):
                    arriving[column] += shares[u, column]
            d = degree[v]
            if d == 0:
                for column in range(columns):
                    residual = damping * arriving[column] + left[v, column]
                    values[v, column] += residual
                    left[v, column] = 0.0
                    seen[2, column] += residual
                continue
            leaving = 1.0 - damping * loop[v] / d
            sending = damping * out_length[v]
            for column in range(columns):
                residual = damping * arriving[column] + left[v, column]
                share = np.float32(residual / leaving / d)
                new_shares[v, column] = share
                taken = np.float64(share) * d
                rest = residual - leaving * taken
                values[v, column] += taken
                left[v, column] = rest
                sent = sending * np.float64(share)
                seen[0, column] += abs(sent) + abs(rest)
                seen[1, column] += sent + rest
                seen[2, column] += taken
        for place in range(3):
            for column in range(columns):
                sums[group, place, column] = seen[place, column]
