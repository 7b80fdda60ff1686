"""What a solve reads of a graph, whatever holds its lists."""

from __future__ import annotations

from typing import Protocol

from liverank_gpu.graph.permutation import VertexPermutation
from liverank_gpu.graph.vertex_ids import VertexIds
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Csr, GraphView, Rows
from liverank_gpu.operations.device import Array


class NeighbourLists(Protocol):
    """The lists of one direction.

    csr             them, as kernels read them
    longest         upper bound on the length of a list
    strength_depth  the most additions that a weight goes through in the sum of its list, and one
                    more
    """

    @property
    def csr(self) -> Csr: ...

    @property
    def longest(self) -> int: ...

    @property
    def strength_depth(self) -> int: ...

    def partition(self) -> Rows:
        """All lists, grouped for the kernels."""


class RankedGraph(Protocol):
    """A graph that can be ranked: a DynamicGraph, the part of one that a shard holds, or a graph
    whose lists are streamed. See DynamicGraph for the members.
    """

    @property
    def backend(self) -> Backend: ...

    @property
    def weighted(self) -> bool: ...

    @property
    def fixed_loops(self) -> bool: ...

    @property
    def vertices(self) -> int: ...

    @property
    def columns(self) -> int: ...

    @property
    def arcs(self) -> int: ...

    @property
    def connected(self) -> int: ...

    @property
    def ids(self) -> VertexIds: ...

    @property
    def permutation(self) -> VertexPermutation: ...

    @property
    def free(self) -> Array: ...

    @property
    def loop(self) -> Array: ...

    @property
    def degree(self) -> Array: ...

    @property
    def outgoing(self) -> NeighbourLists: ...

    @property
    def incoming(self) -> NeighbourLists: ...

    @property
    def view(self) -> GraphView: ...

    def sweep_view(self, largest_sum: float, of_query: bool = False) -> GraphView:
        """The view for a sweep in float64, with pages where they are worth it.

        largest_sum  upper bound on the sum of sizes of contributions to a vertex
        of_query     whether a query sweeps, and not a solve
        """

    def in_rows(self) -> Rows:
        """All in-lists, grouped for the kernels of sweeps."""

    def total(self, values: Array) -> float:
        """Σ over the vertices of an array over them."""

    def count(self, found: int) -> int:
        """How many there are, of which `found` are in the part of the graph that is here."""
