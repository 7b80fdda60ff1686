"""Which shard owns a vertex, and how the vertices of all shards are numbered on one of them.

Positions (liverank_gpu.graph.permutation) are dealt out: the owner of position p is shard p mod P,
where it is row p div P. Where positions are in the order of degrees, shards have nearly equal
numbers of in-edges, and always of vertices, without a table, and a new vertex has its owner at
once.

A *column* is the place of a vertex in the vector of contributions of one shard:

    0 … room-1                 its own rows
    room … room·(P+1) - 1      the rows of all shards, one after the other, room for each

The sweep of a shard writes the first part; an all-gather copies that of every shard behind it.
In-lists refer to own vertices by their row, so that a loop has equal row and column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from liverank_gpu.errors import InvalidValue
from liverank_gpu.operations.device import Array

_LEAST_ROOM = 64
"""Room is a multiple of it, so that parts are aligned."""

_MOST_COLUMNS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Numbering:
    """The columns of one shard.

    rank, size  P = size
    room        rows of each shard that fit
    """

    rank: int
    size: int
    room: int = 0

    @property
    def columns(self) -> int:
        """Length of the vector of contributions."""
        return self.room * (self.size + 1)

    def rows(self, positions: int) -> int:
        """How many of the positions below this one the shard owns."""
        return (positions - self.rank + self.size - 1) // self.size

    def for_positions(self, positions: int) -> Numbering:
        """The numbering of as many positions: the same on all shards, and for most numbers that are
        a little higher. Raises InvalidValue if there are too many.
        """
        needed = -(-positions // self.size)
        step = max(_LEAST_ROOM, (1 << max(0, needed - 1).bit_length()) // 16)
        most = _MOST_COLUMNS // (self.size + 1) // _LEAST_ROOM * _LEAST_ROOM
        if needed > most:
            expected = f"at most {most * self.size} with {self.size} shards"
            raise InvalidValue("vertices", positions, expected)
        return Numbering(self.rank, self.size, min(most, -(-needed // step) * step))

    def owners(self, positions: Array) -> Array:
        """The rank of the shard that owns each."""
        return positions % self.size

    def rows_of(self, positions: Array) -> Array:
        """The row that each is on the shard that owns it."""
        return positions // self.size

    def positions_of(self, rows: Array) -> Array:
        """int64[k]: the positions of own rows."""
        return rows.astype(np.int64) * self.size + self.rank

    def positions_at(self, columns: Array, xp: Any) -> Array:
        """int64[k]: the positions of columns that are of a vertex."""
        parts, rows = columns // max(1, self.room), columns % max(1, self.room)
        owners = xp.where(parts == 0, self.rank, parts - 1)
        return rows.astype(np.int64) * self.size + owners

    def columns_of(self, positions: Array, xp: Any) -> Array:
        """The column of each position."""
        owners, rows = self.owners(positions), self.rows_of(positions)
        return xp.where(owners == self.rank, rows, (owners + 1) * self.room + rows)

    def renumber(self, columns: Array, new: Numbering, scratch: Array, xp: Any) -> None:
        """Writes the columns of a new numbering, which has room for them, in place of those of
        this one.

        columns, scratch  int32[k]
        """
        xp.floor_divide(columns, max(1, self.room), out=scratch)
        xp.multiply(scratch, new.room - self.room, out=scratch)
        xp.add(columns, scratch, out=columns)
