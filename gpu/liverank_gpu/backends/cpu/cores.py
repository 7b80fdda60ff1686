"""Core numbers on ``cpu``."""

from __future__ import annotations

import numpy as np

from liverank_gpu.native import kernels
from liverank_gpu.operations.cores import CoreOperations
from liverank_gpu.operations.csr import Csr, Rows
from liverank_gpu.operations.device import Array


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
