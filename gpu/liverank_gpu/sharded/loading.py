"""Batches that are a large part of a graph in shards, and its first edges: from the slices of a
batch, and own lists, into new lists of own rows.

As on one device (PackedCsr.load), one range of rows is sorted at a time. Of each range, a shard
sends what its slice has and receives what is on own rows, which joins what own lists have of it. So
what is on its way is a part of the graph: as much as memory allows. The lists before the batch are
not written: until all shards take the new ones, nothing has changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.graph.arcs import Arcs
from liverank_gpu.graph.packed_csr import VERTEX_BYTES, PackedCsr, slot_bytes, slots_with_spare
from liverank_gpu.graph.rebuild import degrees_of, insertion_keys
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import loop_dtype
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import SortedKeys
from liverank_gpu.sharded.merging import Merge, is_loop
from liverank_gpu.sharded.planned import Load
from liverank_gpu.sharded.routing import CHUNK, Router, chunks

LEAST_AT_ONCE = 1 << 21
"""Arcs of a range that a shard sends, or receives and holds, at most, however little memory there
is. (All arcs of a row and of its near neighbours are in one range.)
"""

_FINE_BITS = 8
"""The first 2^(_FINE_BITS + 1) positions have a bucket each, the next 2^_FINE_BITS buckets have two
each, then four, and so on: in an order by degree the first rows are the longest.
"""


class LargeBatch:
    """A batch that gives every shard new lists. All shards call it together.

    operations  on own out-lists, or on own in-lists if these are more
    """

    def __init__(
        self,
        router: Router,
        arcs: Arcs,
        insertions: list[tuple[Array, Array]],
        lists: tuple[PackedCsr, PackedCsr],
        loop: Array,
        fixed_loops: bool,
        limits: tuple[int, int],
    ) -> None:
        """insertions   the columns of `arcs`, on the device
        lists, loop  of own rows before the batch, which stay as they are
        limits       of the ids before the batch and after it
        """
        backend = self._backend = router.backend
        self._router, self._loop, self._adds = router, loop, arcs.adds
        self._fixed_loops, (known, self._limit) = fixed_loops, limits
        self._merges = [Merge(backend, each, fixed_loops) for each in lists]
        self._insertions = insertions
        self._deletions = [_known(backend, pair, known) for pair in arcs.delete]
        self._weights = None if arcs.weights is None else backend.xp.asarray(arcs.weights)
        columns = [*self._insertions, *self._deletions]
        self._copied_bytes = sum(
            int(own.nbytes)
            for pair, of_batch in zip(columns, [arcs.insert, *arcs.delete], strict=True)
            for own, given in zip(pair, of_batch, strict=True)
            if own is not given
        )
        self._moved = [self._counted(end, each) for end, each in enumerate(lists)]
        self._entries = [
            merge.entries + moved.inserted
            for merge, moved in zip(self._merges, self._moved, strict=True)
        ]
        self.operations = max(moved.inserted + moved.deleted for moved in self._moved)

    def bytes_needed(self, vertex_bytes: int) -> int:
        """See load_bytes."""
        rows, weighted = self._router.numbering.rows(self._limit), self._weights is not None
        return load_bytes(max(self._entries), rows, vertex_bytes, weighted, self._copied_bytes)

    def load(self, needed: int) -> Load:
        """New lists of own rows. Spends the columns.

        needed  `bytes_needed`
        """
        router, weighted = self._router, self._weights is not None
        backend, rows = router.backend, router.numbering.rows(self._limit)
        spare = backend.device.memory_available() - needed
        least = int(router.communicator.gather([spare])[:, 0].min())
        at_once = max(LEAST_AT_ONCE, least // (2 * routed_bytes(weighted)))
        loop = backend.device.allocate("vertices", rows, loop_dtype(weighted))
        loop.fill(0)
        if not self._fixed_loops:
            loop[: len(self._loop)] = self._loop
        named = _Named(backend, rows)
        lists, directions, exceeded = [], [], []
        for end, (merge, entries) in enumerate(zip(self._merges, self._entries, strict=True)):
            lists.append(PackedCsr(backend, rows, weighted))
            keys = self._keys(end, at_once, loop, named)
            found = lists[end].load_keys(keys, entries, loop, self._adds)
            directions.append(merge.direction(found, lists[end].longest))
            exceeded.append(backend.xp.full(directions[end].exceeded, found.exceeded, np.int64))
        if self._fixed_loops:
            loop.fill(1)
        outgoing, incoming = lists
        degree = degrees_of(backend, outgoing, loop, weighted)
        both = (directions[0], directions[1])
        return Load(outgoing, incoming, loop, degree, both, exceeded[0], named.rows())

    def _keys(
        self, end: int, at_once: int, loop: Array, named: _Named
    ) -> Iterator[tuple[int, int, SortedKeys]]:
        """See PackedCsr.load_keys: the keys of out-lists (end 0) or in-lists (1)."""
        numbering, merge = self._router.numbering, self._merges[end]
        for low, high in self._ranges(end, at_once):
            rows = (numbering.rows(low), numbering.rows(high))
            # what makes them takes a quarter of what they take on their way, so
            chosen = (end, low, high, at_once // 8)
            yield from merge.keys(rows, loop, *self._received(named, *chosen))
        if end == 1:
            # the lists may be copied next, to arrays of their size
            self._insertions.clear()
            self._deletions.clear()

    def _received(
        self, named: _Named, end: int, low: int, high: int, chunk_size: int
    ) -> tuple[Array, Array, Array | None]:
        """What all slices have of own rows at positions `low` to before `high`: deletions,
        ascending, insertions and the weights of these.
        """
        deleted, chosen = self._backend.xp.empty(0, np.int64), (end, low, high, chunk_size)
        if self._moved[end].deletes:
            keys, _ = self._exchanged(self._deletions, None, *chosen)
            deleted = self._backend.graph.sort(keys).keys
        inserted, weights = self._exchanged(self._insertions, self._weights, *chosen)
        named.add(end, deleted, inserted)
        return deleted, inserted, weights

    def _exchanged(
        self,
        pairs: list[tuple[Array, Array]],
        weights: Array | None,
        end: int,
        low: int,
        high: int,
        chunk_size: int,
    ) -> tuple[Array, Array | None]:
        """Keys as if of insertions, in the order of the batch, and their weights."""
        router = self._router
        xp, numbering = self._backend.xp, router.numbering
        sent = [[xp.empty(0, np.int64)] for _ in range(numbering.size)]
        sent_weights = [[xp.empty(0, np.float32)] for _ in range(numbering.size)]
        for columns in pairs:
            rows, neighbours = columns[end], columns[1 - end]
            for chunk in chunks(len(rows), chunk_size):
                positions = router.permutation.positions_of(rows[chunk])
                chosen = (positions >= low) & (positions < high)
                if end == 1:
                    # of a loop, the flag is with the out-list
                    chosen &= rows[chunk] != neighbours[chunk]
                owners = numbering.owners(positions)
                for rank in range(numbering.size):
                    places = xp.flatnonzero(chosen & (owners == rank))
                    others = router.permutation.positions_of(neighbours[chunk][places])
                    sent[rank].append(insertion_keys(positions[places], others))
                    if weights is not None:
                        sent_weights[rank].append(weights[chunk][places])
        parts = [xp.concatenate(sent.pop(0)) for _ in range(numbering.size)]
        if weights is None:
            return router.exchanged(parts)
        return router.exchanged(parts, [xp.concatenate(each) for each in sent_weights])

    def _ranges(self, end: int, at_once: int) -> Iterator[tuple[int, int]]:
        """(first position, end of positions) of each range: all positions, ascending."""
        moved = self._moved[end].by_bucket
        first, held = 0, np.zeros(len(moved), np.int64)
        for bucket in np.flatnonzero(moved.any(axis=0)).tolist():
            more = moved[:, bucket]
            if held.any() and int((held + more).max()) > at_once:
                begin = _first_position(bucket)
                yield first, begin
                first, held = begin, np.zeros_like(held)
            held = held + more
        yield first, self._limit

    def _counted(self, end: int, lists: PackedCsr) -> _Moved:
        """What the slices and the lists of all shards have of each bucket."""
        router, backend, xp = self._router, self._backend, self._backend.xp
        numbering, lengths = router.numbering, lists.csr.row_lengths
        last = np.array([max(0, self._limit - 1)])
        size, buckets = numbering.size, int(_buckets(last, np)[0]) + 1
        width = buckets * size
        sent = xp.zeros((2, width), np.int64)
        for counts, pairs in zip(sent, (self._insertions, self._deletions), strict=True):
            for column in (columns[end] for columns in pairs):
                for chunk in chunks(len(column)):
                    positions = router.permutation.positions_of(column[chunk])
                    places = _buckets(positions, xp) * size + numbering.owners(positions)
                    counts += xp.bincount(places, minlength=width)
        held = xp.zeros(buckets, np.int64)
        for chunk in chunks(len(lengths) if self._merges[end].entries else 0):
            entries = lengths[chunk].astype(np.float64)
            positions = numbering.positions_of(xp.arange(len(entries)) + chunk.start)
            sums = xp.bincount(_buckets(positions, xp), entries, minlength=buckets)
            held += sums.astype(np.int64)
        own = backend.device.to_host(xp.concatenate([sent.ravel(), held])).tolist()
        table = router.communicator.gather(own).astype(np.int64)
        inserted, deleted = table[:, : 2 * width].reshape(size, 2, buckets, size).swapaxes(0, 1)
        moved, of_lists = inserted + deleted, table[:, 2 * width :]
        by_bucket = np.concatenate([moved.sum(axis=2), moved.sum(axis=0).T + of_lists])
        rank = numbering.rank
        own_inserted, own_deleted = (int(each[:, :, rank].sum()) for each in (inserted, deleted))
        return _Moved(own_inserted, own_deleted, bool(deleted.any()), by_bucket)


class _Moved(NamedTuple):
    """Arcs of one direction.

    inserted, deleted  into and from own lists, at most
    deletes            whether any are deleted from lists of any shard
    by_bucket          int64[2·shards, buckets]: what each shard sends, and what each receives and
                       holds, by the bucket of the position of the row
    """

    inserted: int
    deleted: int
    deletes: bool
    by_bucket: NDArray[np.int64]


class _Named:
    """Own rows that the batch names."""

    def __init__(self, backend: Backend, rows: int) -> None:
        self._xp = backend.xp
        self._sources, self._targets = (
            backend.device.allocate("scratch for a load", rows, np.uint8) for _ in range(2)
        )
        self._sources.fill(0)
        self._targets.fill(0)

    def add(self, end: int, deleted: Array, inserted: Array) -> None:
        """Keys of own out-lists (end 0) or in-lists (1)."""
        if end == 0:
            self._sources[deleted >> 32] = 1
            self._sources[inserted >> 32] = 1
            deleted = deleted[is_loop(deleted)]
        self._targets[deleted >> 32] = 1

    def rows(self) -> tuple[Array, Array]:
        """int32[…] each: sources, and targets of deletions."""
        sources, targets = (
            self._xp.flatnonzero(marks).astype(np.int32) for marks in (self._sources, self._targets)
        )
        return sources, targets


def _known(backend: Backend, pair: tuple[Array, Array], limit: int) -> tuple[Array, Array]:
    """Columns of ids, without those that name an id which the graph does not have."""
    columns = backend.graph.columns(*pair)
    known = backend.xp.ones(len(columns[0]), bool)
    for column in columns:
        known &= (column >= 0) & (column < limit)
    if int(backend.device.sum(known)) == len(known):
        return columns
    return columns[0][known], columns[1][known]


def routed_bytes(weighted: bool) -> int:
    """The most bytes that an arc takes on its way: what is sent, what is received, and both joined;
    then keys and what their sort takes. A weighted sort also moves weights and places.
    """
    return 88 if weighted else 32


def load_bytes(entries: int, rows: int, vertex_bytes: int, weighted: bool, columns: int = 0) -> int:
    """Upper bound on the memory that a load takes beside the columns of its slice and the lists
    before it, its peak included.

    entries       to insert into own lists, in either direction, and those that these have before
    rows          of the graph after the batch
    vertex_bytes  of a vertex, outside its rows
    columns       bytes of columns that are freed before the last lists are cut to size
    """
    slots = slot_bytes(weighted) * slots_with_spare(entries + 3 * min(entries, rows))
    vertices = (2 * VERTEX_BYTES + vertex_bytes + 32) * rows
    least = routed_bytes(weighted) * min(entries, LEAST_AT_ONCE)
    # both directions, and one that is cut to size
    return 2 * slots + max(slots - columns, 0) + vertices + least + 64 * min(entries, CHUNK)


def _buckets(positions: Array, xp: Any) -> Array:
    """int64[k]: the bucket of each position."""
    digits = xp.frexp(positions.astype(np.float64))[1].astype(np.int64)
    shift = xp.maximum(digits - 1 - _FINE_BITS, 0)
    return (shift << _FINE_BITS) + (positions >> shift)


def _first_position(bucket: int) -> int:
    """The first position in a bucket."""
    shift = max(0, (bucket >> _FINE_BITS) - 1)
    return (bucket - (shift << _FINE_BITS)) << shift
