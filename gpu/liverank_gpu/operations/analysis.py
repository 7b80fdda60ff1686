"""Strongly connected components, core numbers, triangles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from liverank_gpu.operations.csr import Csr, GraphView, Operation, Rows
from liverank_gpu.operations.device import Array

# ---- solving one strongly connected component after the other ----


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
    """What SolveComponents did.

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


@dataclass(slots=True, eq=False)
class SolveComponents(Operation[ComponentsSolved]):
    """Solves ``y = αP̄ᵀy + β·1`` for one component after the other.

    A vertex on no cycle takes one step. A component of several is swept until α·Σ|Δy| is at most
    residual_goal·Σy over its vertices (then so is ‖r‖₁), no y moves by more than largest_step, or
    after most_sweeps.

    values         float64[n], y, updated
    contributions  float64[n], written: of y, as of ComputeContributions
    Raises MemoryError before anything is written.
    """

    local = True

    graph: GraphView
    components: Components
    values: Array
    contributions: Array
    rhs_scale: float
    damping: float
    residual_goal: float
    largest_step: float
    most_sweeps: int


# ---- core numbers of a graph without directions: see liverank_gpu.programs.algorithms ----


@dataclass(slots=True, eq=False)
class CoreNumbers(Operation[tuple[Array, Array]]):
    """int32[n] each: the largest k so that the vertex is in a subgraph of degrees ≥ k; and the
    vertices in an order in which at most so many of its neighbours follow each of them.

    lists  each edge in the rows of both ends
    """

    lists: Csr


@dataclass(slots=True, eq=False)
class LowerCores(Operation[int]):
    """Lowers the bound of each of some rows to the largest h of which h neighbours have bounds of
    at least h, unless it is lower. Bounds change in place: others may see old or new ones. Core
    numbers are what is left when none falls, if bounds begin as degrees (Lü, Zhou, Zhang and
    Stanley, "The H-index of a network node", Nature Communications 2016). Returns how many fell.

    bounds  int32[n], of all vertices
    blocks  int32[b]: b[v >> shift] becomes `now` for each v whose bound fell
    """

    lists: Csr
    rows: Rows
    bounds: Array
    blocks: Array
    shift: int
    now: int


class NearRows(Protocol):
    """Reads the neighbours of some vertices, without direction and loops.

    outgoing, incoming  see GraphView; incoming None if each edge is in the rows of both ends
    read                entries so far
    most                of them
    """

    read: int
    most: int

    @property
    def outgoing(self) -> Csr: ...

    @property
    def incoming(self) -> Csr | None: ...

    def of(self, vertices: Array) -> tuple[Array, Array]:
        """Of distinct vertices, int32[k]: the place in `vertices` and the neighbour of each entry,
        integer[…] each. Raises TooMuch.
        """

    def arcs(self, vertices: Array) -> Array:
        """int64[…], ascending: the place in `vertices` << 32 | the neighbour, for each arc from or
        to one of these, int32[k]; undirected: for each edge. Raises TooMuch.
        """

    def take(self, entries: int) -> None:
        """Counts entries that are about to be read. Raises TooMuch."""

    def lists(self, vertices: Array) -> Csr:
        """Lists in which at least the rows of distinct vertices are, int32[k]. Raises TooMuch."""


class TooMuch(Exception):
    """More than the most entries would be read."""


@dataclass(slots=True, eq=False)
class CoreCandidates(Operation[tuple[Array, Array]]):
    """Some vertices that include the set X of liverank_gpu.programs.continued, and are part of C;
    and the suspects of which more neighbours than their bounds have higher ones, or the same and
    follow. int32[…] each. Raises TooMuch.

    bounds    int32[n]
    places    int32[n], of each vertex in the order
    suspects  int32[k], distinct
    """

    near: NearRows
    bounds: Array
    places: Array
    suspects: Array


# ---- triangles of a graph without directions, and bounds of edges by their triangles ----
#
# The graph is *oriented*: each edge is in one row, that of its lower end; rows ascend, and lie one
# after the other from 0 on, without slack. An edge is named by its entry, 0 … m - 1. `sources`,
# int32[m], is the row of each entry.


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
    lists               starts, in the window, and lengths of all rows, int64[n] and int32[n], of
                        which those of other rows are not read; the entries of these rows, which may
                        have slack between them; no weights
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


@dataclass(slots=True, eq=False)
class CountTriangles(Operation[Array]):
    """int32[m]: the triangles of each edge.

    every_edge  False leaves out those whose third vertex is below both ends, which is enough to
                count by vertex: each triangle then counts for two edges, those of its lowest vertex
    """

    oriented: Csr
    sources: Array
    every_edge: bool


@dataclass(slots=True, eq=False)
class CountBetween(Operation[None]):
    """Counts the triangles u, v, w in ascending order of which u is a row of one window and v of
    the other, or the same.

    triangles  int64[n], to which each of these triangles adds 1 for each of its vertices
    """

    lowest: RowWindow
    middle: RowWindow
    triangles: Array


@dataclass(slots=True, eq=False)
class CountEntriesBetween(Operation[None]):
    """Counts the same triangles by edge: u → v and u → w, which are entries of `lowest`, or v → w,
    which is one of `middle`.

    of_lowest  which
    counts     int32[…], to which each triangle adds 1 for each of these: at its slot; or if there
               are bounds, at its place plus the least bound of the triangle's edges
    """

    lowest: RowWindow
    middle: RowWindow
    of_lowest: bool
    counts: Array
    bounds: EdgeBounds | None = None


@dataclass(slots=True, eq=False)
class ListTriangles(Operation[None]):
    """Writes `lists.others`. The starts fit what `CountTriangles` found for every edge."""

    oriented: Csr
    sources: Array
    interval: Interval
    lists: TriangleLists


@dataclass(slots=True, eq=False)
class LowerBounds(Operation[tuple[int, int]]):
    """Examines the marked edges of an interval: a bound b of an edge is *supported* if at least b
    of its triangles have bounds of at least b on both other edges. One that is not falls, and the
    edges that it may have supported are marked, and so is the edge itself. Bounds change in place:
    others may see old or new ones. Returns how many edges were examined, and how many bounds fell.

    by_bisection  whether a bound falls to the highest one that is supported, which bisection finds,
                  or by one
    bounds        int32[m], not negative
    marks         int32[m], 1 for edges to be examined, else 0
    falls         int64[m + 1]: how many falls there were; and of each edge the number of its last
                  one among all falls, from 1 on, or 0. Of two edges with the same bound, the first
                  to fall had not seen the other fall: at the end an edge has at most as many
                  triangles as its bound with, on both other edges, a higher bound, or the same and
                  no earlier fall
    """

    interval: Interval
    lists: TriangleLists
    by_bisection: bool
    bounds: Array
    marks: Array
    falls: Array
