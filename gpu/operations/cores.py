"""Contract: core numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod

from gpu.operations.csr import Csr
from gpu.operations.device import Array


class CoreOperations(ABC):
    """Cores of a graph without directions: see gpu.programs.algorithms."""

    @abstractmethod
    def core_numbers(self, lists: Csr) -> Array:
        """int32[n]: the largest k so that the vertex is in a subgraph of degrees ≥ k.

        lists  each edge in the rows of both ends
        """
