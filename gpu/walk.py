"""One personalized vector: y and its residual r, from nothing to the solution, and after batches.

Solves ``y = αP̄ᵀy + β·s`` for seeds s that sum to 1 and any β > 0; ranks are y / Σy. Dangling mass
returns to the seeds (NetworkX's default), which only changes the scale and drops out. The walk
begins at y = 0, r = β·s and goes on by the two phases that global ranks use too: `Backend.push`
over work-lists, `Backend.relax` over all vertices.

The certificate. With y* the solution, ``y* - y = (I - αP̄ᵀ)⁻¹ r``, whose L1 norm is at most
E = ‖r‖₁ / (1-α). Normalising at most doubles that; and, centred with the seeds instead of the
mean, ``g = r - s·Σr`` is the residual of the Google matrix, so the L1 error of the ranks is at most

    (‖r‖₁ + |Σr|) / ((1-α)·Σy).

Centring. The slowest error is that of the scale of y, which drops out. ``r -= s·Σr, β -= Σr`` takes
it out of the iteration: it keeps r the residual of y, touches the seeds alone, and makes Σr = 0.
What Σr will be after a sweep is known before it, so a sweep that is to be centred begins with the
seeds: what is taken from r there stays, beside what arrives, and no pass over n is needed between
sweeps. Where global ranks are known, a sweep can lean on those instead: see gpu.background.

Where a walk stays near its seeds all that it ever touched is on the list of candidates (floor < 0),
so that neither solving nor cleaning up costs a pass over n. The list is given up where it outgrows
its array or a sweep over all vertices begins; then the walk is `dense`.

Rounding is accounted for as gpu.state does it, with the same constants.
"""

from __future__ import annotations

import numpy as np

from gpu.backends.base import LISTED, Array, Limits, Moved, Pushed, Residual
from gpu.background import Background
from gpu.graph import Applied, Graph, Loaded
from gpu.seeds import Seeds
from gpu.state import SUMMED, ULP
from gpu.types import Options

_LISTING_ALL = -1.0
"""A floor below every |r|: whatever is added to is listed and stays so."""

_LEAST_CANDIDATES = 1024
_CANDIDATES = 8
"""A work-list has room for so many vertices, and for one more in so many of all."""

_EDGE_WEIGHT = 0.02
"""See gpu.solver: what an out-edge adds to the work of pushing a vertex."""


