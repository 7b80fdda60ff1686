"""Sets of vertices, the published iterations over them, and selection, in NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.reference.rows import (
    all_rows,
    as_ieee,
    contributions_of,
    diagonal_of,
    entries_of,
    row_sums,
    weights_at,
)
from liverank_gpu.operations.csr import GraphView, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.published import (
    AFFECTED,
    PRUNED,
    ForwardPushOperations,
    ForwardState,
    IterationTrace,
    Marks,
    PublishedOperations,
    PublishedResult,
    Rule,
    WorkList,
)
from liverank_gpu.operations.residual import Frontier, FrontierOperations, JacobiResult
from liverank_gpu.operations.select import Candidates, SelectOperations, residual_bound
from liverank_gpu.trace import TRACED_STEPS


def _reached(graph: GraphView, vertices: Array) -> Array:
    """The out-neighbours of some vertices, and those with a loop."""
    _, slots = entries_of(graph.outgoing, vertices)
    return np.concatenate(
        [graph.outgoing.column_indices[slots], vertices[graph.loop[vertices] != 0]]
    )


@as_ieee
class ReferenceFrontier(FrontierOperations):
    """See FrontierOperations."""

    def compact_rows(self, flags: Array, rows: Rows, row_lengths: Array) -> Rows:  # noqa: ARG002
        """Where flags are set."""
        return all_rows(np.flatnonzero(flags).astype(np.int32))

    def rows_of(self, vertices: Array, row_lengths: Array) -> Rows:  # noqa: ARG002
        """In ascending order."""
        return all_rows(np.sort(vertices).astype(np.int32))

    def expand_forward(self, graph: GraphView, vertices: Array, flags: Array) -> Array:
        """{w : u → w, u in the set}."""
        reached = np.unique(_reached(graph, vertices))
        fresh = reached[flags[reached] == 0].astype(np.int32)
        flags[fresh] = 1
        return fresh

    def expand_backward(self, graph: GraphView, rows: Rows, frontier: Array, flags: Array) -> Array:
        """The same set, by the in-lists."""
        v = rows.order[flags[rows.order] == 0]
        places, slots = entries_of(graph.incoming, v)
        sources = frontier[graph.incoming.column_indices[slots]]
        reached = np.bincount(places, sources, len(v)) > 0
        fresh = v[reached | ((graph.loop[v] != 0) & (frontier[v] != 0))].astype(np.int32)
        flags[fresh] = 1
        return fresh

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
        """y' = y + r / (1 - αℓ/d), r = β + α·row_sums(y/d) - (1 - αℓ/d)·y."""
        v, degree = rows.order, graph.degree
        sent = contributions_of(values, degree) if contributions is None else contributions
        diagonal, old = diagonal_of(graph, damping, v), values[v]
        r = rhs_scale + damping * row_sums(graph.incoming, v, sent) - diagonal * old
        new = old + r / diagonal
        change = np.abs(new - old)
        relative = change / np.maximum(new, old)
        frontier.affected[v[relative <= frontier.prune_tolerance]] = 0
        new_values[v] = values[v] = new
        if contributions is not None:
            contributions[v] = contributions_of(new, degree[v])
        expanding, remaining = v[:0], v
        if np.isfinite(frontier.frontier_tolerance):
            expanding = v[relative > frontier.frontier_tolerance]
            remaining = v[frontier.affected[v] != 0]
        return JacobiResult(float(change.max(initial=0.0)), expanding, remaining)


@as_ieee
class ReferencePublished(PublishedOperations):
    """See PublishedOperations."""

    def expand(self, graph: GraphView, out_rows: Rows, marks: Marks) -> None:  # noqa: ARG002
        """δN → δV (Sahu, algorithm 5, expandAffected)."""
        marks.states[_reached(graph, np.flatnonzero(marks.expanding))] = AFFECTED
        marks.expanding[:] = 0

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
        """Sahu, algorithm 3: y' = β + α·(row_sums(c) + ℓ·c), or in closed form, equation 2."""
        degree, lengths, damping = graph.degree, graph.incoming.row_lengths, rule.damping
        trace: list[tuple[float, ...]] = []
        iterations, converged = 0, False
        contributions[: graph.vertices] = contributions_of(values, degree)
        while not converged and iterations < rule.max_iterations:
            iterations += 1
            if rule.dangling_mass > 0.0:
                dangling = values[degree == 0].sum()
                mass = (1.0 - damping) * rule.dangling_mass + damping * dangling
                rhs_scale = float(mass / graph.vertices)
            v = in_rows.order
            if marks is not None:
                v = v[marks.states[v] == AFFECTED]
            new = rhs_scale + damping * row_sums(graph.incoming, v, contributions)
            if rule.closed_form:
                new /= diagonal_of(graph, damping, v)
            else:
                new += damping * (graph.loop[v] * contributions[v])
            change = np.abs(new - values[v])
            relative = change / np.maximum(new, values[v])
            values[v], contributions[v] = new, contributions_of(new, degree[v])
            pruned = v[relative <= rule.prune_tolerance]
            if marks is not None:
                marks.states[pruned] = PRUNED
                marks.expanding[v[relative > rule.frontier_tolerance]] = 1
            converged = bool(change.max(initial=0.0) <= rule.tolerance)
            if traced and len(trace) < TRACED_STEPS:
                edges = int(lengths[v].sum(dtype=np.int64))
                trace.append((len(v), edges, len(pruned), relative.max(initial=0.0)))
            last = converged or iterations == rule.max_iterations
            if marks is not None and out_rows is not None and not last:
                self.expand(graph, out_rows, marks)
                affected = lengths[marks.states == AFFECTED].sum(dtype=np.int64)
                if rule.most_edges is not None and affected > rule.most_edges:
                    break
        columns = np.array(trace).reshape(-1, 4).T
        recomputed, edges_read, left = columns[:3].astype(np.int64)
        found = IterationTrace(recomputed, edges_read, left, columns[3])
        return PublishedResult(iterations, converged, rhs_scale, found if traced else None)


