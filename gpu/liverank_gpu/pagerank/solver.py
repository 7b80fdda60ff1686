"""Solves by a strategy, and those that go on until places are proven."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from liverank_gpu.operations.device import Array
from liverank_gpu.operations.published import Marks
from liverank_gpu.pagerank import frontier, gate
from liverank_gpu.pagerank.frontier import TouchedVertices
from liverank_gpu.pagerank.gate import USELESS_BOUND
from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.pagerank.places import FirstPlaces, GraphVertices, ProvenPlaces, SettledTarget
from liverank_gpu.pagerank.published import PublishedSolver
from liverank_gpu.pagerank.push import push_to_target, select_candidates
from liverank_gpu.pagerank.strategies import Solve, Solved, Strategy
from liverank_gpu.pagerank.sweeps import SWEEP_KINDS, iterate_to_tolerance, sweep_to_target
from liverank_gpu.types import LARGEST_ERROR, Form, Trace

# ---- solves that go on until the first places are proven (liverank_gpu.pagerank.places) ----

_GAP_PART = 0.5
"""What the next bound is of the smallest gap that is not proven: the ranks still move."""

_LEAST_STEP, _MOST_STEP = 0.5, 1e-2
"""The next bound is between these parts of the last one: gaps that are seen early are rough."""


def settle_places(
    iterate: GlobalIterate,
    solved: Solved,
    k: int,
    target: SettledTarget,
    vertices: GraphVertices,
    goes_on: bool = True,
) -> Solved:
    """Sweeps on, after a solve, until the target is proven of the first k places, rounding limits
    the bound, or there are no more sweeps.

    vertices  of the graph, or of a shard
    goes_on   whether there may be sweeps, and not only what is proven now

    Equal ranks are proven to be if their vertices have identical in-lists, and never for other
    reasons. Returns all that was done, with what is proven of the first places, and ties among
    them; it converged if the target is.
    """
    options, iterations, touched = iterate.options, solved.iterations, solved.touched_vertices
    while True:
        if not iterate.certificate.mass > 0.0:
            # no ranks, and no order of them: liverank_gpu.pagerank.gate replaces them
            none = ProvenPlaces.of(np.zeros(min(k, iterate.graph.ids.count), np.bool_))
            return replace(solved, iterations=iterations, converged=False, proven=none)
        places = FirstPlaces.of(iterate, vertices, k, target)
        met = places.proven.meet(target)
        bound, sweeps_left = iterate.error_bound, options.max_iterations - iterations
        next_bound = _next_bound(places.open_gap, bound)
        if met or not goes_on or sweeps_left <= 0 or next_bound >= bound:
            break
        iterate.options = replace(options, target_error=next_bound)
        try:
            swept = sweep_to_target(iterate, sweeps_left)
        finally:
            iterate.options = options
        iterations += swept.sweeps
        touched = iterate.graph.ids.count
        goes_on = swept.converged
    return replace(
        solved,
        iterations=iterations,
        touched_vertices=touched,
        converged=met,
        proven=places.proven,
        ties=places.ties,
    )


def _next_bound(open_gap: float, bound: float) -> float:
    """An error bound that may prove more. `bound` is not capped, as what is to fall."""
    following = min(max(_GAP_PART * open_gap, _MOST_STEP * bound), _LEAST_STEP * bound)
    return min(following, LARGEST_ERROR)


# Runs a strategy in one of its forms. Accelerated: push and dense sweeps for ``residual``, sweeps
# for strategies over all vertices, Jacobi steps for those that follow a frontier.


class AcceleratedSolver:
    """One solve: `mark`, then `solve`; then the residual is that of the new ranks."""

    def __init__(
        self,
        iterate: GlobalIterate,
        strategy: Strategy,
        asked: Solve,
        vertices: GraphVertices,
    ) -> None:
        """asked  for the places to settle
        vertices  of the graph, or of a part of it
        """
        self._iterate, self._strategy, self._asked = iterate, strategy, asked
        self._vertices = vertices
        self._affected: Marks | Array | None = None
        self._count = iterate.graph.ids.count
        self._passed = False

    def mark(self, touched: TouchedVertices) -> None:
        """Marks the vertices that the strategy starts from, if it does not start from all."""
        iterate, strategy = self._iterate, self._strategy
        if strategy.affected not in ("reachable", "frontier"):
            return
        self._affected = affected = frontier.mark(iterate, strategy, touched)
        if iterate.trace is not None:
            graph, states = iterate.graph, isinstance(affected, Marks)
            self._count = (
                int(graph.total(affected.states != 0)) if states else graph.count(len(affected))
            )

    def solve(self) -> Solved:
        """Brings the iterate up to date with the graph, which has at least one vertex."""
        iterate, strategy = self._iterate, self._strategy
        self._passed, iterate.passed = iterate.passed, False
        iterate.exclude_free()
        if strategy.affected == "residual":
            solved = self.solve_residual()
        elif self._affected is None:
            solved = solve_all(iterate, strategy)
        else:
            solved = frontier.solve(iterate, strategy, self._affected)
        iterate.solved = True
        return solved

    def solve_residual(self) -> Solved:
        """Pushes while that is cheap, then sweeps, until the bound meets the target, and the places
        are settled.
        """
        iterate, most = self._iterate, self._iterate.options.max_iterations
        # the residual of a graph without edges is large, and not worth a pass over all of them
        from_nothing = iterate.stale and not iterate.solved
        if not from_nothing:
            self._update_residual()
            from_nothing = iterate.error_bound > USELESS_BOUND
        iterate.workspace.residual.solve += 1
        iterate.below_zero, rounds, touched = False, 0, 0
        if not from_nothing:  # else pushing would give closed classes a part in the residual
            rounds, touched = push_to_target(iterate, iterate.options.target_error)
        swept = sweep_to_target(iterate, most - rounds, from_nothing=from_nothing)
        if swept.sweeps:
            touched = iterate.graph.ids.count
        solved = Solved(rounds + swept.sweeps, touched, swept.converged)
        if not self._asked.settle:
            pushed = self._passed and swept.sweeps == 0 and not from_nothing
            return replace(solved, positive=pushed and not iterate.below_zero)
        # the places of ranks, which have to be a distribution
        solved, _ = gate.passed(iterate, solved)
        return self._settled(solved, goes_on=solved.fallback != "equal")

    def _update_residual(self) -> None:
        """Computes r from y: at every vertex if it is unknown, else now and then at some, which
        takes the values of all.
        """
        if self._iterate.stale:
            self._iterate.recompute_residual()
        elif not self._vertices.divided:
            self._iterate.recompute_slice()

    def _settled(self, solved: Solved, goes_on: bool = True) -> Solved:
        k, target = self._asked.settle, self._asked.target
        return settle_places(self._iterate, solved, k, target, self._vertices, goes_on)

    def certify(self, solved: Solved) -> tuple[Solved, float]:
        """What was done, and the error bound of ranks that can be published: see gate.passed."""
        settle = partial(self._settled, goes_on=False) if self._asked.settle else None
        return gate.passed(self._iterate, solved, settle=settle)

    def trace(self, solved: Solved) -> Trace | None:
        """What was done, if that is traced."""
        steps = self._iterate.trace
        return None if steps is None else Trace.of(self._count, solved.iterations, steps)


class EmptySolver:
    """The solve of a graph without vertices."""

    def __init__(self, asked: Solve) -> None:
        self._asked = asked

    def mark(self, touched: TouchedVertices) -> None:
        """There is nothing to start from."""

    def solve(self) -> Solved:
        """All places that there are are proven."""
        proven = ProvenPlaces(0, True, ()) if self._asked.settle else None
        return Solved(0, 0, True, proven)

    def certify(self, solved: Solved) -> tuple[Solved, float]:
        """There is no error."""
        return solved, 0.0

    def trace(self, _: Solved) -> None:
        """Nothing was done."""


def solver_of(
    iterate: GlobalIterate, strategy: Strategy, form: Form, asked: Solve, vertices: GraphVertices
) -> AcceleratedSolver | PublishedSolver | EmptySolver:
    """What runs a strategy in a form that it has.

    asked  whether its `trace` says what it did, and for the places to settle
    """
    iterate.trace = [] if asked.trace else None
    if iterate.graph.ids.count == 0:
        return EmptySolver(asked)
    if form == "published":
        return PublishedSolver(iterate, strategy)
    return AcceleratedSolver(iterate, strategy, asked, vertices)


_IMPROVED_PART, _SWEEPS_AT_ONCE = 0.1, 4
"""Of the target error, how far `improve` goes; and its sweeps in one call, at most."""


def improve(iterate: GlobalIterate) -> tuple[float, bool]:
    """Sweeps on from ranks that meet the target error to a tenth of it, so that small batches that
    follow leave a bound which still does, and need no solve: a few sweeps a call.

    Returns the error bound of ranks that can be published, and whether another call may help.
    """
    target, before = _IMPROVED_PART * iterate.options.target_error, iterate.error_bound
    if before > iterate.options.target_error or iterate.stale or not iterate.solved:
        return before, False
    iterate.recompute_slice_ahead()
    before = iterate.error_bound
    if before <= target:
        return before, False
    iterate.passed = False
    swept = sweep_to_target(iterate, _SWEEPS_AT_ONCE, target=target)
    solved = Solved(swept.sweeps, iterate.graph.ids.count, swept.converged)
    _, bound = gate.passed(iterate, solved)
    if iterate.workspace.residual.floor == np.inf:
        # what a batch changes is listed from now on
        select_candidates(iterate, iterate.options.target_error)
    return bound, target < bound < iterate.options.damping * before


def warm_up_acceleration(iterate: GlobalIterate) -> None:
    """Compiles what only slow sweeps run."""
    iterate.reset()
    sweep_to_target(iterate, 4, [kind for kind in SWEEP_KINDS if kind.accelerated])


def solve_all(iterate: GlobalIterate, strategy: Strategy) -> Solved:
    """Sweeps over every vertex; the residual that they leave is the certificate."""
    from_nothing = strategy.start == "uniform"
    if iterate.stale and not from_nothing:
        iterate.recompute_residual()
    swept = iterate_to_tolerance(iterate, iterate.options.max_iterations, from_nothing=from_nothing)
    return Solved(swept.sweeps, iterate.graph.ids.count, swept.converged)
