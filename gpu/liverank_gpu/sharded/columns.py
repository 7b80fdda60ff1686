"""Who owns a vertex, where its entries are, and what shards send each other by column."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import InvalidValue
from liverank_gpu.graph.batch import Arcs
from liverank_gpu.graph.vertices import NO_IDS, VertexPermutation
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import ALIGNMENT
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import INSERT, NEIGHBOUR, SortedKeys
from liverank_gpu.sharded.communicator import Communicator
from liverank_gpu.types import EdgeBatch

# Which shard owns a vertex, and how the vertices of all shards are numbered on one of them.
#
# Positions (liverank_gpu.graph.vertices) are dealt out: the owner of position p is shard p mod P,
# where it is row p div P. Where positions are in the order of degrees, shards have nearly equal
# numbers of in-edges, and always of vertices, without a table, and a new vertex has its owner at
# once.
#
# A *column* is the place of a vertex in the vector of contributions of one shard:
#
#     0 … room-1                 its own rows
#     room … room·(P+1) - 1      the rows of all shards, one after the other, room for each
#
# The sweep of a shard writes the first part; an all-gather copies that of every shard behind it.
# In-lists refer to own vertices by their row, so that a loop has equal row and column.

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


# ---- what shards send each other by column ----


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

    def gathered(self, own: Array, columns: int | None = None) -> Array:
        """An array over own vertices, of numbers or rows of them, as one over columns, with those
        of all shards.

        columns  of an earlier numbering; None: of this one
        """
        length = self.numbering.columns if columns is None else columns
        shape = (length, *own.shape[1:])
        size, dtype = math.prod(shape), own.dtype.type
        found = self._device.allocate("vectors of all shards", size, dtype).reshape(shape)
        found[: len(own)] = own
        self.gather(found.reshape(-1))
        return found

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


def by_position(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """One array over positions from those over the rows of each shard, by rank."""
    whole = np.empty((sum(map(len, columns)), *columns[0].shape[1:]), columns[0].dtype)
    for rank, column in enumerate(columns):
        whole[rank :: len(columns)] = column
    return whole


class DealtOrder(VertexPermutation):
    """The order in which the rows of one shard follow those of another, with room for equally many
    each: the position p of a vertex is p div P rows behind the beginning of shard p mod P.

    order  of positions
    size   P
    room   at least as many rows as a shard has; the places that are left are of no vertex
    """

    def __init__(self, backend: Backend, order: VertexPermutation, size: int, room: int) -> None:
        self._backend, self.ids, self.positions = backend, order.ids, order.positions
        self._size, self.room = size, room

    @property
    def is_identity(self) -> bool:
        return False

    def positions_of(self, ids: Array) -> Array:
        positions = super().positions_of(ids)
        return positions % self._size * self.room + positions // self._size

    def to_ids(self, positions: Array) -> Array:
        room = max(1, self.room)
        return super().to_ids(positions % room * self._size + positions // room)

    def by_id(self, values: Array) -> Array:
        """As long as `values`: what is behind the ids is of no vertex."""
        return super().by_id(values.reshape(self._size, self.room).T.reshape(-1))

    def by_position(self, values: Array) -> Array:
        rows = np.zeros(self._size * self.room, values.dtype)
        rows[: len(values)] = super().by_position(values)
        return rows.reshape(self.room, self._size).T.reshape(-1)


# ---- where the entries of each shard are in the lists of a liverank_gpu.snapshot.Snapshot ----
#
# A snapshot has the out-lists one after the other by position, each padded to a multiple of
# ALIGNMENT slots. Shard k of P owns the positions k, k+P, …; its entries are those of its lists,
# one list after the other, without padding.


class Places(NamedTuple):
    """The entries of one shard in a range of slots.

    first, end  they are its entries from `first` to before `end`
    slots       int64[end - first], from the beginning of the range
    """

    first: int
    end: int
    slots: NDArray[np.int64]


class ListLayout:
    """The lists of a snapshot that is spread over shards: about 24 bytes a vertex.

    lengths  int32[n], of the lists by position
    slots    number of slots of all lists
    """

    def __init__(self, lengths: NDArray[np.int32], shards: int) -> None:
        padded = -(-lengths.astype(np.int64) // ALIGNMENT) * ALIGNMENT
        self.slots = int(padded.sum())
        starts = first_entries(padded)
        self._shards = [
            (starts[shard::shards], own := lengths[shard::shards], first_entries(own))
            for shard in range(shards)
        ]

    def places(self, shard: int, first: int, end: int) -> Places:
        """The entries of a shard in slots `first` to before `end`."""
        starts, lengths, entries = self._shards[shard]
        rows, begins, counts = overlap(starts, lengths, first, end)
        if len(counts) == 0:
            return Places(0, 0, counts)
        row = rows.start
        entry = int(entries[row]) + min(int(begins[0] - starts[row]), int(lengths[row]))
        return Places(entry, entry + int(counts.sum()), expanded(begins - first, counts))


def first_entries(lengths: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """int64[n]: the sum of the lengths before each."""
    sums: NDArray[np.int64] = np.cumsum(lengths, dtype=np.int64)
    sums -= lengths
    return sums


def overlap(
    starts: NDArray[np.int64], lengths: NDArray[np.integer[Any]], first: int, end: int
) -> tuple[slice, NDArray[np.int64], NDArray[np.int64]]:
    """What rows [start, start + length), which are ascending and disjoint, have in [first, end).

    Returns which rows these may be, and where each begins there, int64[k], and how much it has.
    """
    lowest = max(0, int(np.searchsorted(starts, first, "right")) - 1)
    rows = slice(lowest, max(lowest, int(np.searchsorted(starts, end, "left"))))
    begins = np.maximum(starts[rows], first)
    counts = np.maximum(0, np.minimum(starts[rows] + lengths[rows], end) - begins)
    return rows, begins, counts


def expanded(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64[Σ counts]: start, start + 1, … of each, `counts` of them."""
    slots: NDArray[np.int64] = np.arange(int(counts.sum()))
    return slots + np.repeat(starts - first_entries(counts), counts)


