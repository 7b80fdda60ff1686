"""The iterations of the published strategies on ``cuda``: a thread or a block for each vertex.

Vertices are divided by in-degree for the ranks and by out-degree for the affected set ("Partition
G, G'", the fastest of the three in the paper's figure 1). The degree bins of the graph have the
division at hand, and batches maintain it.

The whole loop runs on the device. Ordinary launches, issued a few iterations ahead, and not one
cooperative kernel: blocks that must all be resident leave too few threads to hide the latency of
random reads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu.backends.cuda.device import NULL
from gpu.backends.cuda.kernels.loader import BIN_LANES, BLOCK, PUBLISHED_COUNTS
from gpu.backends.cuda.launcher import Launcher, blocks_for, grid_blocks, pointers
from gpu.operations.csr import GraphView, Rows
from gpu.operations.device import Array
from gpu.operations.published import (
    IterationTrace,
    Marks,
    PublishedOperations,
    PublishedResult,
    Rule,
)
from gpu.trace import TRACED_STEPS

_AHEAD = 8
"""Iterations that are issued before the host reads whether they have ended."""

_LONG_GROUPS = sum(lanes > 8 for lanes in BIN_LANES)
"""Groups of Rows whose rows, of more than 64 entries, are given to a block each."""

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
        counts = xp.zeros(len(PUBLISHED_COUNTS), np.uint64)
        scale = xp.full(1, rhs_scale)
        trace = xp.zeros((TRACED_STEPS, 4), np.uint64) if traced else None
        blocks = grid_blocks(graph.vertices)
        dangling_sums = xp.empty(blocks)
        states, expanding = pointers(*(marks or (None, None)))
        sending = (np.int64(graph.vertices), values, graph.degree)
        ending: tuple[Any, ...] = (
            counts,
            scale,
            dangling_sums,
            np.int32(blocks),
            np.int64(graph.vertices),
            np.int64(graph.edges),
            *map(np.float64, (rule.dangling_mass, rule.damping, rule.tolerance)),
            np.int64(rule.max_iterations),
            *pointers(trace),
        )
        ranking = (
            counts,
            scale,
            graph.loop,
            graph.degree,
            values,
            contributions,
            states,
            expanding,
            *pointers(graph.outgoing.row_lengths if rule.by_bins else None),
            *map(np.float64, (rule.damping, rule.prune_tolerance, rule.frontier_tolerance)),
            *map(np.int32, (rule.closed_form, traced)),
        )
        row_blocks, by_bins = self._launch.row_arguments(graph.incoming, in_rows)

        def send(recomputed: Array, begins: int) -> None:
            arguments = (counts, *sending, recomputed, contributions, dangling_sums)
            self._start("send", blocks, graph, *arguments)
            self._start("end_iteration", 1, graph, *ending, np.int32(begins))

        incoming = pointers(*graph.incoming)
        send(NULL, begins=1)
        issued = 0
        while True:
            for _ in range(min(_AHEAD, rule.max_iterations - issued)):
                if rule.by_bins:
                    self._start("update_ranks_by_bins", row_blocks, graph, *by_bins, *ranking)
                else:
                    self._by_degree("update_ranks", graph, in_rows, *incoming, *ranking)
                send(states, begins=0)
                if marks is not None and out_rows is not None:
                    self._expand(graph, out_rows, counts, marks)
                    if rule.by_bins:
                        self._expand_backward(graph, counts, marks)
                issued += 1
            seen = dict(zip(PUBLISHED_COUNTS, device.to_host(counts).tolist(), strict=True))
            if seen["DONE"]:
                break
        return PublishedResult(
            seen["ITERATIONS"],
            bool(seen["CONVERGED"]),
            float(device.to_host(scale)[0]),
            None if trace is None else self._trace(trace, seen["ITERATIONS"]),
        )

    def _expand(self, graph: GraphView, out_rows: Rows, counts: Array, marks: Marks) -> None:
        outgoing = graph.outgoing[:3]
        self._by_degree("expand", graph, out_rows, *outgoing, counts, graph.loop, *marks)

    def _expand_backward(self, graph: GraphView, counts: Array, marks: Marks) -> None:
        """Does nothing unless there are so many out-edges that this is faster."""
        blocks, vertices = grid_blocks(graph.vertices), np.int64(graph.vertices)
        rows = (*graph.incoming[:3], graph.loop, *marks)
        self._start("expand_backward", blocks, graph, counts, vertices, *rows)
        self._start("clear_expanding", blocks, graph, counts, vertices, marks.expanding)

    def _by_degree(self, kernel: str, graph: GraphView, rows: Rows, *arguments: Any) -> None:
        """Launches a kernel over rows: a block for each long one, a thread for each other."""
        long = int(rows.groups[_LONG_GROUPS])
        for order, lanes in ((rows.order[:long], BLOCK), (rows.order[long:], 1)):
            if len(order):
                blocks = blocks_for(len(order), BLOCK // lanes, _MOST_BLOCKS)
                given = (order, np.int64(len(order)), *arguments)
                self._start(f"{kernel}<{lanes}>", blocks, graph, *given)

    def _start(self, kernel: str, blocks: int, graph: GraphView, *arguments: Any) -> None:
        self._launch("published", kernel, blocks, *arguments, weighted=graph.weighted)

    def _trace(self, trace: Array, iterations: int) -> IterationTrace:
        rows = self._launch.device.to_host(trace)[:iterations]
        recomputed, edges, pruned = rows[:, :3].astype(np.int64).T
        return IterationTrace(recomputed, edges, pruned, rows[:, 3].copy().view(np.float64))
