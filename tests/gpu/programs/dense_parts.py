"""Graphs of dense parts, and the DN-graphs of an answer."""

from __future__ import annotations

from itertools import combinations

import networkx as nx
import numpy as np

from liverank_gpu import Answer


def dn_graphs_of(answer: Answer) -> dict[tuple[int, int], tuple[int, int]]:
    """The lowest vertex of the DN-graph of each edge, and its λ; edges are in their order."""
    assert answer.edges is not None
    assert answer.lambdas is not None
    assert answer.values.dtype == answer.lambdas.dtype == np.int32
    sources, targets = answer.edges
    assert (np.diff(sources << 32 | targets) > 0).all()
    columns = sources, targets, answer.values, answer.lambdas
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return {(source, target): (label, density) for source, target, label, density in rows}


def overlapping_cliques(seed: int) -> nx.Graph:
    """Cliques that overlap, and edges at random; vertices have their names at random."""
    generator = np.random.default_rng(seed)
    vertices = int(generator.integers(6, 30))
    graph = nx.gnm_random_graph(vertices, int(generator.integers(1, 2 * vertices)), seed=seed)
    for _ in range(int(generator.integers(0, 4))):
        members = generator.choice(vertices, int(generator.integers(3, 7)), replace=False)
        graph.add_edges_from(combinations(members.tolist(), 2))
    return graph
