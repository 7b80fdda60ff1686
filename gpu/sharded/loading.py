"""The first edges of a graph in shards: from the slices of a batch into lists of own rows.

As on one device (PackedCsr.load), one range of rows is sorted at a time. Of each range, a shard
sends what its slice has and receives what is on own rows. So what is on its way is a part of the
graph: as much as memory allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.graph.arcs import Arcs
from gpu.graph.packed_csr import VERTEX_BYTES, PackedCsr, slot_bytes, slots_with_spare
from gpu.graph.rebuild import degrees_of
from gpu.operations.csr import loop_dtype
from gpu.operations.device import Array
from gpu.operations.graph import SortedKeys
from gpu.operations.update import INSERT
from gpu.sharded.planned import Direction, Load
from gpu.sharded.routing import CHUNK, Router, chunks

LEAST_AT_ONCE = 1 << 21
"""Arcs of a range that a shard sends or receives, at most, however little memory there is. (All
arcs of a row and of its near neighbours are in one range.)
"""

_FINE_BITS = 8
"""The first 2^(_FINE_BITS + 1) positions have a bucket each, the next 2^_FINE_BITS buckets have two
each, then four, and so on: in an order by degree the first rows are the longest.
"""


class FirstEdges:
    """The insertions of all slices into a graph without edges. All shards call it together.

    received  of out-lists and of in-lists: operations on own ones, at most
    """

    def __init__(self, router: Router, arcs: Arcs, columns: list[Array], limit: int) -> None:
        """columns  of the insertions, on the device
        limit    of the ids after the batch
        """
        self._router, self._limit, self._adds = router, limit, arcs.adds
        backend, self._columns = router.backend, columns
        copied = [
            own for own, given in zip(self._columns, arcs.insert, strict=True) if own is not given
        ]
        self._copied_bytes = sum(int(column.nbytes) for column in copied)
        self._weights = None if arcs.weights is None else backend.xp.asarray(arcs.weights)
        self._tables = [self._counted(rows) for rows in self._columns]
        rank = router.numbering.rank
        self.received = tuple(int(table[:, :, rank].sum()) for table in self._tables)

    def bytes_needed(self, vertex_bytes: int) -> int:
        """See load_bytes."""
        rows, weighted = self._router.numbering.rows(self._limit), self._weights is not None
        return load_bytes(max(self.received), rows, vertex_bytes, weighted, self._copied_bytes)

    def load(self, fixed_loops: bool, needed: int) -> Load:
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
        lists, directions, exceeded = [], [], []
        for end, received in enumerate(self.received):
            direction = PackedCsr(backend, rows, weighted)
            found = direction.load_keys(self._keys(end, at_once), received, loop, self._adds)
            edges = found.edges + (0 if fixed_loops else found.loops)
            exceeds = int(found.exceeded >= 0)
            directions.append(Direction(edges, 0, 0, edges, direction.longest, exceeds))
            exceeded.append(backend.xp.full(exceeds, found.exceeded, np.int64))
            lists.append(direction)
        if fixed_loops:
            loop.fill(1)
        outgoing, incoming = lists
        degree = degrees_of(backend, outgoing, loop, weighted)
        both = (directions[0], directions[1])
        linked = backend.xp.flatnonzero(degree != 0).astype(np.int32)
        return Load(outgoing, incoming, loop, degree, both, exceeded[0], linked)

    def _keys(self, end: int, at_once: int) -> Iterator[tuple[int, int, SortedKeys]]:
        """See PackedCsr.load_keys: the keys of out-lists (end 0) or in-lists (1)."""
        numbering = self._router.numbering
        for low, high in self._ranges(end, at_once):
            # what makes them takes a quarter of what they take on their way, so
            keys = self._keys_between(end, low, high, at_once // 8)
            first, last = numbering.rows(low), numbering.rows(high)
            if keys.weights is not None:
                # so that what exceeds float32 is an edge, and no place
                keys = keys._replace(order=keys.keys.copy())
            if last > first:
                yield first, last, keys
        if end == 1:
            # the lists may be copied next, to arrays of their size
            self._columns.clear()

    def _keys_between(self, end: int, low: int, high: int, chunk_size: int) -> SortedKeys:
        """The keys of own rows at positions `low` to before `high`."""
        router, weights = self._router, self._weights
        xp, numbering = router.backend.xp, router.numbering
        rows, neighbours = self._columns[end], self._columns[1 - end]
        sent = [[xp.empty(0, np.int64)] for _ in range(numbering.size)]
        sent_weights = [[xp.empty(0, np.float32)] for _ in range(numbering.size)]
        for chunk in chunks(len(rows), chunk_size):
            positions = router.permutation.positions_of(rows[chunk])
            chosen = (positions >= low) & (positions < high)
            if end == 1:
                # of a loop, the flag is with the out-list
                chosen &= rows[chunk] != neighbours[chunk]
            owners = numbering.owners(positions)
            for rank in range(numbering.size):
                places = xp.flatnonzero(chosen & (owners == rank))
                keys = positions[places].astype(np.int64) << 32
                others = router.permutation.positions_of(neighbours[chunk][places])
                keys |= others.astype(np.int64) << 1 | INSERT
                sent[rank].append(keys)
                if weights is not None:
                    sent_weights[rank].append(weights[chunk][places])
        parts = [xp.concatenate(sent.pop(0)) for _ in range(numbering.size)]
        if weights is None:
            return router.exchanged(parts)
        return router.exchanged(parts, [xp.concatenate(each) for each in sent_weights])

    def _ranges(self, end: int, at_once: int) -> Iterator[tuple[int, int]]:
        """(first position, end of positions) of each range: all positions, ascending."""
        table = self._tables[end]
        # what each shard sends, and what each receives
        moved = np.concatenate([table.sum(axis=2), table.sum(axis=0).T])
        first, held = 0, np.zeros(len(moved), np.int64)
        for bucket in np.flatnonzero(moved.any(axis=0)).tolist():
            more = moved[:, bucket]
            if held.any() and int((held + more).max()) > at_once:
                begin = _first_position(bucket)
                yield first, begin
                first, held = begin, np.zeros_like(held)
            held = held + more
        yield first, self._limit

    def _counted(self, rows: Array) -> NDArray[np.int64]:
        """int64[shards, buckets, shards]: arcs by the shard that sends them, the bucket of the
        position of their row, and the shard that owns it.
        """
        router = self._router
        backend, xp, size = router.backend, router.backend.xp, router.numbering.size
        width = (int(_buckets(np.array([max(0, self._limit - 1)]), np)[0]) + 1) * size
        counts = xp.zeros(width, np.int64)
        for chunk in chunks(len(rows)):
            positions = router.permutation.positions_of(rows[chunk])
            places = _buckets(positions, xp) * size + router.numbering.owners(positions)
            counts += xp.bincount(places, minlength=width)
        table = router.communicator.gather(backend.device.to_host(counts).tolist())
        return table.astype(np.int64).reshape(size, -1, size)


def routed_bytes(weighted: bool) -> int:
    """The most bytes that an arc takes on its way: what is sent, what is received, and both joined;
    then keys and what their sort takes. A weighted sort also moves weights and places.
    """
    return 80 if weighted else 32


def load_bytes(
    operations: int, rows: int, vertex_bytes: int, weighted: bool, columns: int = 0
) -> int:
    """Upper bound on the memory that a first load takes beside the columns of its slice, its peak
    included.

    operations    on own lists, in either direction
    rows          of the graph after the batch
    vertex_bytes  of a vertex, outside its rows
    columns       bytes of columns that are freed before the last lists are cut to size
    """
    slots = slot_bytes(weighted) * slots_with_spare(operations + 3 * min(operations, rows))
    vertices = (2 * VERTEX_BYTES + vertex_bytes + 8) * rows
    least = routed_bytes(weighted) * min(operations, LEAST_AT_ONCE)
    # both directions, and one that is cut to size
    return 2 * slots + max(slots - columns, 0) + vertices + least + 64 * min(operations, CHUNK)


def _buckets(positions: Array, xp: Any) -> Array:
    """int64[k]: the bucket of each position."""
    digits = xp.frexp(positions.astype(np.float64))[1].astype(np.int64)
    shift = xp.maximum(digits - 1 - _FINE_BITS, 0)
    return (shift << _FINE_BITS) + (positions >> shift)


def _first_position(bucket: int) -> int:
    """The first position in a bucket."""
    shift = max(0, (bucket >> _FINE_BITS) - 1)
    return (bucket - (shift << _FINE_BITS)) << shift
