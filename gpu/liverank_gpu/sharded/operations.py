"""Operations over the rows of one shard, whose contributions are sent while it computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import fsum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.backend import Backend, Costs, Sizes
from liverank_gpu.operations.csr import (
    GraphView,
    Kernels,
    Operation,
    Result,
    RowPart,
    Rows,
    combined,
)
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.residual import AddReceived, PushRound, SendSums
from liverank_gpu.operations.sweeps import MultivectorOperations, OrthominUpdate, Sweep
from liverank_gpu.sharded.columns import Columns
from liverank_gpu.sharded.communicator import Communicator

# ---- A sweep in parts, so that contributions of one are sent while the next is computed ----
#
# Positions are in the order of degrees, so the first rows have most of the edges, and the others
# most of the contributions. The first eighth is swept last: all contributions but its own are sent
# by then, or while it is swept. The others are two parts, for sweeps by pages, which take the edges
# first and then all rows alike: what is sent of one is sent while the next is finished.

_BOUNDS = (2, 8)
"""Parts end at one in so many of the rows: they are a half, three eighths and an eighth."""

_ALIGNMENT = 64
"""Parts are multiples of it, as rooms are."""

Spans = tuple[tuple[int, int], ...]
"""(first, end) of the rows of each part: those with the most edges last."""


def spans_of(room: int, itemsize: int, sizes: Sizes) -> Spans:
    """The parts of so many rows, or one where more are not worth it.

    itemsize  bytes of a contribution
    """
    firsts = [room // part // _ALIGNMENT * _ALIGNMENT for part in _BOUNDS]
    if room * itemsize < sizes.least_part or 0 in firsts:
        return ((0, room),)
    return tuple((first, end) for end, first in pairwise([room, *firsts, 0]))


class DividedRows:
    """The in-lists of one shard in the parts in which they are swept."""

    def __init__(self, local: Backend, columns: Columns) -> None:
        self._local, self._columns = local, columns
        self._groups: NDArray[np.int64] | None = None
        self._divided: tuple[int, Spans] = (0, ())
        self._parts: tuple[RowPart, ...] = ()

    def spans(self, contributions: Array) -> Spans:
        """The parts of own rows, the same on all shards: `spans_of`, or one.

        contributions  of the length Numbering.columns
        """
        own = self._columns.own(contributions)
        if not self._columns.sends_beside:
            return ((0, len(own)),)
        return spans_of(len(own), own.itemsize, self._local.sizes)

    def parts(self, rows: Rows, spans: Spans) -> tuple[RowPart, ...]:
        """All rows in these parts, which are kept until groups or rows change."""
        if len(spans) == 1:
            return (RowPart(rows, spans[0]),)
        divided = rows.count, spans
        if rows.groups is not self._groups or divided != self._divided:
            self._parts = self._divide(rows, spans)
            self._groups, self._divided = rows.groups, divided
        return self._parts

    def _divide(self, rows: Rows, spans: Spans) -> tuple[RowPart, ...]:
        xp, ascending = self._local.xp, spans[::-1]
        firsts = xp.array([first for first, _ in ascending], np.int32)
        groups = [rows.order[begin:end] for begin, end in pairwise(rows.groups.tolist())]
        places = xp.concatenate([xp.searchsorted(group, firsts) for group in groups])
        begins = self._local.device.to_host(places).reshape(len(groups), -1).tolist()
        bounds = [[*row, len(group)] for row, group in zip(begins, groups, strict=True)]
        parts = []
        for part, span in enumerate(ascending):
            within = [
                group[bound[part] : bound[part + 1]]
                for group, bound in zip(groups, bounds, strict=True)
            ]
            ends = np.cumsum([0, *map(len, within)], dtype=np.int64)
            parts.append(RowPart(Rows(xp.concatenate(within), ends), span))
        return tuple(reversed(parts))


class Sending:
    """The contributions of one sweep, which are sent part by part.

    rows  to be swept: see Rows.issued
    """

    def __init__(
        self, columns: Columns, contributions: Array, rows: Rows, parts: Sequence[RowPart]
    ) -> None:
        """contributions  of the length Numbering.columns; parts  see DividedRows.parts"""
        self._columns, self._contributions = columns, contributions
        self._spans = [part.span for part in parts]
        self._sent = 0
        self.rows = replace(rows, parts=tuple(parts), issued=self._send)

    def _send(self, part: int) -> None:
        assert part == self._sent
        self._sent += 1
        if len(self._spans) == 1:
            self._columns.gather(self._contributions)
        else:
            self._columns.start_gather(self._contributions, slice(*self._spans[part]))

    def complete(self) -> None:
        """Sends what has not been sent. What is issued next finds all contributions."""
        for part in range(self._sent, len(self._spans)):
            self._send(part)
        if len(self._spans) > 1:
            self._columns.wait_for_gathers()


# ---- operations over the rows of one shard, with the contributions of all of them ----
#
# The kernels are those of an undivided graph: a shard runs what it is given on its own rows. They
# read contributions by column (liverank_gpu.sharded.columns) and write those of own rows, which
# are then gathered from all shards. Sums are added over the shards, rounded once: one more
# addition for every term.

_EXCHANGES = 2
"""Collective operations of a sweep: its contributions, and its sums."""

_ROUND_EXCHANGES = 2
"""Those of a round of a push: pairs, and numbers."""


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
        round_overhead=_ROUND_EXCHANGES * exchange,
        sparse_part=0,  # affected sets are kept as flags (liverank_gpu.sharded.residual)
    )


_OF_ONE_SHARD = (PushRound, SendSums, AddReceived)
"""Steps of a push. What they find on different shards cannot be added up."""


class ShardRun(Kernels):
    """Runs operations on the own rows of a shard (liverank_gpu.operations.csr.Run). All
    shards run the same ones together. Vectors are over own vertices, contributions have the length
    Numbering.columns, and results are over all shards, the same on each. What is added to it runs
    operations that shards run in another way.
    """

    def __init__(self, local: Backend, communicator: Communicator, columns: Columns) -> None:
        super().__init__()
        self._local, self._communicator, self._columns = local, communicator, columns
        self._divided = DividedRows(local, columns)

    def __call__(self, operation: Operation[Result], /) -> Result:
        if type(operation) in self.operations:
            return super().__call__(operation)
        if operation.local:
            return self._local.run(operation)
        if isinstance(operation, _OF_ONE_SHARD):
            raise NotImplementedError(
                f"{type(operation).__name__} is run by each shard for itself: all push by Push"
            )
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
        result = self._local.run(sweep.over(sweep.graph, sending.rows))
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