# ---- where the edges of a batch go: each operation on (u,v) to the owners of u and of v ----
#
# A key (liverank_gpu.operations.graph) has the row and the column of an operation. On its way it
# has their positions instead, which mean the same on all shards. A small batch is not sent from
# shard to shard: all have it whole, and each takes the operations on its own lists.


class ReplicatedBatch(EdgeBatch):
    """A batch that every shard has whole."""

    __slots__ = ()


MOST_REPLICATED = 1 << 13
"""Operations and vertices of a batch that goes whole to all shards: 128 KiB of ids at most."""


def dealt(batch: EdgeBatch, shards: int, most: int = MOST_REPLICATED) -> list[EdgeBatch]:
    """What each shard gets of a batch: a small one whole, or its slice."""
    if batch.operations + len(batch.remove) + len(batch.add) > most:
        return slices(batch, shards)
    columns = {each.name: getattr(batch, each.name) for each in fields(batch)}
    return [ReplicatedBatch(**columns)] * shards


def slices(batch: EdgeBatch, shards: int) -> list[EdgeBatch]:
    """The batch in as many parts of consecutive operations, for the shards to route."""
    inserted, deleted = (
        np.linspace(0, len(column), shards + 1).astype(np.int64)
        for column in (batch.insert_sources, batch.delete_sources)
    )
    parts = []
    for at in range(shards):
        insert = slice(*inserted[at : at + 2].tolist())
        delete = slice(*deleted[at : at + 2].tolist())
        parts.append(
            EdgeBatch(
                batch.insert_sources[insert],
                batch.insert_targets[insert],
                batch.delete_sources[delete],
                batch.delete_targets[delete],
                batch.vertices,
                None if batch.weights is None else batch.weights[insert],
                batch.on_conflict,
                times=None if batch.times is None else batch.times[insert],
                remove=batch.remove if at == 0 else NO_IDS,
                add=batch.add if at == 0 else NO_IDS,
            )
        )
    return parts


