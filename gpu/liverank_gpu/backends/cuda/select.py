"""The largest entries of vectors on ``cuda``, and bounds on the others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cuda.kernels.loader import BLOCK, COLUMNS
from liverank_gpu.backends.cuda.launcher import Launcher
from liverank_gpu.operations.csr import runs
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.select import Candidates, HighestBound, SelectOperations, ToIds

_LEAST_GROUPS, _SPREAD = 1 << 10, 8
"""Groups of values whose maxima are compared: at least so many, and so many for each value asked
for, of which few then share a group; at most as many as values.
"""

_ROOM = 4
"""Room in a list of values, for each one asked for and beside that for _LEAST_GROUPS."""

_TIED_AT_ONCE = 1 << 22
"""Values of columns that are copied at once, if many of them are equal."""

_WAVES = 4
"""Blocks of a pass over a vector, at most, in units of those that are resident at once."""


class CudaSelect(SelectOperations):
    def __init__(self, launch: Launcher) -> None:
        super().__init__(launch.device)
        self._launch = launch

    def size(self, values: Array) -> float:
        sums = self._launch.over_values("sweep", "sum_sizes", values)
        return float(self._launch.device.to_host(sums)[0])

    def _largest(
        self, values: Array, counts: NDArray[np.int64], to_ids: ToIds | None
    ) -> list[Candidates]:
        rows, most = len(values), int(counts.max())
        room = min(rows, _ROOM * most + _LEAST_GROUPS)
        maxima = self._group_maxima(values, min(rows, max(_LEAST_GROUPS, _SPREAD * most)))
        sizes, positions, entries = self._at_least(values, maxima, counts, room)
        sizes = sizes[: len(counts)]
        found = [
            (positions[column, :size], entries[column, :size])
            for column, size in enumerate(sizes.tolist())
        ]
        many = np.flatnonzero(sizes > room)
        at_once = max(1, _TIED_AT_ONCE // rows)
        for first in range(0, len(many), at_once):
            some = many[first : first + at_once]
            few = self._launch.xp.ascontiguousarray(values[:, some])
            for column, each in zip(
                some.tolist(),
                self._with_ties(few, maxima[some], counts[some], entries[some], to_ids),
                strict=True,
            ):
                found[column] = each
        return found

    def _with_ties(
        self,
        values: Array,
        maxima: Array,
        counts: NDArray[np.int64],
        entries: Array,
        to_ids: ToIds | None,
    ) -> list[Candidates]:
        """Finds the largest of columns with many values as large as the maximum that they were
        compared with: those above it and, by id, as many that equal it as are wanted. Few values
        are above it: a query may have reached fewer vertices than it asked for.

        entries  float64[columns, room], of each column values at least as large as that maximum
        """
        xp, rows = self._launch.xp, len(values)
        maxima[np.arange(len(counts)), maxima.shape[1] - counts] += 1
        sizes, positions, larger = self._at_least(values, maxima, counts, entries.shape[1])
        missing = np.maximum(counts - sizes[: len(counts)], 0)
        tied: list[Candidates] = []
        if missing.any():
            ids: Array = xp.arange(rows, dtype=np.int32)
            ids = ids if to_ids is None else to_ids(ids)
            least = entries.min(axis=1)
            # distinct, and the largest that of the lowest id
            keys = xp.where(values == least, -ids.astype(np.float64)[:, None], -np.inf)
            tied = self._largest(keys, missing, None)
        found = []
        for column, absent in enumerate(missing.tolist()):
            if absent == 0:
                found.append(self._all_as_large(values[:, column], int(counts[column])))
                continue
            above, equal = slice(0, int(sizes[column])), tied[column][0]
            found.append(
                (
                    xp.concatenate([positions[column, above], equal]),
                    xp.concatenate([larger[column, above], values[equal, column]]),
                )
            )
        return found

    def _all_as_large(self, values: Array, k: int) -> Candidates:
        """All of values[n] that are at least as large as the k-th largest, however many."""
        column = self._launch.xp.ascontiguousarray(values).reshape(-1, 1)
        count = np.array([k])
        maxima = self._group_maxima(column, len(values))
        sizes, _, _ = self._at_least(column, maxima, count, 0)
        _, positions, entries = self._at_least(column, maxima, count, int(sizes[0]))
        return positions[0], entries[0]

    def _group_maxima(self, values: Array, least: int) -> Array:
        """uint64[columns, groups]: the largest value of each group of each column, as ordered bits
        (see select.cu), ascending. There are at least so many groups.
        """
        columns = values.shape[1]
        maxima = self._launch.xp.zeros((columns, -(-least // BLOCK) * BLOCK), np.uint64)
        self._over(values, maxima, "group_maxima")
        # CuPy sorts a vector in place, and a matrix by way of indices
        (maxima[0] if columns == 1 else maxima).sort(axis=-1)
        return maxima

    def _at_least(
        self, values: Array, maxima: Array, counts: NDArray[np.int64], room: int
    ) -> tuple[NDArray[np.int64], Array, Array]:
        """Of each column the values that are at least as large as its maximum number counts[column]
        from the end: how many, int64[columns]; and int32[columns, room] with the positions of that
        many, in any order, and the values there.
        """
        xp, columns = self._launch.xp, values.shape[1]
        wanted = (*counts.tolist(), *[0] * (COLUMNS - len(counts)))
        sizes = xp.zeros(columns, np.uint64)
        positions = xp.empty((columns, room), np.int32)
        entries = xp.empty((columns, room), values.dtype)
        # by value: a copy to the device would take as long as a launch
        lists = (wanted, room, positions, entries, sizes)
        self._over(values, maxima, "list_largest", *lists)
        return self._device.to_host(sizes).astype(np.int64), positions, entries

    def _over(self, values: Array, maxima: Array, kernel: str, *arguments: Any) -> None:
        """Launches a kernel over values[n, columns]; each thread stays in one group."""
        columns, groups = maxima.shape
        each = columns * groups // BLOCK
        blocks = self._launch.resident_blocks(values.size, _WAVES)
        self._launch(
            "select",
            kernel,
            each * max(1, blocks // each),
            values,
            values.size,
            columns,
            groups,
            maxima,
            *arguments,
        )

    def list_changed(
        self, values: Array, mass: float, earlier: Array, threshold: float, capacity: int
    ) -> tuple[int, Array]:
        xp, count = self._launch.xp, len(values)
        listed, counter = xp.empty(min(capacity, count), np.int32), xp.zeros(1, np.uint64)
        self._launch(
            "select",
            "list_changed",
            self._launch.resident_blocks(count, _WAVES),
            values,
            earlier,
            count,
            mass,
            threshold,
            len(listed),
            listed,
            counter,
        )
        found = int(counter[0])
        return found, listed[:found]

    @runs
    def highest_bound(self, do: HighestBound) -> float:
        count = len(do.values)
        blocks = self._launch.resident_blocks(count, _WAVES)
        highest = self._launch.xp.empty(blocks)
        self._launch.run("select", "highest_bound", blocks, do, count=count, highest=highest)
        return float(self._device.to_host(highest).max())
