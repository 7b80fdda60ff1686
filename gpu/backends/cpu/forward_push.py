"""The iterations of published personalized PageRank on ``cpu``.

Pushes run on one core: adding to shared entries from several takes atomic operations, which Numba
does not have. Pulls and tests run on all cores.
"""

from __future__ import annotations

import numpy as np

from gpu.backends.cpu.rows import CHUNKS, STRIPE, edge_amount, row_sum
from gpu.jit.compile import kernel, sequential, unsigned
from gpu.operations.csr import GraphView, Rows
from gpu.operations.device import Array
from gpu.operations.forward_push import ForwardPushOperations, ForwardState, WorkList


@sequential
def _take(queue, loop, degree, values, r, contributions, damping):  # type: ignore[no-untyped-def]
    """Moves the residual of the listed vertices to y."""
    for u in queue:
        taken = r[u]
        d = degree[u]
        values[u] += taken
        contributions[u] = damping * taken / d if d > 0 else 0.0
        r[u] = np.float64(loop[u]) * contributions[u]


@sequential
def _push_in_one_pass(  # type: ignore[no-untyped-def]
    queue, outgoing, r, contributions, threshold, next_queue, queued
):
    """Additions and tests together. Returns the length of the next list and its out-edges."""
    row_starts, row_lengths, column_indices, weights = outgoing
    listed = 0
    edges = 0
    for u in queue:
        # its loop may have left enough
        if r[u] > threshold and not queued[u]:
            queued[u] = 1
            next_queue[listed] = u
            listed += 1
            edges += row_lengths[u]
        for slot in range(row_starts[u], row_starts[u] + row_lengths[u]):
            v = unsigned(column_indices[unsigned(slot)])
            r[v] += edge_amount(contributions[u], weights, slot)
            if r[v] > threshold and not queued[v]:
                queued[v] = 1
                next_queue[listed] = v
                listed += 1
                edges += row_lengths[v]
    for place in range(listed):
        queued[next_queue[place]] = 0
    return listed, edges


@sequential
def _push(queue, outgoing, r, contributions):  # type: ignore[no-untyped-def]
    """Additions alone."""
    row_starts, row_lengths, column_indices, weights = outgoing
    for u in queue:
        contribution = contributions[u]
        for slot in range(row_starts[u], row_starts[u] + row_lengths[u]):
            r[unsigned(column_indices[unsigned(slot)])] += edge_amount(contribution, weights, slot)


@kernel(CHUNKS)
def _pull(first_group, last_group, groups, order, incoming, r, contributions):  # type: ignore[no-untyped-def]
    for group in range(first_group, last_group):
        for place in range(groups[group], groups[group + 1]):
            v = unsigned(order[unsigned(place)])
            r[v] += row_sum(incoming, v, contributions)


@kernel(STRIPE)
def _detect(first, last, r, threshold, out_lengths, queue, counts):  # type: ignore[no-untyped-def]
    """Lists what is above θ in each stripe, from the stripe's own place on."""
    # a call with one stripe or less is not divided
    for stripe in range(first // STRIPE, -(-last // STRIPE)):
        begin = stripe * STRIPE
        found = begin
        edges = 0
        for v in range(begin, min(last, begin + STRIPE)):
            if r[v] > threshold:
                queue[unsigned(found)] = v
                found += 1
                edges += out_lengths[v]
        counts[stripe, 0] = found - begin
        counts[stripe, 1] = edges


@sequential
def _join(queue, counts):  # type: ignore[no-untyped-def]
    """Moves the lists of the stripes together."""
    listed = 0
    for stripe in range(len(counts)):
        begin = stripe * STRIPE
        for place in range(begin, begin + counts[stripe, 0]):
            queue[listed] = queue[place]
            listed += 1


class CpuForwardPush(ForwardPushOperations):
    """See ForwardPushOperations."""

    pushed_edge = 1.5

    def detect(self, graph: GraphView, state: ForwardState, threshold: float) -> WorkList:
        counts = np.zeros((-(-graph.vertices // STRIPE), 2), np.int64)
        lengths: Array = graph.outgoing.row_lengths
        _detect(graph.vertices, state.residual, threshold, lengths, state.queue, counts)
        _join(state.queue, counts)
        return WorkList(*counts.sum(axis=0).tolist())

    def take(
        self, graph: GraphView, state: ForwardState, work_list: WorkList, damping: float
    ) -> None:
        _take(
            state.queue[: work_list.vertices],
            graph.loop,
            graph.degree,
            state.values,
            state.residual,
            state.contributions,
            damping,
        )

    def push_in_one_pass(
        self,
        graph: GraphView,
        state: ForwardState,
        work_list: WorkList,
        damping: float,
        threshold: float,
    ) -> WorkList:
        self.take(graph, state, work_list, damping)
        following = _push_in_one_pass(
            state.queue[: work_list.vertices],
            graph.outgoing,
            state.residual,
            state.contributions,
            threshold,
            state.next_queue,
            state.queued,
        )
        state.queue, state.next_queue = state.next_queue, state.queue
        return WorkList(*following)

    def push(
        self, graph: GraphView, state: ForwardState, work_list: WorkList, damping: float
    ) -> None:
        self.take(graph, state, work_list, damping)
        listed = state.queue[: work_list.vertices]
        _push(listed, graph.outgoing, state.residual, state.contributions)

    def pull(self, graph: GraphView, in_rows: Rows, state: ForwardState) -> None:
        groups, order = in_rows.groups, in_rows.order
        lists = (graph.incoming, state.residual, state.contributions)
        _pull(len(groups) - 1, groups, order, *lists)
