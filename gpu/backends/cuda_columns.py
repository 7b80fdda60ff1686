"""Several personalized vectors at once, and the largest of many values, on ``cuda``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gpu.backends.base import Array, Backend, Known, Rows
from gpu.kernels import LANES, LONGEST, URGENT

if TYPE_CHECKING:
    from gpu.graph import Graph

WIDTH = 32
_CHUNK = 1024
"""Columns of a matrix, and edges of a long row that one warp sums: see columns.cu."""

_BLOCK = 256
_SUMS = 3

_LONG_GROUPS = sum(lanes > 32 for lanes in LANES)
"""Groups of rows that are shared by several warps, the first ones; the next has a warp a row, and
the others half a warp.
"""

_LONG_CLASS = len(LANES) - _LONG_GROUPS
"""The first class of such rows, in LONGEST; classes are numbered the other way round."""

_ROWS, _FEW_ROWS = 4, 32
"""Rows that a warp has before it at once: those that it takes alone, and those of half a warp."""

_SORTED = 1 << 14
"""So many values are sorted rather than counted."""

_SIZE_SHIFT, _SIZE_BINS = 46, 4096
_COLUMN_SHIFT, _COLUMN_BINS = 50, 256
"""See select.cu."""

_MOST_LISTED = 1 << 20
_COLUMN_LISTED = 1 << 14
"""Room on the list of the largest; where more are as large, values are sorted."""


class CudaColumnOperations(Backend):
    """What the CUDA backend does with matrices of WIDTH columns."""

    column_share = np.uint16
    least_columns = 4
    _kernels: dict[str, dict[str, Callable[..., None]]]
    _resident: int
    _nothing_known: Known

    def column_count(self, wanted: int) -> int:  # noqa: ARG002
        return WIDTH

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
        leaning = str(known is not None).lower()
        known = known or self._nothing_known
        # columns that nothing was asked of too
        amounts_there = self.to_device(np.pad(amounts, (0, WIDTH - len(amounts))))
        xp, incoming = self.xp, graph.incoming
        long_rows = int(rows.groups[_LONG_GROUPS])
        lengths = incoming.length[rows.order[:long_rows]]
        ends = xp.cumsum((lengths + (_CHUNK - 1)) // _CHUNK, dtype=np.int64)
        # at most so many chunks: to wait for their number would leave the device idle
        chunks = graph.edges // _CHUNK + long_rows if long_rows else 0
        partials = xp.empty((max(chunks, 1), WIDTH))
        if chunks:
            self._kernels["columns"]["gather_chunks"](
                self._column_blocks(chunks),
                (_BLOCK,),
                (
                    rows.order,
                    ends,
                    np.int64(long_rows),
                    incoming.start,
                    incoming.length,
                    incoming.pool,
                    shares,
                    partials,
                ),
            )
        # groups of lengths, the longest first: see gpu.kernels.LONGEST
        several, short = int(rows.groups[_LONG_GROUPS + 1]), int(rows.groups[-2])
        launches = (
            (f"relax_rows<{leaning}>", 0, several, _ROWS, (np.int64(long_rows), ends, partials)),
            (f"relax_few<false, {leaning}>", several, short, _FEW_ROWS, (seeded,)),
            (f"relax_few<true, {leaning}>", short, rows.count, _FEW_ROWS, (seeded,)),
        )
        blocks = [
            self._column_blocks(-(-(last - first) // each)) if first < last else (0,)
            for _, first, last, each, _ in launches
        ]
        sums = xp.empty((sum(count for (count,) in blocks), _SUMS, WIDTH))
        begin = 0
        for shape, (name, first, last, _, others) in zip(blocks, launches, strict=True):
            if shape == (0,):
                continue
            self._kernels["columns"][name](
                shape,
                (_BLOCK,),
                (
                    rows.order,
                    np.int64(first),
                    np.int64(last),
                    incoming.start,
                    incoming.length,
                    incoming.pool,
                    graph.outgoing.length,
                    graph.loop,
                    graph.degree,
                    shares,
                    np.float64(damping),
                    values,
                    left,
                    new_shares,
                    sums[begin:],
                    known.values,
                    known.residual,
                    np.float64(known.base),
                    amounts_there,
                    *others,
                ),
            )
            begin += shape[0]
        return self.to_host(sums.sum(axis=0))

    def column_depth(self, graph: Graph) -> int:
        longest = graph.incoming.longest
        few, alone = (URGENT * LONGEST[_LONG_CLASS - back] for back in (2, 1))
        most_blocks = self._column_blocks(graph.vertices)[0]
        # half a warp adds up a row of few edges, each half of a warp every second edge of another,
        # or of a chunk; rows may have outgrown their groups
        in_row = max(
            min(longest, few), min(longest, alone) // 2 + 1, _CHUNK // 2 + longest // _CHUNK + 2
        )
        each = _FEW_ROWS * most_blocks * (_BLOCK // 32)
        return in_row + _FEW_ROWS * (1 + graph.vertices // each) + 3 * most_blocks + _BLOCK // 32

    def add_carried(self, left: Array, places: Array, amounts: Array, carry: Array) -> None:
        count = len(places)
        self._kernels["columns"]["add_carried"](
            (max(1, min(self._resident, -(-count // _BLOCK))),),
            (_BLOCK,),
            (places, amounts, np.int64(count), carry, left),
        )

    def _column_blocks(self, warps: int) -> tuple[int]:
        return (max(1, min(4 * self._resident, -(-warps * 32 // _BLOCK))),)

    def top_k(self, values: Array, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        xp = self.xp
        if k == 0:
            return np.empty(0, np.int64), np.empty(0)
        if len(values) <= _SORTED or values.dtype != np.float64:
            return self._sorted(values, k)
        highest = _size(float(values.max()), _SIZE_SHIFT)
        counts = xp.zeros(_SIZE_BINS, np.uint64)
        blocks = (max(1, min(4 * self._resident, -(-len(values) // _BLOCK))),)
        self._kernels["select"]["count_sizes"](
            blocks, (_BLOCK,), (values, np.int64(len(values)), np.int64(highest), counts)
        )
        enough = np.cumsum(self.to_host(counts).astype(np.int64))
        last = int(np.searchsorted(enough, k))
        if last >= min(_SIZE_BINS - 1, highest) or enough[last] > _MOST_LISTED:
            return self._sorted_positive(values, k)
        listed, found = xp.empty(int(enough[last]), np.int32), xp.zeros(1, np.uint64)
        self._kernels["select"]["list_sizes"](
            blocks,
            (_BLOCK,),
            (
                values,
                np.int64(len(values)),
                np.int64(highest - last),
                np.int64(len(listed)),
                listed,
                found,
            ),
        )
        listed = xp.sort(listed)
        places, best = self._sorted(values[listed], k)
        return self.to_host(listed[self.to_device(places)]).astype(np.int64), best

    def highest_bound(
        self,
        graph: Graph,
        vertices: Array | None,
        values: Array,
        residuals: Array,
        damping: float,
        rising: float,
        at_most: float,
    ) -> float:
        if vertices is not None:
            return super().highest_bound(
                graph, vertices, values, residuals, damping, rising, at_most
            )
        blocks = max(1, min(4 * self._resident, -(-len(values) // _BLOCK)))
        highest = self.xp.empty(blocks)
        self._kernels["select"]["highest_bounds"](
            (blocks,),
            (_BLOCK,),
            (
                values,
                residuals,
                graph.degree,
                graph.loop,
                np.int64(len(values)),
                np.float64(damping),
                np.float64(rising),
                np.float64(at_most),
                highest,
            ),
        )
        return float(highest.max())

    def _sorted_positive(
        self, values: Array, k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        # a walk that stayed near its seeds has few values, perhaps fewer than were asked for
        positive = self.xp.flatnonzero(values > 0.0)
        zeros = self.xp.flatnonzero(values == 0.0)[: max(0, k - len(positive))]
        if len(positive) + len(zeros) < k:
            return self._sorted(values, k)
        among = self.xp.concatenate([positive, zeros])
        places, best = self._sorted(values[among], k)
        return self.to_host(among[self.to_device(places)]).astype(np.int64), best

    def _sorted(self, values: Array, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        # a stable sort of the negated values orders equal ones by id
        best = self.xp.argsort(-values, kind="stable")[:k]
        return self.to_host(best).astype(np.int64), self.to_host(values[best]).astype(np.float64)

    def top_columns(
        self, values: Array, places: NDArray[np.int64]
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        xp, rows = self.xp, np.int64(len(values))
        highest = _size(float(values.max()), _COLUMN_SHIFT)
        counts = xp.zeros((_COLUMN_BINS, WIDTH), np.uint64)
        blocks = self._column_blocks(len(values))
        self._kernels["select"]["count_column_sizes"](
            blocks, (_BLOCK,), (values, rows, np.int64(highest), counts)
        )
        enough = np.cumsum(self.to_host(counts).astype(np.int64), axis=0)
        wanted = np.zeros(WIDTH, np.int64)
        wanted[: len(places)] = places
        last = np.argmax(enough >= wanted, axis=0)
        reached = enough[last, np.arange(WIDTH)]
        fits = (reached >= wanted) & (reached <= _COLUMN_LISTED) & (last < highest)
        # a column that nothing is asked of, or that is sorted, lists nothing
        least = np.where(fits & (wanted > 0), highest - last, np.iinfo(np.int64).max)
        # shorter lists are copied with what lies behind their ends
        listed = xp.zeros((WIDTH, _COLUMN_LISTED), np.int32)
        sizes, found = xp.zeros((WIDTH, _COLUMN_LISTED)), xp.zeros(WIDTH, np.uint64)
        self._kernels["select"]["list_column_sizes"](
            blocks,
            (_BLOCK,),
            (
                values,
                rows,
                self.to_device(least),
                np.int64(_COLUMN_LISTED),
                listed,
                sizes,
                found,
            ),
        )
        most = max(1, int(reached[fits].max(initial=0)))
        ids_here = self.to_host(listed[:, :most].copy())
        sizes_here = self.to_host(sizes[:, :most].copy())
        best: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
        for column, count in enumerate(places.tolist()):
            if not fits[column] and count > 0:
                best.append(self.top_k(values[:, column].copy(), count))
                continue
            ids = ids_here[column, : reached[column] if count else 0].astype(np.int64)
            some = sizes_here[column, : len(ids)]
            order = np.lexsort((ids, -some))[:count]
            best.append((ids[order], some[order]))
        return best


def _size(value: float, shift: int) -> int:
    """What select.cu calls the size of a value."""
    return int(np.float64(value).view(np.int64)) >> shift if value > 0.0 else 0
