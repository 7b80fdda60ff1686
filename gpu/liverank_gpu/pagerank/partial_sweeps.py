"""The common part of sweeps over a part of a graph: over one shard's rows, or window by window."""

from __future__ import annotations

from liverank_gpu.operations.csr import GraphView
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.sweeps import SweepOperations, SweepResult


class PartialSweeps(SweepOperations):
    """Sweeps by the operations of a backend, which are given a part of the rows at a time. They
    are not accelerated, unless the part stays the same.
    """

    def __init__(self, local: SweepOperations) -> None:
        """local  the operations of the backend"""
        self._local = local
        self.contribution_dtype = local.contribution_dtype  # type: ignore[misc]

    def sum_in_degrees(self, graph: GraphView, damping: float) -> Array:
        return self._local.sum_in_degrees(graph, damping)

    def start_from_in_degrees(
        self,
        graph: GraphView,
        in_degrees: Array,
        values: Array,
        residual: Array,
        contributions: Array,
        damping: float,
        rhs_scale: float,
    ) -> SweepResult:
        return self._local.start_from_in_degrees(
            graph, in_degrees, values, residual, contributions, damping, rhs_scale
        )

    def subtract_at(self, residual: Array, places: Array, weights: Array, amount: float) -> None:
        self._local.subtract_at(residual, places, weights, amount)

    def sum_depth(self, longest_row: int) -> int:
        return self._local.sum_depth(longest_row)
