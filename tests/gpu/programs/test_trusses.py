"""Triangles and trussness of every edge, held against NetworkX."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Engine, InvalidValue, Options
from liverank_gpu.operations.backend import Backend
from tests.gpu.doubles import looked_after
from tests.gpu.graphs import Model, random_batch
from tests.gpu.programs import oracle

VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"binary": 0},
    {"partitions": 4},
    {"binary": 0, "partitions": 3},
)


def _check(engine: Engine) -> None:
    simple = oracle.undirected(oracle.graph_of(engine))
    support = engine.run("support")
    assert oracle.of_edges(support) == oracle.support(simple)
    assert support.summary["triangles"] == sum(nx.triangles(simple).values()) / 3
    expected = oracle.trussness(simple)
    for variant in VARIANTS:
        answer = engine.run("trussness", **variant)
        assert oracle.of_edges(answer) == expected, variant
        assert answer.receipt.finished
        assert answer.summary["largest"] == max(expected.values(), default=0)
        assert answer.summary["partitions"] >= (variant.get("partitions", 1) > 1) + 1


@pytest.mark.any_thread_order
@pytest.mark.parametrize("directed", [True, False], ids=["directed", "undirected"])
def test_trusses_agree_with_networkx_after_every_batch(backend: Backend, directed: bool) -> None:
    generator = np.random.default_rng(2 + directed)
    engine = Engine(Options(directed=directed, vertex_order="degree"), backend)
    model = Model("uniform", directed)
    sources, targets = (40 * generator.random((2, 300)) ** 2).astype(np.int64)
    batch = EdgeBatch(sources, targets, vertices=45)
    for removes in (False, True, True):
        model.apply(batch)
        engine.apply(batch)
        _check(engine)
        batch = random_batch(generator, model, 40, removes)


def _cliques(backend: Backend, size: int) -> Engine:
    """Two cliques that share two vertices, and a hub without triangles."""
    engine = Engine(Options(directed=False), backend)
    clique = np.array([(v, w) for v in range(size) for w in range(v)])
    spokes = np.stack([np.zeros(300, np.int64), np.arange(300) + 2 * size], axis=1)
    edges = np.concatenate([clique, clique + size - 2, spokes])
    engine.apply(EdgeBatch(edges[:, 0], edges[:, 1]))
    return engine


def test_every_edge_of_a_clique_has_its_size(backend: Backend) -> None:
    engine, size = _cliques(backend, 40), 40
    answer = engine.run("trussness")
    assert answer.edges is not None
    spoke = answer.edges[1] >= 2 * size
    assert (answer.values == np.where(spoke, 2, size)).all()
    # the shared edge has more triangles than either clique gives it
    assert engine.run("support").summary["largest"] == 2 * (size - 2)


def test_bounds_that_are_not_final_are_bounds(backend: Backend) -> None:
    generator = np.random.default_rng(9)
    engine = Engine(Options(directed=False), backend)
    sources, targets = (50 * generator.random((2, 900)) ** 2).astype(np.int64)
    engine.apply(EdgeBatch(sources, targets))
    final = engine.run("trussness")
    support = engine.run("support").values
    first = engine.run("trussness", binary=0, iterations=1)
    assert not first.receipt.finished
    assert first.receipt.supersteps == 1
    assert (first.values >= final.values).all()
    assert (first.values > final.values).any()
    assert (first.values <= support + 2).all()
    # one at a time takes more iterations than bisection
    slow = engine.run("trussness", binary=0)
    assert slow.receipt.supersteps > final.receipt.supersteps


def test_lists_that_do_not_fit_are_made_again_in_parts(backend: Backend) -> None:
    backend, device = looked_after(backend)
    engine = _cliques(backend, 70)
    whole = engine.run("trussness")
    assert whole.summary["partitions"] == 1
    with device.with_only(device.required):  # a program, but not its lists of triangles too
        parts = engine.run("trussness")
    assert parts.summary["partitions"] > 1
    assert (parts.values == whole.values).all()


def test_an_answer_of_edges_stays_as_it_was(backend: Backend) -> None:
    engine = _cliques(backend, 5)
    answer = engine.run("trussness")
    expected = oracle.trussness(oracle.undirected(oracle.graph_of(engine)))
    engine.apply(EdgeBatch.of(delete=[(0, 1), (1, 2)]))
    assert oracle.of_edges(answer) == expected
    assert engine.run("components").edges is None


@pytest.mark.parametrize("name", ["binary", "iterations", "partitions"])
def test_parameters_of_trusses_are_checked(name: str) -> None:
    engine = Engine(Options(), "cpu")
    for value in (-1, 1.5):
        given: dict[str, Any] = {name: value}
        with pytest.raises(InvalidValue, match=name):
            engine.run("trussness", **given)
