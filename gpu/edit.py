"""What a batch does to one direction of a graph, between finding it out and doing it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpu.backends.base import Array, Backend
from gpu.kernels import COUNTERS, TILE

SCANS = 6
"""Prefix sums of one direction: edges and rows, work, changes, changed rows, moves, holes."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The counters of an Edit on the host.

    edges, rows        distinct edges and rows that the batch names
    inserted, deleted  as gpu.types.Change has them
    removed, added     what is left of them: an edge deleted and inserted at once is neither
    changed            rows whose list or loop changes
    needed             slots at the pool's end for the rows that outgrow theirs
    most               the same if every row that grows moved
    growth             slots by which the rows grow if packed tight
    emptied            slots that shrinking rows give up
    strayed            rows that leave the tolerance of their class of length, less those that
                       return
    urgent             rows far beyond the lengths of their class
    longest            the length of the longest row named, after the batch
    holes              entries that moved into holes
    """

    edges: int
    rows: int
    inserted: int
    deleted: int
    removed: int
    added: int
    changed: int
    needed: int
    most: int
    growth: int
    emptied: int
    strayed: int
    urgent: int
    longest: int
    holes: int


class Edit:
    """Device arrays of one batch in one direction. `capacity` operations fit; all beyond what the
    counters say is undefined.

    counters    int64[len(COUNTERS)]: see Counts
    scans       uint64[SCANS][…], room for prefix sums, zero at the beginning

    edge_*      one for each distinct edge that the batch names, ascending by row and neighbour
    edge_operation   int32[edges+1], its first key
    edge_neighbour   int32[edges]
    edge_row         int32[edges], index of its row below
    edge_slot        int32[edges], where in the row it is, -1 if it is not
    row_*       one for each row named, ascending
    row_edge         int32[rows+1], its first edge
    row_vertex       int32[rows]
    row_loop         int8[rows], 1 where its loop is added, -1 removed
    row_work         int64[rows+1], units of work before it
    row_removed, row_added  int32[rows+1], its first removed and added edge
    removed_*, added_*  the changes, loops among them, in the same order
    new_length       int32[rows]
    new_start        int64[rows], slot behind the pool's end, -1 for a row that stays
    move_work        int64[rows+1], units of work before it
    changed_row      int32[changed], the rows that change, ascending
    opposite    int64[operations], keys of the changes (without loops) for the other direction
    """

    def __init__(self, capacity: int, counters: Array, scans: Array, backend: Backend) -> None:
        self.capacity = capacity
        self.counters = counters
        self.scans = list(scans)
        wide = _fields(backend, np.int64, capacity, 4)
        self.row_work, self.move_work, self.new_start, self.opposite = wide
        (
            self.edge_operation,
            self.edge_neighbour,
            self.edge_row,
            self.edge_slot,
            self.row_edge,
            self.row_vertex,
            self.row_removed,
            self.row_added,
            self.removed_row,
            self.removed_neighbour,
            self.removed_slot,
            self.added_row,
            self.added_neighbour,
            self.new_length,
            self.changed_row,
        ) = _fields(backend, np.int32, capacity, 15)
        (self.row_loop,) = _fields(backend, np.int8, capacity, 1)

    def forget_plan(self) -> None:
        """Before `plan` runs again: the rows were laid out anew."""
        self.counters[COUNTERS.index("CHANGED") :] = 0
        for scan in self.scans[3:]:
            scan.fill(0)


def _fields(backend: Backend, dtype: type[np.generic], capacity: int, count: int) -> list[Array]:
    # one more than there are operations, since the arrays of first places have an end
    stride = capacity + 1
    block = backend.allocate("scratch for a batch", count * stride, dtype)
    return [block[field * stride : (field + 1) * stride] for field in range(count)]


class Workspace:
    """The edits of both directions for batches of up to `capacity` operations, reused."""

    def __init__(self, capacity: int, backend: Backend) -> None:
        self.capacity = capacity
        self._backend = backend
        counters = len(COUNTERS)
        words = 1 + -(-capacity // TILE)
        self._zeroed = backend.allocate(
            "scratch for a batch", 2 * (counters + SCANS * words), np.int64
        )
        self.counters = self._zeroed[: 2 * counters].reshape(2, counters)
        scans = self._zeroed[2 * counters :].view(np.uint64).reshape(2, SCANS, words)
        self.outgoing = Edit(capacity, self.counters[0], scans[0], backend)
        self.incoming = Edit(capacity, self.counters[1], scans[1], backend)

    def clear(self) -> None:
        self._zeroed.fill(0)

    def counts(self) -> tuple[Counts, Counts]:
        """Waits for the device."""
        outgoing, incoming = self._backend.to_host(self.counters).tolist()
        return Counts(*outgoing), Counts(*incoming)

    @property
    def nbytes(self) -> int:
        return scratch_bytes(self.capacity)


def scratch_bytes(operations: int) -> int:
    """Bytes of a Workspace."""
    each = 4 * 8 + 15 * 4 + 1
    words = len(COUNTERS) + SCANS * (1 + -(-operations // TILE))
    return 2 * (each * (operations + 1) + 8 * words)
