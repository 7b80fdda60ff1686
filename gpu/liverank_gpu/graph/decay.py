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

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.columns import MOST_HALF_LIVES
from liverank_gpu.errors import InvalidValue
from liverank_gpu.graph.batch import Arcs, Columns
from liverank_gpu.graph.packed_csr import PackedCsr, row_blocks, rows_of
from liverank_gpu.graph.vertices import NO_IDS, VertexIds, VertexPermutation
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.types import EdgeBatch, Options

_SPAN = 100
LEAST = 2.0**-_SPAN
"""Weights that are smaller, in a row whose newest is at least 1, have expired."""

HIGHEST, _LOWEST = 16, 8
"""Rows whose newest weight is at least 2^_LOWEST are scaled when one is at least 2^HIGHEST."""


class DecayingGraph(Protocol):
    """The parts of a graph that decay reads and scales."""

    backend: Backend
    outgoing: PackedCsr
    incoming: PackedCsr
    loop: Array
    degree: Array
    arcs: int
    ids: VertexIds
    permutation: VertexPermutation
    directed: bool


GraphT = TypeVar("GraphT", bound=DecayingGraph)


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


class _Pending(NamedTuple):
    """What is to be recorded once the batch of the last `apply` was applied.

    ids, exponents, newest    int64[r], of the rows that insertions name
    scaled, scaled_exponents  int64[…], rows that are to be scaled, and their exponents then
    factors                   float32[n] on the device, what rows are multiplied by; None if none is
    """

    ids: NDArray[np.int64]
    exponents: NDArray[np.int64]
    newest: NDArray[np.int64]
    scaled: NDArray[np.int64]
    scaled_exponents: NDArray[np.int64]
    factors: Array | None


