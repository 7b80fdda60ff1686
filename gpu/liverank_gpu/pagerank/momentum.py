"""Sweeps with momentum: Chebyshev's semi-iteration (Golub and Varga, 1961; Saad, "Iterative Methods
for Sparse Linear Systems", section 12.3).

With z the step of an ordinary sweep, the k-th step goes

    s₁ = z₁,  sₖ = ωₖ·zₖ + (ωₖ - 1)·sₖ₋₁,  ω₂ = 2 / (2 - α²),  ωₖ₊₁ = 1 / (1 - α²·ωₖ/4)

which is optimal if the eigenvalues of αP̄ are real, and so between -α and α: where every edge has
an opposite one of the same weight, P̄ is similar to a symmetric matrix. A step then leaves
(1 - √(1-α²)) / α of the residual in the long run, 0.56 for α = 0.85, where an ordinary one may
leave α. Loops only narrow the interval. Orthomin(1) gains about as much a sweep on such graphs and
needs no such property, but two passes, four more vectors and inner products. Here the last step is
known from its contributions, so a sweep reads and writes what an ordinary one does.

Where few edges lack an opposite one the eigenvalues are nearly real. Whether sweeps gain is
measured (liverank_gpu.pagerank.schedule), and if not, acceleration is left to Orthomin.
"""

from __future__ import annotations

from functools import cached_property

from liverank_gpu.operations.sweeps import SweepResult
from liverank_gpu.pagerank.deflation import Deflation
from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.pagerank.workspace import ContributionBuffers

_RECIPROCAL = 0.99
"""The least part of sampled edges that have an opposite one."""

_LEAST_LEFT = 0.85
"""What the last ordinary sweep has to have left of ‖r‖₁ for momentum, relative to α. A smaller part
shows that the other eigenvalues are smaller; Orthomin gains from that, steps that expect α do not:
they took 1.3 times as long on p2p-Gnutella31 without directions, whose sweeps leave 0.67.
"""


class Momentum:
    """The sweeps with momentum of one solve, for a y in float64, all of them mean-corrected.

    running  whether the contributions are those of a step with momentum
    gave_up  whether such sweeps gained too little
    left     the part of ‖r‖₁ that the last mean-corrected sweep without momentum left
    """

    def __init__(self, iterate: GlobalIterate) -> None:
        self._iterate = iterate
        self.gave_up, self.left = False, 1.0
        self.restart()

    def restart(self) -> None:
        """Forgets the last step: the contributions are those of r."""
        self.running = False
        # that of the first step is 1, which the formula for the others takes as 2
        self._omega = 2.0
        # of the next step: its ‖(1 - αℓ/d)·s‖₁ at most, and its part in closed classes
        self._step_l1 = self._closed_class_step = 0.0

    @property
    def chosen(self) -> bool:
        """Whether an accelerated sweep is to be one with momentum."""
        if self.gave_up or self.left < _LEAST_LEFT * self._iterate.options.damping:
            return False
        return self.suits

    @cached_property
    def suits(self) -> bool:
        """Whether the graph is like an undirected one, as far as a sample of its edges tells."""
        graph, options = self._iterate.graph, self._iterate.options
        if not graph.backend.sweeps.takes_momentum:
            return False
        if not options.directed:
            return True
        # opposite edges may have different weights
        components = graph.backend.components
        return (
            not graph.weighted
            and components is not None
            and components.reciprocity(graph.view) >= _RECIPROCAL
        )

    def sweep(
        self, buffers: ContributionBuffers, deflation: Deflation, closed_class_residual: float
    ) -> tuple[SweepResult, float]:
        """One sweep, after which the contributions are those of the next step.

        closed_class_residual  see liverank_gpu.pagerank.sweeps
        Returns what it did, and what is left of `closed_class_residual`.
        """
        iterate, damping = self._iterate, self._iterate.options.damping
        if not self.running:
            self._step_l1 = float(iterate.certificate.residual_l1)
            self._closed_class_step = closed_class_residual
        self._omega = 1.0 / (1.0 - damping * damping * self._omega / 4.0)
        kept = self._omega - 1.0
        result, shift = iterate.sweep(buffers, deflation, (self._omega, kept), self._step_l1)
        self.running = True
        self._step_l1 = self._omega * result.residual_l1 + kept * self._step_l1
        left = closed_class_residual - (1.0 - damping) * self._closed_class_step - shift
        self._closed_class_step = self._omega * left + kept * self._closed_class_step
        return result, left
