"""The ranks of a graph and their residual, kept true from batch to batch; and the certificate.

The engine solves ``y = αP̄ᵀy + β·1`` for any β > 0; the ranks are y / Σy. Neither a dangling
vertex nor a new one couples all others then: both only change the scale, which drops out. The
residual ``r = β·1 + αP̄ᵀy - y`` is state like y: a batch changes it only at the out-neighbours of
the touched sources, and every strategy leaves it the residual of the y it leaves.

The certificate. (r - mean(r)) / Σy is the residual of the Google matrix, which contracts vectors of
sum zero by α in L1; so the L1 error of the ranks is at most

    ‖r - mean(r)‖₁ / ((1-α)·Σy)  ≤  (‖r‖₁ + |Σr|) / ((1-α)·Σy),

and the two sums on the right are kept by adding up what changes, without a pass over n.

Rounding. Each operation on r reports what it added up, and from that follows how far the kept r and
the kept sums can have come from what they stand for (u = 2⁻⁵³; w = u, or 2⁻²⁴ where y and r are
stored as float32; running error analysis):

- an addition r[v] + a is off by at most w·|r[v]| afterwards: w · Σ|r[v]| over all additions;
- where r is float32, a may be rounded before it is added, and what a push leaves after it: at most
  2w of what was moved;
- an amount a = α·x/d is a product of rounded factors: at most 8u of what was moved;
- y + x loses nothing: what y did not take stays in r. A y in float32 is no less exact for that: it
  is a number like any other, and r is the residual of that number;
- of a dense sweep over r, y takes at most 4·Σ|r| (a step to the nearest float is at most twice what
  was wanted; the closed form of a loop makes at most 2 of 1 at a vertex with out-edges), the shares
  of that are rounded to float32, what is left and the new r to w: 5w of the old Σ|r|, w of the new
  (where y is float64 the shares are exact, see relax);
- the kept sums are sums of `edges` terms that together measure at most twice what was moved.

These bounds add up in `drift` and are part of the published bound. They cannot grow for ever: every
few updates r is computed anew from y for a slice of the vertices, so after a round through all of
them only the drift of this round and of the last one counts; and every dense sweep sums anew.
Computing r[v] from y is itself off by no more than 6(L+4)·u of its terms, L the depth of the
longest row sum: the last term of the bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.backends.base import Array, Known, Moved, Relaxed, Residual
from gpu.background import USABLE, Background
from gpu.graph import Applied, Graph, Loaded
from gpu.types import EdgeBatch, Options, Ranking

ULP = 2.0**-53
"""Unit roundoff of float64."""

_STORED_ULP = {"float64": ULP, "float32": 2.0**-24}

SUMMED = 1 << 17
"""No sum over the vertices adds more terms one after the other."""

_REFRESH_EVERY = 8
_REFRESHED, _REFRESHED_EDGES = 8192, 1 << 18
"""Every so many updates the residual of so many vertices is computed anew, or of fewer, where their
in-lists are longer than so many edges together."""

_LEAST_CANDIDATES = 1024
_CANDIDATES = 8
"""There is room for so many candidates, and for one more in so many vertices."""

_ROUNDED_PART = 0.05
"""The part of a personalized target that rounding of the global ranks may take."""

_AUTO_SPARE = 8 + 2 * 4 + 3 * 8 + 4
"""Bytes a vertex that `spare` holds at most after a solve by ``auto``: contributions, shares, and
what the accelerated sweeps remember (gpu/sweeps.py).
"""


@dataclass(slots=True)
class _Drift:
    """How far the kept residual and sums can be off, in L1, by rounding. See the module.

    before, now  of the residual, in the last round of refreshing and in this one
    sums         of ‖r‖₁, Σr and Σy
    """

    before: float = 0.0
    now: float = 0.0
    sums: float = 0.0

    @property
    def total(self) -> float:
        # each of ‖r‖₁ and |Σr| can be off by both
        return 2.0 * (self.before + self.now + self.sums)


class State:
    """The unnormalised ranks of a graph and their residual, for the vertices it had at the last
    `perturb`.

    values    y, float64[n] or float32[n] as the options' storage says, like r and the spare arrays
    residual  see base.Residual
    base      β: what a new vertex starts from
    total     Σy; l1, sum  ‖r‖₁ and Σr
    stale     whether r is not known: after a batch so large that a sweep is cheaper than its
              perturbation
    """

    def __init__(self, graph: Graph, options: Options) -> None:
        xp = graph.backend.xp
        self.graph = graph
        self.options = options
        self.base = 1.0 - options.damping
        self.total = self.l1 = self.sum = 0.0
        self.stale = False
        self._drift = _Drift()
        self._cursor = self._updates = 0
        self._kind = np.dtype(options.storage).type
        self._stored_ulp = _STORED_ULP[options.storage]
        self._values = xp.zeros(0, self._kind)
        self._residuals = xp.zeros(0, self._kind)
        self._marks = xp.zeros(0, np.int32)
        self.values: Array = self._values
        self.residual = Residual(self._residuals, self._marks, xp.zeros(0, np.int32), 0, np.inf, 0)
        self._spare: dict[str, Array] = {}

    def reserve(self, batch: EdgeBatch) -> None:
        """Makes room for the vertices of a batch; nothing else changes, also if it raises."""
        vertices = max(len(self.values), batch.vertices)
        if vertices <= len(self._values):
            return
        xp, known = self.graph.backend.xp, len(self.values)
        room = max(vertices, len(self._values) * 5 // 4)
        values, residuals = xp.empty(room, self._kind), xp.empty(room, self._kind)
        marks = xp.empty(room, np.int32)
        candidates = xp.empty(room // _CANDIDATES + _LEAST_CANDIDATES, np.int32)
        values[:known], residuals[:known] = self.values, self.residual.values
        marks[:known] = self.residual.marks
        listed = self.residual.listed
        candidates[:listed] = self.residual.candidates[:listed]
        self._values, self._residuals, self._marks = values, residuals, marks
        self.residual.candidates = candidates
        self._view(known)

    def _view(self, vertices: int) -> None:
        self.values = self._values[:vertices]
        self.residual.values = self._residuals[:vertices]
        self.residual.marks = self._marks[:vertices]

    def restore(self, values: Ranking | NDArray[np.float32], base: float, total: float) -> None:
        """Takes y (float[n] as the storage is, on the host), β and Σy; the next solve begins with
        the residual.
        """
        backend, vertices = self.graph.backend, len(values)
        self._values = backend.to_device(values)
        self._residuals = backend.allocate("ranks", vertices, self._kind)
        self._marks = backend.allocate("ranks", vertices, np.int32)
        self._residuals.fill(0.0)
        self._marks.fill(0)
        room = vertices // _CANDIDATES + _LEAST_CANDIDATES
        self.residual.candidates = backend.allocate("ranks", room, np.int32)
        self.base, self.total = base, total
        self._view(vertices)
        self.forget()

    def perturb(self, applied: Applied | Loaded) -> None:
        """Makes r the residual of y in the graph after a batch.

        A new vertex starts at its value while no edge touches it, exact but for its storage, and no
        other vertex moves.
        """
        self._grow()
        graph, backend = self.graph, self.graph.backend
        if isinstance(applied, Loaded):
            self.forget()
            return
        if self.stale or len(applied.sources) == 0:
            return
        most_edges = int(self.sweep_work / backend.push_cost)
        change = backend.perturb(
            graph, applied, self.values, self.options.damping, self.residual, most_edges
        )
        if change is None:
            self.forget()
        else:
            self.moved(change)

    def _grow(self) -> None:
        known, vertices = len(self.values), self.graph.vertices
        if vertices == known:
            return
        loops = self.graph.dangling == "self-loop"
        leaving = 1.0 - self.options.damping if loops else 1.0
        value = float(self._kind(self.base / leaving))
        left = float(self._kind(self.base - leaving * value)) if self._kind is np.float32 else 0.0
        self._view(vertices)
        self.values[known:] = value
        self.residual.values[known:] = left
        self.residual.marks[known:] = 0
        self.total += value * (vertices - known)
        self.l1 += abs(left) * (vertices - known)
        self.sum += left * (vertices - known)
        self._drift.now += self._stored_ulp * abs(left) * (vertices - known)
        self._drift.sums += 4.0 * ULP * self.total

    @property
    def sweep_work(self) -> float:
        """What a sweep over all costs, in edges of one."""
        graph = self.graph
        return graph.edges + graph.vertices + graph.backend.sweep_overhead

    def forget(self) -> None:
        """Says that r is not known: the next solve begins with `certify`."""
        self.stale = True
        self.drop_candidates()

    def drop_candidates(self) -> None:
        self.residual.listed, self.residual.floor = 0, np.inf

    def moved(self, change: Moved) -> None:
        """Takes over what an operation on the residual changed."""
        self.l1 = max(0.0, self.l1 + change.l1)
        self.sum += change.sum
        self.total += change.total
        self._drift.now += self._stored_ulp * (change.magnitude + 2.0 * change.moved)
        self._drift.now += 8.0 * ULP * change.moved
        self._drift.sums += ULP * (2.0 * (change.edges + 8.0) * change.moved)
        self._drift.sums += 4.0 * ULP * (self.l1 + abs(self.sum))

    def swept(self, relaxed: Relaxed, shift: float, drift: float) -> None:
        """Takes over what a dense sweep left that lowered β by a shift.

        drift  how far the new residual can be from that of the new y because of rounding
        """
        self._shifted(shift, relaxed)
        # the second term: what y rounds away of a step whose shares have been sent
        self._drift.now += drift + 2.0 * ULP * self.total
        self._drift.now += self._stored_ulp * (5.0 * self.l1 + relaxed.l1)
        self._summed_anew(relaxed.l1, relaxed.sum)

    def shifted(self, shift: float, relaxed: Relaxed) -> None:
        """Takes over that β and every r have been lowered by an amount."""
        self._shifted(shift, relaxed)
        self._drift.now += self._stored_ulp * relaxed.l1
        self._summed_anew(relaxed.l1, relaxed.sum)

    def _shifted(self, shift: float, relaxed: Relaxed) -> None:
        self.total += relaxed.total
        self.base -= shift
        # what vertices without edges took of the shift
        self._drift.now += 4.0 * ULP * abs(shift) * self.graph.vertices

    def _summed_anew(self, l1: float, residual_sum: float) -> None:
        self.l1, self.sum = l1, residual_sum
        self._drift.sums = SUMMED * ULP * l1

    def start_anew(self) -> None:
        """From y = 1, β = 1-α, and its residual; vertices without edges have what is theirs."""
        self.base = 1.0 - self.options.damping
        graph, xp = self.graph, self.graph.backend.xp
        self.values[:] = xp.where((graph.degree | graph.incoming.length) > 0, 1.0, self.base)
        self.certify()

    def shift(self, amount: float) -> None:
        """Lowers β and every r by an amount: a pass over n."""
        self.residual.values -= amount
        self.base -= amount
        l1 = float(self.graph.backend.xp.abs(self.residual.values).sum(dtype=np.float64))
        self._drift.now += self._stored_ulp * l1
        self._summed_anew(l1, self.sum - amount * self.graph.vertices)
        self.drop_candidates()

    def follow(self, vertices: Array, steps: Array) -> None:
        """Makes r the residual of y after y[vertices] went up by `steps`: r += αP̄ᵀΔy - Δy."""
        graph, backend, xp = self.graph, self.graph.backend, self.graph.backend.xp
        edges = int(graph.degree[vertices].sum(dtype=np.int64)) + len(vertices)
        if self.stale or edges * backend.push_cost > self.sweep_work:
            self.certify()
            return
        degree = graph.degree[vertices]
        shares = xp.where(degree > 0, self.options.damping * steps / xp.maximum(degree, 1), 0.0)
        kept = shares * graph.loop[vertices] - steps
        self.total += float(steps.sum())
        self.moved(backend.spread(graph, self.residual, vertices, shares, vertices, kept))

    def certify(self) -> None:
        """Computes r from y for all vertices, at the base as it is."""
        graph = self.graph
        l1, residual_sum = graph.backend.find_residual(
            graph,
            self.values,
            self.contributions(),
            self.base,
            self.options.damping,
            self.residual.values,
        )
        self.total = float(self.values.sum(dtype=np.float64))
        self.stale = False
        self._drift = _Drift(now=self._stored_ulp * l1)
        self._summed_anew(l1, residual_sum)
        self.drop_candidates()

    def refresh(self) -> None:
        """Computes r from y for the next slice of the vertices, now and then; to be called once an
        update.
        """
        vertices = self.graph.vertices
        self._updates += 1
        if self._updates % _REFRESH_EVERY != 1:
            return
        if self._cursor >= vertices:
            self._drift.before, self._drift.now = self._drift.now, 0.0
            self._cursor = 0
        xp, first = self.graph.backend.xp, self._cursor
        ends = xp.cumsum(self.graph.incoming.length[first : first + _REFRESHED], dtype=np.int64)
        self._cursor = first + max(1, int((ends <= _REFRESHED_EDGES).sum()))
        self.moved(
            self.graph.backend.refresh(
                self.graph,
                first,
                self._cursor,
                self.values,
                self.base,
                self.options.damping,
                self.residual,
            )
        )

    @property
    def rounding(self) -> float:
        """How far a residual computed from y can be off, relative to Σy."""
        depth = self.graph.backend.sum_depth(self.graph.incoming.longest)
        return 6.0 * (depth + 4.0) * ULP

    @property
    def drift(self) -> float:
        """The part of the error bound that is drift."""
        return self._drift.total / self.total / (1.0 - self.options.damping)

    @property
    def uncertainty(self) -> float:
        """The part of (1-α)·error_bound that is rounding."""
        return self._drift.total / self.total + self.rounding

    @property
    def error_bound(self) -> float:
        """Upper bound on the L1 error of y / Σy; not cut at 2, so that progress shows above it."""
        seen = (self.l1 + abs(self.sum)) / self.total
        return (seen + self.uncertainty) / (1.0 - self.options.damping)

    def centred_bound(self, worth: float) -> float:
        """The bound that `error_bound` would be after a shift by the mean of r: a pass over n, made
        where it could be at most `worth`.
        """
        scale = self.total * (1.0 - self.options.damping)
        if (self.l1 - abs(self.sum)) / scale > worth:
            return self.error_bound
        xp, residuals = self.graph.backend.xp, self.residual.values
        mean = self.sum / self.graph.vertices
        centred = float(xp.abs(xp.subtract(residuals, mean, dtype=np.float64)).sum())
        return centred / scale + self.uncertainty / (1.0 - self.options.damping)

    def background(self, target: float) -> Background | None:
        """These ranks for personalized walks to that error to lean on: None where y or r is not
        known well enough, or stored as float32.
        """
        graph, damping = self.graph, self.options.damping
        if self.stale or self.total <= 0.0 or self._kind is np.float32 or graph.connected == 0:
            return None
        # vertices without edges have hardly any residual
        weight = graph.connected * self.base - self.sum
        if self.l1 + abs(self.sum) > USABLE * weight:
            return None
        if self.uncertainty > _ROUNDED_PART * target * (1.0 - damping):
            return None
        known = Known(self.values, self.residual.values, self.base)
        return Background(known, weight, self.total, self.uncertainty * self.total)

    def contributions(self) -> Array | None:
        """float64[n]: y/d, and 0 where v dangles. None where y is float32: as long as y they would
        be too inexact for a certificate, as float64 too large for who is short of memory.
        """
        if self._kind is np.float32:
            return None
        contributions = self.spare("contributions")
        self.graph.backend.contribute(self.graph, self.values, contributions)
        return contributions

    def spare(self, purpose: str, kind: type | None = None) -> Array:
        """An array over the vertices to compute in, kept from solve to solve; zero when new. Stored
        as y is, unless `kind` says otherwise.
        """
        kind = kind or self._kind
        vertices = self.graph.vertices
        array = self._spare.get(purpose)
        if array is None or len(array) < vertices:
            array = self._spare[purpose] = self.graph.backend.xp.zeros(len(self._values), kind)
        return array[:vertices]

    def bytes_needed(self, vertices: int) -> int:
        """An upper bound on the memory that `reserve` and the next solve take beside what is held,
        if the graph has so many vertices by then.
        """
        spare = sum(int(array.dtype.itemsize) for array in self._spare.values())
        missing = max(0, _AUTO_SPARE - spare)
        if vertices <= len(self._values):
            return missing * len(self._values)
        room = max(vertices, len(self._values) * 5 // 4)
        lasting = 8 + 8 + 4 + -(-4 // _CANDIDATES)
        return (lasting + spare + missing) * room + 4 * _LEAST_CANDIDATES

    @property
    def nbytes(self) -> int:
        arrays = (self._values, self._residuals, self._marks, self.residual.candidates)
        return sum(int(array.nbytes) for array in (*arrays, *self._spare.values()))
