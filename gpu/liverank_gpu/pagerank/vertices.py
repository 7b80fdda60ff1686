"""The vertices of a graph as solves and queries that order them find them.

A graph on one device has all of them. A shard has those that it owns, and combines what it finds
with what the others do: see liverank_gpu.sharded.own_vertices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.device import Array
from liverank_gpu.operations.select import TopK
from liverank_gpu.pagerank.identical_lists import IdenticalLists, identical_in_lists
from liverank_gpu.pagerank.places import without
from liverank_gpu.pagerank.ranked_graph import RankedGraph
from liverank_gpu.types import Ranking


class LeadingEntries(NamedTuple):
    """The entries of an iterate with the largest y, on the host: largest first, ties by id.

    vertices      int64[k], ids
    values        float64[k], y
    residuals     float64[k], r
    degree, loop  [k], see GraphView
    """

    vertices: NDArray[np.int64]
    values: Ranking
    residuals: Ranking
    degree: Array
    loop: Array


class GraphVertices:
    """All vertices of a graph on one device.

    graph  its arrays over vertices are by row
    """

    def __init__(self, graph: RankedGraph) -> None:
        self.graph = graph

    def rows_of(self, ids: NDArray[np.int64]) -> tuple[Array, Array | slice]:
        """int32[r] on the device: the rows of those of `ids` that are here, in their order; and
        which they are.
        """
        return self.graph.permutation.positions_of(ids).astype(np.int32), slice(None)

    def to_ids(self, rows: Array) -> Array:
        """integer[r] on the device."""
        return self.graph.permutation.to_ids(rows)

    def ids_of(self, rows: Array) -> NDArray[np.int64]:
        """int64[r] on the host, of rows on the host or the device."""
        backend = self.graph.backend
        ids = self.to_ids(backend.xp.asarray(rows))
        return np.asarray(backend.device.to_host(ids), np.int64)

    def values_at(self, values: Array, ids: NDArray[np.int64]) -> Ranking:
        """float64[k] on the host: values[n] by row, of these vertices."""
        return self.graph.backend.device.to_host(values[self.rows_of(ids)[0]])

    def sorted_by_id(self, rows: Array) -> Array:
        """Distinct rows, in the order of their ids."""
        return rows[self.graph.backend.xp.argsort(self.to_ids(rows))]

    def top_k(self, values: Array, k: int) -> TopK:
        """Ids and values of the k largest of values[n] by row, on the host; ties by id."""
        return self.graph.backend.select.top_k(values, k, self.to_ids)

    def top_k_columns(self, values: Array, counts: NDArray[np.int64]) -> list[TopK]:
        """`top_k` of the first len(counts) columns of values[n, columns], each of its count."""
        return self.graph.backend.select.top_k_columns(values, counts, self.to_ids)

    def leading(self, values: Array, residuals: Array, most: int) -> LeadingEntries:
        """Of y and r by row the entries with the largest y that are here, at most so many."""
        graph, to_host = self.graph, self.graph.backend.device.to_host
        with without(values, graph.free):
            vertices, best = self.top_k(values, min(most, len(values) - len(graph.free)))
        rows = self.rows_of(vertices)[0]
        columns = (residuals[rows], graph.degree[rows], graph.loop[rows])
        return LeadingEntries(vertices, best, *map(to_host, columns))

    def sums(self, values: Sequence[float]) -> list[float]:
        """Numbers added up over the whole graph, of what they are here."""
        return list(values)

    def highest(self, value: float) -> float:
        """The largest number of the whole graph, of what it is here."""
        return value

    def identical_to(self, vertices: NDArray[np.int64]) -> IdenticalLists:
        """Those of distinct ids whose in-lists others have too."""
        return identical_in_lists(self.graph, vertices)

    def merged(self, leading: LeadingEntries, k: int) -> LeadingEntries:
        """The first k entries of the whole graph, from the first k here."""
        assert len(leading.values) <= k
        return leading

    def merged_columns(self, tops: list[TopK], counts: NDArray[np.int64]) -> list[TopK]:  # noqa: ARG002
        """The first places of several vectors of the whole graph, from as many here."""
        return tops
