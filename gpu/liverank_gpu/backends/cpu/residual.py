"""The residual under local changes, pushes, and sets of vertices, on ``cpu``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from liverank_gpu.backends.cpu.sweeps import CHUNK_WORK, NO_VALUES, chunk_rows, in_lists
from liverank_gpu.native import kernels
from liverank_gpu.operations import residual as op
from liverank_gpu.operations.csr import GraphView, Rows, runs
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


# ---- the parts of a round of a push in NumPy, on ``cpu`` and ``reference`` ----

_NONE, _NOTHING = np.empty(0, np.int32), np.empty(0)


class HostRounds:
    """Lists are in the order of the candidates, and pairs in that of their columns. What PushRound
    and SendSums return is the first of RoundNumbers, up to `left`.
    """

    def __init__(self, scatter: Callable[[op.Scatter], op.ResidualDelta]) -> None:
        self._scatter = scatter

    @runs
    def _push_round(self, do: op.PushRound) -> list[float]:
        graph, residual, sums = do.graph, do.residual, do.outbox.sums
        listed, sizes = _sizes(residual)
        queue = listed[_scaled(graph, listed, sizes, do.edge_weight) > do.threshold]
        large = sizes > residual.floor
        residual.marks[listed[~large]] &= ~op.LISTED
        residual.candidates[: do.kept] = listed[large]
        residual.listed = do.kept
        assert len(queue) == do.count
        contributions, (l1, change, mass, moved, first, below) = _push_vertices(do, queue)
        spread = self._scatter(op.Scatter(graph, sums, queue, contributions, _NONE, _NOTHING))
        delta = op.ResidualDelta(
            l1,
            change,
            mass,
            moved + spread.moved,
            spread.magnitude,
            spread.additions + len(queue),
        )
        return [*delta, first, below, _send(do.outbox)]

    @runs
    def _send_sums(self, do: op.SendSums) -> list[float]:
        # what it did to r is done where the sums arrive
        delta = do.done._replace(residual_l1=0.0, residual_sum=0.0)
        return [*delta, 0.0, 0.0, _send(do.outbox)]

    @runs
    def _add_received(self, do: op.AddReceived) -> Array:
        graph, residual, outbox = do.graph, do.residual, do.outbox
        sent = do.sent or [0.0] * op.RoundNumbers._fields.index("undone")
        applied = op.ResidualDelta()
        if do.sent is not None:
            messages = [*outbox.received]
            messages[outbox.rank] = outbox.sent[outbox.rank]
            pairs = np.concatenate([_pairs_of(each, outbox.capacity) for each in messages])
            targets = pairs[:, 0].astype(np.int32)
            amounts = np.ascontiguousarray(pairs[:, 1]).view(np.float64)
            applied = self._scatter(op.Scatter(graph, residual, _NONE, _NOTHING, targets, amounts))
        listed, sizes = _sizes(residual)
        scaled = _scaled(graph, listed, sizes, do.edge_weight)
        above = scaled > np.array(do.thresholds)[:, np.newaxis]
        edges = (above * graph.outgoing.row_lengths[listed]).sum(axis=1, dtype=np.int64)
        l1, change, mass, moved, magnitude, *others = sent
        kept = np.count_nonzero(sizes > residual.floor)
        numbers = [
            l1 + applied.residual_l1,
            change + applied.residual_sum,
            mass,
            moved,
            magnitude + applied.magnitude,
            *others,
            *(do.undone, residual.listed, residual.floor, kept),
        ]
        return np.array([*numbers, *above.sum(axis=1), *edges], np.float64)


def _push_vertices(do: op.PushRound, queue: Array) -> tuple[Array, list[float]]:
    """The contributions of distinct vertices, float64[k]; and the changes of ‖r‖₁, Σr and Σy, Σ|r|
    before, how many were pushed for the first time in this solve, and whose y is negative then.
    """
    graph, values, residual = do.graph, do.values, do.residual
    degree, loop = graph.degree[queue], graph.loop[queue]
    transition = do.damping / np.where(degree > 0, degree, 1)
    diagonal = 1.0 - np.where(degree > 0, loop * transition, 0.0)
    old, before = values[queue], residual.values[queue]
    new = old + before / diagonal
    step = new - old
    rest = before - diagonal * step
    values[queue], residual.values[queue] = new, rest
    marks, solve = residual.marks[queue], residual.solve % op.SOLVES
    residual.marks[queue] = marks & op.LISTED | solve << op.SOLVE_SHIFT
    moved = np.abs(before)
    changes = (np.abs(rest) - moved, rest - before, step, moved)
    first, below = marks >> op.SOLVE_SHIFT != solve, new < 0.0
    sums = [float(change.sum()) for change in (*changes, first, below)]
    contributions = np.where(degree > 0, transition * step, 0.0)
    return contributions, sums


def _send(outbox: op.Outbox) -> float:
    """Moves sums to messages. Returns how many columns are left."""
    sums, sent, capacity = outbox.sums, outbox.sent, outbox.capacity
    columns = sums.candidates[: sums.listed]
    if sums.floor == np.inf:  # more than the list holds
        columns = np.flatnonzero(sums.values).astype(np.int32)
    columns = np.sort(columns)
    parts, rows = columns // outbox.room, columns % outbox.room
    left = []
    for shard, message in enumerate(sent):
        own = np.flatnonzero(parts == (0 if shard == outbox.rank else shard + 1))
        chosen = own[:capacity]
        left.append(columns[own[capacity:]])
        message[0] = len(own)
        pairs = message[op.MESSAGE_HEADER : op.MESSAGE_HEADER + 2 * len(chosen)].reshape(-1, 2)
        pairs[:, 0] = rows[chosen]
        pairs[:, 1] = sums.values[columns[chosen]].view(np.int64)
        sums.values[columns[chosen]], sums.marks[columns[chosen]] = 0.0, 0
    rest = np.concatenate(left)
    outbox.rest[: len(rest)] = rest[: len(outbox.rest)]
    return float(len(rest))


def _pairs_of(message: Array, capacity: int) -> Array:
    """int64[k, 2]: those of a message."""
    end = op.MESSAGE_HEADER + 2 * min(int(message[0]), capacity)
    pairs: Array = message[op.MESSAGE_HEADER : end].reshape(-1, 2)
    return pairs


def _sizes(residual: op.Residual) -> tuple[Array, Array]:
    """The candidates and their |r|."""
    listed = residual.candidates[: residual.listed]
    return listed, np.abs(residual.values[listed])


def _scaled(graph: GraphView, listed: Array, sizes: Array, edge_weight: float) -> Array:
    """The θ that each exceeds no more."""
    scaled: Array = sizes / (1.0 + edge_weight * graph.outgoing.row_lengths[listed])
    return scaled


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
