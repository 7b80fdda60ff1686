"""Dense sweeps over all vertices: how they are balanced, how they are accelerated, when they end.

A sweep is *plain*, r ← αP̄ᵀr at a fixed β, or *balanced*: then β and r go down by a shift that
makes Σr = 0. β is then β° = (α·D(y) + (1-α)·Σy) / n with D(y) the sum of y over dangling vertices:
the classic normalised power iteration, without the slow error of the scale of y. (Never scale y by
n/Σy instead: that converges to wrong ranks where vertices dangle.) Where the graph has closed
classes, sets of vertices that no edge leaves, each keeps an error that falls by α a sweep and no
faster, unless the residual has no part in it. From y = 1, β = 1-α it has none; a shift of β by μ
gives it one, -μ, which a sweep turns into -αμ. So what all shifts together have put there is one
number (`_Sweeps.owed`), and taking it from β and every r undoes it: that is how plain sweeps
begin.

Vertices without edges take part in neither: their y is β / (1-αℓ), and follows every shift at once.
So the shift makes Σr = 0 over the others, and is larger for it. Where half of all are without edges
(R-MAT), shifts that count them leave an error that falls by 0.4 a sweep, instead of 0.14.

Either can be *accelerated* by Orthomin(1), a conjugate direction method for systems that are not
symmetric. Each step goes in the direction of the newest residual made orthogonal to the last one,
as far as makes the weighted residual smallest:

    z = r / (1 - αℓ/d),  q̂ = A·z - mean,  A = I - αP̄ᵀ        (balanced; no mean where plain)
    c = <Wq̂,q'> / <Wq',q'>,  p = z - c·p',  q = q̂ - c·q'
    a = <Wq,r> / <Wq,q>,  y += a·p,  r -= a·q,  W = 1 / (1 - αℓ/d) / max(y, (1-α)·mean y)

A guard drops p' and makes W anew after a sweep that gained less than a plain one must. Which way
is best the residual says (`_Pace`): balance saves three sweeps of four on R-MAT and doubles them
on the npm registry; acceleration saves a third or more of most, and little on graphs that are
nearly acyclic, where a sweep without it costs less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from gpu.backends.base import Array, Descent, Relaxed
from gpu.state import ULP, State

_STALLED_SWEEPS = 8
"""Sweeps without progress after which a bound is taken to have met the limit of rounding."""

_DRIFTED = 0.1
"""The part of a bound that may be drift before the residual is computed anew from y, in a sweep."""

_VERTEX_COST, _ACCELERATED_VERTEX_COST = 0.5, 4.2
"""What a sweep costs for each vertex, in edges: on an H200 an accelerated one took 1.22 times as
long on R-MAT with 16 edges a vertex, 1.84 times on a grid with 4.
"""

_ACCELERATED_OVERHEAD = 1.3
"""What an accelerated sweep costs where there is hardly an edge, in other sweeps."""

_QUICK = 0.35
"""What balanced sweeps leave of the bound where there is nothing to accelerate."""

_PROMISE = 1.7
"""How many sweeps an accelerated one is worth, as long as nothing is known of it."""

_FIRST_SWEEPS = 2
"""Balanced sweeps before the acceleration begins: they take what is easy."""

_FRESH_WEIGHTS = (0, 1, 7)
"""Accelerated sweeps that begin with new weights and no last direction: y still changes much."""

_WORTH = 8.0
"""A bound below so many times the target is met by plain sweeps before an acceleration pays."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way of sweeping; see the module."""

    balanced: bool
    accelerated: bool


WAYS = tuple(
    Way(balanced, accelerated) for accelerated in (True, False) for balanced in (True, False)
)
"""In the order in which they are tried."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What dense sweeps did: how many there were, and whether they met what they were for."""

    sweeps: int
    converged: bool


def sweep_to_target(state: State, most_sweeps: int, ways: Sequence[Way] = WAYS) -> Swept:
    """Sweeps until the bound is at most the target, in whatever of these ways is quickest."""
    if state.options.storage == "float32":
        # a direction is kept as float64: not for those who are short of memory
        ways = [way for way in ways if not way.accelerated]
    return _sweep(state, most_sweeps, ways, None)


def sweep_to_rest(state: State, most_sweeps: int) -> Swept:
    """Sweeps until no normalised rank moves by more than the tolerance: the stop rule of the
    published strategies, and their sweeps.
    """
    ways = [way for way in WAYS if not way.accelerated]
    return _sweep(state, most_sweeps, ways, state.options.tolerance)


