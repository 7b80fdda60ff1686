"""The window of a graph: the times of its edges, those that are too old, and the vertices that lose
all edges by age.

A table edge → time and a binary heap of (time, edge), on plain arrays. The table is open-addressing
with linear probing. The heap gets an entry for each insertion; an entry whose time is not that of
the table is stale, and is dropped when it is at the top. With more than twice as many entries as
edges, and a few more, the heap is made again from the table, so that memory is bounded by the most
edges at a time. An edge is two ids in 64 bits, plus 1, since 0 is an empty slot; of an undirected
edge the lower id comes first.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank.choices import Clock
from liverank_gpu import EdgeBatch, Engine, Solve, kernels
from liverank_service.formats.columns import EdgeColumns

Ids = NDArray[np.int64]

_MIN_SLOTS = 1 << 10
_SPARE_ENTRIES = 1 << 10
_SHIFT = np.uint64(32)
_LOWER = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)
_NO_EDGES = np.empty(0, np.uint64)


class TimesCapture(NamedTuple):
    """The table at one moment."""

    slots: NDArray[np.uint64]
    times: NDArray[np.float64]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """uint64[edges] and float64[edges], for `EdgeTimes.restore`."""
        used = self.slots != 0
        return {"edges": self.slots[used], "times": self.times[used]}


class EdgeTimes:
    """The latest time of each edge: the one that was sent last. Only for the writer's thread.

    newest  the largest time that was ever inserted; None before the first
    """

    def __init__(self, directed: bool) -> None:
        self._directed = directed
        self._seed = np.uint64(secrets.randbits(64))
        self._count = self._size = 0
        self._slots = np.zeros(_MIN_SLOTS, np.uint64)
        self._times = np.empty(_MIN_SLOTS)
        self._heap_edges = np.empty(_MIN_SLOTS, np.uint64)
        self._heap_times = np.empty(_MIN_SLOTS)
        self.newest: float | None = None

    def __len__(self) -> int:
        """The number of edges."""
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, including spare capacity."""
        arrays = (self._slots, self._times, self._heap_edges, self._heap_times)
        return sum(array.nbytes for array in arrays)

    @property
    def earliest(self) -> float | None:
        """The smallest time of an edge; None without edges."""
        self._drop_stale()
        return float(self._heap_times[0]) if self._size else None

    def reserve(self, added: int) -> None:
        """Allocates memory for as many insertions, and releases what is not needed. Raises
        MemoryError; nothing is then changed.
        """
        needed = self._count + added
        is_sparse = len(self._slots) > max(_MIN_SLOTS, 8 * needed)
        if is_sparse or 3 * needed > 2 * len(self._slots):
            slots = np.zeros(_slots_for(needed), np.uint64)
            times = np.empty(len(slots))
            kernels.refill_times(self._slots, self._times, (slots, times, self._seed))
            self._slots, self._times = slots, times
        is_stale = self._size > 2 * self._count + _SPARE_ENTRIES
        is_large = len(self._heap_edges) > 4 * needed + 4 * _SPARE_ENTRIES
        if is_stale or is_large or self._size + added > len(self._heap_edges):
            capacity = max(_MIN_SLOTS, needed + max(needed, _SPARE_ENTRIES) // 2)
            edges, values = np.empty(capacity, np.uint64), np.empty(capacity)
            self._size = kernels.heapify(self._slots, self._times, edges, values)
            self._heap_edges, self._heap_times = edges, values

    def insert(self, sources: Ids, targets: Ids, times: NDArray[np.float64]) -> None:
        """Sets the times of edges in order: of repeats the last one counts. Allocates nothing if
        there was a `reserve` for it.

        sources, targets  int64[k]; times: float64[k]
        """
        count = len(times)
        if not count:
            return
        slots, entries = self._count + count, self._size + count
        if 3 * slots > 2 * len(self._slots) or entries > len(self._heap_edges):
            self.reserve(count)
        edges, given = self._packed(sources, targets), np.ascontiguousarray(times, np.float64)
        self._count, self._size = kernels.put_times(
            self._table, self._count, self._heap, edges, given
        )
        highest = float(times.max())
        self.newest = highest if self.newest is None else max(self.newest, highest)

    def delete(self, sources: Ids, targets: Ids) -> None:
        """Removes edges; those that are not there, and negative ids, are ignored."""
        known = (sources >= 0) & (targets >= 0)
        edges = self._packed(sources[known], targets[known])
        self._count = kernels.take_times(self._table, self._count, edges)
        self._drop_stale()

    def remove(self, vertices: Ids) -> None:
        """Removes all edges of vertices, by id: reads the whole table."""
        if len(vertices) == 0 or self._count == 0:
            return
        is_vertex = np.zeros(int(vertices.max()) + 1, np.bool_)
        is_vertex[vertices] = True
        edges = np.empty(kernels.edges_of(self._slots, is_vertex, _NO_EDGES), np.uint64)
        kernels.edges_of(self._slots, is_vertex, edges)
        self._count = kernels.take_times(self._table, self._count, edges)
        self._drop_stale()

    def count_older(self, cutoff: float) -> int:
        """How many edges have a time below `cutoff`; some may count several times."""
        return int(kernels.older(self._table, self._heap, cutoff, _NO_EDGES))

    def expired(self, cutoff: float) -> tuple[Ids, Ids]:
        """Sources and targets of the edges with a time below `cutoff`, in the order of the ids.
        They stay until they are deleted.
        """
        found = np.empty(self.count_older(cutoff), np.uint64)
        kernels.older(self._table, self._heap, cutoff, found)
        edges = np.unique(found) - _ONE
        return (edges >> _SHIFT).astype(np.int64), (edges & _LOWER).astype(np.int64)

    def capture(self) -> TimesCapture:
        """A copy, for another thread."""
        return TimesCapture(self._slots.copy(), self._times.copy())

    def restore(self, arrays: Mapping[str, NDArray[Any]], newest: float | None) -> None:
        """Takes the arrays of a capture, instead of the edges that it has."""
        slots = np.zeros(_slots_for(len(arrays["edges"])), np.uint64)
        times = np.empty(len(slots))
        stored = (np.array(arrays[name]) for name in ("edges", "times"))
        kernels.refill_times(*stored, (slots, times, self._seed))
        self._slots, self._times, self._count = slots, times, len(arrays["edges"])
        self._heap_edges = np.empty(max(_MIN_SLOTS, self._count), np.uint64)
        self._heap_times = np.empty(len(self._heap_edges))
        self._size = kernels.heapify(slots, times, self._heap_edges, self._heap_times)
        self.newest = newest

    @property
    def _table(self) -> tuple[NDArray[np.uint64], NDArray[np.float64], np.uint64]:
        """As kernels take it."""
        return self._slots, self._times, self._seed

    @property
    def _heap(self) -> tuple[NDArray[np.uint64], NDArray[np.float64], int]:
        return self._heap_edges, self._heap_times, self._size

    def _packed(self, sources: Ids, targets: Ids) -> NDArray[np.uint64]:
        if not self._directed:
            sources, targets = np.minimum(sources, targets), np.maximum(sources, targets)
        return ((sources.astype(np.uint64) << _SHIFT) | targets.astype(np.uint64)) + _ONE

    def _drop_stale(self) -> None:
        self._size = kernels.drop_stale(self._table, self._heap)


def _slots_for(edges: int) -> int:
    """A power of two of which at most two thirds are used."""
    return max(_MIN_SLOTS, 1 << (3 * edges // 2).bit_length())


AUTO = Solve("auto")

_NO_IDS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """Options of a graph whose edges leave by age.

    seconds          the age, above 0
    clock            ``wall``, or ``event``: the largest time that was sent
    forget_vertices  whether vertices leave that have lost all edges by it
    solve            how to rank an expiry that no batch of a client caused
    max_share        by the wall clock, of the edges: an expiry of more waits until the clock has
                     not jumped for `hold_seconds`; 1: it does not
    """

    seconds: float
    clock: Clock = "wall"
    forget_vertices: bool = False
    solve: Solve = AUTO
    max_share: float = 1.0
    hold_seconds: float = 0.0


class WindowCapture(NamedTuple):
    """A window at one moment."""

    times: TimesCapture
    newest: float | None
    isolated: NDArray[np.int64]

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self.times.arrays() | {"isolated": self.isolated}


class Window:
    """Only for the writer's thread.

    isolated  int64[…], ids of vertices that lost their last edges by age, to be removed
    """

    def __init__(self, options: WindowOptions, engine: Engine) -> None:
        self.options = options
        self.times = EdgeTimes(engine.options.directed)
        self.isolated = _NO_IDS
        self._decays = engine.options.decays
        self._reader = engine.edge_reader

    def applied(self, batch: EdgeBatch, columns: EdgeColumns) -> None:
        """Follows a batch that the graph has, given by ids and by keys."""
        removed = batch.remove[batch.remove >= 0]
        if self._decays or not columns.expiry:  # otherwise those that it removes have no edges
            self.times.remove(removed)
        self.times.delete(batch.delete_sources, batch.delete_targets)
        if columns.times is not None:
            times = columns.times.to_numpy()
            self.times.insert(batch.insert_sources, batch.insert_targets, times)
        if not self.options.forget_vertices:
            return
        if len(self.isolated):
            for gone in (removed, batch.insert_sources, batch.insert_targets):
                self.isolated = np.setdiff1d(self.isolated, gone)
        if columns.expiry:
            ends = np.union1d(batch.delete_sources, batch.delete_targets)
            ends = ends[ends >= 0]
            self.isolated = np.union1d(self.isolated, ends[self.are_isolated(ends)])

    def are_isolated(self, vertices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """bool[k]: whether each of these vertices, by id, has no edge."""
        return self._reader.are_isolated(vertices)

    def capture(self) -> WindowCapture:
        """A copy, for another thread."""
        return WindowCapture(self.times.capture(), self.times.newest, self.isolated)

    def restore(self, arrays: Mapping[str, NDArray[Any]], newest: float | None) -> None:
        """Takes the arrays of a capture."""
        self.times.restore(arrays, newest)
        self.isolated = np.array(arrays["isolated"])