class Space:
    """Arrays over the vertices for one walk; zero while no walk has them.

    everywhere  whether the list of candidates has room for every vertex
    """

    def __init__(self, graph: Graph, everywhere: bool = False) -> None:
        self.graph = graph
        self.everywhere = everywhere
        vertices = graph.vertices
        self._allocate(vertices)
        self.values: Array = self._values[:vertices]
        self.residual = Residual(
            self._residuals[:vertices], self._marks[:vertices], self._candidates, 0, np.inf, 1
        )

    def _allocate(self, room: int) -> None:
        listed = room if self.everywhere else room // _CANDIDATES + _LEAST_CANDIDATES
        allocate = self.graph.backend.allocate
        values = allocate("a personalized vector", room, np.float64)
        residuals = allocate("its residual", room, np.float64)
        marks = allocate("its marks", room, np.int32)
        candidates = allocate("its work-list", listed, np.int32)
        for array in (values, residuals, marks):
            array.fill(0)
        # all or nothing
        self._values, self._residuals = values, residuals
        self._marks, self._candidates = marks, candidates

    def grow(self) -> None:
        """Follows a graph that has more vertices; theirs are zero."""
        vertices, known = self.graph.vertices, len(self.values)
        if vertices == known:
            return
        if vertices > len(self._values):
            values, residuals, marks = self.values, self.residual.values, self.residual.marks
            candidates = self.residual.candidates
            self._allocate(max(vertices, known + known // 4))
            self._values[:known] = values
            self._residuals[:known] = residuals
            self._marks[:known] = marks
            self._candidates[: len(candidates)] = candidates
            self.residual.candidates = self._candidates
        self.values = self._values[:vertices]
        self.residual.values = self._residuals[:vertices]
        self.residual.marks = self._marks[:vertices]

    @property
    def listed(self) -> Array:
        """int32[…]: every vertex that has or had a residual; only where the floor is negative."""
        return self.residual.candidates[: self.residual.listed]

    @property
    def listing(self) -> bool:
        return self.residual.floor < 0.0

    def clean(self) -> None:
        """Zero again: at what is listed, or everywhere where nothing is."""
        if self.listing:
            touched = self.listed
            self.values[touched] = 0.0
            self.residual.values[touched] = 0.0
            self.residual.marks[touched] = 0
        else:
            for array in (self.values, self.residual.values, self.residual.marks):
                array.fill(0)
        self.residual.listed, self.residual.floor = 0, np.inf

    @property
    def nbytes(self) -> int:
        arrays = (self._values, self._residuals, self._marks, self._candidates)
        return sum(int(array.nbytes) for array in arrays)

    @staticmethod
    def bytes_needed(vertices: int) -> int:
        """Bytes of one, and of what a push needs beside it."""
        room = vertices // _CANDIDATES + _LEAST_CANDIDATES
        return 20 * vertices + (4 + 28) * room


class Shares:
    """What dense sweeps send, for one walk at a time: they stay from sweep to sweep, as long as
    neither another walk sweeps nor anything else changes the residual.

    now, new  two arrays as `Backend.relax` takes them; `now` are the shares of a residual
    arriving  what its sum will be after a sweep
    of        stands for that residual: see Walk
    """

    def __init__(self, graph: Graph, room: int) -> None:
        kind = graph.backend.share_dtypes["float64"]
        self._arrays = [graph.backend.allocate("shares", room, kind) for _ in range(2)]
        self.arriving = 0.0
        self.of = object()

    def arrays(self, vertices: int) -> tuple[Array, Array]:
        """(now, new) for so many vertices."""
        now, new = self._arrays
        return now[:vertices], new[:vertices]

    def swept(self, arriving: float) -> object:
        """Says that `new` are those of another residual, which the returned object stands for."""
        self._arrays.reverse()
        self.arriving, self.of = arriving, object()
        return self.of

    @property
    def room(self) -> int:
        return len(self._arrays[0])

    @property
    def nbytes(self) -> int:
        return sum(int(array.nbytes) for array in self._arrays)


class Walk:
    """The personalized vector of some seeds in a space of its own, which must be clean.

    base   β; total Σy; l1, sum  ‖r‖₁ and Σr
    """

    def __init__(self, space: Space, options: Options, seeds: Seeds) -> None:
        self.space = space
        self.graph = space.graph
        self.options = options
        self.seeds = seeds
        self._stowed: tuple[Array, ...] = ()
        self._weights = self.graph.backend.to_device(seeds.weights)
        self.start()

    def start(self) -> None:
        """y = 0, r = β·s, in a clean space."""
        residual = self.space.residual
        # the graph may have been numbered anew since the last start
        positions = self.graph.numbering.positions_of(self.seeds.vertices)
        self._vertices = positions.astype(np.int32)
        count = len(self._vertices)
        self._vertices_there = self.graph.backend.to_device(self._vertices)
        self._changed()
        self.base = self.l1 = self.sum = 1.0 - self.options.damping
        self.total = 0.0
        self._drift = self._sums_drift = 4.0 * ULP * self.base
        residual.values[self._vertices] = self.base * self._weights
        if count <= len(residual.candidates):
            residual.candidates[:count] = self._vertices
            residual.marks[self._vertices] = LISTED
            residual.listed, residual.floor = count, _LISTING_ALL

    def restart(self) -> None:
        """From nothing again: for a graph that has become another one."""
        self.space.clean()
        self.space.grow()
        self.start()

    @property
    def dense(self) -> bool:
        """Whether it is not known which vertices the walk has touched."""
        return not self.space.listing

    @property
    def touched(self) -> Array | None:
        """int32[…], by ascending id: all vertices where y or r may not be 0; None where dense."""
        return None if self.dense else self.graph.numbering.sorted_by_id(self.space.listed)

    def be_dense(self) -> None:
        """Gives up the list of what was touched."""
        if not self.dense:
            self.space.residual.marks[self.space.listed] = 0
            self.space.residual.listed, self.space.residual.floor = 0, np.inf

    @property
    def error_bound(self) -> float:
        """Upper bound on the L1 error of y / Σy; not cut at 2. Infinite while y is zero."""
        if self.total <= 0.0:
            return np.inf
        seen = self.l1 + abs(self.sum) + self.uncertainty
        return seen / self.total / (1.0 - self.options.damping)

    @property
    def uncertainty(self) -> float:
        """How far ‖r‖₁ + |Σr| can be off by rounding."""
        return 2.0 * (self._drift + self._sums_drift)

    def push(self, target: float, threshold: float, round_edges: int, edges: int) -> Pushed | None:
        """Work-lists until `error_bound` is at most `target` or a limit is met, or no room is left
        on the list (then the walk is dense); None, and nothing done, where rounding alone passes
        the target. See base.Limits.
        """
        goal = self._goal(target)
        if goal <= 0.5 * target * (1.0 - self.options.damping):
            self._recount()
            goal = self._goal(target)
        if goal <= 0.0:
            return None
        residual = self.space.residual
        pushed = self.graph.backend.push(
            self.graph,
            self.space.values,
            self.options.damping,
            residual,
            Limits(
                l1=self.l1,
                sum=self.sum,
                total=self.total,
                goal=goal,
                threshold=threshold,
                edge_weight=_EDGE_WEIGHT,
                round_edges=round_edges,
                edges=edges,
                rounds=self.options.max_iterations,
            ),
        )
        self._moved(pushed.change)
        return pushed

    def _goal(self, target: float) -> float:
        """What ‖r‖₁ + |Σr| may be of Σy, for the bound to be at most `target`."""
        goal = target * (1.0 - self.options.damping)
        return goal - self.uncertainty / self.total if self.total > 0.0 else goal

    def _recount(self) -> None:
        """‖r‖₁ and Σr from r, where too much was added to the kept sums to trust them so far."""
        residuals = self.space.residual.values
        if not self.dense:
            residuals = residuals[self.space.listed]
        xp = self.graph.backend.xp
        self.l1, self.sum = float(xp.abs(residuals).sum()), float(residuals.sum())
        # sums of numbers of one sign, by pairs or by threads: 64 additions deep is deeper than that
        self._sums_drift = 64.0 * ULP * self.l1

    def _changed(self) -> None:
        """Notes that no shares are those of the residual any more."""
        self._content = object()

    def sweep(self, shares: Shares, centre: bool, background: Background | None = None) -> None:
        """One dense sweep.

        shares      to compute in; whether they are of this residual is seen
        centre      whether r is made to sum to zero by it
        background  what to lean on for that, instead of the seeds
        """
        self.be_dense()
        graph, backend, damping = self.graph, self.graph.backend, self.options.damping
        values, residuals = self.space.values, self.space.residual.values
        now, new = shares.arrays(graph.vertices)
        if shares.of is not self._content:
            rounded = backend.round_shares(graph, values, residuals, now, damping, 0.0)
            self.total += rounded.total
            self.l1, self.sum = rounded.l1, rounded.sum
            shares.arriving = rounded.arriving
        known, amount = None, 0.0
        if centre and background is not None:
            known, amount = background.known, shares.arriving / background.weight
            self._lean(background, abs(amount))
        # at most what was there and what is taken from it is rounded at a seed
        lowered = shares.arriving if centre and background is None else 0.0
        self._drift += 2.0 * ULP * (self.l1 + abs(lowered))
        if lowered != 0.0:
            backend.lower(residuals, self._vertices_there, self._weights, lowered)
            self.base -= lowered
        relaxed = backend.relax(graph, values, residuals, now, new, damping, 0.0, known, amount)
        self._content = shares.swept(relaxed.arriving)
        self.total += relaxed.total
        depth = backend.sum_depth(graph.incoming.longest)
        # the second term: what y rounds away of a step whose shares have been sent
        missing = relaxed.l1 / (1.0 - damping)  # y may be negative where it leant
        self._drift += 6.0 * (depth + 5.0) * ULP * self.l1 + 2.0 * ULP * (abs(self.total) + missing)
        self._sums_drift = SUMMED * ULP * relaxed.l1
        self.l1, self.sum = relaxed.l1, relaxed.sum

    def _lean(self, background: Background, amount: float) -> None:
        """Accounts for what is rounded where so much of it, in size, is added to y and r."""
        self._drift += amount * (
            background.uncertainty + 4.0 * ULP * (background.total + background.weight)
        )
        # what y rounds away, where it is negative too
        missing = self.l1 / (1.0 - self.options.damping)
        self._drift += 4.0 * ULP * (abs(self.total) + amount * background.total + missing)

    def centre(self) -> None:
        """r -= s·Σr, β -= Σr; y must not be zero. Seeds are listed from the start."""
        self._changed()
        backend, residuals = self.graph.backend, self.space.residual.values
        old = backend.to_host(residuals[self._vertices])
        new = old - self.sum * self.seeds.weights
        residuals[self._vertices] = backend.to_device(new)
        self.base -= self.sum
        self.l1 += float((np.abs(new) - np.abs(old)).sum())
        self._drift += 2.0 * ULP * (float(np.abs(new).sum()) + abs(self.sum))
        self._sums_drift += 4.0 * ULP * (self.l1 + abs(self.sum))
        self.sum = 0.0

    def stow(self) -> None:
        """Takes y and r out of the space, which is clean afterwards; not of a dense walk."""
        touched = self.space.listed.copy()
        values, residuals = self.space.values, self.space.residual.values
        self._stowed = (touched, values[touched], residuals[touched])
        self.space.clean()

    def unstow(self, space: Space) -> None:
        """Puts what was stowed into a clean space, and goes on there."""
        touched, values, residuals = self._stowed
        self._stowed = ()
        self.space = space
        self._changed()
        if len(touched) > len(space.residual.candidates):
            # the space lists fewer than the one before, which was another size
            space.residual.listed, space.residual.floor = 0, np.inf
        else:
            space.residual.candidates[: len(touched)] = touched
            space.residual.listed, space.residual.floor = len(touched), _LISTING_ALL
            space.residual.marks[touched] = LISTED
        space.values[touched] = values
        space.residual.values[touched] = residuals

    @property
    def stowed(self) -> bool:
        return len(self._stowed) > 0

    @property
    def nbytes(self) -> int:
        """Bytes on the device: of what was stowed, or of the space."""
        if self.stowed:
            return sum(int(array.nbytes) for array in self._stowed)
        return self.space.nbytes

    def perturb(self, applied: Applied | Loaded) -> None:
        """Makes r the residual of y in the graph after a batch (Wang et al.'s dynamic baseline, Sha
        et al.): new vertices are zero; where much has changed the walk starts anew.
        """
        self.space.grow()
        self._changed()
        if not isinstance(applied, Loaded) and len(applied.sources) == 0:
            return
        change = None
        if not isinstance(applied, Loaded):
            backend, graph = self.graph.backend, self.graph
            most_edges = int((graph.edges + graph.vertices) / backend.push_cost)
            change = backend.perturb(
                graph,
                applied,
                self.space.values,
                self.options.damping,
                self.space.residual,
                most_edges,
            )
        if change is None:
            self.restart()
        else:
            self._moved(change)

    def _moved(self, change: Moved) -> None:
        self._changed()
        self.l1 = max(0.0, self.l1 + change.l1)
        self.sum += change.sum
        self.total += change.total
        self._drift += ULP * (change.magnitude + 8.0 * change.moved)
        self._sums_drift += ULP * (2.0 * (change.edges + 8.0) * change.moved)
        self._sums_drift += 4.0 * ULP * (self.l1 + abs(self.sum))
