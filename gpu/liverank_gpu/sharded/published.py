"""The iterations of the published strategies on shards, and the sets that they follow."""

from __future__ import annotations

import numpy as np

from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import GraphView, Rows, Run
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.published import (
    AFFECTED,
    PRUNED,
    ForwardPushOperations,
    ForwardState,
    IterationTrace,
    Marks,
    PublishedOperations,
    PublishedResult,
    Rule,
    WorkList,
)
from liverank_gpu.operations.residual import LISTED, FrontierOperations, Residual, Scatter
from liverank_gpu.operations.sweeps import ComputeContributions, ComputeResidual
from liverank_gpu.sharded.columns import Columns
from liverank_gpu.sharded.communicator import Communicator
from liverank_gpu.trace import TRACED_STEPS

# ---- sets of own vertices, and how they grow along the edges of all shards ----


class ShardedFrontier(FrontierOperations):
    """See FrontierOperations. Vertices and flags are own ones, and so is what is returned; all
    shards call these together, also where one has no vertices.
    """

    def __init__(self, local: Backend, columns: Columns) -> None:
        self._local, self._columns = local, columns
        self._flags = local.xp.zeros(0, np.int32)

    def rows_of(self, vertices: Array, row_lengths: Array) -> Rows:
        return self._local.frontier.rows_of(vertices, row_lengths)

    def expand_forward(self, graph: GraphView, vertices: Array, flags: Array) -> Array:
        found = self.targets(graph, vertices)
        fresh = found[flags[found] == 0]
        flags[fresh] = 1
        return fresh

    def targets(self, graph: GraphView, vertices: Array) -> Array:
        """int32[…], distinct: the own vertices that any of these is followed by, on all shards."""
        # after an error in between they are not all 0, and other ones follow
        flags, self._flags = self._flags, self._local.xp.zeros(0, np.int32)
        count = self._columns.numbering.columns
        if len(flags) != count:
            flags = self._local.xp.zeros(count, np.int32)
        columns = self._local.frontier.expand_forward(graph, vertices, flags)
        flags[columns] = 0
        self._flags = flags
        return self._columns.sent(columns)

    def expand_backward(self, graph: GraphView, rows: Rows, frontier: Array, flags: Array) -> Array:
        everywhere = self._columns.gathered(frontier)
        return self._local.frontier.expand_backward(graph, rows, everywhere, flags)


# ---- the iterations of the published strategies over the rows of all shards ----
#
# An iteration takes the residual of the affected rows, r = β + α·c - (1 - αℓ/d)·y, which is the
# step that it makes: y' = y + r, or y + r / (1 - αℓ/d) in closed form. It begins with the
# contributions of all shards, and ends with one exchange of numbers, and one of the vertices that
# become affected.


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


# ---- the iterations of published personalized PageRank over the rows of all shards ----
#
# A pull reads the contributions of all shards, which are gathered first. What a push adds along
# out-lists goes to the owners of the targets (liverank_gpu.sharded.residual): what a shard sends
# to one vertex arrives as a sum, which is one addition there. A one-pass push tests each of these
# additions.


class ShardedForwardPush(ForwardPushOperations):
    """See ForwardPushOperations. Work-lists and vectors are over own vertices, and contributions of
    the length Numbering.columns; all shards call these together, also where one lists nothing.
    """

    def __init__(self, local: Backend, run: Run, columns: Columns) -> None:
        """run  the operations of all shards"""
        self.pushed_edge = local.forward_push.pushed_edge
        self._local, self._run, self._columns = local, run, columns

    def detect(self, graph: GraphView, state: ForwardState, threshold: float) -> WorkList:
        return self._local.forward_push.detect(graph, state, threshold)

    def take(
        self, graph: GraphView, state: ForwardState, work_list: WorkList, damping: float
    ) -> None:
        self._local.forward_push.take(graph, state, work_list, damping)

    def push_in_one_pass(
        self,
        graph: GraphView,
        state: ForwardState,
        work_list: WorkList,
        damping: float,
        threshold: float,
    ) -> WorkList:
        self.take(graph, state, work_list, damping)
        sources = state.queue[: work_list.vertices]
        # a loop may have left enough, with no addition after it
        left = sources[state.residual[sources] > threshold]
        state.next_queue[: len(left)] = left
        state.queued[left] = LISTED
        lists = (state.queued, state.next_queue, len(left), threshold)
        count = self._add(graph, state, sources, lists)
        state.queue, state.next_queue = state.next_queue, state.queue
        listed = state.queue[:count]
        state.queued[listed] = 0
        edges = self._local.device.sum(graph.outgoing.row_lengths[listed])
        return WorkList(count, int(edges))

    def push(
        self, graph: GraphView, state: ForwardState, work_list: WorkList, damping: float
    ) -> None:
        self.take(graph, state, work_list, damping)
        nothing_listed = (state.queued, state.next_queue, 0, np.inf)
        self._add(graph, state, state.queue[: work_list.vertices], nothing_listed)

    def pull(self, graph: GraphView, in_rows: Rows, state: ForwardState) -> None:
        self._columns.gather(state.contributions)
        self._local.forward_push.pull(graph, in_rows, state)

    def _add(
        self,
        graph: GraphView,
        state: ForwardState,
        sources: Array,
        lists: tuple[Array, Array, int, float],
    ) -> int:
        """Adds what these vertices send to r. Returns how many vertices are listed then.

        lists  marks, candidates, listed and floor of a Residual
        """
        residual = Residual(state.residual, *lists, 0)
        contributions = state.contributions[sources]
        none = (self._local.xp.empty(0, np.int32), self._local.xp.empty(0))
        self._run(Scatter(graph, residual, sources, contributions, *none))
        return residual.listed
