"""Sets of vertices on ``cuda``, their expansion along edges, and Jacobi steps over them."""

from __future__ import annotations

import numpy as np

from gpu.backends.cuda.device import NULL
from gpu.backends.cuda.kernels.loader import BIN_LANES, BIN_LIMITS, EDGE_CHUNK, WARP
from gpu.backends.cuda.launcher import Launcher, blocks_for, grid_blocks
from gpu.operations.csr import GraphView, Rows
from gpu.operations.device import Array
from gpu.operations.frontier import Frontier, FrontierOperations, JacobiResult

_EXPANSION_BLOCKS = 2048
"""Blocks of an expansion, at most."""


class CudaFrontier(FrontierOperations):
    """See FrontierOperations."""

    def __init__(self, launch: Launcher) -> None:
        self._launch = launch

    def compact_rows(self, flags: Array, rows: Rows, row_lengths: Array) -> Rows:  # noqa: ARG002
        xp = self._launch.xp
        kept = flags[rows.order] != 0
        before = xp.zeros(rows.count + 1, np.int64)
        xp.cumsum(kept, out=before[1:])
        groups = self._launch.device.to_host(before[xp.asarray(rows.groups)])
        return Rows(rows.order[kept], groups)

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

    def jacobi_step(
        self,
        graph: GraphView,
        rows: Rows,
        values: Array,
        contributions: Array | None,
        rhs_scale: float,
        damping: float,
        new_values: Array,
        frontier: Frontier,
    ) -> JacobiResult:
        xp = self._launch.xp
        divided = str(contributions is None).lower()
        given = NULL if contributions is None else contributions
        sums = self._launch.over_rows(
            "residual",
            f"jacobi_step<{divided}>",
            graph.incoming,
            rows,
            graph.loop,
            graph.degree,
            values,
            given,
            np.float64(rhs_scale),
            np.float64(damping),
            new_values,
            frontier.affected,
            frontier.expanding,
            np.float64(frontier.prune_tolerance),
            np.float64(frontier.frontier_tolerance),
        )
        grows = np.isfinite(frontier.frontier_tolerance)
        expanding, remaining = xp.empty((2, rows.count if grows else 1), np.int32)
        found = xp.zeros(2, np.uint64)
        self._launch(
            "residual",
            "finish_step",
            grid_blocks(rows.count),
            rows.order,
            np.int64(rows.count),
            graph.degree,
            new_values,
            values,
            given,
            frontier.affected,
            frontier.expanding,
            np.int32(grows),
            expanding,
            remaining,
            found,
            weighted=graph.weighted,
        )
        largest_change = float(self._launch.device.to_host(sums)[-1])
        expanded, remained = self._launch.device.to_host(found).tolist()
        return JacobiResult(
            largest_change, expanding[:expanded], remaining[:remained] if grows else rows.order
        )
