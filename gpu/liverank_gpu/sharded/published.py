"""The iterations of the published strategies over the rows of all shards.

An iteration takes the residual of the affected rows, r = β + α·c - (1 - αℓ/d)·y, which is the step
that it makes: y' = y + r, or y + r / (1 - αℓ/d) in closed form. It begins with the contributions of
all shards, and ends with one exchange of numbers, and one of the vertices that become affected.
"""

from __future__ import annotations

import numpy as np

from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import GraphView, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.published import (
    AFFECTED,
    PRUNED,
    IterationTrace,
    Marks,
    PublishedOperations,
    PublishedResult,
    Rule,
)
from liverank_gpu.operations.sweeps import ComputeContributions, ComputeResidual
from liverank_gpu.sharded.columns import Columns
from liverank_gpu.sharded.communicator import Communicator
from liverank_gpu.sharded.frontier import ShardedFrontier
from liverank_gpu.trace import TRACED_STEPS


class ShardedPublished(PublishedOperations):
    """See PublishedOperations. Vectors and marks are over own vertices."""

    def __init__(
        self,
        local: Backend,
        communicator: Communicator,
        columns: Columns,
        frontier: ShardedFrontier,
    ) -> None:
        self._local, self._communicator = local, communicator
        self._columns, self._frontier = columns, frontier

    def expand(self, graph: GraphView, out_rows: Rows, marks: Marks) -> None:  # noqa: ARG002
        vertices = self._local.xp.flatnonzero(marks.expanding).astype(np.int32)
        marks.expanding[vertices] = 0
        marks.states[self._frontier.targets(graph, vertices)] = AFFECTED

    def iterate(
        self,
        graph: GraphView,
        in_rows: Rows,
        out_rows: Rows | None,
        values: Array,
        contributions: Array,
        rhs_scale: float,
        marks: Marks | None,
        rule: Rule,
        traced: bool,
    ) -> PublishedResult:
        """contributions  of the length Numbering.columns"""
        xp, sums = self._local.xp, self._communicator.sums
        in_lengths = graph.incoming.row_lengths
        (vertices,) = sums([graph.vertices])
        residual = self._local.device.allocate("steps of an iteration", graph.vertices, np.float64)
        iterations, converged = 0, False
        trace: list[list[float]] = []
        while not converged and iterations < rule.max_iterations:
            iterations += 1
            if rule.dangling_mass > 0.0:
                (dangling,) = sums([float(self._local.device.sum(values[graph.degree == 0]))])
                mass = (1.0 - rule.damping) * rule.dangling_mass + rule.damping * dangling
                rhs_scale = mass / vertices
            rows = in_rows
            if marks is not None:
                affected = xp.flatnonzero(marks.states == AFFECTED).astype(np.int32)
                rows = self._local.frontier.rows_of(affected, in_lengths)
            self._local.run(ComputeContributions(graph, values, contributions))
            self._columns.gather(contributions)
            arrays = (values, contributions, rhs_scale, rule.damping, residual)
            self._local.run(ComputeResidual(graph, rows, *arrays))
            numbers = self._step(graph, rows, values, residual, marks, rule)
            table = self._communicator.gather(numbers)
            largest, largest_relative = table[:, :2].max(axis=0).tolist()
            converged = largest <= rule.tolerance
            if traced and len(trace) < TRACED_STEPS:
                trace.append([*table[:, 2:].sum(axis=0).tolist(), largest_relative])
            last = converged or iterations == rule.max_iterations
            if marks is not None and out_rows is not None and not last:
                self.expand(graph, out_rows, marks)
                if rule.most_edges is not None:
                    own = self._local.device.sum(in_lengths[marks.states == AFFECTED])
                    if sums([float(own)])[0] > rule.most_edges:
                        break
        return PublishedResult(
            iterations, converged, rhs_scale, _trace_of(trace) if traced else None
        )

    def _step(
        self,
        graph: GraphView,
        rows: Rows,
        values: Array,
        residual: Array,
        marks: Marks | None,
        rule: Rule,
    ) -> list[float]:
        """Makes the step at these rows. Returns the largest change and the largest relative one;
        and how many vertices were recomputed, from how many edges, and pruned.
        """
        if rows.count == 0:
            return [0.0] * 5
        xp, order = self._local.xp, rows.order
        step = residual[order]
        if rule.closed_form:
            degree = graph.degree[order]
            loop = graph.loop[order].astype(np.float64)
            step /= 1.0 - rule.damping * loop / xp.where(degree > 0, degree, 1)
        old = values[order]
        values[order] = new = old + step
        change, size = xp.abs(new - old), xp.maximum(new, old)
        relative = change / size
        pruned = relative <= rule.prune_tolerance
        if marks is not None:
            marks.states[order[pruned]] = PRUNED
            marks.expanding[order[relative > rule.frontier_tolerance]] = 1
        edges = self._local.device.sum(graph.incoming.row_lengths[order])
        counts = [edges.astype(np.float64), pruned.sum().astype(np.float64)]
        numbers = self._local.device.to_host(xp.stack([change.max(), relative.max(), *counts]))
        largest, largest_relative, read, left = numbers.tolist()
        return [largest, largest_relative, float(rows.count), read, left]


def _trace_of(steps: list[list[float]]) -> IterationTrace:
    columns = np.array(steps).reshape(-1, 4).T
    recomputed, edges, pruned = columns[:3].astype(np.int64)
    return IterationTrace(recomputed, edges, pruned, columns[3])
