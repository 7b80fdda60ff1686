"""Triangles, cores and generators in NumPy."""

from __future__ import annotations

import numpy as np

from liverank_gpu.backends.reference.rows import as_ieee, entries_of
from liverank_gpu.native.in_numpy import GOLDEN_GAMMA, fill_random, mixed
from liverank_gpu.operations.analysis import (
    CoreOperations,
    EdgeBounds,
    Interval,
    RowWindow,
    TriangleLists,
    TriangleOperations,
)
from liverank_gpu.operations.csr import Csr, Rows
from liverank_gpu.operations.device import Array, DeviceOperations
from liverank_gpu.operations.generate import FEISTEL_ROUNDS, GenerateOperations, feistel_bits


def _triangles(lowest: RowWindow, middle: RowWindow) -> tuple[Array, Array, Array]:
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


@as_ieee
class ReferenceTriangles(TriangleOperations):
    """See TriangleOperations."""

    def count_triangles(self, oriented: Csr, sources: Array, every_edge: bool) -> Array:
        """Each triangle counts for u → v and u → w, and for v → w if every edge counts."""
        edges = _triangles(*_whole(oriented))[: 3 if every_edge else 2]
        return np.bincount(np.concatenate(edges), minlength=len(sources)).astype(np.int32)

    def count_between(self, lowest: RowWindow, middle: RowWindow, triangles: Array) -> None:
        """Each triangle counts for u, v and w."""
        first, longer, _ = _triangles(lowest, middle)
        u = np.arange(lowest.first_row, lowest.end_row)
        places, slots = entries_of(lowest.lists, u)
        row_of_slot = np.zeros(len(lowest.lists.column_indices), np.int64)
        row_of_slot[slots] = u[places]
        targets = lowest.lists.column_indices
        for corner in (row_of_slot[first], targets[first], targets[longer]):
            np.add.at(triangles, corner, 1)

    def count_entries_between(
        self,
        lowest: RowWindow,
        middle: RowWindow,
        of_lowest: bool,
        counts: Array,
        bounds: EdgeBounds | None = None,
    ) -> None:
        """counts[places[edge] + least bound of the triangle's edges] += 1."""
        first, longer, third = _triangles(lowest, middle)
        for edge in (first, longer) if of_lowest else (third,):
            at = edge
            if bounds is not None:
                least = np.minimum(bounds.of_lowest[first], bounds.of_lowest[longer])
                at = bounds.places[edge] + np.minimum(least, bounds.of_middle[third])
            np.add.at(counts, at, 1)

    def list_triangles(
        self,
        oriented: Csr,
        sources: Array,  # noqa: ARG002
        interval: Interval,
        lists: TriangleLists,
    ) -> None:
        """(u → w, v → w) for u → v, and so on."""
        edges = np.stack(_triangles(*_whole(oriented)))
        edge = np.concatenate(edges)
        others = np.concatenate([np.roll(edges, -turn, axis=0)[1:].T for turn in range(3)])
        kept = (edge >= interval.first_edge) & (edge < interval.end_edge)
        lists.others[: np.count_nonzero(kept)] = others[kept][np.argsort(edge[kept], kind="stable")]

    def lower_bounds(
        self,
        interval: Interval,
        lists: TriangleLists,
        by_bisection: bool,
        bounds: Array,
        marks: Array,
    ) -> tuple[int, int]:
        """The highest supported bound is the h-index of the least bounds of the other two edges
        (Sariyüce et al., "Local algorithms for hierarchical dense subgraph discovery", PVLDB 2018).
        """
        examined = fallen = 0
        for edge in range(interval.first_edge, interval.end_edge):
            if not marks[edge]:
                continue
            marks[edge] = 0
            examined += 1
            place, old = edge - interval.first_edge, int(bounds[edge])
            others = lists.others[lists.starts[place] : lists.starts[place + 1]]
            supported = _h_index(bounds[others].min(axis=1, initial=old), old)
            if supported >= old:
                continue
            fallen += 1
            bounds[edge] = supported if by_bisection else old - 1
            sides = others.ravel()
            marks[sides[(bounds[sides] > bounds[edge]) & (bounds[sides] <= old)]] = 1
            marks[edge] = 1
        return examined, fallen


def _whole(oriented: Csr) -> tuple[RowWindow, RowWindow]:
    window = RowWindow(0, len(oriented.row_lengths), oriented)
    return window, window


@as_ieee
class ReferenceCores(CoreOperations):
    """See CoreOperations."""

    def core_numbers(self, lists: Csr) -> Array:
        """Peeling: while a vertex has at most k neighbours left, it goes, and its number is k."""
        degree = lists.row_lengths.astype(np.int64)
        core, left, k = np.zeros(len(degree), np.int32), np.ones(len(degree), bool), 0
        while left.any():
            k = max(k, int(degree[left].min()))
            gone = np.flatnonzero(left & (degree <= k))
            core[gone], left[gone] = k, False
            _, slots = entries_of(lists, gone)
            degree -= np.bincount(lists.column_indices[slots], minlength=len(degree))
        return core

    def lower_cores(
        self, lists: Csr, rows: Rows, bounds: Array, blocks: Array, shift: int, now: int
    ) -> int:
        """bound = min(bound, h-index of the neighbours' bounds)."""
        fallen = 0
        for v in rows.order.tolist():
            _, slots = entries_of(lists, np.array([v]))
            low = _h_index(bounds[lists.column_indices[slots]], int(bounds[v]))
            if low < bounds[v]:
                bounds[v], blocks[v >> shift] = low, now
                fallen += 1
        return fallen


@as_ieee
class ReferenceGenerate(GenerateOperations):
    """See GenerateOperations."""

    def __init__(self, device: DeviceOperations) -> None:
        self._device = device

    def random_numbers(self, start: np.uint64, skipped: int, count: int) -> Array:
        """SplitMix64 of a counter: see liverank_gpu.random_numbers."""
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
        for v in range(d, vertices):
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
        return links

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
