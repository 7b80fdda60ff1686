"""Blocks of personalized queries over the rows of one shard, with the contributions of all."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import GraphView, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.multivector import MultivectorOperations
from liverank_gpu.operations.sweeps import DeflationVector
from liverank_gpu.sharded.columns import Columns
from liverank_gpu.sharded.communicator import Communicator


class ShardedMultivector(MultivectorOperations):
    """See MultivectorOperations. Matrices are over own vertices; contributions have
    Numbering.columns rows, and sums are over all shards.
    """

    def __init__(self, local: Backend, communicator: Communicator, columns: Columns) -> None:
        self._local = local.multivector
        self._communicator, self._columns = communicator, columns
        self.contribution_dtype = self._local.contribution_dtype
        self.min_columns = self._local.min_columns

    def column_count(self, wanted: int) -> int:
        return self._local.column_count(wanted)

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
        own = self._local.sweep_many(
            graph,
            rows,
            values,
            remainder,
            contributions,
            new_contributions,
            seeded,
            damping,
            deflation,
            coefficients,
        )
        self._columns.gather(new_contributions.reshape(-1))
        return np.array(self._communicator.sums(own.reshape(-1).tolist())).reshape(own.shape)

    def column_depth(self, graph: GraphView) -> int:
        """The sum over the shards is one more addition."""
        return int(self._communicator.gather([self._local.column_depth(graph)]).max()) + 1

    def add_compensated(
        self, remainder: Array, places: Array, amounts: Array, carry: Array
    ) -> None:
        self._local.add_compensated(remainder, places, amounts, carry)
