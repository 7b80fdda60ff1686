"""Sets of vertices, the published iterations over them, and selection, in NumPy."""

from __future__ import annotations

from sys import modules

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
from liverank_gpu.operations import published as op
from liverank_gpu.operations.csr import GraphView, Kernels, Rows, runs
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.residual import (
    ExpandBackward,
    ExpandForward,
    FrontierOperations,
    JacobiResult,
    JacobiStep,
)
from liverank_gpu.operations.select import Candidates, SelectOperations, ToIds


def _reached(graph: GraphView, vertices: Array) -> Array:
    """The out-neighbours of some vertices, and those with a loop."""
    _, slots = entries_of(graph.outgoing, vertices)
    return np.concatenate(
        [graph.outgoing.column_indices[slots], vertices[graph.loop[vertices] != 0]]
    )


class ReferenceFrontier(FrontierOperations):
    def rows_of(self, vertices: Array, row_lengths: Array) -> Rows:  # noqa: ARG002
        """In ascending order."""
        return all_rows(np.sort(vertices).astype(np.int32))


@runs
def _expand_forward(do: ExpandForward) -> Array:
    """{w : u → w, u in the set}."""
    reached = np.unique(_reached(do.graph, do.vertices))
    fresh: Array = reached[do.flags[reached] == 0].astype(np.int32)
    do.flags[fresh] = 1
    return fresh


@runs
def _expand_backward(do: ExpandBackward) -> Array:
    """The same set, by the in-lists."""
    graph, frontier, order = do.graph, do.frontier, do.rows.order
    v = order[do.flags[order] == 0]
    places, slots = entries_of(graph.incoming, v)
    sources = frontier[graph.incoming.column_indices[slots]]
    reached = np.bincount(places, sources, len(v)) > 0
    fresh: Array = v[reached | ((graph.loop[v] != 0) & (frontier[v] != 0))].astype(np.int32)
    do.flags[fresh] = 1
    return fresh


@runs
def _jacobi_step(do: JacobiStep) -> JacobiResult:
    """y' = y + r / (1 - αℓ/d), r = β + α·row_sums(y/d) - (1 - αℓ/d)·y."""
    graph, v, values, frontier = do.graph, do.rows.order, do.values, do.frontier
    sent = do.contributions
    if sent is None:
        sent = contributions_of(values, graph.degree)
    diagonal, old = diagonal_of(graph, do.damping, v), values[v]
    r = do.rhs_scale + do.damping * row_sums(graph.incoming, v, sent) - diagonal * old
    new = old + r / diagonal
    change = np.abs(new - old)
    relative = change / np.maximum(new, old)
    frontier.affected[v[relative <= frontier.prune_tolerance]] = 0
    do.new_values[v] = values[v] = new
    if do.contributions is not None:
        do.contributions[v] = contributions_of(new, graph.degree[v])
    expanding, remaining = v[:0], v
    if np.isfinite(frontier.frontier_tolerance):
        expanding = v[relative > frontier.frontier_tolerance]
        remaining = v[frontier.affected[v] != 0]
    return JacobiResult(float(change.max(initial=0.0)), expanding, remaining)


# ---- the iterations of the published strategies ----


@runs
def _expand_affected(do: op.ExpandAffected) -> None:
    """δN → δV (Sahu, algorithm 5, expandAffected)."""
    marks = do.marks
    marks.states[_reached(do.graph, np.flatnonzero(marks.expanding))] = op.AFFECTED
    marks.expanding[:] = 0


@runs
def _send_ranks(do: op.SendRanks) -> op.SentRanks:
    """y/d."""
    degree, vertices = do.graph.degree, do.graph.vertices
    do.contributions[:vertices] = contributions_of(do.values, degree)
    return op.SentRanks(vertices, float(do.values[degree == 0].sum()))


@runs
def _update_ranks(do: op.UpdateRanks) -> op.RankChanges:
    """Sahu, algorithm 3: y' = β + α·(row_sums(c) + ℓ·c), or in closed form, equation 2."""
    graph, values, contributions, rule = do.graph, do.values, do.contributions, do.rule
    v = do.rows.order
    if do.marks is not None:
        v = v[do.marks.states[v] == op.AFFECTED]
    new = do.rhs_scale + rule.damping * row_sums(graph.incoming, v, contributions)
    if rule.closed_form:
        new /= diagonal_of(graph, rule.damping, v)
    else:
        new += rule.damping * (graph.loop[v] * contributions[v])
    change = np.abs(new - values[v])
    relative = change / np.maximum(new, values[v])
    values[v], contributions[v] = new, contributions_of(new, graph.degree[v])
    pruned = v[relative <= rule.prune_tolerance]
    if do.marks is not None:
        do.marks.states[pruned] = op.PRUNED
        do.marks.expanding[v[relative > rule.frontier_tolerance]] = 1
    return op.RankChanges(
        float(change.max(initial=0.0)),
        float(relative.max(initial=0.0)),
        len(v),
        int(graph.incoming.row_lengths[v].sum(dtype=np.int64)),
        len(pruned),
        float(values[graph.degree == 0].sum()),
    )


@runs
def _iterate_ranks(do: op.IterateRanks) -> op.PublishedResult:
    return op.iterate_ranks(_RUN, np.sum, do)


# ---- the iterations of published personalized PageRank ----


@runs
def _detect(do: op.DetectListed) -> op.WorkList:
    """{v : r[v] > θ}."""
    return _listed(do.graph, do.state, np.flatnonzero(do.state.residual > do.threshold))


@runs
def _take(do: op.TakeListed) -> None:
    """y += r, c = α·r/d, r = ℓ·c (Wang et al., algorithm 1)."""
    u, state = do.listed, do.state
    taken = state.residual[u]
    state.values[u] += taken
    state.contributions[u] = do.damping * contributions_of(taken, do.graph.degree[u])
    state.residual[u] = do.graph.loop[u] * state.contributions[u]


@runs
def _push_in_one_pass(do: op.PushInOnePass) -> op.WorkList:
    """r only grows, so whoever passes a test passes it at the end: the vertices of the list and
    their out-neighbours are tested then.
    """
    _push(do)
    tested = np.unique(np.concatenate([do.listed, _reached(do.graph, do.listed)]))
    return _listed(do.graph, do.state, tested[do.state.residual[tested] > do.threshold])


@runs
def _push(do: op.PushListed) -> None:
    """r[v] += c[u]·w(u,v)."""
    _take(do)
    u, csr = do.listed, do.graph.outgoing
    places, slots = entries_of(csr, u)
    amounts = do.contributions[u[places]] * weights_at(csr, slots)
    np.add.at(do.state.residual, csr.column_indices[slots], amounts)


@runs
def _pull(do: op.PullListed) -> None:
    """r += row_sums(c)."""
    v, state = do.rows.order, do.state
    state.residual[v] += row_sums(do.graph.incoming, v, state.contributions)


def _listed(graph: GraphView, state: op.ForwardState, vertices: Array) -> op.WorkList:
    state.queue[: len(vertices)] = vertices
    return op.WorkList(len(vertices), int(graph.outgoing.row_lengths[vertices].sum(dtype=np.int64)))


@as_ieee
class ReferenceSelect(SelectOperations):
    def _largest(
        self,
        values: Array,
        counts: NDArray[np.int64],
        to_ids: ToIds | None,  # noqa: ARG002
    ) -> list[Candidates]:
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


_RUN = Kernels(modules[__name__])
