"""The iterations of the published strategies on ``cuda``, of global and of personalized ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from liverank_gpu.backends.cuda.kernels.loader import (
    BIN_LANES,
    BLOCK,
    EDGE_CHUNK,
    LISTED_COUNTS,
    LONG_ROW,
    PUBLISHED_COUNTS,
)
from liverank_gpu.backends.cuda.launcher import (
    OnDevice,
    balanced_blocks,
    blocks_for,
    grid_blocks,
)
from liverank_gpu.operations.csr import GraphView, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.published import (
    DetectListed,
    ExpandAffected,
    IterateRanks,
    IterationTrace,
    Marks,
    PublishedResult,
    PullListed,
    PushInOnePass,
    PushListed,
    RankChanges,
    Rule,
    SendRanks,
    SentRanks,
    TakeListed,
    UpdateRanks,
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


class CudaPublished(OnDevice):
    """The iterations of the published strategies."""

    def _expand_affected(self, do: ExpandAffected) -> None:
        self._expand(do.graph, do.out_rows, self._counts(), do.marks)

    def _send_ranks(self, do: SendRanks) -> SentRanks:
        return SentRanks(do.graph.vertices, float(self._send(do, self._counts(), None).sum()))

    def _update_ranks(self, do: UpdateRanks) -> RankChanges:
        states, expanding = do.marks or (None, None)
        counts, ranking = self._counts(), self._ranking(do, do.rule, states, True)
        ranked = (do.graph.incoming, counts, expanding, *ranking)
        self._by_degree("update_ranks", do.graph, do.rows, *ranked)
        dangling = self._send(do, counts, states).sum(keepdims=True).view(np.uint64)
        found = self._device.to_host(self._xp.concatenate([counts, dangling]))
        largest, largest_relative, *_, left = found.view(np.float64).tolist()
        recomputed, edges, pruned = found[2:5].tolist()
        return RankChanges(largest, largest_relative, recomputed, edges, pruned, left)

    def _iterate(self, do: IterateRanks) -> PublishedResult:
        xp, device = self._xp, self._device
        graph, rule, marks = do.graph, do.rule, do.marks
        trace = xp.zeros((TRACED_STEPS, 4), np.uint64) if do.traced else None
        states, expanding = marks or (None, None)
        ranking = self._ranking(do, rule, states, do.traced)
        scale = ranking[0]
        seen = dict.fromkeys(PUBLISHED_COUNTS, 0)
        if marks is not None:
            seen = self._iterate_listed(graph, rule, ranking, trace)
        if not seen["DONE"] and rule.most_edges is None:
            counts = self._counts()
            if seen["ITERATIONS"]:
                counts[PUBLISHED_COUNTS.index("ITERATIONS")] = seen["ITERATIONS"]

            def send(recomputed: Array, begins: int) -> None:
                dangling_sums = self._send(do, counts, recomputed)
                ending = (
                    *(counts, scale, dangling_sums, len(dangling_sums), graph.vertices),
                    *(rule.dangling_mass, rule.damping, rule.tolerance),
                    *(rule.max_iterations, trace, begins),
                )
                self._start("end_iteration", 1, graph, *ending)

            ranked = (graph.incoming, counts, expanding, *ranking)
            send(None, begins=1)
            while not seen["DONE"]:
                for _ in range(min(_AHEAD, rule.max_iterations - seen["ITERATIONS"])):
                    self._by_degree("update_ranks", graph, do.rows, *ranked)
                    send(states, begins=0)
                    if marks is not None and do.out_rows is not None:
                        self._expand(graph, do.out_rows, counts, marks)
                seen = dict(zip(PUBLISHED_COUNTS, device.to_host(counts).tolist(), strict=True))
        return PublishedResult(
            seen["ITERATIONS"],
            bool(seen["CONVERGED"]),
            float(device.to_host(scale)[0]),
            None if trace is None else self._trace(trace, seen["ITERATIONS"]),
        )

    def _counts(self) -> Array:
        return self._xp.zeros(len(PUBLISHED_COUNTS), np.uint64)

    def _ranking(
        self, do: IterateRanks | UpdateRanks, rule: Rule, states: Array | None, traced: bool
    ) -> tuple[Any, ...]:
        """The arguments that are members of Ranking in ranking.cuh."""
        return (
            *(self._xp.full(1, do.rhs_scale), do.graph.loop, do.graph.degree),
            *(do.values, do.contributions, states),
            *(rule.damping, rule.prune_tolerance, rule.frontier_tolerance),
            *(rule.closed_form, traced),
        )

    def _send(
        self, do: IterateRanks | SendRanks | UpdateRanks, counts: Array, states: Array | None
    ) -> Array:
        """Contributions of the vertices that have been affected, or of all. Returns Σy over those
        of them that are dangling, in one number a block.
        """
        graph, blocks = do.graph, grid_blocks(do.graph.vertices)
        sums: Array = self._xp.empty(blocks)
        given = (graph.vertices, do.values, graph.degree, states, do.contributions, sums)
        self._start("send", blocks, graph, counts, *given)
        return sums

    def _iterate_listed(
        self, graph: GraphView, rule: Rule, ranking: tuple[Any, ...], trace: Array | None
    ) -> dict[str, int]:
        """Iterations while the affected set is small. Returns the counts; DONE if they ended."""
        xp, arcs = self._xp, graph.edges
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
        seen = self._device.to_host(counts)[: len(PUBLISHED_COUNTS)].tolist()
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
        rows = self._device.to_host(trace)[:iterations]
        recomputed, edges, pruned = rows[:, :3].astype(np.int64).T
        return IterationTrace(recomputed, edges, pruned, rows[:, 3].copy().view(np.float64))


# The iterations of published personalized PageRank on ``cuda``: the host reads the length of each
# work-list, as a hybrid decides by it.


class CudaForwardPush(OnDevice):
    """The iterations of published personalized PageRank."""

    def _detect(self, do: DetectListed) -> WorkList:
        graph, counts = do.graph, self._counts()
        self._start(
            "detect",
            grid_blocks(graph.vertices),
            graph,
            graph.vertices,
            do.state.residual,
            do.threshold,
            graph.outgoing.row_lengths,
            do.state.queue,
            counts,
        )
        return self._read(counts)

    def _take_listed(self, do: TakeListed) -> None:
        self._take(do, None, self._counts())

    def _push_in_one_pass(self, do: PushInOnePass) -> WorkList:
        graph, state = do.graph, do.state
        counts = self._push(do, do.threshold)
        state.queue, state.next_queue = state.next_queue, state.queue
        self._start("unlock", grid_blocks(graph.vertices), graph, state.queue, counts, state.queued)
        return self._read(counts)

    def _push_listed(self, do: PushListed) -> None:
        self._push(do, None)

    def _pull(self, do: PullListed) -> None:
        blocks, rows = self._launch.row_arguments(do.graph.incoming, do.rows)
        self._start("pull", blocks, do.graph, *rows, do.state.contributions, do.state.residual)

    def _push(self, do: TakeListed, threshold: float | None) -> Array:
        """threshold  of the tests of a one-pass push, or None. Returns the counts on the device."""
        graph, state, counts = do.graph, do.state, self._counts()
        # of each vertex one more than its edges fill, at most
        most_items = do.work_list.edges // EDGE_CHUNK + do.work_list.vertices
        items = self._xp.empty(most_items, np.int64)
        self._take(do, items, counts)
        self._start(
            f"push<{str(threshold is not None).lower()}>",
            balanced_blocks(do.work_list.edges + most_items),
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

    def _take(self, do: TakeListed, items: Array | None, counts: Array) -> None:
        graph, state = do.graph, do.state
        self._start(
            "take",
            grid_blocks(do.work_list.vertices),
            graph,
            state.queue,
            do.work_list.vertices,
            graph.outgoing.row_lengths,
            graph.loop,
            graph.degree,
            state.values,
            state.residual,
            state.contributions,
            do.damping,
            items,
            counts,
        )

    def _counts(self) -> Array:
        return self._xp.zeros(3, np.uint64)

    def _read(self, counts: Array) -> WorkList:
        return WorkList(*self._device.to_host(counts)[:2].tolist())

    def _start(self, kernel: str, blocks: int, graph: GraphView, *arguments: Any) -> None:
        self._launch("forward_push", kernel, blocks, *arguments, weighted=graph.weighted)
