"""Neighbour lists of one direction, changed in place.

All rows lie in one pool. A row has a place of `capacity` slots; when it outgrows it, it moves to
the pool's end with a quarter to spare, so that n insertions move at most O(n) entries, and leaves a
gap behind. When the end is reached, all rows are laid out anew, packed tight, in another pool that
again has some slots to spare: at the bandwidth of the device, and seldom.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.backends.base import Array, Backend, Rows
from gpu.edit import Counts, Edit

ALIGNMENT = 4
"""Slots: places are multiples of it and begin at one, so that kernels read 16 bytes at once."""

SPARE = 8
"""A new pool has one slot in SPARE more than its rows take."""

LEAST_SPARE = 1024
"""… and at least so many slots more."""

LOADED_AT_ONCE = 1 << 26
"""Edges that a load sorts at once where it sorts beside the pools: 1 GB of keys."""

VERTEX_BYTES = 8 + 4 + 4 + 4 + 1
"""Bytes of one vertex in one direction, beside its entries."""


class Adjacency:
    """Row v is ``pool[start[v] : start[v] + length[v]]``, ascending after a load, else in an order
    that follows from the batches alone.

    vertices  n
    pool      int32[slots]; what is in no row is undefined
    start     int64[n]
    length    int32[n]
    capacity  int32[n], slots of the row's place; a multiple of ALIGNMENT, as start is
    end       the first slot behind all places
    packed    slots that all rows would take if packed tight
    longest   no row is longer; exact after a load
    strayed   rows (work, on ``cpu``) by which the partition for the kernels is off; see rows
    """

    def __init__(self, backend: Backend, vertices: int = 0) -> None:
        self._backend = backend
        self._allocated = 0
        self.end = 0
        self.packed = 0
        self.longest = 0
        self.strayed = 0
        self._urgent = False
        self._partitioned = False
        self.pool: Array = backend.allocate("neighbour lists", 0, np.int32)
        self._start: Array
        self._length: Array
        self._capacity: Array
        self._order: Array
        self._classes: Array
        self._rows: Rows
        self._reserve_exactly(vertices)
        self.show(vertices)

    def reserve(self, vertices: int) -> None:
        """Makes room for so many vertices, by a quarter more where it must; shows none of them."""
        if vertices > self._allocated:
            self._reserve_exactly(max(vertices, self._allocated + self._allocated // 4))

    def _reserve_exactly(self, vertices: int) -> None:
        backend, xp, known = self._backend, self._backend.xp, self._allocated
        grown = [
            backend.allocate("vertices", vertices, dtype)
            for dtype in (np.int64, np.int32, np.int32, np.int32, np.uint8)
        ]
        start, length, capacity, order, classes = grown
        for array in (start, length, capacity, classes):
            array[known:] = 0
        # new vertices belong at the end of the last group, that of the shortest rows
        order[known:] = xp.arange(known, vertices, dtype=np.int32)
        if known:
            old = (self._start, self._length, self._capacity, self._order, self._classes)
            for array, values in zip(grown, old, strict=True):
                array[:known] = values
        self._start, self._length, self._capacity, self._order, self._classes = grown
        self._allocated = vertices
        if known:
            self.show(self.vertices)

    def show(self, vertices: int) -> None:
        """Lets the graph have so many vertices, for which room was reserved."""
        self.vertices = vertices
        self.start = self._start[:vertices]
        self.length = self._length[:vertices]
        self.capacity = self._capacity[:vertices]
        self.classes = self._classes[:vertices]
        groups = self._rows.groups if self._partitioned else np.zeros(2, np.int64)
        groups[-1] = vertices
        self._rows = Rows(self._order[:vertices], groups)

    @property
    def rows(self) -> Rows:
        """All rows, grouped for the backend's kernels.

        Kept as rows change length, and made anew, in O(n), only when so many left their group, or
        one left it so far, that sweeps would suffer.
        """
        if not self._partitioned or self._urgent or self._backend.unbalanced(self):
            groups = self._backend.partition(self.length, self._rows.order, self.classes)
            self._partitioned, self._urgent, self.strayed = True, False, 0
            self._rows = Rows(self._rows.order, groups)
        return self._rows

    @property
    def last_group(self) -> int:
        """Number of rows in the last group, where new vertices are."""
        return int(self._rows.groups[-1] - self._rows.groups[-2])

    def load(
        self, rows: Array, neighbours: Array, loop: Array, positions: Array
    ) -> tuple[int, int]:
        """Takes the edges of two columns of ids, repeats dropped and loops set in `loop`. There
        were none before. Returns the numbers of edges and of loops.

        positions  see Backend.sorted_keys

        A range of rows is sorted at a time, so that what the sort needs is a fraction of the graph.
        """
        backend = self._backend
        edges = loops = 0
        # how many repeats there are is not known yet
        at_most = len(rows) + (ALIGNMENT - 1) * min(len(rows), self.vertices)
        self.pool = self._filled_pool(at_most)
        for chosen in backend.row_ranges(rows, self.vertices, LOADED_AT_ONCE, positions):
            low, high, _ = chosen
            keys = backend.keys_of_range(rows, neighbours, chosen, positions)
            found, found_loops = backend.distinct(keys, loop)
            first = backend.allocate("scratch for a load", high - low, np.int64)
            start, length = self.start[low:high], self.length[low:high]
            packed, longest = backend.row_lengths(keys, found, low, first, length)
            backend.pack_rows(length, self.packed, start, self.capacity[low:high])
            backend.fill_rows(keys, found, low, first, start, self.pool)
            self.packed += packed
            self.longest = max(self.longest, longest)
            edges, loops = edges + found, loops + found_loops
        self.end = self.packed
        wanted = pool_slots(self.packed)
        if not wanted <= len(self.pool) <= wanted + wanted // SPARE:
            pool = self._filled_pool(wanted)
            pool[: self.end] = self.pool[: self.end]
            self.pool = pool
        return edges, loops

    def restore(self, length: NDArray[np.int32], neighbours: NDArray[np.int32]) -> None:
        """Takes packed rows from the host, as gpu.snapshot.Snapshot has them. There were none."""
        backend = self._backend
        self.length[:] = backend.to_device(length)
        backend.pack_rows(self.length, 0, self.start, self.capacity)
        self.packed = self.end = len(neighbours)
        self.longest = int(length.max(initial=0))
        self.pool = self._filled_pool(pool_slots(self.packed))
        self.pool[: self.end] = backend.to_device(neighbours)

    def must_be_packed(self, counts: Counts) -> bool:
        """Whether the pool has no room for what the batch needs, or is more than half empty."""
        used = self.end + counts.needed
        return used > len(self.pool) or used > 2 * (self.packed + counts.growth) + 2 * LEAST_SPARE

    def pack(self, counts: Counts) -> None:
        """Lays out all rows anew, tight, with room for the batch and for some more."""
        backend = self._backend
        start = backend.allocate("vertices", self._allocated, np.int64)
        capacity = backend.allocate("vertices", self._allocated, np.int32)
        pool = self._filled_pool(pool_slots(self.packed + counts.most))
        backend.pack_rows(self._length, 0, start, capacity)
        backend.copy_rows(self.start, self.length, self.pool, start, self.packed, pool)
        self._start, self._capacity, self.pool, self.end = start, capacity, pool, self.packed
        self.show(self.vertices)

    def _filled_pool(self, slots: int) -> Array:
        slots = -(-slots // ALIGNMENT) * ALIGNMENT
        pool = self._backend.allocate("neighbour lists", slots, np.int32)
        # kernels read four slots at once, and none reads what nobody wrote
        pool.fill(0)
        return pool

    def change(
        self,
        edit: Edit,
        counts: Counts,
        loop: Array,
        degree: Array,
        report: tuple[Array, ...],
    ) -> None:
        """Does what was planned. Nothing is allocated. See Backend.change."""
        self._backend.change(self, edit, counts, loop, degree, report)
        self.end += counts.needed
        self.packed += counts.growth
        self.longest = max(self.longest, counts.longest)
        self.strayed += counts.strayed
        self._urgent = self._urgent or counts.urgent > 0

    def memory(self) -> tuple[int, int, int]:
        """Bytes of rows packed tight, of slack and gaps and spare slots, and of vertices."""
        return (
            4 * self.packed,
            4 * (len(self.pool) - self.packed),
            VERTEX_BYTES * self._allocated,
        )


def pool_slots(slots: int) -> int:
    """The slots of a new pool for rows that take `slots`."""
    spare = max(slots // SPARE, LEAST_SPARE)
    return -(-(slots + spare) // ALIGNMENT) * ALIGNMENT
