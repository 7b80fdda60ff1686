"""The iterations of published personalized PageRank on ``cpu``.

Pushes run on one core: adding to shared entries from several takes atomic operations. Pulls and
tests run on all cores.
"""

from __future__ import annotations

from liverank_gpu.native import kernels
from liverank_gpu.operations.csr import GraphView, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.forward_push import ForwardPushOperations, ForwardState, WorkList


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
