"""Strategies that follow a frontier: which vertices a batch affects, and rounds over those."""

from __future__ import annotations

import numpy as np

from liverank_gpu.graph.ranked_graph import RankedGraph
from liverank_gpu.operations import published as op
from liverank_gpu.operations.csr import Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import ChangeBlock, ChangedLists, GraphUpdate
from liverank_gpu.operations.residual import (
    ExpandBackward,
    ExpandForward,
    Frontier,
    JacobiStep,
)
from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.pagerank.strategies import Solved, Strategy
from liverank_gpu.pagerank.sweeps import iterate_to_tolerance
from liverank_gpu.types import TraceStep

_SPARSE_PART = 16
"""Fewer vertices than one in this many are processed as a list, more as flags over all."""

_DENSE_PART = 8
"""Affected vertices with more than one in this many of all in-edges are no longer followed."""

_BACKWARD_PART = 8
"""A frontier with more than one in this many of all edges is expanded from the other end."""


class TouchedVertices:
    """What batches touched since the last solve: all that marking needs, on the device.

    sources, removed_targets  integer[…] of each batch: see GraphUpdate
    """

    def __init__(self) -> None:
        self._lists: list[ChangedLists | ChangeBlock] = []

    @property
    def sources(self) -> list[Array]:
        return [each.sources for each in self._lists]

    @property
    def removed_targets(self) -> list[Array]:
        return [each.removed_targets for each in self._lists]

    def add(self, update: GraphUpdate) -> None:
        """Records a batch."""
        self._lists.append(update.lists)

    def clear(self) -> None:
        """Forgets all batches."""
        self._lists = []

    def mark_affected(self, graph: RankedGraph, strategy: Strategy, flags: Array) -> Array:
        """int32[k]: the initially affected vertices.

        flags  int32[n], all 0; set for the vertices returned

        The old lists are not needed. Out-neighbours of a source before the batch are those after it
        and the removed targets. A path of the old graph is lost only at a deleted edge, whose
        target is marked, so what was reachable before is reachable now from the sources and those
        targets.
        """
        xp = graph.backend.xp
        if not self.sources:
            return xp.zeros(0, np.int32)
        sources = self.sources[0]
        if len(self.sources) > 1:
            sources = xp.unique(xp.concatenate(self.sources))
        targets = xp.unique(xp.concatenate(self.removed_targets)).astype(np.int32)
        if len(graph.free):
            # removed vertices, which have no out-neighbours now but a loop of the policy
            sources, targets = (each[~xp.isin(each, graph.free)] for each in (sources, targets))
        affected = graph.backend.run(ExpandForward(graph.view, sources, flags))
        targets = targets[flags[targets] == 0]
        flags[targets] = 1
        affected = xp.concatenate([affected, targets])
        if strategy.affected == "reachable":
            return _reachable(graph, affected, flags)
        return affected


def expand(graph: RankedGraph, frontier: Array, flags: Array, frontier_flags: Array) -> Array:
    """int32[…]: the out-neighbours of some vertices that had no flag, flagged now. Forward from a
    small frontier, backward to a large one.

    frontier        int32[k]
    flags           int32[n]
    frontier_flags  uint8[n], all 0 before and after
    """
    edges = int(graph.total(graph.outgoing.csr.row_lengths[frontier]))
    if edges * _BACKWARD_PART <= graph.arcs:
        return graph.backend.run(ExpandForward(graph.view, frontier, flags))
    frontier_flags[frontier] = 1
    backward = ExpandBackward(graph.view, graph.in_rows(), frontier_flags, flags)
    found = graph.backend.run(backward)
    frontier_flags[frontier] = 0
    return found


def _reachable(graph: RankedGraph, found: Array, flags: Array) -> Array:
    """int32[k]: the flagged vertices `found` and all that can be reached from them, flagged too, by
    breadth-first search.
    """
    xp = graph.backend.xp
    levels, frontier_flags = [found], xp.zeros(graph.vertices, np.uint8)
    while graph.count(len(found)):
        found = expand(graph, found, flags, frontier_flags)
        levels.append(found)
    return xp.concatenate(levels)


