"""First edges and large batches in shards, which are merged into new lists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.graph.batch import Arcs
from liverank_gpu.graph.packed_csr import (
    VERTEX_BYTES,
    PackedCsr,
    Workspace,
    find,
    slot_bytes,
    slots_with_spare,
)
from liverank_gpu.graph.rebuild import degrees_of, insertion_keys
from liverank_gpu.operations.backend import Backend, Sizes
from liverank_gpu.operations.csr import Csr, loop_dtype
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import (
    LAST_PLACE,
    NEIGHBOUR,
    Counts,
    Deduplicated,
    EdgeChanges,
    SortedKeys,
)
from liverank_gpu.sharded.columns import Router, chunks

# What the shards have planned of a batch, and tell each other before any of them writes.


class Direction(NamedTuple):
    """What a batch does to the lists of one direction of one shard.

    inserted, deleted, reweighted  see liverank_gpu.operations.graph.Counts
    growth    entries and loops that the lists have more after it
    longest   upper bound on the length of a list after it
    exceeded  1 if a sum of weights exceeds float32
    connected see liverank_gpu.operations.graph.Counts; of out-lists that a batch changes
    """

    inserted: int
    deleted: int
    reweighted: int
    growth: int
    longest: int
    exceeded: int
    connected: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """Both directions in new arrays.

    exceeded  int64[1 or 0]: the key of the first edge of own out-lists whose sum of weights exceeds
              float32
    touched   int32[…] each: supersets of own sources and removed targets, see GraphUpdate
    """

    outgoing: PackedCsr
    incoming: PackedCsr
    loop: Array
    degree: Array
    directions: tuple[Direction, Direction]
    exceeded: Array
    touched: tuple[Array, Array]
    changes: EdgeChanges | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """A planned batch, and room for what it changes.

    in_changes  of the in-lists, with sources as columns, for their pages
    exceeded    see Load
    """

    workspace: Workspace
    counts: tuple[Counts, Counts]
    changes: EdgeChanges
    in_changes: EdgeChanges
    directions: tuple[Direction, Direction]
    exceeded: Array

    @property
    def touched(self) -> tuple[Array, Array]:
        """See Load.touched."""
        return self.changes.sources, self.changes.removed_targets


def exceeded_key(counts: Counts, keys: Array) -> Array:
    """Load.exceeded of the planned operations on own out-lists, by their sorted keys."""
    end = LAST_PLACE - counts.exceeded if counts.exceeded else 0
    return keys[max(0, end - 1) : end]


# ---- own lists of one direction, while a large batch is merged into a copy of them ----

Rows = tuple[int, int]
"""First row and end of rows."""


class Merge:
    """Takes ranges of own rows, ascending. The lists themselves are not written.

    entries  of the lists before the batch
    """

    def __init__(self, backend: Backend, lists: PackedCsr, fixed_loops: bool) -> None:
        self._backend, self._csr, self._fixed_loops = backend, lists.csr, fixed_loops
        self.entries = int(backend.device.sum(lists.csr.row_lengths)) if lists.packed else 0
        self._kept = 0
        self._inserted_loops = self._deleted_loops = self._reweighted_loops = 0

    def keys(
        self, rows: Rows, loop: Array, deleted: Array, inserted: Array, weights: Array | None
    ) -> Iterator[tuple[int, int, SortedKeys]]:
        """What PackedCsr.load_keys takes of a range: the entries that are not deleted, and the
        insertions; once, or nothing if there are no rows.

        loop      of all own rows; deleted loops are cleared. Those of the range are inserted when
                  this goes on
        deleted   int64[…], keys of deletions as if of insertions, ascending; may have repeats
        inserted  int64[…], keys in the order of the batch; spent
        weights   float32[…], theirs

        `kept` of RebuildOperations.deduplicate is 0: the place of an entry that was kept is -1, and
        that of an insertion its key, so that what exceeds float32 is an edge.
        """
        first, end = rows
        if first == end:
            return
        of_range, total = loop[first:end], self._backend.device.sum
        if not self._fixed_loops:
            present = int(total(of_range != 0))
            loop[deleted[is_loop(deleted)] >> 32] = 0
            self._deleted_loops += present - int(total(of_range != 0))
        before = of_range.copy()
        keys = self._backend.graph.sort(inserted, weights)
        if weights is not None:
            keys = keys._replace(order=keys.keys.copy())
        del inserted, weights
        if self.entries:
            kept = self._kept_keys(rows, deleted, keys.weights is not None)
            self._kept += len(kept.keys)
            keys = self._backend.rebuild.merge(kept, keys)
            del kept
        yield first, end, keys
        if not self._fixed_loops:
            self._inserted_loops += int(total((before == 0) & (of_range != 0)))
            self._reweighted_loops += int(total((before != 0) & (of_range != before)))

    def _kept_keys(self, rows: Rows, deleted: Array, weighted: bool) -> SortedKeys:
        """Those of the entries of these rows that are not deleted, in the order of the slots."""
        backend, chosen = self._backend, slice(*rows)
        starts, lengths, *slots = self._csr
        entries = backend.rebuild.entries(Csr(starts[chosen], lengths[chosen], *slots))
        keys = backend.device.allocate("keys of a load", len(entries.rows), np.int64)
        for chunk in chunks(len(keys), backend.sizes.chunk):
            some = entries.rows[chunk] + rows[0]
            keys[chunk] = insertion_keys(some, entries.neighbours[chunk])
        weights = entries.weights
        del entries
        if len(deleted):
            stays = _not_among(backend.xp, deleted, keys)
            keys, weights = keys[stays], weights if weights is None else weights[stays]
        if not weighted:
            return SortedKeys(keys)
        return SortedKeys(keys, weights, backend.xp.full(len(keys), -1, np.int64))

    def direction(self, loaded: Deduplicated, longest: int) -> Direction:
        """What the batch did to the lists, when all ranges are loaded."""
        inserted = loaded.edges - self._kept + self._inserted_loops
        deleted = self.entries - self._kept + self._deleted_loops
        reweighted = loaded.reweighted + self._reweighted_loops
        exceeds = int(loaded.exceeded >= 0)
        return Direction(inserted, deleted, reweighted, inserted - deleted, longest, exceeds)


def is_loop(keys: Array) -> Array:
    """bool[k]"""
    return keys >> 32 == keys >> 1 & NEIGHBOUR


def _not_among(xp: Any, deleted: Array, keys: Array) -> Array:
    """bool[k]: whether each of the keys, without repeats, is none of the deleted ones, which
    ascend.
    """
    if len(keys) <= len(deleted) or bool((keys[1:] < keys[:-1]).any()):
        return ~find(xp, deleted, keys)[1]
    # fewer are to be looked up, if keys ascend too
    stays = xp.ones(len(keys), bool)
    places, found = find(xp, keys, deleted)
    stays[places[found]] = False
    return stays


def warm_up_merge(backend: Backend, weighted: bool) -> None:
    """Compiles what only a batch that is a large part of a graph needs."""
    keys = backend.xp.zeros(1, np.int64)
    weights = backend.xp.ones(1, np.float32) if weighted else None
    sorted_keys = SortedKeys(keys, weights, keys if weighted else None)
    backend.rebuild.merge(sorted_keys, sorted_keys)


# Batches that are a large part of a graph in shards, and its first edges: from the slices of a
# batch, and own lists, into new lists of own rows.
#
# As on one device (PackedCsr.load), one range of rows is sorted at a time. Of each range, a shard
# sends what its slice has and receives what is on own rows, which joins what own lists have of it.
# So what is on its way is a part of the graph: as much as memory allows. The lists before the
# batch are not written: until all shards take the new ones, nothing has changed.


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
        sizes, entries = self._router.backend.sizes, max(self._entries)
        return load_bytes(sizes, entries, rows, vertex_bytes, weighted, self._copied_bytes)

    def load(self, needed: int) -> Load:
        """New lists of own rows. Spends the columns.

        needed  `bytes_needed`
        """
        router, weighted = self._router, self._weights is not None
        backend, rows = router.backend, router.numbering.rows(self._limit)
        spare = backend.device.memory_available() - needed
        least = int(router.communicator.gather([spare])[:, 0].min())
        at_once = max(backend.sizes.least_load, least // (2 * routed_bytes(weighted)))
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
            for chunk in chunks(len(rows), max(self._backend.sizes.chunk, chunk_size)):
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
                begin = first_position(bucket)
                yield first, begin
                first, held = begin, np.zeros_like(held)
            held = held + more
        yield first, self._limit

    def _counted(self, end: int, lists: PackedCsr) -> _Moved:
        """What the slices and the lists of all shards have of each bucket."""
        router, backend, xp = self._router, self._backend, self._backend.xp
        numbering, lengths = router.numbering, lists.csr.row_lengths
        last = np.array([max(0, self._limit - 1)])
        size, buckets = numbering.size, int(buckets_of(last, np)[0]) + 1
        width = buckets * size
        sent = xp.zeros((2, width), np.int64)
        for counts, pairs in zip(sent, (self._insertions, self._deletions), strict=True):
            for column in (columns[end] for columns in pairs):
                for chunk in chunks(len(column), backend.sizes.chunk):
                    positions = router.permutation.positions_of(column[chunk])
                    places = buckets_of(positions, xp) * size + numbering.owners(positions)
                    counts += xp.bincount(places, minlength=width)
        held = xp.zeros(buckets, np.int64)
        entries = len(lengths) if self._merges[end].entries else 0
        for chunk in chunks(entries, backend.sizes.chunk):
            weights = lengths[chunk].astype(np.float64)
            positions = numbering.positions_of(xp.arange(len(weights)) + chunk.start)
            sums = xp.bincount(buckets_of(positions, xp), weights, minlength=buckets)
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


def load_bytes(
    sizes: Sizes, entries: int, rows: int, vertex_bytes: int, weighted: bool, columns: int = 0
) -> int:
    """Upper bound on the memory that a load takes beside the columns of its slice and the lists
    before it, its peak included.

    entries       to insert into own lists, in either direction, and those that these have before
    rows          of the graph after the batch
    vertex_bytes  of a vertex, outside its rows
    columns       bytes of columns that are freed before the last lists are cut to size
    """
    slots = slot_bytes(weighted) * slots_with_spare(entries + 3 * min(entries, rows))
    vertices = (2 * VERTEX_BYTES + vertex_bytes + 32) * rows
    least = routed_bytes(weighted) * min(entries, sizes.least_load)
    # both directions, and one that is cut to size
    return 2 * slots + max(slots - columns, 0) + vertices + least + 64 * min(entries, sizes.chunk)


def buckets_of(positions: Array, xp: Any) -> Array:
    """int64[k]: the bucket of each position."""
    digits = xp.frexp(positions.astype(np.float64))[1].astype(np.int64)
    shift = xp.maximum(digits - 1 - _FINE_BITS, 0)
    return (shift << _FINE_BITS) + (positions >> shift)


def first_position(bucket: int) -> int:
    """The first position in a bucket."""
    shift = max(0, (bucket >> _FINE_BITS) - 1)
    return (bucket - (shift << _FINE_BITS)) << shift
