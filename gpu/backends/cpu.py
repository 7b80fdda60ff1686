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

from gpu.backends.base import (
    ENDINGS,
    LISTED,
    SOLVES,
    Array,
    Frontier,
    Limits,
    Mass,
    Moved,
    Pushed,
    Relaxed,
    Residual,
    Rows,
    Sweep,
)
from gpu.backends.cpu_graph import CpuGraphOperations
from gpu.backends.cpu_push import (
    COUNTS,
    EDGES,
    N_LISTED,
    ROUNDS,
    SUMS,
    VERTICES,
    collect,
    push,
    refresh,
    spread,
)
from gpu.backends.parallel import both_ways, locked, sequential

if TYPE_CHECKING:
    from gpu.adjacency import Adjacency
    from gpu.graph import Applied, Graph

_BLOCK = 1024
"""Terms added one after the other before their sum joins the row's: keeps rounding in long rows
small.
"""

_CHUNK_WORK = 1 << 15
"""Rows plus edges of a chunk."""

_STRIPE = 1 << 12
"""Vertices that one core takes at a time in passes over all."""

_LAST_DIGITS = 2.0**-21
"""What four steps of a float32 are at most, relative to it. In `pull` a change by no more counts as
none: rounding alone can make changes of that size go on for ever.
"""

_NO_FLAGS = np.zeros(0, np.uint8)
_NO_MARKS = np.zeros(0, np.int32)
_NO_VALUES = np.zeros(0)


def _kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a kernel whose first parameter is the groups of Rows. One group is worked on by the
    calling thread itself.
    """
    parallel, alone = both_ways(function)

    @wraps(function)
    def call(groups: Array, *arguments: Any) -> Any:
        return (alone if len(groups) <= 2 else parallel)(groups, *arguments)

    return call


def _vertex_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a kernel whose first parameter is an array over the vertices it works on; few are
    worked on by the calling thread itself.
    """
    parallel, alone = both_ways(function)

    @wraps(function)
    def call(over: Array, *arguments: Any) -> Any:
        return (alone if len(over) <= _STRIPE else parallel)(over, *arguments)

    return call


_spread = locked(spread)
_push = locked(push)
_refresh = locked(refresh)
_collect = locked(collect)


@njit(inline="always")
def _row_sum(pool, begin, end, contributions):  # type: ignore[no-untyped-def]
    total = 0.0
    while begin < end:
        stop = min(begin + _BLOCK, end)
        # four sums, since an addition that needs the one before it has to wait for it
        first = 0.0
        second = 0.0
        third = 0.0
        fourth = 0.0
        while begin + 4 <= stop:
            first += contributions[pool[begin]]
            second += contributions[pool[begin + 1]]
            third += contributions[pool[begin + 2]]
            fourth += contributions[pool[begin + 3]]
            begin += 4
        while begin < stop:
            first += contributions[pool[begin]]
            begin += 1
        total += (first + second) + (third + fourth)
    return total


@njit(inline="always")
def _divided_sum(pool, begin, end, values, degree):  # type: ignore[no-untyped-def]
    total = 0.0
    while begin < end:
        stop = min(begin + _BLOCK, end)
        block = 0.0
        for slot in range(begin, stop):
            block += np.float64(values[pool[slot]]) / degree[pool[slot]]
        total += block
        begin = stop
    return total


@_kernel
def _pull(  # type: ignore[no-untyped-def]
    groups,
    order,
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
    residuals,
    affected,
    spreading,
    prune_tolerance,
    frontier_tolerance,
    last_digits,
    sums,
):
    tracked = len(spreading) > 0
    summed = len(contributions) > 0
    wanted = len(residuals) > 0
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
                if summed:
                    arriving = _row_sum(pool, start[v], start[v] + length[v], contributions)
                else:
                    arriving = _divided_sum(pool, start[v], start[v] + length[v], values, degree)
                d = degree[v]
                old = np.float64(values[v])
                leaving = 1.0 - damping / d if loop[v] else 1.0
                residual = base + damping * arriving - leaving * old
                new_values[v] = old + (residual / leaving if loop[v] else residual)
                new = np.float64(new_values[v])
                if summed:
                    new_contributions[v] = new / d if d > 0 else 0.0
                if wanted:
                    residuals[v] = residual
                step = abs(new - old)
                change = step if step > last_digits * new else 0.0
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


