"""Strongly connected components, core numbers and triangles on ``cpu``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cpu.device import CpuDevice
from liverank_gpu.native import kernels
from liverank_gpu.operations.analysis import (
    ComponentOperations,
    Components,
    ComponentsSolved,
    CoreOperations,
    EdgeBounds,
    Interval,
    RowWindow,
    TriangleLists,
    TriangleOperations,
)
from liverank_gpu.operations.csr import Csr, GraphView, Rows
from liverank_gpu.operations.device import Array

# ---- strongly connected components on ``cpu`` ----

_SAMPLES = 1024
"""Edges in the sample for the reciprocity."""


class CpuComponents(ComponentOperations):
    """See ComponentOperations."""

    def reciprocity(self, graph: GraphView) -> float:
        seen, found = kernels.count_reciprocal(graph.outgoing, graph.incoming, _SAMPLES)
        return float(found / max(seen, 1))

    def find(self, graph: GraphView) -> Components:
        component = np.zeros(graph.vertices, np.int32)
        count = kernels.number_components(graph.outgoing[:3], component)
        first, order = np.zeros(count + 1, np.int64), np.empty(graph.vertices, np.int32)
        counts = kernels.order_by_component(component, graph.incoming.row_lengths, first, order)
        return Components(order, first, *counts)

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
        solved = kernels.solve_components(
            components.order,
            components.first,
            components.largest_size,
            components.largest_edges,
            graph.incoming,
            graph.loop,
            graph.degree,
            rhs_scale,
            damping,
            residual_goal,
            largest_step,
            most_sweeps,
            values,
            contributions,
        )
        return ComponentsSolved(*solved)


# ---- core numbers on ``cpu`` ----


class CpuCores(CoreOperations):
    """See CoreOperations."""

    def core_numbers(self, lists: Csr) -> Array:
        degree = lists.row_lengths.copy()
        order, place = np.empty((2, len(degree)), np.int32)
        longest = int(degree.max()) if len(degree) else 0
        first = np.zeros(longest + 2, np.int64)
        kernels.core_numbers(lists, degree, order, place, first)
        return degree

    def lower_cores(
        self, lists: Csr, rows: Rows, bounds: Array, blocks: Array, shift: int, now: int
    ) -> int:
        fallen: int = kernels.lower_cores(
            rows.groups, rows.order, lists, bounds, blocks, shift, now
        )
        return fallen


# ---- triangles on ``cpu`` ----


class CpuTriangles(TriangleOperations):
    """See TriangleOperations."""

    def __init__(self, device: CpuDevice) -> None:
        self._device = device

    def count_triangles(self, oriented: Csr, sources: Array, every_edge: bool) -> Array:
        groups, places = self._parts(oriented, sources)
        triangles = np.zeros(len(sources), np.int32)
        third = np.zeros(len(sources) if every_edge else 0, np.int32)
        kernels.count_triangles(groups, oriented, places, every_edge, triangles, third)
        return triangles + third if every_edge else triangles

    def count_between(self, lowest: RowWindow, middle: RowWindow, triangles: Array) -> None:
        kernels.count_between(_rows_of(lowest), _rows_of(middle), triangles)

    def count_entries_between(
        self,
        lowest: RowWindow,
        middle: RowWindow,
        of_lowest: bool,
        counts: Array,
        bounds: EdgeBounds | None = None,
    ) -> None:
        windows = _rows_of(lowest), _rows_of(middle)
        kernels.count_entries_between(*windows, of_lowest, counts, bounds)

    def list_triangles(
        self, oriented: Csr, sources: Array, interval: Interval, lists: TriangleLists
    ) -> None:
        groups, places = self._parts(oriented, sources)
        ends = lists.starts[:-1].copy()
        kernels.list_triangles(groups, oriented, places, interval, ends, lists.others)

    def lower_bounds(
        self,
        interval: Interval,
        lists: TriangleLists,
        by_bisection: bool,
        bounds: Array,
        marks: Array,
    ) -> tuple[int, int]:
        counts: tuple[int, int] = kernels.lower_bounds(
            interval.first_edge, lists.starts, lists.others, by_bisection, bounds, marks
        )
        return counts

    def _parts(
        self, oriented: Csr, sources: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Rows divided among the threads by the entries that they compare, and their places."""
        vertices, parts = len(oriented.row_lengths), kernels.threads()
        lengths = oriented.row_lengths[oriented.column_indices]
        work = np.cumsum(np.bincount(sources, lengths, vertices))  # of the rows up to each
        limits = np.searchsorted(work, work[-1] / parts * np.arange(1, parts))
        places = self._device.allocate("triangles", parts * vertices, np.int32)
        places.fill(0)
        return np.concatenate([[0], limits, [vertices]]), places


def _rows_of(window: RowWindow) -> RowWindow:
    """Without weights, which no kernel of triangles reads."""
    return window._replace(lists=window.lists._replace(weights=None))
