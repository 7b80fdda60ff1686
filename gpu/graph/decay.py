"""Weights that decay: an edge inserted with weight w at time t has the weight w·2^(t/half_life).

Only ratios within a row matter to the walk, so growing new weights is as good as shrinking all old
ones, and no edge has to be touched because time passes. Each row has an exponent of its own, and
its weights are stored as w·2^(t/half_life - exponent). When a batch brings the newest weight of
some row above 2^HIGHEST, such rows, and all that are on their way there, are divided by powers of
two once the batch is applied: exact, so that no probability changes. What would be below LEAST then
has expired, and the batch deletes it. An undirected edge is two arcs in rows of their own; it has
expired if either has.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gpu.graph.arcs import Arcs, Columns
from gpu.graph.packed_csr import PackedCsr
from gpu.graph.permutation import VertexPermutation
from gpu.graph.rows import rows_of
from gpu.graph.vertex_ids import NO_IDS
from gpu.operations.backend import Backend
from gpu.operations.device import Array

_SPAN = 100
LEAST = 2.0**-_SPAN
"""Weights that are smaller, in a row whose newest is at least 1, have expired."""

HIGHEST, _LOWEST = 16, 8
"""Rows whose newest weight is at least 2^_LOWEST are scaled when one is at least 2^HIGHEST."""

_CHUNK = 1 << 24
"""Slots scaled at once."""


class DecayingGraph(Protocol):
    """The parts of a graph that decay reads and scales."""

    backend: Backend
    outgoing: PackedCsr
    incoming: PackedCsr
    loop: Array
    degree: Array
    permutation: VertexPermutation
    directed: bool


class _Rows(NamedTuple):
    """The rows that insertions name.

    ids        int64[r], ascending
    place      integer[i], the row of each insertion
    outlived   bool[r], those in which an insertion makes all other weights expire
    newest     int64[r], with the insertions
    exponents  int64[r], in which the insertions are stored
    """

    ids: NDArray[np.int64]
    place: NDArray[np.integer[Any]]
    outlived: NDArray[np.bool_]
    newest: NDArray[np.int64]
    exponents: NDArray[np.int64]


class Decay:
    """The exponents of the rows of one graph, by id, on the host.

    exponents  int64[limit]
    newest     int64[limit], the exponent of the largest weight that was inserted into the row since
               it was empty
    """

    def __init__(self, half_life: float) -> None:
        self.half_life = half_life
        self.exponents = np.zeros(0, np.int64)
        self.newest = np.zeros(0, np.int64)
        self._pending = (NO_IDS,) * 5
        self._to_scale = (NO_IDS, NO_IDS)

    def _reserve(self, limit: int) -> None:
        """Covers ids below the limit."""
        missing = limit - len(self.exponents)
        if missing > 0:
            added = np.zeros(missing + limit // 4, np.int64)
            self.exponents = np.append(self.exponents, added)
            self.newest = np.append(self.newest, added)

    def restore(self, exponents: NDArray[np.int64], newest: NDArray[np.int64]) -> None:
        """Takes the arrays of a gpu.snapshot.Snapshot."""
        self.exponents, self.newest = exponents.copy(), newest.copy()

    def apply(
        self, graph: DecayingGraph, arcs: Arcs, removed: NDArray[np.int64]
    ) -> tuple[Arcs, int, int]:
        """The arcs with the weights to be stored, without insertions that are too old, and with the
        deletions of edges that have expired. Also how many edges and insertions these are.

        removed  int64[…], the vertices that the batch removes; ascending
        """
        assert arcs.weights is not None
        assert arcs.times is not None
        host = graph.backend.device.to_host
        sources, weights = (
            each if isinstance(each, np.ndarray) else host(each)
            for each in (arcs.insert[0], arcs.weights)
        )
        self._reserve(int(sources.max()) + 1)
        age = arcs.times / self.half_life
        levels = np.log2(weights.astype(np.float64)) + age
        rows = self._rows(graph, sources, levels)
        kept, both = _kept(arcs, levels >= rows.newest[rows.place] - _SPAN, host)
        if not kept.all():
            # what does not come makes no row younger
            rows = self._rows(graph, sources[both], levels[both])
        spans = rows.newest - rows.exponents
        shifts = np.zeros(len(spans), np.int64)
        judged, limits = rows.ids[rows.outlived], np.full(int(rows.outlived.sum()), 2 * _SPAN)
        scaled = scaled_by = NO_IDS
        if (spans >= HIGHEST).any():
            limit = min(len(self.newest), len(graph.loop))
            all_spans = self.newest[:limit] - self.exponents[:limit]
            known = rows.ids < limit
            all_spans[rows.ids[known]] = spans[known]
            scaled = np.flatnonzero(all_spans >= _LOWEST)
            scaled_by = all_spans[scaled]
            shifts = np.where(spans >= _LOWEST, spans, 0)
            judged, limits = np.append(judged, scaled), np.append(limits, scaled_by)
        gone, expired = _expired(graph, judged, limits, removed)
        self._pending = (rows.ids, rows.exponents + shifts, rows.newest, scaled, scaled_by)
        stored = weights[both] * np.exp2(age[both] - rows.exponents[rows.place])
        decayed = replace(
            arcs,
            delete=[gone, *arcs.delete] if expired else arcs.delete,
            insert=(arcs.insert[0][both], arcs.insert[1][both]),
            weights=graph.backend.xp.asarray(stored.astype(np.float32)),
        )
        return decayed, expired, int((~kept).sum())

    def _rows(
        self, graph: DecayingGraph, sources: NDArray[np.int64], levels: NDArray[np.float64]
    ) -> _Rows:
        ids, place = np.unique(sources, return_inverse=True)
        highest = np.full(len(ids), np.iinfo(np.int64).min)
        np.maximum.at(highest, place, np.floor(levels).astype(np.int64))
        empty = self._are_empty(graph, ids)
        outlived = ~empty & (highest - self.newest[ids] > _SPAN)
        fresh = empty | outlived
        return _Rows(
            ids,
            place,
            outlived,
            np.where(fresh, highest, np.maximum(self.newest[ids], highest)),
            np.where(fresh, highest, self.exponents[ids]),
        )

    def commit(self) -> None:
        """The batch of the last `apply` was applied."""
        rows, exponents, newest, scaled, shifts = self._pending
        self.exponents[scaled] += shifts
        self.exponents[rows], self.newest[rows] = exponents, newest
        self._to_scale = (scaled, shifts)
        self._pending = (NO_IDS,) * 5

    def scale(self, graph: DecayingGraph) -> None:
        """Divides the rows of the last batch that need it; to be called once its changes have been
        taken into account, which are in the old scale.
        """
        ids, shifts = self._to_scale
        if len(ids):
            _scale(graph, ids, shifts)
            self._to_scale = (NO_IDS, NO_IDS)

    def _are_empty(self, graph: DecayingGraph, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each row has no arc yet."""
        empty = np.ones(len(rows), np.bool_)
        known = rows < len(graph.loop)
        positions = graph.permutation.positions_of(rows[known])
        empty[known] = graph.backend.device.to_host(graph.degree[positions]) == 0.0
        return empty


