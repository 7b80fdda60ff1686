"""The iterations of the published strategies on ``cuda``, of global and of personalized ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from liverank_gpu.backends.cuda.kernels.counts import LISTED_COUNTS, PUBLISHED_COUNTS
from liverank_gpu.backends.cuda.kernels.loader import BIN_LANES, BLOCK, EDGE_CHUNK, LONG_ROW
from liverank_gpu.backends.cuda.launcher import (
    Launcher,
    balanced_blocks,
    blocks_for,
    grid_blocks,
)
from liverank_gpu.operations.csr import GraphView, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.published import (
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

# ---- the iterations of the published strategies on ``cuda`` ----
#
# A small affected set is kept as a list, and its iterations are one cooperative launch: many are
# shorter than the launches that they would take. A large one, or all vertices: a thread or a block
# for each vertex, as in the paper. Vertices are divided by in-degree for the ranks and by
# out-degree for the affected set ("Partition G, G'", the fastest of the three in the paper's figure
# 1). The degree bins of the graph have the division at hand, and batches maintain it. These are
# ordinary launches, issued a few iterations ahead: blocks that must all be resident leave too few
# threads to hide the latency of random reads.

_AHEAD = 8
"""Iterations that are issued before the host reads whether they have ended."""

_LONG_GROUPS = sum(lanes > 8 for lanes in BIN_LANES)
"""Groups of Rows whose rows, of more than 64 entries, are given to a block each."""

LISTED_EDGES = 1 << 22
"""In-edges of an affected set that is kept as a list."""

_LISTED_PART, _LEAST_LISTED = 16, 1 << 18
"""A list has room for one in this many of all vertices, and at least for so many."""

_LISTED_LANES = 8
"""Threads for a vertex of a list, at least."""

_MOST_BLOCKS = 8192


class CudaPublished(PublishedOperations):
    """See PublishedOperations."""

    def __init__(self, launch: Launcher) -> None:
        self._launch = launch

    def expand(self, graph: GraphView, out_rows: Rows, marks: Marks) -> None:
        self._expand(
            graph, out_rows, self._launch.xp.zeros(len(PUBLISHED_COUNTS), np.uint64), marks
        )

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
        xp, device = self._launch.xp, self._launch.device
        scale = xp.full(1, rhs_scale)
        trace = xp.zeros((TRACED_STEPS, 4), np.uint64) if traced else None
        states, expanding = marks or (None, None)
        ranking = (
            scale,
            graph.loop,
            graph.degree,
            values,
            contributions,
            states,
            *(rule.damping, rule.prune_tolerance, rule.frontier_tolerance),
            *(rule.closed_form, traced),
        )
        seen = dict.fromkeys(PUBLISHED_COUNTS, 0)
        if marks is not None:
            seen = self._iterate_listed(graph, rule, ranking, trace)
        if not seen["DONE"] and rule.most_edges is None:
            counts = xp.zeros(len(PUBLISHED_COUNTS), np.uint64)
            if seen["ITERATIONS"]:
                counts[PUBLISHED_COUNTS.index("ITERATIONS")] = seen["ITERATIONS"]
            blocks = grid_blocks(graph.vertices)
            dangling_sums = xp.empty(blocks)
            sending = (graph.vertices, values, graph.degree)
            ending: tuple[Any, ...] = (
                counts,
                scale,
                dangling_sums,
                blocks,
                graph.vertices,
                *(rule.dangling_mass, rule.damping, rule.tolerance),
                rule.max_iterations,
                trace,
            )

            def send(recomputed: Array, begins: int) -> None:
                arguments = (counts, *sending, recomputed, contributions, dangling_sums)
                self._start("send", blocks, graph, *arguments)
                self._start("end_iteration", 1, graph, *ending, begins)

            ranked = (graph.incoming, counts, expanding, *ranking)
            send(None, begins=1)
            while not seen["DONE"]:
                for _ in range(min(_AHEAD, rule.max_iterations - seen["ITERATIONS"])):
                    self._by_degree("update_ranks", graph, in_rows, *ranked)
                    send(states, begins=0)
                    if marks is not None and out_rows is not None:
                        self._expand(graph, out_rows, counts, marks)
                seen = dict(zip(PUBLISHED_COUNTS, device.to_host(counts).tolist(), strict=True))
        return PublishedResult(
            seen["ITERATIONS"],
            bool(seen["CONVERGED"]),
            float(device.to_host(scale)[0]),
            None if trace is None else self._trace(trace, seen["ITERATIONS"]),
        )

    def _iterate_listed(
        self, graph: GraphView, rule: Rule, ranking: tuple[Any, ...], trace: Array | None
    ) -> dict[str, int]:
        """Iterations while the affected set is small. Returns the counts; DONE if they ended."""
        xp, arcs = self._launch.xp, graph.edges
        room = min(graph.vertices, max(_LEAST_LISTED, graph.vertices // _LISTED_PART))
        parts = 2 * arcs // LONG_ROW + 1
        most_edges = LISTED_EDGES if rule.most_edges is None else rule.most_edges
        counts = xp.zeros(4 * LISTED_COUNTS["SIZE"], np.uint64)
        self._launch(
            "listed",
            "iterate_listed",
            self._launch.resident_blocks(_LISTED_LANES * graph.vertices),
            graph.vertices,
            graph.incoming,
            graph.outgoing,
            rule.tolerance,
            rule.max_iterations,
            most_edges,
            room,
            *xp.empty((2, room), np.int32),
            *xp.empty((2, parts), np.int64),
            xp.empty(room + arcs // EDGE_CHUNK + parts, np.int64),
            xp.empty(parts),
            xp.zeros(parts, np.int32),
            xp.zeros(graph.vertices, np.int32),
            counts,
            trace,
            *ranking,
            weighted=graph.weighted,
        )
        seen = self._launch.device.to_host(counts)[: len(PUBLISHED_COUNTS)].tolist()
        return dict(zip(PUBLISHED_COUNTS, seen, strict=True))

    def _expand(self, graph: GraphView, out_rows: Rows, counts: Array, marks: Marks) -> None:
        self._by_degree("expand", graph, out_rows, graph.outgoing, counts, graph.loop, *marks)

    def _by_degree(self, kernel: str, graph: GraphView, rows: Rows, *arguments: Any) -> None:
        """Launches a kernel over rows: a block for each long one, a thread for each other."""
        long = int(rows.groups[_LONG_GROUPS])
        for order, lanes, each in (
            (rows.order[:long], "BLOCK", 1),
            (rows.order[long:], "1", BLOCK),
        ):
            if len(order):
                blocks = blocks_for(len(order), each, _MOST_BLOCKS)
                given = (order, len(order), *arguments)
                self._start(f"{kernel}<{lanes}>", blocks, graph, *given)

    def _start(self, kernel: str, blocks: int, graph: GraphView, *arguments: Any) -> None:
        self._launch("published", kernel, blocks, *arguments, weighted=graph.weighted)

    def _trace(self, trace: Array, iterations: int) -> IterationTrace:
        rows = self._launch.device.to_host(trace)[:iterations]
        recomputed, edges, pruned = rows[:, :3].astype(np.int64).T
        return IterationTrace(recomputed, edges, pruned, rows[:, 3].copy().view(np.float64))


# The iterations of published personalized PageRank on ``cuda``: the host reads the length of each
# work-list, as a hybrid decides by it.


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
            graph.vertices,
            state.residual,
            threshold,
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
            graph.outgoing,
            graph.loop,
            state.contributions,
            state.residual,
            state.queued,
            threshold or 0.0,
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
            work_list.vertices,
            graph.outgoing.row_lengths,
            graph.loop,
            graph.degree,
            state.values,
            state.residual,
            state.contributions,
            damping,
            items,
            counts,
        )

    def _counts(self) -> Array:
        return self._launch.xp.zeros(3, np.uint64)

    def _read(self, counts: Array) -> WorkList:
        return WorkList(*self._launch.device.to_host(counts)[:2].tolist())

    def _start(self, kernel: str, blocks: int, graph: GraphView, *arguments: Any) -> None:
        self._launch("forward_push", kernel, blocks, *arguments, weighted=graph.weighted)
