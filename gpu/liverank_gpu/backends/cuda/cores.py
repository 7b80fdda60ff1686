"""Core numbers on ``cuda``."""

from __future__ import annotations

import numpy as np

from liverank_gpu.backends.cuda.kernels.counts import CORE_COUNTS
from liverank_gpu.backends.cuda.kernels.loader import WARP
from liverank_gpu.backends.cuda.launcher import Launcher, blocks_for
from liverank_gpu.operations.cores import CoreOperations
from liverank_gpu.operations.csr import Csr, Rows
from liverank_gpu.operations.device import Array

_VERTICES_OF_A_BLOCK = 64
"""Vertices of a graph for each block of a launch, at least: few blocks synchronise faster."""

_WAVES = 16
"""Blocks of a launch over rows, over those that are resident: rows differ in work."""


class CudaCores(CoreOperations):
    """See CoreOperations."""

    def __init__(self, launch: Launcher) -> None:
        self._launch = launch

    def core_numbers(self, lists: Csr) -> Array:
        xp, vertices = self._launch.xp, len(lists.row_lengths)
        degree = lists.row_lengths.copy()
        start = np.zeros(CORE_COUNTS["SIZE"], np.int64)
        start[CORE_COUNTS["REMAINING"]] = vertices
        remaining = xp.arange(vertices, dtype=np.int32)
        self._launch(
            "cores",
            "core_numbers",
            blocks_for(vertices, _VERTICES_OF_A_BLOCK, self._launch.resident),
            *lists[:3],
            degree,
            remaining,
            xp.empty_like(remaining),
            xp.empty_like(remaining),
            self._launch.device.to_device(start),
        )
        return degree

    def lower_cores(
        self, lists: Csr, rows: Rows, bounds: Array, blocks: Array, shift: int, now: int
    ) -> int:
        fallen = self._launch.xp.zeros(1, np.uint64)
        self._launch(
            "cores",
            "lower_cores",
            self._launch.resident_blocks(rows.count * WARP, _WAVES),
            *lists[:3],
            rows.order,
            np.int64(rows.count),
            bounds,
            blocks,
            np.int32(shift),
            np.int32(now),
            fallen,
        )
        return int(fallen[0])
