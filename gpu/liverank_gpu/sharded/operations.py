"""Operations over the rows of one shard, with the contributions of all of them.

The kernels are those of an undivided graph: a shard runs what it is given on its own rows. They
read contributions by column (liverank_gpu.sharded.numbering) and write those of own rows, which are
then gathered from all shards. Sums are added over the shards, rounded once: one more addition for
every term.
"""

from __future__ import annotations

from dataclasses import replace
from math import fsum
from typing import Any

import numpy as np

from liverank_gpu.operations.backend import Backend, Costs
from liverank_gpu.operations.csr import GraphView
from liverank_gpu.operations.multivector import MultivectorOperations
from liverank_gpu.operations.operation import Operation, Result, combined
from liverank_gpu.operations.sweeps import OrthominUpdate, Sweep
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


class ShardRun:
    """Runs operations on the own rows of a shard (liverank_gpu.operations.operation.Run). All
    shards run the same ones together. Vectors are over own vertices, contributions have the length
    Numbering.columns, and results are over all shards, the same on each.
    """

    def __init__(self, local: Backend, communicator: Communicator, columns: Columns) -> None:
        self._local, self._communicator, self._columns = local, communicator, columns
        self._divided = DividedRows(local, columns)

    def __call__(self, operation: Operation[Result], /) -> Result:
        if isinstance(operation, Sweep):
            own = self._swept(operation)
        else:
            own = self._local.run(operation)
            if operation.writes is not None:
                self._columns.gather(getattr(operation, operation.writes).reshape(-1))
        result: Result = self._combined(operation, own)
        return result

    def _swept(self, sweep: Sweep) -> Any:
        """A sweep whose contributions are sent part by part."""
        rows, written = sweep.rows, sweep.new_contributions
        parts = self._divided.parts(rows, self._divided.spans(written))
        sending = Sending(self._columns, written, rows, parts)
        result = self._local.run(replace(sweep, rows=sending.rows))
        sending.complete()
        return result

    def _combined(self, operation: Operation[Any], own: Any) -> Any:
        """The result over all shards."""
        if own is None:
            return None
        if isinstance(operation, OrthominUpdate):
            # the step follows from products over all shards
            step, sums = own
            return step, self._combined_sums(operation, sums)
        if isinstance(own, tuple):
            return self._combined_sums(operation, own)
        # an array of sums, on the host or on the device
        device = self._local.device
        sums = self._communicator.sums(device.to_host(own).reshape(-1).tolist())
        total = np.array(sums).reshape(own.shape)
        return total if isinstance(own, np.ndarray) else device.to_device(total)

    def _combined_sums(self, operation: Operation[Any], own: tuple[float, ...]) -> Any:
        table = self._communicator.gather(own)
        return combined(operation, [type(own)(*row) for row in table.tolist()], fsum)


class ShardedMultivector(MultivectorOperations):
    """See MultivectorOperations."""

    def __init__(self, local: Backend, communicator: Communicator) -> None:
        self._local, self._communicator = local.multivector, communicator
        self.contribution_dtype = self._local.contribution_dtype
        self.min_columns = self._local.min_columns

    def column_count(self, wanted: int) -> int:
        return self._local.column_count(wanted)

    def column_depth(self, graph: GraphView) -> int:
        """The sum over the shards is one more addition."""
        return int(self._communicator.gather([self._local.column_depth(graph)]).max()) + 1
