"""The largest entries of vectors on ``cpu``, and bounds on the others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.jit.compile import sequential
from gpu.operations.csr import GraphView
from gpu.operations.device import Array
from gpu.operations.select import SelectOperations, TopK, residual_bound

_GROUP = 64
"""Values of which only the largest is looked at in `_at_most_kth_largest`."""


class CpuSelect(SelectOperations):
    """See SelectOperations."""

    def top_k(self, values: Array, k: int) -> TopK:
        if k == 0:
            return np.empty(0, np.int64), np.empty(0)
        candidates = np.flatnonzero(values >= _at_most_kth_largest(values, k))
        if len(candidates) > 2 * k:
            rank = len(candidates) - k
            kth_largest = np.partition(values[candidates], rank)[rank]
            candidates = candidates[values[candidates] >= kth_largest]
        # a stable sort of ascending positions orders equal values by position
        best = candidates[np.argsort(-values[candidates], kind="stable")[:k]]
        return best, values[best].astype(np.float64)

    def top_k_columns(self, values: Array, counts: NDArray[np.int64]) -> list[TopK]:
        return [
            self.top_k(np.ascontiguousarray(values[:, column]), count)
            for column, count in enumerate(counts.tolist())
        ]

    def list_changed(
        self, values: Array, mass: float, earlier: Array, threshold: float, capacity: int
    ) -> tuple[int, Array]:
        listed = np.empty(min(capacity, len(values)), np.int32)
        found = int(_list_changed(values, mass, earlier, threshold, listed))
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
        degree, loop = graph.degree, graph.loop
        if vertices is not None:
            degree, loop = degree[vertices], loop[vertices]
        bounds = residual_bound(np, residuals, degree, loop, damping, positive_residual)
        return float((values + bounds)[values <= at_most].max())


@sequential  # not on all cores: the writer would wait for them
def _list_changed(values, mass, earlier, threshold, listed):  # type: ignore[no-untyped-def]
    found = 0
    for position in range(len(values)):
        before = earlier[position]
        change = abs(values[position] / mass - before)
        if threshold * before < change < np.inf:
            if found < len(listed):
                listed[found] = position
            found += 1
    return found


def _at_most_kth_largest(values: Array, k: int) -> float:
    """A number at most the k-th largest value, and usually not far below it: the k-th largest of
    the maxima of small groups.
    """
    group = max(1, min(_GROUP, len(values) // k))
    whole = values[: len(values) // group * group].reshape(group, -1)
    maxima = whole.max(axis=0)
    return float(np.partition(maxima, len(maxima) - k)[len(maxima) - k])
