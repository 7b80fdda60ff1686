"""What the personalized walks of a graph have in common, as far as its global ranks tell.

A walk forgets its seeds. After a few steps what is left of its residual is spread as that of any
other walk, and falls to α of it a sweep; the other differences are gone much sooner. A
vector whose residual is spread like that, too, is known already: the global ranks, with

    A·z = β·1 - r,    A = I - αP̄ᵀ.

So a sweep may *lean* on them: ``y += c·z, r -= c·A·z`` with c = Σr / Σ(A·z) keeps r the residual of
y and makes Σr = 0, which takes the common part out; what comes in its place is spread over all
vertices, and is mixed by few sweeps. Centring with the seeds (gpu.walk) comes to the same in the
end, but has to spread what it takes from the seeds first, again and again. On R-MAT the bound falls
to a sixth or a seventh a sweep either way, leaning from the second or third sweep on, else from the
fifth.

In a graph of parts that walks seldom leave, or never, z has much where a walk has nothing, and that
falls to α of it a sweep and no faster. So leaning is on trial as long as it lasts
(gpu.personalized, gpu.block): a query that does not gain by it any more begins anew without, and
the next ones try again ever more seldom.

The vertices without edges take no part: the sums are over the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.backends.base import Known
from gpu.types import Ranking

FIRST_LOOK = 5
"""Sweeps that lean before they are judged: a walk may need some to get away from its seeds."""

_SWEEPS, _GAINED = 2, 0.35
"""So many sweeps may leave so much of the bound: on the graphs here where leaning pays (R-MAT,
wiki-Vote, p2p-Gnutella31) it is 0.03 to 0.27, where it does not (cnr-2000, dblp-2010, the roads)
0.55 and more.
"""

USABLE = 0.1
"""Ranks are no help whose residual is a larger part of what they are the solution for, β at every
vertex with edges: also A·z has to have about that sum, and hardly anything below 0.
"""

_MOST_PASSED = 63


@dataclass(frozen=True, slots=True)
class Background:
    """Global ranks to lean on.

    known        z and its residual
    weight       Σ(A·z) over the vertices with edges
    total        Σz
    uncertainty  how far A·z can be from what it stands for by rounding, in L1
    """

    known: Known
    weight: float
    total: float
    uncertainty: float


class Trials:
    """Whether the next query is to lean: after each in a row that did not gain by it, twice as many
    are let pass.
    """

    def __init__(self) -> None:
        self._passed = self._passing = 0

    @property
    def due(self) -> bool:
        """Whether the next one is to try."""
        return self._passing == 0

    def take_turn(self) -> bool:
        """The same of one that has come; where it is not to try it was let pass."""
        if self._passing > 0:
            self._passing -= 1
            return False
        return True

    def ended(self, gained: bool) -> None:
        """Takes note of a trial."""
        self._passed = 0 if gained else min(2 * self._passed + 1, _MOST_PASSED)
        self._passing = self._passed


def gains(bounds: Sequence[Ranking]) -> NDArray[np.bool_]:
    """bool[queries]: whether leaning pays, as far as can be seen.

    bounds  float64[queries] after each sweep that leant
    """
    if len(bounds) < FIRST_LOOK:
        return np.ones(len(bounds[-1]), np.bool_)
    return np.isfinite(bounds[-1]) & (bounds[-1] <= _GAINED * bounds[-1 - _SWEEPS])