@as_ieee
class ReferenceForwardPush(ForwardPushOperations):
    """See ForwardPushOperations."""

    pushed_edge = 1.5

    def detect(self, graph: GraphView, state: ForwardState, threshold: float) -> WorkList:
        """{v : r[v] > θ}."""
        return _listed(graph, state, np.flatnonzero(state.residual > threshold))

    def take(
        self, graph: GraphView, state: ForwardState, work_list: WorkList, damping: float
    ) -> None:
        """y += r, c = α·r/d, r = ℓ·c (Wang et al., algorithm 1)."""
        u = state.queue[: work_list.vertices]
        taken = state.residual[u]
        state.values[u] += taken
        state.contributions[u] = damping * contributions_of(taken, graph.degree[u])
        state.residual[u] = graph.loop[u] * state.contributions[u]

    def push_in_one_pass(
        self,
        graph: GraphView,
        state: ForwardState,
        work_list: WorkList,
        damping: float,
        threshold: float,
    ) -> WorkList:
        """r only grows, so whoever passes a test passes it at the end: the vertices of the list and
        their out-neighbours are tested then.
        """
        tested = state.queue[: work_list.vertices].copy()
        self.push(graph, state, work_list, damping)
        tested = np.unique(np.concatenate([tested, _reached(graph, tested)]))
        return _listed(graph, state, tested[state.residual[tested] > threshold])

    def push(
        self, graph: GraphView, state: ForwardState, work_list: WorkList, damping: float
    ) -> None:
        """r[v] += c[u]·w(u,v)."""
        self.take(graph, state, work_list, damping)
        u, csr = state.queue[: work_list.vertices], graph.outgoing
        places, slots = entries_of(csr, u)
        amounts = state.contributions[u[places]] * weights_at(csr, slots)
        np.add.at(state.residual, csr.column_indices[slots], amounts)

    def pull(self, graph: GraphView, in_rows: Rows, state: ForwardState) -> None:
        """r += row_sums(c)."""
        v = in_rows.order
        state.residual[v] += row_sums(graph.incoming, v, state.contributions)


def _listed(graph: GraphView, state: ForwardState, vertices: Array) -> WorkList:
    state.queue[: len(vertices)] = vertices
    return WorkList(len(vertices), int(graph.outgoing.row_lengths[vertices].sum(dtype=np.int64)))


@as_ieee
class ReferenceSelect(SelectOperations):
    """See SelectOperations."""

    def _largest(self, values: Array, counts: NDArray[np.int64]) -> list[Candidates]:
        """All from the k-th largest on."""
        found = []
        for column, k in enumerate(counts.tolist()):
            entries = values[:, column]
            least = np.partition(entries, len(entries) - k)[len(entries) - k] if k else np.inf
            positions = np.flatnonzero(entries >= least)
            found.append((positions, entries[positions]))
        return found

    def list_changed(
        self, values: Array, mass: float, earlier: Array, threshold: float, capacity: int
    ) -> tuple[int, Array]:
        """|y/Σy - earlier| > threshold·earlier; -inf is no vertex."""
        change = np.abs(values / mass - earlier)
        changed = np.flatnonzero((change > threshold * earlier) & np.isfinite(change))
        return len(changed), changed[:capacity].astype(np.int32)

    def highest_bound(
        self,
        graph: GraphView,
        vertices: Array | None,
        values: Array,
        residuals: Array,
        damping: float,
        positive_residual: float,
        at_most: float,
    ) -> float:
        """max(y + N·(r⁺(1-α) + α·Σr⁺)) over y ≤ at_most."""
        at = np.arange(graph.vertices) if vertices is None else vertices
        bounds = residual_bound(
            np, residuals, graph.degree[at], graph.loop[at], damping, positive_residual
        )
        return float((values + bounds)[values <= at_most].max())
