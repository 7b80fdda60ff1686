"""Triangles and trussness that continue after batches, held against NetworkX."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest

from liverank_gpu import Answer, EdgeBatch, Engine, InvalidValue, Options
from liverank_gpu.operations.analysis import CountTriangles, LowerBounds
from liverank_gpu.operations.backend import Backend
from tests.gpu.doubles import looked_after
from tests.gpu.graphs import batch_for, model_of
from tests.gpu.observed import counted
from tests.gpu.programs import oracle

PROGRAMS = ("triangles", "clustering", "support", "trussness")


def _check(engine: Engine, answers: dict[str, Answer]) -> None:
    simple = oracle.undirected(oracle.graph_of(engine))
    triangles: dict[int, float] = nx.triangles(simple)
    found, total = answers["triangles"], sum(triangles.values()) / 3
    assert (found.values == oracle.by_id(triangles, found.values)).all()
    found = answers["clustering"]
    expected: dict[int, float] = nx.clustering(simple)
    assert np.abs(found.values - oracle.by_id(expected, found.values)).max(initial=0) < 1e-14
    assert found.summary["transitivity"] == pytest.approx(nx.transitivity(simple), rel=1e-14)
    average = sum(expected.values()) / max(1, len(simple))
    assert found.summary["average"] == pytest.approx(average, rel=1e-12)
    found, by_edge = answers["support"], oracle.support(simple)
    assert oracle.of_edges(found) == by_edge
    assert found.summary["largest"] == max(by_edge.values(), default=0)
    for name in PROGRAMS[:3]:
        assert answers[name].summary["triangles"] == total
    found, by_edge = answers["trussness"], oracle.trussness(simple)
    assert oracle.of_edges(found) == by_edge
    assert found.summary["largest"] == max(by_edge.values(), default=0)
    _check_order(simple, found)


def _check_order(simple: nx.Graph, answer: Answer) -> None:
    """Of no edge more triangles than its λ have on both sides a higher λ, or the same and no
    earlier place: what the search for edges whose trussness rises relies on.
    """
    places = answer.backend.device.to_host(answer.earlier.kept).tolist()
    found = oracle.of_edges(answer)
    keys = {
        edge: (trussness, place)
        for (edge, trussness), place in zip(found.items(), places, strict=True)
    }
    for u, v in simple.edges:
        own = keys[min(u, v), max(u, v)]
        sides = [
            min(keys[min(u, w), max(u, w)], keys[min(v, w), max(v, w)])
            for w in nx.common_neighbors(simple, u, v)
        ]
        assert sum(side >= own for side in sides) <= own[0] - 2


@pytest.mark.any_thread_order
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    "options",
    [Options(directed=False, vertex_order="degree"), Options(), Options(weighted=True)],
    ids=["undirected", "directed", "directed-weighted"],
)
def test_triangles_continue_after_insertions_and_deletions(
    backend: Backend, options: Options, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    engine = Engine(options, backend)
    model = model_of(options)
    count = int(generator.integers(60, 250))
    sources, targets = (40 * generator.random((2, count)) ** (1 + seed % 3)).astype(np.int64)
    batch = EdgeBatch(sources, targets, vertices=40)
    model.apply(batch)
    engine.apply(batch)
    answers = {name: engine.run(name) for name in PROGRAMS}
    continued = dict.fromkeys(PROGRAMS, 0)
    for step in range(8):
        for _ in range(1 + step % 2):
            size, removes = int(generator.integers(1, 16)), step % 3 == 2
            batch = batch_for(generator, model, size, removes)
            model.apply(batch)
            engine.apply(batch)
        answers = {name: engine.run(name, after=answers[name]) for name in PROGRAMS}
        _check(engine, answers)
        for name, answer in answers.items():
            continued[name] += answer.receipt.continued
    assert set(continued.values()) == {8}


@pytest.mark.parametrize("directed", [True, False], ids=["directed", "undirected"])
def test_trussness_rises_by_more_than_one_and_falls(backend: Backend, directed: bool) -> None:
    """In a strip of triangles a clique is built and taken away, far from the rest."""
    sources = np.concatenate([np.arange(3001), np.arange(3000)])
    strip = np.stack([sources, sources + 1 + (np.arange(6001) > 3000)])
    engine = Engine(Options(directed=directed), backend)
    engine.apply(EdgeBatch(*strip))
    first = engine.run("trussness")
    assert set(first.values.tolist()) == {3}
    clique = [(v, w) for v in range(100, 112) for w in range(v - 1, 99, -1)]
    engine.apply(EdgeBatch.of(clique[:-1]))
    nearly = engine.run("trussness", after=first)
    engine.apply(EdgeBatch.of(clique[-1:]))
    whole = engine.run("trussness", after=nearly)
    in_strip = set(map(tuple, strip.T.tolist()))
    engine.apply(EdgeBatch.of(delete=[pair for pair in clique if pair[::-1] not in in_strip]))
    again = engine.run("trussness", after=whole)
    expected = oracle.trussness(nx.complete_graph(12))
    for answer, most in ((nearly, 11), (whole, 12), (again, 3)):
        assert answer.receipt.continued
        assert answer.receipt.edges < 2000
        assert answer.summary["largest"] == most
    inside = {
        edge: k for edge, k in oracle.of_edges(whole).items() if 100 <= min(edge) <= max(edge) < 112
    }
    assert inside == {(u + 100, v + 100): k for (u, v), k in expected.items()}


def test_they_begin_again_where_continuing_reads_more(backend: Backend) -> None:
    engine = Engine(Options(directed=False), backend)
    engine.apply(EdgeBatch(*np.random.default_rng(3).integers(0, 400, (2, 4000))))
    answers = {name: engine.run(name) for name in PROGRAMS}
    engine.apply(EdgeBatch(*np.random.default_rng(4).integers(0, 400, (2, 500))))
    ran: list[CountTriangles] = []
    with counted(CountTriangles, ran):
        found = {name: engine.run(name, after=answers[name]) for name in PROGRAMS}
    assert {answer.receipt.continued for answer in found.values()} == {False}
    assert len(ran) == 4
    _check(engine, found)
    # and the next run continues from them
    engine.apply(EdgeBatch.of([(0, 1), (0, 2), (1, 2)]))
    lowered: list[LowerBounds] = []
    with counted(CountTriangles, ran), counted(LowerBounds, lowered):
        found = {name: engine.run(name, after=found[name]) for name in PROGRAMS}
    assert {answer.receipt.continued for answer in found.values()} == {True}
    assert (len(ran), len(lowered)) == (4, 0)
    _check(engine, found)


def test_bounds_that_are_not_final_are_not_continued(backend: Backend) -> None:
    engine = Engine(Options(directed=False), backend)
    engine.apply(EdgeBatch(*(30 * np.random.default_rng(3).random((2, 400)) ** 2).astype(np.int64)))
    first = engine.run("trussness", binary=0, iterations=1)
    assert not first.receipt.finished
    engine.apply(EdgeBatch.of([(0, 29)]))
    second = engine.run("trussness", after=first, binary=0, iterations=1)
    assert not second.receipt.continued


VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"binary": 0},
    {"partitions": 4},
    {"binary": 0, "partitions": 3},
)


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
    assert oracle.of_edges(final) == oracle.trussness(oracle.undirected(oracle.graph_of(engine)))
    for variant in VARIANTS:
        same = engine.run("trussness", **variant)
        assert same.values.tolist() == final.values.tolist()
        assert same.summary["partitions"] >= (variant.get("partitions", 1) > 1) + 1
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
