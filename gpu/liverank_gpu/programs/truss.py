"""Triangles of each edge, and the densest truss that each edge is in.

The *k-truss* of a graph is its largest subgraph of which each edge is in at least k - 2 triangles
(Cohen, "Trusses: cohesive subgraphs for social network analysis", 2008); the *trussness* of an edge
is the largest k of whose truss it is part. In Zhang's thesis (section 2.5) trusses are DN-graphs,
and λ of an edge is its trussness less 2 in definition 2.5.2, its trussness in 2.5.3.

A bound of λ begins as the number of the edge's triangles and falls until as many of them have at
least this bound on both other edges; the fixpoint is λ ("iterative triangulation", algorithms 1, 2
and 4; as iterated h-indices: Sarıyüce, Seshadhri and Pinar, VLDB 2018). Bounds change in place, and
only edges whose support may have changed are examined again. Algorithm 2 takes a bound that is
supported once as a lower limit for good; here bisection ends within one examination, because
others' bounds may fall after it. Algorithm 4 ends if all converged *and* the iterations are used
up; here if either is so.

Triangles are listed for an interval of rows at a time: all of them once if they fit into half of
the free memory, else again in each iteration.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.analysis import (
    CountTriangles,
    Interval,
    ListTriangles,
    LowerBounds,
    TriangleLists,
)
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Csr
from liverank_gpu.operations.device import Array
from liverank_gpu.programs.algorithms import Algorithm, Computed, Parts
from liverank_gpu.programs.views import Undirected

_PAIR_BYTES = 8
"""Bytes of a triangle in the list of one of its edges."""

NO_TRIANGLES = 2
"""The trussness of an edge without triangles."""


def _support(graph: DynamicGraph) -> Parts:
    yield 0, 0
    edges, triangles = Undirected.of(graph), graph.backend.xp.zeros(0, np.int32)
    if len(edges.keys):
        lists, sources = edges.lists(graph.backend.xp, edges.keys), edges.sources
        triangles = graph.backend.run(CountTriangles(lists, sources, every_edge=True))
    by_id = edges.by_id(graph)
    summary = {
        "triangles": float(graph.backend.device.sum(triangles)) / 3.0,
        "largest": float(triangles.max()) if len(triangles) else 0.0,
    }
    values = triangles[by_id.order]
    return Computed(values, 1, len(edges.keys), summary, ends=(by_id.sources, by_id.targets))


class _Trusses:
    """Bounds of λ of all edges of a graph that has some.

    triangles   int32[m], of each edge
    bounds      int32[m]
    intervals   of the rows, in order
    examined    examinations of an edge so far
    iterations  passes over the intervals so far
    finished    whether all bounds are supported
    """

    def __init__(self, backend: Backend, edges: Undirected, partitions: int) -> None:
        self._backend = backend
        self._oriented: Csr = edges.lists(backend.xp, edges.keys)
        self._sources = edges.sources
        self.triangles = backend.run(CountTriangles(self._oriented, self._sources, every_edge=True))
        self.bounds = self.triangles.copy()
        self._marks = (self.triangles > 0).astype(np.int32)
        self.intervals = list(self._divided(partitions))
        self._kept: TriangleLists | None = None
        self.examined = self.iterations = 0
        self.finished = False

    def _divided(self, partitions: int) -> Iterator[Interval]:
        """Intervals whose lists have at most one part in `partitions` of all triangles and fit into
        half of the free memory, or are those of one row.
        """
        device, oriented = self._backend.device, self._oriented
        ends = device.to_host(oriented.row_starts + oriented.row_lengths)
        # entries of the lists of the edges before each, and of the rows up to each
        before = np.append(0, np.cumsum(device.to_host(self.triangles), dtype=np.int64))
        through = before[ends]
        free = device.memory_available() // (2 * _PAIR_BYTES)
        total, rows = int(through[-1]), len(ends)
        most = min(max(1, free), -(-total // partitions))
        first_row = first_edge = done = 0
        while done < total:
            end_row = int(np.searchsorted(through, done + most, side="right"))
            end_row = min(max(end_row, first_row + 1), rows)
            end_edge = int(ends[end_row - 1])
            yield Interval(first_row, end_row, first_edge, end_edge)
            first_row, first_edge, done = end_row, end_edge, int(through[end_row - 1])

    def _lists(self, interval: Interval) -> TriangleLists:
        if self._kept is not None:
            return self._kept
        xp, backend = self._backend.xp, self._backend
        counts = self.triangles[interval.first_edge : interval.end_edge]
        starts = xp.zeros(len(counts) + 1, np.int64)
        starts[1:] = xp.cumsum(counts, dtype=np.int64)
        size = int(starts[-1])
        others = backend.device.allocate("lists of triangles", 2 * size, np.int32)
        lists = TriangleLists(starts, others.reshape(size, 2))
        backend.run(ListTriangles(self._oriented, self._sources, interval, lists))
        if len(self.intervals) == 1:
            self._kept = lists
        return lists

    def lower(self, by_bisection: bool) -> None:
        """One iteration: examines the marked edges of each interval."""
        fallen = 0
        for interval in self.intervals:
            marks = self._marks[interval.first_edge : interval.end_edge]
            if self._kept is None and not int(self._backend.device.sum(marks)):
                continue
            lists = self._lists(interval)
            examined, changed = self._backend.run(
                LowerBounds(interval, lists, by_bisection, self.bounds, self._marks)
            )
            self.examined += examined
            fallen += changed
        self.iterations += 1
        self.finished = fallen == 0


def _trussness(graph: DynamicGraph, binary: int, iterations: int, partitions: int) -> Parts:
    yield 0, 0
    edges = Undirected.of(graph)
    by_id = edges.by_id(graph)
    ends = (by_id.sources, by_id.targets)
    if len(edges.keys) == 0:
        nothing: Array = graph.backend.xp.zeros(0, np.int32)
        return Computed(nothing, 0, 0, {"largest": 0.0, "partitions": 0.0}, ends=ends)
    trusses = _Trusses(graph.backend, edges, partitions)
    while not trusses.finished and trusses.iterations < iterations:
        trusses.lower(by_bisection=binary == 1)
        yield trusses.iterations, trusses.examined
    values = trusses.bounds[by_id.order] + np.int32(NO_TRIANGLES)
    summary = {"largest": float(values.max()), "partitions": float(len(trusses.intervals))}
    work = (trusses.iterations, trusses.examined)
    return Computed(values, *work, summary, finished=trusses.finished, ends=ends)


SUPPORT = Algorithm("support", _support)
"""The number of triangles of each edge, int32."""

TRUSSNESS = Algorithm(
    "trussness",
    _trussness,
    {"binary": 1, "iterations": 2**31 - 1, "partitions": 1},
    {"binary": (0, 1), "iterations": (1, np.inf), "partitions": (1, np.inf)},
)
"""The trussness of each edge, int32: λ + 2. An upper bound of it if the iterations do not suffice.

binary      1: a bound falls to the highest one that is supported, found by bisection (the thesis's
            BiTriDN); 0: by one at a time (TriDN)
iterations  at most
partitions  intervals of rows whose triangles are listed at a time, at least about as many
"""
