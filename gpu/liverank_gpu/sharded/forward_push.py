"""The iterations of published personalized PageRank over the rows of all shards.

A pull reads the contributions of all shards, which are gathered first. What a push adds along
out-lists goes to the owners of the targets (liverank_gpu.sharded.residual): what a shard sends to
one vertex arrives as a sum, which is one addition there. A one-pass push tests each of these
additions.
"""

from __future__ import annotations

import numpy as np

from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import GraphView, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.forward_push import ForwardPushOperations, ForwardState, WorkList
from liverank_gpu.operations.residual import LISTED, Residual
from liverank_gpu.sharded.columns import Columns
from liverank_gpu.sharded.residual import ShardedResidual


class ShardedForwardPush(ForwardPushOperations):
    """See ForwardPushOperations. Work-lists and vectors are over own vertices, and contributions of
    the length Numbering.columns; all shards call these together, also where one lists nothing.
    """

    def __init__(self, local: Backend, residual: ShardedResidual, columns: Columns) -> None:
        self.pushed_edge = local.forward_push.pushed_edge
        self._local, self._residual, self._columns = local, residual, columns

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
        self._residual.spread(graph, residual, sources, contributions, *none)
        return residual.listed
