"""The ``cpu`` backend: NumPy arrays and parallel Numba kernels.

Work is cut into chunks of about equal rows and edges; a chunk sums in a fixed order and the chunks'
sums are added in a fixed order, so that results do not depend on the number of threads.
"""

from __future__ import annotations

import os
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpu.backends.base import (
    ENDINGS,
    LISTED,
    SOLVES,
    Array,
    Event,
    Known,
    Limits,
    Moved,
    Pushed,
    Residual,
    Rows,
)
from gpu.backends.cpu_columns import COLUMNS, NARROW, relax_columns
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
from gpu.backends.cpu_sweep import GROUP, NOTHING_KNOWN, STRIPE, CpuSweepOperations
from gpu.backends.parallel import kernel, locked, sequential

if TYPE_CHECKING:
    from gpu.adjacency import Adjacency
    from gpu.graph import Applied, Graph

_CHUNK_WORK = 1 << 15
"""Rows plus edges of a chunk."""

_FEW = 64
"""See _no_more_than."""

_spread = locked(spread)
_push = locked(push)
_refresh = locked(refresh)
_collect = locked(collect)
_relax_columns = kernel(GROUP)(relax_columns)


@kernel(STRIPE)
def _flag(first, last, vertices, start, length, pool, loop, flags):  # type: ignore[no-untyped-def]
    for place in range(first, last):
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


@kernel(GROUP)
def _look_back(  # type: ignore[no-untyped-def]
    first, last, groups, order, start, length, pool, loop, frontier, flags
):
    for group in range(first, last):
        for place in range(groups[group], groups[group + 1]):
            v = order[place]
            if flags[v]:
                continue
            if loop[v] and frontier[v]:
                flags[v] = 1
                continue
            for slot in range(start[v], start[v] + length[v]):
                if frontier[pool[slot]]:
                    flags[v] = 1
                    break


class _Moment:
    """An event where work is done as it is given out: it is reached as it is recorded."""

    __slots__ = ("reached",)

    def record(self) -> None:
        self.reached = perf_counter()

    def synchronize(self) -> None:
        return


class CpuBackend(CpuSweepOperations):
    """All cores of this machine."""

    name = "cpu"
    xp = np
    push_cost = 8.0
    sweep_overhead = 1e4
    column_share = np.float32
    least_columns = 4

    def to_device(self, values: NDArray[Any]) -> Array:
        return np.array(values)

    def to_host(self, values: Array) -> NDArray[Any]:
        return np.array(values)

    def synchronize(self) -> None:
        return

    def event(self) -> Event:
        return _Moment()

    def seconds_between(self, first: Any, last: Any) -> float:
        seconds: float = last.reached - first.reached
        return seconds

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
        _flag(len(vertices), vertices, *lists, flags)
        return np.flatnonzero(flags != before).astype(np.int32)

    def reached(self, graph: Graph, frontier: Array, flags: Array) -> Array:
        incoming = graph.incoming
        before = flags.copy()
        _look_back(
            len(incoming.rows.groups) - 1,
            incoming.rows.groups,
            incoming.rows.order,
            incoming.start,
            incoming.length,
            incoming.pool,
            graph.loop,
            frontier,
            flags,
        )
        return np.flatnonzero(flags != before).astype(np.int32)

    def top_k(self, values: Array, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        if k == 0:
            return np.empty(0, np.int64), np.empty(0)
        candidates = np.flatnonzero(values >= _no_more_than(values, k))
        if len(candidates) > 2 * k:
            least = np.partition(values[candidates], len(candidates) - k)[len(candidates) - k]
            candidates = candidates[values[candidates] >= least]
        # a stable sort of ascending ids orders equal values by id
        best = candidates[np.argsort(-values[candidates], kind="stable")[:k]]
        return best, values[best].astype(np.float64)

    def column_count(self, wanted: int) -> int:
        return min(max(wanted, NARROW), COLUMNS)

    def relax_columns(
        self,
        graph: Graph,
        rows: Rows,
        values: Array,
        left: Array,
        shares: Array,
        new_shares: Array,
        seeded: Array,
        damping: float,
        known: Known | None,
        amounts: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        known = known or NOTHING_KNOWN
        amounts = np.pad(amounts, (0, values.shape[1] - len(amounts)))
        incoming, columns = graph.incoming, values.shape[1]
        sums = np.zeros((len(rows.groups) - 1, 5, columns))
        _relax_columns(
            len(rows.groups) - 1,
            rows.groups,
            rows.order,
            incoming.start,
            incoming.length,
            incoming.pool,
            graph.outgoing.length,
            graph.loop,
            graph.degree,
            shares,
            seeded,
            damping,
            known.values,
            known.residual,
            known.base,
            amounts,
            values,
            left,
            new_shares,
            sums,
        )
        summed: NDArray[np.float64] = sums[:, :3].sum(axis=0)
        return summed

    def top_columns(
        self, values: Array, places: NDArray[np.int64]
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        return [
            self.top_k(np.ascontiguousarray(values[:, column]), count)
            for column, count in enumerate(places.tolist())
        ]


def _no_more_than(values: Array, k: int) -> float:
    """A number that the k-th largest is not below, and mostly not far above: the k-th largest of
    the largest of every few values; the smallest, where there are not so many.
    """
    few = max(1, min(_FEW, len(values) // k))
    whole = values[: len(values) // few * few].reshape(few, -1)
    largest = whole.max(axis=0)
    return float(np.partition(largest, len(largest) - k)[len(largest) - k])


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
