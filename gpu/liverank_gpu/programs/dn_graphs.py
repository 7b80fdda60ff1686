"""DN-graphs: connected edges of equal λ that no edge of a higher λ touches.

By theorem 2.5.2 of Zhang's thesis, see liverank_gpu.programs.algorithms, which says what λ of an
edge is. A vertex has edges of its highest λ in one such subgraph at most, so a label of vertices is
enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from liverank_gpu.operations.device import Array

EdgeParts = Callable[[], Iterable[tuple[Array, Array, Array]]]
"""The edges, some at a time: sources and targets, int64[k] each, and λ, int32[k]. Each call begins
again.
"""

IN_NONE = -1
"""The label of a vertex that is in no DN-graph."""

BYTES_AT_ONCE = 96
"""Of an edge of a part, at most, besides the part itself."""


def dn_graph_labels(xp: Any, vertices: int, parts: EdgeParts) -> tuple[Array, Array]:
    """int32[n] each, by id: the lowest vertex of the DN-graph that each vertex is in, or IN_NONE;
    and the highest λ of its edges, -1 without edges.
    """
    highest = xp.full(vertices, -1, np.int32)
    for sources, targets, lambdas in parts():
        for ends in (sources, targets):
            xp.maximum.at(highest, ends, lambdas)
    touched = xp.zeros(vertices, bool)
    for sources, targets, lambdas in parts():
        at_source, at_target = highest[sources] == lambdas, highest[targets] == lambdas
        touched[sources[at_source & ~at_target]] = True
        touched[targets[at_target & ~at_source]] = True
    labels = xp.arange(vertices, dtype=np.int32)
    while _joined(xp, labels, highest, parts):
        while bool((labels[labels] != labels).any()):
            labels = labels[labels]
    refused = xp.zeros(vertices, bool)
    refused[labels[touched]] = True
    labels[refused[labels] | (highest < 0)] = IN_NONE
    return labels, highest


def _joined(xp: Any, labels: Array, highest: Array, parts: EdgeParts) -> bool:
    """Lowers the label of each label that an edge joins to a lower one. Returns whether one was."""
    joined = False
    for sources, targets, lambdas in parts():
        inside = (highest[sources] == lambdas) & (highest[targets] == lambdas)
        ends = labels[sources[inside]], labels[targets[inside]]
        low, high = xp.minimum(*ends), xp.maximum(*ends)
        differ = low != high
        if bool(differ.any()):
            xp.minimum.at(labels, high[differ], low[differ])
            joined = True
    return joined


def dn_graph_edges(
    labels: Array, highest: Array, parts: EdgeParts
) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Those of the parts that are in DN-graphs: sources and targets, int64[k] each, the lowest
    vertex of the DN-graph and its λ, int32[k] each.
    """
    for sources, targets, lambdas in parts():
        inside = (highest[sources] == lambdas) & (highest[targets] == lambdas)
        inside &= labels[sources] != IN_NONE
        first = sources[inside]
        yield first, targets[inside], labels[first], lambdas[inside]
