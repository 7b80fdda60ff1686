"""Neighbour lists of one direction, changed in place, and the scratch memory of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations import graph as op
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import ALIGNMENT, Csr, Rows, SlackCsr
from liverank_gpu.operations.device import Array

# ---- some rows of a direction ----


def entries_of(backend: Backend, csr: Csr, positions: Array) -> op.Entries:
    """The entries of some rows, integer[k] positions, one row after the other. In place of rows
    they have the numbers of these, from 0 on.
    """
    return backend.rebuild.entries(csr.at(positions))


def rows_of(backend: Backend, csr: Csr, positions: Array) -> op.Entries:
    """The entries of some rows, int32[k] distinct positions."""
    entries = entries_of(backend, csr, positions)
    return entries._replace(rows=positions[entries.rows])


def ends_and_slots(backend: Backend, csr: Csr) -> tuple[tuple[Array, Array], Array]:
    """Of every entry, rows ascending: the neighbour and the row, int32[m] each, and the slot,
    int64[m].
    """
    xp, lengths = backend.xp, csr.row_lengths.astype(np.int64)
    rows, neighbours, _ = backend.rebuild.entries(csr._replace(weights=None))
    before = csr.row_starts - (xp.cumsum(lengths) - lengths)
    return (neighbours, rows), before[rows] + xp.arange(len(rows))


def distinct(xp: Any, values: Array) -> Array:
    """The values in ascending order, each once; NumPy's own takes a hundred times as long."""
    values = xp.sort(values)
    return values[xp.concatenate([values[:1] == values[:1], values[1:] != values[:-1]])]


def edge_keys(sources: Array, targets: Array) -> Array:
    """int64[m]: one key for each edge."""
    return sources.astype(np.int64) << 32 | targets


def find(xp: Any, keys: Array, wanted: Array) -> tuple[Array, Array]:
    """Places in ascending keys, and whether the key there is the wanted one."""
    if len(keys) == 0:
        return xp.zeros(len(wanted), np.int64), xp.zeros(len(wanted), bool)
    places = xp.minimum(xp.searchsorted(keys, wanted), len(keys) - 1)
    return places, keys[places] == wanted


def items_of(xp: Any, starts: Array, lengths: Array) -> tuple[Array, Array]:
    """The list, from 0 on, and the place of each item of lists that begin at `starts`."""
    ends = xp.cumsum(lengths)
    items = xp.arange(int(ends[-1]) if len(ends) else 0)
    lists = xp.searchsorted(ends, items, side="right")
    return lists, items + (starts - ends + lengths)[lists]


def row_sums(lengths: NDArray[np.integer[Any]], values: NDArray[Any]) -> NDArray[np.int64]:
    """int64[n]: the sum of the values of each row of these lengths; rows lie one after the other.

    values  integer or bool, one for each entry
    """
    sums = np.zeros(len(lengths), np.int64)
    filled = lengths > 0
    if len(values):
        begins = (np.cumsum(lengths, dtype=np.int64) - lengths)[filled]
        sums[filled] = np.add.reduceat(values, begins, dtype=np.int64)
    return sums