@_vertex_kernel
def _take_all(degree, loop, damping, values, r, contributions, sums):  # type: ignore[no-untyped-def]
    single = values.itemsize == 4
    for stripe in prange(len(sums)):
        arriving = 0.0
        total = 0.0
        for v in range(stripe * _STRIPE, min((stripe + 1) * _STRIPE, len(r))):
            d = degree[v]
            old = np.float64(values[v])
            residual = np.float64(r[v])
            leaving = 1.0
            wanted = residual
            # a division costs as much as all else
            if loop[v]:
                leaving = 1.0 - damping / d
                wanted = residual / leaving
            contribution = np.float32(0.0)
            if d > 0:
                contribution = np.float32(wanted / d)
                wanted = np.float64(contribution) * d
            values[v] = old + wanted
            taken = np.float64(values[v]) - old
            r[v] = residual - leaving * taken
            if single and d > 0:
                contribution = np.float32(taken / d)
            contributions[v] = contribution
            arriving += damping * np.float64(contribution) * (d - loop[v]) + r[v]
            total += taken
        sums[stripe, 0] = arriving
        sums[stripe, 1] = total


@_kernel
def _gather(groups, start, length, pool, contributions, damping, shift, r, sums):  # type: ignore[no-untyped-def]
    for group in prange(len(groups) - 1):
        l1 = 0.0
        total = 0.0
        first = groups[group]
        while first < groups[group + 1]:
            last = min(first + _BLOCK, groups[group + 1])
            block_l1 = 0.0
            block_total = 0.0
            for v in range(first, last):
                arriving = _row_sum(pool, start[v], start[v] + length[v], contributions)
                r[v] = damping * arriving + r[v] - shift
                residual = np.float64(r[v])
                block_l1 += abs(residual)
                block_total += residual
            l1 += block_l1
            total += block_total
            first = last
        sums[group, 0] = l1
        sums[group, 1] = total


@_vertex_kernel
def _flag(vertices, start, length, pool, loop, flags):  # type: ignore[no-untyped-def]
    for place in prange(len(vertices)):
        u = vertices[place]
        if loop[u]:
            flags[u] = 1
        for slot in range(start[u], start[u] + length[u]):
            flags[pool[slot]] = 1


@sequential
def _flag_few(vertices, start, length, pool, loop, flags, fresh):  # type: ignore[no-untyped-def]
    found = 0
    for u in vertices:
        if loop[u] and not flags[u]:
            flags[u] = 1
            fresh[found] = u
            found += 1
        for slot in range(start[u], start[u] + length[u]):
            w = pool[slot]
            if not flags[w]:
                flags[w] = 1
                fresh[found] = w
                found += 1
    return found


@_kernel
def _look_back(groups, order, start, length, pool, frontier, flags):  # type: ignore[no-untyped-def]
    for group in prange(len(groups) - 1):
        for place in range(groups[group], groups[group + 1]):
            v = order[place]
            if flags[v]:
                continue
            for slot in range(start[v], start[v] + length[v]):
                if frontier[pool[slot]]:
                    flags[v] = 1
                    break


