"""Sets of vertices on ``cpu``, their expansion along edges, and Jacobi steps over them."""

from __future__ import annotations

import numpy as np

from gpu.backends.cpu.rows import (
    CHUNK_WORK,
    CHUNKS,
    NO_VALUES,
    STRIPE,
    change_of,
    chunk_rows,
    plain,
    residual_at,
    smallest_change,
)
from gpu.jit.compile import kernel, sequential, unsigned
from gpu.operations.csr import GraphView, Rows
from gpu.operations.device import Array
from gpu.operations.frontier import Frontier, FrontierOperations, JacobiResult


@kernel(STRIPE)
def _expand_forward(first, last, vertices, outgoing, loop, flags):  # type: ignore[no-untyped-def]
    row_starts, row_lengths, column_indices, _ = outgoing
    for place in range(first, last):
        u = vertices[place]
        if loop[u]:
            flags[u] = 1
        for slot in range(row_starts[u], row_starts[u] + row_lengths[u]):
            flags[column_indices[slot]] = 1


@sequential
def _expand_forward_few(vertices, outgoing, loop, flags, fresh):  # type: ignore[no-untyped-def]
    """Lists the vertices that had no flag in `fresh` and returns their number."""
    row_starts, row_lengths, column_indices, _ = outgoing
    found = 0
    for u in vertices:
        if loop[u] and not flags[u]:
            flags[u] = 1
            fresh[found] = u
            found += 1
        for slot in range(row_starts[u], row_starts[u] + row_lengths[u]):
            w = column_indices[slot]
            if not flags[w]:
                flags[w] = 1
                fresh[found] = w
                found += 1
    return found


@kernel(CHUNKS)
def _expand_backward(  # type: ignore[no-untyped-def]
    first, last, groups, order, incoming, loop, frontier, flags
):
    row_starts, row_lengths, column_indices, _ = incoming
    for group in range(first, last):
        for place in range(groups[group], groups[group + 1]):
            v = order[place]
            if flags[v]:
                continue
            if loop[v] and frontier[v]:
                flags[v] = 1
                continue
            for slot in range(row_starts[v], row_starts[v] + row_lengths[v]):
                if frontier[column_indices[slot]]:
                    flags[v] = 1
                    break


@kernel(CHUNKS)
def _jacobi_step(  # type: ignore[no-untyped-def]
    first_group,
    last_group,
    groups,
    order,
    incoming,
    loop,
    degree,
    values,
    contributions,
    rhs_scale,
    damping,
    new_values,
    affected,
    expanding,
    prune_tolerance,
    frontier_tolerance,
    smallest,
    largest_changes,
):
    for group in range(first_group, last_group):
        largest_change = 0.0
        for place in range(groups[group], groups[group + 1]):
            v = unsigned(order[unsigned(place)])
            residual, diagonal = residual_at(
                v, incoming, loop, degree, values, contributions, rhs_scale, damping
            )
            old = np.float64(values[v])
            new_values[v] = old + residual / diagonal
            new = np.float64(new_values[v])
            change = change_of(old, new, smallest)
            largest_change = max(largest_change, change)
            relative = change / max(new, old)
            if relative <= prune_tolerance:
                affected[v] = 0
            if relative > frontier_tolerance:
                expanding[v] = 1
        largest_changes[group] = largest_change


class CpuFrontier(FrontierOperations):
    """See FrontierOperations."""

    def compact_rows(self, flags: Array, rows: Rows, row_lengths: Array) -> Rows:  # noqa: ARG002
        # `rows` are all rows, so a scan of the flags finds their members in ascending order
        order = np.flatnonzero(flags).astype(np.int32)
        return chunk_rows(order, row_lengths[order])

    def rows_of(self, vertices: Array, row_lengths: Array) -> Rows:
        order = np.sort(vertices).astype(np.int32)
        return chunk_rows(order, row_lengths[order])

    def expand_forward(self, graph: GraphView, vertices: Array, flags: Array) -> Array:
        vertices = vertices.astype(np.int32)
        row_lengths = graph.outgoing.row_lengths[vertices]
        edges = int(row_lengths.sum(dtype=np.int64)) + len(vertices)
        if edges < min(CHUNK_WORK, len(flags)):
            fresh = np.empty(edges, np.int32)
            outgoing = plain(graph.outgoing)
            found = _expand_forward_few(vertices, outgoing, graph.loop, flags, fresh)
            return fresh[:found]
        before = flags.copy()
        _expand_forward(len(vertices), vertices, graph.outgoing, graph.loop, flags)
        return np.flatnonzero(flags != before).astype(np.int32)

    def expand_backward(self, graph: GraphView, rows: Rows, frontier: Array, flags: Array) -> Array:
        before = flags.copy()
        _expand_backward(
            len(rows.groups) - 1,
            rows.groups,
            rows.order,
            graph.incoming,
            graph.loop,
            frontier,
            flags,
        )
        return np.flatnonzero(flags != before).astype(np.int32)

    def jacobi_step(
        self,
        graph: GraphView,
        rows: Rows,
        values: Array,
        contributions: Array | None,
        rhs_scale: float,
        damping: float,
        new_values: Array,
        frontier: Frontier,
    ) -> JacobiResult:
        order = rows.order
        largest_changes = np.zeros(len(rows.groups) - 1)
        _jacobi_step(
            len(rows.groups) - 1,
            rows.groups,
            order,
            graph.incoming,
            graph.loop,
            graph.degree,
            values,
            NO_VALUES if contributions is None else contributions,
            rhs_scale,
            damping,
            new_values,
            frontier.affected,
            frontier.expanding,
            frontier.prune_tolerance,
            frontier.frontier_tolerance,
            smallest_change(values),
            largest_changes,
        )
        values[order] = new_values[order]
        if contributions is not None:
            degree = graph.degree[order]
            contributions[order] = np.where(
                degree > 0, values[order] / np.where(degree > 0, degree, 1), 0.0
            )
        expanding, remaining = order[:0], order
        if np.isfinite(frontier.frontier_tolerance):
            expanding = order[frontier.expanding[order] != 0]
            frontier.expanding[expanding] = 0
            remaining = order[frontier.affected[order] != 0]
        return JacobiResult(float(largest_changes.max(initial=0.0)), expanding, remaining)