def row_blocks(lengths: NDArray[np.integer[Any]], limit: int) -> Iterator[slice]:
    """Splits rows of these lengths into blocks of at least one row, and of at most `limit` rows and
    `limit` entries, unless a single row has more.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    first = 0
    while first < len(ends):
        before = ends[first - 1] if first else 0
        fitting = int(np.searchsorted(ends, before + limit, "right"))
        last = min(max(first + 1, fitting), first + limit)
        yield slice(first, last)
        first = last


# ---- scratch memory for the batches of a graph ----

_PLANNED = slice(op.COUNTERS.index("CHANGED"), op.COUNTERS.index("HOLES") + 1)
"""The counters of rows."""

_PLANNING_SCANS = 3
"""The first scan of rows."""

_KEPT = 1 << 17
"""The workspace of batches of up to this many operations is always kept."""

_WIDE, _NARROW, _TINY = 4, 15, 1
"""Arrays of a BatchPlan in int64, int32 and int8."""

_WEIGHTS = len(op.PlanWeights._fields)
"""Arrays of PlanWeights."""


class Workspace:
    """The plans of both directions for batches of up to `capacity` operations, reused.

    zeroed   int64[…], the counters and scans of both
    planned  see liverank_gpu.operations.graph.PlanWorkspace
    """

    def __init__(self, capacity: int, backend: Backend, weighted: bool = False) -> None:
        self.capacity = capacity
        self._weighted = weighted
        self._backend = backend
        self.planned: Any = None
        counters, words = len(op.COUNTERS), _scan_words(capacity)
        self.zeroed = backend.device.allocate(
            "scratch for a batch", 2 * (counters + op.SCANS * words), np.int64
        )
        self._counters = self.zeroed[: 2 * counters].reshape(2, counters)
        self._scans = self.zeroed[2 * counters :].view(np.uint64).reshape(2, op.SCANS, words)
        self.plans = self._plan(0), self._plan(1)

    def _plan(self, direction: int) -> op.BatchPlan:
        wide, narrow, tiny = (
            self._block(*each)
            for each in ((np.int64, _WIDE), (np.int32, _NARROW), (np.int8, _TINY))
        )
        floats = self._block(np.float32, _WEIGHTS) if self._weighted else None
        plan = op.BatchPlan(
            (wide, narrow, tiny, floats),
            self._counters[direction],
            self._scans[direction],
            *wide.reshape(_WIDE, -1),
            *narrow.reshape(_NARROW, -1),
            *tiny.reshape(_TINY, -1),
        )
        if floats is None:
            return plan
        weights = op.PlanWeights(*floats.reshape(_WEIGHTS, -1))
        weights.opposite.fill(0)  # they are sorted with their keys, those of no key too
        return replace(plan, weights=weights)

    def _block(self, dtype: type[np.generic], count: int) -> Array:
        # one more than there are operations, since arrays of first indices have an end
        size = count * (self.capacity + 1)
        return self._backend.device.allocate("scratch for a batch", size, dtype)

    def clear(self) -> None:
        """Before the next batch."""
        self.zeroed.fill(0)

    def clear_row_plan(self, plan: op.BatchPlan) -> None:
        """Before rows that were packed are planned again."""
        plan.counters[_PLANNED] = 0
        plan.scans[_PLANNING_SCANS:].fill(0)

    def counts(self) -> tuple[op.Counts, op.Counts]:
        """The counters of both directions. Waits for the device."""
        outgoing, incoming = self._backend.device.to_host(self._counters).tolist()
        return op.Counts(*outgoing), op.Counts(*incoming)

    @property
    def nbytes(self) -> int:
        return workspace_bytes(self.capacity, self._weighted)


class KeptWorkspace:
    """The workspace of one graph, kept from batch to batch; that of a large one until it is ranked,
    and only on the host, where new memory takes a tenth of the time of such a batch, or more.

    nbytes  of what is kept
    """

    def __init__(self, backend: Backend, weighted: bool) -> None:
        self._backend = backend
        self._weighted = weighted
        self._kept: Workspace | None = None
        self.nbytes = 0

    def take(self, operations: int) -> Workspace:
        """A workspace for so many operations, which is not cleared."""
        workspace = self._kept
        if workspace is None or workspace.capacity < operations:
            workspace = None  # freed before there is another
            self._keep(None)
            capacity = 1 << max(10, (operations - 1).bit_length())
            if operations > _KEPT:
                capacity = operations
            workspace = Workspace(capacity, self._backend, self._weighted)
            if operations <= _KEPT or self._backend.xp is np:
                self._keep(workspace)
        return workspace

    def trim(self) -> None:
        """Frees that of a large batch."""
        if self._kept is not None and self._kept.capacity > _KEPT:
            self._keep(None)

    def _keep(self, workspace: Workspace | None) -> None:
        self._kept, self.nbytes = workspace, workspace.nbytes if workspace else 0


def allocate_changes(backend: Backend, counts: op.Counts, weighted: bool) -> op.EdgeChanges:
    """Arrays for what a batch changes; they are not reused."""
    allocate, purpose = backend.device.allocate, "what a batch changed"
    changed, removed, added = counts.changed, counts.removed, counts.added
    block = allocate(purpose, 2 * (changed + removed + added), np.int32)
    lost = 2 * changed
    gained = lost + 2 * removed
    changes = op.EdgeChanges(
        *(block[:changed], block[changed:lost]),
        *(block[lost : lost + removed], block[lost + removed : gained]),
        *(block[gained : gained + added], block[gained + added :]),
    )
    if not weighted:
        return changes
    return changes._replace(
        old_degree=allocate(purpose, counts.changed, np.float64),
        removed_weights=allocate(purpose, counts.removed, np.float32),
        added_weights=allocate(purpose, counts.added, np.float32),
    )


def workspace_bytes(operations: int, weighted: bool = False) -> int:
    """Bytes of a Workspace."""
    each = 8 * _WIDE + 4 * (_NARROW + _WEIGHTS * weighted) + _TINY
    words = len(op.COUNTERS) + op.SCANS * _scan_words(operations)
    return 2 * (each * (operations + 1) + 8 * words)


def _scan_words(operations: int) -> int:
    return 1 + -(-operations // op.SCAN_TILE)


# ---- neighbour lists of one direction, changed in place ----
#
# All rows lie in one array of column indices, and one of weights if the graph is weighted. A row
# has `capacity` slots reserved. When it outgrows them it moves to the end with a quarter to spare,
# so n insertions move O(n) entries, and leaves a gap. When the end of the array is reached, all
# rows are packed without slack into a new array with some free slots at its end: rarely, and at
# the bandwidth of the device.

SPARE_PART = 8
"""A new array has one free slot for every SPARE_PART that its rows take."""

LEAST_SPARE = 1024
"""Free slots of a new array, at least."""

LOADED_AT_ONCE = 1 << 26
"""Edges that a load sorts at once: 1 GB of keys."""

VERTEX_BYTES = 8 + 4 + 4 + 4 + 1
"""Bytes of one vertex in one direction, entries excluded."""


class PackedCsr:
    """A Csr with slack, its degree bins and its partition for the kernels. Rows ascend after a
    load; later their order follows from the batches alone.

    vertices   n
    slots      the arrays in which all rows lie
    csr        the lists as kernels read them
    capacities, degree_bins  see liverank_gpu.operations.csr.SlackCsr
    end        first slot behind all reserved ones
    packed     slots of all rows when packed without slack
    longest    upper bound on the length of a row; exact after a load
    misbinned  rows (entries, on ``cpu``) that left their group since the last partition
    """

    def __init__(
        self, backend: Backend, vertices: int = 0, weighted: bool = False, grows: bool = True
    ) -> None:
        """grows  whether batches change the lists, so that an array has free slots at its end"""
        self._backend = backend
        self._weighted, self._grows = weighted, grows
        self._allocated = 0
        self.vertices = vertices
        self.end = 0
        self.packed = 0
        self.longest = 0
        self.misbinned = 0
        self._overflowed = False
        self._groups: NDArray[np.int64] | None = None
        self._rows: Rows | None = None  # the partition, if it suits the rows as they are
        allocate = backend.device.allocate
        self._starts = allocate("vertices", 0, np.int64)
        self._lengths = allocate("vertices", 0, np.int32)
        self._capacities = allocate("vertices", 0, np.int32)
        self._order = allocate("vertices", 0, np.int32)
        self._degree_bins = allocate("vertices", 0, np.uint8)
        self.slots = self._zeroed_slots(0)
        self._reserve_exactly(vertices)
        self._update_views()

    def reserve(self, vertices: int) -> None:
        """Makes room for `vertices`, by a quarter more if it must grow; `vertices` is unchanged."""
        if vertices > self._allocated:
            self._reserve_exactly(max(vertices, self._allocated + self._allocated // 4))
            self._update_views()

    def _reserve_exactly(self, vertices: int) -> None:
        old = (self._starts, self._lengths, self._capacities, self._degree_bins, self._order)
        grown = [self._backend.device.grown("vertices", array, vertices) for array in old]
        # new vertices belong at the end of the last group, that of the shortest rows
        known = self._allocated
        grown[-1][known:] = self._backend.xp.arange(known, vertices, dtype=np.int32)
        self._starts, self._lengths, self._capacities, self._degree_bins, self._order = grown
        self._allocated = vertices

    def extend(self, vertices: int) -> None:
        """Adds empty rows up to `vertices`, for which room has been reserved."""
        self.vertices = vertices
        if self._groups is not None:
            self._groups[-1] = vertices
        self._update_views()

    def _update_views(self) -> None:
        rows = slice(self.vertices)
        self._rows = None
        self.csr = Csr(self._starts[rows], self._lengths[rows], *self.slots)
        self.capacities = self._capacities[rows]
        self.degree_bins = self._degree_bins[rows]

    @property
    def slack(self) -> SlackCsr:
        """The lists with their room to grow."""
        return SlackCsr(self.csr, self.capacities, self.degree_bins, self.end)

    def extended(self, vertices: int) -> SlackCsr:
        """The same, with empty rows up to `vertices`, for which room has been reserved."""
        if vertices == self.vertices:
            return self.slack
        rows = slice(vertices)
        csr = Csr(self._starts[rows], self._lengths[rows], *self.slots)
        return SlackCsr(csr, self._capacities[rows], self._degree_bins[rows], self.end)

    @property
    def kept_partition(self) -> Rows | None:
        """The last partition, with new vertices in its last group; None before the first."""
        return None if self._groups is None else Rows(self._order[: self.vertices], self._groups)

    def partition(self) -> Rows:
        """All rows, grouped for the kernels: the same as long as the rows are.

        The groups are kept while rows change length, and recomputed, in O(n), only when so many
        rows left their group, or one left it so far, that sweeps would be slower.
        """
        if self._rows is None:
            graph, kept = self._backend.rebuild, self.kept_partition
            if (
                kept is None
                or self._overflowed
                or graph.needs_partition(kept, self.misbinned, self.packed)
            ):
                order = self._order[: self.vertices]
                self._groups = graph.partition(self.csr.row_lengths, order, self.degree_bins)
                self._overflowed, self.misbinned = False, 0
                kept = Rows(order, self._groups)
            self._rows = kept
        return self._rows

    @property
    def strength_depth(self) -> int:
        """RebuildOperations.strength_depth of the longest row."""
        return self._backend.rebuild.strength_depth(self.longest)

    def load(
        self,
        columns: op.Entries,
        loop: Array,
        positions: Array,
        adds: bool = False,
        kept: int = 0,
        counts: Array | None = None,
    ) -> op.Deduplicated:
        """Takes the edges of columns of ids; drops repeats and sets loops in `loop`. There were no
        edges before.

        positions  see PackKeys
        adds, kept  see RebuildOperations.deduplicate
        counts     see RebuildOperations.count_neighbours; None if they are not needed

        One range of rows is sorted at a time, so the sort needs a fraction of the graph's memory.
        """
        operations = self._backend.rebuild
        ranges = operations.row_ranges(columns.rows, self.vertices, LOADED_AT_ONCE, positions)
        keys = ((*each[:2], operations.keys_of_range(*columns, each, positions)) for each in ranges)
        return self.load_keys(keys, len(columns.rows), loop, adds, kept, counts)

    def load_keys(
        self,
        ranges: Iterable[tuple[int, int, op.SortedKeys]],
        entries: int,
        loop: Array,
        adds: bool = False,
        kept: int = 0,
        counts: Array | None = None,
    ) -> op.Deduplicated:
        """The same from sorted insertions.

        ranges   (first row, end of rows, keys of these rows): all rows, ascending
        entries  number of all keys
        """
        operations, allocate = self._backend.rebuild, self._backend.device.allocate
        edges = loops = reweighted = 0
        exceeded = -1
        for low, high, batch in ranges:
            distinct = operations.deduplicate(batch, loop, adds, kept)
            keys, found = batch.keys, distinct.edges
            first = allocate("scratch for a load", high - low, np.int64)
            starts, lengths = self.csr.row_starts[low:high], self.csr.row_lengths[low:high]
            packed, longest = operations.count_rows(keys, found, low, first, lengths)
            operations.pack_rows(lengths, self.packed, starts, self.capacities[low:high])
            if counts is not None:
                operations.count_neighbours(keys, found, counts)
            if low == 0:
                # how many repeats there are is known if these are all keys
                at_most = entries + (ALIGNMENT - 1) * min(entries, self.vertices)
                whole = len(keys) == entries
                self.slots = self._zeroed_slots(self._wanted(packed) if whole else at_most)
            self._backend.run(op.FillRows(batch, found, low, first, starts, self.slots))
            self.packed += packed
            self.longest = max(self.longest, longest)
            edges, loops = edges + found, loops + distinct.loops
            reweighted += distinct.reweighted
            if exceeded < 0:
                exceeded = distinct.exceeded
        self.end = self.packed
        wanted = self._wanted(self.packed)
        if not wanted <= len(self.slots.column_indices) <= wanted + wanted // SPARE_PART:
            self.slots = self._zeroed_slots(wanted, self.slots, self.end)
        self._update_views()
        return op.Deduplicated(edges, loops, reweighted, exceeded)

    def _wanted(self, slots: int) -> int:
        """Slots of a new array for rows that take so many."""
        return slots_with_spare(slots) if self._grows else slots

    def restore(
        self,
        lengths: NDArray[np.int32],
        neighbours: NDArray[np.int32],
        weights: NDArray[np.float32] | None,
    ) -> None:
        """Takes packed rows from the host, as in liverank_gpu.snapshot.Snapshot. There were no
        edges.
        """
        backend = self._backend
        self.csr.row_lengths[:] = backend.device.to_device(lengths)
        backend.rebuild.pack_rows(self.csr.row_lengths, 0, self.csr.row_starts, self.capacities)
        self.packed = self.end = len(neighbours)
        self.longest = int(lengths.max(initial=0))
        stored = op.Slots(
            *(backend.device.to_device(each) for each in (neighbours, weights) if each is not None)
        )
        self.slots = self._zeroed_slots(slots_with_spare(self.packed), stored, self.end)
        self._update_views()

    def arrays(self) -> dict[str, Array]:
        """What a copy of the lists takes: the arrays of `csr` by name, up to `end`."""
        starts, lengths, column_indices, weights = self.csr
        end = self.end
        named = {"starts": starts, "lengths": lengths, "column indices": column_indices[:end]}
        return named if weights is None else named | {"weights": weights[:end]}

    def copied(self) -> Self:
        """The same lists in arrays of their own, without free slots at their end."""
        other = copy(self)
        rows = slice(self.vertices)
        arrays = (self._starts, self._lengths, self._capacities, self._order, self._degree_bins)
        copies = [array[rows].copy() for array in arrays]
        (
            other._starts,
            other._lengths,
            other._capacities,
            other._order,
            other._degree_bins,
        ) = copies
        other.slots = op.Slots(
            *(None if slots is None else slots[: self.end].copy() for slots in self.slots)
        )
        other._groups = None if self._groups is None else self._groups.copy()
        other._allocated = self.vertices
        other._update_views()
        return other

    @property
    def copied_bytes(self) -> int:
        """Bytes of the arrays of a copy."""
        return slot_bytes(self._weighted) * self.end + VERTEX_BYTES * self.vertices

    def must_pack(self, counts: op.Counts) -> bool:
        """Whether there are too few free slots for the batch, or more than half are wasted."""
        used = self.end + counts.needed
        packed = self.packed + counts.growth
        return used > len(self.slots.column_indices) or used > 2 * (packed + LEAST_SPARE)

    @property
    def room(self) -> tuple[int, int]:
        """What `must_pack` compares with: see liverank_gpu.operations.graph.Room."""
        free = len(self.slots.column_indices) - self.end
        return free, 2 * (self.packed + LEAST_SPARE) - self.end

    def pack(self, counts: op.Counts) -> None:
        """Packs all rows into a new array, with room for the batch and some spare."""
        backend = self._backend
        starts = backend.device.allocate("vertices", self._allocated, np.int64)
        capacities = backend.device.allocate("vertices", self._allocated, np.int32)
        slots = self._zeroed_slots(slots_with_spare(self.packed + counts.most))
        backend.rebuild.pack_rows(self._lengths, 0, starts, capacities)
        backend.rebuild.copy_rows(self.csr, starts, self.packed, slots)
        self._starts, self._capacities = starts, capacities
        self.slots, self.end = slots, self.packed
        self._update_views()

    def _zeroed_slots(self, count: int, copied: op.Slots | None = None, end: int = 0) -> op.Slots:
        """Slots that begin with the first `end` of others."""
        count, allocate = -(-count // ALIGNMENT) * ALIGNMENT, self._backend.device.allocate
        # kernels read ALIGNMENT slots at once, so none may be uninitialised
        slots = op.Slots(
            allocate("neighbour lists", count, np.int32, zeroed=True),
            allocate("weights", count, np.float32, zeroed=True) if self._weighted else None,
        )
        for array, source in zip(slots, copied or (), strict=False):
            if array is not None and source is not None:
                array[:end] = source[:end]
        return slots

    def record(self, counts: op.Counts) -> None:
        """Follows what a batch has done to the lists: see ApplyBatch."""
        if counts.changed == 0:
            return
        self._rows = None
        self.end += counts.needed
        self.packed += counts.growth
        self.longest = max(self.longest, counts.longest)
        self.misbinned += counts.misbinned
        self._overflowed = self._overflowed or counts.overflowed > 0

    def memory(self) -> tuple[int, int, int]:
        """Bytes of packed rows, of slack, gaps and free slots, and of vertices."""
        each = slot_bytes(self._weighted)
        return (
            each * self.packed,
            each * (len(self.slots.column_indices) - self.packed),
            VERTEX_BYTES * self._allocated,
        )


@dataclass(frozen=True, slots=True)
class RowLengths:
    """One direction of a graph of which kernels read no entries.

    csr             without column indices
    longest         length of the longest row
    strength_depth  the most additions that a weight goes through in the sum of its row, and one
                    more
    """

    csr: Csr
    longest: int
    strength_depth: int

    def partition(self) -> Rows:
        """Raises NotImplementedError."""
        raise NotImplementedError("rows without entries are not grouped")


def slot_bytes(weighted: bool) -> int:
    """Bytes of a slot: a neighbour, and a weight."""
    return 8 if weighted else 4


def slots_with_spare(slots: int) -> int:
    """Slots of a new array for rows that take `slots`."""
    spare = max(slots // SPARE_PART, LEAST_SPARE)
    return -(-(slots + spare) // ALIGNMENT) * ALIGNMENT
