"""Several personalized vectors at once on ``cpu``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cpu.sweeps import NO_DEFLATION, sum_depth
from liverank_gpu.native import kernels
from liverank_gpu.operations.csr import GraphView, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.multivector import MultivectorOperations
from liverank_gpu.operations.sweeps import DeflationVector

_MOST_COLUMNS = 32
"""Vectors that share a pass over the graph, at most."""

_FEWEST_COLUMNS = 4

_SUMS = 3


class CpuMultivector(MultivectorOperations):
    """See MultivectorOperations."""

    contribution_dtype = np.float32
    min_columns = _FEWEST_COLUMNS

    def column_count(self, wanted: int) -> int:
        return min(max(wanted, _FEWEST_COLUMNS), _MOST_COLUMNS)

    def sweep_many(
        self,
        graph: GraphView,
        rows: Rows,
        values: Array,
        remainder: Array,
        contributions: Array,
        new_contributions: Array,
        seeded: Array,
        damping: float,
        deflation: DeflationVector | None,
        coefficients: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        columns = values.shape[1]
        padded = np.zeros(columns)
        if deflation is not None:
            padded[: len(coefficients)] = coefficients
        sums = np.zeros((len(rows.groups) - 1, _SUMS, columns))
        kernels.sweep_many(
            rows.groups,
            rows.order,
            graph.incoming,
            graph.outgoing.row_lengths,
            graph.loop,
            graph.degree,
            contributions,
            seeded,
            damping,
            deflation or NO_DEFLATION,
            padded,
            values,
            remainder,
            new_contributions,
            sums,
        )
        total: NDArray[np.float64] = sums.sum(axis=0)
        return total

    def column_depth(self, graph: GraphView) -> int:
        return sum_depth(graph.longest_row)

    def add_compensated(
        self, remainder: Array, places: Array, amounts: Array, carry: Array
    ) -> None:
        exact = remainder[places].astype(np.float64) + amounts + carry
        stored = exact.astype(np.float32)
        remainder[places] = stored
        carry[:] = exact - stored
