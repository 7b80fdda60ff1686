"""The iterations of the published strategies on ``cpu``: byte arrays over all vertices, as in the
paper, and a round over the chunks of all rows an iteration.
"""

from __future__ import annotations

import numpy as np

from gpu.backends.cpu.rows import CHUNKS, STRIPE, diagonal_of, row_sum
from gpu.jit.compile import kernel, unsigned
from gpu.operations.csr import GraphView, Rows
from gpu.operations.device import Array
from gpu.operations.published import (
    AFFECTED,
    PRUNED,
    IterationTrace,
    Marks,
    PublishedOperations,
    PublishedResult,
    Rule,
)
from gpu.trace import TRACED_STEPS

_LARGEST, _LARGEST_RELATIVE, _RECOMPUTED, _EDGES, _PRUNED, _SUMS = range(6)

_NO_MARKS = np.zeros(0, np.uint8)


@kernel(CHUNKS)
def _update_ranks(  # type: ignore[no-untyped-def]
    first_group,
    last_group,
    groups,
    order,
    incoming,
    loop,
    degree,
    values,
    contributions,
    states,
    expanding,
    rhs_scale,
    damping,
    closed_form,
    prune_tolerance,
    frontier_tolerance,
    sums,
):
    for group in range(first_group, last_group):
        largest = 0.0
        largest_relative = 0.0
        recomputed = 0
        edges = 0
        pruned = 0
        for place in range(groups[group], groups[group + 1]):
            v = unsigned(order[unsigned(place)])
            if len(states) > 0 and states[v] != AFFECTED:
                continue
            old = values[v]
            new = rhs_scale + damping * row_sum(incoming, v, contributions)
            if closed_form:
                new /= diagonal_of(degree[v], loop[v], damping)
            elif loop[v]:
                new += damping * np.float64(loop[v]) * contributions[v]
            change = abs(new - old)
            relative = change / max(new, old)
            if relative <= prune_tolerance:
                states[v] = PRUNED
                pruned += 1
            if relative > frontier_tolerance:
                expanding[v] = 1
            values[v] = new
            largest = max(largest, change)
            largest_relative = max(largest_relative, relative)
            recomputed += 1
            edges += incoming.row_lengths[v]
        sums[group, _LARGEST] = largest
        sums[group, _LARGEST_RELATIVE] = largest_relative
        sums[group, _RECOMPUTED] = recomputed
        sums[group, _EDGES] = edges
        sums[group, _PRUNED] = pruned


@kernel(STRIPE)
def _send(first, last, values, degree, states, contributions, dangling):  # type: ignore[no-untyped-def]
    """The contributions of recomputed vertices (all if there are no states), and Σy over the
    dangling ones.
    """
    # a call with one stripe or less is not divided
    for stripe in range(first // STRIPE, -(-last // STRIPE)):
        total = 0.0
        for v in range(max(first, stripe * STRIPE), min(last, (stripe + 1) * STRIPE)):
            if len(states) > 0 and states[v] == 0:
                continue
            if degree[v] > 0:
                contributions[v] = values[v] / degree[v]
            else:
                contributions[v] = 0.0
                total += values[v]
        dangling[stripe] = total


@kernel(STRIPE)
def _expand(first, last, outgoing, loop, states, expanding):  # type: ignore[no-untyped-def]
    row_starts, row_lengths, column_indices, _ = outgoing
    for u in range(first, last):
        if not expanding[u]:
            continue
        expanding[u] = 0
        if loop[u]:
            states[u] = AFFECTED
        for slot in range(row_starts[u], row_starts[u] + row_lengths[u]):
            states[column_indices[slot]] = AFFECTED


class CpuPublished(PublishedOperations):
    """See PublishedOperations."""

    def expand(self, graph: GraphView, out_rows: Rows, marks: Marks) -> None:  # noqa: ARG002
        _expand(graph.vertices, graph.outgoing, graph.loop, *marks)

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
        states, expanding = marks or (_NO_MARKS, _NO_MARKS)
        groups = len(in_rows.groups) - 1
        sums = np.zeros((groups, _SUMS))
        dangling = np.zeros(-(-graph.vertices // STRIPE))
        _send(graph.vertices, values, graph.degree, _NO_MARKS, contributions, dangling)
        iterations, converged = 0, False
        trace: list[list[float]] = []
        while not converged and iterations < rule.max_iterations:
            iterations += 1
            if rule.dangling_mass > 0.0:
                mass = (1.0 - rule.damping) * rule.dangling_mass + rule.damping * dangling.sum()
                rhs_scale = float(mass / graph.vertices)
            _update_ranks(
                groups,
                in_rows.groups,
                in_rows.order,
                graph.incoming,
                graph.loop,
                graph.degree,
                values,
                contributions,
                states,
                expanding,
                rhs_scale,
                rule.damping,
                rule.closed_form,
                rule.prune_tolerance,
                rule.frontier_tolerance,
                sums,
            )
            _send(graph.vertices, values, graph.degree, states, contributions, dangling)
            converged = bool(sums[:, _LARGEST].max() <= rule.tolerance)
            if traced and len(trace) < TRACED_STEPS:
                largest = float(sums[:, _LARGEST_RELATIVE].max())
                counts = sums[:, [_RECOMPUTED, _EDGES, _PRUNED]].sum(axis=0)
                trace.append([*counts.tolist(), largest])
            last = converged or iterations == rule.max_iterations
            if marks is not None and out_rows is not None and not last:
                self.expand(graph, out_rows, marks)
                if rule.most_edges is not None:
                    affected = marks.states == AFFECTED
                    edges = int(graph.incoming.row_lengths[affected].sum(dtype=np.int64))
                    if edges > rule.most_edges:
                        break
        return PublishedResult(
            iterations, converged, rhs_scale, _trace_of(trace) if traced else None
        )


def _trace_of(rows: list[list[float]]) -> IterationTrace:
    columns = np.array(rows).reshape(-1, 4).T
    recomputed, edges, pruned = columns[:3].astype(np.int64)
    return IterationTrace(recomputed, edges, pruned, columns[3])
