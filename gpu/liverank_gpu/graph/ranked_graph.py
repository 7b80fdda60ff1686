"""What all graphs that can be ranked have in common."""

from __future__ import annotations

from liverank_gpu.graph.packed_csr import PackedCsr, RowLengths
from liverank_gpu.graph.vertices import VertexIds, VertexPermutation
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import GraphView, Rows
from liverank_gpu.operations.device import Array


class RankedGraph:
    """A graph that can be ranked: a DynamicGraph, the part of one that a shard holds, or a graph
    that does not change, or whose lists are streamed. See DynamicGraph for the members.

    connected  vertices with an edge other than their own loop
    """

    backend: Backend
    weighted: bool
    fixed_loops: bool
    vertices: int
    columns: int
    arcs: int
    connected: int
    ids: VertexIds
    permutation: VertexPermutation
    free: Array
    loop: Array
    degree: Array
    outgoing: PackedCsr | RowLengths
    incoming: PackedCsr | RowLengths

    @property
    def view(self) -> GraphView:
        """The graph as kernels read it, until the next batch."""
        return GraphView(
            self.vertices,
            self.arcs,
            self.outgoing.csr,
            self.incoming.csr,
            self.loop,
            self.degree,
            self.incoming.longest,
        )

    @property
    def whole(self) -> GraphView:
        """The view with the entries of out-lists, where components are solved."""
        return self.view

    def sweep_view(self, largest_sum: float, of_query: bool = False) -> GraphView:  # noqa: ARG002
        """The view for a sweep in float64, with pages where they are worth it.

        largest_sum  upper bound on the sum of sizes of contributions to a vertex
        of_query     whether a query sweeps, and not a solve
        """
        return self.view

    def in_rows(self) -> Rows:
        """All in-lists, grouped for the kernels of sweeps."""
        return self.incoming.partition()

    def size(self, values: Array) -> float:
        """Σ of the sizes of float64 values, as `total`."""
        return self.backend.select.size(values)

    def total(self, values: Array) -> float:
        """Σ over the vertices of an array over them."""
        return float(self.backend.device.sum(values))

    def count(self, found: int) -> int:
        """How many there are, of which `found` are in the part of the graph that is here."""
        return found
