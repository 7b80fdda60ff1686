"""An earlier answer of an algorithm and what batches have done since, and counts of triangles."""

from __future__ import annotations

from typing import Any, NamedTuple

from liverank_gpu.operations.device import Array


class Earlier(NamedTuple):
    """Edges have no direction; ends are positions.

    values  of the vertices that there were, by position, or of the edges
    edges   see Answer.edges, on the device; None if values are of vertices
    kept    what the algorithm keeps beside its values: Computed.kept
    ends    integer[2, k]: the lower and the higher end of each edge of which arcs are new or gone,
            in ascending order
    more    int64[k], not 0: how many more arcs of each there are, of both directions
    """

    values: Array
    edges: tuple[Array, Array] | None
    kept: Any
    ends: Array
    more: Array

    @property
    def added(self) -> Array:
        """integer[2, a], the ends of edges that are new: all of them, and maybe others."""
        return self.ends[:, self.more > 0]

    @property
    def removed(self) -> Array:
        """integer[2, r], the ends of edges that are gone, likewise."""
        return self.ends[:, self.more < 0]


class VertexTriangles(NamedTuple):
    """The triangles of each vertex.

    counts  int64[n], by row
    degree  integer[n], neighbours, by row
    rows    integer[n], the row of each position, or all in order
    edges   read
    passes  over the graph
    """

    counts: Array
    degree: Array
    rows: Array | slice
    edges: int
    passes: int


class EdgeTriangles(NamedTuple):
    """The triangles of each edge.

    counts   int32[m]
    ends     see Answer.edges
    total    of all edges
    largest  of an edge
    passes   over the edges
    edges    read
    """

    counts: Array
    ends: tuple[Array, Array]
    total: int
    largest: int
    passes: int
    edges: int
