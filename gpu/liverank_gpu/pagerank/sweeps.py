"""Dense sweeps until a target is met: their kinds, the choice among them, and the start from
nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, log
from typing import NamedTuple

import numpy as np

from liverank_gpu.operations import sweeps as op
from liverank_gpu.pagerank.certificate import UNIT_ROUNDOFF, StallRule
from liverank_gpu.pagerank.components import ComponentSolver
from liverank_gpu.pagerank.global_iterate import GlobalIterate, Goal, TargetError, Tolerance
from liverank_gpu.pagerank.iterate import ContributionBuffers, Deflation
from liverank_gpu.types import TraceStep

# Sweeps with momentum: Chebyshev's semi-iteration (Golub and Varga, 1961; Saad, "Iterative Methods
# for Sparse Linear Systems", section 12.3).
#
# With z the step of an ordinary sweep, the k-th step goes
#
#     s₁ = z₁,  sₖ = ωₖ·zₖ + (ωₖ - 1)·sₖ₋₁,  ω₂ = 2 / (2 - α²),  ωₖ₊₁ = 1 / (1 - α²·ωₖ/4)
#
# which is optimal if the eigenvalues of αP̄ are real, and so between -α and α: where every edge has
# an opposite one of the same weight, P̄ is similar to a symmetric matrix. A step then leaves (1 -
# √(1-α²)) / α of the residual in the long run, 0.56 for α = 0.85, where an ordinary one may leave
# α. Loops only narrow the interval. Orthomin(1) gains about as much a sweep on such graphs and
# needs no such property, but two passes, four more vectors and inner products. Here the last step
# is known from its contributions, so a sweep reads and writes what an ordinary one does.
#
# Where few edges lack an opposite one the eigenvalues are nearly real. Whether sweeps gain is
# measured (liverank_gpu.pagerank.sweeps), and if not, acceleration is left to Orthomin.

_RECIPROCAL = 0.99
"""The least part of sampled edges that have an opposite one."""

_LEAST_LEFT = 0.85
"""What the last ordinary sweep has to have left of ‖r‖₁ for momentum, relative to α. A smaller part
shows that the other eigenvalues are smaller; Orthomin gains from that, steps that expect α do not:
they took 1.3 times as long on p2p-Gnutella31 without directions, whose sweeps leave 0.67.
"""


class Momentum:
    """The sweeps with momentum of one solve, for a y in float64, all of them mean-corrected.

    running  whether the contributions are those of a step with momentum
    gave_up  whether such sweeps gained too little
    left     the part of ‖r‖₁ that the last mean-corrected sweep without momentum left
    """

    def __init__(self, iterate: GlobalIterate) -> None:
        self._iterate = iterate
        self.gave_up, self.left = False, 1.0
        self.restart()

    def restart(self) -> None:
        """Forgets the last step: the contributions are those of r."""
        self.running = False
        # that of the first step is 1, which the formula for the others takes as 2
        self._omega = 2.0
        # of the next step: its ‖(1 - αℓ/d)·s‖₁ at most, and its part in closed classes
        self._step_l1 = self._closed_class_step = 0.0

    @property
    def chosen(self) -> bool:
        """Whether an accelerated sweep is to be one with momentum."""
        if self.gave_up or self.left < _LEAST_LEFT * self._iterate.options.damping:
            return False
        return self.suits

    @cached_property
    def suits(self) -> bool:
        """Whether the graph is like an undirected one, as far as a sample of its edges tells."""
        graph, options = self._iterate.graph, self._iterate.options
        if not graph.backend.sweeps.takes_momentum:
            return False
        if not options.directed:
            return True
        # opposite edges may have different weights
        components = graph.backend.components
        return (
            not graph.weighted
            and components is not None
            and components.reciprocity(graph.whole) >= _RECIPROCAL
        )

    def sweep(
        self, buffers: ContributionBuffers, deflation: Deflation, closed_class_residual: float
    ) -> tuple[op.SweepResult, float]:
        """One sweep, after which the contributions are those of the next step.

        closed_class_residual  see liverank_gpu.pagerank.sweeps
        Returns what it did, and what is left of `closed_class_residual`.
        """
        iterate, damping = self._iterate, self._iterate.options.damping
        if not self.running:
            self._step_l1 = float(iterate.certificate.residual_l1)
            self._closed_class_step = closed_class_residual
        self._omega = 1.0 / (1.0 - damping * damping * self._omega / 4.0)
        kept = self._omega - 1.0
        result, shift = iterate.sweep(buffers, deflation, (self._omega, kept), self._step_l1)
        self.running = True
        self._step_l1 = self._omega * result.residual_l1 + kept * self._step_l1
        left = closed_class_residual - (1.0 - damping) * self._closed_class_step - shift
        self._closed_class_step = self._omega * left + kept * self._closed_class_step
        return result, left


# ---- which kind of sweep comes next: chosen by what each kind gains for its cost ----

_VERTEX_COST, _ORTHOMIN_VERTEX_COST = 2.0, 5.5
"""Cost of a sweep for each vertex, in edges: on an H200 one of Orthomin took 1.24 times as long on
R-MAT with 16 edges a vertex, 1.53 times on a grid with 4; on one core 1.0 to 1.4 times.
"""

_ORTHOMIN_OVERHEAD = 1.3
"""Cost of a sweep of Orthomin over hardly any edges, in other sweeps."""

_PLAIN_COST = 2.5
"""Cost of a plain sweep, in mean-corrected ones. It takes no longer, but the first few after
mean-corrected ones only make up for what these leave; with a lower cost, graphs where that is all
would lose.
"""

_SLOW = 0.65
"""What mean-corrected sweeps leave of the bound when another kind is tried: graphs on which they
always leave less (R-MAT, wiki-Vote, p2p-Gnutella31) gain a tenth by acceleration, or nothing.
"""

_TRIAL_SWEEPS = 4
"""Sweeps of a trial: the first two accelerated ones have no last direction and show nothing."""

_STAKE = 0.12
"""The part of all sweeps that trials may cost if they gain nothing: those that failed on road
networks lost at most half of that.
"""

_REACH = 1e-2
"""All sweeps are those to the target, or to this part of the bound if the target is nearer. By the
target alone a tight one allowed the trial that makes a solve fast, and a loose one did not: grids
took up to 11 sweeps of 37 more to a target four times as loose.
"""

_LEAST_SWEEPS = 2
"""Fewer sweeps to the target than this cannot gain by a trial."""

_LARGEST_BOUND = 1e100
"""In place of larger bounds and of an infinite one, which says that Σy is not positive."""


class SweepKind(NamedTuple):
    """A kind of sweep; see liverank_gpu.pagerank.sweeps."""

    mean_corrected: bool
    accelerated: bool


SWEEP_KINDS = tuple(
    SweepKind(mean_corrected, accelerated)
    for accelerated in (True, False)
    for mean_corrected in (True, False)
)
"""All kinds. A solve begins mean-corrected, and tries the first other kind that is allowed."""


class SweepSchedule:
    """Chooses between mean-corrected sweeps and one other kind.

    Gains are those of log(bound) a sweep. When mean-corrected sweeps gain less than the other kind
    did the last time (before its first trial: less than they should), the other kind is used for
    some sweeps, until it gains less for its cost than they did just before. So the two may
    alternate. What trials lost is accounted, so that all together stay cheap.

    kind  the next sweep's
    """

    def __init__(
        self,
        iterate: GlobalIterate,
        kinds: Sequence[SweepKind] = SWEEP_KINDS,
        momentum: Momentum | None = None,
    ) -> None:
        """momentum  that of the solve, which says whether accelerated sweeps use it; None: never"""
        first = SweepKind(mean_corrected=True, accelerated=False)
        self._first = first if first in kinds else kinds[0]
        self._other = next((kind for kind in kinds if kind != self._first), None)
        self._iterate, self._momentum = iterate, momentum
        self._target = iterate.options.target_error
        # no kind is slower for long
        self._least_gain = -log(iterate.options.damping)
        # what the other kind gains for its cost, and what it has to
        self._expected_gain, self._required_gain = -log(_SLOW), 0.0
        self._lost = 0.0
        self._sweeps = 0
        self._bounds: list[float] = []
        self.kind = self._first

    @property
    def _cost(self) -> float:
        """Of a sweep of the other kind, as it would be now."""
        if self._other is None:
            return 1.0
        if self._other.accelerated and self._momentum is not None and self._momentum.chosen:
            return 1.0  # it reads and writes what a mean-corrected one does
        return relative_cost(self._other, self._iterate)

    @property
    def bounds(self) -> Sequence[float]:
        """Those recorded since the kind changed."""
        return self._bounds

    @property
    def least_bounds(self) -> int:
        """How many bounds have to be known before one after which the kind can change."""
        return 1 if self.kind == self._first else _TRIAL_SWEEPS

    @property
    def least_gain(self) -> float:
        """About the gain below which the kind changes."""
        if self._other is None:
            return -inf
        if self.kind != self._first:
            return self._required_gain * self._cost
        affordable = self._affordable_gain(self._bounds[-1]) if self._bounds else inf
        return min(self._expected_gain, affordable) if affordable > self._least_gain else -inf

    def record(self, bound: float) -> None:
        """Records the bound after a sweep that another of its kind follows."""
        self._sweeps += 1
        self._bounds.append(min(bound, _LARGEST_BOUND))

    def switch(self, bound: float) -> bool:
        """Records the bound after a sweep. Whether `kind` changed."""
        self.record(bound)
        bound = self._bounds[-1]
        swept = len(self._bounds) - 1
        if self._other is None or swept < self.least_bounds:
            return False
        counted = min(swept, op.GAIN_SWEEPS)
        gain = log(self._bounds[-1 - counted] / bound) / counted
        if self.kind == self._first:
            if gain >= self._expected_gain:
                return False
            if max(gain, self._least_gain) >= self._affordable_gain(bound):
                return False
            self._required_gain, self.kind = max(gain, self._least_gain), self._other
        else:
            if gain / self._cost >= self._required_gain:
                return False
            cost, gained = self._cost * swept, log(self._bounds[0] / bound)
            self._expected_gain = gained / cost
            self._lost += cost - gained / self._required_gain
            self.kind = self._first
        self._bounds = [bound]
        return True

    def _affordable_gain(self, bound: float) -> float:
        """The gain below which so many sweeps remain that a trial can still pay, and costs little
        of all sweeps if it gains nothing.
        """
        lost = self._lost + _TRIAL_SWEEPS * (self._cost - 1.0)
        remaining = log(max(bound / self._target, 1.0))
        affordable = max(remaining, -log(_REACH)) / max(lost / _STAKE - self._sweeps, 1.0)
        return min(remaining / _LEAST_SWEEPS, affordable)


def relative_cost(kind: SweepKind, iterate: GlobalIterate) -> float:
    """Cost of a sweep of this kind, in mean-corrected ones; accelerated by Orthomin if it is."""
    if not kind.accelerated:
        return _PLAIN_COST
    graph, overhead = iterate.graph, iterate.graph.backend.costs.sweep_overhead
    vertices = graph.ids.limit  # of all shards, which have to choose alike
    cost = graph.arcs + _VERTEX_COST * vertices + overhead
    accelerated = graph.arcs + _ORTHOMIN_VERTEX_COST * vertices
    return (accelerated + _ORTHOMIN_OVERHEAD * overhead) / cost


# Sweeps accelerated by Orthomin(1), a conjugate direction method for nonsymmetric systems
# (Vinsome, 1976; Saad, "Iterative Methods for Sparse Linear Systems", section 6.9).
#
# Each step goes in the direction of the newest residual, made orthogonal to the last direction, as
# far as minimises the weighted residual. With A = I - αP̄ᵀ:
#
#     z = r / (1 - αℓ/d),  q̂ = A·z - mean          (mean 0 without mean correction)
#     β = ⟨Wq̂,q'⟩ / ⟨Wq',q'⟩,  p = z - β·p',  q = q̂ - β·q'
#     α = ⟨Wq,r⟩ / ⟨Wq,q⟩,  y += α·p,  r -= α·q,  W = 1 / (1 - αℓ/d) / max(y, (1-α)·mean y)

_FRESH_STEPS = (0, 1, 7)
"""Steps that begin with new weights and no last direction, since y still changes much."""


@dataclass(frozen=True, slots=True)
class AcceleratedResult:
    """What one step did.

    sweep                 see SweepResult
    closed_class_residual  what is left of that of liverank_gpu.pagerank.sweeps
    effective             whether ‖r‖₁ / Σy fell by more than a plain sweep must achieve
    """

    sweep: op.SweepResult
    closed_class_residual: float
    effective: bool


class Orthomin:
    """The steps of one solve, for a y in float64."""

    def __init__(self, iterate: GlobalIterate) -> None:
        self._iterate = iterate
        self._state: op.OrthominState | None = None
        self._steps = 0
        self._fresh = True
        # of q: the mean that was subtracted, its part in closed classes, how far it can be from the
        # image of p; and a bound on ‖p‖₁
        self._mean = self._closed_class_image = self._image_error = self._direction_l1 = 0.0

    def restart(self) -> None:
        """Drops the last direction, because r changed otherwise."""
        self._fresh = True

    @property
    def most_fused(self) -> int:
        """Steps up to the next one that begins with new weights."""
        following = (step for step in _FRESH_STEPS if step > self._steps)
        return min(following, default=sys.maxsize) - self._steps

    def steps(
        self,
        buffers: ContributionBuffers,
        mean_corrected: bool,
        closed_class_residual: float,
        run: op.FusedRun | None,
    ) -> Iterator[AcceleratedResult]:
        """One step, or those of a run in one launch; none if no direction is left. They are
        recorded one after the other as they are taken, which has to be done to the end.

        buffers                hold the contributions of r
        closed_class_residual  see liverank_gpu.pagerank.sweeps
        """
        certificate = self._iterate.certificate
        fresh = self._fresh or self._steps in _FRESH_STEPS
        floor = 0.0
        if fresh:
            damping, vertices = self._iterate.options.damping, self._iterate.graph.ids.count
            floor = (1.0 - damping) * certificate.mass / vertices
        mean = 0.0
        if mean_corrected:
            image_sum = certificate.residual_sum - buffers.next_residual_sum
            mean = image_sum / max(1, self._iterate.graph.connected)
        results = self._run(buffers, floor, not fresh, mean, run)
        for step, result, mean_of_step in results:
            if step.alpha == 0.0:
                self._fresh = True
                return
            accelerated = self._record(buffers, step, result, mean_of_step, closed_class_residual)
            closed_class_residual = accelerated.closed_class_residual
            yield accelerated

    def _run(
        self,
        buffers: ContributionBuffers,
        floor: float,
        has_previous: bool,
        mean: float,
        run: op.FusedRun | None,
    ) -> list[tuple[op.OrthominStep, op.SweepResult, float]]:
        """The steps, with the mean of each. mean: of the first one."""
        iterate, graph = self._iterate, self._iterate.graph
        backend = graph.backend
        current, _ = buffers.arrays(graph.columns)
        state = self._vectors()
        damping = iterate.options.damping
        iterate_arrays = (iterate.values, iterate.workspace.residual.values, current, state)
        if run is not None:
            arguments = (*iterate_arrays, damping, self._mean, floor, has_previous, run)
            return backend.run(op.FusedOrthomin(graph.view, graph.in_rows(), *arguments))
        # what pages round of weighted sums is not part of `_image_error`
        view = graph.view if graph.weighted else iterate.sweep_view()
        vectors = (*iterate_arrays, damping, mean)
        first = op.OrthominProducts(view, graph.in_rows(), *vectors, floor, has_previous)
        products = backend.run(first)
        step, result = backend.run(op.OrthominUpdate(view, *vectors, products, has_previous))
        return [(step, result, mean)]

    def _record(
        self,
        buffers: ContributionBuffers,
        step: op.OrthominStep,
        result: op.SweepResult,
        mean: float,
        closed_class_residual: float,
    ) -> AcceleratedResult:
        iterate, certificate = self._iterate, self._iterate.certificate
        damping = iterate.options.damping
        residual_l1, mass = certificate.residual_l1, certificate.mass
        alpha, beta = step.alpha, step.beta
        self._steps += 1
        # ‖z‖₁ ≤ ‖r‖₁ / (1-α); each of the three terms of q̂ measures at most as much as r
        self._mean = mean - beta * self._mean
        closed_class_image = (1.0 - damping) * closed_class_residual - mean
        self._closed_class_image = closed_class_image - beta * self._closed_class_image
        self._direction_l1 = residual_l1 / (1.0 - damping) + abs(beta) * self._direction_l1
        self._image_error = (
            4.0 * iterate.gather_roundoff * residual_l1
            + 8.0 * UNIT_ROUNDOFF * self._direction_l1
            + abs(beta) * self._image_error
        )
        iterate.record_accelerated(buffers, result, -alpha * self._mean)
        certificate.after_sweep(result, abs(alpha) * self._image_error)
        # of y/Σy; where weights differ by tens of orders of magnitude, a step may leave no Σy
        least = damping * residual_l1 * certificate.mass
        effective = certificate.mass > 0.0 and result.residual_l1 * mass <= least
        self._fresh = not effective
        return AcceleratedResult(
            result, closed_class_residual - alpha * self._closed_class_image, effective
        )

    def _vectors(self) -> op.OrthominState:
        if self._state is None:
            scratch = self._iterate.scratch
            self._state = op.OrthominState(
                scratch("direction"),
                scratch("image of the direction"),
                scratch("image"),
                scratch("weights", np.float32),
            )
        return self._state


# ---- the start of a solve from nothing: ranks guessed from in-degrees ----
#
# Let every edge send the same, c. Then ``y = (β + α·c·i) / (1 - αℓ/d)`` at a vertex with i
# in-edges, and c follows from what these values send in the mean. On R-MAT the bound of this guess
# is 0.1 to 0.2, where that of y = 1 is 3 to 8.
#
# No pass over the edges in float64 computes its residual: an ordinary sweep takes the step from
# y = 0 with the contributions of the guess, and leaves the residual that this has.
#
# In graphs with many closed classes (web graphs, package registries) equal ranks are the better
# start: the residual then has no part in those classes, whose errors fall slowest (see
# liverank_gpu.pagerank.sweeps). There the bound of the guess is larger, and so it decides. A guess
# that is no use costs a sweep, so the next one is made when the graph has twice the edges.

_USEFUL_BOUND = 1.0
"""The largest bound of a guess that is kept."""


def can_guess(iterate: GlobalIterate) -> bool:
    """Whether to try a guess: not where one was no use, until the graph has twice the edges."""
    return iterate.graph.arcs >= 2 * iterate.unguessable


def start_from_in_degrees(iterate: GlobalIterate, buffers: ContributionBuffers) -> bool:
    """Makes y the guess, by one sweep. Whether to continue from it; if not, y is to be reset.

    buffers  hold the contributions of its residual afterwards
    """
    iterate.guess_from_in_degrees(buffers)
    result, _ = iterate.sweep(buffers)
    # the step, and the sums over in-lists, were those of the guess, not of r
    certificate = iterate.certificate
    mass = float(certificate.mass)
    certificate.add_error((iterate.gather_roundoff + 8.0 * UNIT_ROUNDOFF) * mass)
    useful = _bound_without_dangling(result, iterate.options.damping) <= _USEFUL_BOUND * mass
    iterate.unguessable = 0 if useful else iterate.graph.arcs
    return useful


def _bound_without_dangling(result: op.SweepResult, damping: float) -> float:
    """About what (‖r‖₁ + |Σr|) / (1-α) would be if dangling vertices had taken their residual,
    which is positive, and sends nothing: they have not received anything yet.
    """
    others = result.next_residual_sum / damping
    taken = min(max(result.residual_sum - others, 0.0), result.residual_l1)
    return (result.residual_l1 - taken + abs(others)) / (1.0 - damping)


# ---- dense sweeps over all vertices, to a target error or to the published stop rule ----
#
# A sweep is *plain*, r ← αP̄ᵀr at a fixed β, or *mean-corrected*: deflated along the right-hand
# side so that Σr = 0 (liverank_gpu.pagerank.iterate). Either can be *accelerated* by Orthomin(1)
# (liverank_gpu.pagerank.sweeps), or by momentum where the graph is like an undirected one
# (liverank_gpu.pagerank.sweeps). Which kind comes next depends on the residual
# (liverank_gpu.pagerank.sweeps). Mean-corrected sweeps begin: they take what is easy, on R-MAT
# all of it in a seventh of the plain ones. Where they become slow, accelerated ones alternate with
# them and save a third or more of most. They save little on nearly acyclic graphs, and a short
# trial is all that they cost there.
#
# Closed classes. A closed class is a set of vertices that no edge leaves. Each keeps an error that
# falls by α a sweep and no faster, unless the residual has no part in it. From y = 1, β = 1-α it
# has none; lowering β by μ gives it one, -μ, which a sweep turns into -αμ. So what all shifts
# together have put there is one number for each vertex (`closed_class_residual`), and lowering β
# by it undoes that: this is how plain sweeps begin. Acceleration removes what closed classes keep,
# which otherwise doubles the sweeps on the npm registry.
#
# Fused sweeps. On a device the launches of a sweep, and waiting for its sums, take longer than the
# sweep itself if the graph is small. There several sweeps are one launch (`FusedSweeps`), which
# ends where one of the decisions made here could be another: the goal may be met, or the gain is
# so low that the kind may change. All results are recorded, in order, and then the decisions are
# made from them as always.

_ROUNDING_PART = 0.1
"""The part of a bound that may be accumulated rounding before the residual is computed from y, at
the cost of a sweep.
"""

_LARGEST_SHIFT = 0.5
"""The largest part of β that the first correction takes away unseen."""


@dataclass(frozen=True, slots=True)
class Swept:
    """How many sweeps ran, and whether they met what they were for."""

    sweeps: int
    converged: bool


_LEFT_BY_SWEEPS = 0.01, 0.95
"""The least and the most that Iterate.left_by_sweeps says."""


def sweep_to_target(
    iterate: GlobalIterate,
    most_sweeps: int,
    kinds: Sequence[SweepKind] = SWEEP_KINDS,
    from_nothing: bool = False,
    target: float | None = None,
) -> Swept:
    """Sweeps until the error bound is at most the target, of whatever kinds are fastest.

    from_nothing  whether to start from nothing (liverank_gpu.pagerank.sweeps) instead of from y
    target        None: that of the options
    """
    target = iterate.options.target_error if target is None else target
    goal = TargetError(iterate, target)
    if most_sweeps == 0 or (iterate.error_bound <= target and not from_nothing):
        return Swept(0, iterate.error_bound <= target)
    before = iterate.error_bound
    sweeps, converged, kind = _sweep(iterate, most_sweeps, kinds, goal, from_nothing)
    measured = not (from_nothing or iterate.graph.backend.repeatable)
    if measured and 0.0 < iterate.error_bound <= before < inf:
        left = (iterate.error_bound / before) ** (1.0 / max(1, sweeps))
        least, most = _LEFT_BY_SWEEPS
        iterate.left_by_sweeps = min(max(left, least), most)
    if not kind.mean_corrected or (converged and iterate.error_bound > target):
        # the correction that the goal has measured
        iterate.correct_mean()
    return Swept(sweeps, iterate.error_bound <= target)


def iterate_to_tolerance(
    iterate: GlobalIterate, most_sweeps: int, left: float = 0.0, from_nothing: bool = False
) -> Swept:
    """Sweeps until no normalised rank moves by more than the tolerance: the stop rule of the
    published strategies; or until ‖r‖₁ is at most `left`·Σy. from_nothing: see `sweep_to_target`.
    """
    kinds = [kind for kind in SWEEP_KINDS if not kind.accelerated]
    if most_sweeps == 0:
        return Swept(0, False)
    goal = Tolerance(iterate, iterate.options.tolerance, left)
    sweeps, converged, kind = _sweep(iterate, most_sweeps, kinds, goal, from_nothing)
    if not kind.mean_corrected:
        iterate.correct_mean()
    return Swept(sweeps, converged)


def _sweep(
    iterate: GlobalIterate,
    most_sweeps: int,
    kinds: Sequence[SweepKind],
    goal: Goal,
    from_nothing: bool,
) -> tuple[int, bool, SweepKind]:
    """Sweeps until the goal is met, or rounding limits the bound. It solves one component after the
    other where that is cheaper (liverank_gpu.pagerank.components). Returns the number of sweeps,
    whether the goal was met, and the last kind.
    """
    momentum, stall = Momentum(iterate), StallRule(iterate.options.damping)
    schedule = SweepSchedule(iterate, kinds, momentum)
    dense, sweeps = _DenseSweeps(iterate, momentum), 0
    components, bounds = ComponentSolver(iterate, goal), list[float]()
    if from_nothing:
        sweeps, useful = dense.guess(schedule.kind, most_sweeps)
        if not useful:
            if solved := components.solve(most_sweeps - sweeps):
                sweeps += solved
                if goal.met_by_residual or not goal.attainable or sweeps >= most_sweeps:
                    return sweeps, goal.met_by_residual, schedule.kind
            else:
                iterate.reset()
            dense.begin(schedule.kind)
    else:
        dense.begin(schedule.kind)
    while True:
        earlier = len(bounds)
        for result in dense.run(schedule, goal, most_sweeps - sweeps):
            sweeps, last = sweeps + 1, result
            bounds.append(iterate.error_bound)
            _trace(iterate)
        bound = bounds.pop()
        for each in bounds[earlier:]:
            stall.stalled(each)
            schedule.record(each)
        converged = goal.met(last, bound)
        if (
            not converged
            and iterate.certificate.rounding_error > _ROUNDING_PART * bound
            and sweeps < most_sweeps
        ):
            sweeps += 1
            iterate.recompute_residual()
            dense.begin(schedule.kind)
            bound = iterate.error_bound
            _trace(iterate)
        if converged or stall.stalled(bound) or sweeps >= most_sweeps:
            return sweeps, converged, schedule.kind
        bounds.append(bound)
        if solved := components.take_over(bounds, last, most_sweeps - sweeps):
            sweeps += solved
            if goal.met_by_residual or not goal.attainable or sweeps >= most_sweeps:
                return sweeps, goal.met_by_residual, schedule.kind
            dense.restart(schedule.kind)
            stall.reset()
        elif schedule.switch(bound):
            dense.switch(schedule.kind)
            stall.reset()


def _trace(iterate: GlobalIterate) -> None:
    """Adds a sweep to the trace, if there is one."""
    if iterate.trace is not None:
        graph = iterate.graph
        bound = iterate.error_bound
        step = TraceStep("sweep", 1, graph.ids.count, graph.arcs, error_bound=bound)
        iterate.trace.append(step)


class _DenseSweeps:
    """The sweeps of one solve.

    closed_class_residual  what shifts have put into the residual of every vertex of a closed class
    """

    def __init__(self, iterate: GlobalIterate, momentum: Momentum) -> None:
        self._iterate = iterate
        sweeps = iterate.graph.backend.sweeps
        dtype, self._most_fused = sweeps.contribution_dtype, sweeps.most_fused(iterate.graph.view)
        self._buffers = ContributionBuffers(
            iterate.scratch("quantized contributions", dtype, iterate.graph.columns),
            iterate.scratch("following contributions", dtype, iterate.graph.columns),
        )
        self._correction = iterate.mean_correction
        self._orthomin, self._momentum = Orthomin(iterate), momentum
        self.closed_class_residual = 0.0
        self._mean_corrected = self._plain_next = False

    def guess(self, kind: SweepKind, most_sweeps: int) -> tuple[int, bool]:
        """Starts from in-degrees, if that can be useful. Returns the number of sweeps that this
        took, and whether to continue from there; if not, y is to be reset.
        """
        # at least one more follows
        if most_sweeps <= 1 or not can_guess(self._iterate):
            return 0, False
        useful = start_from_in_degrees(self._iterate, self._buffers)
        _trace(self._iterate)
        self._mean_corrected = kind.mean_corrected
        return 1, useful

    def restart(self, kind: SweepKind) -> None:
        """Continues from a residual that was not found by sweeps."""
        self.closed_class_residual = 0.0
        self.begin(kind)

    def begin(self, kind: SweepKind) -> None:
        """Continues from the residual as it is."""
        self._mean_corrected = kind.mean_corrected
        self._orthomin.restart()
        self._momentum.restart()
        self._plain_next = False
        shift = self.closed_class_residual
        if kind.mean_corrected:
            shift = self._mean_shift()
            if shift > _LARGEST_SHIFT * self._iterate.rhs_scale:
                # without the residual of vertices without edges, which they take here: it would
                # count for the others, and could make β zero or negative
                self._iterate.quantize(self._buffers)
                shift = self._mean_shift()
        self._iterate.quantize(self._buffers, shift)
        self.closed_class_residual -= shift

    def _mean_shift(self) -> float:
        """What β is to be lowered by for Σr = 0."""
        residual_sum = self._iterate.certificate.residual_sum
        return float(self._correction.coefficient(residual_sum))

    def switch(self, kind: SweepKind) -> None:
        """Continues with another kind."""
        running = self._momentum.running
        self._momentum.gave_up |= running
        if kind.mean_corrected != self._mean_corrected or running:
            self.begin(kind)
        else:  # the buffers hold the contributions of the residual
            self._orthomin.restart()
            self._plain_next = False

    def run(self, schedule: SweepSchedule, goal: Goal, most: int) -> Iterator[op.SweepResult]:
        """At least one sweep of the scheduled kind, and at most `most`: several where they are
        fused, until the kind may change or the goal may be met. After an ineffective
        accelerated one, one that is not accelerated.
        """
        kind, momentum = schedule.kind, self._momentum
        if kind.accelerated and kind.mean_corrected and momentum.chosen:
            result, self.closed_class_residual = momentum.sweep(
                self._buffers, self._correction, self.closed_class_residual
            )
            yield result
            return
        if kind.accelerated and not self._plain_next:
            found = False
            run = self._fused_run(schedule, goal, min(most, self._orthomin.most_fused))
            for accelerated in self._orthomin.steps(
                self._buffers, kind.mean_corrected, self.closed_class_residual, run
            ):
                found, self._plain_next = True, not accelerated.effective
                self.closed_class_residual = accelerated.closed_class_residual
                yield accelerated.sweep
            if found:
                return
        self._plain_next = False
        before = float(self._iterate.certificate.residual_l1)
        for result, shift in self._sweeps(schedule, goal, 1 if kind.accelerated else most):
            damping = self._iterate.options.damping
            self.closed_class_residual = damping * self.closed_class_residual - shift
            if kind.mean_corrected and before > 0.0:
                momentum.left = result.residual_l1 / before
            before = result.residual_l1
            yield result

    def _sweeps(
        self, schedule: SweepSchedule, goal: Goal, most: int
    ) -> Iterable[tuple[op.SweepResult, float]]:
        """Sweeps that are not accelerated, and what each subtracted from every r."""
        run = self._fused_run(schedule, goal, most)
        if run is not None:
            return self._iterate.fused_sweeps(self._buffers, run)
        deflation = self._correction if schedule.kind.mean_corrected else None
        return [self._iterate.sweep(self._buffers, deflation)]

    def _fused_run(self, schedule: SweepSchedule, goal: Goal, most: int) -> op.FusedRun | None:
        """How up to `most` sweeps are fused; None if they run one at a time."""
        iterate, certificate = self._iterate, self._iterate.certificate
        most = min(most, self._most_fused)
        if most <= 1:
            return None
        scale = 1.0 - iterate.options.damping
        residual_goal, step_goal = goal.sweep_limits
        return op.FusedRun(
            residual_l1=certificate.residual_l1,
            residual_sum=certificate.residual_sum,
            mass=certificate.mass,
            next_residual_sum=self._buffers.next_residual_sum,
            image_sum=self._correction.image_sum if schedule.kind.mean_corrected else 0.0,
            free_mass=certificate.free_mass / abs(iterate.rhs_scale),
            residual_goal=residual_goal,
            step_goal=step_goal,
            least_gain=schedule.least_gain,
            least_bounds=schedule.least_bounds,
            bounds=tuple(scale * bound for bound in schedule.bounds[-op.GAIN_SWEEPS :]),
            most=most,
        )
