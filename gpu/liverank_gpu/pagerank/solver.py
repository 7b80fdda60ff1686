"""Solves by a strategy in one of its forms, and those that go on until places are proven."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from liverank_gpu.operations.device import Array
from liverank_gpu.operations.published import IterationTrace, Marks, Rule
from liverank_gpu.operations.residual import PushResult, SelectCandidates
from liverank_gpu.pagerank import frontier, gate
from liverank_gpu.pagerank.frontier import (
    TouchedVertices,
    iterate_published,
    mark_states,
    steps_of,
)
from liverank_gpu.pagerank.gate import USELESS_BOUND
from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.pagerank.iterate import Iterate, candidate_room
from liverank_gpu.pagerank.places import FirstPlaces, GraphVertices, ProvenPlaces, SettledTarget
from liverank_gpu.pagerank.strategies import Solve, Solved, Strategy
from liverank_gpu.pagerank.sweeps import SWEEP_KINDS, iterate_to_tolerance, sweep_to_target
from liverank_gpu.types import LARGEST_ERROR, Form, Trace, TraceStep

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


# ---- the sparse phase of the residual strategy: push while that is cheaper than sweeping ----

_FIRST_THRESHOLD = 1e3
"""θ at the start, in units of the θ at which the target is certainly met."""

_FIRST_FLOOR = 16.0
"""The floor of the first candidates in the same unit: at most one vertex in 16 can be above it when
the target is met.
"""

_FLOOR_DIVISOR = 8.0
"""What the floor is divided by when nothing above it is left."""

_LEFT_BY_SWEEPS = 0.2
"""What a dense sweep leaves of ‖r‖₁ soon after a batch, where it is not known."""

_SPARSE_SWEEPS = 2.0
"""The most that the sparse phase may spend before sweeps take over, in sweeps."""

_ROUND_SWEEPS = 0.7
"""The most that one work-list may cost, in sweeps."""


def push_to_target(iterate: Iterate, target_error: float) -> tuple[int, int]:
    """Pushes until the error bound is at most `target_error` or sweeping is cheaper.

    Returns the rounds of work-lists and the number of distinct vertices pushed.
    """
    graph, options, residual = iterate.graph, iterate.options, iterate.workspace.residual
    certificate, costs = iterate.certificate, graph.backend.costs
    goal = certificate.residual_goal(target_error)
    unit = _unit(iterate, target_error)
    threshold, sweep_cost = _FIRST_THRESHOLD * unit, iterate.sweep_cost
    budget = _SPARSE_SWEEPS * sweep_cost
    round_edges = int(_ROUND_SWEEPS * sweep_cost / costs.pushed_edge)
    rounds = vertices = 0
    while goal > 0.0 and _remaining(iterate) > goal * certificate.mass:
        if residual.floor == np.inf:
            select_candidates(iterate, target_error)
            budget -= graph.ids.limit
        pushed = iterate.push(
            goal,
            threshold,
            round_edges,
            int(budget / costs.pushed_edge),
            options.max_iterations - rounds,
        )
        if iterate.trace is not None:
            iterate.trace.append(push_step(pushed, iterate.error_bound))
        rounds += pushed.rounds
        vertices += pushed.vertices
        threshold = pushed.threshold
        cost = costs.of_push(pushed)
        budget -= cost
        if pushed.end != "floor" or budget <= graph.ids.limit:
            break
        lower = residual.floor / _FLOOR_DIVISOR
        # at a lower floor the same work gains that much less: is it still more than a sweep's gain?
        gain = -pushed.delta.residual_l1 / _FLOOR_DIVISOR
        sweep_gain = (1.0 - (iterate.left_by_sweeps or _LEFT_BY_SWEEPS)) * certificate.residual_l1
        if lower < unit / _FLOOR_DIVISOR or gain * sweep_cost < sweep_gain * cost:
            break
        budget -= graph.ids.limit
        graph.backend.run(SelectCandidates(residual, lower))
        if residual.floor == np.inf:
            break
    return rounds, vertices


def push_step(pushed: PushResult, error_bound: float) -> TraceStep:
    """A call of a push as a step of a trace."""
    counts, theta = (pushed.rounds, pushed.vertices, pushed.delta.additions), pushed.threshold
    return TraceStep("push", *counts, threshold=theta, error_bound=error_bound, end=pushed.end)


def select_candidates(iterate: Iterate, target_error: float) -> None:
    """Lists what pushes may begin with: a pass over the vertices."""
    residual, backend = iterate.workspace.residual, iterate.graph.backend
    # at most `room` entries can be above ‖r‖₁ / room; lists of shards share that room
    room = max(len(residual.candidates), candidate_room(iterate.graph.ids.count, backend.sizes))
    floor = iterate.certificate.residual_l1 / room
    floor = max(_FIRST_FLOOR * _unit(iterate, target_error), floor)
    backend.run(SelectCandidates(residual, floor))


def _unit(iterate: Iterate, target_error: float) -> float:
    """θ at which the target is certainly met."""
    scale = target_error * (1.0 - iterate.options.damping)
    # a view is of the vertices that were removed last until there are others
    return float(scale * iterate.certificate.mass / max(1, iterate.graph.ids.count))


def _remaining(iterate: Iterate) -> float:
    certificate = iterate.certificate
    return float(certificate.residual_l1 + abs(certificate.residual_sum))


# ---- a strategy in one of its forms ----


class AcceleratedSolver:
    """One solve: `mark`, then `solve`; then the residual is that of the new ranks.

    Push and dense sweeps for ``residual``, sweeps for strategies over all vertices, Jacobi steps
    for those that follow a frontier.
    """

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


class PublishedSolver:
    """The published form of the strategies (Sahu, algorithms 1 and 2): power iteration. One solve:
    `mark`, then `solve`, then `certify`, each timed as a stage of its own.

    Every vertex, or every affected one, is recomputed in each iteration from the ranks of the one
    before, at a fixed β: no correction of the mean, no acceleration, float64 contributions.
    Iteration ends when no rank moved by more than the tolerance (L∞). Only dynamic-frontier-prune
    solves for loops (equation 2). The paper has no dangling vertices: under ``uniform``, strategies
    over all vertices add their rank to β in each iteration (the classic power iteration), and those
    over an affected set keep the β of the solve before, since another one would change every
    vertex.

    The residual is not used, and computed afterwards for the certificate.
    """

    def __init__(self, iterate: GlobalIterate, strategy: Strategy) -> None:
        self._iterate, self._strategy = iterate, strategy
        self._traced = iterate.trace is not None
        self._marks: Marks | None = None
        self._affected = iterate.graph.ids.limit
        self._steps: IterationTrace | None = None

    def mark(self, touched: TouchedVertices) -> None:
        """Marks the initially affected vertices (algorithm 5)."""
        if self._strategy.affected == "all":
            return
        self._marks = marks = mark_states(self._iterate, self._strategy, touched)
        if self._traced:
            self._affected = self._marked(marks)

    def solve(self) -> Solved:
        """Iterates until the stop rule is met."""
        iterate, graph, strategy = self._iterate, self._iterate.graph, self._strategy
        options, marks = iterate.options, self._marks
        # y is about to change and r does not follow
        iterate.invalidate()
        iterate.passed = False
        mass = float(iterate.certificate.mass)
        if strategy.start == "uniform":
            iterate.values.fill(1.0)
            iterate.rhs_scale, mass = 1.0 - options.damping, float(graph.ids.limit)
        classic = marks is None and not graph.fixed_loops
        rule = Rule(
            damping=options.damping,
            closed_form=strategy.prunes,
            dangling_mass=mass if classic else 0.0,
            tolerance=options.tolerance * mass,
            frontier_tolerance=options.frontier_tolerance if strategy.expands else np.inf,
            prune_tolerance=options.prune_tolerance if strategy.prunes else -1.0,
            max_iterations=options.max_iterations,
        )
        result = iterate_published(iterate, strategy, marks, rule)
        iterate.rhs_scale, self._steps, iterate.solved = result.rhs_scale, result.trace, True
        touched = graph.ids.limit if marks is None else self._marked(marks)
        return Solved(result.iterations, touched, result.converged)

    def _marked(self, marks: Marks) -> int:
        """Vertices that are affected, or were."""
        return int(self._iterate.graph.total(marks.states != 0))

    def certify(self, solved: Solved) -> tuple[Solved, float]:
        """Computes the residual, and returns the bound that it proves, without changing y or β if
        the ranks can be published: see gate.passed.
        """
        self._iterate.recompute_residual()
        return gate.passed(self._iterate, solved, self._iterate.mean_corrected_bound(np.inf))

    def trace(self, solved: Solved) -> Trace | None:
        """What was done, if that is traced."""
        if self._steps is None:
            return None
        return Trace.of(self._affected, solved.iterations, steps_of(self._steps))


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
