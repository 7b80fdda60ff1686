"""The largest entries of vectors on ``cuda``, and bounds on the others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.backends.cuda.kernels.loader import (
    COLUMN_TOP_BINS,
    COLUMN_TOP_SHIFT,
    COLUMNS,
    TOP_BINS,
    TOP_SHIFT,
    VALUES,
    WARP,
)
from gpu.backends.cuda.launcher import Launcher
from gpu.operations.csr import GraphView
from gpu.operations.device import Array
from gpu.operations.select import SelectOperations, TopK, residual_bound

_SORTED = 1 << 14
"""Up to this many values are sorted rather than counted."""

_MOST_LISTED = 1 << 20
_COLUMN_LISTED = 1 << 14
"""Room in the list of the largest values; if more are as large, all are sorted."""

_WAVES = 4
"""Blocks of a pass over a vector, at most, in units of those that are resident at once."""


class CudaSelect(SelectOperations):
    """See SelectOperations."""

    def __init__(self, launch: Launcher) -> None:
        self._launch = launch
        self._device = launch.device

    def top_k(self, values: Array, k: int) -> TopK:
        if k == 0:
            return np.empty(0, np.int64), np.empty(0)
        if len(values) <= _SORTED or values.dtype != np.float64:
            return self._top_k_sorted(values, k)
        xp, count = self._launch.xp, np.int64(len(values))
        blocks = self._launch.resident_blocks(len(values), _WAVES)
        highest = _magnitude(float(values.max()), TOP_SHIFT)
        counts = xp.zeros(TOP_BINS, np.uint64)
        self._launch("select", "top_k_histogram", blocks, values, count, np.int64(highest), counts)
        reached = np.cumsum(self._device.to_host(counts).astype(np.int64))
        last = int(np.searchsorted(reached, k))
        if last >= min(TOP_BINS - 1, highest) or reached[last] > _MOST_LISTED:
            return self._top_k_positive(values, k)
        listed, found = xp.empty(int(reached[last]), np.int32), xp.zeros(1, np.uint64)
        least, room = np.int64(highest - last), np.int64(len(listed))
        self._launch("select", "top_k_list", blocks, values, count, least, room, listed, found)
        return self._top_k_among(values, xp.sort(listed), k)

    def _top_k_positive(self, values: Array, k: int) -> TopK:
        # a personalized vector near its seeds has few positive values, perhaps fewer than k
        xp = self._launch.xp
        positive = xp.flatnonzero(values > 0.0)
        zeros = xp.flatnonzero(values == 0.0)[: max(0, k - len(positive))]
        if len(positive) + len(zeros) < k:
            return self._top_k_sorted(values, k)
        return self._top_k_among(values, xp.concatenate([positive, zeros]), k)

    def _top_k_among(self, values: Array, places: Array, k: int) -> TopK:
        best, largest = self._top_k_sorted(values[places], k)
        return self._device.to_host(places[self._device.to_device(best)]).astype(np.int64), largest

    def _top_k_sorted(self, values: Array, k: int) -> TopK:
        # a stable sort of the negated values orders equal ones by position
        best = self._launch.xp.argsort(-values, kind="stable")[:k]
        positions = self._device.to_host(best).astype(np.int64)
        return positions, self._device.to_host(values[best]).astype(np.float64)

    def top_k_columns(self, values: Array, counts: NDArray[np.int64]) -> list[TopK]:
        xp, rows = self._launch.xp, np.int64(len(values))
        highest = _magnitude(float(values.max()), COLUMN_TOP_SHIFT)
        histogram = xp.zeros((COLUMN_TOP_BINS, COLUMNS), np.uint64)
        blocks = self._launch.resident_blocks(len(values) * WARP, _WAVES)
        self._launch(
            "select", "top_k_columns_histogram", blocks, values, rows, np.int64(highest), histogram
        )
        reached = np.cumsum(self._device.to_host(histogram).astype(np.int64), axis=0)
        wanted = np.zeros(COLUMNS, np.int64)
        wanted[: len(counts)] = counts
        last = np.argmax(reached >= wanted, axis=0)
        sizes = reached[last, np.arange(COLUMNS)]
        fits = (sizes >= wanted) & (sizes <= _COLUMN_LISTED) & (last < highest)
        # a column of which nothing is wanted, or that is sorted, lists nothing
        least = np.where(fits & (wanted > 0), highest - last, np.iinfo(np.int64).max)
        # zeroed, since shorter lists are copied with what follows them
        listed = xp.zeros((COLUMNS, _COLUMN_LISTED), np.int32)
        listed_values = xp.zeros((COLUMNS, _COLUMN_LISTED))
        self._launch(
            "select",
            "top_k_columns_list",
            blocks,
            values,
            rows,
            self._device.to_device(least),
            np.int64(_COLUMN_LISTED),
            listed,
            listed_values,
            xp.zeros(COLUMNS, np.uint64),
        )
        longest = max(1, int(sizes[fits].max(initial=0)))
        ids_here = self._device.to_host(listed[:, :longest].copy())
        values_here = self._device.to_host(listed_values[:, :longest].copy())
        best: list[TopK] = []
        for column, count in enumerate(counts.tolist()):
            if not fits[column] and count > 0:
                best.append(self.top_k(values[:, column].copy(), count))
                continue
            ids = ids_here[column, : sizes[column] if count else 0].astype(np.int64)
            largest = values_here[column, : len(ids)]
            order = np.lexsort((ids, -largest))[:count]
            best.append((ids[order], largest[order]))
        return best

    def list_changed(
        self, values: Array, mass: float, earlier: Array, threshold: float, capacity: int
    ) -> tuple[int, Array]:
        xp, count = self._launch.xp, len(values)
        listed, counter = xp.empty(min(capacity, count), np.int32), xp.zeros(1, np.uint64)
        self._launch(
            "select",
            f"list_changed<{VALUES[values.dtype.name]}>",
            self._launch.resident_blocks(count, _WAVES),
            values,
            earlier,
            np.int64(count),
            np.float64(mass),
            np.float64(threshold),
            np.int64(len(listed)),
            listed,
            counter,
        )
        found = int(counter[0])
        return found, listed[:found]

    def highest_bound(
        self,
        graph: GraphView,
        vertices: Array | None,
        values: Array,
        residuals: Array,
        damping: float,
        positive_residual: float,
        at_most: float,
    ) -> float:
        xp, degree, loop = self._launch.xp, graph.degree, graph.loop
        if vertices is not None:
            added = residual_bound(
                xp, residuals, degree[vertices], loop[vertices], damping, positive_residual
            )
            return float((values + added)[values <= at_most].max())
        blocks = self._launch.resident_blocks(len(values), _WAVES)
        highest = xp.empty(blocks)
        self._launch(
            "select",
            "highest_bound",
            blocks,
            values,
            residuals,
            degree,
            loop,
            np.int64(len(values)),
            np.float64(damping),
            np.float64(positive_residual),
            np.float64(at_most),
            highest,
            weighted=graph.weighted,
        )
        return float(highest.max())


def _magnitude(value: float, shift: int) -> int:
    """magnitude_of in select.cu."""
    return int(np.float64(value).view(np.int64)) >> shift if value > 0.0 else 0