def _sweep(state: State, most_sweeps: int, ways: Sequence[Way], tolerance: float | None) -> Swept:
    target = state.options.target_error
    if most_sweeps == 0 or (tolerance is None and state.error_bound <= target):
        return Swept(0, tolerance is None and state.error_bound <= target)
    sweeps, best, stalled, converged = 0, np.inf, 0, False
    dense = _Sweeps(state)
    pace = _Pace(state, ways)
    dense.begin(pace.way)
    while True:
        relaxed = dense.sweep(pace.way)
        sweeps += 1
        bound = state.error_bound
        if tolerance is not None:
            converged = relaxed.largest_step <= tolerance * state.total
        else:
            converged = bound <= target or state.centred_bound(target) <= target
        if not converged and state.drift > _DRIFTED * bound and sweeps < most_sweeps:
            sweeps += 1
            state.certify()
            dense.begin(pace.way)
            bound = state.error_bound
        progress = bound < best * (1.0 + state.options.damping) / 2.0
        best, stalled = (bound, 0) if progress else (best, stalled + 1)
        if converged or stalled == _STALLED_SWEEPS or sweeps == most_sweeps:
            break
        if pace.changes(bound):
            dense.begin(pace.way)
            best, stalled = np.inf, 0
    if not pace.way.balanced or (tolerance is None and converged and bound > target):
        # as `centred_bound` has seen it; float32 leaves a sum when balanced too
        state.shift(state.sum / state.graph.vertices)
    state.drop_candidates()
    return Swept(sweeps, converged or (tolerance is None and state.error_bound <= target))


class _Pace:
    """Which way to go on: the one that gains most for what it costs, as far as is known.

    A way is left when it has been slow for some sweeps, for one that has not been tried, or that
    was quicker. The longer ways have been compared, the more patience there is.
    """

    def __init__(self, state: State, ways: Sequence[Way]) -> None:
        graph, options = state.graph, state.options
        overhead = graph.backend.sweep_overhead
        work = graph.edges + _VERTEX_COST * graph.vertices + overhead
        accelerated_work = graph.edges + _ACCELERATED_VERTEX_COST * graph.vertices
        accelerated_work += _ACCELERATED_OVERHEAD * overhead
        self._accelerated_cost = accelerated_work / work
        self._ways = ways
        self._worth = _WORTH * options.target_error
        self._slow = -log(0.95 * options.damping)
        self._gains: dict[Way, float] = {}
        self._seen: list[float] = []
        self._patience = 3
        first = Way(balanced=True, accelerated=False)
        self.way = first if first in ways else ways[0]
        self._first = self.way != ways[0]

    def changes(self, bound: float) -> bool:
        """Takes note of a sweep. Whether the next one goes another way."""
        self._seen.append(bound)
        if self._first and len(self._seen) >= _FIRST_SWEEPS and bound > self._worth:
            quick = self._seen[-1] < _QUICK * self._seen[-2]
            if not quick and self._accelerated_cost < _PROMISE:
                return self._take(self._ways[0])
        if len(self._seen) <= self._patience:
            return False
        gain = log(self._seen[-4] / self._seen[-1]) / 3.0
        if self.way.accelerated:
            gain /= self._accelerated_cost
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
        self.way, self._seen, self._first = way, [], False
        return True


class _Sweeps:
    """The sweeps themselves, and what they need to remember.

    owed  what the shifts have put into the residual of every closed class, for each vertex
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._connected = max(1, state.graph.connected)
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

    def begin(self, way: Way) -> None:
        """Starts from the residual as it is, or goes on in another way."""
        self._fresh, self._guarded = True, False
        # vertices without edges have hardly any residual
        self._round(self._state.sum / self._connected if way.balanced else self.owed)

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

    def sweep(self, way: Way) -> Relaxed:
        """One sweep; after an accelerated one that gained too little, one that is not."""
        if way.accelerated and not self._guarded:
            return self._accelerated_sweep(way)
        self._guarded = False
        return self._relax(way)

    def _relax(self, way: Way) -> Relaxed:
        state, damping = self._state, self._state.options.damping
        shift = self._arriving / self._connected if way.balanced else 0.0
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

    def _accelerated_sweep(self, way: Way) -> Relaxed:
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
        mean = (state.sum - self._arriving) / self._connected if way.balanced else 0.0
        floor = (1.0 - damping) * state.total / graph.vertices
        before = state.l1
        step, relaxed = backend.accelerate(
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
        if step.size == 0.0:  # no direction is left
            self._fresh = True
            return self._relax(way)
        size, mixed = step.size, step.mixed
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
