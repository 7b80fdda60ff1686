"""The ``cpu`` backend: NumPy arrays and parallel Numba kernels.

Work is cut into chunks of about equal rows and edges; a chunk sums in a fixed order and the chunks'
sums are added in a fixed order, so that results do not depend on the number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from gpu.backends.base import Array, Frontier, Mass, Rows, Sweep
from gpu.backends.cpu_graph import CpuGraphOperations
from gpu.backends.parallel import both_ways

if TYPE_CHECKING:
    from gpu.adjacency import Adjacency
    from gpu.graph import Graph

_BLOCK = 1024
"""Terms added one after the other before their sum joins the row's: keeps rounding in long rows
small.
"""

_CHUNK_WORK = 1 << 15
"""Rows plus edges of a chunk."""

_NO_FLAGS = np.zeros(0, np.uint8)


def _kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a kernel whose first two parameters are the order and groups of Rows.

    One group is worked on by the calling thread itself.
    """
    parallel, alone = both_ways(function)

    @wraps(function)
    def call(order: Array, groups: Array, *arguments: Any) -> Any:
        return (alone if len(groups) <= 2 else parallel)(order, groups, *arguments)

    return call


@njit(inline="always")
def _row_sum(pool, begin, end, contributions):  # type: ignore[no-untyped-def]
    total = 0.0
    while begin < end:
        stop = min(begin + _BLOCK, end)
        block = 0.0
        for slot in range(begin, stop):
            block += contributions[pool[slot]]
        total += block
        begin = stop
    return total


@_kernel
def _pull(  # type: ignore[no-untyped-def]
    order,
    groups,
    start,
    length,
    pool,
    loop,
    degree,
    values,
    contributions,
    base,
    damping,
    new_values,
    new_contributions,
    affected,
    spreading,
    prune_tolerance,
    frontier_tolerance,
    sums,
):
    tracked = len(spreading) > 0
    for group in prange(len(groups) - 1):
        residual_l1 = 0.0
        residual_sum = 0.0
        largest_change = 0.0
        total = 0.0
        dangling = 0.0
        first = groups[group]
        while first < groups[group + 1]:
            last = min(first + _BLOCK, groups[group + 1])
            block_l1 = 0.0
            block_sum = 0.0
            block_total = 0.0
            block_dangling = 0.0
            for place in range(first, last):
                v = order[place]
                arriving = _row_sum(pool, start[v], start[v] + length[v], contributions)
                d = degree[v]
                leaving = 1.0 - damping * loop[v] / d if d > 0 else 1.0
                old = values[v]
                residual = base + damping * arriving - leaving * old
                new = old + residual / leaving
                new_values[v] = new
                new_contributions[v] = new / d if d > 0 else 0.0
                change = abs(new - old)
                block_l1 += abs(residual)
                block_sum += residual
                block_total += new
                if d == 0:
                    block_dangling += new
                largest_change = max(largest_change, change)
                if tracked:
                    relative = change / max(new, old)
                    if relative <= prune_tolerance:
                        affected[v] = 0
                    if relative > frontier_tolerance:
                        spreading[v] = 1
            residual_l1 += block_l1
            residual_sum += block_sum
            total += block_total
            dangling += block_dangling
            first = last
        sums[group, 0] = residual_l1
        sums[group, 1] = residual_sum
        sums[group, 2] = largest_change
        sums[group, 3] = total
        sums[group, 4] = dangling


@_kernel
def _expand(order, groups, start, length, pool, loop, flags):  # type: ignore[no-untyped-def]
    for group in prange(len(groups) - 1):
        for place in range(groups[group], groups[group + 1]):
            u = order[place]
            if loop[u]:
                flags[u] = 1
            for slot in range(start[u], start[u] + length[u]):
                flags[pool[slot]] = 1


class CpuBackend(CpuGraphOperations):
    """All cores of this machine."""

    name = "cpu"
    xp = np

    def to_device(self, values: NDArray[Any]) -> Array:
        return np.array(values)

    def to_host(self, values: Array) -> NDArray[Any]:
        return np.array(values)

    def synchronize(self) -> None:
        return

    def memory_available(self) -> int:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def partition(self, length: Array, order: Array, classes: Array) -> NDArray[np.int64]:  # noqa: ARG002
        order[:] = np.arange(len(length), dtype=np.int32)
        return _chunked(order, length).groups

    def unbalanced(self, adjacency: Adjacency) -> bool:
        work = adjacency.packed + adjacency.vertices
        return 8 * adjacency.strayed > work or adjacency.last_group > 2 * _CHUNK_WORK

    def compact(self, flags: Array, adjacency: Adjacency) -> Rows:
        order = np.flatnonzero(flags).astype(np.int32)
        return _chunked(order, adjacency.length[order])

    def pull(
        self,
        graph: Graph,
        rows: Rows,
        values: Array,
        contributions: Array,
        base: float,
        damping: float,
        new_values: Array,
        new_contributions: Array,
        frontier: Frontier | None = None,
    ) -> Sweep:
        sums = np.zeros((len(rows.groups) - 1, 5))
        _pull(
            rows.order,
            rows.groups,
            graph.incoming.start,
            graph.incoming.length,
            graph.incoming.pool,
            graph.loop,
            graph.degree,
            values,
            contributions,
            base,
            damping,
            new_values,
            new_contributions,
            frontier.affected if frontier else _NO_FLAGS,
            frontier.spreading if frontier else _NO_FLAGS,
            frontier.prune_tolerance if frontier else -1.0,
            frontier.frontier_tolerance if frontier else -1.0,
            sums,
        )
        residual_l1, residual_sum, _, total, dangling = sums.sum(axis=0).tolist()
        largest_change = float(sums[:, 2].max(initial=0.0))
        return Sweep(residual_l1, residual_sum, largest_change, Mass(total, dangling))

    def expand(self, graph: Graph, rows: Rows, flags: Array) -> None:
        outgoing = graph.outgoing
        _expand(
            rows.order,
            rows.groups,
            outgoing.start,
            outgoing.length,
            outgoing.pool,
            graph.loop,
            flags,
        )

    def top_k(self, values: Array, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        if k == 0:
            return np.empty(0, np.int64), np.empty(0)
        least = np.partition(values, len(values) - k)[len(values) - k]
        candidates = np.flatnonzero(values >= least)
        # a stable sort of ascending ids orders equal values by id
        best = candidates[np.argsort(-values[candidates], kind="stable")[:k]]
        return best, values[best]

    def sum_depth(self, longest_row: int) -> int:
        return min(longest_row, _BLOCK) + longest_row // _BLOCK


def _chunked(order: NDArray[np.int32], length: NDArray[np.int32]) -> Rows:
    work = np.cumsum(length, dtype=np.int64) + np.arange(1, len(length) + 1)
    chunks = max(1, -(-int(work[-1]) // _CHUNK_WORK)) if len(work) else 0
    limits = np.arange(1, chunks + 1) * _CHUNK_WORK
    groups = np.concatenate([[0], np.searchsorted(work, limits[:-1]), [len(order)]])
    if len(order) == 0:
        return Rows(order, np.zeros(2, np.int64))
    return Rows(order, np.unique(groups).astype(np.int64))
