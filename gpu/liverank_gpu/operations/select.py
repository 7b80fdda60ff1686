"""Contract: the largest entries, and bounds on the others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.csr import GraphView, Operation, runs
from liverank_gpu.operations.device import Array, DeviceOperations

TopK = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Ids and values, largest first, on the host."""

Candidates = tuple[Array, Array]
"""Positions and values, in the same order, on the device."""

ToIds = Callable[[Array], Array]
"""Returns the ids of positions, both on the device."""

_MOST_COPIED = 1 << 12
"""Candidates beyond twice those asked for that are copied to the host; of more, which are equal for
the most part, the first are chosen on the device.
"""


@dataclass(slots=True, eq=False)
class HighestBound(Operation[float]):
    """The largest upper bound (see `residual_bound`) of the entries that are now no larger than
    `at_most`.

    values, residuals  float64[n], y and r; at least one y is no larger
    positive_residual  Σr⁺ over all vertices
    """

    local = True

    graph: GraphView
    values: Array
    residuals: Array
    damping: float
    positive_residual: float
    at_most: float


class SelectOperations(ABC):
    """Selection from vectors over the vertices."""

    def __init__(self, device: DeviceOperations) -> None:
        self._device = device

    def size(self, values: Array) -> float:
        """Σ|values[k]|, float64."""
        return float(self._device.sum(self._device.xp.abs(values)))

    def top_k(self, values: Array, k: int, to_ids: ToIds | None = None) -> TopK:
        """The k largest of values[n], float64, ties by id. 0 ≤ k ≤ n.

        to_ids  returns the ids of positions, both on the device; None: positions are ids
        """
        return self.top_k_columns(values.reshape(-1, 1), np.array([k]), to_ids)[0]

    def top_k_columns(
        self,
        values: Array,
        counts: NDArray[np.int64],
        to_ids: ToIds | None = None,
    ) -> list[TopK]:
        """`top_k` of the first len(counts) columns of values[n, columns]. 0 ≤ counts ≤ n."""
        to_host, xp = self._device.to_host, self._device.xp
        asked = np.flatnonzero(counts)
        found = [(np.empty(0, np.int64), np.empty(0)) for _ in counts]
        if len(asked) == 0:
            return found
        candidates = self._largest(values, counts, to_ids)
        for column in asked.tolist():
            if len(candidates[column][0]) > 2 * counts[column] + _MOST_COPIED:
                candidates[column] = self._chosen(*candidates[column], int(counts[column]), to_ids)
        positions, entries = candidates[asked[0]]
        if len(asked) > 1:
            listed = zip(*(candidates[column] for column in asked), strict=True)
            positions, entries = (xp.concatenate(each) for each in listed)
        ids = to_host(positions if to_ids is None else to_ids(positions)).astype(np.int64)
        largest = to_host(entries).astype(np.float64)
        ends = np.cumsum([len(candidates[column][0]) for column in asked])
        for column, own, best in zip(
            asked.tolist(), np.split(ids, ends[:-1]), np.split(largest, ends[:-1]), strict=True
        ):
            order = np.lexsort((own, -best))[: counts[column]]
            found[column] = own[order], best[order]
        return found

    def _chosen(self, positions: Array, values: Array, k: int, to_ids: ToIds | None) -> Candidates:
        """The first k of these by value, ties by id, in any order."""
        xp, last = self._device.xp, len(values) - k
        kth_largest = values.min()
        # most of so many are equal: to the least of them, if the others are too few
        if int((values > kth_largest).sum()) >= k:
            kth_largest = xp.partition(values, last)[last]
        above, equal = values > kth_largest, positions[values == kth_largest]
        larger = positions[above]
        ids = equal if to_ids is None else to_ids(equal)
        tied = equal[xp.argsort(ids)[: k - len(larger)]]
        tied_values = xp.full(len(tied), kth_largest, values.dtype)
        return xp.concatenate([larger, tied]), xp.concatenate([values[above], tied_values])

    @abstractmethod
    def _largest(
        self, values: Array, counts: NDArray[np.int64], to_ids: ToIds | None
    ) -> list[Candidates]:
        """Of each of the first len(counts) columns of values[n, columns] the counts[column] largest
        entries, ties by id, and perhaps others; anything where that is 0. 0 ≤ counts ≤ n, and not
        all are 0.
        """

    @abstractmethod
    def list_changed(
        self, values: Array, mass: float, earlier: Array, threshold: float, capacity: int
    ) -> tuple[int, Array]:
        """The ranks that changed by more than a part of what they were:
        |values/mass - earlier| > threshold·earlier.

        values   float64[n], y; ranks are y/mass. Where it is -inf is no vertex
        earlier  float64[n], ranks, not negative
        Returns how many, and int32[k] with their positions, in any order; if there are more than
        `capacity`, the positions of that many.

        Traffic: 16 bytes an entry, read once: 10⁸ take 0.4 ms at 4 TB/s.
        """

    @runs
    def highest_bound(self, do: HighestBound) -> float:
        """See HighestBound."""
        kind = (do.graph.degree, do.graph.loop, do.damping)
        added = residual_bound(self._device.xp, do.residuals, *kind, do.positive_residual)
        return float((do.values + added)[do.values <= do.at_most].max())


def residual_bound(
    xp: Any, residuals: Array, degree: Array, loop: Array, damping: float, residual_mass: float
) -> Array:
    """float64[k]: the most that a residual can still add to entries of a personalized vector,
    ``N·(r⁺(1-α) + α·Σr⁺)`` (see liverank_gpu.personalized.certified_top_k).

    residuals      float64[k], r at these entries
    degree, loop   those of GraphView at these entries
    residual_mass  Σr⁺ over all vertices
    """
    loop_share = loop / xp.where(degree > 0, degree, 1)
    returning = damping * loop_share + damping * damping * (1.0 - loop_share)
    returning = xp.where(degree > 0, returning, 0.0)
    positive = xp.maximum(residuals, 0.0)
    return (positive * (1.0 - damping) + damping * residual_mass) / (1.0 - returning)
