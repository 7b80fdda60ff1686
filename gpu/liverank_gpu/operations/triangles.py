"""Contract: triangles of a graph without directions, and bounds of edges by their triangles.

The graph is *oriented*: each edge is in one row, that of its lower end; rows ascend, and lie
one after the other from 0 on, without slack. An edge is named by its entry, 0 … m - 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from liverank_gpu.operations.csr import Csr
from liverank_gpu.operations.device import Array


class Interval(NamedTuple):
    """Consecutive rows of an oriented graph, and their edges.

    first_row, end_row    the rows first_row … end_row - 1
    first_edge, end_edge  their entries
    """

    first_row: int
    end_row: int
    first_edge: int
    end_edge: int


class TriangleLists(NamedTuple):
    """The triangles of each edge of an interval.

    starts  int64[edges + 1]: list i is others[starts[i] : starts[i + 1]]
    others  int32[triangles, 2], the other two edges of each triangle, in an arbitrary order
    """

    starts: Array
    others: Array


class RowWindow(NamedTuple):
    """Consecutive rows of an oriented graph whose other rows are elsewhere.

    first_row, end_row  the rows first_row … end_row - 1
    lists               starts, in the window, and lengths of all rows, int64[n] and int32[n]; the
                        entries of these rows, which may have slack between them
    """

    first_row: int
    end_row: int
    lists: Csr


class EdgeBounds(NamedTuple):
    """Bounds of the edges of two windows of rows, by which triangles are counted.

    of_lowest, of_middle  int32[slots] of each window, not negative
    places                int64[slots] of the window whose edges are counted: where the counts of
                          each edge begin
    """

    of_lowest: Array
    of_middle: Array
    places: Array


class TriangleOperations(ABC):
    """Triangles of an oriented graph.

    oriented  see above
    sources   int32[m], the row of each entry
    """

    @abstractmethod
    def count_triangles(self, oriented: Csr, sources: Array, every_edge: bool) -> Array:
        """int32[m]: the triangles of each edge.

        every_edge  False leaves out those whose third vertex is below both ends, which is enough to
                    count by vertex: each triangle then counts for two edges, those of its lowest
                    vertex
        """

    @abstractmethod
    def count_between(self, lowest: RowWindow, middle: RowWindow, triangles: Array) -> None:
        """Counts the triangles u, v, w in ascending order of which u is a row of one window and v
        of the other, or the same.

        triangles  int64[n], to which each of these triangles adds 1 for each of its vertices
        """

    @abstractmethod
    def count_entries_between(
        self,
        lowest: RowWindow,
        middle: RowWindow,
        of_lowest: bool,
        counts: Array,
        bounds: EdgeBounds | None = None,
    ) -> None:
        """Counts the same triangles by edge: u → v and u → w, which are entries of `lowest`, or
        v → w, which is one of `middle`.

        of_lowest  which
        counts     int32[…], to which each triangle adds 1 for each of these: at its slot; or if
                   there are bounds, at its place plus the least bound of the triangle's edges
        """

    @abstractmethod
    def list_triangles(
        self, oriented: Csr, sources: Array, interval: Interval, lists: TriangleLists
    ) -> None:
        """Writes `lists.others`. The starts fit what `count_triangles` found for every edge."""

    @abstractmethod
    def lower_bounds(
        self,
        interval: Interval,
        lists: TriangleLists,
        by_bisection: bool,
        bounds: Array,
        marks: Array,
    ) -> tuple[int, int]:
        """Examines the marked edges of an interval: a bound b of an edge is *supported* if at least
        b of its triangles have bounds of at least b on both other edges. One that is not falls, and
        the edges that it may have supported are marked, and so is the edge itself. Bounds change in
        place: others may see old or new ones.

        by_bisection  whether a bound falls to the highest one that is supported, which bisection
                      finds, or by one
        bounds        int32[m], not negative
        marks         int32[m], 1 for edges to be examined, else 0
        Returns how many edges were examined, and how many bounds fell.
        """
