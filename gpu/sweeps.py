"""Dense sweeps over all vertices: how they are balanced, how they are accelerated, when they end.

Three ways, and the residual says which (`_Pace`):

- ``balanced``: r ← αP̄ᵀr, and then β and r go down by a shift that makes Σr = 0. β is then β° =
  (α·D(y) + (1-α)·Σy) / n with D(y) the sum of y over dangling vertices: the classic normalised
  power iteration, without the slow error of the scale of y. Never scale y by n/Σy instead: that
  converges to wrong ranks where vertices dangle.
- ``accelerated``: Orthomin(1), a conjugate direction method for systems that are not symmetric.
  Each step goes in the direction p = z - c·p' of the newest residual made orthogonal to the last
  one, as far as makes the weighted residual smallest:

      z = r / (1 - αℓ/d),  q̂ = A·z - mean,  A = I - αP̄ᵀ
      c = <Wq̂,q'> / <Wq',q'>,  p = z - c·p',  q = q̂ - c·q'
      a = <Wq,r> / <Wq,q>,  y += a·p,  r -= a·q,  W = 1 / (1 - αℓ/d) / max(y, (1-α)·mean y)

  A guard drops p' and makes W anew after a sweep that gained less than a plain one must.
- ``plain``: at a fixed β. Where the graph has closed classes (sets of vertices that no edge leaves)
  each keeps an error that falls by α a sweep and no faster, unless the residual has no part in it.
  From y = 1, β = 1-α it has none; a shift of β by μ gives it one, -μ, which a sweep turns into
  -αμ. So what all shifts together have put there is one number (`_Sweeps.owed`), and taking it
  from β and every r undoes it: that is how the plain sweeps begin.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Literal

import numpy as np

from gpu.backends.base import Array, Descent, Relaxed
from gpu.state import ULP, State

_STALLED_SWEEPS = 8
"""Sweeps without progress after which a bound is taken to have met the limit of rounding."""

_DRIFTED = 0.1
"""The part of a bound that may be drift before the residual is computed anew from y, in a sweep."""

_VERTEX_COST = {"balanced": 2.5, "plain": 2.5, "accelerated": 6.0}
"""What a sweep costs for each vertex, in edges: 55 and 128 bytes at about 22 for an edge."""

_FIRST_SWEEPS = 2
"""Balanced sweeps before the acceleration begins: they take what is easy."""

_FRESH_WEIGHTS = (0, 1, 7)
"""Accelerated sweeps that begin with new weights and no last direction: y still changes much."""

_WORTH = 8.0
"""A bound below so many times the target is met by plain sweeps before an acceleration pays."""

Way = Literal["balanced", "accelerated", "plain"]


@dataclass(frozen=True, slots=True)
class Swept:
    """What dense sweeps did: how many there were, and whether they met what they were for."""

    sweeps: int
    converged: bool


def sweep_to_target(state: State, most_sweeps: int) -> Swept:
    """Sweeps until the bound is at most the target, in whatever way is quickest."""
    return _sweep(state, most_sweeps, None)


def sweep_to_rest(state: State, most_sweeps: int) -> Swept:
    """Balanced sweeps until no normalised rank moves by more than the tolerance: the stop rule of
    the published strategies.
    """
    return _sweep(state, most_sweeps, state.options.tolerance)


def _sweep(state: State, most_sweeps: int, tolerance: float | None) -> Swept:
    target = state.options.target_error
    if most_sweeps == 0 or (tolerance is None and state.error_bound <= target):
        return Swept(0, tolerance is None and state.error_bound <= target)
    sweeps, best, stalled, converged = 0, np.inf, 0, False
    dense = _Sweeps(state)
    # a direction is kept as float64: not for those who are short of memory
    accelerates = tolerance is None and state.options.storage == "float64"
    pace = _Pace(state, accelerates=accelerates)
    dense.begin()
    while True:
        relaxed = dense.accelerated() if pace.way == "accelerated" else dense.relax(pace.way)
        sweeps += 1
        bound = state.error_bound
        if tolerance is not None:
            converged = relaxed.largest_step <= tolerance * state.total
        else:
            converged = bound <= target or state.centred_bound(target) <= target
        if not converged and state.drift > _DRIFTED * bound and sweeps < most_sweeps:
            sweeps += 1
            state.certify()
            dense.begin(balanced=pace.way != "plain")
            bound = state.error_bound
        progress = bound < best * (1.0 + state.options.damping) / 2.0
        best, stalled = (bound, 0) if progress else (best, stalled + 1)
        if converged or stalled == _STALLED_SWEEPS or sweeps == most_sweeps:
            break
        if pace.changes(bound):
            dense.turn(pace.way)
            best, stalled = np.inf, 0
    if pace.way == "plain":
        state.shift(state.sum / state.graph.vertices)
    state.drop_candidates()
    return Swept(sweeps, converged or (tolerance is None and state.error_bound <= target))


class _Pace:
    """Which way to go on: the one that gains most for what it costs, as far as is known.

    A way is left when it has been slow for some sweeps, for one that has not been tried, or that
    was quicker. The longer ways have been compared, the more patience there is.
    """

    def __init__(self, state: State, *, accelerates: bool) -> None:
        graph, options = state.graph, state.options
        work = {way: graph.edges + cost * graph.vertices for way, cost in _VERTEX_COST.items()}
        self._cost = {way: cost / work["balanced"] for way, cost in work.items()}
        self._ways: list[Way] = ["balanced", "plain"]
        self._accelerates = accelerates
        if accelerates:
            self._ways.insert(0, "accelerated")
        self._worth = _WORTH * options.target_error
        self._slow = -log(0.95 * options.damping)
        self._gains: dict[Way, float] = {}
        self._seen: list[float] = []
        self._patience = 4
        self.way: Way = "balanced"

    def changes(self, bound: float) -> bool:
        """Takes note of a sweep. Whether the next one goes another way."""
        self._seen.append(bound)
        if self._accelerates and len(self._seen) >= _FIRST_SWEEPS and bound > self._worth:
            self._accelerates = False
            return self._take("accelerated")
        if len(self._seen) <= self._patience:
            return False
        gain = log(self._seen[-4] / self._seen[-1]) / 3.0 / self._cost[self.way]
        self._gains[self.way] = gain
        if gain > self._slow:
            return False
        for way in self._ways:
            if way not in self._gains:
                return self._take(way)
        best = max(self._gains, key=self._gains.__getitem__)
        self._patience *= 2
        if best == self.way or self._gains[best] < 1.005 * gain:
            self._seen = self._seen[-4:]
            return False
        return self._take(best)

    def _take(self, way: Way) -> bool:
        self.way, self._seen = way, []
        return True


class _Sweeps:
    """The sweeps themselves, and what they need to remember.

    owed  what the shifts have put into the residual of every closed class, for each vertex
    """

    def __init__(self, state: State) -> None:
        self._state = state
        dtype = state.graph.backend.share_dtypes[state.options.storage]
        self._shares: Array = state.spare("shares", dtype)
        self._new_shares: Array = state.spare("new shares", dtype)
        self._arriving = 0.0
        self._descent: Descent | None = None
        self._accelerated = 0
        self._fresh, self._guarded = True, False
        self.owed = 0.0
        # of q: the mean that was taken from it, what it has of `owed`, how far it can be from the
        # image of p; and a bound of ‖p‖₁
        self._mean = self._owed_image = self._image_error = self._direction = 0.0

    def begin(self, *, balanced: bool = True) -> None:
        """Starts from the residual as it is."""
        self._round(self._state.sum / self._state.graph.vertices if balanced else 0.0)

    def turn(self, way: Way) -> None:
        """Goes on in another way."""
        state = self._state
        self._fresh = True
        if way == "plain":
            self._round(self.owed)
            self.owed = 0.0
        elif state.sum != 0.0:
            self._round(state.sum / state.graph.vertices)

    def _round(self, shift: float) -> None:
        state = self._state
        relaxed = state.graph.backend.round_shares(
            state.graph,
            state.values,
            state.residual.values,
            self._shares,
            state.options.damping,
            shift,
        )
        state.shifted(shift, relaxed)
        self.owed -= shift
        self._arriving = relaxed.arriving

    def relax(self, way: Way) -> Relaxed:
        """One sweep without memory."""
        state, damping = self._state, self._state.options.damping
        shift = self._arriving / state.graph.vertices if way == "balanced" else 0.0
        relaxed = state.graph.backend.relax(
            state.graph,
            state.values,
            state.residual.values,
            self._shares,
            self._new_shares,
            damping,
            shift,
        )
        self._shares, self._new_shares = self._new_shares, self._shares
        self._arriving = relaxed.arriving
        self.owed = damping * self.owed - shift
        state.swept(relaxed, shift, state.rounding * state.l1)
        return relaxed

    def accelerated(self) -> Relaxed:
        """One sweep of Orthomin(1), or a balanced one after a sweep that gained too little."""
        if self._guarded:
            self._guarded = False
            return self.relax("balanced")
        state, graph = self._state, self._state.graph
        backend, damping = graph.backend, state.options.damping
        if self._descent is None:
            self._descent = Descent(
                state.spare("direction"),
                state.spare("image of the direction"),
                state.spare("image"),
                state.spare("weights", np.float32),
            )
        fresh = self._fresh or self._accelerated in _FRESH_WEIGHTS
        mean = (state.sum - self._arriving) / graph.vertices
        floor = (1.0 - damping) * state.total / graph.vertices
        before = state.l1
        products = backend.image(
            graph,
            state.values,
            state.residual.values,
            self._shares,
            self._descent,
            damping,
            mean,
            floor if fresh else 0.0,
            not fresh,
        )
        mixed = 0.0 if fresh else products.new_last / products.last_last
        length = products.new_new - mixed * (2.0 * products.new_last - mixed * products.last_last)
        if not length > 0.0:  # no direction is left
            self._fresh = True
            return self.relax("balanced")
        size = (products.new_r - mixed * products.last_r) / length
        relaxed = backend.descend(
            graph,
            state.values,
            state.residual.values,
            self._shares,
            self._descent,
            damping,
            size,
            mixed,
            not fresh,
        )
        self._accelerated += 1
        self._arriving = relaxed.arriving
        # ‖z‖₁ ≤ ‖r‖₁ / (1-α); each of the three terms of q̂ measures at most as much as r
        self._mean = mean - mixed * self._mean
        self._owed_image = (1.0 - damping) * self.owed - mean - mixed * self._owed_image
        self._direction = before / (1.0 - damping) + abs(mixed) * self._direction
        self._image_error = (
            4.0 * state.rounding * before
            + 8.0 * ULP * self._direction
            + abs(mixed) * self._image_error
        )
        self.owed -= size * self._owed_image
        total = state.total
        state.swept(relaxed, -size * self._mean, abs(size) * self._image_error)
        self._guarded = relaxed.l1 / state.total > damping * before / total
        self._fresh = self._guarded
        return relaxed
