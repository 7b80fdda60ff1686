"""The seeds of a personalized query: the distribution that its random walk restarts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import InvalidValue
from liverank_gpu.graph.vertex_ids import looked_up
from liverank_gpu.types import Ranking


@dataclass(frozen=True, slots=True)
class Seeds:
    """s, the teleport distribution.

    vertices  int64[s], distinct ids, ascending; at least one
    weights   float64[s], above 0, sum 1
    """

    vertices: NDArray[np.int64]
    weights: Ranking

    @classmethod
    def of(
        cls, count: int, vertices: NDArray[np.integer[Any]], weights: Ranking | None = None
    ) -> Seeds:
        """The seeds of a query on a graph of `count` vertices.

        vertices  integer[s], ids below `count`; the weights of repeats add up
        weights   float64[s], finite and not negative, normalised to sum 1; vertices of weight 0 are
                  dropped; None for equal weights
        Raises InvalidValue, which names the index.
        """
        vertices = np.asarray(vertices, np.int64)
        given = np.ones(len(vertices)) if weights is None else np.asarray(weights, np.float64)
        if len(vertices) == 0:
            raise InvalidValue("seeds", [], "at least one vertex")
        outside = np.flatnonzero((vertices < 0) | (vertices >= count))
        if len(outside):
            place = int(outside[0])
            raise InvalidValue(f"seeds[{place}]", int(vertices[place]), f"an id below {count}")
        if len(given) != len(vertices):
            raise InvalidValue("weights", f"length {len(given)}", f"{len(vertices)} long, as seeds")
        wrong = np.flatnonzero(~(np.isfinite(given) & (given >= 0.0)))
        if len(wrong):
            place = int(wrong[0])
            raise InvalidValue(
                f"weights[{place}]", float(given[place]), "a finite number that is not negative"
            )
        if not given.any():
            raise InvalidValue("weights", given.tolist(), "not all 0")
        # scaled by the largest first: neither huge nor tiny weights may leave float64
        given = given / given.max()
        order = np.argsort(vertices)
        distinct, summed = vertices[order], given[order]
        if (distinct[1:] == distinct[:-1]).any():
            distinct, place_of = np.unique(vertices, return_inverse=True)
            summed = np.bincount(place_of, weights=given)
        kept = summed > 0.0
        return cls(distinct[kept], summed[kept] / summed.sum())

    def weights_at(self, vertices: NDArray[np.int64]) -> Ranking:
        """float64[k]: the weights of these ids, 0 for those that are no seeds."""
        return looked_up(self.vertices, self.weights, vertices, 0.0)
