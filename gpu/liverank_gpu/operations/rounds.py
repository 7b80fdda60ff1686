"""Contract: the parts of a round of a push, for shards, which exchange data between them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from liverank_gpu.operations.csr import GraphView
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.residual import Residual

LEVELS = 4
"""Thresholds that `count_candidates` takes."""


class RoundOperations(ABC):
    """Operations on the candidates of a Residual whose floor is finite. A vertex with out-degree l
    is above a threshold θ when |r| / (1 + edge_weight·l) > θ.
    """

    @abstractmethod
    def count_candidates(
        self,
        graph: GraphView,
        residual: Residual,
        thresholds: Sequence[float],
        edge_weight: float,
    ) -> list[int]:
        """For each of LEVELS thresholds, none below the floor, how many candidates are above it;
        for each, how many out-edges these have; and how many candidates are above the floor.
        """

    @abstractmethod
    def take_candidates(
        self,
        graph: GraphView,
        residual: Residual,
        threshold: float,
        edge_weight: float,
        count: int,
        kept: int,
    ) -> Array:
        """The candidates above θ, int32[count]. Those that are not above the floor are none any
        more, and `kept` are left.
        """

    @abstractmethod
    def push_vertices(
        self, graph: GraphView, values: Array, damping: float, residual: Residual, vertices: Array
    ) -> tuple[Array, Array]:
        """Moves r of distinct vertices to y, but for what rounding of y leaves.

        vertices  int32[k]; their marks say that this solve has pushed them
        Returns contributions, float64[k], which are still to be added to r along their out-lists;
        and float64[5]: the changes of ‖r‖₁, Σr and Σy, Σ|r| before, and how many were pushed for
        the first time in this solve. Both are on the device.
        """
