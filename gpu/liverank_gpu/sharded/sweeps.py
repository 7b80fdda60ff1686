"""Dense sweeps over the rows of one shard, with the contributions of all of them.

The kernels are those of an undivided graph. A shard's rows read contributions by column
(liverank_gpu.sharded.numbering) and write those of its own rows, which are then gathered from all
shards. Sums are added over the shards, rounded once: one more addition for every term.
"""

from __future__ import annotations

from dataclasses import replace
from math import fsum

import numpy as np

from liverank_gpu.operations.backend import Backend, Costs
from liverank_gpu.operations.csr import GraphView, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.sweeps import DeflationVector, OrthominState, OrthominStep, SweepResult
from liverank_gpu.pagerank.partial_sweeps import PartialSweeps
from liverank_gpu.sharded.columns import Columns
from liverank_gpu.sharded.communicator import Communicator
from liverank_gpu.sharded.divided_rows import DividedRows, Sending

_EXCHANGES = 2
"""Collective operations of a sweep: its contributions, and its sums."""

_ROUND_EXCHANGES = 3
"""Those of a round of a push: lengths, pairs, and what it did with what is above θ now."""

_ROUND_SWEEPS = 16
"""The sweeps of one device whose launches take as long as those of a round: on two H200."""


def shard_costs(local: Costs, shards: int) -> Costs:
    """The costs of a backend, with the exchanges of sweeps and of rounds."""
    exchange, queries = local.exchange * shards, local.queries
    return replace(
        local,
        sweep_overhead=local.sweep_overhead + _EXCHANGES * exchange,
        queries=replace(
            queries,
            sweep=queries.sweep + _EXCHANGES * exchange,
            block_sweep=queries.block_sweep + _EXCHANGES * exchange,
        ),
        round_overhead=_ROUND_EXCHANGES * exchange + _ROUND_SWEEPS * local.sweep_overhead * shards,
        sparse_part=0,  # affected sets are kept as flags (liverank_gpu.sharded.published)
    )


class ShardedSweeps(PartialSweeps):
    """See SweepOperations. Vectors are over own vertices; sums are over all. Contributions have the
    length Numbering.columns.
    """

    def __init__(self, local: Backend, communicator: Communicator, columns: Columns) -> None:
        super().__init__(local.sweeps)
        self._device, self._communicator, self._columns = local.device, communicator, columns
        self._divided = DividedRows(local, columns)

    def compute_contributions(self, graph: GraphView, values: Array, contributions: Array) -> None:
        self._local.compute_contributions(graph, values, contributions[: graph.vertices])
        self._columns.gather(contributions)

    def compute_residual(
        self,
        graph: GraphView,
        rows: Rows,
        values: Array,
        contributions: Array,
        rhs_scale: float,
        damping: float,
        residual: Array,
    ) -> tuple[float, float]:
        sums = self.compute_own_residual(
            graph, rows, values, contributions, rhs_scale, damping, residual
        )
        residual_l1, residual_sum = self._communicator.sums(sums)
        return residual_l1, residual_sum

    def compute_own_residual(
        self,
        graph: GraphView,
        rows: Rows,
        values: Array,
        contributions: Array,
        rhs_scale: float,
        damping: float,
        residual: Array,
    ) -> tuple[float, float]:
        """The residual of some own rows, and the sums over these."""
        return self._local.compute_residual(
            graph, rows, values, contributions, rhs_scale, damping, residual
        )

    def quantize_contributions(
        self,
        graph: GraphView,
        values: Array,
        residual: Array,
        contributions: Array,
        damping: float,
        shift: float,
    ) -> SweepResult:
        result = self._local.quantize_contributions(
            graph, values, residual, contributions, damping, shift
        )
        return self._completed(result, contributions)

    def sum_in_degrees(self, graph: GraphView, damping: float) -> Array:
        return self._sums(self._local.sum_in_degrees(graph, damping))

    def start_from_in_degrees(
        self,
        graph: GraphView,
        in_degrees: Array,
        values: Array,
        residual: Array,
        contributions: Array,
        damping: float,
        rhs_scale: float,
    ) -> SweepResult:
        result = super().start_from_in_degrees(
            graph, in_degrees, values, residual, contributions, damping, rhs_scale
        )
        return self._completed(result, contributions)

    def sweep(
        self,
        graph: GraphView,
        rows: Rows,
        values: Array,
        residual: Array,
        contributions: Array,
        new_contributions: Array,
        damping: float,
        shift: float,
        deflation: DeflationVector | None = None,
        coefficient: float = 0.0,
    ) -> SweepResult:
        parts = self._divided.parts(rows, self._divided.spans(new_contributions))
        sending = Sending(self._columns, new_contributions, rows, parts)
        result = self._local.sweep(
            graph,
            sending.rows,
            values,
            residual,
            contributions,
            new_contributions,
            damping,
            shift,
            deflation,
            coefficient,
        )
        sending.complete()
        return self._summed(result)

    def orthomin_products(
        self,
        graph: GraphView,
        rows: Rows,
        values: Array,
        residual: Array,
        contributions: Array,
        state: OrthominState,
        damping: float,
        mean: float,
        floor: float,
        has_previous: bool,
    ) -> Array:
        vectors = (values, residual, contributions, state, damping, mean)
        own = self._local.orthomin_products(graph, rows, *vectors, floor, has_previous)
        return self._sums(own)

    def orthomin_update(
        self,
        graph: GraphView,
        values: Array,
        residual: Array,
        contributions: Array,
        state: OrthominState,
        damping: float,
        mean: float,
        products: Array,
        has_previous: bool,
    ) -> tuple[OrthominStep, SweepResult]:
        vectors = (values, residual, contributions, state, damping, mean)
        step, result = self._local.orthomin_update(graph, *vectors, products, has_previous)
        return step, self._completed(result, contributions)

    def _sums(self, own: Array) -> Array:
        """The sums of numbers on the device over all shards, on the device."""
        sums = self._communicator.sums(self._device.to_host(own).tolist())
        return self._device.to_device(np.array(sums))

    def _completed(self, result: SweepResult, contributions: Array) -> SweepResult:
        """The result over all shards, whose contributions are here then."""
        self._columns.gather(contributions)
        return self._summed(result)

    def _summed(self, result: SweepResult) -> SweepResult:
        """The result over all shards."""
        table = self._communicator.gather(result)
        *sums, largest_steps = table.T
        residual_l1, residual_sum, mass, next_residual_sum = map(fsum, sums)
        largest_step = float(largest_steps.max())
        return SweepResult(residual_l1, residual_sum, mass, next_residual_sum, largest_step)
