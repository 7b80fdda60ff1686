"""Triangles, cores and generators in NumPy."""

from __future__ import annotations

import numpy as np

from liverank_gpu.backends.reference.rows import as_ieee, entries_of
from liverank_gpu.native.in_numpy import GOLDEN_GAMMA, fill_random, mixed
from liverank_gpu.operations import analysis as op
from liverank_gpu.operations.csr import Csr, runs
from liverank_gpu.operations.device import Array, DeviceOperations
from liverank_gpu.operations.generate import (
    FEISTEL_ROUNDS,
    ExecuteCopyModel,
    GenerateOperations,
    feistel_bits,
)


def _triangles(lowest: op.RowWindow, middle: op.RowWindow) -> tuple[Array, Array, Array]:
    """The triangles u < v < w with u in one window and v in the other: the slots of u → v, u → w
    and v → w, int64[t] each.
    """
    u = np.arange(lowest.first_row, lowest.end_row)
    places, slots = entries_of(lowest.lists, u)
    sources, targets = u[places], lowest.lists.column_indices[slots].astype(np.int64)
    keys = sources << 32 | targets  # ascending
    inner = (targets >= middle.first_row) & (targets < middle.end_row)
    first, thirds = entries_of(middle.lists, targets[inner])
    wanted = sources[inner][first] << 32 | middle.lists.column_indices[thirds]
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    closed = keys[at] == wanted if len(keys) else np.zeros(0, bool)
    return slots[inner][first][closed], slots[at[closed]], thirds[closed]


def _h_index(numbers: Array, most: int) -> int:
    """The largest h ≤ most of which h numbers are at least h."""
    at_least = np.sort(np.minimum(numbers, most))[::-1]
    return int(np.count_nonzero(at_least >= np.arange(1, len(numbers) + 1)))


@runs
def _count_triangles(do: op.CountTriangles) -> Array:
    """Each triangle counts for u → v and u → w, and for v → w if every edge counts."""
    edges = _triangles(*_whole(do.oriented))[: 3 if do.every_edge else 2]
    return np.bincount(np.concatenate(edges), minlength=len(do.sources)).astype(np.int32)


@runs
def _count_between(do: op.CountBetween) -> None:
    """Each triangle counts for u, v and w."""
    lowest = do.lowest
    first, longer, _ = _triangles(lowest, do.middle)
    u = np.arange(lowest.first_row, lowest.end_row)
    places, slots = entries_of(lowest.lists, u)
    row_of_slot = np.zeros(len(lowest.lists.column_indices), np.int64)
    row_of_slot[slots] = u[places]
    targets = lowest.lists.column_indices
    for corner in (row_of_slot[first], targets[first], targets[longer]):
        np.add.at(do.triangles, corner, 1)


@runs
def _count_entries_between(do: op.CountEntriesBetween) -> None:
    """counts[places[edge] + least bound of the triangle's edges] += 1."""
    first, longer, third = _triangles(do.lowest, do.middle)
    for edge in (first, longer) if do.of_lowest else (third,):
        at = edge
        if do.bounds is not None:
            of_lowest, of_middle, places = do.bounds
            least = np.minimum(of_lowest[first], of_lowest[longer])
            at = places[edge] + np.minimum(least, of_middle[third])
        np.add.at(do.counts, at, 1)


@runs
def _list_triangles(do: op.ListTriangles) -> None:
    """(u → w, v → w) for u → v, and so on."""
    edges = np.stack(_triangles(*_whole(do.oriented)))
    edge = np.concatenate(edges)
    others = np.concatenate([np.roll(edges, -turn, axis=0)[1:].T for turn in range(3)])
    kept = (edge >= do.interval.first_edge) & (edge < do.interval.end_edge)
    listed = others[kept][np.argsort(edge[kept], kind="stable")]
    do.lists.others[: len(listed)] = listed


@runs
def _lower_bounds(do: op.LowerBounds) -> tuple[int, int]:
    """The highest supported bound is the h-index of the least bounds of the other two edges
    (Sariyüce et al., "Local algorithms for hierarchical dense subgraph discovery", PVLDB 2018).
    """
    bounds, marks, (starts, all_others) = do.bounds, do.marks, do.lists
    examined = fallen = 0
    for edge in range(do.interval.first_edge, do.interval.end_edge):
        if not marks[edge]:
            continue
        marks[edge] = 0
        examined += 1
        place, old = edge - do.interval.first_edge, int(bounds[edge])
        others = all_others[starts[place] : starts[place + 1]]
        supported = _h_index(bounds[others].min(axis=1, initial=old), old)
        if supported >= old:
            continue
        fallen += 1
        do.falls[0] += 1
        do.falls[edge + 1] = do.falls[0]
        bounds[edge] = supported if do.by_bisection else old - 1
        sides = others.ravel()
        marks[sides[(bounds[sides] > bounds[edge]) & (bounds[sides] <= old)]] = 1
        marks[edge] = 1
    return examined, fallen


def _whole(oriented: Csr) -> tuple[op.RowWindow, op.RowWindow]:
    window = op.RowWindow(0, len(oriented.row_lengths), oriented)
    return window, window


