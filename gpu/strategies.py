"""The table of strategies: one loop (gpu/solver.py), different flags.

Sources: static and dynamic-frontier-prune, Sahu, "Efficient GPU Implementation of Static and
Incrementally Expanding DF-P PageRank" (2024), algorithms 1 and 2; dynamic-traversal, Desikan et al.
(2005).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpu.backends.base import Array
from gpu.errors import InvalidValue
from gpu.graph import Graph


@dataclass(frozen=True, slots=True)
class Strategy:
    """One row of the table.

    start     what the iteration starts from: ``uniform`` or the ``previous`` ranks
    affected  which vertices are recomputed: ``all``; those ``reachable`` from a touched source
              before or after the batch; or a ``frontier``, the out-neighbours of touched sources
              before or after it
    expands   a vertex that moved by more than frontier_tolerance makes its out-neighbours affected
    prunes    a vertex that moved by at most prune_tolerance leaves the affected set
    stop      ``change``: no normalised rank moved by more than tolerance; ``error_bound``: the
              proven bound is at most target_error
    """

    start: Literal["uniform", "previous"]
    affected: Literal["all", "reachable", "frontier"]
    expands: bool = False
    prunes: bool = False
    stop: Literal["change", "error_bound"] = "change"


TABLE: dict[str, Strategy] = {
    "auto": Strategy("previous", "all", stop="error_bound"),
    "static": Strategy("uniform", "all"),
    "naive-dynamic": Strategy("previous", "all"),
    "dynamic-traversal": Strategy("previous", "reachable"),
    "dynamic-frontier": Strategy("previous", "frontier", expands=True),
    "dynamic-frontier-prune": Strategy("previous", "frontier", expands=True, prunes=True),
}

STRATEGIES: tuple[str, ...] = tuple(TABLE)


def strategy_named(name: str) -> Strategy:
    """The row of this name. Raises InvalidValue that lists the names."""
    if name not in TABLE:
        raise InvalidValue("strategy", name, "one of " + ", ".join(STRATEGIES))
    return TABLE[name]


class Touched:
    """What batches have touched since the last solve: all that marking needs, on the device.

    sources          int32[…], vertices whose out-list or loop changed
    removed_targets  int32[…], targets of edges that are gone
    """

    def __init__(self) -> None:
        self.sources: list[Array] = []
        self.removed_targets: list[Array] = []

    def add(self, sources: Array, removed_targets: Array) -> None:
        self.sources.append(sources)
        self.removed_targets.append(removed_targets)

    def mark(self, graph: Graph, strategy: Strategy) -> Array:
        """uint8[n]: the initially affected vertices of a strategy that does not recompute all.

        The old lists are not needed. Out-neighbours of a source before the batch are those after it
        and the removed targets. A path of the old graph is lost only at a deleted edge, whose
        target is marked, so what was reachable before is reachable now from the sources and those
        targets.
        """
        backend, xp = graph.backend, graph.backend.xp
        changed = xp.zeros(graph.vertices, np.uint8)
        for sources in self.sources:
            changed[sources] = 1
        affected = xp.zeros(graph.vertices, np.uint8)
        backend.expand(graph, backend.compact(changed, graph.outgoing), affected)
        for targets in self.removed_targets:
            affected[targets] = 1
        if strategy.affected == "reachable":
            return _reachable(graph, affected)
        return affected


def _reachable(graph: Graph, flags: Array) -> Array:
    """uint8[n]: the flagged vertices and all that can be reached from them, by breadth-first
    search.
    """
    backend, xp = graph.backend, graph.backend.xp
    visited = flags.copy()
    frontier = flags
    while True:
        rows = backend.compact(frontier, graph.outgoing)
        if rows.count == 0:
            return visited
        reached = xp.zeros(graph.vertices, np.uint8)
        backend.expand(graph, rows, reached)
        frontier = reached & (visited ^ 1)
        visited |= reached
