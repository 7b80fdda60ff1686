"""Every built-in program, held against NetworkX after each batch of a random stream."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest

from liverank_gpu import PROGRAMS, Answer, EdgeBatch, Engine, Options
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.programs import Mode
from liverank_gpu.programs.algorithms import COMPONENTS, DISTANCES, LEVELS, NO_VERTEX, UNREACHED
from tests.gpu.graphs import batch_for, model_of
from tests.gpu.programs import oracle

EPSILON = 0.1


def _check(engine: Engine) -> None:
    """All but those that continue: see below, test_cores.py and test_continued_triangles.py."""
    graph = oracle.graph_of(engine)
    simple = oracle.undirected(graph)
    directed = engine.options.directed

    ranks = engine.run("pagerank", tolerance=1e-10)
    expected: dict[int, float] = nx.pagerank(graph, tol=1e-14, max_iter=1000)
    assert ranks.receipt.finished
    assert np.abs(ranks.values - oracle.by_id(expected, ranks.values)).sum() < 1e-8
    engine.update("auto")
    assert np.abs(engine.publish().to_numpy() - ranks.values).sum() < 1e-6

    communities = engine.run("labels", iterations=4)
    found = oracle.labels(graph, 4, directed)
    assert (communities.values == oracle.by_id(found, communities.values)).all()
    assert communities.summary["communities"] == len(set(found.values()))

    dense = engine.run("densest", epsilon=EPSILON)
    members = np.flatnonzero(dense.values)
    if simple.number_of_edges():
        density = simple.subgraph(members.tolist()).number_of_edges() / len(members)
        assert dense.summary["density"] == pytest.approx(density)
        assert density * 2.0 * (1.0 + EPSILON) >= oracle.densest(simple) - 1e-9
    else:
        assert dense.summary["density"] == 0.0


@pytest.mark.any_thread_order
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("directed", [True, False], ids=["directed", "undirected"])
def test_programs_agree_with_networkx_after_every_batch(
    backend: Backend, directed: bool, weighted: bool
) -> None:
    generator = np.random.default_rng(10 * directed + weighted)
    options = Options(directed=directed, weighted=weighted, vertex_order="degree")
    engine = Engine(replace(options, target_error=1e-7), backend)
    model = model_of(options)
    sources, targets = (60 * generator.random((2, 150)) ** 2).astype(np.int64)
    batch = EdgeBatch(sources, targets, vertices=60)
    model.apply(batch)
    engine.apply(batch)
    _check(engine)
    for removes in (False, True):
        batch = batch_for(generator, model, 30, removes)
        model.apply(batch)
        engine.apply(batch)
        assert engine.edges == len(model.edges)
        _check(engine)


@pytest.mark.any_thread_order
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("directed", [True, False], ids=["directed", "undirected"])
def test_programs_continue_where_edges_are_only_inserted_and_are_right_after_deletions(
    backend: Backend, directed: bool, weighted: bool
) -> None:
    generator = np.random.default_rng(3)
    options = Options(directed=directed, weighted=weighted, vertex_order="degree")
    engine = Engine(options, backend)
    answers: dict[str, Answer | None] = {
        program.name: None for program in (LEVELS, DISTANCES, COMPONENTS)
    }
    continued = dict.fromkeys(answers, 0)
    edges = np.empty((2, 0), np.int64)
    for step in range(10):
        new = (100 * generator.random((2, 90 if step == 0 else 8)) ** 2).astype(np.int64)
        lengths = np.asarray(generator.integers(1, 9, new.shape[1]) / 4.0, np.float32)
        deletes = step % 3 == 2
        gone = edges[:, generator.integers(0, edges.shape[1], 3)] if deletes else new[:, :0]
        vertices, weights = 100 + 3 * step, lengths if weighted else None
        change = engine.apply(EdgeBatch(new[0], new[1], gone[0], gone[1], vertices, weights))
        edges = np.concatenate([edges, new], axis=1)
        graph = oracle.graph_of(engine)
        expected = {
            "levels": oracle.levels(graph, 1),
            "distances": oracle.distances(graph, 1),
            "components": oracle.components(graph),
        }
        for name, after in answers.items():
            source: dict[str, Any] = {} if name == "components" else {"source": 1}
            mode: Mode = "asynchronous" if step % 2 else "synchronous"
            answer = engine.run(name, after=after, mode=mode, **source)
            assert (answer.values == oracle.by_id(expected[name], answer.values)).all()
            assert answer.receipt.finished
            may_start_again = deletes or (name == "distances" and change.reweighted > 0)
            assert after is None or answer.receipt.continued or may_start_again
            continued[name] += answer.receipt.continued
            answers[name] = answer
    assert min(continued.values()) >= 4


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_run_on_graphs_without_edges_and_without_vertices(
    backend: Backend, name: str
) -> None:
    engine = Engine(Options(), backend)
    if "source" not in PROGRAMS[name].parameters:
        assert len(engine.run(name).values) == 0
    engine.apply(EdgeBatch(vertices=3))
    expected = {
        "pagerank": [1 / 3] * 3,
        "levels": [0, UNREACHED, UNREACHED],
        "distances": [0.0, np.inf, np.inf],
        "components": [0, 1, 2],
        "labels": [0, 1, 2],
        "densest": [1, 1, 1],
        "support": [],
        "trussness": [],
        "dn-graphs": [],
    }
    values = engine.run(name).values
    if values.dtype.names:
        assert values["predecessor"].tolist() == [NO_VERTEX] * 3
        name, values = "distances", values["distance"]
    assert values.tolist() == pytest.approx(expected.get(name, [0, 0, 0]))


def test_long_rows_long_paths_and_hubs(backend: Backend) -> None:
    """Rows of every degree bin, and more supersteps than one call does."""
    engine = Engine(Options(), backend)
    count = 3000
    tips = np.arange(1, count, dtype=np.int64)
    hub, path = np.zeros(count - 1, np.int64), np.arange(count, count + 1500, dtype=np.int64)
    columns = [(hub, tips), (tips[:2500], hub[:2500]), (path[:-1], path[1:])]
    columns += [(np.full(400, 7), tips[:400]), (tips[::3][:300], np.full(300, 9))]
    sources, targets = (np.concatenate(each) for each in zip(*columns, strict=True))
    engine.apply(EdgeBatch(sources, targets))
    graph = oracle.graph_of(engine)
    start = engine.run("levels", source=count)
    assert (start.values == oracle.by_id(oracle.levels(graph, count), start.values)).all()
    assert start.receipt.supersteps == len(path)
    parts = engine.run("components")
    assert (parts.values == oracle.by_id(oracle.components(graph), parts.values)).all()
    ranks = engine.run("pagerank")
    expected = nx.pagerank(graph, tol=1e-13)
    assert np.abs(ranks.values - oracle.by_id(expected, ranks.values)).sum() < 1e-8
    triangles = engine.run("triangles")
    found = nx.triangles(oracle.undirected(graph))
    assert (triangles.values == oracle.by_id(found, triangles.values)).all()


def test_an_undirected_graph_sends_along_each_list_once(backend: Backend) -> None:
    u, v = np.triu_indices(64, 1)
    near = v - u <= 10
    engine = Engine(Options(directed=False), backend)
    engine.apply(EdgeBatch(u[near], v[near]))
    answer = engine.run("components")
    assert not answer.values.any()
    assert answer.receipt.edges >= 2 * near.sum()
