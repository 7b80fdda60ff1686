"""Preferential attachment as liverank_gpu.generate.graphs specifies it, in plain
Python: an oracle that shares no code with it.
"""

from __future__ import annotations

from collections.abc import Callable

MASK = 2**64 - 1
GAMMA = 0x9E3779B97F4A7C15


def mix(state: int) -> int:
    """The output function of SplitMix64."""
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB & MASK
    return state ^ (state >> 31)


def sequence(start: int) -> Callable[[int], int]:
    """Number i of the sequence that begins at `start`."""
    return lambda i: mix((start + (i + 1) * GAMMA) & MASK)


def links(vertices: int, d: int, p: float, seed: int) -> list[list[int]]:
    """The vertices that each vertex from d on links to."""
    own = sequence(mix((seed + 4 * GAMMA) & MASK))
    targets = [[u for u in range(d) if u != v] for v in range(d)]
    for v in range(d, vertices):
        row: list[int] = []
        for edge in range(d):
            number = sequence(own(v * d + edge))
            attempt = 0
            while True:
                u = number(3 * attempt) * v >> 64
                direct = (number(3 * attempt + 1) >> 11) * 2.0**-53 < p
                if direct or not targets[u]:
                    candidate = u
                else:
                    candidate = targets[u][number(3 * attempt + 2) * len(targets[u]) >> 64]
                if candidate not in row:
                    break
                attempt += 1
            row.append(candidate)
        targets.append(row)
    return targets[d:]