class CpuBackend(CpuGraphOperations):
    """All cores of this machine."""

    name = "cpu"
    xp = np
    push_cost = 8.0

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

    def rows_of(self, vertices: Array, adjacency: Adjacency) -> Rows:
        order = np.sort(vertices).astype(np.int32)
        return _chunked(order, adjacency.length[order])

    def pull(
        self,
        graph: Graph,
        rows: Rows,
        values: Array,
        contributions: Array | None,
        base: float,
        damping: float,
        new_values: Array,
        new_contributions: Array | None,
        residual: Array | None = None,
        frontier: Frontier | None = None,
    ) -> Sweep:
        sums = np.zeros((len(rows.groups) - 1, 5))
        _pull(
            rows.groups,
            rows.order,
            graph.incoming.start,
            graph.incoming.length,
            graph.incoming.pool,
            graph.loop,
            graph.degree,
            values,
            _NO_VALUES if contributions is None else contributions,
            base,
            damping,
            new_values,
            _NO_VALUES if contributions is None else new_contributions,
            new_values[:0] if residual is None else residual,
            frontier.affected if frontier else _NO_MARKS,
            frontier.spreading if frontier else _NO_FLAGS,
            frontier.prune_tolerance if frontier else -1.0,
            frontier.frontier_tolerance if frontier else -1.0,
            _LAST_DIGITS if values.dtype == np.float32 else 0.0,
            sums,
        )
        residual_l1, residual_sum, _, total, dangling = sums.sum(axis=0).tolist()
        largest_change = float(sums[:, 2].max(initial=0.0))
        return Sweep(residual_l1, residual_sum, largest_change, Mass(total, dangling))

    def relax(
        self,
        graph: Graph,
        values: Array,
        residual: Array,
        contributions: Array,
        damping: float,
        balance: bool,
    ) -> Relaxed:
        taken = np.zeros((-(-graph.vertices // _STRIPE), 2))
        _take_all(
            graph.degree,
            graph.loop,
            damping,
            values,
            residual,
            contributions,
            taken,
        )
        arriving, total = taken.sum(axis=0).tolist()
        shift = arriving / graph.vertices if balance else 0.0
        incoming = graph.incoming
        sums = np.zeros((len(incoming.rows.groups) - 1, 2))
        # all rows are in the order of their ids, see `partition`
        _gather(
            incoming.rows.groups,
            incoming.start,
            incoming.length,
            incoming.pool,
            contributions,
            damping,
            shift,
            residual,
            sums,
        )
        l1, residual_sum = sums.sum(axis=0).tolist()
        return Relaxed(l1, residual_sum, total, shift)

    def refresh(
        self,
        graph: Graph,
        first: int,
        last: int,
        values: Array,
        base: float,
        damping: float,
        residual: Residual,
    ) -> Moved:
        counts, sums = _tally(residual)
        incoming = graph.incoming
        _refresh(
            first,
            last,
            incoming.start,
            incoming.length,
            incoming.pool,
            graph.loop,
            graph.degree,
            values,
            base,
            damping,
            residual.values,
            residual.marks,
            residual.floor,
            residual.candidates,
            counts,
            sums,
        )
        return _moved(residual, counts, sums)

    def perturb(
        self,
        graph: Graph,
        applied: Applied,
        values: Array,
        damping: float,
        residual: Residual,
        most_edges: int,
    ) -> Moved | None:
        sources, old_degree = applied.sources, applied.old_degree
        degree = graph.degree[sources]
        edges = int(degree.sum(dtype=np.int64))
        if edges + len(applied.removed_targets) + len(applied.added_targets) > most_edges:
            return None
        flow = damping * values[sources].astype(np.float64)
        old_share = np.where(old_degree > 0, flow / np.maximum(old_degree, 1), 0.0)
        shares = np.where(degree > 0, flow / np.maximum(degree, 1), 0.0) - old_share
        looped = graph.loop[sources] != 0
        removed = old_share[np.searchsorted(sources, applied.removed_sources)]
        added = old_share[np.searchsorted(sources, applied.added_sources)]
        targets = (applied.removed_targets, applied.added_targets, sources[looped])
        return self.spread(
            graph,
            residual,
            sources,
            shares,
            np.concatenate(targets),
            np.concatenate((-removed, added, shares[looped])),
        )

    def spread(
        self,
        graph: Graph,
        residual: Residual,
        sources: Array,
        shares: Array,
        targets: Array,
        amounts: Array,
    ) -> Moved:
        counts, sums = _tally(residual)
        outgoing = graph.outgoing
        _spread(
            sources,
            shares,
            targets,
            amounts,
            outgoing.start,
            outgoing.length,
            outgoing.pool,
            residual.values,
            residual.marks,
            residual.floor,
            residual.candidates,
            counts,
            sums,
        )
        return _moved(residual, counts, sums)

    def push(
        self, graph: Graph, values: Array, damping: float, residual: Residual, limits: Limits
    ) -> Pushed:
        counts, sums = _tally(residual)
        outgoing = graph.outgoing
        ended, threshold = _push(
            outgoing.start,
            outgoing.length,
            outgoing.pool,
            graph.loop,
            graph.degree,
            values,
            residual.values,
            residual.marks,
            residual.floor,
            residual.candidates,
            residual.solve % SOLVES,
            damping,
            limits.l1,
            limits.sum,
            limits.total,
            limits.goal,
            limits.threshold,
            limits.edge_weight,
            limits.round_edges,
            limits.edges,
            limits.rounds,
            counts,
            sums,
        )
        rounds, vertices = int(counts[ROUNDS]), int(counts[VERTICES])
        change = _moved(residual, counts, sums)
        return Pushed(ENDINGS[ended], threshold, rounds, vertices, change)

    def collect(self, residual: Residual, floor: float) -> None:
        residual.listed = _collect(residual.values, residual.marks, floor, residual.candidates)
        residual.floor = floor
        _without_overflow(residual)

    def expand(self, graph: Graph, vertices: Array, flags: Array) -> Array:
        outgoing, vertices = graph.outgoing, vertices.astype(np.int32)
        edges = int(outgoing.length[vertices].sum(dtype=np.int64)) + len(vertices)
        lists = (outgoing.start, outgoing.length, outgoing.pool, graph.loop)
        if edges < min(_CHUNK_WORK, len(flags)):
            fresh = np.empty(edges, np.int32)
            return fresh[: _flag_few(vertices, *lists, flags, fresh)]
        before = flags.copy()
        _flag(vertices, *lists, flags)
        return np.flatnonzero(flags != before).astype(np.int32)

    def reached(self, graph: Graph, frontier: Array, flags: Array) -> Array:
        incoming = graph.incoming
        before = flags.copy()
        _look_back(
            incoming.rows.groups,
            incoming.rows.order,
            incoming.start,
            incoming.length,
            incoming.pool,
            frontier,
            flags,
        )
        return np.flatnonzero(flags != before).astype(np.int32)

    def top_k(self, values: Array, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        if k == 0:
            return np.empty(0, np.int64), np.empty(0)
        least = np.partition(values, len(values) - k)[len(values) - k]
        candidates = np.flatnonzero(values >= least)
        # a stable sort of ascending ids orders equal values by id
        best = candidates[np.argsort(-values[candidates], kind="stable")[:k]]
        return best, values[best].astype(np.float64)

    def sum_depth(self, longest_row: int) -> int:
        return min(longest_row, _BLOCK) + longest_row // _BLOCK


def _tally(residual: Residual) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    counts = np.zeros(COUNTS, np.int64)
    counts[N_LISTED] = residual.listed
    return counts, np.zeros(SUMS)


def _moved(residual: Residual, counts: NDArray[np.int64], sums: NDArray[np.float64]) -> Moved:
    residual.listed = int(counts[N_LISTED])
    _without_overflow(residual)
    l1, residual_sum, total, moved, magnitude = sums.tolist()
    return Moved(l1, residual_sum, total, moved, magnitude, int(counts[EDGES]))


def _without_overflow(residual: Residual) -> None:
    """More candidates than there is room for are no candidates."""
    if residual.listed > len(residual.candidates):
        residual.marks &= ~LISTED
        residual.listed, residual.floor = 0, np.inf


def _chunked(order: NDArray[np.int32], length: NDArray[np.int32]) -> Rows:
    work = np.cumsum(length, dtype=np.int64) + np.arange(1, len(length) + 1)
    chunks = max(1, -(-int(work[-1]) // _CHUNK_WORK)) if len(work) else 0
    limits = np.arange(1, chunks + 1) * _CHUNK_WORK
    groups = np.concatenate([[0], np.searchsorted(work, limits[:-1]), [len(order)]])
    if len(order) == 0:
        return Rows(order, np.zeros(2, np.int64))
    return Rows(order, np.unique(groups).astype(np.int64))
