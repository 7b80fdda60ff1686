"""Vertices with the same in-list, on ``cuda``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cuda.kernels.loader import WARP
from liverank_gpu.backends.cuda.launcher import Launcher, pointers
from liverank_gpu.operations.csr import GraphView
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.lists import Fingerprints, ListOperations

_WAVES = 16
"""Blocks of a launch, at most, in units of those that are resident at once: lists differ in
length.
"""

_COPIED = 2048
"""Vertices that are copied before it is known how many there are: most often all of them."""


class CudaLists(ListOperations):
    """See ListOperations."""

    def __init__(self, launch: Launcher) -> None:
        self._launch = launch
        self._device = launch.device

    def fingerprints(self, graph: GraphView, positions: Array, longest: int) -> Fingerprints:
        found = self._launch.xp.empty((len(Fingerprints._fields), len(positions)), np.int64)
        self._launch(
            "lists",
            "fingerprints",
            self._launch.resident_blocks(len(positions) * WARP, _WAVES),
            positions.astype(np.int64, copy=False),
            np.int64(len(positions)),
            np.int32(longest),
            *pointers(*graph.incoming),
            graph.loop,
            graph.degree,
            graph.outgoing.row_lengths,
            found,
            weighted=graph.weighted,
        )
        return Fingerprints(*self._device.to_host(found))

    def with_same_list(
        self, graph: GraphView, lists: Fingerprints
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        ends = np.cumsum(lists.out_edges)
        asked = np.stack([ends, lists.positions, lists.sources])
        # zeroed, since the copy has more than is written
        found = self._launch.xp.zeros(1 + int(ends[-1]), np.int64)
        self._launch(
            "lists",
            "find_same",
            self._launch.resident_blocks(int(ends[-1]) * WARP, _WAVES),
            self._device.to_device(asked),
            np.int64(len(ends)),
            graph.outgoing.row_starts,
            graph.outgoing.column_indices,
            *pointers(*graph.incoming),
            graph.loop,
            graph.degree,
            found.view(np.uint64),
            weighted=graph.weighted,
        )
        copied = self._device.to_host(found[: 1 + _COPIED])
        end = 1 + int(copied[0])
        pairs = copied[1:end] if end <= len(copied) else self._device.to_host(found[1:end])
        return pairs >> 32, pairs & 0xFFFFFFFF
