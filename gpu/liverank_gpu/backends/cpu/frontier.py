"""Sets of vertices on ``cpu``, their expansion along edges, and Jacobi steps over them."""

from __future__ import annotations

import numpy as np

from liverank_gpu.backends.cpu.rows import CHUNK_WORK, NO_VALUES, chunk_rows
from liverank_gpu.native import kernels
from liverank_gpu.operations.csr import GraphView, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.frontier import Frontier, FrontierOperations, JacobiResult


class CpuFrontier(FrontierOperations):
    """See FrontierOperations."""

    def compact_rows(self, flags: Array, rows: Rows, row_lengths: Array) -> Rows:  # noqa: ARG002
        # `rows` are all rows, so a scan of the flags finds their members in ascending order
        order = np.flatnonzero(flags).astype(np.int32)
        return chunk_rows(order, row_lengths[order])

    def rows_of(self, vertices: Array, row_lengths: Array) -> Rows:
        order = np.sort(vertices).astype(np.int32, copy=False)
        return chunk_rows(order, row_lengths[order])

    def expand_forward(self, graph: GraphView, vertices: Array, flags: Array) -> Array:
        vertices = vertices.astype(np.int32, copy=False)
        row_lengths = graph.outgoing.row_lengths[vertices]
        edges = int(row_lengths.sum(dtype=np.int64)) + len(vertices)
        if edges < min(CHUNK_WORK, len(flags)):
            fresh = np.empty(edges, np.int32)
            found = kernels.expand_forward_few(vertices, graph.outgoing, graph.loop, flags, fresh)
            return fresh[:found]
        before = flags.copy()
        kernels.expand_forward(vertices, graph.outgoing, graph.loop, flags)
        return np.flatnonzero(flags != before).astype(np.int32)

    def expand_backward(self, graph: GraphView, rows: Rows, frontier: Array, flags: Array) -> Array:
        before = flags.copy()
        kernels.expand_backward(
            rows.groups, rows.order, graph.incoming, graph.loop, frontier, flags
        )
        return np.flatnonzero(flags != before).astype(np.int32)

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
        order = rows.order
        largest_changes = np.zeros(len(rows.groups) - 1)
        kernels.jacobi_step(
            rows.groups,
            order,
            graph.incoming,
            graph.loop,
            graph.degree,
            values,
            NO_VALUES if contributions is None else contributions,
            rhs_scale,
            damping,
            new_values,
            frontier.affected,
            frontier.expanding,
            frontier.prune_tolerance,
            frontier.frontier_tolerance,
            largest_changes,
        )
        values[order] = new_values[order]
        if contributions is not None:
            degree = graph.degree[order]
            contributions[order] = np.where(
                degree > 0, values[order] / np.where(degree > 0, degree, 1), 0.0
            )
        expanding, remaining = order[:0], order
        if np.isfinite(frontier.frontier_tolerance):
            expanding = order[frontier.expanding[order] != 0]
            frontier.expanding[expanding] = 0
            remaining = order[frontier.affected[order] != 0]
        return JacobiResult(float(largest_changes.max(initial=0.0)), expanding, remaining)