@runs
def _core_numbers(do: op.CoreNumbers) -> tuple[Array, Array]:
    """Peeling: while a vertex has at most k neighbours left, it goes, and its number is k."""
    lists = do.lists
    degree = lists.row_lengths.astype(np.int64)
    core, left, k = np.zeros(len(degree), np.int32), np.ones(len(degree), bool), 0
    order = [np.zeros(0, np.int32)]
    while left.any():
        k = max(k, int(degree[left].min()))
        gone = np.flatnonzero(left & (degree <= k))
        core[gone], left[gone] = k, False
        order.append(gone.astype(np.int32))
        _, slots = entries_of(lists, gone)
        degree -= np.bincount(lists.column_indices[slots], minlength=len(degree))
    return core, np.concatenate(order)


@runs
def _core_candidates(do: op.CoreCandidates) -> tuple[Array, Array]:
    """C, of the whole graph."""
    bounds, order = do.bounds, do.places
    rows, neighbours = do.near.of(np.arange(len(bounds), dtype=np.int32))
    follows = order[neighbours] > order[rows]
    same = bounds[neighbours] == bounds[rows]
    without = (bounds[neighbours] > bounds[rows]) | (same & follows)
    chosen, count = np.zeros(len(bounds), bool), -1
    while int(chosen.sum()) > count:
        count = int(chosen.sum())
        counted = without | (same & chosen[neighbours])
        chosen = np.bincount(rows[counted], minlength=len(bounds)) > bounds
    many = np.bincount(rows[without], minlength=len(bounds)) > bounds
    return np.flatnonzero(chosen).astype(np.int32), do.suspects[many[do.suspects]]


@runs
def _lower_cores(do: op.LowerCores) -> int:
    """bound = min(bound, h-index of the neighbours' bounds)."""
    lists, bounds, fallen = do.lists, do.bounds, 0
    for v in do.rows.order.tolist():
        _, slots = entries_of(lists, np.array([v]))
        low = _h_index(bounds[lists.column_indices[slots]], int(bounds[v]))
        if low < bounds[v]:
            bounds[v], do.blocks[v >> do.shift] = low, do.now
            fallen += 1
    return fallen


@as_ieee
class ReferenceGenerate(GenerateOperations):
    def __init__(self, device: DeviceOperations) -> None:
        self._device = device

    def random_numbers(self, start: np.uint64, skipped: int, count: int) -> Array:
        """SplitMix64 of a counter: see liverank_gpu.operations.generate."""
        numbers = np.empty(count, np.uint64)
        fill_random(start, skipped, numbers)
        return numbers

    def preferential_attachment(
        self, start: np.uint64, vertices: int, edges_per_vertex: int, threshold: np.uint64
    ) -> Array:
        """The copy model (Alam and Perumalla, ICPP 2017) of
        liverank_gpu.generate.graphs, one vertex after the other.
        """
        d = edges_per_vertex
        self._device.require("the generated graph", 4 * (vertices - d) * d)
        links = self._device.allocate("the generated graph", (vertices - d) * d, np.int32)
        links = links.reshape(-1, d)
        self._attach(links, d, vertices, start, threshold)
        return links

    def processors(self) -> tuple[int, int]:
        return 1, 1

    @runs
    def _execute_copy_model(self, do: ExecuteCopyModel) -> Array:
        """Any number of threads take turns, a vertex each: so nothing waits."""
        self._attach(do.links, do.first, do.last, do.start, do.threshold)
        return np.zeros(3, np.int64)

    def _attach(
        self, links: Array, first: int, last: int, start: np.uint64, threshold: np.uint64
    ) -> None:
        d = links.shape[1]
        for v in range(first, last):
            keys = self.random_numbers(start, v * d, d).tolist()
            row = list[int]()
            for key in keys:
                candidate = -1
                while candidate < 0 or candidate in row:
                    draws = self.random_numbers(np.uint64(key), 0, 3).tolist()
                    key = (key + 3 * int(GOLDEN_GAMMA)) % 2**64
                    candidate = _below(draws[0], v)
                    if draws[1] >> 11 < int(threshold):
                        continue
                    if candidate >= d:
                        candidate = int(links[candidate - d, _below(draws[2], d)])
                    elif d > 1:
                        other = _below(draws[2], d - 1)
                        candidate = other + (other >= candidate)
                row.append(candidate)
            links[v - d] = row

    def uniform(self, start: np.uint64, vertices: int, edges: int) -> tuple[Array, Array]:
        """A Feistel network over 2·bits bits, again and again until the number is that of a pair
        (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
        """
        self._device.require("the generated graph", 8 * edges)
        pairs, bits = vertices * (vertices - 1), feistel_bits(vertices)
        half, mask = np.uint64(bits), np.uint64((1 << bits) - 1)
        numbers = np.arange(edges, dtype=np.uint64)
        walking = np.arange(edges)
        while len(walking):
            left, right = numbers[walking] >> half, numbers[walking] & mask
            for turn in range(FEISTEL_ROUNDS):
                index = np.uint64(turn << bits) + right + np.uint64(1)
                left, right = right, left ^ mixed(start + index * GOLDEN_GAMMA) & mask
            numbers[walking] = left << half | right
            walking = walking[numbers[walking] >= pairs]
        source, target = np.divmod(numbers.astype(np.int64), max(vertices - 1, 1))
        return source.astype(np.int32), (target + (target >= source)).astype(np.int32)


def _below(number: int, limit: int) -> int:
    """⌊number·limit / 2⁶⁴⌋: an integer in 0 … limit - 1 from a 64-bit number."""
    return number * limit >> 64
