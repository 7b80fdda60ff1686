"""The algorithms of Wang et al. in NumPy, by ids, written from the paper and not from the engine.

The residual begins at β at the source (the paper's begins at 1, so it is β times theirs), or at β
times the distribution of several. Criteria and messages are those of its sections 2 to 4. What it
leaves to its supplement is from liverank_gpu.personalized.published: the formula of Ψ, and θ.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from liverank_gpu import Engine, PersonalizedQuery
from tests.gpu.graphs import arc_weights_of, arcs_of

Vector = NDArray[np.float64]


@dataclass
class WangReference:
    """One query.

    sources, targets, weights  the edges, loops among them, each once
    seeds                      float64[n], sum 1
    graph_edges                without the loops of ``self-loop``, which nobody reads
    """

    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    weights: Vector
    seeds: Vector
    damping: float
    target_error: float
    pushed_edge: float
    graph_edges: int
    scores: Vector = field(init=False)
    residual: Vector = field(init=False)

    def __post_init__(self) -> None:
        n = len(self.seeds)
        beta = 1.0 - self.damping
        share = self.target_error * beta
        self.threshold = share * beta / ((2.0 + share) * n)
        self.scores, self.residual = np.zeros(n), beta * self.seeds
        strengths = np.bincount(self.sources, self.weights, n)
        self.probabilities = self.weights / strengths[self.sources]
        self.incoming = [np.flatnonzero(self.targets == v) for v in range(n)]
        self.outgoing = [np.flatnonzero(self.sources == u) for u in range(n)]

    @property
    def updated(self) -> NDArray[np.int64]:
        """The vertices that meet the criterion."""
        return np.flatnonzero(self.residual > self.threshold)

    @property
    def list_edges(self) -> int:
        """Out-edges of these, without loops."""
        listed = np.isin(self.sources, self.updated) & (self.sources != self.targets)
        return int(listed.sum())

    @property
    def psi(self) -> float:
        return self.pushed_edge * self.list_edges - self.graph_edges

    def mode(self, method: str) -> str:
        if method == "hybrid":
            return "pushopt" if self.psi < 0.0 else "pull"
        return method

    def iterate(self, mode: str) -> None:
        listed = self.updated
        taken = np.zeros(len(self.seeds))
        taken[listed] = self.residual[listed]
        self.scores += taken
        self.residual[listed] = 0.0
        if mode == "pull":
            for v in range(len(self.seeds)):
                edges = self.incoming[v]
                messages = self.damping * taken[self.sources[edges]] * self.probabilities[edges]
                self.residual[v] += combined(messages)
            return
        for u in listed:
            edges = self.outgoing[u]
            messages = self.damping * taken[u] * self.probabilities[edges]
            self.residual[self.targets[edges]] += messages  # distinct targets

    def exact_error(self) -> float:
        """L1 distance of the normalised scores to those of a dense solve."""
        n = len(self.seeds)
        transposed = np.zeros((n, n))
        transposed[self.targets, self.sources] = self.probabilities
        system = np.eye(n) - self.damping * transposed
        exact = np.linalg.solve(system, (1.0 - self.damping) * self.seeds)
        return float(np.abs(exact / exact.sum() - self.scores / self.scores.sum()).sum())


def combined(messages: Vector) -> float:
    """The sum by binary combination (figure 1 c): the last part joins the rest, again and again."""
    spaces = messages.copy()
    count = len(spaces)
    while count > 1:
        middle = (count + 1) // 2
        spaces[: count - middle] += spaces[middle:count]
        count = middle
    return float(spaces[0]) if count else 0.0


def reference_of(engine: Engine, query: PersonalizedQuery, pushed_edge: float) -> WangReference:
    """A query to an engine, whose ids are 0 … n-1."""
    options = engine.options
    sources, targets = arcs_of(engine)
    weights, edges = arc_weights_of(engine).astype(np.float64), len(sources)
    if options.dangling == "self-loop":
        # every vertex has one
        others, vertices = sources != targets, np.arange(engine.vertices)
        sources = np.append(sources[others], vertices)
        targets = np.append(targets[others], vertices)
        weights = np.append(weights[others], np.ones(len(vertices)))
    seeds = np.bincount(query.seeds, minlength=engine.vertices) / len(query.seeds)
    target_error = query.target_error or options.target_error
    damping = options.damping if query.damping is None else query.damping
    graph = (sources, targets, weights, seeds)
    return WangReference(*graph, damping, target_error, pushed_edge, edges)
