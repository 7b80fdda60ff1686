"""The parts of a round of a push, on ``cuda``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from liverank_gpu.backends.cuda.launcher import Launcher
from liverank_gpu.operations.csr import GraphView
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.residual import SOLVES, Residual
from liverank_gpu.operations.rounds import LEVELS, RoundOperations


class CudaRounds(RoundOperations):
    """See RoundOperations. Lists are in any order."""

    def __init__(self, launch: Launcher) -> None:
        self._launch = launch

    def count_candidates(
        self,
        graph: GraphView,
        residual: Residual,
        thresholds: Sequence[float],
        edge_weight: float,
    ) -> list[int]:
        numbers = self._launch.xp.zeros(2 * LEVELS + 1, np.uint64)
        self._launch(
            "rounds",
            "count_candidates",
            self._launch.resident_blocks(residual.listed),
            residual.candidates,
            np.int64(residual.listed),
            residual.values,
            graph.outgoing.row_lengths,
            *map(np.float64, thresholds),
            np.float64(residual.floor),
            np.float64(edge_weight),
            numbers,
        )
        counted: list[int] = self._launch.device.to_host(numbers).tolist()
        return counted

    def take_candidates(
        self,
        graph: GraphView,
        residual: Residual,
        threshold: float,
        edge_weight: float,
        count: int,
        kept: int,
    ) -> Array:
        xp = self._launch.xp
        queue, candidates = xp.empty(count, np.int32), xp.empty_like(residual.candidates)
        self._launch(
            "rounds",
            "take_candidates",
            self._launch.resident_blocks(residual.listed),
            residual.candidates,
            np.int64(residual.listed),
            residual.values,
            graph.outgoing.row_lengths,
            np.float64(threshold),
            np.float64(residual.floor),
            np.float64(edge_weight),
            residual.marks,
            candidates,
            queue,
            xp.zeros(2, np.uint64),
        )
        residual.candidates, residual.listed = candidates, kept
        return queue

    def push_vertices(
        self, graph: GraphView, values: Array, damping: float, residual: Residual, vertices: Array
    ) -> tuple[Array, Array]:
        xp, count = self._launch.xp, len(vertices)
        contributions, sums = xp.empty(count), xp.zeros(5)
        self._launch(
            "rounds",
            "push_vertices",
            self._launch.resident_blocks(count),
            vertices,
            np.int64(count),
            graph.loop,
            graph.degree,
            values,
            residual.values,
            residual.marks,
            np.int32(residual.solve % SOLVES),
            np.float64(damping),
            contributions,
            sums,
            weighted=graph.weighted,
        )
        return contributions, sums
