"""DN-graphs of every graph, held against the theorem and the definition in plain Python."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, pairwise

import networkx as nx
import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Engine, Options
from liverank_gpu.operations.backend import Backend
from tests.gpu.graphs import Model, random_batch
from tests.gpu.programs import oracle
from tests.gpu.programs.dense_parts import dn_graphs_of, overlapping_cliques

Edge = tuple[int, int]


def _engine(graph: nx.Graph, backend: Backend) -> Engine:
    engine = Engine(Options(directed=False), backend)
    sources, targets = np.array(list(graph.edges), np.int64).reshape(-1, 2).T
    engine.apply(EdgeBatch(sources, targets, vertices=len(graph)))
    return engine


@pytest.mark.parametrize("seed", range(30))
def test_dn_graphs_are_those_of_the_theorem(backend: Backend, seed: int) -> None:
    graph = overlapping_cliques(seed)
    expected = oracle.dn_graphs(graph)
    answer = _engine(graph, backend).run("dn-graphs")
    assert dn_graphs_of(answer) == expected
    assert answer.summary["graphs"] == len(set(expected.values()))
    assert answer.summary["largest"] == max(density for _, density in expected.values())
    assert answer.receipt.finished


@pytest.mark.parametrize("directed", [True, False], ids=["directed", "undirected"])
def test_dn_graphs_after_batches_and_removals(backend: Backend, directed: bool) -> None:
    generator = np.random.default_rng(4 + directed)
    engine = Engine(Options(directed=directed, vertex_order="degree"), backend)
    model = Model("uniform", directed)
    sources, targets = (30 * generator.random((2, 150)) ** 2).astype(np.int64)
    batch = EdgeBatch(sources, targets, vertices=34)
    for removes in (False, True, True):
        model.apply(batch)
        engine.apply(batch)
        simple = oracle.undirected(oracle.graph_of(engine))
        assert dn_graphs_of(engine.run("dn-graphs")) == oracle.dn_graphs(simple)
        batch = random_batch(generator, model, 30, removes)


def _least_shared(edges: Iterable[Edge]) -> int:
    """The least number of common neighbours of the ends of an edge, in the graph of these edges."""
    return min(oracle.support(nx.Graph(edges)).values())


def _induced_lambdas(graph: nx.Graph) -> dict[Edge, int]:
    """λ of each edge: the largest one of all subgraphs that have this edge, and all edges between
    their vertices. One without connections has no more than each of its parts.
    """
    found = dict.fromkeys(oracle.support(graph), 0)
    for size in range(3, len(graph) + 1):
        for vertices in combinations(graph, size):
            if support := oracle.support(graph.subgraph(vertices)):
                density = min(support.values())
                found |= {edge: max(found[edge], density) for edge in support}
    return found


def test_a_chord_between_antipodes_lowers_lambda_of_induced_subgraphs(backend: Backend) -> None:
    """Every edge of the icosahedron is in two triangles, and the chord in none: the subgraph of its
    edges leaves the chord out, one of its vertices cannot.
    """
    graph = nx.icosahedral_graph()
    [antipode] = nx.descendants_at_distance(graph, 0, 3)
    graph.add_edge(0, antipode)
    engine = _engine(graph, backend)
    chord = (0, antipode)
    sides = {edge: (0, 2) for edge in oracle.support(graph) if edge != chord}
    assert dn_graphs_of(engine.run("dn-graphs")) == sides
    trussness = engine.run("trussness").values - 2
    assert sorted(trussness.tolist()) == [0] + [2] * 30
    assert _induced_lambdas(graph) == dict.fromkeys(sides, 1) | {chord: 0}


def test_a_clique_that_touches_a_larger_one_is_no_dn_graph(backend: Backend) -> None:
    """By the theorem; by the definition, and lemma 2.5.1, the triangle is one too."""
    graph = nx.complete_graph(4)
    graph.add_edges_from([(3, 4), (4, 5), (3, 5), (6, 7)])
    found = dn_graphs_of(_engine(graph, backend).run("dn-graphs"))
    assert found == dict.fromkeys(combinations(range(4), 2), (0, 2)) | {(6, 7): (6, 0)}
    for vertex in range(3):
        assert _least_shared([(3, 4), (4, 5), (3, 5), (vertex, 3)]) == 0


def test_labels_join_along_a_path_and_around_a_wheel(backend: Backend) -> None:
    """Vertices are named so that labels pass along in many rounds."""
    names = np.random.default_rng(2).permutation(400).tolist()
    path = list(pairwise(names))
    wheel = [(v + 400, w + 400) for v, w in nx.wheel_graph(60).edges]
    graph = nx.Graph()
    graph.add_nodes_from(range(460))
    graph.add_edges_from(path + wheel)
    answer = _engine(graph, backend).run("dn-graphs")
    assert answer.summary == {"graphs": 2.0, "largest": 1.0}
    assert set(dn_graphs_of(answer).values()) == {(0, 0), (400, 1)}
    assert len(answer.values) == graph.number_of_edges()
