"""Contract: solving one strongly connected component after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from liverank_gpu.operations.csr import GraphView
from liverank_gpu.operations.device import Array


@dataclass(frozen=True, slots=True)
class Components:
    """The strongly connected components in topological order: no edge leads to an earlier one.

    order    int32[n], the vertices by component, ascending inside each
    first    int64[count + 1], component i is order[first[i] : first[i + 1]]
    cyclic_edges  in-edges of the vertices in components of more than one vertex
    largest_edges, largest_size  of any of these components: in-edges and vertices, at most
    """

    order: Array
    first: Array
    cyclic_edges: int
    largest_edges: int
    largest_size: int


@dataclass(frozen=True, slots=True)
class ComponentsSolved:
    """What `ComponentOperations.solve` did.

    sweeps  the most over any component
    edges   edges read
    """

    sweeps: int
    edges: int


class ComponentOperations(Protocol):
    """Operations on strongly connected components. ``cuda`` has none: on a GPU, a chain of
    components would be a chain of launches.
    """

    def reciprocity(self, graph: GraphView) -> float:
        """The part of a sample of edges whose opposite edge exists, too; 0 without edges."""

    def find(self, graph: GraphView) -> Components:
        """The components, by one pass over the out-lists on one core. Raises MemoryError."""

    def solve(
        self,
        graph: GraphView,
        components: Components,
        values: Array,
        contributions: Array,
        rhs_scale: float,
        damping: float,
        residual_goal: float,
        largest_step: float,
        most_sweeps: int,
    ) -> ComponentsSolved:
        """Solves ``y = αP̄ᵀy + β·1`` for one component after the other.

        A vertex on no cycle takes one step. A component of several is swept until α·Σ|Δy| is at
        most residual_goal·Σy over its vertices (then so is ‖r‖₁), no y moves by more than
        largest_step, or after most_sweeps.

        values         float64[n], y, updated
        contributions  float64[n], written: of y, as of ComputeContributions
        Raises MemoryError before anything is written.
        """
