"""Contract: graphs drawn from counter-based random numbers (see liverank_gpu.random_numbers).

The same arguments give the same arrays on every backend, number of threads and launch shape.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from liverank_gpu.operations.device import Array


class GenerateOperations(ABC):
    """Random numbers and the graphs that are large enough to be drawn on the device."""

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


FEISTEL_ROUNDS = 6
"""Rounds of the network that permutes pairs in `uniform`."""


def feistel_bits(vertices: int) -> int:
    """Bits of each half of a number that can hold every ordered pair of distinct vertices."""
    return max(1, ((vertices * (vertices - 1) - 1).bit_length() + 1) // 2)
