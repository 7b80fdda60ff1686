"""The iterations of the published strategies on ``cpu``, of global and of personalized ranks."""

from __future__ import annotations

import numpy as np

from liverank_gpu.backends.cpu.sweeps import NO_MARKS, STRIPE
from liverank_gpu.native import kernels
from liverank_gpu.operations.csr import GraphView, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.published import (
    AFFECTED,
    ForwardPushOperations,
    ForwardState,
    IterationTrace,
    Marks,
    PublishedOperations,
    PublishedResult,
    Rule,
    WorkList,
)
from liverank_gpu.trace import TRACED_STEPS

# The iterations of the published strategies on ``cpu``: byte arrays over all vertices, as in the
# paper, and a round over the chunks of all rows an iteration.

_LARGEST, _LARGEST_RELATIVE, _RECOMPUTED, _EDGES, _PRUNED, _SUMS = range(6)


class CpuPublished(PublishedOperations):
    """See PublishedOperations."""

    def expand(self, graph: GraphView, out_rows: Rows, marks: Marks) -> None:  # noqa: ARG002
        kernels.expand_affected(graph.outgoing, graph.loop, *marks)

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
        states, expanding = marks or (NO_MARKS, NO_MARKS)
        sums = np.zeros((len(in_rows.groups) - 1, _SUMS))
        dangling = np.zeros(-(-graph.vertices // STRIPE))
        kernels.send(values, graph.degree, NO_MARKS, contributions, dangling)
        iterations, converged = 0, False
        trace: list[list[float]] = []
        while not converged and iterations < rule.max_iterations:
            iterations += 1
            if rule.dangling_mass > 0.0:
                mass = (1.0 - rule.damping) * rule.dangling_mass + rule.damping * dangling.sum()
                rhs_scale = float(mass / graph.vertices)
            kernels.update_ranks(
                in_rows.groups,
                in_rows.order,
                graph.incoming,
                graph.loop,
                graph.degree,
                values,
                contributions,
                states,
                expanding,
                rhs_scale,
                rule.damping,
                rule.closed_form,
                rule.prune_tolerance,
                rule.frontier_tolerance,
                sums,
            )
            kernels.send(values, graph.degree, states, contributions, dangling)
            converged = bool(sums[:, _LARGEST].max() <= rule.tolerance)
            if traced and len(trace) < TRACED_STEPS:
                largest = float(sums[:, _LARGEST_RELATIVE].max())
                counts = sums[:, [_RECOMPUTED, _EDGES, _PRUNED]].sum(axis=0)
                trace.append([*counts.tolist(), largest])
            last = converged or iterations == rule.max_iterations
            if marks is not None and out_rows is not None and not last:
                self.expand(graph, out_rows, marks)
                if rule.most_edges is not None:
                    affected = marks.states == AFFECTED
                    edges = int(graph.incoming.row_lengths[affected].sum(dtype=np.int64))
                    if edges > rule.most_edges:
                        break
        return PublishedResult(
            iterations, converged, rhs_scale, _trace_of(trace) if traced else None
        )


def _trace_of(rows: list[list[float]]) -> IterationTrace:
    columns = np.array(rows).reshape(-1, 4).T
    recomputed, edges, pruned = columns[:3].astype(np.int64)
    return IterationTrace(recomputed, edges, pruned, columns[3])


# ---- the iterations of published personalized PageRank on ``cpu`` ----
#
# Pushes run on one core: adding to shared entries from several takes atomic operations. Pulls and
# tests run on all cores.


class CpuForwardPush(ForwardPushOperations):
    """See ForwardPushOperations."""

    pushed_edge = 1.5

    def detect(self, graph: GraphView, state: ForwardState, threshold: float) -> WorkList:
        lengths: Array = graph.outgoing.row_lengths
        return WorkList(*kernels.detect(state.residual, threshold, lengths, state.queue))

    def take(
        self, graph: GraphView, state: ForwardState, work_list: WorkList, damping: float
    ) -> None:
        kernels.take(
            state.queue[: work_list.vertices],
            graph.loop,
            graph.degree,
            state.values,
            state.residual,
            state.contributions,
            damping,
        )

    def push_in_one_pass(
        self,
        graph: GraphView,
        state: ForwardState,
        work_list: WorkList,
        damping: float,
        threshold: float,
    ) -> WorkList:
        self.take(graph, state, work_list, damping)
        following = kernels.push_in_one_pass(
            state.queue[: work_list.vertices],
            graph.outgoing,
            state.residual,
            state.contributions,
            threshold,
            state.next_queue,
            state.queued,
        )
        state.queue, state.next_queue = state.next_queue, state.queue
        return WorkList(*following)

    def push(
        self, graph: GraphView, state: ForwardState, work_list: WorkList, damping: float
    ) -> None:
        self.take(graph, state, work_list, damping)
        listed = state.queue[: work_list.vertices]
        kernels.push_listed(listed, graph.outgoing, state.residual, state.contributions)

    def pull(self, graph: GraphView, in_rows: Rows, state: ForwardState) -> None:
        lists = (graph.incoming, state.residual, state.contributions)
        kernels.pull_all(in_rows.groups, in_rows.order, *lists)
