"""The iterations of the published strategies on ``cuda``, of global and of personalized ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from liverank_gpu.backends.cuda.kernels import loader as cu
from liverank_gpu.backends.cuda.launcher import (
    OnDevice,
    balanced_blocks,
    blocks_for,
    grid_blocks,
)
from liverank_gpu.operations import published as op
from liverank_gpu.operations.csr import GraphView, Rows, runs
from liverank_gpu.operations.device import Array
from liverank_gpu.types import TRACED_STEPS

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

_LONG_GROUPS = sum(lanes > 8 for lanes in cu.BIN_LANES)
"""Groups of Rows whose rows, of more than 64 entries, are given to a block each."""

_LISTED_LANES = 8
"""Threads for a vertex of a list, at least."""

_MOST_BLOCKS = 8192


class CudaPublished(OnDevice):
    """The iterations of the published strategies."""

    @runs
    def _expand_affected(self, do: op.ExpandAffected) -> None:
        self._expand(do, self._counts(), do.marks)

    @runs
    def _send_ranks(self, do: op.SendRanks) -> op.SentRanks:
        return op.SentRanks(do.graph.vertices, float(self._send(do, self._counts(), None).sum()))

    @runs
    def _update_ranks(self, do: op.UpdateRanks) -> op.RankChanges:
        counts, own = self._counts(), self._ranking(do, True)
        self._by_degree("update_ranks", do, do.rows, counts=counts, **own)
        dangling = self._send(do, counts, own["states"]).sum(keepdims=True).view(np.uint64)
        found = self._device.to_host(self._xp.concatenate([counts, dangling]))
        largest, largest_relative, *_, left = found.view(np.float64).tolist()
        recomputed, edges, pruned = found[2:5].tolist()
        return op.RankChanges(largest, largest_relative, recomputed, edges, pruned, left)

    @runs
    def _iterate(self, do: op.IterateRanks) -> op.PublishedResult:
        xp, device = self._xp, self._device
        rule, marks = do.rule, do.marks
        trace = xp.zeros((TRACED_STEPS, 4), np.uint64) if do.traced else None
        own = self._ranking(do, do.traced)
        scale = own["rhs_scale"]
        seen = dict.fromkeys(cu.PUBLISHED_COUNTS, 0)
        if marks is not None:
            seen = self._iterate_listed(do, trace=trace, **own)
        if not seen["DONE"] and rule.most_edges is None:
            counts = self._counts()
            if seen["ITERATIONS"]:
                counts[cu.PUBLISHED_COUNTS.index("ITERATIONS")] = seen["ITERATIONS"]

            def send(recomputed: Array, begins: int) -> None:
                sums = self._send(do, counts, recomputed)
                ending = {"rhs_scale": scale, "dangling_sums": sums, "blocks": len(sums)}
                ending |= {"counts": counts, "trace": trace, "begins": begins}
                self._launch.run("published", "end_iteration", 1, do, **ending)

            send(None, begins=1)
            while not seen["DONE"]:
                for _ in range(min(_AHEAD, rule.max_iterations - seen["ITERATIONS"])):
                    self._by_degree("update_ranks", do, do.rows, counts=counts, **own)
                    send(own["states"], begins=0)
                    if marks is not None and do.out_rows is not None:
                        self._expand(do, counts, marks)
                seen = dict(zip(cu.PUBLISHED_COUNTS, device.to_host(counts).tolist(), strict=True))
        return op.PublishedResult(
            seen["ITERATIONS"],
            bool(seen["CONVERGED"]),
            float(device.to_host(scale)[0]),
            None if trace is None else self._trace(trace, seen["ITERATIONS"]),
        )

    def _counts(self) -> Array:
        return self._xp.zeros(len(cu.PUBLISHED_COUNTS), np.uint64)

    def _ranking(self, do: op.IterateRanks | op.UpdateRanks, traced: bool) -> dict[str, Any]:
        """What kernels take of it that is no member."""
        states, expanding = do.marks or (None, None)
        scale = self._xp.full(1, do.rhs_scale)
        return {"rhs_scale": scale, "states": states, "expanding": expanding, "traced": traced}

    def _send(
        self,
        do: op.IterateRanks | op.SendRanks | op.UpdateRanks,
        counts: Array,
        states: Array | None,
    ) -> Array:
        """Contributions of the vertices that have been affected, or of all. Returns Σy over those
        of them that are dangling, in one number a block.
        """
        blocks = grid_blocks(do.graph.vertices)
        sums: Array = self._xp.empty(blocks)
        own = {"counts": counts, "states": states, "dangling_sums": sums}
        self._launch.run("published", "send", blocks, do, **own)
        return sums

    def _iterate_listed(self, do: op.IterateRanks, **own: Any) -> dict[str, int]:
        """Iterations while the affected set is small. Returns the counts; DONE if they ended."""
        xp, vertices, arcs = self._xp, do.graph.vertices, do.graph.edges
        room, most_edges = min(vertices, do.listed_vertices), do.rule.most_edges
        parts = 2 * arcs // cu.LONG_ROW + 1
        own["capacity"] = room
        own["most_edges"] = do.listed_edges if most_edges is None else most_edges
        own["counts"] = counts = xp.zeros(4 * cu.LISTED_COUNTS["SIZE"], np.uint64)
        own["first_vertices"], own["second_vertices"] = xp.empty((2, room), np.int32)
        own["first_parts"], own["second_parts"] = xp.empty((2, parts), np.int64)
        own["items"] = xp.empty(room + arcs // cu.EDGE_CHUNK + parts, np.int64)
        own["part_sums"], own["arrived"] = xp.empty(parts), xp.zeros(parts, np.int32)
        own["joined"] = xp.zeros(vertices, np.int32)
        blocks = self._launch.resident_blocks(_LISTED_LANES * vertices)
        self._launch.run("published", "iterate_listed", blocks, do, **own)
        seen = self._device.to_host(counts)[: len(cu.PUBLISHED_COUNTS)].tolist()
        return dict(zip(cu.PUBLISHED_COUNTS, seen, strict=True))

    def _expand(
        self, do: op.IterateRanks | op.ExpandAffected, counts: Array, marks: op.Marks
    ) -> None:
        assert do.out_rows is not None
        self._by_degree("expand", do, do.out_rows, counts=counts, **marks._asdict())

    def _by_degree(self, kernel: str, do: Any, rows: Rows, **own: Any) -> None:
        """Launches a kernel over rows: a block for each long one, a thread for each other."""
        long = int(rows.groups[_LONG_GROUPS])
        for order, lanes, each in (
            (rows.order[:long], "BLOCK", 1),
            (rows.order[long:], "1", cu.BLOCK),
        ):
            if len(order):
                blocks = blocks_for(len(order), each, _MOST_BLOCKS)
                own |= {"order": order, "rows": len(order)}
                self._launch.run("published", f"{kernel}<{lanes}>", blocks, do, **own)

    def _trace(self, trace: Array, iterations: int) -> op.IterationTrace:
        rows = self._device.to_host(trace)[:iterations]
        recomputed, edges, pruned = rows[:, :3].astype(np.int64).T
        return op.IterationTrace(recomputed, edges, pruned, rows[:, 3].copy().view(np.float64))


# The iterations of published personalized PageRank on ``cuda``: the host reads the length of each
# work-list, as a hybrid decides by it.


class CudaForwardPush(OnDevice):
    """The iterations of published personalized PageRank."""

    @runs
    def _detect(self, do: op.DetectListed) -> op.WorkList:
        counts = self._counts()
        self._launch.run("published", "detect", grid_blocks(do.graph.vertices), do, counts=counts)
        return self._read(counts)

    @runs
    def _take_listed(self, do: op.TakeListed) -> None:
        self._take(do, None, self._counts())

    @runs
    def _push_in_one_pass(self, do: op.PushInOnePass) -> op.WorkList:
        graph, state = do.graph, do.state
        counts = self._push(do, do.threshold)
        state.queue, state.next_queue = state.next_queue, state.queue
        self._start("unlock", grid_blocks(graph.vertices), graph, state.queue, counts, state.queued)
        return self._read(counts)

    @runs
    def _push_listed(self, do: op.PushListed) -> None:
        self._push(do, None)

    @runs
    def _pull(self, do: op.PullListed) -> None:
        blocks, rows = self._launch.row_arguments(do.graph.incoming, do.rows)
        self._start("pull", blocks, do.graph, *rows, do.state.contributions, do.state.residual)

    def _push(self, do: op.TakeListed, threshold: float | None) -> Array:
        """threshold  of the tests of a one-pass push, or None. Returns the counts on the device."""
        counts = self._counts()
        # of each vertex one more than its edges fill, at most
        most_items = do.work_list.edges // cu.EDGE_CHUNK + do.work_list.vertices
        items = self._xp.empty(most_items, np.int64)
        self._take(do, items, counts)
        kernel = f"push<{str(threshold is not None).lower()}>"
        blocks = balanced_blocks(do.work_list.edges + most_items)
        own = {"items": items, "threshold": threshold or 0.0, "counts": counts}
        self._launch.run("published", kernel, blocks, do, **own)
        return counts

    def _take(self, do: op.TakeListed, items: Array | None, counts: Array) -> None:
        listed = do.work_list.vertices
        own = {"listed": listed, "items": items, "counts": counts}
        self._launch.run("published", "take", grid_blocks(listed), do, **own)

    def _counts(self) -> Array:
        return self._xp.zeros(3, np.uint64)

    def _read(self, counts: Array) -> op.WorkList:
        return op.WorkList(*self._device.to_host(counts)[:2].tolist())

    def _start(self, kernel: str, blocks: int, graph: GraphView, *arguments: Any) -> None:
        self._launch("published", kernel, blocks, *arguments, weighted=graph.weighted)
