"""The global iterate: the unnormalised ranks of a graph and their residual, b = 1; and what a solve
of it by sweeps has to meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Protocol

import numpy as np

from liverank_gpu.graph.ranked_graph import RankedGraph
from liverank_gpu.operations import sweeps as op
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.residual import RecomputeRows, ResidualDelta, Scatter
from liverank_gpu.pagerank.certificate import UNIT_ROUNDOFF, Certificate
from liverank_gpu.pagerank.iterate import (
    ContributionBuffers,
    Deflation,
    Iterate,
    Workspace,
    transition_error,
    workspace_bytes,
)
from liverank_gpu.types import Options, Ranking

_RECOMPUTE_EVERY = 8
_RECOMPUTED_ROWS, _RECOMPUTED_EDGES = 8192, 1 << 18
"""Every so many updates the residual of this many vertices is recomputed from y, or of fewer if
their in-lists exceed this many edges.
"""

_USABLE_RESIDUAL = 0.1
"""The largest ‖r‖₁ + |Σr|, relative to Σ(A·z), of global ranks that are used for deflation: Σ(A·z)
has to be near β for each vertex with edges, with hardly any negative terms.
"""

_ROUNDING_PART = 0.05
"""The part of a personalized target that rounding of the global ranks may take."""

SCRATCH_BYTES = {
    "contributions": 8,
    "quantized contributions": 4,
    "following contributions": 4,
    # of accelerated sweeps
    "direction": 8,
    "image of the direction": 8,
    "image": 8,
    "weights": 4,
    # of strategies that follow a frontier
    "affected": 4,
    "states": 1,
    "expanding": 1,
    "saved": 1,
    "values before": 8,
    "new values": 8,
}
"""Bytes a vertex of each array of `scratch`, at most."""


class GlobalIterate(Iterate):
    """y for b = 1, over the vertices that the graph had at the last `perturb`. Ids that are free
    when a solve begins have the y of an isolated vertex, which is not part of Σy.

    Maintaining r stops (`stale`) after a batch so large that a sweep costs less.

    solved  whether y is from a solve, and not that of a graph without edges
    passed  whether y passed the gate (liverank_gpu.pagerank.gate) and is as it was since then
    trace  where a solve adds its steps; None if they are not asked for
    unguessable, cyclic  edges of the graph when a guess, or a solve by components, was no use
    """

    def __init__(self, graph: RankedGraph, options: Options) -> None:
        super().__init__(graph, options, Certificate(options.damping))
        self.workspace = Workspace(graph.backend, "ranks")
        self.trace = None
        self.solved = self.passed = False
        self._limit = self._cursor = self.unguessable = self.cyclic = 0
        self._updates = _RECOMPUTE_EVERY - 1  # since a slice was recomputed
        # free ids that Σy does not contain; and Σy when it was last summed, or more
        self._free, self._free_count = graph.free, graph.ids.free_count
        self._summed_mass = 0.0
        self._scratch: dict[str, Array] = {}
        self._missing = sum(SCRATCH_BYTES.values())  # bytes a vertex of what is not there yet

    @property
    def values(self) -> Array:
        """y."""
        return self.workspace.values

    def reserve(self, vertices: int) -> None:
        """Makes room for the vertices of a batch; nothing else changes, also if it raises
        OutOfMemory.
        """
        self.workspace.reserve(max(self.workspace.vertices, vertices))

    def restore(self, values: Ranking, rhs_scale: float, mass: float) -> None:
        """Takes y (on the host), β and Σy; the next solve begins with the residual."""
        self.workspace.extend(len(values))
        self._limit = self.graph.ids.limit
        self.values[:] = self.graph.backend.device.to_device(values)
        self.rhs_scale, self.solved = rhs_scale, True
        self.certificate.mass = self._summed_mass = mass
        self._record_free()
        self.certificate.transition_error = transition_error(self.graph)
        self.invalidate()

    def _extend(self) -> None:
        """A new vertex starts at the value that it has without edges; no other vertex changes."""
        known, joined = self.workspace.vertices, self.graph.ids.limit - self._limit
        self.certificate.evaluation = self.gather_roundoff
        if joined == 0:
            return
        self._limit += joined
        self.workspace.extend(self.graph.vertices)
        self.values[known:], self.workspace.residual.values[known:] = self._isolated, 0.0
        self.certificate.add_vertices(joined, self._isolated)

    @property
    def _isolated(self) -> float:
        """y of a vertex without edges, whose r is 0."""
        return self.rhs_scale / self._isolated_diagonal

    @property
    def _isolated_diagonal(self) -> float:
        return 1.0 - self.options.damping if self.graph.fixed_loops else 1.0

    def exclude_free(self) -> None:
        """Takes the vertices that were removed out of Σy, and those that came back into it; to be
        called when a solve begins. Until then a removed vertex keeps its y.
        """
        free, excluded, xp = self.graph.free, self._free, self.graph.backend.xp
        if free is excluded:
            return
        total, values, residuals = self.graph.total, self.values, self.workspace.residual.values
        back, gone = excluded[~xp.isin(excluded, free)], free[~xp.isin(free, excluded)]
        before, returned = total(values[gone]), total(values[back])
        residual_l1, residual_sum = total(xp.abs(residuals[gone])), total(residuals[gone])
        values[gone], residuals[gone] = self._isolated, 0.0
        left, joined = (int(total(each >= 0)) for each in (gone, back))
        self._summed_mass = max(self._summed_mass, float(self.certificate.mass))
        self._record_free()
        self.add(
            ResidualDelta(
                residual_l1=-residual_l1,
                residual_sum=-residual_sum,
                mass=returned - before,
                moved=returned + before,
                magnitude=0.0,
                additions=left + joined,
            )
        )
        if 2.0 * float(self.certificate.mass) < self._summed_mass:
            # a difference of much larger sums
            self.invalidate()

    def _record_free(self) -> None:
        self._free, self._free_count = self.graph.free, self.graph.ids.free_count
        self._record_free_mass()

    def _record_free_mass(self) -> None:
        size = abs(self.rhs_scale) / self._isolated_diagonal
        self.certificate.free_mass = self._free_count * size

    def size(self) -> float:
        """‖y‖₁ over the vertices, summed again."""
        size = self.graph.size(self.values)
        return size - self.graph.size(self.values[self._free]) if self._free_count else size

    def invalidate(self) -> None:
        """Marks r as unknown: the next solve begins with `recompute_residual`."""
        self.stale = True
        self.residual_id = object()
        self._drop_candidates()

    _invalidate = invalidate

    def _drop_candidates(self) -> None:
        self.workspace.residual.listed, self.workspace.residual.floor = 0, np.inf

    def reset(self) -> None:
        """y = 1 and β = 1-α; y = β at vertices without edges, where that is the solution."""
        graph, xp = self.graph, self.graph.backend.xp
        self.rhs_scale = 1.0 - self.options.damping
        connected = (graph.degree > 0) | (graph.incoming.csr.row_lengths > 0)
        self.values[:] = xp.where(connected, 1.0, self.rhs_scale)
        self.recompute_residual()

    def guess_from_in_degrees(self, buffers: ContributionBuffers) -> None:
        """y = 0, β = 1-α and r = β·1, with the contributions of a guess: see
        liverank_gpu.pagerank.sweeps.
        """
        graph, certificate, damping = self.graph, self.certificate, self.options.damping
        self._drop_candidates()
        self.rhs_scale = 1.0 - damping
        run = graph.backend.run
        result = run(
            op.StartFromInDegrees(
                graph.view,
                run(op.SumInDegrees(graph.view, damping)),
                self.values,
                self.workspace.residual.values,
                buffers.arrays(graph.columns)[0],
                damping,
                self.rhs_scale,
            )
        )
        self._record_free()
        certificate.start(result.residual_sum)
        certificate.mass = result.mass - certificate.free_mass
        self._summed_mass, self.stale, self.residual_id = 0.0, False, object()
        buffers.fill(self.residual_id, result.next_residual_sum)

    def recompute_residual(self) -> None:
        """Computes r from y at every vertex."""
        self._drop_candidates()
        free = self.graph.free
        if len(free):
            self.values[free] = 0.0
        mass = self._summed_mass = self.graph.total(self.values)
        if len(free):
            self.values[free] = self._isolated
        self._record_free()
        residual_l1, residual_sum = self.graph.backend.run(
            op.ComputeResidual(
                self.graph.view,
                self.graph.in_rows(),
                self.values,
                self.contributions(),
                self.rhs_scale,
                self.options.damping,
                self.workspace.residual.values,
            )
        )
        self.certificate.evaluation = self.gather_roundoff
        self.certificate.recompute(residual_l1, residual_sum, mass)
        self.stale, self.residual_id = False, object()

    def recompute_slice(self) -> None:
        """Every few calls, computes r from y for the next slice of the vertices; to be called once
        an update.
        """
        self._updates += 1
        if self._updates >= _RECOMPUTE_EVERY:
            self._recompute_slice()

    def recompute_slice_ahead(self) -> None:
        """The same, while nothing else is to be done, if half of these calls have been made."""
        if 2 * self._updates >= _RECOMPUTE_EVERY:
            self._recompute_slice()

    def _recompute_slice(self) -> None:
        self._updates, vertices = 0, self.graph.vertices
        if self._cursor >= vertices:
            self.certificate.begin_round()
            self._cursor = 0
        xp, first = self.graph.backend.xp, self._cursor
        lengths = self.graph.incoming.csr.row_lengths[first : first + _RECOMPUTED_ROWS]
        ends = xp.cumsum(lengths, dtype=np.int64)
        self._cursor = first + max(1, int(self.graph.backend.device.sum(ends <= _RECOMPUTED_EDGES)))
        self.add(
            self.graph.backend.run(
                RecomputeRows(
                    self.graph.view,
                    first,
                    self._cursor,
                    max(_RECOMPUTED_EDGES, self.graph.incoming.longest),
                    self.values,
                    self.rhs_scale,
                    self.options.damping,
                    self.workspace.residual,
                )
            )
        )

    def follow(self, vertices: Array, steps: Array) -> None:
        """Makes r the residual of y after y[vertices] increased by `steps`: r += αP̄ᵀΔy - Δy."""
        graph, backend, xp = self.graph, self.graph.backend, self.graph.backend.xp
        degree, loop = graph.degree[vertices], graph.loop[vertices]
        lengths = graph.outgoing.csr.row_lengths[vertices]
        edges = int(graph.total(lengths + (loop > 0) + 1))
        if self.stale or edges * backend.costs.pushed_edge > self.sweep_cost:
            self.recompute_residual()
            return
        damping = self.options.damping
        contributions = xp.where(degree > 0, damping * steps / xp.where(degree > 0, degree, 1), 0.0)
        own = contributions * loop - steps
        self.certificate.mass += graph.total(steps)
        self.add(
            backend.run(
                Scatter(graph.view, self.workspace.residual, vertices, contributions, vertices, own)
            )
        )

    # ---- the mean correction ----

    @property
    def mean_correction(self) -> Deflation:
        """Deflation along the right-hand side."""
        return Deflation(float(max(1, self.graph.connected)))

    def _lower_rhs(self, amount: float) -> float:
        self.record_lowered_rhs(amount)
        return amount

    def record_accelerated(
        self, buffers: ContributionBuffers, result: op.SweepResult, lowered: float
    ) -> None:
        """A step of Orthomin replaced y, r and the current contributions, and lowered β."""
        self._drop_candidates()
        self.residual_id = object()
        buffers.fill(self.residual_id, result.next_residual_sum)
        self.record_lowered_rhs(lowered)

    def lower_rhs(self, amount: float) -> None:
        """Lowers β and every r by `amount`: a pass over n."""
        residuals, free = self.workspace.residual.values, self._free
        residuals -= amount
        self.rhs_scale -= amount
        if len(free):
            self.values[free], residuals[free] = self._isolated, 0.0
        self._record_free_mass()
        residual_l1 = self.graph.total(self.graph.backend.xp.abs(residuals))
        residual_sum = self.certificate.residual_sum - amount * self._ranked
        self.certificate.after_pass(residual_l1, residual_sum)
        self.residual_id = object()
        self._drop_candidates()

    def record_lowered_rhs(self, amount: float) -> None:
        """An operation lowered β and every r by `amount`."""
        self.rhs_scale -= amount
        if self._free_count:
            # what the operation takes from the y of free ids is not part of Σy
            self.certificate.mass += self._free_count * amount / self._isolated_diagonal
            self._record_free_mass()
        # vertices without edges take it into y, rounded
        error = 4.0 * UNIT_ROUNDOFF * abs(amount) * self.graph.ids.limit
        self.certificate.add_error(error)

    @property
    def _ranked(self) -> int:
        """Vertices whose ids were not free when the solve began."""
        return self.graph.ids.limit - self._free_count

    def correct_mean(self) -> None:
        """Makes Σr = 0 by lowering β: a pass over n."""
        self.lower_rhs(self.certificate.residual_sum / self._ranked)

    @property
    def mean_corrected_rhs(self) -> float:
        """What β would be then; `mean_corrected_bound` is about that."""
        return float(self.rhs_scale - self.certificate.residual_sum / max(1, self._ranked))

    def mean_corrected_bound(self, worth: float) -> float:
        """What `error_bound` would be after lowering r by its mean: a pass over n, made if the
        result could be at most `worth`; infinite if it could not.
        """
        certificate = self.certificate
        scale = certificate.mass * (1.0 - self.options.damping)
        if certificate.residual_l1 - abs(certificate.residual_sum) > worth * scale or scale <= 0.0:
            return np.inf
        xp, residuals = self.graph.backend.xp, self.workspace.residual.values
        mean = certificate.residual_sum / self._ranked
        corrected = self.graph.total(xp.abs(xp.subtract(residuals, mean, dtype=np.float64)))
        corrected = max(0.0, corrected - self._free_count * abs(mean))
        return float((corrected + certificate.uncertainty) / scale)

    # ---- what others use of it ----

    def deflation(self, target: float) -> Deflation | None:
        """The global ranks as a direction for personalized iterates that are solved to `target`;
        None if y or r is not known well enough.
        """
        graph, certificate, damping = self.graph, self.certificate, self.options.damping
        mass = certificate.mass
        if self.stale or mass <= 0.0 or graph.connected == 0:
            return None
        # vertices without edges have hardly any residual
        image_sum = graph.connected * self.rhs_scale - certificate.residual_sum
        remaining = certificate.residual_l1 + abs(certificate.residual_sum)
        if remaining > _USABLE_RESIDUAL * image_sum:
            return None
        uncertainty = certificate.uncertainty
        if uncertainty / mass > _ROUNDING_PART * target * (1.0 - damping):
            return None
        vector = op.DeflationVector(self.values, self.workspace.residual.values, self.rhs_scale)
        return Deflation(image_sum, vector, mass, uncertainty)

    def contributions(self) -> Array:
        """float64[n]: y/d, and 0 where v dangles."""
        contributions = self.scratch("contributions", length=self.graph.columns)
        self.graph.backend.run(op.ComputeContributions(self.graph.view, self.values, contributions))
        return contributions

    def scratch(
        self, purpose: str, dtype: type[np.generic] = np.float64, length: int | None = None
    ) -> Array:
        """An array over the vertices, kept from solve to solve; zero when new. As long as y, unless
        another length is given.

        purpose  one of SCRATCH_BYTES
        """
        length = self.graph.vertices if length is None else length
        array = self._scratch.get(purpose)
        if array is None or len(array) < length:
            room = max(length, self.workspace.room)
            array = self.graph.backend.xp.zeros(room, dtype)
            if purpose not in self._scratch:
                self._missing -= SCRATCH_BYTES[purpose]
            self._scratch[purpose] = array
        return array[:length]

    def bytes_needed(self, vertices: int) -> int:
        """Upper bound on the memory that `reserve` and the next solve take beside what is held.

        vertices  of the graph by then
        """
        if vertices <= self.workspace.room:
            return self._missing * self.workspace.room
        held = sum(int(array.dtype.itemsize) for array in self._scratch.values())
        room = max(vertices, self.workspace.room * 5 // 4)
        return workspace_bytes(room, self.graph.backend.sizes) + (held + self._missing) * room

    @property
    def nbytes(self) -> int:
        return self.workspace.nbytes + sum(int(array.nbytes) for array in self._scratch.values())


# ---- what a solve by sweeps has to meet ----

_ATTAINABLE_RESIDUAL = 16.0 * UNIT_ROUNDOFF
"""‖r‖₁ relative to Σy that rounding allows a component to reach."""


class Goal(Protocol):
    """When to stop."""

    def met(self, result: op.SweepResult, error_bound: float) -> bool:
        """Whether it is met after a sweep that left this bound."""

    @property
    def met_by_residual(self) -> bool:
        """Whether the residual alone shows that it is met."""

    @property
    def first_excess(self) -> float:
        """About how many times as large as it may be what has to fall is for equal ranks."""

    def excess(self, result: op.SweepResult) -> float:
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

    def met(self, _: op.SweepResult, error_bound: float) -> bool:
        return self._met(error_bound)

    @property
    def first_excess(self) -> float:
        return 4.0 / self.target

    def excess(self, _: op.SweepResult) -> float:
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

    def met(self, result: op.SweepResult, _: float) -> bool:
        mass = float(self.iterate.certificate.mass)
        return result.largest_step <= self.tolerance * mass or self.met_by_residual

    @property
    def met_by_residual(self) -> bool:
        certificate = self.iterate.certificate
        return float(certificate.residual_l1) <= self.left * float(certificate.mass)

    @property
    def first_excess(self) -> float:
        return 1e-2 / self.tolerance if self.tolerance > 0.0 else inf

    def excess(self, result: op.SweepResult) -> float:
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
