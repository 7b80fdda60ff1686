"""The residual under local changes, pushes, and sets of vertices, on ``cpu``."""

from __future__ import annotations

from typing import Any

import numpy as np

from liverank_gpu.backends.cpu.rounds import HostRounds
from liverank_gpu.backends.cpu.sweeps import CHUNK_WORK, NO_VALUES, chunk_rows, in_lists
from liverank_gpu.native import kernels
from liverank_gpu.operations import residual as op
from liverank_gpu.operations.csr import Rows, runs
from liverank_gpu.operations.device import Array

# ---- the residual under local changes, and push by rounds of work-lists, on ``cpu`` ----


@runs
def _recompute_rows(do: op.RecomputeRows) -> op.ResidualDelta:
    graph, residual = do.graph, do.residual
    changed = kernels.recompute_rows(
        do.first,
        do.last,
        graph.incoming,
        graph.loop,
        graph.degree,
        do.values,
        do.rhs_scale,
        do.damping,
        graph.outgoing.row_lengths,
        _lists(residual),
    )
    return _delta(residual, *changed)


@runs
def _perturb(do: op.Perturb) -> op.ResidualDelta | None:
    graph, residual = do.graph, do.residual
    lists = (graph.outgoing, graph.loop, graph.degree)
    changed = kernels.perturb(
        *lists, do.changes, do.values, do.damping, do.edge_limit, _lists(residual)
    )
    return None if changed[0] < 0 else _delta(residual, *changed)


@runs
def _scatter(do: op.Scatter) -> op.ResidualDelta:
    residual = do.residual
    lists = _lists(residual)
    columns = (do.sources, do.contributions, do.targets, do.amounts)
    return _delta(residual, *kernels.scatter(*columns, do.graph.outgoing, lists))


@runs
def _push(do: op.Push) -> op.PushResult:
    graph, residual = do.graph, do.residual
    end, threshold, rounds, vertices, entries, *changed = kernels.push(
        graph.outgoing,
        graph.loop,
        graph.degree,
        do.values,
        do.damping,
        _lists(residual),
        residual.solve % op.SOLVES,
        do.limits,
    )
    delta = _delta(residual, *changed)
    return op.PushResult(op.PUSH_ENDS[end], threshold, rounds, vertices, entries, delta)


@runs
def _select_candidates(do: op.SelectCandidates) -> None:
    residual, floor = do.residual, do.floor
    residual.listed = kernels.select_candidates(
        residual.values, residual.marks, floor, residual.candidates
    )
    residual.floor = floor
    _drop_overflow(residual)


def _lists(residual: op.Residual) -> tuple[Array, Array, Array, int, float]:
    """The residual and its lists, as the kernels take them."""
    lists = (residual.values, residual.marks, residual.candidates)
    return (*lists, residual.listed, residual.floor)


def _delta(residual: op.Residual, listed: int, *changed: Any) -> op.ResidualDelta:
    """What kernels return, with the number of candidates taken to the residual."""
    residual.listed = listed
    _drop_overflow(residual)
    return op.ResidualDelta(*changed)


def _drop_overflow(residual: op.Residual) -> None:
    """If there are more candidates than their array holds, there are none."""
    if residual.listed > len(residual.candidates):
        residual.marks &= ~op.LISTED
        residual.listed, residual.floor = 0, np.inf


ROUNDS = HostRounds(_scatter)


# ---- sets of vertices on ``cpu``, their expansion along edges, and Jacobi steps over them ----


class CpuFrontier(op.FrontierOperations):
    def rows_of(self, vertices: Array, row_lengths: Array) -> Rows:
        order = np.sort(vertices).astype(np.int32, copy=False)
        return chunk_rows(order, row_lengths[order])


@runs
def _expand_forward(do: op.ExpandForward) -> Array:
    outgoing, loop, flags = do.graph.outgoing, do.graph.loop, do.flags
    vertices = do.vertices.astype(np.int32, copy=False)
    edges = int(outgoing.row_lengths[vertices].sum(dtype=np.int64)) + len(vertices)
    if edges < min(CHUNK_WORK, len(flags)):
        fresh = np.empty(edges, np.int32)
        found = kernels.expand_forward_few(vertices, outgoing, loop, flags, fresh)
        return fresh[:found]
    before = flags.copy()
    kernels.expand_forward(vertices, outgoing, loop, flags)
    return np.flatnonzero(flags != before).astype(np.int32)


@runs
def _expand_backward(do: op.ExpandBackward) -> Array:
    graph, rows, flags = do.graph, do.rows, do.flags
    before = flags.copy()
    lists = (graph.incoming, graph.loop)
    kernels.expand_backward(rows.groups, rows.order, *lists, do.frontier, flags)
    return np.flatnonzero(flags != before).astype(np.int32)


@runs
def _jacobi_step(do: op.JacobiStep) -> op.JacobiResult:
    order, frontier = do.rows.order, do.frontier
    expanding, remaining = np.empty_like(order), np.empty_like(order)
    largest, expand, remain = kernels.jacobi_step(
        *in_lists(do.graph, do.rows),
        do.values,
        NO_VALUES if do.contributions is None else do.contributions,
        do.rhs_scale,
        do.damping,
        do.new_values,
        frontier.affected,
        frontier.expanding,
        frontier.prune_tolerance,
        frontier.frontier_tolerance,
        expanding,
        remaining,
    )
    if np.isinf(frontier.frontier_tolerance):
        return op.JacobiResult(largest, order[:0], order)
    return op.JacobiResult(largest, expanding[:expand], remaining[:remain])
