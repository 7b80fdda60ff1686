"""A graph of igraph kept in liverank, and ranks from there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import igraph
import numpy as np

from liverank import Client, SetChange

Ranks = np.ndarray[Any, np.dtype[np.float64]]


class Mirror:
    """An undirected graph in liverank that follows one of igraph by its vertices' names.

    edges  the weight of each edge that was sent
    """

    def __init__(self, client: Client, graph: str, damping: float) -> None:
        self._client = client
        self._graph = graph
        if graph in {each.graph for each in client.graphs()}:
            client.drop(graph)
        client.create(graph, weighted=True, directed=False, damping=damping, target_error=1e-9)
        client.put_set(graph, "passages", [])
        self.edges: dict[tuple[str, str], float] = {}
        self._vertices: set[str] = set()

    def sync(self, graph: igraph.Graph, weight: str | None = None) -> int:
        """Sends what changed as one batch; returns its version. igraph follows parallel edges each,
        so their weights add up, and a loop from both of its ends.
        """
        names = graph.vs["name"] if graph.vcount() else []
        weights = graph.es[weight] if weight else [1.0] * graph.ecount()
        edges: Counter[tuple[str, str]] = Counter()
        for (one, other), each in zip(graph.get_edgelist(), weights, strict=True):
            first, second = sorted((names[one], names[other]))
            edges[first, second] += float(each) * (2 if one == other else 1)
        changed = [(*pair, each) for pair, each in edges.items() if self.edges.get(pair) != each]
        gone = [pair for pair in self.edges if pair not in edges]
        new = [name for name in names if name not in self._vertices]
        passages = [name for name in new if name.startswith("chunk-")]
        receipt = self._client.send(
            self._graph,
            insert=changed,
            delete=gone,
            vertices=new,
            sets={"passages": SetChange(add=passages)},
        )
        self.edges = dict(edges)
        self._vertices.update(new)
        return receipt.version

    def ranks(
        self, names: Iterable[str], reset: Ranks, k: int, damping: float, among: str | None = None
    ) -> dict[str, float]:
        """The k vertices of highest rank, best first; only those of a set if `among` names one.

        names, reset  of all vertices: where the walk restarts, in proportion to `reset`
        """
        seeds = [(name, each) for name, each in zip(names, reset, strict=True) if each > 0.0]
        table = {"seed": [name for name, _ in seeds], "weight": [float(each) for _, each in seeds]}
        found = self._client.personalized_table(
            self._graph, table, k, damping=damping, among=among
        ).to_arrow()
        return dict(zip(found["vertex"].to_pylist(), found["rank"].to_pylist(), strict=True))


def same_places(found: dict[str, float], expected: dict[str, float], count: int = 20) -> None:
    """Raises AssertionError unless the first places are the same. Vertices of equal rank, to the
    seventh digit, may change places.
    """
    for place, (name, rank) in enumerate(list(found.items())[:count]):
        there = list(expected)[place]
        close = abs(expected[name] - expected[there]) <= 1e-7
        assert name == there or close, f"place {place + 1}: {name}, expected {there}"
        assert abs(rank - expected[name]) <= 1e-7, f"{name}: {rank}, expected {expected[name]}"
