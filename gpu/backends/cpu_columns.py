"""The Numba loop of the ``cpu`` backend for several personalized vectors at once."""

from __future__ import annotations

import numpy as np

COLUMNS = 32
"""The most vectors that share a pass over the graph."""


def relax_columns(  # type: ignore[no-untyped-def]
    first,
    last,
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
    """base.Backend.relax_columns; sums: float64[groups, 4, columns], its last row is scratch."""
    columns = values.shape[1]
    for group in range(first, last):
        seen = sums[group]
        for place in range(groups[group], groups[group + 1]):
            v = order[place]
            count = length[v]
            for column in range(columns):
                seen[3, column] = 0.0
            for slot in range(start[v], start[v] + count):
                u = pool[slot]
                for column in range(columns):
                    seen[3, column] += shares[u, column]
            d = degree[v]
            if d == 0:
                for column in range(columns):
                    residual = damping * seen[3, column] + left[v, column]
                    values[v, column] += residual
                    left[v, column] = 0.0
                    seen[2, column] += residual
                continue
            leaving = 1.0 - damping * loop[v] / d
            sending = damping * out_length[v]
            for column in range(columns):
                residual = damping * seen[3, column] + left[v, column]
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
