"""The iterations of published personalized PageRank on ``cuda``: the host reads the length of each
work-list, as a hybrid decides by it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu.backends.cuda.kernels.loader import EDGE_CHUNK
from gpu.backends.cuda.launcher import Launcher, balanced_blocks, grid_blocks, pointers
from gpu.operations.csr import GraphView, Rows
from gpu.operations.device import Array
from gpu.operations.forward_push import ForwardPushOperations, ForwardState, Mode, WorkList


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

    def iterate(
        self,
        graph: GraphView,
        in_rows: Rows,
        state: ForwardState,
        work_list: WorkList,
        mode: Mode,
        damping: float,
        threshold: float,
    ) -> WorkList:
        listed, counts = state.queue[: work_list.vertices], self._counts()
        # of each vertex one more than its edges fill, at most
        most_items = work_list.edges // EDGE_CHUNK + work_list.vertices
        items = None if mode == "pull" else self._launch.xp.empty(most_items, np.int64)
        if mode == "pull":
            state.contributions.fill(0.0)
        self._start(
            "take",
            grid_blocks(work_list.vertices),
            graph,
            listed,
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
        if items is None:
            blocks, rows = self._launch.row_arguments(graph.incoming, in_rows)
            self._start("pull", blocks, graph, *rows, state.contributions, state.residual)
            return self.detect(graph, state, threshold)
        self._start(
            f"push<{str(mode == 'push').lower()}>",
            balanced_blocks(work_list.edges + most_items),
            graph,
            listed,
            items,
            *pointers(*graph.outgoing),
            graph.loop,
            state.contributions,
            state.residual,
            state.queued,
            np.float64(threshold),
            state.next_queue,
            counts,
        )
        if mode == "pushopt":
            return self.detect(graph, state, threshold)
        state.queue, state.next_queue = state.next_queue, state.queue
        self._start("unlock", grid_blocks(graph.vertices), graph, state.queue, counts, state.queued)
        return self._read(counts)

    def _counts(self) -> Array:
        return self._launch.xp.zeros(3, np.uint64)

    def _read(self, counts: Array) -> WorkList:
        return WorkList(*self._launch.device.to_host(counts)[:2].tolist())

    def _start(self, kernel: str, blocks: int, graph: GraphView, *arguments: Any) -> None:
        self._launch("forward_push", kernel, blocks, *arguments, weighted=graph.weighted)