class Decay(Generic[GraphT]):
    """The exponents of the rows of one graph, by id, on the host. Ids at the end that have had no
    edges may be missing.

    exponents  int64[…]
    newest     int64[…], the exponent of the largest weight that was inserted into the row since it
               was empty
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self.exponents = np.zeros(0, np.int64)
        self.newest = np.zeros(0, np.int64)
        self._pending: _Pending | None = None
        self._factors: Array | None = None

    def _reserve(self, limit: int) -> None:
        """Covers ids below the limit."""
        missing = limit - len(self.exponents)
        if missing > 0:
            added = np.zeros(missing + limit // 4, np.int64)
            self.exponents = np.append(self.exponents, added)
            self.newest = np.append(self.newest, added)

    def copies(self, limit: int) -> dict[str, NDArray[np.int64]]:
        """``exponents`` and ``newest``, int64[limit] each, for liverank_gpu.snapshot.Snapshot."""
        self._reserve(limit)
        return {"exponents": self.exponents[:limit].copy(), "newest": self.newest[:limit].copy()}

    def restore(self, exponents: NDArray[np.int64], newest: NDArray[np.int64]) -> None:
        """Takes the arrays of a liverank_gpu.snapshot.Snapshot."""
        self.exponents, self.newest = exponents.copy(), newest.copy()

    def apply(
        self, graph: GraphT, arcs: Arcs, removed: NDArray[np.int64], vertices: int
    ) -> tuple[Arcs, int, int]:
        """The arcs with the weights to be stored, without insertions that are too old, and with the
        deletions of edges that have expired. Also how many edges and insertions these are. Takes
        all memory that `commit` and `scale` need. Raises InvalidValue for a time too far from 0.

        removed   int64[…], the vertices that the batch removes; ascending
        vertices  of the graph after the batch
        """
        assert arcs.weights is not None
        assert arcs.times is not None
        age = half_lives(arcs.times, self._options)
        host = graph.backend.device.to_host
        sources, weights = (
            each if isinstance(each, np.ndarray) else host(each)
            for each in (arcs.insert[0], arcs.weights)
        )
        self._reserve(vertices)
        levels = np.log2(weights.astype(np.float64)) + age
        rows = self._rows(graph, sources, levels, removed)
        kept, both = _kept(arcs, levels >= rows.newest[rows.place] - _SPAN, host)
        if self._on_any(not kept.all()):
            # what does not come makes no row younger
            rows = self._rows(graph, sources[both], levels[both], removed)
        spans = rows.newest - rows.exponents
        shifts = np.zeros(len(spans), np.int64)
        judged, limits = rows.ids[rows.outlived], np.full(int(rows.outlived.sum()), 2 * _SPAN)
        scaled = scaled_by = NO_IDS
        factors = None
        if (spans >= HIGHEST).any():
            limit = graph.ids.limit
            all_spans = self.newest[:limit] - self.exponents[:limit]
            known = rows.ids < limit
            all_spans[rows.ids[known]] = spans[known]
            scaled = np.flatnonzero(all_spans >= _LOWEST)
            scaled_by = all_spans[scaled]
            shifts = np.where(spans >= _LOWEST, spans, 0)
            judged, limits = np.append(judged, scaled), np.append(limits, scaled_by)
            factors = self._factors_of(graph, scaled, scaled_by, vertices)
        gone, expired = self._expired_arcs(graph, judged, limits, removed)
        self._pending = _Pending(
            rows.ids,
            rows.exponents + shifts,
            rows.newest,
            scaled,
            self.exponents[scaled] + scaled_by,
            factors,
        )
        stored = weights[both] * np.exp2(age[both] - rows.exponents[rows.place])
        decayed = replace(
            arcs,
            delete=[gone, *arcs.delete] if expired else arcs.delete,
            insert=(arcs.insert[0][both], arcs.insert[1][both]),
            weights=stored.astype(np.float32),
            places=None if both.all() else np.flatnonzero(both),
        )
        return decayed, expired, int((~kept).sum())

    def _rows(
        self,
        graph: GraphT,
        sources: NDArray[np.int64],
        levels: NDArray[np.float64],
        removed: NDArray[np.int64],
    ) -> _Rows:
        ids, highest = self._highest(*highest_of(sources, np.floor(levels).astype(np.int64)))
        place = np.searchsorted(ids, sources)
        empty = self._are_empty(graph, ids) | np.isin(ids, removed)
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
        assert self._pending is not None
        ids, exponents, newest, scaled, scaled_exponents, self._factors = self._pending
        self.exponents[scaled] = scaled_exponents
        self.exponents[ids], self.newest[ids] = exponents, newest
        self._pending = None

    def scale(self, graph: GraphT) -> None:
        """Divides the rows of the last batch that need it; to be called once its changes have been
        taken into account, which are in the old scale. Allocates nothing.
        """
        if self._factors is not None:
            directions = (graph.outgoing.csr, graph.incoming.csr)
            graph.backend.rebuild.scale_rows(*directions, self._factors, graph.loop, graph.degree)
            self._factors = None

    # ---- what a graph in shards does otherwise (liverank_gpu.sharded.graph) ----

    def _on_any(self, condition: bool) -> bool:
        """Whether it is so on any part of the graph."""
        return condition

    def _highest(
        self, ids: NDArray[np.int64], highest: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows that insertions name, ascending, and the exponent of the largest weight of
        each: from those of this part.
        """
        return ids, highest

    def _are_empty(self, graph: GraphT, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each row has no arc yet."""
        empty = np.ones(len(rows), np.bool_)
        known = rows < graph.ids.limit
        positions = graph.permutation.positions_of(rows[known])
        empty[known] = graph.backend.device.to_host(graph.degree[positions]) == 0.0
        return empty

    def _factors_of(
        self,
        graph: GraphT,
        ids: NDArray[np.int64],
        shifts: NDArray[np.int64],
        vertices: int,
    ) -> Array:
        """What `scale` multiplies these rows by."""
        return factors_at(graph.backend, graph.permutation.positions_of(ids), shifts, vertices)

    def _expired_arcs(
        self,
        graph: GraphT,
        ids: NDArray[np.int64],
        shifts: NDArray[np.int64],
        removed: NDArray[np.int64],
    ) -> tuple[Columns, int]:
        """The arcs of the edges that have expired in these rows, once these are divided by 2^shift:
        as ids, without those of removed vertices; and how many edges they are.
        """
        if len(ids) == 0:
            return (NO_IDS, NO_IDS), 0
        rows = graph.permutation.positions_of(ids).astype(np.int32)
        arcs = expired_among(graph, rows, shifts, removed, graph.permutation.ids_of)
        if graph.directed:
            return arcs, len(arcs[0])
        pairs = np.unique(edge_keys(*arcs))
        return both_arcs(pairs), len(pairs)

    def bytes_needed(self, graph: GraphT, vertices: int) -> int:
        """Upper bound on the memory of the device that a batch takes beside that of other batches:
        factors and limits of rows, and the entries looked at at once.
        """
        at_once = max(graph.backend.sizes.chunk, graph.outgoing.longest)
        return 48 * vertices + 40 * min(graph.arcs, at_once)


AnyDecay = Decay[Any]


def half_lives(
    times: NDArray[np.float64], options: Options, name: str = "times"
) -> NDArray[np.float64]:
    """Times in half-lives. Raises InvalidValue, with this name, for one too far from 0."""
    assert options.half_life is not None
    with np.errstate(over="ignore"):
        age = times / options.half_life
    wrong = np.flatnonzero(np.abs(age) > MOST_HALF_LIVES)
    if len(wrong):
        place = int(wrong[0])
        requirement = "within 2⁴⁰ half-lives of 0"
        raise InvalidValue(f"{name}[{place}]", times[place].item(), requirement)
    return age


def times_at(ages: NDArray[np.int64], options: Options) -> NDArray[np.floating[Any]]:
    """Seconds, float64[…], of ages in half-lives, int64[…]."""
    assert options.half_life is not None
    return ages * options.half_life


def in_half_lives(options: Options) -> Options:
    """The options of the same graph where times are given in half-lives instead of seconds."""
    return replace(options, half_life=1.0) if options.decays else options


def require_times(batch: EdgeBatch, decays: bool) -> None:
    """Raises InvalidValue unless insertions, and deletions with weights, have times exactly if
    weights decay.
    """
    if decays and batch.times is None and len(batch.insert_sources):
        raise InvalidValue("times", None, "one time for each insertion: this graph has a half_life")
    if decays and batch.delete_weights is not None and batch.delete_times is None:
        requirement = "one time for each weight of a deletion: this graph has a half_life"
        raise InvalidValue("delete_times", None, requirement)
    for name in ("times", "delete_times"):
        times = getattr(batch, name)
        if not decays and times is not None:
            given = f"{len(times)} times"
            raise InvalidValue(name, given, "left out, because this graph has no half_life")


def highest_of(
    ids: NDArray[np.int64], exponents: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct ids, ascending, and the highest exponent of each."""
    distinct, place = np.unique(ids, return_inverse=True)
    highest = np.full(len(distinct), np.iinfo(np.int64).min)
    np.maximum.at(highest, place, exponents)
    return distinct, highest


def edge_keys(sources: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.int64]:
    """A number for each edge of an undirected graph."""
    return np.minimum(sources, targets) << 32 | np.maximum(sources, targets)


def both_arcs(keys: NDArray[np.int64]) -> Columns:
    """The arcs of edges by `edge_keys`."""
    low, high = keys >> 32, keys & 0xFFFFFFFF
    return np.append(low, high), np.append(high, low)


def _kept(arcs: Arcs, lasts: NDArray[np.bool_], host: Any) -> tuple[Any, Any]:
    """bool[insertions] and bool[arcs]: those that have not expired, by whether each arc lasts."""
    kept = lasts[: arcs.insertions].copy()
    if arcs.opposite is None:
        return kept, kept
    others = host(arcs.opposite)
    kept[others] &= lasts[arcs.insertions :]
    return kept, np.append(kept, kept[others])


def factors_at(backend: Backend, places: Array, shifts: NDArray[np.int64], length: int) -> Array:
    """float32[length] on the device: 2^-shift at these places, 1 elsewhere."""
    factors = backend.device.allocate("factors of rows", length, np.float32)
    factors.fill(1)
    divided = np.exp2(-shifts.astype(np.float64)).astype(np.float32)
    factors[places] = backend.device.to_device(divided)
    return factors


def expired_among(
    graph: DecayingGraph,
    rows: Array,
    shifts: NDArray[np.int64],
    removed: NDArray[np.int64],
    ids_of: Callable[[Array], NDArray[np.int64]],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The arcs of these rows, int32[r], that have expired once rows are divided by 2^shift: as ids,
    without those of removed vertices.

    ids_of  the ids of rows, and of entries of lists
    """
    backend, outgoing = graph.backend, graph.outgoing.csr
    limits = backend.device.to_device(LEAST * np.exp2(shifts.astype(np.float64)))
    limit_of = backend.xp.zeros(len(graph.loop))
    limit_of[rows] = limits
    loop = graph.loop[rows]
    loops = ids_of(rows[(loop > 0.0) & (loop < limits)])
    found = [(loops, loops)]
    lengths = backend.device.to_host(outgoing.row_lengths[rows])
    for block in row_blocks(lengths, backend.sizes.chunk):
        sources, neighbours, weights = rows_of(backend, outgoing, rows[block])
        expired = weights < limit_of[sources]
        found.append((ids_of(sources[expired]), ids_of(neighbours[expired])))
    origins, targets = (np.concatenate(columns) for columns in zip(*found, strict=True))
    stays = ~(np.isin(origins, removed) | np.isin(targets, removed))
    return origins[stays], targets[stays]
