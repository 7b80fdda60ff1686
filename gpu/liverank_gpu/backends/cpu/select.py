"""The largest entries of vectors on ``cpu``, and bounds on the others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.native import kernels
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.select import Candidates, SelectOperations, ToIds

_GROUP = 64
"""Values of which only the largest is looked at in `_at_most_kth_largest`."""


class CpuSelect(SelectOperations):
    def _largest(
        self,
        values: Array,
        counts: NDArray[np.int64],
        to_ids: ToIds | None,  # noqa: ARG002
    ) -> list[Candidates]:
        found = []
        for column, count in enumerate(counts.tolist()):
            entries = np.ascontiguousarray(values[:, column])
            least = _at_most_kth_largest(entries, count) if count else np.inf
            positions = np.flatnonzero(entries >= least)
            found.append((positions, entries[positions]))
        return found

    def list_changed(
        self, values: Array, mass: float, earlier: Array, threshold: float, capacity: int
    ) -> tuple[int, Array]:
        listed = np.empty(min(capacity, len(values)), np.int32)
        found: int = kernels.list_changed(values, mass, earlier, threshold, listed)
        return found, listed[:found]


def _at_most_kth_largest(values: Array, k: int) -> float:
    """A number at most the k-th largest value, and usually not far below it: the k-th largest of
    the maxima of small groups.
    """
    group = max(1, min(_GROUP, len(values) // k))
    whole = values[: len(values) // group * group].reshape(group, -1)
    maxima = whole.max(axis=0)
    return float(np.partition(maxima, len(maxima) - k)[len(maxima) - k])
