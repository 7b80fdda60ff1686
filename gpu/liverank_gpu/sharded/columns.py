"""What shards send each other by column (liverank_gpu.sharded.numbering)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.sharded.communicator import Communicator
from liverank_gpu.sharded.numbering import Numbering


class Columns:
    """The columns of one shard. All shards call its methods together.

    numbering  replaced where the columns of the lists are renumbered
    """

    def __init__(self, local: Backend, communicator: Communicator) -> None:
        self.numbering = Numbering(communicator.rank, communicator.size)
        self._device, self._xp = local.device, local.xp
        self._communicator = communicator

    def gather(self, columns: Array) -> None:
        """Copies the rows of every shard behind those of this one.

        columns  of the length Numbering.columns; own rows first
        """
        self._communicator.all_gather(*self._own_and_all(columns))

    def start_gather(self, columns: Array, rows: slice) -> None:
        """Starts to copy some rows of every shard: see Communicator.start_gather."""
        self._communicator.start_gather(*self._own_and_all(columns), rows)

    def wait_for_gathers(self) -> None:
        """See Communicator.wait_for_gathers."""
        self._communicator.wait_for_gathers()

    @property
    def sends_beside(self) -> bool:
        """See Communicator."""
        return self._communicator.sends_beside

    def own(self, columns: Array) -> Array:
        """The own rows that there is room for."""
        return self._own_and_all(columns)[0]

    def _own_and_all(self, columns: Array) -> tuple[Array, Array]:
        room = len(columns) // (self._communicator.size + 1)
        return columns[:room], columns[room:]

    def gathered(self, own: Array) -> Array:
        """An array over own vertices as one over columns, with those of all shards."""
        columns = self._device.allocate(
            "vectors of all shards", self.numbering.columns, own.dtype.type
        )
        columns[: len(own)] = own
        self.gather(columns)
        return columns

    def ends(self, columns: Array) -> Array:
        """int64[size + 1] on the device: where, in ascending columns, own rows end, and then the
        rows of each shard.
        """
        numbering, xp = self.numbering, self._xp
        firsts = xp.arange(1, numbering.size + 2, dtype=np.int32) * numbering.room
        return xp.searchsorted(columns, firsts)

    def by_owner(self, ends: Sequence[int]) -> list[slice]:
        """Where those of each shard are, by rank. ends: see `ends`."""
        numbering = self.numbering
        parts = [slice(*ends[rank : rank + 2]) for rank in range(numbering.size)]
        parts[numbering.rank] = slice(ends[0])
        return parts

    def rows_of(self, columns: Array) -> Array:
        """int64[k]: the row of each on the shard that owns it."""
        return (columns % max(1, self.numbering.room)).astype(np.int64)

    def sent(self, columns: Array) -> Array:
        """int32[…]: the own rows, distinct and ascending, that any shard names by its columns."""
        columns = self._xp.sort(columns)
        rows = self.rows_of(columns).astype(np.int32)
        ends = self._device.to_host(self.ends(columns)).tolist()
        parts = [rows[part] for part in self.by_owner(ends)]
        return self._xp.unique(self._xp.concatenate(self._communicator.all_to_all(parts)))
