"""The iterations of the published strategies on shards, and the sets that they follow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import GraphView, Rows, Run, Table
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.published import (
    AFFECTED,
    DetectListed,
    ExpandAffected,
    IterateRanks,
    PushInOnePass,
    PushListed,
    TakeListed,
    WorkList,
    iterate_ranks,
)
from liverank_gpu.operations.residual import LISTED, FrontierOperations, Residual, Scatter
from liverank_gpu.sharded.columns import Columns

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
# A pull reads the contributions of all shards, which are gathered first. What a push adds along
# out-lists goes to the owners of the targets (liverank_gpu.sharded.residual): what a shard sends
# to one vertex arrives as a sum, which is one addition there. A one-pass push tests each of these
# additions.


class ShardedPublished:
    """What shards run in another way: what becomes of vertices along out-lists. Marks, work-lists
    and vectors are over own vertices; all shards run these together, also where one lists nothing.
    """

    def __init__(
        self,
        local: Backend,
        frontier: ShardedFrontier,
        run: Run,
        total: Callable[[Array], float],
    ) -> None:
        """run    the operations of all shards
        total  the sum over the vertices of all shards
        """
        self._local, self._frontier, self._run, self._total = local, frontier, run, total

    @property
    def table(self) -> Table:
        """What runs each operation."""
        return {
            IterateRanks: partial(iterate_ranks, self._run, self._total),
            ExpandAffected: self._expand_affected,
            DetectListed: self._local.run,
            PushListed: self._push,
            PushInOnePass: self._push_in_one_pass,
        }

    def _expand_affected(self, do: ExpandAffected) -> None:
        states, expanding = do.marks
        vertices = self._local.xp.flatnonzero(expanding).astype(np.int32)
        expanding[vertices] = 0
        states[self._frontier.targets(do.graph, vertices)] = AFFECTED

    def _push_in_one_pass(self, do: PushInOnePass) -> WorkList:
        state = do.state
        self._take(do)
        # a loop may have left enough, with no addition after it
        left = do.listed[state.residual[do.listed] > do.threshold]
        state.next_queue[: len(left)] = left
        state.queued[left] = LISTED
        lists = Residual(state.residual, state.queued, state.next_queue, len(left), do.threshold, 0)
        self._add(do, lists)
        state.queue, state.next_queue = state.next_queue, state.queue
        listed = state.queue[: lists.listed]
        state.queued[listed] = 0
        edges = self._local.device.sum(do.graph.outgoing.row_lengths[listed])
        return WorkList(lists.listed, int(edges))

    def _push(self, do: PushListed) -> None:
        state = do.state
        self._take(do)
        self._add(do, Residual(state.residual, state.queued, state.next_queue, 0, np.inf, 0))

    def _take(self, do: TakeListed) -> None:
        self._local.run(TakeListed(do.graph, do.state, do.work_list, do.damping))

    def _add(self, do: TakeListed, residual: Residual) -> None:
        """Adds what the vertices of the list send to r."""
        none = (self._local.xp.empty(0, np.int32), self._local.xp.empty(0))
        sources = do.listed
        self._run(Scatter(do.graph, residual, sources, do.contributions[sources], *none))
