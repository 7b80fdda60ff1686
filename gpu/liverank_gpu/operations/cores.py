"""Contract: core numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod

from liverank_gpu.operations.csr import Csr, Rows
from liverank_gpu.operations.device import Array


class CoreOperations(ABC):
    """Cores of a graph without directions: see liverank_gpu.programs.algorithms."""

    @abstractmethod
    def core_numbers(self, lists: Csr) -> Array:
        """int32[n]: the largest k so that the vertex is in a subgraph of degrees ≥ k.

        lists  each edge in the rows of both ends
        """

    @abstractmethod
    def lower_cores(
        self, lists: Csr, rows: Rows, bounds: Array, blocks: Array, shift: int, now: int
    ) -> int:
        """Lowers the bound of each of some rows to the largest h of which h neighbours have bounds
        of at least h, unless it is lower. Bounds change in place: others may see old or new ones.
        Core numbers are what is left when none falls, if bounds begin as degrees (Lü, Zhou, Zhang
        and Stanley, "The H-index of a network node", Nature Communications 2016).

        bounds  int32[n], of all vertices
        blocks  int32[b]: b[v >> shift] becomes `now` for each v whose bound fell
        Returns how many fell.
        """
