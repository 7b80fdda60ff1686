"""Core numbers and triangles on ``cuda``."""

from __future__ import annotations

import numpy as np

from liverank_gpu.backends.cuda.kernels.loader import CORE_COUNTS, WARP
from liverank_gpu.backends.cuda.launcher import OnDevice, blocks_for
from liverank_gpu.operations import analysis as op
from liverank_gpu.operations.csr import Csr, runs
from liverank_gpu.operations.device import Array

_VERTICES_OF_A_BLOCK = 64
"""Vertices of a graph for each block of a launch, at least: few blocks synchronise faster."""

_WAVES = 16
"""Blocks of a launch over rows, over those that are resident: rows differ in work."""

_LANES, _TRIANGLE_WAVES = 8, 16
"""Threads of an edge whose triangles are looked for, and blocks of such a launch over those that
are resident: edges differ in work.
"""


class CudaAnalysis(OnDevice):
    """Core numbers; triangles of an oriented graph, and bounds of its edges."""

    @runs
    def _core_numbers(self, do: op.CoreNumbers) -> tuple[Array, Array]:
        lists = do.lists
        xp, vertices = self._xp, len(lists.row_lengths)
        degree = lists.row_lengths.copy()
        start = np.zeros(CORE_COUNTS["SIZE"], np.int64)
        start[CORE_COUNTS["REMAINING"]] = vertices
        remaining = xp.arange(vertices, dtype=np.int32)
        order = xp.empty_like(remaining)
        blocks = blocks_for(vertices, _VERTICES_OF_A_BLOCK, self._launch.resident)
        own = {"degree": degree, "remaining": remaining, "others": xp.empty_like(remaining)}
        own |= {"queue": order, "counts": self._device.to_device(start)}
        self._launch.run("triangles", "core_numbers", blocks, do, weighted=False, **own)
        return degree, order

    @runs
    def _core_candidates(self, do: op.CoreCandidates) -> tuple[Array, Array]:
        """C, in rounds: first the suspects, then those that follow the new ones."""
        xp, bounds, order = self._xp, do.bounds, do.places
        chosen, flags = xp.zeros((2, len(bounds)), bool)
        active = still = do.suspects
        first = True
        while len(active):
            places, neighbours = do.near.of(active)

            def sums(of: Array, places: Array = places, active: Array = active) -> Array:
                return xp.bincount(places[of], minlength=len(active))

            own, others = bounds[active][places], bounds[neighbours]
            follows = (others == own) & (order[neighbours] > order[active][places])
            without = (others > own) | follows
            if first:
                still, first = active[sums(without) > bounds[active]], False
            counted = without | ((others == own) & chosen[neighbours])
            new = (sums(counted) > bounds[active]) & ~chosen[active]
            chosen[active[new]] = True
            flags[neighbours[new[places] & follows & ~chosen[neighbours]]] = True
            active = xp.flatnonzero(flags).astype(np.int32)
            flags[active] = False
        return xp.flatnonzero(chosen).astype(np.int32), still

    @runs
    def _lower_cores(self, do: op.LowerCores) -> int:
        fallen = self._xp.zeros(1, np.uint64)
        blocks = self._launch.resident_blocks(do.rows.count * WARP, _WAVES)
        own = {"rows": do.rows.count, "fallen": fallen}
        self._launch.run("triangles", "lower_cores", blocks, do, weighted=False, **own)
        return int(fallen[0])

    @runs
    def _count_triangles(self, do: op.CountTriangles) -> Array:
        oriented, sources, every_edge = do.oriented, do.sources, do.every_edge
        triangles = self._xp.zeros(len(sources), np.int32)
        name = f"count_triangles<{str(every_edge).lower()}>"
        self._over_edges(name, oriented, sources, triangles)
        return triangles

    @runs
    def _count_between(self, do: op.CountBetween) -> None:
        self._between("count_between", do.lowest, do.middle, do.triangles.view(np.uint64))

    @runs
    def _count_entries_between(self, do: op.CountEntriesBetween) -> None:
        lowest, middle, of_lowest = do.lowest, do.middle, do.of_lowest
        counts, bounds = do.counts, do.bounds
        flags = f"{of_lowest}, {bounds is not None}".lower()
        name = f"count_entries_between<{flags}>"
        self._between(name, lowest, middle, counts, *(bounds or (None, None, None)))

    def _between(
        self, name: str, lowest: op.RowWindow, middle: op.RowWindow, *counts: Array
    ) -> None:
        rows = lowest.end_row - lowest.first_row
        self._launch(
            "triangles",
            name,
            self._launch.resident_blocks(rows * WARP, _TRIANGLE_WAVES),
            *lowest.lists[:3],
            *middle.lists[:3],
            lowest.first_row,
            lowest.end_row,
            middle.first_row,
            middle.end_row,
            *counts,
        )

    @runs
    def _list_triangles(self, do: op.ListTriangles) -> None:
        oriented, sources, interval, lists = do.oriented, do.sources, do.interval, do.lists
        self._over_edges(
            "list_triangles",
            oriented,
            sources,
            interval.first_row,
            interval.end_row,
            interval.first_edge,
            lists.starts[:-1].copy().view(np.uint64),
            lists.others,
        )

    @runs
    def _lower_bounds(self, do: op.LowerBounds) -> tuple[int, int]:
        interval, counts = do.interval, self._xp.zeros(2, np.uint64)
        edges = interval.end_edge - interval.first_edge
        kernel = f"lower_bounds<{str(do.by_bisection).lower()}>"
        blocks = self._launch.resident_blocks(edges, _TRIANGLE_WAVES)
        own = {"count": edges, "falls": do.falls.view(np.uint64), "counts": counts}
        self._launch.run("triangles", kernel, blocks, do, weighted=False, **own)
        examined, fallen = self._device.to_host(counts).tolist()
        return examined, fallen

    def _over_edges(self, name: str, oriented: Csr, sources: Array, *arguments: object) -> None:
        edges = len(sources)
        blocks = self._launch.resident_blocks(edges * _LANES, _TRIANGLE_WAVES)
        graph = (*oriented[:3], sources, edges)
        self._launch("triangles", name, blocks, *graph, *arguments)
