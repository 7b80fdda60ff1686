"""Counter-based random numbers: number i of a sequence is a function of (seed, sequence, i) alone,
so a graph does not depend on which thread draws which edge, nor in what order.

    start = sequence_start(seed, sequence)
    number i = mix(start + (i + 1)·γ)  (mod 2⁶⁴)

This is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014, figure 16). The kernels have the same
functions: native/random.h, native/in_numpy.py and backends/cuda/kernels/random_numbers.cuh.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.native import kernels
from liverank_gpu.native.in_numpy import GOLDEN_GAMMA as GOLDEN_GAMMA
from liverank_gpu.native.in_numpy import mixed as mixed

# Independent sequences of one seed: each purpose draws from its own.
EDGE_SEQUENCE, LABEL_SEQUENCE, KEEP_SEQUENCE = 1, 2, 3
ATTACHMENT_SEQUENCE, UNIFORM_SEQUENCE = 4, 5
CHAIN_END_SEQUENCE, BRANCH_SEQUENCE, BRANCH_TARGET_SEQUENCE, SHUFFLE_SEQUENCE = 6, 7, 8, 9
LIFETIME_SEQUENCE, NEIGHBOUR_SEQUENCE = 10, 11


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