def chunks(operations: int, step: int) -> Iterator[slice]:
    """So many operations, so many at a time."""
    for begin in range(0, operations, step):
        yield slice(begin, begin + step)


@dataclass(frozen=True, slots=True)
class Router:
    """Sends the operations of this shard's slice, and receives those on own lists."""

    backend: Backend
    communicator: Communicator
    numbering: Numbering
    permutation: VertexPermutation

    def route(
        self, arcs: Arcs, id_limit: int, replicated: bool = False
    ) -> tuple[SortedKeys, SortedKeys]:
        """The operations on own out-lists and on own in-lists, from all slices.

        id_limit    of the graph before the batch
        replicated  whether these are the arcs of the whole batch, on every shard
        """
        xp, operations = self.backend.xp, self.backend.xp.zeros(len(arcs), np.int64)
        operations[arcs.deletions :] = INSERT
        sources, targets = (
            xp.concatenate([xp.asarray(columns[end], np.int64) for _, *columns in arcs.columns])
            for end in range(2)
        )
        # a deletion that names an id which the graph does not have finds nothing
        lowest, highest = xp.minimum(sources, targets), xp.maximum(sources, targets)
        known = (lowest >= 0) & (highest < id_limit) | (operations == INSERT)
        sources, targets = (
            self.permutation.positions_of(xp.where(known, ids, 0)) for ids in (sources, targets)
        )
        weights = arcs.operation_weights(self.backend)
        deliver = self._own if replicated else self.sent
        sort = self.backend.graph.sort
        outgoing = sort(*deliver(sources << 32 | targets << 1 | operations, weights, known))
        # of a loop, the flag is with the out-list
        known &= sources != targets
        return outgoing, sort(*deliver(targets << 32 | sources << 1 | operations, weights, known))

    def _own(self, keys: Array, weights: Array | None, kept: Array) -> tuple[Array, Array | None]:
        """Those on own rows, as `exchanged` returns them, of keys that every shard has."""
        own = kept & (self.numbering.owners(keys >> 32) == self.numbering.rank)
        return self._numbered(keys[own]), None if weights is None else weights[own]

    def sent(
        self, keys: Array, weights: Array | None, kept: Array | bool = True
    ) -> tuple[Array, Array | None]:
        """Sends each key to the owner of its row: see `exchanged`. kept: bool[k], which ones"""
        xp, numbering = self.backend.xp, self.numbering
        owners = numbering.owners(keys >> 32)
        places = [xp.flatnonzero(kept & (owners == rank)) for rank in range(numbering.size)]
        of_keys = None if weights is None else [weights[chosen] for chosen in places]
        return self.exchanged([keys[chosen] for chosen in places], of_keys)

    def exchanged(
        self, keys: list[Array], weights: list[Array] | None = None
    ) -> tuple[Array, Array | None]:
        """Sends keys[k] to shard k, which owns their rows. Returns those on own rows, with rows and
        columns in place of positions, and their weights: by rank, and as they were sent.

        keys     int64[…] of each shard; spent
        weights  float32[…], of the keys
        """
        xp, all_to_all = self.backend.xp, self.communicator.all_to_all
        received = xp.concatenate(all_to_all(keys))
        keys.clear()
        self._numbered(received)
        return received, None if weights is None else xp.concatenate(all_to_all(weights))

    def _numbered(self, keys: Array) -> Array:
        """Writes rows and columns in place of positions."""
        numbering = self.numbering
        for chunk in chunks(len(keys), self.backend.sizes.chunk):
            some = keys[chunk]
            columns = numbering.columns_of(some >> 1 & NEIGHBOUR, self.backend.xp)
            keys[chunk] = numbering.rows_of(some >> 32) << 32 | columns << 1 | some & INSERT
        return keys
