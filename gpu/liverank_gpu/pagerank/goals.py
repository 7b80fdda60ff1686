"""What a solve by sweeps has to meet."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Protocol

from liverank_gpu.operations.sweeps import SweepResult
from liverank_gpu.pagerank.certificate import UNIT_ROUNDOFF
from liverank_gpu.pagerank.global_iterate import GlobalIterate

_ATTAINABLE_RESIDUAL = 16.0 * UNIT_ROUNDOFF
"""‖r‖₁ relative to Σy that rounding allows a component to reach."""


class Goal(Protocol):
    """When to stop."""

    def met(self, result: SweepResult, error_bound: float) -> bool:
        """Whether it is met after a sweep that left this bound."""

    @property
    def met_by_residual(self) -> bool:
        """Whether the residual alone shows that it is met."""

    @property
    def first_excess(self) -> float:
        """About how many times as large as it may be what has to fall is for equal ranks."""

    def excess(self, result: SweepResult) -> float:
        """About how many times as large it still is after a sweep."""

    @property
    def sweep_limits(self) -> tuple[float, float]:
        """residual_goal and step_goal of FusedRun: it is not met while both are exceeded."""

    @property
    def attainable(self) -> bool:
        """Whether rounding allows to meet it."""

    @property
    def component_limits(self) -> tuple[float, float]:
        """residual_goal and largest_step of SolveComponents."""


@dataclass(frozen=True, slots=True)
class TargetError:
    """An error bound of at most `target`."""

    iterate: GlobalIterate
    target: float

    def met(self, _: SweepResult, error_bound: float) -> bool:
        return self._met(error_bound)

    @property
    def first_excess(self) -> float:
        return 4.0 / self.target

    def excess(self, _: SweepResult) -> float:
        return self.iterate.error_bound / self.target

    @property
    def met_by_residual(self) -> bool:
        return self._met(self.iterate.error_bound)

    def _met(self, error_bound: float) -> bool:
        target = self.target
        return error_bound <= target or self.iterate.mean_corrected_bound(target) <= target

    @property
    def sweep_limits(self) -> tuple[float, float]:
        return self.target * (1.0 - self.iterate.options.damping), 0.0

    @property
    def attainable(self) -> bool:
        return self.iterate.certificate.residual_goal(self.target) > 0.0

    @property
    def component_limits(self) -> tuple[float, float]:
        # |Σr| counts beside ‖r‖₁
        goal = 0.5 * self.iterate.certificate.residual_goal(self.target)
        return max(goal, _ATTAINABLE_RESIDUAL), 0.0


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The stop rule of the published strategies: no normalised rank moved by more than `tolerance`;
    or ‖r‖₁ is at most `left`·Σy.
    """

    iterate: GlobalIterate
    tolerance: float
    left: float

    def met(self, result: SweepResult, _: float) -> bool:
        mass = float(self.iterate.certificate.mass)
        return result.largest_step <= self.tolerance * mass or self.met_by_residual

    @property
    def met_by_residual(self) -> bool:
        certificate = self.iterate.certificate
        return float(certificate.residual_l1) <= self.left * float(certificate.mass)

    @property
    def first_excess(self) -> float:
        return 1e-2 / self.tolerance if self.tolerance > 0.0 else inf

    def excess(self, result: SweepResult) -> float:
        certificate = self.iterate.certificate
        found = inf
        for size, limit in (
            (result.largest_step, self.tolerance),
            (float(certificate.residual_l1), self.left),
        ):
            if limit > 0.0:
                found = min(found, size / (limit * float(certificate.mass)))
        return found

    @property
    def sweep_limits(self) -> tuple[float, float]:
        return self.left, self.tolerance

    @property
    def attainable(self) -> bool:
        return True

    @property
    def component_limits(self) -> tuple[float, float]:
        # a step of the next sweep adds up what several vertices have moved
        return _ATTAINABLE_RESIDUAL, 0.1 * self.tolerance * float(self.iterate.certificate.mass)
