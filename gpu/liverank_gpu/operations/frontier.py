"""Contract: sets of vertices, how they grow along edges, and Jacobi steps over them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from liverank_gpu.operations.csr import GraphView, Rows
from liverank_gpu.operations.device import Array


@dataclass(frozen=True, slots=True)
class Frontier:
    """What `jacobi_step` does to the affected set (Sahu, algorithm 3, lines 24-29).

    affected            int32[n]: cleared where a vertex's relative change is ≤ prune_tolerance
    expanding           uint8[n], all 0 before and after a step: vertices above frontier_tolerance
    prune_tolerance     τ_p, or a negative number for no pruning
    frontier_tolerance  τ_f, infinite if the affected set does not grow
    """

    affected: Array
    expanding: Array
    prune_tolerance: float
    frontier_tolerance: float


@dataclass(frozen=True, slots=True)
class JacobiResult:
    """What one `jacobi_step` did.

    largest_change  max |y' - y|
    expanding       int32[…], rows whose relative change is > frontier_tolerance, in any order
    remaining       int32[…], rows that stay affected, in any order
    """

    largest_change: float
    expanding: Array
    remaining: Array


class FrontierOperations(ABC):
    """Row sets, breadth-first expansion and Jacobi steps. `compact_rows` and `jacobi_step` are for
    affected vertices in a list: where Costs.sparse_part is 0 they are kept as states of all
    vertices (liverank_gpu.operations.published), and these two raise NotImplementedError.
    """

    def compact_rows(self, flags: Array, rows: Rows, row_lengths: Array) -> Rows:
        """The rows whose flag (int32[n]) is set: a pass over all of them.

        rows  all in-lists
        """
        raise NotImplementedError

    @abstractmethod
    def rows_of(self, vertices: Array, row_lengths: Array) -> Rows:
        """The rows of these distinct vertices (int32[k]): for k small against n."""

    @abstractmethod
    def expand_forward(self, graph: GraphView, vertices: Array, flags: Array) -> Array:
        """Sets flags[w] (int32[n]) for every out-neighbour w of the vertices (integer[k]), loops
        included (a top-down step). Returns int32[…], those whose flag was 0, in any order.
        """

    @abstractmethod
    def expand_backward(self, graph: GraphView, rows: Rows, frontier: Array, flags: Array) -> Array:
        """`expand_forward` for the vertices flagged in `frontier` (uint8[n]) from the other end (a
        bottom-up step): every vertex without a flag looks for an in-neighbour in the frontier.
        Cheaper if the frontier has a good part of all out-edges. (Beamer, Asanović and Patterson,
        "Direction-optimizing breadth-first search", SC 2012.)

        rows  all in-lists
        """

    def jacobi_step(
        self,
        graph: GraphView,
        rows: Rows,
        values: Array,
        contributions: Array | None,
        rhs_scale: float,
        damping: float,
        new_values: Array,
        frontier: Frontier,
    ) -> JacobiResult:
        """One Jacobi step for the vertices in `rows`, all from the same y, loops in closed form
        (Sahu, equation 2). With r as of ComputeResidual:

            y' = y[v] + r / (1 - αℓ/d)

        values         values[n], y; y' at these rows afterwards
        contributions  float64[n], those of y, and of y' afterwards; None to divide for each edge,
                       cheaper than a pass over n if rows are few
        new_values     values[n], scratch
        """
        raise NotImplementedError
