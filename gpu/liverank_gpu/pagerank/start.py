"""The start of a solve from nothing: ranks guessed from in-degrees.

Let every edge send the same, c. Then ``y = (β + α·c·i) / (1 - αℓ/d)`` at a vertex with i in-edges,
and c follows from what these values send in the mean. On R-MAT the bound of this guess is 0.1 to
0.2, where that of y = 1 is 3 to 8.

No pass over the edges in float64 computes its residual: an ordinary sweep takes the step from y = 0
with the contributions of the guess, and leaves the residual that this has.

In graphs with many closed classes (web graphs, package registries) equal ranks are the better
start: the residual then has no part in those classes, whose errors fall slowest (see
liverank_gpu.pagerank.sweeps). There the bound of the guess is larger, and so it decides. A guess
that is no use costs a sweep, so the next one is made when the graph has twice the edges.
"""

from __future__ import annotations

from liverank_gpu.operations.sweeps import SweepResult
from liverank_gpu.pagerank.certificate import UNIT_ROUNDOFF
from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.pagerank.workspace import ContributionBuffers

_USEFUL_BOUND = 1.0
"""The largest bound of a guess that is kept."""


def can_guess(iterate: GlobalIterate) -> bool:
    """Whether to try a guess: not where one was no use, until the graph has twice the edges."""
    return iterate.graph.arcs >= 2 * iterate.unguessable


def start_from_in_degrees(iterate: GlobalIterate, buffers: ContributionBuffers) -> bool:
    """Makes y the guess, by one sweep. Whether to continue from it; if not, y is to be reset.

    buffers  hold the contributions of its residual afterwards
    """
    iterate.guess_from_in_degrees(buffers)
    result, _ = iterate.sweep(buffers)
    # the step, and the sums over in-lists, were those of the guess, not of r
    certificate = iterate.certificate
    mass = float(certificate.mass)
    certificate.add_error((iterate.gather_roundoff + 8.0 * UNIT_ROUNDOFF) * mass)
    useful = _bound_without_dangling(result, iterate.options.damping) <= _USEFUL_BOUND * mass
    iterate.unguessable = 0 if useful else iterate.graph.arcs
    return useful


def _bound_without_dangling(result: SweepResult, damping: float) -> float:
    """About what (‖r‖₁ + |Σr|) / (1-α) would be if dangling vertices had taken their residual,
    which is positive, and sends nothing: they have not received anything yet.
    """
    others = result.next_residual_sum / damping
    taken = min(max(result.residual_sum - others, 0.0), result.residual_l1)
    return (result.residual_l1 - taken + abs(others)) / (1.0 - damping)
