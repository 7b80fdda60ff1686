"""What a solve by sweeps has to meet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gpu.operations.sweeps import SweepResult
from gpu.pagerank.certificate import UNIT_ROUNDOFF
from gpu.pagerank.global_iterate import GlobalIterate

_ATTAINABLE_RESIDUAL = 16.0 * UNIT_ROUNDOFF
"""‖r‖₁ relative to Σy that rounding allows a component to reach."""


class Goal(Protocol):
    """When to stop."""

    def met(self, result: SweepResult) -> bool:
        """Whether it is met after a sweep."""

    def excess(self, result: SweepResult) -> float:
        """How many times as large as it may be what has to fall is after a sweep."""

    @property
    def attainable(self) -> bool:
        """Whether rounding allows to meet it."""

    @property
    def component_limits(self) -> tuple[float, float]:
        """residual_goal and largest_step of ComponentOperations.solve."""


@dataclass(frozen=True, slots=True)
class TargetError:
    """An error bound of at most `target`."""

    iterate: GlobalIterate
    target: float

    def met(self, _: SweepResult) -> bool:
        iterate, target = self.iterate, self.target
        return iterate.error_bound <= target or iterate.mean_corrected_bound(target) <= target

    def excess(self, _: SweepResult) -> float:
        return self.iterate.error_bound / self.target

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

    def met(self, result: SweepResult) -> bool:
        certificate = self.iterate.certificate
        mass = float(certificate.mass)
        moved, remaining = result.largest_step, float(certificate.residual_l1)
        return moved <= self.tolerance * mass or remaining <= self.left * mass

    def excess(self, result: SweepResult) -> float:
        return result.largest_step / (self.tolerance * float(self.iterate.certificate.mass))

    @property
    def attainable(self) -> bool:
        return True

    @property
    def component_limits(self) -> tuple[float, float]:
        # a step of the next sweep adds up what several vertices have moved
        return _ATTAINABLE_RESIDUAL, 0.1 * self.tolerance * float(self.iterate.certificate.mass)