def solve_affected(
    iterate: GlobalIterate, strategy: Strategy, affected: Array, flags: Array
) -> Solved:
    """Jacobi steps over the affected vertices at a fixed β, since changing β would change every
    vertex. Then the residual follows what changed. (Sahu, algorithm 2.)

    By lists while few vertices are affected, where that pays; then by states of all of them, in one
    operation. Where they have so many in-edges that sweeps over all vertices are faster, these take
    the solve over.

    affected  int32[k], the initially affected vertices
    flags     int32[n], set for them; all 0 afterwards
    """
    graph, options, backend = iterate.graph, iterate.options, iterate.graph.backend
    in_lengths = graph.incoming.csr.row_lengths
    frontier = Frontier(
        flags,
        iterate.scratch("expanding", np.uint8),
        options.prune_tolerance if strategy.prunes else -1.0,
        options.frontier_tolerance if strategy.expands else np.inf,
    )
    new_values = iterate.scratch("new values")
    before = _ValuesBefore(iterate)
    before.save(affected)
    rows = backend.frontier.rows_of(affected, in_lengths)
    contributions = None
    iterations, converged = 0, rows.count == 0
    while not converged and iterations < options.max_iterations:
        iterations += 1
        if contributions is None and rows.count * _SPARSE_PART > graph.vertices:
            contributions = iterate.contributions()
        step = JacobiStep(
            graph.view,
            rows,
            iterate.values,
            contributions,
            iterate.rhs_scale,
            options.damping,
            new_values,
            frontier,
        )
        result = backend.run(step)
        converged = result.largest_change <= options.tolerance * float(iterate.certificate.mass)
        joined, recomputed = 0, rows
        if strategy.expands and not converged:
            joining = expand(graph, result.expanding, flags, frontier.expanding)
            before.save(joining)
            joined = len(joining)
            remaining = backend.xp.concatenate([result.remaining, joining])
            if iterations < options.max_iterations and _by_states(iterate, len(remaining)):
                flags[recomputed.order] = flags[remaining] = 0
                _trace(iterate, recomputed, len(result.remaining), joined)
                marks = _new_marks(iterate)
                before.save_all(marks.states)
                marks.states[remaining] = op.AFFECTED
                return _solve_by_states(iterate, strategy, marks, before, iterations)
            rows = backend.frontier.rows_of(remaining, in_lengths)
            converged = len(remaining) == 0
        _trace(iterate, recomputed, len(result.remaining), joined)
    flags[rows.order] = 0
    return Solved(iterations, before.update_residual(), converged)


def _by_states(iterate: GlobalIterate, count: int) -> bool:
    """Whether this many affected vertices, or more, are kept as states of all vertices."""
    graph = iterate.graph
    part = graph.backend.costs.sparse_part
    return part == 0 or count * part > graph.vertices


def mark_states(iterate: GlobalIterate, strategy: Strategy, touched: TouchedVertices) -> op.Marks:
    """The states of all vertices, with the initially affected ones marked (Sahu, algorithm 5)."""
    graph, marks = iterate.graph, _new_marks(iterate)
    if strategy.affected == "reachable":
        flags = iterate.scratch("affected", np.int32)
        affected = touched.mark_affected(graph, strategy, flags)
        flags[affected] = 0
        marks.states[affected] = op.AFFECTED
        return marks
    for targets in touched.removed_targets:
        marks.states[targets] = op.AFFECTED
    for sources in touched.sources:
        marks.expanding[sources] = 1
    graph.backend.run(op.ExpandAffected(graph.view, graph.outgoing.partition(), marks))
    return marks


def _new_marks(iterate: GlobalIterate) -> op.Marks:
    marks = op.Marks(iterate.scratch("states", np.uint8), iterate.scratch("expanding", np.uint8))
    for each in marks:
        each.fill(0)
    return marks