def _kept(arcs: Arcs, lasts: NDArray[np.bool_], host: Any) -> tuple[Any, Any]:
    """bool[insertions] and bool[arcs]: those that have not expired, by whether each arc lasts."""
    kept = lasts[: arcs.insertions].copy()
    if arcs.opposite is None:
        return kept, kept
    others = host(arcs.opposite)
    kept[others] &= lasts[arcs.insertions :]
    return kept, np.append(kept, kept[others])


def _scale(graph: DecayingGraph, ids: NDArray[np.int64], shifts: NDArray[np.int64]) -> None:
    """Divides the weights of rows by powers of two, in both directions."""
    xp, device = graph.backend.xp, graph.backend.device
    positions = graph.permutation.positions_of(ids).astype(np.int32)
    factors = xp.ones(len(graph.loop), np.float32)
    factors[positions] = device.to_device(np.exp2(-shifts.astype(np.float64)).astype(np.float32))
    starts, lengths, *_ = graph.outgoing.csr
    weights: Array = graph.outgoing.csr.weights
    length = lengths[positions].astype(np.int64)
    ends = xp.cumsum(length)
    slots = xp.arange(int(ends[-1]))
    row = xp.searchsorted(ends, slots, "right")
    slots += (starts[positions] + length - ends)[row]
    weights[slots] *= factors[positions][row]
    neighbours, weights = graph.incoming.csr.column_indices, graph.incoming.csr.weights
    for begin in range(0, len(weights), _CHUNK):
        chunk = slice(begin, begin + _CHUNK)
        # slots outside rows may hold anything
        weights[chunk] *= factors[xp.clip(neighbours[chunk], 0, len(factors) - 1)]
    graph.loop[positions] *= factors[positions]
    graph.backend.rebuild.sum_weights(graph.outgoing.csr, positions, graph.loop, graph.degree)


def _expired(
    graph: DecayingGraph,
    ids: NDArray[np.int64],
    shifts: NDArray[np.int64],
    removed: NDArray[np.int64],
) -> tuple[Columns, int]:
    """The arcs of the edges that have expired in these rows, once these are divided by 2^shift: as
    ids, without those of removed vertices; and how many edges they are.
    """
    if len(ids) == 0:
        return (NO_IDS, NO_IDS), 0
    backend, permutation = graph.backend, graph.permutation
    xp = backend.xp
    positions = permutation.positions_of(ids).astype(np.int32)
    limits = backend.device.to_device(LEAST * np.exp2(shifts.astype(np.float64)))
    limit_of = xp.zeros(len(graph.loop))
    limit_of[positions] = limits
    rows, neighbours, weights = rows_of(backend, graph.outgoing.csr, positions)
    expired = weights < limit_of[rows]
    loop = graph.loop[positions]
    loops = positions[(loop > 0.0) & (loop < limits)]
    sources, targets = (
        permutation.ids_of(xp.concatenate([column[expired], loops]))
        for column in (rows, neighbours)
    )
    stays = ~(np.isin(sources, removed) | np.isin(targets, removed))
    sources, targets = sources[stays], targets[stays]
    if graph.directed:
        return (sources, targets), len(sources)
    pairs = np.unique(np.sort(np.stack([sources, targets], axis=1), axis=1), axis=0)
    return (np.append(sources, targets), np.append(targets, sources)), len(pairs)
