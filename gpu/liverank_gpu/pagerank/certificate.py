"""The certificate: a proven bound on the L1 error of an iterate, and the account of its rounding.

An iterate y solves ``y = αP̄ᵀy + β·b`` up to the residual ``r = β·b + αP̄ᵀy - y``, for any β > 0. Its
ranks are y / Σy. Global ranks have b = 1, personalized ones b = s, the distribution of the seeds,
with Σs = 1. The rank of dangling vertices returns to b, which only scales y and drops out.

The bound. Let g = r - b·Σr/Σb. Then g / Σy is the residual of the Google matrix, which contracts
vectors of sum zero by α in L1. So the L1 error of the ranks is at most

    ‖g‖₁ / ((1-α)·Σy)  ≤  (‖r‖₁ + |Σr|) / ((1-α)·Σy),

and the two sums on the right are maintained by adding up changes, without a pass over n. The
solution y* of the system itself is as near: ``y* - y = (I - αP̄ᵀ)⁻¹r``, so ‖y* - y‖₁ ≤ ‖r‖₁ / (1-α).

Rounding. Each operation on r reports what it added, and from that follows how far the maintained r
and sums can be from what they stand for (u = 2⁻⁵³; running error analysis, Higham, "Accuracy and
Stability of Numerical Algorithms", 3.3):

- an addition r[v] + a is off by at most u·|r[v]| afterwards: u·Σ|r[v]| over all additions; what a
  push leaves is rounded too: at most 2u of what was moved;
- an amount a = α·x/d is a product of rounded factors: at most 8u of what was moved;
- y + x loses nothing: what rounding of y left out stays in r;
- of a dense sweep, y takes at most 4·‖r‖₁ (a step to the nearest float is at most twice what was
  wanted; the closed form of a loop makes at most 2 of 1 at a vertex with out-edges). Quantized
  contributions are exact (Sweep), what is left and the new r are rounded: 5u of the
  old ‖r‖₁, u of the new. What y rounds away of a step whose contributions have been sent is
  u·Σ|y|, and Σ|y| ≤ |Σy| + 2·‖y* - y‖₁;
- the maintained sums are sums of terms that together measure at most twice what was moved;
- free ids, of removed vertices, are isolated vertices to all operations, and their y follows β in
  closed form. Σy is that of the vertices: y = β / (1 - αℓ) is left out for each free id. What the
  stored y differs from that, in r and in Σy, is at most u of it (`free_mass` is the sum).

These bounds accumulate and are part of the published bound. They do not grow without limit: every
dense sweep sums again, and every few updates the global r is recomputed from y for a slice of the
vertices, so after a round through all of them only this round and the last one count. Computing
r[v] from y is itself off by at most 6(L+4)·u of its terms, L the depth of the longest row sum:
`evaluation`. What other steps round (deflation, Orthomin, blocks) they add by `add_error`.

Weights. P̄[u,v] = w(u,v)/W(u), where w is a float32 and counts as given, but W(u) = Σ_v w(u,v) is a
rounded sum Ŵ: |Ŵ - W| ≤ L'u·Ŵ, L' the depth of the sum over an out-list. All of the above holds
for the matrix P̂ = w/Ŵ, as the weights of no row are rounded but by one common factor:

- r stands for β·b + αP̂ᵀy - y. The residual of P̄ differs from it by α(P̄ - P̂)ᵀy, and row u of
  P̄ - P̂ sums to |1 - W/Ŵ|, so by at most L'u·Σ|y|, Σ|y| ≤ |Σy| + 2·‖y* - y‖₁: the published bound
  contains it twice, for ‖r‖₁ and |Σr| (`transition_error`). It does not accumulate: Ŵ is summed
  again whenever its row changes, and a batch perturbs r by P̂_new - P̂_old;
- an amount has one more factor, w: still at most 8u. A perturbation of a whole row is computed as
  α·y·w·(Ŵ_old - Ŵ_new) / (Ŵ_old·Ŵ_new), which is relatively as exact;
- a product of a quantized contribution c (at most 24 digits) and w is exact in float64. The step
  c·Ŵ is not, so what is sent is not what y takes: u·|c·Ŵ|, at most 4u·‖r‖₁ in a sweep. Where y/Ŵ is
  not quantized, the product with w is rounded: u of each term. Both are covered by one more level
  of the sums over in-lists (`gather_roundoff`);
- sums by pages are multiples of a unit, to which each c·w is rounded: half a unit for each edge of
  a sweep (`Iterate.sweep`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from liverank_gpu.operations.residual import ResidualDelta
from liverank_gpu.operations.sweeps import SweepResult

UNIT_ROUNDOFF = 2.0**-53
"""u of float64."""

_LONGEST_SUM = 2.0**17
"""No sum over the vertices adds more terms one after the other."""

_SUMMED_FREE = 64.0
"""Additions that the y of a free id goes through in sums from which it is then taken out."""

Scalar = Any
"""A float, or float64[k] for k vectors that are solved together."""


def gather_roundoff(depth: int, weighted: bool = False) -> float:
    """How far a sum over an in-list can be off, relative to the sum of its terms' sizes.

    depth  L, from SweepOperations.sum_depth
    """
    return 6.0 * (depth + (5.0 if weighted else 4.0)) * UNIT_ROUNDOFF


def strength_roundoff(depth: int) -> float:
    """How far Ŵ can be from W, relative to it.

    depth  L', from RebuildOperations.strength_depth
    """
    return (depth + 1.0) * UNIT_ROUNDOFF


class Certificate:
    """‖r‖₁, Σr and Σy of one iterate, or of k of them as float64[k], and what they prove.

    mass          Σy
    residual_l1   ‖r‖₁
    residual_sum  Σr
    free_mass     Σy of free ids, which `mass` does not contain
    evaluation    error of a residual computed from y, relative to Σy; 0 if it never is
    transition_error  how far a row of P̄ can be off, in L1; 0 for an unweighted graph
    """

    def __init__(self, damping: float) -> None:
        self.damping = damping
        self.mass: Scalar = 0.0
        self.residual_l1: Scalar = 0.0
        self.residual_sum: Scalar = 0.0
        self.free_mass = 0.0
        self.evaluation = 0.0
        self.transition_error = 0.0
        # of r in the last round of recomputation and in this one; of the three sums
        self._earlier_error: Scalar = 0.0
        self._residual_error: Scalar = 0.0
        self._sum_error: Scalar = 0.0

    # ---- what it proves ----

    @property
    def error_bound(self) -> Scalar:
        """Upper bound on the L1 error of y / Σy; not capped at 2, so that progress shows above it.
        Infinite while Σy is not positive.
        """
        remaining = self.residual_l1 + abs(self.residual_sum) + self.uncertainty
        return _quotient(remaining, self.mass) / (1.0 - self.damping)

    @property
    def solution_error(self) -> Scalar:
        """Upper bound on ‖y* - y‖₁."""
        return (self.residual_l1 + self.uncertainty) / (1.0 - self.damping)

    @property
    def uncertainty(self) -> Scalar:
        """How far ‖r‖₁ + |Σr| can be off by rounding."""
        uncertainty = self._accumulated + self.evaluation * self.mass
        if self.free_mass > 0.0:
            roundoff = (1.0 + _SUMMED_FREE) * UNIT_ROUNDOFF
            uncertainty = uncertainty + 4.0 * roundoff * self.free_mass
        if self.transition_error > 0.0:
            remaining = self.residual_l1 + uncertainty
            sizes = abs(self.mass) + 2.0 * remaining / (1.0 - self.damping)
            uncertainty = uncertainty + 2.0 * self.transition_error * sizes
        return uncertainty

    @property
    def rounding_error(self) -> Scalar:
        """The part of the error bound that is accumulated rounding."""
        return _quotient(self._accumulated, self.mass) / (1.0 - self.damping)

    @property
    def _accumulated(self) -> Scalar:
        # each of ‖r‖₁ and |Σr| can be off by both
        return 2.0 * (self._earlier_error + self._residual_error + self._sum_error)

    def residual_goal(self, target: float) -> float:
        """What (‖r‖₁ + |Σr|) / Σy may be for the error bound to be at most `target`; not positive
        if rounding alone exceeds it.
        """
        goal = target * (1.0 - self.damping)
        return goal - self.uncertainty / self.mass if self.mass > 0.0 else goal

    # ---- what happened ----

    def start(self, residual: Scalar) -> None:
        """y = 0 and r = β·b with ‖r‖₁ = Σr = `residual`."""
        self.mass = 0.0 * residual
        self.residual_l1 = self.residual_sum = residual
        self._earlier_error = 0.0
        self._residual_error = self._sum_error = 4.0 * UNIT_ROUNDOFF * residual

    def recompute(self, residual_l1: float, residual_sum: float, mass: float) -> None:
        """r was computed from y at every vertex."""
        self.mass = mass
        self._earlier_error, self._residual_error = 0.0, UNIT_ROUNDOFF * residual_l1
        self.set_sums(residual_l1, residual_sum)

    def set_sums(
        self, residual_l1: Scalar, residual_sum: Scalar, depth: float = _LONGEST_SUM
    ) -> None:
        """‖r‖₁ and Σr were summed again over r.

        depth  the most additions that a term went through
        """
        self.residual_l1, self.residual_sum = residual_l1, residual_sum
        self._sum_error = depth * UNIT_ROUNDOFF * residual_l1

    def add(self, delta: ResidualDelta) -> None:
        """An operation changed some entries of y and r."""
        self.residual_l1 = max(0.0, self.residual_l1 + delta.residual_l1)
        self.residual_sum += delta.residual_sum
        self.mass += delta.mass
        self._residual_error += UNIT_ROUNDOFF * (delta.magnitude + 2.0 * delta.moved)
        self._residual_error += 8.0 * UNIT_ROUNDOFF * delta.moved
        self._sum_error += UNIT_ROUNDOFF * (2.0 * (delta.additions + 8.0) * delta.moved)
        self._sum_error += 4.0 * UNIT_ROUNDOFF * (self.residual_l1 + abs(self.residual_sum))

    def add_vertices(self, count: int, value: float) -> None:
        """`count` vertices joined, each with this y and r = 0."""
        self.mass += value * count
        self._sum_error += 4.0 * UNIT_ROUNDOFF * self.mass

    def after_sweep(self, result: SweepResult, gather_error: Scalar) -> None:
        """A dense sweep replaced r.

        gather_error  how far the new r can be off because of the sums over in-lists
        """
        before = self.residual_l1
        self.mass = self.mass + result.mass
        self.set_sums(result.residual_l1, result.residual_sum)
        sizes = abs(self.mass) + self.residual_l1 / (1.0 - self.damping)
        error = self._residual_error + (gather_error + 2.0 * UNIT_ROUNDOFF * sizes)
        self._residual_error = error + UNIT_ROUNDOFF * (5.0 * before + self.residual_l1)

    def after_pass(self, residual_l1: float, residual_sum: float, mass: float = 0.0) -> None:
        """Every entry of r was rounded once.

        mass  change of Σy
        """
        self.mass += mass
        self.set_sums(residual_l1, residual_sum)
        self.add_error(UNIT_ROUNDOFF * residual_l1)

    def add_error(self, error: Scalar) -> None:
        """r may be off by `error` more, in L1."""
        self._residual_error = self._residual_error + error

    def begin_round(self) -> None:
        """A new round of recomputing r slice by slice begins; the last one is complete."""
        self._earlier_error, self._residual_error = self._residual_error, 0.0


class StallRule:
    """Tells when error bounds have stopped falling: rounding limits them, or the method does.

    Counts consecutive sweeps that did not bring the bound below (1+α)/2 of its best.
    """

    LIMIT = 8

    def __init__(self, damping: float) -> None:
        self._progress = (1.0 + damping) / 2.0
        self.reset()

    def reset(self) -> None:
        """Forgets the bounds seen so far."""
        self._best: Scalar = np.inf
        self._sweeps: Scalar = 0

    def stalled(self, bound: Scalar) -> Scalar:
        """Records the bound after a sweep. Whether it (each of them) has stalled."""
        progress = bound < self._best * self._progress
        if isinstance(progress, np.ndarray):
            self._best = np.where(progress, bound, self._best)
            self._sweeps = np.where(progress, 0, self._sweeps + 1)
        elif progress:
            self._best, self._sweeps = bound, 0
        else:
            self._sweeps += 1
        return self._sweeps >= self.LIMIT


def _quotient(amount: Scalar, mass: Scalar) -> Scalar:
    if isinstance(mass, np.ndarray):
        return np.divide(amount, mass, out=np.full(len(mass), np.inf), where=mass > 0.0)
    return amount / mass if mass > 0.0 else np.inf
