"""What NetworkX says about a graph, by id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from liverank_gpu import Answer, Engine
from liverank_gpu.programs.algorithms import UNREACHED
from tests.gpu.graphs import arc_weights_of, arcs_of


def graph_of(engine: Engine) -> nx.DiGraph:
    """The arcs of an engine, with weights."""
    graph = nx.DiGraph()
    graph.add_nodes_from(np.setdiff1d(np.arange(engine.id_limit), engine.free_ids()).tolist())
    sources, targets = arcs_of(engine)
    weights = arc_weights_of(engine).astype(np.float64)
    graph.add_weighted_edges_from(
        zip(sources.tolist(), targets.tolist(), weights.tolist(), strict=True)
    )
    return graph


def undirected(graph: nx.DiGraph) -> nx.Graph:
    """Without direction, loops and weights."""
    simple = nx.Graph()
    simple.add_nodes_from(graph)
    simple.add_edges_from((u, v) for u, v in graph.edges() if u != v)
    return simple


def levels(graph: nx.DiGraph, source: int) -> dict[int, float]:
    found = nx.single_source_shortest_path_length(graph, source)
    return {v: found.get(v, UNREACHED) for v in graph}


def distances(graph: nx.DiGraph, source: int) -> dict[int, float]:
    found = nx.single_source_dijkstra_path_length(graph, source)
    return {v: found.get(v, np.inf) for v in graph}


def components(graph: nx.DiGraph) -> dict[int, float]:
    return {v: min(part) for part in nx.weakly_connected_components(graph) for v in part}


def labels(graph: nx.DiGraph, iterations: int, directed: bool) -> dict[int, float]:
    arcs = set(graph.edges) if directed else {(u, v) for u, v in graph.edges if u < v}
    return {v: v for v in graph} | communities(arcs, iterations)


def communities(edges: Collection[tuple[int, int]], iterations: int) -> dict[int, float]:
    """CDLP of LDBC Graphalytics, one vertex at a time, of vertices with edges. A directed edge
    counts once, and so does one without direction, given once: each end is the other's neighbour.
    """
    neighbours: dict[int, list[int]] = {end: [] for edge in edges for end in edge}
    for u, v in edges:
        if u != v:
            neighbours[u].append(v)
            neighbours[v].append(u)
    found: dict[int, float] = {v: v for v in neighbours}
    for _ in range(iterations):
        votes = {v: Counter(found[w] for w in near) for v, near in neighbours.items()}
        found = {
            v: min(count, key=lambda label: (-count[label], label)) if count else v
            for v, count in votes.items()
        }
    return found


def densest(graph: nx.Graph) -> float:
    """The density of the densest subgraph: Goldberg's minimum cuts, by bisection."""
    edges, vertices = graph.number_of_edges(), len(graph)
    if edges == 0:
        return 0.0
    low, high = edges / vertices, float(edges)
    while high - low > 1.0 / (vertices * (vertices + 1)):
        guess = (low + high) / 2.0
        network = nx.DiGraph()
        for v, degree in graph.degree():
            network.add_edge("s", v, capacity=edges)
            network.add_edge(v, "t", capacity=edges + 2.0 * guess - degree)
        for u, v in graph.edges():
            network.add_edge(u, v, capacity=1.0)
            network.add_edge(v, u, capacity=1.0)
        _, (side, _) = nx.minimum_cut(network, "s", "t")
        if len(side) > 1:
            low = max(guess, graph.subgraph(side - {"s"}).number_of_edges() / (len(side) - 1))
        else:
            high = guess
    return float(low)


def support(graph: nx.Graph) -> dict[tuple[int, int], int]:
    """The common neighbours of the ends of each edge, the lower end first."""
    return {
        (min(u, v), max(u, v)): len(list(nx.common_neighbors(graph, u, v))) for u, v in graph.edges
    }


def trussness(graph: nx.Graph) -> dict[tuple[int, int], int]:
    """The largest k so that the edge is in the k-truss."""
    found: dict[tuple[int, int], int] = {}
    k = 2
    while (truss := nx.k_truss(graph, k)).number_of_edges():
        found |= {(min(u, v), max(u, v)): k for u, v in truss.edges}
        k += 1
    return found


def dn_graphs(graph: nx.Graph) -> dict[tuple[int, int], tuple[int, int]]:
    """The lowest vertex of the DN-graph of each edge, and its λ, for those that are in one, by
    theorem 2.5.2: from an edge on, all that touch it and have its λ; none that touches these has
    more.
    """
    lambdas = {edge: k - 2 for edge, k in trussness(graph).items()}
    found: dict[tuple[int, int], tuple[int, int]] = {}
    seen: set[tuple[int, int]] = set()
    for first, density in lambdas.items():
        if first in seen:
            continue
        edges, vertices = {first}, set(first)
        grows = True
        while grows:
            touching = {e for e in lambdas if not vertices.isdisjoint(e)}
            more = {e for e in touching if lambdas[e] == density} - edges
            edges |= more
            vertices |= {v for e in more for v in e}
            grows = bool(more)
        seen |= edges  # from each of them on it would be the same
        if max(lambdas[e] for e in touching) == density:
            found |= dict.fromkeys(edges, (min(vertices), density))
    return found


def by_id(found: dict[int, float], values: NDArray[np.generic]) -> NDArray[np.generic]:
    """The values that an answer must have where vertices are, in its type; its own elsewhere."""
    expected = values.copy()
    expected[list(found)] = list(found.values())
    return expected


def of_edges(answer: Answer) -> dict[tuple[int, int], int]:
    """The value of each edge; the edges are in their order, each once."""
    assert answer.edges is not None
    sources, targets = answer.edges
    assert sources.dtype == targets.dtype == np.int64
    assert (sources < targets).all()
    assert (np.diff(sources << 32 | targets) > 0).all()
    assert len(sources) == len(answer.values)
    edges = zip(sources.tolist(), targets.tolist(), strict=True)
    return dict(zip(edges, answer.values.tolist(), strict=True))
