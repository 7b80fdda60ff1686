"""The iterations of published personalized PageRank on ``cuda``: the host reads the length of each
work-list, as a hybrid decides by it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from liverank_gpu.backends.cuda.kernels.loader import EDGE_CHUNK
from liverank_gpu.backends.cuda.launcher import Launcher, balanced_blocks, grid_blocks, pointers
from liverank_gpu.operations.csr import GraphView, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.forward_push import ForwardPushOperations, ForwardState, WorkList


class CudaForwardPush(ForwardPushOperations):
    """See ForwardPushOperations."""

    pushed_edge = 4.0

    def __init__(self, launch: Launcher) -> None:
        self._launch = launch

    def detect(self, graph: GraphView, state: ForwardState, threshold: float) -> WorkList:
        counts = self._counts()
        self._start(
            "detect",
            grid_blocks(graph.vertices),
            graph,
            np.int64(graph.vertices),
            state.residual,
            np.float64(threshold),
            graph.outgoing.row_lengths,
            state.queue,
            counts,
        )
        return self._read(counts)

    def take(
        self, graph: GraphView, state: ForwardState, work_list: WorkList, damping: float
    ) -> None:
        self._take(graph, state, work_list, damping, None, self._counts())

    def push_in_one_pass(
        self,
        graph: GraphView,
        state: ForwardState,
        work_list: WorkList,
        damping: float,
        threshold: float,
    ) -> WorkList:
        counts = self._push(graph, state, work_list, damping, threshold)
        state.queue, state.next_queue = state.next_queue, state.queue
        self._start("unlock", grid_blocks(graph.vertices), graph, state.queue, counts, state.queued)
        return self._read(counts)

    def push(
        self, graph: GraphView, state: ForwardState, work_list: WorkList, damping: float
    ) -> None:
        self._push(graph, state, work_list, damping, None)

    def pull(self, graph: GraphView, in_rows: Rows, state: ForwardState) -> None:
        blocks, rows = self._launch.row_arguments(graph.incoming, in_rows)
        self._start("pull", blocks, graph, *rows, state.contributions, state.residual)

    def _push(
        self,
        graph: GraphView,
        state: ForwardState,
        work_list: WorkList,
        damping: float,
        threshold: float | None,
    ) -> Array:
        """threshold  of the tests of a one-pass push, or None. Returns the counts on the device."""
        counts = self._counts()
        # of each vertex one more than its edges fill, at most
        most_items = work_list.edges // EDGE_CHUNK + work_list.vertices
        items = self._launch.xp.empty(most_items, np.int64)
        self._take(graph, state, work_list, damping, items, counts)
        self._start(
            f"push<{str(threshold is not None).lower()}>",
            balanced_blocks(work_list.edges + most_items),
            graph,
            state.queue,
            items,
            *pointers(*graph.outgoing),
            graph.loop,
            state.contributions,
            state.residual,
            state.queued,
            np.float64(threshold or 0.0),
            state.next_queue,
            counts,
        )
        return counts

    def _take(
        self,
        graph: GraphView,
        state: ForwardState,
        work_list: WorkList,
        damping: float,
        items: Array | None,
        counts: Array,
    ) -> None:
        self._start(
            "take",
            grid_blocks(work_list.vertices),
            graph,
            state.queue,
            np.int64(work_list.vertices),
            graph.outgoing.row_lengths,
            graph.loop,
            graph.degree,
            state.values,
            state.residual,
            state.contributions,
            np.float64(damping),
            *pointers(items),
            counts,
        )

    def _counts(self) -> Array:
        return self._launch.xp.zeros(3, np.uint64)

    def _read(self, counts: Array) -> WorkList:
        return WorkList(*self._launch.device.to_host(counts)[:2].tolist())

    def _start(self, kernel: str, blocks: int, graph: GraphView, *arguments: Any) -> None:
        self._launch("forward_push", kernel, blocks, *arguments, weighted=graph.weighted)
