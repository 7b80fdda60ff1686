"""The parts of a round of a push, on ``cpu``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from liverank_gpu.operations.csr import GraphView
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.residual import LISTED, SOLVE_SHIFT, SOLVES, Residual
from liverank_gpu.operations.rounds import RoundOperations


class CpuRounds(RoundOperations):
    """See RoundOperations. Lists are in the order of the candidates."""

    def count_candidates(
        self,
        graph: GraphView,
        residual: Residual,
        thresholds: Sequence[float],
        edge_weight: float,
    ) -> list[int]:
        listed, sizes = _sizes(residual)
        above = _scaled(graph, listed, sizes, edge_weight) > np.array(thresholds)[:, np.newaxis]
        edges = above * graph.outgoing.row_lengths[listed]
        kept = np.count_nonzero(sizes > residual.floor)
        return [*above.sum(axis=1).tolist(), *edges.sum(axis=1, dtype=np.int64).tolist(), kept]

    def take_candidates(
        self,
        graph: GraphView,
        residual: Residual,
        threshold: float,
        edge_weight: float,
        count: int,
        kept: int,
    ) -> Array:
        listed, sizes = _sizes(residual)
        queue = listed[_scaled(graph, listed, sizes, edge_weight) > threshold]
        large = sizes > residual.floor
        residual.marks[listed[~large]] &= ~LISTED
        residual.candidates[:kept] = listed[large]
        residual.listed = kept
        assert len(queue) == count
        return queue

    def push_vertices(
        self, graph: GraphView, values: Array, damping: float, residual: Residual, vertices: Array
    ) -> tuple[Array, Array]:
        degree, loop = graph.degree[vertices], graph.loop[vertices]
        transition = damping / np.where(degree > 0, degree, 1)
        diagonal = 1.0 - np.where(degree > 0, loop * transition, 0.0)
        old, before = values[vertices], residual.values[vertices].astype(np.float64)
        new = (old + before / diagonal).astype(values.dtype)
        step = new.astype(np.float64) - old
        rest = (before - diagonal * step).astype(values.dtype)
        values[vertices], residual.values[vertices] = new, rest
        marks, solve = residual.marks[vertices], residual.solve % SOLVES
        residual.marks[vertices] = marks & LISTED | solve << SOLVE_SHIFT
        moved = np.abs(before)
        changes = (np.abs(rest) - moved, rest - before, step, moved)
        first = np.count_nonzero(marks >> SOLVE_SHIFT != solve)
        sums = [*(change.sum(dtype=np.float64) for change in changes), first]
        return np.where(degree > 0, transition * step, 0.0), np.array(sums, np.float64)


def _sizes(residual: Residual) -> tuple[Array, Array]:
    """The candidates and their |r|, float64."""
    listed = residual.candidates[: residual.listed]
    return listed, np.abs(residual.values[listed]).astype(np.float64)


def _scaled(graph: GraphView, listed: Array, sizes: Array, edge_weight: float) -> Array:
    """The θ that each exceeds no more."""
    scaled: Array = sizes / (1.0 + edge_weight * graph.outgoing.row_lengths[listed])
    return scaled
