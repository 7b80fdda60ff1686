"""Dense sweeps over all vertices, to a target error or to the published stop rule.

A sweep is *plain*, r ← αP̄ᵀr at a fixed β, or *mean-corrected*: deflated along the right-hand side
so that Σr = 0 (liverank_gpu.pagerank.deflation). Either can be *accelerated* by Orthomin(1)
(liverank_gpu.pagerank.orthomin), or by momentum where the graph is like an undirected one
(liverank_gpu.pagerank.momentum). Which kind comes next depends on the residual
(liverank_gpu.pagerank.schedule). Mean-corrected sweeps begin: they take what is easy, on R-MAT all
of it in a seventh of the plain ones. Where they become slow, accelerated ones alternate with them
and save a third or more of most. They save little on nearly acyclic graphs, and a short trial is
all that they cost there.

Closed classes. A closed class is a set of vertices that no edge leaves. Each keeps an error that
falls by α a sweep and no faster, unless the residual has no part in it. From y = 1, β = 1-α it has
none; lowering β by μ gives it one, -μ, which a sweep turns into -αμ. So what all shifts together
have put there is one number for each vertex (`closed_class_residual`), and lowering β by it undoes
that: this is how plain sweeps begin. Acceleration removes what closed classes keep, which otherwise
doubles the sweeps on the npm registry.

Fused sweeps. On a device the launches of a sweep, and waiting for its sums, take longer than the
sweep itself if the graph is small. There several sweeps are one launch
(`FusedSweeps`), which ends where one of the decisions made here could be another:
the goal may be met, or the gain is so low that the kind may change. All results are recorded,
in order, and then the decisions are made from them as always.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from liverank_gpu.operations.sweeps import GAIN_SWEEPS, FusedRun, SweepResult
from liverank_gpu.pagerank.certificate import StallRule
from liverank_gpu.pagerank.components import ComponentSolver
from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.pagerank.goals import Goal, TargetError, Tolerance
from liverank_gpu.pagerank.momentum import Momentum
from liverank_gpu.pagerank.orthomin import Orthomin
from liverank_gpu.pagerank.schedule import SWEEP_KINDS, SweepKind, SweepSchedule
from liverank_gpu.pagerank.start import can_guess, start_from_in_degrees
from liverank_gpu.pagerank.workspace import ContributionBuffers
from liverank_gpu.trace import TraceStep

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


def sweep_to_target(
    iterate: GlobalIterate,
    most_sweeps: int,
    kinds: Sequence[SweepKind] = SWEEP_KINDS,
    from_nothing: bool = False,
) -> Swept:
    """Sweeps until the error bound is at most the target, of whatever kinds are fastest.

    from_nothing  whether to start from nothing (liverank_gpu.pagerank.start) instead of from y
    """
    target = iterate.options.target_error
    goal = TargetError(iterate, target)
    if most_sweeps == 0 or (iterate.error_bound <= target and not from_nothing):
        return Swept(0, iterate.error_bound <= target)
    sweeps, converged, kind = _sweep(iterate, most_sweeps, kinds, goal, from_nothing)
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

    def run(self, schedule: SweepSchedule, goal: Goal, most: int) -> Iterator[SweepResult]:
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
    ) -> Iterable[tuple[SweepResult, float]]:
        """Sweeps that are not accelerated, and what each subtracted from every r."""
        run = self._fused_run(schedule, goal, most)
        if run is not None:
            return self._iterate.fused_sweeps(self._buffers, run)
        deflation = self._correction if schedule.kind.mean_corrected else None
        return [self._iterate.sweep(self._buffers, deflation)]

    def _fused_run(self, schedule: SweepSchedule, goal: Goal, most: int) -> FusedRun | None:
        """How up to `most` sweeps are fused; None if they run one at a time."""
        iterate, certificate = self._iterate, self._iterate.certificate
        most = min(most, self._most_fused)
        if most <= 1:
            return None
        scale = 1.0 - iterate.options.damping
        residual_goal, step_goal = goal.sweep_limits
        return FusedRun(
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
            bounds=tuple(scale * bound for bound in schedule.bounds[-GAIN_SWEEPS:]),
            most=most,
        )
