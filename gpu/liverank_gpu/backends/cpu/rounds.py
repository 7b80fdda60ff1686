"""The parts of a round of a push in NumPy, on ``cpu`` and ``reference``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from liverank_gpu.operations import residual as op
from liverank_gpu.operations.csr import GraphView, runs
from liverank_gpu.operations.device import Array

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
