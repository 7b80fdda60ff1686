"""Personalized queries with a damping of their own, and answers among some vertices."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import get_args

import networkx as nx
import numpy as np
import pytest

from liverank_gpu import (
    EdgeBatch,
    Engine,
    InvalidValue,
    Options,
    PersonalizedQuery,
)
from liverank_gpu.generate import rmat
from liverank_gpu.operations.backend import Backend, Sizes
from liverank_gpu.personalized.resolve import METHODS, TARGETS
from liverank_gpu.types import Dangling, VertexOrder
from tests.gpu.doubles import looked_after
from tests.gpu.graphs import engine_on, random_graph
from tests.gpu.personalized.certified import assert_certified, engine_of, ranked

POLICIES: tuple[Dangling, ...] = get_args(Dangling)
DAMPINGS = (0.3, 0.5, 0.85, 0.97)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dangling", POLICIES)
def test_a_query_with_its_own_damping_is_that_of_networkx(
    dangling: Dangling, method: str, backend: Backend, long: bool
) -> None:
    options = Options(dangling=dangling, weighted=True, directed=False, max_iterations=5000)
    for seed in range(6 if long else 2 if backend.name == "cpu" else 1):
        engine = ranked(random_graph(seed + 2), options, backend)
        graph = nx.Graph()
        graph.add_nodes_from(range(engine.vertices))
        columns = (*engine.edge_list(), engine.edge_weights())
        graph.add_weighted_edges_from(zip(*(each.tolist() for each in columns), strict=True))
        if dangling == "self-loop":
            graph.add_weighted_edges_from((v, v, 1.0) for v in graph)
        for damping in DAMPINGS:
            exact = nx.pagerank(
                graph, damping, {0: 1.0, 1: 1.0}, 5000, 1e-12 / len(graph), weight="weight"
            )
            answer = engine.personalized(
                np.array([0, 1]), k=len(graph), method=method, target_error=1e-9, damping=damping
            )
            assert answer.error_bound <= 1e-9
            error = sum(
                abs(rank - exact[v])
                for v, rank in zip(answer.vertices.tolist(), answer.ranks.tolist(), strict=True)
            )
            assert error <= 1e-9, (damping, seed)


@pytest.mark.in_shards
@pytest.mark.any_thread_order
@pytest.mark.parametrize("dangling", POLICIES)
def test_queries_of_many_dampings_and_sets_are_answered_together(
    dangling: Dangling, backend: Backend
) -> None:
    generator = np.random.default_rng(5)
    for seed, weighted in ((3, False), (12, True)):
        engine = ranked(random_graph(seed), Options(dangling=dangling, weighted=weighted), backend)
        n = engine.vertices
        queries = [
            PersonalizedQuery(
                generator.integers(0, n, 3),
                None,
                int(generator.choice([1, 5, n])),
                "pull",
                1e-6,
                damping=DAMPINGS[i % 3],
                among=generator.integers(0, n, int(generator.choice([1, 4, n]))) if i % 2 else None,
                zeros=True,
            )
            for i in range(3 * backend.multivector.min_columns + 4)
        ]
        answers = engine.personalized_many(queries)
        for query, answer in zip(queries, answers, strict=True):
            assert answer.error_bound <= 1e-6
            assert_certified(engine, query, answer)


@pytest.mark.in_shards
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("method", METHODS)
def test_places_among_some_vertices_are_certified(
    method: str, target: str, backend: Backend
) -> None:
    generator = np.random.default_rng(6)
    scale = 9 if backend.name == "cpu" else 7
    sources, targets = rmat(scale, 4, seed=2)
    engine, n = engine_on(Options(vertex_order="degree"), backend), 1 << scale
    engine.apply(EdgeBatch(sources, targets, vertices=n))
    engine.update()
    for count in (1, 20, n // 2, n):
        among = generator.integers(0, n, count)
        for target_error in (1e-2, 1e-6):
            query = PersonalizedQuery(
                np.array([3, 9]), None, 10, method, target_error, target, among=among, zeros=True
            )
            answer = engine.personalized_many([query])[0]
            places = len(answer.vertices)
            proven = {
                "error": False,
                "settled-top-k": answer.settled >= places,
                "settled-set": answer.settled_set,
            }
            assert answer.error_bound <= target_error or proven[target]
            assert_certified(engine, query, answer)
    # what is certified among all is certified among some, in the same order
    everything = engine.personalized(np.array([3, 9]), k=n, method=method, target_error=1e-9)
    chosen = np.arange(0, n, 3)
    some = engine.personalized(
        np.array([3, 9]), k=n, method=method, target_error=1e-9, among=chosen
    )
    assert some.settled >= np.isin(everything.vertices[: everything.settled], chosen).sum()
    expected = everything.vertices[np.isin(everything.vertices, chosen)]
    assert np.array_equal(some.vertices[: some.settled], expected[: some.settled])


@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize("method", METHODS)
def test_places_among_many_vertices_are_found_on_the_device(
    method: str, order: VertexOrder, backend: Backend
) -> None:
    generator = np.random.default_rng(6)
    sources, targets = rmat(7, 4, seed=2)
    backend, device = looked_after(backend)
    copied, n, options = list[int](), 1 << 7, Options(vertex_order=order)
    all_copied, engine = (
        Engine(options, replace(backend, sizes=Sizes(copied=most))) for most in (n, 10)
    )
    for each in (all_copied, engine):
        each.apply(EdgeBatch(sources, targets, vertices=n))
        each.apply(EdgeBatch.of(remove=[5, 40]))
        each.update()
    device.copying = lambda values: copied.append(len(values))
    for count, k, target in product((30, n // 2, n), (1, 10, n), TARGETS):
        some = generator.permutation(n)[:count]
        among = None if count == n else np.setdiff1d(some, engine.free_ids())
        query = PersonalizedQuery(
            np.array([3, 9]), None, k, method, 1e-4, target, among=among, zeros=True
        )
        listed = all_copied.personalized_many([query])[0]
        copied.clear()
        answer = engine.personalized_many([query])[0]
        if backend.name == "cuda":
            assert max(copied) <= (count if count < n // 3 else max(10, k + 1))
        assert np.array_equal(answer.vertices, listed.vertices)
        assert answer.ranks == pytest.approx(listed.ranks, abs=1e-15)
        differ = 0.0 if backend.repeatable else 1e-9  # from one run to the next
        assert answer.error_bound == pytest.approx(listed.error_bound, rel=differ, abs=0.0)
        for name in ("settled", "settled_set", "groups", "ties", "iterations"):
            assert getattr(answer, name) == getattr(listed, name), name


def test_watched_places_among_some_vertices_follow_the_graph(backend: Backend) -> None:
    engine = engine_of(random_graph(7), backend)
    among = np.arange(0, engine.vertices, 2)
    query = PersonalizedQuery(np.array([1]), None, 5, "hybrid", 1e-6, damping=0.5, among=among)
    engine.watch("some", query)
    assert_certified(engine, query, engine.watched("some"))
    best = int(engine.watched("some").vertices[0])
    engine.apply(EdgeBatch.of(insert=[(1, int(v)) for v in among[:4]], remove=[best]))
    engine.refresh_watched()
    answer = engine.watched("some")
    assert best not in answer.vertices.tolist()
    assert np.isin(answer.vertices, among).all()
    # the id comes back as another vertex, which the query is not about
    engine.apply(EdgeBatch.of(insert=[(1, best)]))
    engine.refresh_watched()
    assert best not in engine.watched("some").vertices.tolist()


@pytest.mark.in_shards
def test_what_a_watched_query_is_among_can_change(backend: Backend) -> None:
    engine = engine_of(random_graph(7), backend)
    among = np.arange(0, engine.vertices, 2)
    query = PersonalizedQuery(np.array([1]), None, 5, "hybrid", 1e-6, damping=0.5, among=among)
    engine.watch("some", query)
    before = engine.watched("some")
    engine.refresh_watched()
    assert engine.watched("some").vertices is before.vertices  # as long as the places stay
    others = PersonalizedQuery(np.array([1]), None, 5, damping=0.5, among=among[:-1] + 1)
    engine.restrict("some", among[:-1] + 1)
    engine.refresh_watched()
    assert_certified(engine, others, engine.watched("some"))
    engine.apply(EdgeBatch.of(insert=[(1, 3), (1, 5)]))
    engine.refresh_watched()
    assert_certified(engine, others, engine.watched("some"))
    for wrong in (np.array([], np.int64), np.array([-1]), np.array([engine.vertices])):
        with pytest.raises(InvalidValue, match="among"):
            engine.restrict("some", wrong)


def test_thousands_of_seeds_are_one_query(backend: Backend) -> None:
    sources, targets = rmat(12, 8 if backend.name != "cuda" else 1, seed=3)
    engine = Engine(Options(directed=False), backend)
    engine.apply(EdgeBatch(sources, targets, vertices=4096))
    engine.update()
    generator = np.random.default_rng(1)
    weights = generator.random(2000)
    for method in METHODS:
        one, many = (
            engine.personalized(
                generator.permutation(4096)[:seeds],
                weights[:seeds],
                method=method,
                target_error=1e-4,
                damping=0.5,
            )
            for seeds in (1, 2000)
        )
        assert many.error_bound <= 1e-4
        # a sweep visits every vertex, however many seeds there are
        assert many.iterations <= one.iterations + 2 or method == "push"


@pytest.mark.in_shards
def test_a_damping_or_a_set_that_cannot_be_is_refused(backend: Backend) -> None:
    engine = engine_of(random_graph(1), backend)
    for arguments, field in (
        ({"damping": 1.0}, "damping"),
        ({"damping": 0.0}, "damping"),
        ({"damping": float("nan")}, "damping"),
        ({"among": np.array([], np.int64)}, "among"),
        ({"among": np.array([0, -1])}, "among[1]"),
        ({"among": np.array([10_000])}, "among[0]"),
    ):
        with pytest.raises(InvalidValue) as caught:
            engine.personalized(np.array([0]), **arguments)
        assert caught.value.field == field
