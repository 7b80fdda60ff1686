"""Contract: graphs drawn from counter-based random numbers.

Number i of a sequence is a function of (seed, sequence, i) alone, so a graph does not depend on
which thread draws which edge, nor in what order: the same arguments give the same arrays on every
backend, number of threads and launch shape.

    start = sequence_start(seed, sequence)
    number i = mix(start + (i + 1)·γ)  (mod 2⁶⁴)

This is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014, figure 16). The kernels have the same
functions: native/generate.cpp, native/in_numpy.py and backends/cuda/kernels/common.cuh.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.native import kernels
from liverank_gpu.native.in_numpy import GOLDEN_GAMMA, mixed
from liverank_gpu.operations.csr import Operation
from liverank_gpu.operations.device import Array

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


class Threads(NamedTuple):
    """Who executes a segment of the published copy model.

    blocks   that run at the same time
    threads  of a block
    room     edges that may wait at a thread, at least 1; where memory is not limited, more may
    """

    blocks: int
    threads: int
    room: int


class GenerateOperations(ABC):
    """Random numbers and the graphs that are large enough to be drawn on the device."""

    @abstractmethod
    def processors(self) -> tuple[int, int]:
        """Blocks that run at the same time for certain, and threads of a block, at most, with which
        the published copy model is executed unless others are asked for.
        """

    @abstractmethod
    def random_numbers(self, start: np.uint64, skipped: int, count: int) -> Array:
        """uint64[count]: numbers skipped, skipped + 1, … of the sequence that begins at `start`."""

    @abstractmethod
    def preferential_attachment(
        self, start: np.uint64, vertices: int, edges_per_vertex: int, threshold: np.uint64
    ) -> Array:
        """int32[vertices - d, d], d = edges_per_vertex: row v - d has the d vertices that v links
        to, as liverank_gpu.generate.graphs specifies them.

        threshold  an edge is direct where the upper 53 bits of its number are below it
        1 ≤ d ≤ vertices < 2³¹
        Raises OutOfMemory.
        """

    @abstractmethod
    def uniform(self, start: np.uint64, vertices: int, edges: int) -> tuple[Array, Array]:
        """Sources and targets, int32[edges] each: edge i is the ordered pair of distinct vertices
        to which a pseudorandom permutation of all pairs maps i.

        edges ≤ vertices · (vertices - 1); 2 ≤ vertices < 2³¹ unless edges = 0
        Raises OutOfMemory.
        """


@dataclass(slots=True, eq=False)
class ExecuteCopyModel(Operation[Array]):
    """Both phases of the published algorithm (liverank_gpu.generate.published) for vertices
    first … last - 1. Vertex v is executed by thread (v - first) mod T, of T in all.

    links  int32[vertices - d, d]; rows of these vertices and later ones are -1. Rows of these are
           written

    Returns 64-bit integers where the backend computes: how many edges waited, how many at one
    thread, at most, and the most passes of a thread over its queue.
    Raises InvalidValue for more blocks than run at the same time, and OutOfMemory.
    """

    links: Array
    first: int
    last: int
    start: np.uint64
    threshold: np.uint64
    threads: Threads


FEISTEL_ROUNDS = 6
"""Rounds of the network that permutes pairs in `uniform`."""


def feistel_bits(vertices: int) -> int:
    """Bits of each half of a number that can hold every ordered pair of distinct vertices."""
    return max(1, ((vertices * (vertices - 1) - 1).bit_length() + 1) // 2)
