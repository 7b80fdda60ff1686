"""Counter-based random numbers: number i of a sequence is a function of (seed, sequence, i) alone,
so a graph does not depend on which thread draws which edge, nor in what order.

    start = sequence_start(seed, sequence)
    number i = mix(start + (i + 1)·γ)  (mod 2⁶⁴)

This is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014, figure 16). The kernels have the same
functions: native/random.h and backends/cuda/kernels/random_numbers.cuh.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.native import kernels

# Independent sequences of one seed: each purpose draws from its own.
EDGE_SEQUENCE, LABEL_SEQUENCE, KEEP_SEQUENCE = 1, 2, 3
ATTACHMENT_SEQUENCE, UNIFORM_SEQUENCE = 4, 5
CHAIN_END_SEQUENCE, BRANCH_SEQUENCE, BRANCH_TARGET_SEQUENCE, SHUFFLE_SEQUENCE = 6, 7, 8, 9
LIFETIME_SEQUENCE, NEIGHBOUR_SEQUENCE = 10, 11

GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)

Mixed = TypeVar("Mixed", np.uint64, NDArray[np.uint64])


def mixed(state: Mixed) -> Mixed:
    """The output function of SplitMix64, of a number or of each in an array."""
    state = (state ^ (state >> _30)) * _FIRST
    state = (state ^ (state >> _27)) * _SECOND
    return state ^ (state >> _31)


def sequence_start(seed: int, sequence: int) -> np.uint64:
    """The state before the first number of a sequence."""
    with np.errstate(over="ignore"):  # SplitMix64 is arithmetic modulo 2⁶⁴
        return np.uint64(mixed(np.uint64(seed % 2**64) + np.uint64(sequence) * GOLDEN_GAMMA))


def random_numbers(seed: int, sequence: int, count: int) -> NDArray[np.uint64]:
    """uint64[count]: numbers 0 … count - 1 of a sequence."""
    numbers = np.empty(count, np.uint64)
    kernels.fill_random(sequence_start(seed, sequence), 0, numbers)
    return numbers


def threshold(probability: float) -> np.uint64:
    """⌈probability · 2⁵³⌉: the upper 53 bits of a number are below it with this probability."""
    return np.uint64(int(np.ceil(probability * 2.0**53)))
