"""PageRank and its residual by another route, for tests and audits.

The engine pulls contributions over the transpose of a dynamic graph, in an unnormalised form
without dangling mass. Here the edges are a plain list, mass is pushed along them into its targets,
dangling mass and loops are explicit, and the vector is normalised at every step: the textbook's
Google matrix. The two share no code, so that a mistake would have to be made twice. Everything is
float64 on the host.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.types import Dangling, Ranking

Edges = NDArray[np.integer[Any]]

_DIRECT_SOLVE_LIMIT = 400


def with_policy(
    sources: Edges, targets: Edges, vertices: int, dangling: Dangling
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct edges that the walk sees: under ``self-loop`` every vertex has one loop."""
    keys = np.asarray(sources, np.int64) * vertices + np.asarray(targets, np.int64)
    if dangling == "self-loop":
        keys = np.concatenate([keys, np.arange(vertices, dtype=np.int64) * (vertices + 1)])
    keys = np.unique(keys)
    return keys // max(vertices, 1), keys % max(vertices, 1)


def _weighted_with_policy(
    sources: Edges,
    targets: Edges,
    weights: NDArray[np.floating[Any]],
    vertices: int,
    dangling: Dangling,
) -> tuple[NDArray[np.int64], NDArray[np.int64], Ranking]:
    if dangling == "uniform":
        return sources.astype(np.int64), targets.astype(np.int64), weights.astype(np.float64)
    others, loops = sources != targets, np.arange(vertices, dtype=np.int64)
    return (
        np.concatenate([sources[others], loops]).astype(np.int64),
        np.concatenate([targets[others], loops]).astype(np.int64),
        np.concatenate([weights[others].astype(np.float64), np.ones(vertices)]),
    )


class GoogleMatrix:
    """The transposed Google matrix of an edge list, as an operator on row vectors.

    sources, targets  integer[m], ids below `vertices`; repeats are one edge
    weights           float[m], above 0, or None for equal ones; those of repeats add up. Under
                      ``self-loop`` every loop weighs 1
    damping           α in (0, 1)
    dangling          see liverank_gpu.types.Options
    teleport          float64[vertices] summing to 1, or None for uniform; dangling mass goes the
                      same way
    """

    def __init__(
        self,
        sources: Edges,
        targets: Edges,
        vertices: int,
        damping: float = 0.85,
        dangling: Dangling = "uniform",
        teleport: Ranking | None = None,
        weights: NDArray[np.floating[Any]] | None = None,
    ) -> None:
        self.vertices = vertices
        self.damping = damping
        if weights is None:
            self.sources, self.targets = with_policy(sources, targets, vertices, dangling)
            self.weights = np.ones(len(self.sources))
        else:
            self.sources, self.targets, self.weights = _weighted_with_policy(
                np.asarray(sources), np.asarray(targets), weights, vertices, dangling
            )
        self.degree = np.bincount(self.sources, self.weights, minlength=vertices)
        self.teleport = np.full(vertices, 1.0 / max(vertices, 1)) if teleport is None else teleport

    def __call__(self, ranks: Ranking) -> Ranking:
        """One step of the walk: float64[vertices] to float64[vertices], keeping the sum."""
        share = np.divide(ranks, self.degree, out=np.zeros_like(ranks), where=self.degree > 0)
        followed = np.bincount(
            self.targets, weights=share[self.sources] * self.weights, minlength=self.vertices
        ).astype(np.float64)
        stranded = ranks[self.degree == 0].sum()
        arrived = self.damping * (followed + stranded * self.teleport)
        step: Ranking = arrived + (1.0 - self.damping) * ranks.sum() * self.teleport
        return step

    def error_bound(self, ranks: Ranking) -> float:
        """Upper bound on the L1 distance of `ranks` (summing to 1) to the stationary vector.

        The Google matrix contracts vectors that sum to zero by α in L1, so the distance is at most
        ‖Gᵀx - x‖₁ / (1-α). Exact but for rounding.
        """
        if self.vertices == 0:
            return 0.0
        return float(np.abs(self(ranks) - ranks).sum() / (1.0 - self.damping))

    def stationary(self) -> Ranking:
        """float64[vertices]: the PageRank vector to the limit of float64.

        Small graphs are solved directly, as the linear system for ranks that sum to 1, larger ones
        by power iteration until the residual no longer falls.
        """
        if self.vertices == 0:
            return np.empty(0)
        if self.vertices <= _DIRECT_SOLVE_LIMIT:
            system = np.eye(self.vertices) - self.damping * self._walk()
            solution = np.linalg.solve(system, (1.0 - self.damping) * self.teleport)
            return np.asarray(solution / solution.sum(), np.float64)
        ranks: Ranking = np.full(self.vertices, 1.0 / self.vertices)
        best, stalled = np.inf, 0
        while stalled < 5:
            following = self(ranks)
            residual = float(np.abs(following - ranks).sum())
            ranks = np.asarray(following / following.sum(), np.float64)
            stalled = 0 if residual < best else stalled + 1
            best = min(best, residual)
        return ranks

    def _walk(self) -> Ranking:
        """float64[vertices, vertices]: the walk without restarts, a column for each source."""
        shares = self.weights / self.degree[self.sources]
        cells = self.targets * self.vertices + self.sources
        shape = (self.vertices, self.vertices)
        walk = np.bincount(cells, shares, self.vertices**2).reshape(shape).astype(np.float64)
        walk[:, self.degree == 0] += self.teleport[:, None]
        return walk


def pagerank(
    sources: Edges,
    targets: Edges,
    vertices: int,
    damping: float = 0.85,
    dangling: Dangling = "uniform",
    teleport: Ranking | None = None,
    weights: NDArray[np.floating[Any]] | None = None,
) -> tuple[Ranking, float]:
    """The ranks of an edge list, float64[vertices], and a bound on their own L1 error."""
    matrix = GoogleMatrix(sources, targets, vertices, damping, dangling, teleport, weights)
    ranks = matrix.stationary()
    return ranks, matrix.error_bound(ranks)


def residual(
    sources: Edges,
    targets: Edges,
    values: Ranking,
    base: float,
    damping: float = 0.85,
    dangling: Dangling = "uniform",
    weights: NDArray[np.floating[Any]] | None = None,
) -> Ranking:
    """float64[n]: ``β·1 + αP̄ᵀy - y`` of an unnormalised vector ``y`` at ``β = base``, summed
    along the edges.
    """
    vertices = len(values)
    matrix = GoogleMatrix(sources, targets, vertices, damping, dangling, weights=weights)
    share = np.divide(values, matrix.degree, out=np.zeros_like(values), where=matrix.degree > 0)
    sent = share[matrix.sources] * matrix.weights
    followed = np.bincount(matrix.targets, weights=sent, minlength=vertices)
    return np.asarray(base + damping * followed - values, np.float64)
