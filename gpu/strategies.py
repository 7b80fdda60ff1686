"""The table of strategies, and which vertices they start from; gpu/solver.py runs them.

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
              before or after the batch; a ``frontier``, the out-neighbours of touched sources
              before or after it; or those whose ``residual`` is above a falling threshold, until
              the proven bound is at most target_error
    expands   a vertex that moved by more than frontier_tolerance makes its out-neighbours affected
    prunes    a vertex that moved by at most prune_tolerance leaves the affected set

    All but ``residual`` stop when no normalised rank moved by more than tolerance.
    """

    start: Literal["uniform", "previous"]
    affected: Literal["all", "reachable", "frontier", "residual"]
    expands: bool = False
    prunes: bool = False


TABLE: dict[str, Strategy] = {
    "auto": Strategy("previous", "residual"),
    "static": Strategy("uniform", "all"),
    "naive-dynamic": Strategy("previous", "all"),
    "dynamic-traversal": Strategy("previous", "reachable"),
    "dynamic-frontier": Strategy("previous", "frontier", expands=True),
    "dynamic-frontier-prune": Strategy("previous", "frontier", expands=True, prunes=True),
    "residual": Strategy("previous", "residual"),
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

    def mark(self, graph: Graph, strategy: Strategy, flags: Array) -> Array:
        """int32[k]: the initially affected vertices of a strategy that starts from some.

        flags  int32[n], all 0; set for the vertices returned

        The old lists are not needed. Out-neighbours of a source before the batch are those after it
        and the removed targets. A path of the old graph is lost only at a deleted edge, whose
        target is marked, so what was reachable before is reachable now from the sources and those
        targets.
        """
        backend, xp = graph.backend, graph.backend.xp
        if not self.sources:
            return xp.zeros(0, np.int32)
        sources = xp.unique(xp.concatenate(self.sources))
        targets = xp.unique(xp.concatenate(self.removed_targets)).astype(np.int32)
        affected = backend.expand(graph, sources, flags)
        targets = targets[flags[targets] == 0]
        flags[targets] = 1
        affected = xp.concatenate([affected, targets])
        if strategy.affected == "reachable":
            return _reachable(graph, affected, flags)
        return affected


_BACKWARDS = 8
"""A frontier with more than one in so many of all edges is met from the unvisited vertices."""


def next_to(graph: Graph, frontier: Array, flags: Array, frontier_flags: Array) -> Array:
    """int32[…]: the out-neighbours of some vertices that had no flag, and have one now.

    frontier        int32[k]
    flags           int32[n]
    frontier_flags  uint8[n], all 0, and left so
    """
    backend = graph.backend
    edges = int(graph.outgoing.length[frontier].sum(dtype=np.int64))
    if edges * _BACKWARDS <= graph.edges:
        return backend.expand(graph, frontier, flags)
    frontier_flags[frontier] = 1
    found = backend.reached(graph, frontier_flags, flags)
    frontier_flags[frontier] = 0
    return found


def _reachable(graph: Graph, found: Array, flags: Array) -> Array:
    """int32[k]: the flagged vertices `found` and all that can be reached from them, flagged too, by
    breadth-first search: forwards from a small frontier, backwards to a large one.
    """
    xp = graph.backend.xp
    lists, frontier_flags = [found], xp.zeros(graph.vertices, np.uint8)
    while len(found):
        found = next_to(graph, found, flags, frontier_flags)
        lists.append(found)
    return xp.concatenate(lists)
