"""Several personalized vectors at once on ``cpu``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cpu.sweeps import NO_DEFLATION, sum_depth
from liverank_gpu.native import kernels
from liverank_gpu.operations.csr import GraphView
from liverank_gpu.operations.multivector import AddCompensated, MultivectorOperations, SweepMany
from liverank_gpu.operations.operation import Table

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

    def column_depth(self, graph: GraphView) -> int:
        return sum_depth(graph.longest_row)


def _sweep_many(do: SweepMany) -> NDArray[np.float64]:
    graph, rows, columns = do.graph, do.rows, do.values.shape[1]
    padded = np.zeros(columns)
    if do.deflation is not None:
        padded[: len(do.coefficients)] = do.coefficients
    sums = np.zeros((len(rows.groups) - 1, _SUMS, columns))
    kernels.sweep_many(
        rows.groups,
        rows.order,
        graph.incoming,
        graph.outgoing.row_lengths,
        graph.loop,
        graph.degree,
        do.contributions,
        do.seeded,
        do.damping,
        do.deflation or NO_DEFLATION,
        padded,
        do.values,
        do.remainder,
        do.new_contributions,
        sums,
    )
    total: NDArray[np.float64] = sums.sum(axis=0)
    return total


def _add_compensated(do: AddCompensated) -> None:
    exact = do.remainder[do.places].astype(np.float64) + do.amounts + do.carry
    stored = exact.astype(np.float32)
    do.remainder[do.places] = stored
    do.carry[:] = exact - stored


MULTIVECTOR: Table = {SweepMany: _sweep_many, AddCompensated: _add_compensated}
