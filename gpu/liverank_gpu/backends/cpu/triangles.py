"""Triangles on ``cpu``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cpu.device import CpuDevice
from liverank_gpu.native import kernels
from liverank_gpu.operations.csr import Csr
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.triangles import (
    EdgeBounds,
    Interval,
    RowWindow,
    TriangleLists,
    TriangleOperations,
)


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
