"""Triangles on ``cpu``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import get_num_threads
from numpy.typing import NDArray

from gpu.backends.cpu.device import CpuDevice
from gpu.jit.atomics import exchange, fetch_and_add
from gpu.jit.compile import helper, kernel, unsigned
from gpu.operations.csr import Csr
from gpu.operations.device import Array
from gpu.operations.triangles import (
    EdgeBounds,
    Interval,
    RowWindow,
    TriangleLists,
    TriangleOperations,
)

_EDGES = 1 << 10
"""Edges that a core examines at a time."""

_ROWS = 1 << 7
"""Rows whose triangles a core counts at a time."""


@helper
def _mark_row(place_of, column_indices, begin, end, present):  # type: ignore[no-untyped-def]
    for entry in range(begin, end):
        place_of[unsigned(column_indices[entry])] = 1 + entry - begin if present else 0


@kernel(1)
def _count_triangles(  # type: ignore[no-untyped-def]
    first, last, groups, oriented, places, every_edge, triangles, third
):
    """places: int32[parts, n], zero before and after: 1 + the place of an entry in the row.
    third: int32[m], counts of edges whose triangle has a lower third vertex.
    """
    row_starts, row_lengths, column_indices, _ = oriented
    for part in range(first, last):
        place_of = places[part]
        for u in range(groups[part], groups[part + 1]):
            begin = row_starts[u]
            end = begin + row_lengths[u]
            _mark_row(place_of, column_indices, begin, end, True)
            for entry in range(unsigned(begin), unsigned(end)):
                v = unsigned(column_indices[entry])
                found = 0
                other = row_starts[v]
                for slot in range(unsigned(other), unsigned(other + row_lengths[v])):
                    place = place_of[unsigned(column_indices[slot])]
                    if place:
                        found += 1
                        triangles[unsigned(begin + place - 1)] += 1
                        if every_edge:
                            fetch_and_add(third, slot, np.int32(1))
                triangles[entry] += found
            _mark_row(place_of, column_indices, begin, end, False)


@helper
def _first_from(column_indices, begin, end, least):  # type: ignore[no-untyped-def]
    """The first of some ascending entries that is ≥ least, or their end."""
    while begin < end:
        middle = (begin + end) // 2
        if column_indices[unsigned(middle)] < least:
            begin = middle + 1
        else:
            end = middle
    return begin


@helper
def _least_bound(bounds, edge, longer, third):  # type: ignore[no-untyped-def]
    of_lowest, of_middle, _ = bounds
    least = min(of_lowest[unsigned(edge)], of_lowest[unsigned(longer)])
    return min(least, of_middle[unsigned(third)])


@kernel(_ROWS)
def _count_between(  # type: ignore[no-untyped-def]
    first, last, lowest, middle, triangles, of_lowest, of_middle, bounds
):
    """Two of the counts are None, and bounds may be."""
    first_row, _, (row_starts, row_lengths, column_indices, _) = lowest
    first_middle, end_middle, (_, _, other_indices, _) = middle
    for u in range(first_row + first, first_row + last):
        end = row_starts[u] + row_lengths[u]
        entry = _first_from(column_indices, row_starts[u], end, first_middle)
        of_row = 0
        while entry < end and column_indices[unsigned(entry)] < end_middle:
            v = unsigned(column_indices[unsigned(entry)])
            here, there = entry + 1, row_starts[v]
            end_there = there + row_lengths[v]
            found = 0
            while here < end and there < end_there:
                one, other = column_indices[unsigned(here)], other_indices[unsigned(there)]
                if one == other:
                    found += 1
                    if triangles is not None:
                        fetch_and_add(triangles, one, np.int64(1))
                    if bounds is None:
                        if of_lowest is not None:
                            of_lowest[unsigned(here)] += 1
                        if of_middle is not None:
                            fetch_and_add(of_middle, there, np.int32(1))
                    else:
                        least = _least_bound(bounds, entry, here, there)
                        places = bounds[2]
                        if of_lowest is not None:
                            of_lowest[places[unsigned(entry)] + least] += 1
                            of_lowest[places[unsigned(here)] + least] += 1
                        if of_middle is not None:
                            fetch_and_add(of_middle, places[unsigned(there)] + least, np.int32(1))
                here += one <= other
                there += other <= one
            if found:
                of_row += found
                if triangles is not None:
                    fetch_and_add(triangles, v, np.int64(found))
                if of_lowest is not None and bounds is None:
                    of_lowest[unsigned(entry)] += found
            entry += 1
        if triangles is not None and of_row:
            fetch_and_add(triangles, u, np.int64(of_row))


@helper
def _put(ends, others, first_edge, edge, one, another):  # type: ignore[no-untyped-def]
    place = fetch_and_add(ends, edge - first_edge, np.int64(1))
    others[place, 0] = one
    others[place, 1] = another


@kernel(1)
def _list_triangles(  # type: ignore[no-untyped-def]
    first, last, groups, oriented, places, interval, ends, others
):
    """ends: int64[edges], where each list ends so far. places: see `_count_triangles`."""
    row_starts, row_lengths, column_indices, _ = oriented
    first_row, end_row, first_edge, _ = interval
    for part in range(first, last):
        place_of = places[part]
        for u in range(groups[part], groups[part + 1]):
            begin = row_starts[u]
            end = begin + row_lengths[u]
            is_source = first_row <= u < end_row
            reached = is_source
            for entry in range(unsigned(begin), unsigned(end)):
                reached |= first_row <= column_indices[entry] < end_row
            if not reached:
                continue
            _mark_row(place_of, column_indices, begin, end, True)
            for entry in range(begin, end):
                v = column_indices[entry]
                is_target = first_row <= v < end_row
                if not (is_source or is_target):
                    continue
                other = row_starts[v]
                for slot in range(other, other + row_lengths[v]):
                    place = place_of[unsigned(column_indices[slot])]
                    if not place:
                        continue
                    longer = begin + place - 1
                    if is_source:
                        _put(ends, others, first_edge, entry, longer, slot)
                        _put(ends, others, first_edge, longer, entry, slot)
                    if is_target:
                        _put(ends, others, first_edge, slot, entry, longer)
            _mark_row(place_of, column_indices, begin, end, False)


@helper
def _supporting(others, begin, end, bounds, bound):  # type: ignore[no-untyped-def]
    """Triangles whose other edges have at least this bound; `bound` of them are enough."""
    found = 0
    for place in range(unsigned(begin), unsigned(end)):
        if (
            bounds[unsigned(others[place, 0])] >= bound
            and bounds[unsigned(others[place, 1])] >= bound
        ):
            found += 1
            if found >= bound:
                break
    return found


@kernel(_EDGES)
def _lower_bounds(  # type: ignore[no-untyped-def]
    first, last, first_edge, lists, by_bisection, bounds, marks, counts
):
    starts, others = lists
    examined = fallen = 0
    for item in range(first, last):
        edge = first_edge + item
        # the mark goes before others' bounds are read: who lowers one later sets it again
        if marks[edge] == 0 or exchange(marks, edge, np.int32(0)) == 0:
            continue
        examined += 1
        begin, end = starts[item], starts[item + 1]
        old = bounds[edge]
        low = _supporting(others, begin, end, bounds, old)
        if low >= old:
            continue
        high = old - 1
        if not by_bisection:
            low = high
        while low < high:
            middle = (low + high + 1) // 2
            if _supporting(others, begin, end, bounds, middle) >= middle:
                low = middle
            else:
                high = middle - 1
        exchange(bounds, edge, np.int32(low))
        fallen += 1
        # another edge may have fallen below `old` while it saw this bound, and this one as well
        marks[edge] = 1
        for place in range(unsigned(begin), unsigned(end)):
            for side in range(2):
                other = others[place, side]
                if low < bounds[unsigned(other)] <= old:
                    marks[unsigned(other)] = 1
    fetch_and_add(counts, 0, np.int64(examined))
    fetch_and_add(counts, 1, np.int64(fallen))


class CpuTriangles(TriangleOperations):
    """See TriangleOperations."""

    def __init__(self, device: CpuDevice) -> None:
        self._device = device

    def count_triangles(self, oriented: Csr, sources: Array, every_edge: bool) -> Array:
        groups, places = self._parts(oriented, sources)
        triangles = np.zeros(len(sources), np.int32)
        third = np.zeros(len(sources) if every_edge else 0, np.int32)
        shared = (tuple(oriented), places, every_edge, triangles, third)
        _count_triangles(len(places), groups, *shared)
        return triangles + third if every_edge else triangles

    def count_between(self, lowest: RowWindow, middle: RowWindow, triangles: Array) -> None:
        self._between(lowest, middle, triangles, None, None, None)

    def count_entries_between(
        self,
        lowest: RowWindow,
        middle: RowWindow,
        of_lowest: bool,
        counts: Array,
        bounds: EdgeBounds | None = None,
    ) -> None:
        both = (counts, None) if of_lowest else (None, counts)
        self._between(lowest, middle, None, *both, None if bounds is None else tuple(bounds))

    @staticmethod
    def _between(lowest: RowWindow, middle: RowWindow, *counts: Any) -> None:
        windows = ((*each[:2], tuple(each.lists)) for each in (lowest, middle))
        _count_between(lowest.end_row - lowest.first_row, *windows, *counts)

    def list_triangles(
        self, oriented: Csr, sources: Array, interval: Interval, lists: TriangleLists
    ) -> None:
        groups, places = self._parts(oriented, sources)
        ends = lists.starts[:-1].copy()
        shared = (tuple(oriented), places, tuple(interval), ends, lists.others)
        _list_triangles(len(places), groups, *shared)

    def lower_bounds(
        self,
        interval: Interval,
        lists: TriangleLists,
        by_bisection: bool,
        bounds: Array,
        marks: Array,
    ) -> tuple[int, int]:
        counts = np.zeros(2, np.int64)
        edges, shared = interval.end_edge - interval.first_edge, (by_bisection, bounds, marks)
        _lower_bounds(edges, interval.first_edge, tuple(lists), *shared, counts)
        return int(counts[0]), int(counts[1])

    def _parts(
        self, oriented: Csr, sources: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Rows divided among the threads by the entries that they compare, and their places."""
        vertices, parts = len(oriented.row_lengths), get_num_threads()
        lengths = oriented.row_lengths[oriented.column_indices]
        work = np.cumsum(np.bincount(sources, lengths, vertices))  # of the rows up to each
        limits = np.searchsorted(work, work[-1] / parts * np.arange(1, parts))
        places = self._device.allocate("triangles", parts * vertices, np.int32)
        places.fill(0)
        return np.concatenate([[0], limits, [vertices]]), places.reshape(parts, vertices)
