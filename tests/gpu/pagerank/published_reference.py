"""The paper's pseudocode (Sahu, algorithms 1, 2, 3 and 5) in NumPy, on normalised ranks by id.

Written from the paper, not from the engine; two lines differ from it, as its errata: δN[v] is set
to 1 in line 29 of algorithm 3, and ranks keep the values of the newest iteration where a vertex is
pruned, but for a reference `as_printed`. The paper has no dangling vertices: under ``uniform``
their rank joins C0, in each iteration where all vertices are recomputed, and else as it was.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from liverank_gpu import Options


class PublishedReference:
    """R of one graph through batches.

    edges       the set of edges, with the loops of ``self-loop``
    as_printed  whether ranks are in two vectors that are swapped after each iteration, so that a
                vertex which is not affected any more has one of its last two ranks in turns
    """

    def __init__(self, options: Options, vertices: int, *, as_printed: bool = False) -> None:
        self.as_printed = as_printed
        self.options = options
        self.vertices = vertices
        self.edges: set[tuple[int, int]] = set()
        if options.dangling == "self-loop":
            self.edges = {(v, v) for v in range(vertices)}
        # a vertex without edges has this rank before the first solve, up to a factor
        alone = 1.0 if options.dangling == "uniform" else 1.0 / (1.0 - options.damping)
        self.ranks = np.full(vertices, alone * (1.0 - options.damping) / vertices)
        self.teleport = (1.0 - options.damping) / vertices
        self.deletions: list[tuple[int, int]] = []
        self.insertions: list[tuple[int, int]] = []

    def apply(self, insert: list[tuple[int, int]], delete: list[tuple[int, int]]) -> None:
        loops = self.options.dangling == "self-loop"
        for u, v in delete:
            if (u, v) in self.edges and not (loops and u == v):
                self.edges.remove((u, v))
                self.deletions.append((u, v))
        for edge in insert:
            if edge not in self.edges:
                self.edges.add(edge)
                self.insertions.append(edge)

    def update(self, strategy: str) -> tuple[int, bool, int]:
        """(iterations, converged, vertices that were ever affected)."""
        options, n = self.options, self.vertices
        targets: list[list[int]] = [[] for _ in range(n)]
        for u, v in sorted(self.edges):
            targets[u].append(v)
        degree = np.array([len(row) for row in targets])
        sources, sinks = np.array(sorted(self.edges), np.int64).reshape(-1, 2).T
        loop = np.array([(v, v) in self.edges for v in range(n)])
        affected = np.ones(n, bool)
        if strategy == "static":
            self.ranks = np.full(n, 1.0 / n)
            self.teleport = (1.0 - options.damping) / n
        elif strategy != "naive-dynamic":
            affected = self._initially_affected(targets, strategy == "dynamic-traversal")
        full = strategy in ("static", "naive-dynamic")
        prunes = strategy == "dynamic-frontier-prune"
        expands = strategy.startswith("dynamic-frontier")
        self.deletions, self.insertions = [], []
        mass = self.ranks.sum()
        ever = affected.copy()
        swapped = self.ranks
        for iteration in range(1, options.max_iterations + 1):
            before = self.ranks
            if full and options.dangling == "uniform":
                dangling = before[degree == 0].sum()
                self.teleport = ((1 - options.damping) * mass + options.damping * dangling) / n
            sent = before / np.maximum(degree, 1)
            incoming = np.bincount(sinks, weights=sent[sources], minlength=n)
            after = self.teleport + options.damping * incoming
            if prunes:
                own = np.where(loop, sent, 0.0)
                scale = 1.0 - options.damping * loop / np.maximum(degree, 1)
                after = (self.teleport + options.damping * (incoming - own)) / scale
            after = np.where(affected, after, swapped if self.as_printed else before)
            swapped = before
            change = np.abs(after - before)
            relative = change / np.maximum(after, before)
            expanding = affected & (relative > options.frontier_tolerance)
            if prunes:
                affected = affected & (relative > options.prune_tolerance)
            self.ranks = after
            if change.max() <= options.tolerance * mass:
                return iteration, True, int(ever.sum())
            if expands and iteration < options.max_iterations:
                for u in np.flatnonzero(expanding).tolist():
                    affected[targets[u]] = True
                ever |= affected
        return options.max_iterations, False, int(ever.sum())

    def _initially_affected(self, targets: list[list[int]], reachable: bool) -> NDArray[np.bool_]:
        affected = np.zeros(self.vertices, bool)
        for u, v in self.deletions:
            affected[v] = True
            affected[targets[u]] = True
        for u, _ in self.insertions:
            affected[targets[u]] = True
        before = -1
        while reachable and int(affected.sum()) != before:
            before = int(affected.sum())
            for u in np.flatnonzero(affected).tolist():
                affected[targets[u]] = True
        return affected

    @property
    def normalised(self) -> NDArray[np.float64]:
        return np.asarray(self.ranks / self.ranks.sum())
