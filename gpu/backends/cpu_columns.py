"""The Numba loop of the ``cpu`` backend for several personalized vectors at once."""

from __future__ import annotations

import numpy as np

from gpu.backends.parallel import helper, unsigned

COLUMNS = 32
"""The most vectors that share a pass over the graph."""

NARROW = 4
"""So many vectors, or fewer, are summed in registers; of more the row is read once all the same,
but their sums lie in memory.
"""

_BLOCK = 1024
"""Terms added one after the other before their sum joins the row's: keeps rounding in long rows
small.
"""


@helper
def _add_narrow(pool, begin, end, shares, arriving):  # type: ignore[no-untyped-def]
    one, two, three = unsigned(1), unsigned(2), unsigned(3)
    first = 0.0
    second = 0.0
    third = 0.0
    fourth = 0.0
    for slot in range(unsigned(begin), unsigned(end)):
        u = unsigned(pool[slot])
        first += shares[u, unsigned(0)]
        second += shares[u, one]
        third += shares[u, two]
        fourth += shares[u, three]
    arriving[0] += first
    arriving[1] += second
    arriving[2] += third
    arriving[3] += fourth


@helper
def _add_wide(pool, begin, end, shares, block, arriving):  # type: ignore[no-untyped-def]
    columns = len(block)
    for column in range(columns):
        block[column] = 0.0
    for slot in range(unsigned(begin), unsigned(end)):
        u = unsigned(pool[slot])
        for column in range(columns):
            block[column] += shares[u, column]
    for column in range(columns):
        arriving[column] += block[column]


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
    seeded,
    damping,
    known,
    known_residual,
    known_base,
    amounts,
    values,
    left,
    new_shares,
    sums,
):
    """base.Backend.relax_columns; sums: float64[groups, 5, columns], the
    last two rows are scratch."""
    columns = values.shape[1]
    leaning = len(known) > 0
    value = 0.0
    image = 0.0
    for group in range(first, last):
        seen = sums[group]
        arriving, block = seen[3], seen[4]
        for place in range(groups[group], groups[group + 1]):
            v = unsigned(order[unsigned(place)])
            if length[v] == 0 and seeded[v] == 0:
                continue
            for column in range(columns):
                arriving[column] = 0.0
            begin = start[v]
            end = begin + length[v]
            while begin < end:
                stop = min(begin + _BLOCK, end)
                if columns == NARROW:
                    _add_narrow(pool, begin, stop, shares, arriving)
                else:
                    _add_wide(pool, begin, stop, shares, block, arriving)
                begin = stop
            d = degree[v]
            if leaning:
                value = known[v]
                image = known_base - known_residual[v]
            if d == 0:
                for column in range(columns):
                    residual = damping * arriving[column] + left[v, column]
                    taken = residual - amounts[column] * image + amounts[column] * value
                    values[v, column] += taken
                    left[v, column] = 0.0
                    seen[2, column] += taken
                continue
            leaving = 1.0 - damping * loop[v] / d
            sending = damping * out_length[v]
            # a division takes as long as several edges; what it rounds off is left
            part = 1.0 / (leaving * d)
            for column in range(columns):
                residual = damping * arriving[column] + left[v, column] - amounts[column] * image
                share = np.float32(residual * part)
                new_shares[v, column] = share
                stepped = np.float64(share) * d
                rest = residual - leaving * stepped
                taken = stepped + amounts[column] * value
                values[v, column] += taken
                left[v, column] = rest
                sent = sending * np.float64(share)
                seen[0, column] += abs(sent) + abs(rest)
                seen[1, column] += sent + rest
                seen[2, column] += taken
