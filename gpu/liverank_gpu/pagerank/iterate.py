"""What a solve changes: an iterate y with its residual, over arrays that are kept, along deflation
vectors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from liverank_gpu.graph.ranked_graph import RankedGraph
from liverank_gpu.operations import residual as op
from liverank_gpu.operations.backend import DEFAULT_SIZES, Backend, Sizes
from liverank_gpu.operations.csr import GraphView
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import Follows, GraphUpdate
from liverank_gpu.operations.sweeps import (
    DeflationVector,
    FusedRun,
    FusedSweeps,
    QuantizeContributions,
    Sweep,
    SweepResult,
)
from liverank_gpu.pagerank.certificate import (
    UNIT_ROUNDOFF,
    Certificate,
    Scalar,
    gather_roundoff,
    strength_roundoff,
)
from liverank_gpu.types import Options, TraceStep

# ---- arrays over the vertices in which an iterate lives ----

_BELOW_ALL = -1.0
"""A floor below every |r|: every vertex whose r is added to is listed, and stays listed."""


class Workspace:
    """y, r, and the marks and candidate list of r, with room to grow; zero until written.

    values    values[n], y
    residual  see liverank_gpu.operations.residual.Residual
    """

    def __init__(self, backend: Backend, purpose: str, list_every_vertex: bool = False) -> None:
        """`list_every_vertex` gives the candidate list room for all vertices."""
        self._backend = backend
        self._purpose = purpose
        self.list_every_vertex = list_every_vertex
        self._values = backend.device.allocate(purpose, 0, np.float64)
        self._residuals = backend.device.allocate(purpose, 0, np.float64)
        self._marks = backend.device.allocate(purpose, 0, np.int32)
        self.values: Array = self._values
        self._candidates = backend.device.allocate(purpose, 0, np.int32)
        self.residual = op.Residual(self._residuals, self._marks, self._candidates, 0, np.inf, 0)

    @property
    def vertices(self) -> int:
        return len(self.values)

    @property
    def room(self) -> int:
        """Vertices that fit without allocation."""
        return len(self._values)

    def reserve(self, vertices: int) -> None:
        """Makes room for `vertices`, by a quarter more if it must grow; nothing visible changes,
        also if it raises OutOfMemory.
        """
        if vertices <= self.room:
            return
        room = max(vertices, self.room + self.room // 4)
        grown, known = partial(self._backend.device.grown, self._purpose), self.vertices
        vectors = (self.values, self.residual.values, self.residual.marks)
        values, residuals, marks = (grown(vector, room) for vector in vectors)
        self._candidates = grown(self.listed, self._list_room(room))
        self._values, self._residuals, self._marks = values, residuals, marks
        self.residual.candidates = self._candidates
        self._update_views(known)

    def extend(self, vertices: int) -> None:
        """Covers `vertices`; new ones are zero. Raises OutOfMemory if none have been reserved."""
        if vertices != self.vertices:
            self.reserve(vertices)
            self._update_views(vertices)

    @property
    def lists_all(self) -> bool:
        """Whether every vertex where y or r may not be 0 is on the candidate list."""
        return self.residual.floor < 0.0

    @property
    def listed(self) -> Array:
        """int32[…]: the candidates."""
        return self.residual.candidates[: self.residual.listed]

    def list_all(self, vertices: Array) -> None:
        """Lists the only vertices where y or r may not be 0. If there is no room, nothing is listed
        from now on.
        """
        residual, count = self.residual, len(vertices)
        if count > len(residual.candidates):
            residual.listed, residual.floor = 0, np.inf
            return
        residual.candidates[:count] = vertices
        residual.marks[vertices] = op.LISTED
        residual.listed, residual.floor = count, _BELOW_ALL

    def drop_list(self) -> None:
        """Gives up the candidate list."""
        if self.lists_all:
            self.residual.marks[self.listed] = 0
        self.residual.listed, self.residual.floor = 0, np.inf

    def clear(self) -> None:
        """Zero again: at the listed vertices, or everywhere if nothing is listed."""
        arrays = (self.values, self.residual.values, self.residual.marks)
        if self.lists_all:
            listed = self.listed
            for array in arrays:
                array[listed] = 0
        else:
            for array in arrays:
                array.fill(0)
        self.residual.listed, self.residual.floor = 0, np.inf

    def give_lists(self) -> tuple[Array, Array]:
        """Gives the marks and the candidate list away. Nothing is listed, and nothing may be added
        to r or pushed until `take_lists`.
        """
        lists = self._marks, self._candidates
        self.residual.listed, self.residual.floor = 0, np.inf
        none = self._backend.device.allocate(self._purpose, 0, np.int32)
        self._marks = self._candidates = self.residual.candidates = none
        self._update_views(self.vertices)
        return lists

    def take_lists(self, marks: Array, candidates: Array) -> None:
        """Takes marks, all 0, and a candidate list, with room for `room` vertices at least."""
        self._marks, self._candidates = marks, candidates
        # as long as if it had one of its own
        self.residual.candidates = candidates[: self._list_room(self.room)]
        self._update_views(self.vertices)

    @property
    def has_lists(self) -> bool:
        """Whether it has marks and a candidate list."""
        return len(self._marks) >= self.room

    def _update_views(self, vertices: int) -> None:
        self.values = self._values[:vertices]
        self.residual.values = self._residuals[:vertices]
        self.residual.marks = self._marks[:vertices]

    def _list_room(self, room: int) -> int:
        return room if self.list_every_vertex else candidate_room(room, self._backend.sizes)

    @property
    def nbytes(self) -> int:
        arrays = (self._values, self._residuals, self._marks, self._candidates)
        return sum(int(array.nbytes) for array in arrays)


def candidate_room(vertices: int, sizes: Sizes) -> int:
    """Length of the candidate list of this many vertices."""
    return vertices // sizes.candidate_part + sizes.least_candidates


def workspace_bytes(vertices: int, sizes: Sizes = DEFAULT_SIZES) -> int:
    """Bytes of a Workspace."""
    return (8 + 8 + 4) * vertices + 4 * candidate_room(vertices, sizes)


class ContributionBuffers:
    """The quantized contributions of a residual, and room for those of the next.

    next_residual_sum  what the residual will sum to after a sweep without deflation
    """

    def __init__(self, current: Array, following: Array) -> None:
        self._arrays = [current, following]
        self._residual: object = None
        self.next_residual_sum = 0.0

    @classmethod
    def allocate(cls, backend: Backend, room: int) -> ContributionBuffers:
        """Buffers for iterates with up to `room` vertices."""
        dtype = backend.sweeps.contribution_dtype
        return cls(*(backend.device.allocate("contributions", room, dtype) for _ in range(2)))

    def arrays(self, length: int) -> tuple[Array, Array]:
        """(current, following) of this length, DynamicGraph.columns."""
        current, following = self._arrays
        return current[:length], following[:length]

    def holds(self, residual: object) -> bool:
        """Whether the current contributions are of this residual (see Iterate.residual_id)."""
        return self._residual is residual

    def fill(self, residual: object, next_residual_sum: float) -> None:
        """Records that the current contributions are those of a residual."""
        self._residual, self.next_residual_sum = residual, next_residual_sum

    def swap(self, residual: object, next_residual_sum: float) -> None:
        """Records that the following contributions are those of a residual: they become current."""
        self._arrays.reverse()
        self.fill(residual, next_residual_sum)

    @property
    def room(self) -> int:
        return len(self._arrays[0])

    @property
    def nbytes(self) -> int:
        return sum(int(array.nbytes) for array in self._arrays)


# Deflation: one step along a direction whose image is known, so that the residual sums to zero.
#
# Let A = I - αP̄ᵀ. The slowest error of an iterate is that of its scale, which shows as Σr ≠ 0.
# For a direction z with known image A·z,
#
#     y += c·z,  r -= c·A·z,  c = Σr / Σ(A·z)
#
# keeps r the residual of y and makes Σr = 0: an oblique projection. Three directions are used:
#
# - the *right-hand side* itself: lowering β by c lowers r by c·b, as if c times a vector with
#   image b had been added to y. For b = 1 this is the mean correction: β becomes (α·D(y) +
#   (1-α)·Σy) / n with D(y) the sum of y over dangling vertices, which makes a sweep the classic
#   normalised power iteration. (Never scale y by n/Σy instead: with dangling vertices that
#   converges to wrong ranks.) For b = s the correction is made at the seeds;
# - the *global ranks*, for personalized iterates: ``A·z = β·1 - r`` of the global iterate. After a
#   few steps what is left of any personalized residual is distributed as that of any other, and
#   falls by α a sweep; a vector with such a residual is known already. On R-MAT the bound falls to
#   a sixth or a seventh a sweep along either direction: with the global ranks from the second or
#   third sweep on, with the seeds from the fifth. In a graph of parts that are seldom left, z has
#   mass where the iterate has none, and that falls by α a sweep: see
#   liverank_gpu.personalized.forecast.
#
# Vertices without edges are excluded: their y is known in closed form and follows β at once, so
# sums are over the others. (Where half of the vertices have no edges, as in R-MAT, including them
# would leave an error that falls by 0.4 a sweep instead of 0.14.)


@dataclass(frozen=True, slots=True)
class Deflation:
    """A direction and what is known of its image.

    image_sum    Σ(A·z) over the vertices with edges
    vector       z and its residual; None for the right-hand side
    mass         Σz
    image_error  how far A·z can be off by rounding, in L1
    """

    image_sum: float
    vector: DeflationVector | None = None
    mass: float = 0.0
    image_error: float = 0.0

    def coefficient(self, residual_sum: Scalar) -> Scalar:
        """c, for what Σr would be without it."""
        return residual_sum / self.image_sum

    def rounding_error(self, coefficient: Scalar, certificate: Certificate) -> Scalar:
        """How far r can be off after ``y += c·z, r -= c·A·z``: the image's own error, products and
        subtractions, and what y rounds away, negative entries included.
        """
        size = abs(coefficient)
        image = self.image_error + 4.0 * UNIT_ROUNDOFF * (self.mass + self.image_sum)
        values = abs(certificate.mass) + size * self.mass
        values = values + certificate.residual_l1 / (1.0 - certificate.damping)
        return size * image + 4.0 * UNIT_ROUNDOFF * values


# An iterate: y, its residual and its certificate, maintained through pushes, sweeps and batches.
#
# Global and personalized iterates differ in their right-hand side alone: what a new vertex starts
# with, and what lowering the right-hand side means. See liverank_gpu.pagerank.certificate for the
# equations.

_EDGE_WEIGHT = 0.02
"""What an out-edge adds to the work of pushing a vertex, relative to a vertex without any."""


_ROUNDED_PART = 0.01
"""The part of a target that a sweep may round off at the edges of a weighted graph in pages. It
falls with r, so that all sweeps take little more than the first.
"""

_SLOWING = 4.0
"""How much less the next rounds of a push gain for an edge than the last one did, about."""


def transition_error(graph: RankedGraph) -> float:
    """Certificate.transition_error for a graph."""
    if not graph.weighted:
        return 0.0
    return strength_roundoff(graph.outgoing.strength_depth)


class Iterate(ABC):
    """y and its residual for one right-hand side β·b.

    workspace    holds y and r
    rhs_scale    β
    certificate  ‖r‖₁, Σr, Σy and the error bound that follows
    stale        whether r is unknown
    residual_id  stands for the residual as it is: a new object after each change
    of_query     whether it is of a query
    left_by_sweeps  what each of the last sweeps left of the error bound; 0 if that is not used
    below_zero   whether pushes may have left negative entries in y since it was last set
    before_sweeps  what the next sweep would do first, done while a push runs that will hardly be
                 enough; None if nothing is
    trace        what solves do is added to it; None if it is not recorded
    """

    of_query: ClassVar[bool] = False
    left_by_sweeps: float = 0.0
    below_zero: bool = False
    before_sweeps: Callable[[], object] | None = None
    trace: list[TraceStep] | None = None

    def __init__(self, graph: RankedGraph, options: Options, certificate: Certificate) -> None:
        self.graph = graph
        self.options = options
        self.certificate = certificate
        self.rhs_scale = 1.0 - options.damping
        self.stale = False
        self.residual_id: object = None
        self.workspace: Workspace

    @abstractmethod
    def _extend(self) -> None:
        """Covers the vertices that the graph has now."""

    @abstractmethod
    def _lower_rhs(self, amount: float) -> float:
        """Lowers β by `amount` before a sweep, and r by amount·b as far as that is not left to the
        sweep. Returns what the sweep has to subtract from every r.
        """

    @abstractmethod
    def _drop_candidates(self) -> None:
        """Gives up the candidate list, because every r is about to change."""

    @abstractmethod
    def _invalidate(self) -> None:
        """The graph changed so much that maintaining r costs more than computing it."""

    @property
    def error_bound(self) -> float:
        """Upper bound on the L1 error of y / Σy; not capped at 2."""
        return float(self.certificate.error_bound)

    @property
    def sweep_cost(self) -> float:
        """Cost of a dense sweep, in edges of one."""
        graph = self.graph
        return graph.arcs + graph.ids.limit + graph.backend.costs.sweep_overhead

    @property
    def gather_roundoff(self) -> float:
        """How far a sum over an in-list can be off, relative to its terms."""
        graph = self.graph
        depth = graph.backend.sweeps.sum_depth(graph.incoming.longest)
        return gather_roundoff(depth, graph.weighted)

    def sweep_view(self) -> GraphView:
        """The graph for a sweep with the contributions of r, or of a guess from r = β·b."""
        # an edge takes at most r, rounded up by 1/256; a guess sums to at most ‖r‖₁ / (1-α)
        largest_sum = 2.0 * self.certificate.residual_l1 / (1.0 - self.options.damping)
        view = self.graph.sweep_view(float(largest_sum), self.of_query)
        # Σy will be about this, or more
        mass = max(self.certificate.mass, self.certificate.residual_l1)
        rounded = _ROUNDED_PART * self.options.target_error * (1.0 - self.options.damping) * mass
        return view if self._rounding(view) <= rounded else view._replace(pages=None)

    def _rounding(self, view: GraphView) -> float:
        """How far r can be off after a sweep because of what is rounded at its edges."""
        if view.pages is None or not view.pages.weighted:
            return 0.0
        return 0.5 * self.options.damping * view.edges * view.pages.unit

    def perturb(self, update: GraphUpdate) -> None:
        """Makes r the residual of y in the graph after a batch."""
        self.cover()
        self.residual_id = object()
        if update.rebuilt:
            self._invalidate()
            return
        if self.stale or not update.touches:
            return
        vectors, followed = self.workspace, update.followed
        if followed is not None and followed[0] is vectors.residual:
            delta: op.ResidualDelta | None = followed[1]
        else:
            changes = update.lists.changes
            assert changes is not None
            damping, residual, limit = self.options.damping, vectors.residual, self._edge_limit
            perturb = op.Perturb(self.graph.view, changes, vectors.values, damping, residual, limit)
            delta = self.graph.backend.run(perturb)
        if delta is None:
            self._invalidate()
        else:
            self.add(delta)

    def cover(self) -> None:
        """Covers the vertices that the graph has now."""
        self._extend()
        self.certificate.transition_error = transition_error(self.graph)

    @property
    def _edge_limit(self) -> int:
        """The most additions for which maintaining r is worth it."""
        return int(self.sweep_cost / self.graph.backend.costs.pushed_edge)

    def follows(self) -> Follows | None:
        """What can follow a batch as it is applied, if all vertices of the graph have ranks;
        `perturb` records it.
        """
        if self.stale:
            return None
        vectors = self.workspace
        return Follows(vectors.values, vectors.residual, self.options.damping, self._edge_limit)

    def add(self, delta: op.ResidualDelta) -> None:
        """Records what an operation changed in y and r."""
        self.residual_id = object()
        self.certificate.add(delta)

    def push(
        self, goal: float, threshold: float, round_edges: int, edges: int, rounds: int
    ) -> op.PushResult:
        """Pushes by work-lists: see Push and PushLimits."""
        certificate = self.certificate
        limits = op.PushLimits(
            residual_l1=certificate.residual_l1,
            residual_sum=certificate.residual_sum,
            mass=certificate.mass,
            goal=goal,
            threshold=threshold,
            edge_weight=_EDGE_WEIGHT,
            round_edges=round_edges,
            edges=edges,
            rounds=rounds,
        )
        vectors, damping = self.workspace, self.options.damping
        edges_of_sweep = self.sweep_cost / self.graph.backend.costs.pushed_edge
        ends = self.left_by_sweeps, edges_of_sweep / _SLOWING
        size = certificate.residual_l1 + abs(certificate.residual_sum)
        # more than a sweep would leave for it to be enough
        sweeps = self.left_by_sweeps * size > goal * certificate.mass
        push = op.Push(
            self.graph.view,
            vectors.values,
            damping,
            vectors.residual,
            limits,
            *ends,
            self.before_sweeps if sweeps else None,
        )
        result = self.graph.backend.run(push)
        self.below_zero |= result.below_zero
        self.add(result.delta)
        return result

    def quantize(self, buffers: ContributionBuffers, shift: float = 0.0) -> None:
        """Fills the buffers with the contributions of r, after lowering β and r by `shift`."""
        shift = self._lower_rhs(shift) if shift != 0.0 else 0.0
        current, _ = buffers.arrays(self.graph.columns)
        result = self.graph.backend.run(
            QuantizeContributions(
                self.graph.view,
                self.workspace.values,
                self.workspace.residual.values,
                current,
                self.options.damping,
                shift,
            )
        )
        self.certificate.after_pass(result.residual_l1, result.residual_sum, result.mass)
        self.residual_id = object()
        buffers.fill(self.residual_id, result.next_residual_sum)

    def sweep(
        self,
        buffers: ContributionBuffers,
        deflation: Deflation | None = None,
        momentum: tuple[float, float] = (1.0, 0.0),
        step_l1: float = 0.0,
    ) -> tuple[SweepResult, float]:
        """One dense sweep.

        buffers    to compute in; filled first unless they hold the contributions of r
        deflation  makes Σr = 0; along the right-hand side if there is momentum
        momentum   fresh and kept of Sweep
        step_l1    what ‖(1 - αℓ/d)·Δy‖₁ can be where that is not the step of r, but for rounding
        Returns what it did, and what it subtracted from every r beside.
        """
        self._drop_candidates()
        if not buffers.holds(self.residual_id):
            self.quantize(buffers)
        coefficient, shift, vector = 0.0, 0.0, None
        if deflation is not None:
            coefficient, vector = deflation.coefficient(buffers.next_residual_sum), deflation.vector
            if vector is None:
                shift = self._lower_rhs(coefficient)
            else:
                error = deflation.rounding_error(coefficient, self.certificate)
                self.certificate.add_error(error)
        view = self.sweep_view()
        self.certificate.add_error(self._rounding(view))
        result = self.graph.backend.run(
            Sweep(
                view,
                self.graph.in_rows(),
                self.workspace.values,
                self.workspace.residual.values,
                *buffers.arrays(self.graph.columns),
                self.options.damping,
                shift,
                vector,
                coefficient if vector is not None else 0.0,
                *momentum,
            )
        )
        self._record_sweep(buffers, result, step_l1)
        return result, shift

    def fused_sweeps(
        self, buffers: ContributionBuffers, run: FusedRun
    ) -> Iterator[tuple[SweepResult, float]]:
        """Dense sweeps in one launch, as `sweep` each. They are recorded one after the other as
        they are taken, which has to be done to the end.

        buffers  hold the contributions of r
        """
        self._drop_candidates()
        results = self.graph.backend.run(
            FusedSweeps(
                self.graph.view,
                self.graph.in_rows(),
                self.workspace.values,
                self.workspace.residual.values,
                *buffers.arrays(self.graph.columns),
                self.options.damping,
                run,
            )
        )
        for result, shift in results:
            self._lower_rhs(shift)
            self._record_sweep(buffers, result)
            yield result, shift

    def _record_sweep(
        self, buffers: ContributionBuffers, result: SweepResult, step_l1: float = 0.0
    ) -> None:
        # a step that is not that of r is gathered too, and subtracted; the few 2⁻²⁴ by which
        # contributions round it up are far less than what the roundoff leaves room for
        gather_error = self.gather_roundoff * (self.certificate.residual_l1 + 2.0 * step_l1)
        self.residual_id = object()
        buffers.swap(self.residual_id, result.next_residual_sum)
        self.certificate.after_sweep(result, gather_error)
