"""An iterate: y, its residual and its certificate, maintained through pushes, sweeps and batches.

Global and personalized iterates differ in their right-hand side alone: what a new vertex starts
with, and what lowering the right-hand side means. See liverank_gpu.pagerank.certificate for the
equations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from liverank_gpu.operations.csr import GraphView
from liverank_gpu.operations.residual import PushLimits, PushResult, ResidualDelta
from liverank_gpu.operations.sweeps import (
    FusedRun,
    FusedSweeps,
    QuantizeContributions,
    Sweep,
    SweepResult,
)
from liverank_gpu.operations.update import GraphUpdate
from liverank_gpu.pagerank.certificate import Certificate, gather_roundoff, strength_roundoff
from liverank_gpu.pagerank.deflation import Deflation
from liverank_gpu.pagerank.ranked_graph import RankedGraph
from liverank_gpu.pagerank.workspace import ContributionBuffers, Workspace
from liverank_gpu.types import Options

_EDGE_WEIGHT = 0.02
"""What an out-edge adds to the work of pushing a vertex, relative to a vertex without any."""


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
    """

    of_query: ClassVar[bool] = False

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
        return self.graph.sweep_view(float(largest_sum), self.of_query)

    def perturb(self, update: GraphUpdate) -> None:
        """Makes r the residual of y in the graph after a batch."""
        self._extend()
        self.certificate.transition_error = transition_error(self.graph)
        self.residual_id = object()
        if update.changes is None:
            self._invalidate()
            return
        if self.stale or not update.touches:
            return
        backend = self.graph.backend
        delta = backend.residual.perturb(
            self.graph.view,
            update.changes,
            self.workspace.values,
            self.options.damping,
            self.workspace.residual,
            int(self.sweep_cost / backend.costs.pushed_edge),
        )
        if delta is None:
            self._invalidate()
        else:
            self.add(delta)

    def add(self, delta: ResidualDelta) -> None:
        """Records what an operation changed in y and r."""
        self.residual_id = object()
        self.certificate.add(delta)

    def push(
        self, goal: float, threshold: float, round_edges: int, edges: int, rounds: int
    ) -> PushResult:
        """Pushes by work-lists: see ResidualOperations.push and PushLimits."""
        certificate = self.certificate
        result = self.graph.backend.residual.push(
            self.graph.view,
            self.workspace.values,
            self.options.damping,
            self.workspace.residual,
            PushLimits(
                residual_l1=certificate.residual_l1,
                residual_sum=certificate.residual_sum,
                mass=certificate.mass,
                goal=goal,
                threshold=threshold,
                edge_weight=_EDGE_WEIGHT,
                round_edges=round_edges,
                edges=edges,
                rounds=rounds,
            ),
        )
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
        result = self.graph.backend.run(
            Sweep(
                self.sweep_view(),
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
