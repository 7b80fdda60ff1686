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

A guard drops p' and makes W anew after a sweep that gained less than a plain one must. When to go
which way the residual says (`_Pace`). Balanced sweeps begin: they take what is easy, on R-MAT all
of it in a seventh of the plain ones. Where they become slow, accelerated ones take turns with them,
and save a third or more of most; among it what closed classes keep, which on the npm registry
doubles the sweeps that are only balanced. They save little on graphs that are nearly acyclic, and
a short trial is all that they cost there. Plain sweeps stand in where there is no room for what
acceleration remembers.
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

_VERTEX_COST, _ACCELERATED_VERTEX_COST = 2.0, 5.5
"""What a sweep costs for each vertex, in edges: on an H200 an accelerated one took 1.24 times as
long on R-MAT with 16 edges a vertex, 1.53 times on a grid with 4; on one core 1.0 to 1.4 times.
"""

_ACCELERATED_OVERHEAD = 1.3
"""What an accelerated sweep costs where there is hardly an edge, in other sweeps."""

_PLAIN_COST = 2.5
"""What a plain sweep costs, in balanced ones: it takes no longer, but the first few that follow
balanced ones only make good what these leave to them; with less, graphs where that is all lose.
"""

_SETTLED = 0.65
"""What balanced sweeps leave of the bound when another way is tried: graphs on which they always
leave less (R-MAT, wiki-Vote, p2p-Gnutella31) gain a tenth by acceleration, or nothing.
"""

_TRIAL = 4
"""Sweeps of a trial: the first two accelerated ones have no last direction, and show nothing."""

_COUNTED = 4
"""The last so many sweeps say what a way gains: single ones differ by half."""

_STAKE = 0.12
"""The part of all sweeps that trials may cost if they gain nothing: those that failed on road
networks lost at most half of that.
"""

_FRESH_WEIGHTS = (0, 1, 7)
"""Accelerated sweeps that begin with new weights and no last direction: y still changes much."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way of sweeping; see the module."""

    balanced: bool
    accelerated: bool


WAYS = tuple(
    Way(balanced, accelerated) for accelerated in (True, False) for balanced in (True, False)
)
"""All of them. A solve goes balanced, and now and then the first other way that it may go."""


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
            dense.change(pace.way)
            best, stalled = np.inf, 0
    if not pace.way.balanced or (tolerance is None and converged and bound > target):
        # as `centred_bound` has seen it; float32 leaves a sum when balanced too
        state.shift(state.sum / state.graph.vertices)
    state.drop_candidates()
    return Swept(sweeps, converged or (tolerance is None and state.error_bound <= target))


class _Pace:
    """Which way to go on: balanced, or the other way as long as it gains more for what it costs.

    Gains are those of log(bound) a sweep. When balanced sweeps gain less than the other way did the
    last time (before there was one, less than they should), it is taken for some sweeps, and left
    when it gains less for its cost than they did just before. So the two may take turns. What the
    other way has lost is counted, so that all trials together stay cheap.
    """

    def __init__(self, state: State, ways: Sequence[Way]) -> None:
        balanced = Way(balanced=True, accelerated=False)
        self._first = balanced if balanced in ways else ways[0]
        self._other = next((way for way in ways if way != self._first), None)
        self._cost = _cost(self._other, state) if self._other else 1.0
        self._target = state.options.target_error
        # no way is slower for long
        self._slowest = -log(state.options.damping)
        # what the other way gains for its cost, and what it has to
        self._promise, self._gain = -log(_SETTLED), 0.0
        self._lost = 0.0
        self._sweeps = 0
        self._seen: list[float] = []
        self.way = self._first

    def changes(self, bound: float) -> bool:
        """Takes note of a sweep. Whether the next one goes another way."""
        self._sweeps += 1
        self._seen.append(bound)
        swept = len(self._seen) - 1
        if self._other is None or swept < (1 if self.way == self._first else _TRIAL):
            return False
        counted = min(swept, _COUNTED)
        gain = log(self._seen[-1 - counted] / bound) / counted
        if self.way == self._first:
            if gain >= self._promise or not self._affordable(bound, gain):
                return False
            self._gain, self.way = max(gain, self._slowest), self._other
        else:
            if gain / self._cost >= self._gain:
                return False
            cost, gained = self._cost * swept, log(self._seen[0] / bound)
            self._promise = gained / cost
            self._lost += cost - gained / self._gain
            self.way = self._first
        self._seen = [bound]
        return True

    def _affordable(self, bound: float, gain: float) -> bool:
        """Whether there is time for a trial, and one that gains nothing costs little of all."""
        left = log(max(bound / self._target, 1.0)) / max(gain, self._slowest)
        lost = self._lost + _TRIAL * (self._cost - 1.0)
        return left > _TRIAL and lost <= _STAKE * (self._sweeps + left)


def _cost(way: Way, state: State) -> float:
    """What a sweep costs, in balanced ones."""
    if not way.accelerated:
        return _PLAIN_COST
    graph, overhead = state.graph, state.graph.backend.sweep_overhead
    work = graph.edges + _VERTEX_COST * graph.vertices + overhead
    accelerated_work = graph.edges + _ACCELERATED_VERTEX_COST * graph.vertices
    return (accelerated_work + _ACCELERATED_OVERHEAD * overhead) / work


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
        self._fresh, self._guarded, self._balanced = True, False, True
        self.owed = 0.0
        # of q: the mean that was taken from it, what it has of `owed`, how far it can be from the
        # image of p; and a bound of ‖p‖₁
        self._mean = self._owed_image = self._image_error = self._direction = 0.0

    def begin(self, way: Way) -> None:
        """Starts from the residual as it is."""
        self._fresh, self._guarded, self._balanced = True, False, way.balanced
        # vertices without edges have hardly any residual
        self._round(self._state.sum / self._connected if way.balanced else self.owed)

    def change(self, way: Way) -> None:
        """Goes on in another way."""
        if way.balanced == self._balanced:  # the shares are those of the residual
            self._fresh, self._guarded = True, False
        else:
            self.begin(way)

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
