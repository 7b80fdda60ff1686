"""Contract: several personalized vectors as the columns of one matrix."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.csr import GraphView, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.operation import Operation
from liverank_gpu.operations.sweeps import DeflationVector


@dataclass(slots=True, eq=False)
class SweepMany(Operation[NDArray[np.float64]]):
    """A `Sweep` for several vectors in one pass over the graph, staggered by a step: the residual
    of y is ``remainder + α·Σ contributions`` over the in-neighbours, not yet added up.

        r = remainder + α·Σ contributions
        contribution' = r / ((1 - αℓ/d)·d), rounded;  y += contribution'·d

    and the rounding error stays in the remainder. The result is float64[3, columns] of the
    remaining residual: an upper bound on ‖r‖₁, and Σr; and the change of Σy.

    rows               in-lists: all, or as many as can receive anything
    values             float64[n, columns], y, updated
    remainder          float32[n, columns], updated
    contributions      contribution_dtype[n, columns], read
    new_contributions  contribution_dtype[n, columns], written; another array. Both are 0 before the
                       first pass
    seeded             uint8[n], not 0 where the remainder may be nonzero though nothing arrives:
                       vertices without in-edges that have 0 here are skipped
    deflation          y += coefficient·z, r -= coefficient·A·z at all vertices that are not
                       skipped, before contributions are computed
    coefficients       float64[k] on the host, k ≤ columns: of the first columns, those of the
                       others are 0; ignored without a deflation vector
    """

    writes = "new_contributions"

    graph: GraphView
    rows: Rows
    values: Array
    remainder: Array
    contributions: Array
    new_contributions: Array
    seeded: Array
    damping: float
    deflation: DeflationVector | None
    coefficients: NDArray[np.float64]


@dataclass(slots=True, eq=False)
class AddCompensated(Operation[None]):
    """Adds to some elements of a float32 array; what it cannot represent is carried over to the
    next one.

    remainder       float32[…], updated
    places          int64[k], distinct
    amounts, carry  float64[k]; carry is updated
    """

    remainder: Array
    places: Array
    amounts: Array
    carry: Array


class MultivectorOperations(ABC):
    """What a backend says of matrices with one column a vector.

    contribution_dtype  dtype of the contributions of SweepMany
    min_columns         fewer vectors are faster one by one
    """

    contribution_dtype: type[np.generic]
    min_columns: int

    @abstractmethod
    def column_count(self, wanted: int) -> int:
        """Columns of the matrices for SweepMany if `wanted` (at least one) vectors are to be
        solved: possibly more, or fewer, in which case the rest takes another block.
        """

    @abstractmethod
    def column_depth(self, graph: GraphView) -> int:
        """The most additions that any term of a sum of SweepMany goes through."""
