"""Sweeps accelerated by Orthomin(1), a conjugate direction method for nonsymmetric systems
(Vinsome, 1976; Saad, "Iterative Methods for Sparse Linear Systems", section 6.9).

Each step goes in the direction of the newest residual, made orthogonal to the last direction, as
far as minimises the weighted residual. With A = I - αP̄ᵀ:

    z = r / (1 - αℓ/d),  q̂ = A·z - mean          (mean 0 without mean correction)
    β = ⟨Wq̂,q'⟩ / ⟨Wq',q'⟩,  p = z - β·p',  q = q̂ - β·q'
    α = ⟨Wq,r⟩ / ⟨Wq,q⟩,  y += α·p,  r -= α·q,  W = 1 / (1 - αℓ/d) / max(y, (1-α)·mean y)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from liverank_gpu.operations.sweeps import (
    FusedOrthomin,
    FusedRun,
    OrthominProducts,
    OrthominState,
    OrthominStep,
    OrthominUpdate,
    SweepResult,
)
from liverank_gpu.pagerank.certificate import UNIT_ROUNDOFF
from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.pagerank.workspace import ContributionBuffers

_FRESH_STEPS = (0, 1, 7)
"""Steps that begin with new weights and no last direction, since y still changes much."""


@dataclass(frozen=True, slots=True)
class AcceleratedResult:
    """What one step did.

    sweep                 see SweepResult
    closed_class_residual  what is left of that of liverank_gpu.pagerank.sweeps
    effective             whether ‖r‖₁ / Σy fell by more than a plain sweep must achieve
    """

    sweep: SweepResult
    closed_class_residual: float
    effective: bool


class Orthomin:
    """The steps of one solve, for a y in float64."""

    def __init__(self, iterate: GlobalIterate) -> None:
        self._iterate = iterate
        self._state: OrthominState | None = None
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
        run: FusedRun | None,
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
        run: FusedRun | None,
    ) -> list[tuple[OrthominStep, SweepResult, float]]:
        """The steps, with the mean of each. mean: of the first one."""
        iterate, graph = self._iterate, self._iterate.graph
        backend = graph.backend
        current, _ = buffers.arrays(graph.columns)
        state = self._vectors()
        damping = iterate.options.damping
        iterate_arrays = (iterate.values, iterate.workspace.residual.values, current, state)
        if run is not None:
            arguments = (*iterate_arrays, damping, self._mean, floor, has_previous, run)
            return backend.run(FusedOrthomin(graph.view, graph.in_rows(), *arguments))
        view, vectors = iterate.sweep_view(), (*iterate_arrays, damping, mean)
        first = OrthominProducts(view, graph.in_rows(), *vectors, floor, has_previous)
        products = backend.run(first)
        step, result = backend.run(OrthominUpdate(view, *vectors, products, has_previous))
        return [(step, result, mean)]

    def _record(
        self,
        buffers: ContributionBuffers,
        step: OrthominStep,
        result: SweepResult,
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

    def _vectors(self) -> OrthominState:
        if self._state is None:
            scratch = self._iterate.scratch
            self._state = OrthominState(
                scratch("direction"),
                scratch("image of the direction"),
                scratch("image"),
                scratch("weights", np.float32),
            )
        return self._state
