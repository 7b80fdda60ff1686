"""Contract: the largest entries, and bounds on the others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.operations.csr import GraphView
from gpu.operations.device import Array

TopK = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Positions and values, largest first, on the host."""


class SelectOperations(ABC):
    """Selection from vectors over the vertices."""

    @abstractmethod
    def top_k(self, values: Array, k: int) -> TopK:
        """The k largest of values[n]; ties by position. 0 ≤ k ≤ n."""

    @abstractmethod
    def top_k_columns(self, values: Array, counts: NDArray[np.int64]) -> list[TopK]:
        """`top_k` of each of the first len(counts) columns of float64[n, columns];
        0 ≤ counts ≤ n.
        """

    @abstractmethod
    def list_changed(
        self, values: Array, mass: float, earlier: Array, threshold: float, capacity: int
    ) -> tuple[int, Array]:
        """The ranks that changed by more than a part of what they were:
        |values/mass - earlier| > threshold·earlier.

        values   float64[n] or float32[n], y; ranks are y/mass. Where it is -inf is no vertex
        earlier  float64[n], ranks, not negative
        Returns how many, and int32[k] with their positions, in any order; if there are more than
        `capacity`, the positions of that many.

        Traffic: 16 bytes an entry (12 of float32), read once: 10⁸ take 0.4 ms at 4 TB/s.
        """

    @abstractmethod
    def highest_bound(
        self,
        graph: GraphView,
        vertices: Array | None,
        values: Array,
        residuals: Array,
        damping: float,
        positive_residual: float,
        at_most: float,
    ) -> float:
        """The largest upper bound (see `residual_bound`) of the entries that are now no larger than
        `at_most`.

        vertices           int[k], or None for all
        values, residuals  float64[k], y and r there; at least one y is no larger
        positive_residual  Σr⁺ over all vertices
        """


def residual_bound(
    xp: Any, residuals: Array, degree: Array, loop: Array, damping: float, residual_mass: float
) -> Array:
    """float64[k]: the most that a residual can still add to entries of a personalized vector,
    ``N·(r⁺(1-α) + α·Σr⁺)`` (see gpu.personalized.certified_top_k).

    residuals      float64[k], r at these entries
    degree, loop   those of GraphView at these entries
    residual_mass  Σr⁺ over all vertices
    """
    loop_share = loop / xp.where(degree > 0, degree, 1)
    returning = damping * loop_share + damping * damping * (1.0 - loop_share)
    returning = xp.where(degree > 0, returning, 0.0)
    positive = xp.maximum(residuals, 0.0)
    return (positive * (1.0 - damping) + damping * residual_mass) / (1.0 - returning)
