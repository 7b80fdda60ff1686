"""The kernels of service.pipeline.edge_times, which documents their arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_COMPILED: dict[str, Any] = {"nogil": True, "cache": True}
_INLINED: dict[str, Any] = _COMPILED | {"inline": "always"}

_EMPTY = np.uint64(0)
_ONE = np.uint64(1)
_HALF = np.uint64(32)
_LOWER = np.uint64(0xFFFFFFFF)
_FIRST, _SECOND = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)


@njit(**_INLINED)  # type: ignore[untyped-decorator]
def _home(edge: Any, seed: Any, mask: Any) -> Any:
    """The slot at which the search for an edge begins: a mix of all bits (MurmurHash3)."""
    mixed = (edge ^ seed) * _FIRST
    mixed = (mixed ^ (mixed >> _HALF)) * _SECOND
    return (mixed ^ (mixed >> _HALF)) & mask


@njit(**_INLINED)  # type: ignore[untyped-decorator]
def _slot_of(slots: Any, edge: Any, seed: Any) -> Any:
    """The slot of the edge, or the empty one at which the search ended."""
    mask = np.uint64(len(slots) - 1)
    slot = _home(edge, seed, mask)
    while slots[slot] != _EMPTY and slots[slot] != edge:
        slot = (slot + _ONE) & mask
    return slot


@njit(**_INLINED)  # type: ignore[untyped-decorator]
def _is_before(times: Any, edges: Any, one: Any, other: Any) -> Any:
    if times[one] != times[other]:
        return times[one] < times[other]
    return edges[one] < edges[other]


@njit(**_INLINED)  # type: ignore[untyped-decorator]
def _exchange(times: Any, edges: Any, one: Any, other: Any) -> None:
    times[one], times[other] = times[other], times[one]
    edges[one], edges[other] = edges[other], edges[one]


@njit(**_COMPILED)  # type: ignore[untyped-decorator]
def _sift_down(times: Any, edges: Any, size: Any, place: Any) -> None:
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and _is_before(times, edges, child + 1, child):
            child += 1
        if not _is_before(times, edges, child, place):
            return
        _exchange(times, edges, child, place)
        place = child


@njit(**_COMPILED)  # type: ignore[untyped-decorator]
def put(
    slots: Any,
    times: Any,
    count: Any,
    heap_edges: Any,
    heap_times: Any,
    size: Any,
    seed: Any,
    edges: Any,
    given: Any,
) -> Any:
    """Sets the times of edges, which must fit; returns the numbers of edges and heap entries."""
    for i in range(len(edges)):
        slot = _slot_of(slots, edges[i], seed)
        if slots[slot] == _EMPTY:
            slots[slot] = edges[i]
            count += 1
        times[slot] = given[i]
        place = size
        heap_edges[place], heap_times[place] = edges[i], given[i]
        size += 1
        while place > 0 and _is_before(heap_times, heap_edges, place, (place - 1) // 2):
            _exchange(heap_times, heap_edges, place, (place - 1) // 2)
            place = (place - 1) // 2
    return count, size


@njit(**_COMPILED)  # type: ignore[untyped-decorator]
def take(slots: Any, times: Any, count: Any, seed: Any, edges: Any) -> Any:
    """Removes edges; returns the number of those left.

    Later entries of the same run move back, so that no search ends too early.
    """
    mask = np.uint64(len(slots) - 1)
    for i in range(len(edges)):
        hole = _slot_of(slots, edges[i], seed)
        if slots[hole] == _EMPTY:
            continue
        count -= 1
        slot = (hole + _ONE) & mask
        while slots[slot] != _EMPTY:
            home = _home(slots[slot], seed, mask)
            if ((slot - home) & mask) >= ((slot - hole) & mask):
                slots[hole], times[hole] = slots[slot], times[slot]
                hole = slot
            slot = (slot + _ONE) & mask
        slots[hole] = _EMPTY
    return count


@njit(**_COMPILED)  # type: ignore[untyped-decorator]
def edges_of(slots: Any, is_vertex: Any, found: Any) -> Any:
    """Writes the edges of some vertices to `found`, as many as fit; returns how many there are.

    is_vertex  by id, for ids below its length
    """
    count = 0
    for slot in slots:
        if slot == _EMPTY:
            continue
        source = np.int64((slot - _ONE) >> _HALF)
        target = np.int64((slot - _ONE) & _LOWER)
        if (source < len(is_vertex) and is_vertex[source]) or (
            target < len(is_vertex) and is_vertex[target]
        ):
            if count < len(found):
                found[count] = slot
            count += 1
    return count


@njit(**_COMPILED)  # type: ignore[untyped-decorator]
def drop_stale(
    slots: Any, times: Any, heap_edges: Any, heap_times: Any, size: Any, seed: Any
) -> Any:
    """Removes entries from the top of the heap until one is valid; returns the heap's size."""
    while size > 0:
        slot = _slot_of(slots, heap_edges[0], seed)
        if slots[slot] != _EMPTY and times[slot] == heap_times[0]:
            return size
        size -= 1
        heap_edges[0], heap_times[0] = heap_edges[size], heap_times[size]
        _sift_down(heap_times, heap_edges, size, 0)
    return size


@njit(**_COMPILED)  # type: ignore[untyped-decorator]
def older(
    slots: Any,
    times: Any,
    heap_edges: Any,
    heap_times: Any,
    size: Any,
    seed: Any,
    cutoff: Any,
    found: Any,
) -> Any:
    """Writes the edges with a time below `cutoff` to `found`, as many as fit, some of them several
    times; returns how many there are.

    The entries below the cutoff are a part of the heap that contains its top: it is walked in
    preorder, and nothing is removed.
    """
    count = 0
    place = 0
    while place < size:
        if heap_times[place] < cutoff:
            slot = _slot_of(slots, heap_edges[place], seed)
            if slots[slot] != _EMPTY and times[slot] == heap_times[place]:
                if count < len(found):
                    found[count] = heap_edges[place]
                count += 1
            if 2 * place + 1 < size:
                place = 2 * place + 1
                continue
        # the next subtree: right children have even places
        while place > 0 and (place % 2 == 0 or place + 1 >= size):
            place = (place - 1) // 2
        if place == 0:
            return count
        place += 1
    return count


@njit(**_COMPILED)  # type: ignore[untyped-decorator]
def refill(slots: Any, times: Any, seed: Any, fresh_slots: Any, fresh_times: Any) -> None:
    """Copies a table to an empty one."""
    for i in range(len(slots)):
        if slots[i] != _EMPTY:
            slot = _slot_of(fresh_slots, slots[i], seed)
            fresh_slots[slot], fresh_times[slot] = slots[i], times[i]


@njit(**_COMPILED)  # type: ignore[untyped-decorator]
def heapify(slots: Any, times: Any, heap_edges: Any, heap_times: Any) -> Any:
    """Makes a heap of a table, which must fit; returns its size."""
    size = 0
    for i in range(len(slots)):
        if slots[i] != _EMPTY:
            heap_edges[size], heap_times[size] = slots[i], times[i]
            size += 1
    for place in range(size // 2 - 1, -1, -1):
        _sift_down(heap_times, heap_edges, size, place)
    return size
