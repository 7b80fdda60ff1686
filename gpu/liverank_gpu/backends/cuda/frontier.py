"""Sets of vertices on ``cuda``, and their expansion along edges."""

from __future__ import annotations

import numpy as np

from liverank_gpu.backends.cuda.kernels.loader import BIN_LANES, BIN_LIMITS, EDGE_CHUNK, WARP
from liverank_gpu.backends.cuda.launcher import Launcher, blocks_for
from liverank_gpu.operations.csr import GraphView, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.frontier import FrontierOperations

_EXPANSION_BLOCKS = 2048
"""Blocks of an expansion, at most."""


class CudaFrontier(FrontierOperations):
    """See FrontierOperations."""

    def __init__(self, launch: Launcher) -> None:
        self._launch = launch

    def rows_of(self, vertices: Array, row_lengths: Array) -> Rows:
        xp = self._launch.xp
        vertices = xp.sort(vertices)
        bins = xp.searchsorted(xp.asarray(BIN_LIMITS, np.int32), row_lengths[vertices])
        group = len(BIN_LIMITS) - bins  # the longest rows come first
        order = vertices[xp.argsort(group, kind="stable")].astype(np.int32)
        sizes = self._launch.device.to_host(xp.bincount(group, minlength=len(BIN_LANES)))
        return Rows(order, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))

    def expand_forward(self, graph: GraphView, vertices: Array, flags: Array) -> Array:
        xp = self._launch.xp
        if len(vertices) == 0:
            return xp.zeros(0, np.int32)
        ends = self._launch.chunk_ends(graph.outgoing.row_lengths[vertices])
        chunks = int(ends[-1])
        fresh = xp.empty(min(len(flags), chunks * (EDGE_CHUNK + 1)), np.int32)
        found = xp.zeros(1, np.uint64)
        self._launch(
            "frontier",
            "expand_forward",
            blocks_for(chunks * WARP, most=_EXPANSION_BLOCKS),
            vertices.astype(np.int32),
            ends,
            np.int64(len(vertices)),
            *graph.outgoing[:3],
            graph.loop,
            flags,
            fresh,
            found,
            weighted=graph.weighted,
        )
        return fresh[: int(found[0])]

    def expand_backward(
        self,
        graph: GraphView,
        rows: Rows,  # noqa: ARG002
        frontier: Array,
        flags: Array,
    ) -> Array:
        xp = self._launch.xp
        fresh = xp.empty(len(flags), np.int32)
        found = xp.zeros(1, np.uint64)
        self._launch(
            "frontier",
            "expand_backward",
            blocks_for(len(flags), most=_EXPANSION_BLOCKS),
            np.int64(len(flags)),
            *graph.incoming[:3],
            graph.loop,
            frontier,
            flags,
            fresh,
            found,
            weighted=graph.weighted,
        )
        return fresh[: int(found[0])]
