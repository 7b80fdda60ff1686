"""The gate before publication: what a solve leaves is published only if it is a distribution.

Every strategy, in memory, over shards and out of core, passes it before its ranks can be read. The
ranks y / Σy have to be finite and not negative and to sum to one, up to rounding, and the error
bound has to be a number that is at least what the gate measures.

What it costs. If Σy and the bound are numbers and ``‖y* - y‖₁ ≤ β``, then y ≥ y* - β·1 ≥ 0, as no
entry of y* is below β: the certificate proves all of it, without a pass over the vertices. That
holds while the bound is below about (1-α)/n. Else one sum is taken over y, of |y|, unless y is as
it was, or only pushes have changed it that are known to have left no negative entry. Let N be what
negative entries take away: then ‖y‖₁ / Σy = 1 + 2N, and 2N is a lower bound on the L1 error, since
exact ranks are not negative.

What happens. Negative entries within a bound that is of use are set to zero and the residual is
computed again: as exact ranks are not negative, that brings the ranks nearer to them, by at least
what dividing by the new Σy can move them away. Anything else is replaced: by a static solve of
plain sweeps from nothing, which keep y positive up to rounding; and if that leaves no distribution
either, by equal ranks, of which nothing is known but that their error is at most 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf, isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.device import Array
from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.pagerank.places import GraphVertices
from liverank_gpu.pagerank.strategies import Solved
from liverank_gpu.pagerank.sweeps import SWEEP_KINDS, sweep_to_target
from liverank_gpu.types import LARGEST_ERROR

USELESS_BOUND = 0.5
"""An error bound above it means that ranks are no better than none."""

ROUNDING = 2.0**-40
"""What ‖y‖₁ may differ from Σy, relative to it."""

Arrays = dict[str, NDArray[Any]]
Numbers = dict[str, float]

_PLAIN = [kind for kind in SWEEP_KINDS if not kind.accelerated and not kind.mean_corrected]


def passed(
    iterate: GlobalIterate,
    solved: Solved,
    error_bound: float | None = None,
    settle: Callable[[Solved], Solved] | None = None,
) -> tuple[Solved, float]:
    """Makes the iterate one that can be published. Returns what was done, and the error bound, at
    most 2.

    solved       what was done so far
    error_bound  what is proven of y; None: what the certificate says
    settle       says again what is proven of the first places, after y has changed; None if they
                 were not asked for
    """
    bound = iterate.error_bound if error_bound is None else error_bound
    if iterate.graph.ids.count == 0:
        return solved, min(bound, LARGEST_ERROR)
    moved = solved.iterations > 0 and not solved.positive
    measured, reason = _measure(iterate, bound, moved)
    if reason is None and measured > ROUNDING:
        if measured > bound or bound > USELESS_BOUND:
            reason = f"negative ranks sum to {-0.5 * measured:.1e}"
        else:
            _clip(iterate)
            solved = _settled(solved, settle)
    if reason is not None:
        solved = _settled(_replaced(iterate, solved, reason), settle)
        bound = iterate.error_bound
    if solved.fallback == "equal":
        bound = LARGEST_ERROR
    iterate.passed = True
    return solved, min(bound, LARGEST_ERROR)


def _settled(solved: Solved, settle: Callable[[Solved], Solved] | None) -> Solved:
    return solved if settle is None else settle(solved)


def _measure(iterate: GlobalIterate, bound: float, moved: bool) -> tuple[float, str | None]:
    """How far ‖y‖₁ is from Σy, relative to it; and what is wrong, if no distribution can be made.

    moved  whether entries of y may have become negative
    """
    certificate = iterate.certificate
    mass = float(certificate.mass)
    if not (isfinite(mass) and mass > 0.0):
        return 0.0, f"the ranks cannot be divided by their sum, {mass:g}"
    if not isfinite(bound):
        return 0.0, f"the error bound is {bound}"
    if not iterate.rhs_scale > 0.0:
        return 0.0, f"the right-hand side is {iterate.rhs_scale:g}"
    if not moved or float(certificate.solution_error) <= iterate.rhs_scale:
        return 0.0, None
    size = iterate.size()
    measured = abs(size - mass) / mass
    return measured, None if isfinite(measured) else f"the ranks sum to {size:g}"


def _clip(iterate: GlobalIterate) -> None:
    """Sets negative entries to zero."""
    iterate.graph.backend.xp.maximum(iterate.values, 0.0, out=iterate.values)
    iterate.recompute_residual()


def _fill(iterate: GlobalIterate, value: float) -> None:
    """Sets every entry to this value."""
    iterate.rhs_scale = 1.0 - iterate.options.damping
    iterate.values.fill(value)
    iterate.recompute_residual()


def _replaced(iterate: GlobalIterate, solved: Solved, reason: str) -> Solved:
    """Solves again from nothing, or makes all ranks equal."""
    options, iterations = iterate.options, solved.iterations
    fault: str | None = None
    for from_nothing in (True, False):
        # then from y = 0, by steps that are all positive: from y = 1 they may leave β to rounding
        _fill(iterate, 0.0)
        swept = sweep_to_target(iterate, options.max_iterations, _PLAIN, from_nothing)
        iterations += swept.sweeps
        measured, fault = _measure(iterate, iterate.error_bound, moved=True)
        if fault is None and measured > 0.0:
            _clip(iterate)
            _, fault = _measure(iterate, iterate.error_bound, moved=True)
        if fault is None:
            break
    else:
        _fill(iterate, 1.0)
    iterate.solved = fault is None
    return replace(
        solved,
        iterations=iterations,
        touched_vertices=iterate.graph.ids.count,
        converged=fault is None and iterate.error_bound <= options.target_error,
        ties=None,
        fallback="static" if fault is None else "equal",
        refused=reason if fault is None else f"{reason}; of a static solve, {fault}",
    )


def stored_fault(arrays: Arrays, numbers: Numbers) -> str | None:
    """Why the ranks of a snapshot are no distribution with an error bound; None if they are. Such
    were stored before ranks had to pass here. A pass over the vertices, on the host.

    arrays, numbers  see liverank_gpu.snapshot.Snapshot
    """
    values = arrays["values"]
    if len(values) == len(arrays.get("free", ())):
        return None
    mass = numbers["total"]
    for name in ("base", "total"):
        if not 0.0 < numbers[name] < inf:
            return f"its {name} is {numbers[name]:g}"
    if not 0.0 <= numbers["error_bound"] <= LARGEST_ERROR:
        return f"its error bound is {numbers['error_bound']:g}"
    least, largest = float(values.min()) / mass, float(values.max()) / mass
    if not (least >= -ROUNDING and largest < inf):
        return f"its ranks are from {least:g} to {largest:g}"
    return None


def healed(arrays: Arrays, numbers: Numbers, damping: float) -> tuple[Arrays, Numbers]:
    """The same, with equal ranks and an error bound of 2 in place of ranks that are no
    distribution, so that the next solve is a first one.
    """
    if stored_fault(arrays, numbers) is None:
        return arrays, numbers
    equal = np.ones_like(arrays["values"])
    count = len(equal) - len(arrays.get("free", ()))
    of_ranks = {"base": 1.0 - damping, "total": float(count), "error_bound": LARGEST_ERROR}
    return {**arrays, "values": equal}, {"edges": numbers["edges"], **of_ranks}


class Gate:
    """The gate before an answer to a personalized query is given: for one y at one moment.

    Where Σy > 0 and the error bound is at most 2, the certificate proves how far y / Σy is from the
    exact ranks; entries below 0 are given as 0, which brings the ranks nearer to them. That costs
    nothing, and ends nearly all queries. The published algorithms keep y positive, and need no
    gate.

    Beyond that the bound proves nothing, and saying 2 instead is true of distributions alone. So
    the positive and the negative entries of y are summed, in one pass. If there are negative ones,
    or no positive ones, the query is solved again from nothing by plain sweeps, which keep y
    positive. If its places are proven, or rounding alone makes entries negative, those count as 0.
    The others are divided by their sum.

    mass      Σy, as maintained
    bound     on the error of y / Σy
    values    gives y here, float64[n], where it is needed
    vertices  of the graph
    """

    def __init__(
        self, mass: float, bound: float, values: Callable[[], Array], vertices: GraphVertices
    ) -> None:
        self._mass = mass
        self._is_proven = mass > 0.0 and bound <= LARGEST_ERROR
        self._values, self._vertices = values, vertices

    def fault(self) -> str | None:
        """Why y is not given as ranks; None if it can be."""
        if self._is_proven:
            return None
        positive, negative = self._parts()
        if not (isfinite(positive + negative) and positive > 0.0):
            return f"the ranks cannot be divided by their sum, {positive - negative:g}"
        if negative > ROUNDING * positive:
            return f"negative ranks sum to {-negative / positive:.1e} of the others"
        return None

    def divisor(self) -> float:
        """What the positive entries of y are divided by."""
        if self._is_proven:
            return self._mass
        positive, _ = self._parts()
        return positive if positive > 0.0 else 1.0

    def _parts(self) -> tuple[float, float]:
        """The sums of the positive entries of vertices, and of the others without their sign."""
        values, graph = self._values(), self._vertices.graph
        xp = graph.backend.xp
        part, sums = xp.maximum(values, 0.0), []
        for sign in (1.0, -1.0):
            # a batch may have removed vertices that the query had reached
            part[graph.free] = 0.0
            sums.append(sign * float(part.sum()))
            xp.minimum(values, 0.0, out=part)
        positive, negative = self._vertices.sums(sums)
        return positive, negative