def mark(iterate: GlobalIterate, strategy: Strategy, touched: TouchedVertices) -> op.Marks | Array:
    """The initially affected vertices for `solve`: states of all vertices, or a list, whose flags
    are set then.
    """
    sources = sum(map(len, touched.sources))
    if not _by_states(iterate, 0) or iterate.graph.count(sources) == 0:
        return touched.mark_affected(iterate.graph, strategy, _flags(iterate))
    marks = mark_states(iterate, strategy, touched)
    # vertices that were removed are reached by the loop of the policy
    marks.states[iterate.graph.free] = 0
    return marks


def solve(iterate: GlobalIterate, strategy: Strategy, affected: op.Marks | Array) -> Solved:
    """Solves from the initially affected vertices."""
    if isinstance(affected, op.Marks):
        return solve_states(iterate, strategy, affected)
    graph, flags = iterate.graph, _flags(iterate)
    edges = graph.incoming.csr.row_lengths[affected]
    if int(graph.total(edges)) > _most_edges(iterate):
        flags[affected] = 0
        return _sweep(iterate, strategy, 0)
    return solve_affected(iterate, strategy, affected, flags)


def warm_up_lists(iterate: GlobalIterate, strategy: Strategy) -> None:
    """Compiles what a solve by lists runs. `solve` would sweep: a list of all vertices is too long
    for it.
    """
    graph, flags = iterate.graph, _flags(iterate)
    if graph.backend.costs.sparse_part == 0:
        return  # there are none
    flags.fill(1)
    everything = graph.backend.xp.arange(graph.vertices, dtype=np.int32)
    solve_affected(iterate, strategy, everything, flags)
    # a short list is expanded by a loop of its own
    graph.backend.run(ExpandForward(graph.view, everything[:1], flags))
    flags.fill(0)


def _flags(iterate: GlobalIterate) -> Array:
    return iterate.scratch("affected", np.int32)


def solve_states(iterate: GlobalIterate, strategy: Strategy, marks: op.Marks) -> Solved:
    """`solve_affected` for affected vertices that are kept as states of all, in one operation."""
    iterate.scratch("values before")[:] = iterate.values
    return _solve_by_states(iterate, strategy, marks, _ValuesBefore(iterate), 0)


def _solve_by_states(
    iterate: GlobalIterate,
    strategy: Strategy,
    marks: op.Marks,
    before: _ValuesBefore,
    iterations: int,
) -> Solved:
    """From some affected vertices on, by liverank_gpu.operations.published.

    before      has the values of all vertices
    iterations  those made before
    """
    graph, options = iterate.graph, iterate.options
    rule = op.Rule(
        damping=options.damping,
        closed_form=True,
        dangling_mass=0.0,
        tolerance=options.tolerance * float(iterate.certificate.mass),
        frontier_tolerance=options.frontier_tolerance if strategy.expands else np.inf,
        prune_tolerance=options.prune_tolerance if strategy.prunes else -1.0,
        max_iterations=options.max_iterations - iterations,
        most_edges=_most_edges(iterate),
    )
    result = iterate_published(iterate, strategy, marks, rule)
    if iterate.trace is not None and result.trace is not None:
        iterate.trace += steps_of(result.trace)
    iterations += result.iterations
    if iterations == 0:
        return _sweep(iterate, strategy, 0)
    touched = graph.backend.xp.flatnonzero(marks.states).astype(np.int32)
    before.update_residual_at(touched)
    if not result.converged and iterations < options.max_iterations:
        return _sweep(iterate, strategy, iterations)
    return Solved(iterations, graph.count(len(touched)), result.converged)


