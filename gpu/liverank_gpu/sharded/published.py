"""Sets of vertices on shards, and the published iterations that follow them along out-lists."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import GraphView, Run, runs
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.published import (
    AFFECTED,
    DetectListed,
    ExpandAffected,
    IterateRanks,
    PublishedResult,
    PushInOnePass,
    PushListed,
    TakeListed,
    WorkList,
    iterate_ranks,
)
from liverank_gpu.operations.residual import (
    LISTED,
    ExpandBackward,
    ExpandForward,
    Residual,
    Scatter,
)
from liverank_gpu.sharded.columns import Columns
from liverank_gpu.sharded.communicator import Communicator

# A pull reads the contributions of all shards, which are gathered first. What a push adds along
# out-lists goes to the owners of the targets (liverank_gpu.sharded.residual): what a shard sends
# to one vertex arrives as a sum, which is one addition there. A one-pass push tests each of these
# additions.


class ShardedSets:
    """What shards run in another way: what becomes of vertices along out-lists. Vertices, flags,
    marks and vectors are over own vertices; all shards run these together, also where one has no
    vertices.
    """

    def __init__(
        self, local: Backend, communicator: Communicator, columns: Columns, run: Run
    ) -> None:
        """run  the operations of all shards"""
        self._local, self._communicator = local, communicator
        self._columns, self._run = columns, run
        self._flags = local.xp.zeros(0, np.int32)

    # ---- how sets grow along the edges of all shards ----

    @runs
    def _expand_forward(self, do: ExpandForward) -> Array:
        found = self._targets(do.graph, do.vertices)
        fresh = found[do.flags[found] == 0]
        do.flags[fresh] = 1
        return fresh

    def _targets(self, graph: GraphView, vertices: Array) -> Array:
        """int32[…], distinct: the own vertices that any of these is followed by, on all shards."""
        # after an error in between they are not all 0, and other ones follow
        flags, self._flags = self._flags, self._local.xp.zeros(0, np.int32)
        count = self._columns.numbering.columns
        if len(flags) != count:
            flags = self._local.xp.zeros(count, np.int32)
        columns = self._local.run(ExpandForward(graph, vertices, flags))
        flags[columns] = 0
        self._flags = flags
        return self._columns.sent(columns)

    @runs
    def _expand_backward(self, do: ExpandBackward) -> Array:
        return self._local.run(replace(do, frontier=self._columns.gathered(do.frontier)))

    @runs
    def _expand_affected(self, do: ExpandAffected) -> None:
        states, expanding = do.marks
        vertices = self._local.xp.flatnonzero(expanding).astype(np.int32)
        expanding[vertices] = 0
        states[self._targets(do.graph, vertices)] = AFFECTED

    @runs
    def _iterate_ranks(self, do: IterateRanks) -> PublishedResult:
        return iterate_ranks(self._run, self._total, do)

    def _total(self, values: Array) -> float:
        (total,) = self._communicator.sums([float(self._local.device.sum(values))])
        return total

    # ---- the iterations of published personalized PageRank ----

    @runs
    def _detect(self, do: DetectListed) -> WorkList:
        return self._local.run(do)

    @runs
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

    @runs
    def _push(self, do: PushListed) -> None:
        state = do.state
        self._take(do)
        self._add(do, Residual(state.residual, state.queued, state.next_queue, 0, np.inf, 0))

    def _take(self, do: TakeListed) -> None:
        """What a push takes is not sent: only a pull reads contributions of others."""
        self._local.run(TakeListed(do.graph, do.state, do.work_list, do.damping))

    def _add(self, do: TakeListed, residual: Residual) -> None:
        """Adds what the vertices of the list send to r."""
        none = (self._local.xp.empty(0, np.int32), self._local.xp.empty(0))
        sources = do.listed
        self._run(Scatter(do.graph, residual, sources, do.contributions[sources], *none))
