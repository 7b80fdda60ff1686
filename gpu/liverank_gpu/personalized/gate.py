"""The gate before an answer to a personalized query is given: its ranks are a distribution.

Where Σy > 0 and the error bound is at most 2, the certificate proves how far y / Σy is from the
exact ranks; entries below 0 are given as 0, which brings the ranks nearer to them. That costs
nothing, and ends nearly all queries. The published algorithms keep y positive, and need no gate.

Beyond that the bound proves nothing, and saying 2 instead is true of distributions alone. So the
positive and the negative entries of y are summed, in one pass. If there are negative ones, or no
positive ones, the query is solved again from nothing by plain sweeps, which keep y positive. If its
places are proven, or rounding alone makes entries negative, those count as 0. The others are
divided by their sum.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from liverank_gpu.operations.device import Array
from liverank_gpu.pagerank.gate import ROUNDING
from liverank_gpu.pagerank.places import GraphVertices
from liverank_gpu.types import LARGEST_ERROR


class Gate:
    """For one y at one moment.

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
