"""Degrees of graphs that grew by attachment, and the exponent of their tail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.device import Array


@dataclass(frozen=True, slots=True)
class DegreeDistribution:
    """How many vertices have each degree; degrees that none has are left out.

    degrees, counts  int64[…], ascending degrees
    """

    degrees: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def of_links(cls, xp: Any, links: Array) -> DegreeDistribution:
        """Of the clique of d vertices and the vertices that later ones link to.

        xp     the array module of `links`
        links  int32[n - d, d]
        """
        later, d = links.shape
        degree = xp.bincount(links.ravel(), minlength=later + d)
        degree[:d] += d - 1
        degree[d:] += d
        counts = xp.bincount(degree)
        present = xp.flatnonzero(counts)
        return cls(*(np.array(part.tolist(), np.int64) for part in (present, counts[present])))

    def exponent(self, least: int) -> float:
        """The exponent γ of a power law k^-γ, for the degrees from `least` on: the maximum
        likelihood estimate 1 + N/Σln(k/(least - 1/2)) of Clauset, Shalizi and Newman (SIAM Review
        51, 2009), equation 3.7. NaN without such degrees.
        """
        tail = self.degrees >= least
        degrees, counts = self.degrees[tail], self.counts[tail]
        if len(degrees) == 0:
            return float("nan")
        return float(1.0 + counts.sum() / (counts * np.log(degrees / (least - 0.5))).sum())