def iterate_published(
    iterate: GlobalIterate, strategy: Strategy, marks: op.Marks | None, rule: op.Rule
) -> op.PublishedResult:
    """Published iterations of y over the affected vertices, or all if there are no marks."""
    graph, sizes = iterate.graph, iterate.graph.backend.sizes
    result = graph.backend.run(
        op.IterateRanks(
            graph.view,
            graph.in_rows(),
            graph.outgoing.partition() if strategy.expands else None,
            iterate.values,
            iterate.scratch("contributions", length=graph.columns),
            iterate.rhs_scale,
            marks,
            rule,
            iterate.trace is not None,
            sizes.affected_edges,
            max(sizes.affected_vertices, graph.vertices // _SPARSE_PART),
        )
    )
    if marks is not None:
        # left by the last iteration; others find the scratch array all 0
        marks.expanding.fill(0)
    return result


def _most_edges(iterate: GlobalIterate) -> int:
    """The most in-edges that affected vertices may have; with more, a few sweeps are cheaper."""
    graph = iterate.graph
    return graph.arcs // _DENSE_PART + int(graph.backend.costs.sweep_overhead)


def _sweep(iterate: GlobalIterate, strategy: Strategy, iterations: int) -> Solved:
    """Finishes a solve by sweeps over all vertices, which end when ‖r‖₁ is at most τ_p·Σy if the
    strategy prunes, at most τ_f·Σy if it expands; the smaller one if both.

    iterations  those made before
    """
    options = iterate.options
    left = options.frontier_tolerance if strategy.expands else 0.0
    if strategy.prunes:
        left = min(left, options.prune_tolerance)
    if iterate.stale:
        iterate.recompute_residual()
    swept = iterate_to_tolerance(iterate, options.max_iterations - iterations, left)
    return Solved(iterations + swept.sweeps, iterate.graph.ids.count, swept.converged)


def _trace(iterate: GlobalIterate, rows: Rows, remaining: int, joined: int) -> None:
    """Adds an iteration over these rows to the trace, if there is one."""
    if iterate.trace is not None:
        in_lengths = iterate.graph.incoming.csr.row_lengths
        edges = int(iterate.graph.backend.device.sum(in_lengths[rows.order]))
        pruned = rows.count - remaining
        iterate.trace.append(TraceStep("iteration", 1, rows.count, edges, joined, pruned))


def steps_of(trace: op.IterationTrace) -> list[TraceStep]:
    """The same as steps of a liverank_gpu.types.Trace."""
    vertices, edges, pruned, largest = (column.tolist() for column in trace)
    following = [*vertices, None][1:]
    joined = [
        0 if after is None else after - before + left
        for before, left, after in zip(vertices, pruned, following, strict=True)
    ]
    return [
        TraceStep("iteration", 1, *columns)
        for columns in zip(vertices, edges, joined, pruned, largest, strict=True)
    ]


class _ValuesBefore:
    """The vertices that a solve touches and their values before it, so that r can follow."""

    def __init__(self, iterate: GlobalIterate) -> None:
        self._iterate = iterate
        self._lists: list[Array] = []
        self._saved = iterate.scratch("saved", np.uint8)
        self._values = iterate.scratch("values before")

    def save(self, vertices: Array) -> None:
        """Saves the values of those vertices that have not been saved."""
        new = vertices[self._saved[vertices] == 0]
        self._saved[new] = 1
        self._values[new] = self._iterate.values[new]
        self._lists.append(new)

    def save_all(self, states: Array) -> None:
        """Saves the values of all other vertices; marks those saved so far as pruned."""
        for saved in self._lists:
            states[saved] = op.PRUNED
        unsaved = self._saved == 0
        self._values[unsaved] = self._iterate.values[unsaved]

    def update_residual(self) -> int:
        """Makes r the residual of the values now; returns how many vertices were touched."""
        touched = self._iterate.graph.backend.xp.concatenate(self._lists)
        self.update_residual_at(touched)
        return len(touched)

    def update_residual_at(self, touched: Array) -> None:
        """The same where the values of these vertices changed, int32[k]; all that are saved are
        among them.
        """
        iterate = self._iterate
        self._saved[touched] = 0
        if iterate.graph.arcs <= iterate.graph.backend.costs.sweep_overhead:
            # a pass over all takes no longer than what follows only these
            iterate.recompute_residual()
            return
        after = iterate.values[touched].astype(np.float64)
        iterate.follow(touched, after - self._values[touched])
