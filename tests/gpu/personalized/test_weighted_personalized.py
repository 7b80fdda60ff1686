"""Personalized ranks of weighted graphs: every method, alone, in blocks and watched, deflated along
the global ranks, against NetworkX and liverank_gpu.verify.
"""

from __future__ import annotations

from itertools import product
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch, Engine, Options, Personalized, PersonalizedQuery, verify
from liverank_gpu.operations.backend import Backend
from liverank_gpu.personalized.resolve import METHODS
from liverank_gpu.types import Dangling
from tests.gpu.graphs import (
    FAMILIES,
    WeightedModel,
    arc_weights_of,
    arcs_of,
    networkx_ranks,
    random_graph,
    some_weights,
    weighted_batch,
)

POLICIES: tuple[Dangling, ...] = get_args(Dangling)


def _engine(
    vertices: int,
    edges: np.ndarray[tuple[int, int], np.dtype[np.int64]],
    options: Options,
    backend: Backend,
) -> Engine:
    engine = Engine(options, backend)
    weights = some_weights(np.random.default_rng(2), len(edges))
    engine.apply(EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices, weights=weights))
    engine.update()
    return engine


def _exact(engine: Engine, query: PersonalizedQuery) -> tuple[NDArray[np.float64], float]:
    restarts = np.bincount(query.seeds, minlength=engine.vertices) / len(query.seeds)
    return verify.pagerank(
        *arcs_of(engine),
        engine.vertices,
        engine.options.damping,
        engine.options.dangling,
        restarts,
        arc_weights_of(engine),
    )


def _assert_certified(engine: Engine, query: PersonalizedQuery, answer: Personalized) -> None:
    _assert_near(*_exact(engine, query), answer)


def _assert_near(exact: NDArray[np.float64], oracle_bound: float, answer: Personalized) -> None:
    """The error is within the bound, and the settled places are right."""
    found = np.zeros(len(exact))
    found[answer.vertices] = answer.ranks
    assert np.abs(found - exact).sum() <= answer.error_bound + oracle_bound
    proven = answer.vertices[: answer.settled]
    others = np.delete(exact, proven).max(initial=-1.0)
    behind = np.maximum.accumulate(np.append(exact[proven], others)[::-1])[::-1][1:]
    assert (exact[proven] > behind - 1e-13).all()


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("dangling", POLICIES)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_method_is_certified_on_every_weighted_family(
    family: str, dangling: Dangling, directed: bool, backend: Backend
) -> None:
    vertices, edges = FAMILIES[family]()
    options = Options(dangling=dangling, weighted=True, directed=directed)
    engine = _engine(vertices, edges, options, backend)
    seeds = np.random.default_rng(1).integers(0, vertices, 3)
    exact = _exact(engine, PersonalizedQuery(seeds))
    for method, target_error in product(METHODS, (1e-3, 1e-7)):
        query = PersonalizedQuery(seeds, None, vertices, method, target_error)
        answer = engine.personalized_many([query])[0]
        assert answer.error_bound <= target_error, method
        _assert_near(*exact, answer)


@pytest.mark.any_thread_order
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("dangling", POLICIES)
def test_weighted_queries_are_those_of_networkx_alone_and_in_a_block(
    dangling: Dangling, directed: bool, backend: Backend, long: bool
) -> None:
    options = Options(dangling=dangling, weighted=True, directed=directed)
    for seed in range(4 if long else 2 if backend.name == "cpu" else 1):
        pairs = vertices, edges = random_graph(seed + 2)
        engine = _engine(vertices, edges, options, backend)
        weights = some_weights(np.random.default_rng(2), len(edges))
        asked = [
            PersonalizedQuery(np.array([v % vertices]), None, vertices, "pull", 1e-7)
            for v in range(8)
        ]
        alone = [
            engine.personalized(np.array([0]), k=vertices, method=m, target_error=1e-10)
            for m in METHODS
        ]
        exact = networkx_ranks(pairs, dangling, 0.85, weights, {0: 1.0}, directed)
        for answer in alone:
            ranks = np.zeros(vertices)
            ranks[answer.vertices] = answer.ranks
            assert np.abs(ranks - exact).sum() <= 1e-9
        for query, answer in zip(asked, engine.personalized_many(asked), strict=True):
            assert answer.error_bound <= 1e-7
            _assert_certified(engine, query, answer)


def test_a_block_on_rows_of_every_length_is_certified(backend: Backend) -> None:
    # hubs that a device sums in chunks, by a warp and by half a warp
    generator = np.random.default_rng(4)
    vertices = 6_000
    edges = [generator.integers(0, vertices, (12_000, 2))]
    for hub, count in ((0, 5_000), (1, 1_500), (2, 200), (3, 30)):
        edges.append(np.stack([generator.permutation(vertices)[:count], np.full(count, hub)], 1))
        edges.append(edges[-1][: count // 2, ::-1])
    engine = _engine(
        vertices, np.unique(np.concatenate(edges), axis=0), Options(weighted=True), backend
    )
    asked = [
        PersonalizedQuery(np.array([v]), None, vertices, "pull", 1e-6)
        for v in range(max(4, backend.multivector.min_columns))
    ]
    for query, answer in zip(asked, engine.personalized_many(asked), strict=True):
        assert answer.error_bound <= 1e-6
        _assert_certified(engine, query, answer)


@pytest.mark.parametrize("scale", [1e-36, 1.0, 1e36])
def test_queries_on_weights_of_any_size_are_certified(scale: float, backend: Backend) -> None:
    vertices, edges = random_graph(7)
    engine = Engine(Options(weighted=True), backend)
    weights = (scale * np.random.default_rng(2).uniform(0.5, 1.0, len(edges))).astype(np.float32)
    engine.apply(EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices, weights=weights))
    engine.update()
    asked = [PersonalizedQuery(np.array([v]), None, vertices, "pull", 1e-6) for v in range(8)]
    answers = engine.personalized_many(asked)
    for query, answer in zip(asked, answers, strict=True):
        _assert_certified(engine, query, answer)
    # a block sweeps for all of its queries, and is used where it can represent what it sends
    sweeps = len({answer.iterations for answer in answers})
    assert (sweeps == 1) == (scale == 1.0)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("dangling", POLICIES)
def test_running_and_watched_queries_follow_reweighted_edges(
    dangling: Dangling, directed: bool, backend: Backend
) -> None:
    generator = np.random.default_rng(8)
    options = Options(dangling=dangling, weighted=True, directed=directed)
    engine, model = Engine(options, backend), WeightedModel(dangling, directed)
    first = weighted_batch(generator, model, 150)
    model.apply(first)
    engine.apply(first)
    engine.update()
    asked = {
        method: PersonalizedQuery(np.array([1]), None, 10_000, method, 1e-6) for method in METHODS
    }
    for method, query in asked.items():
        engine.watch(method, query)
    for _ in range(6 if backend.name == "cpu" else 4):
        running = engine.submit([asked["hybrid"]])
        engine.step(running)
        batch = weighted_batch(generator, model, 8)
        model.apply(batch)
        engine.apply(batch)
        while not running.done:
            engine.step(running)
        _assert_certified(engine, asked["hybrid"], running.answers()[0])
        engine.close(running)
        engine.refresh_watched()
        for method, query in asked.items():
            answer = engine.watched(method)
            assert answer.error_bound <= 1e-6
            _assert_watched(engine, query, answer)


def _assert_watched(engine: Engine, query: PersonalizedQuery, answer: Personalized) -> None:
    """A watched answer may lack vertices that came later: they have hardly any rank."""
    restarts = np.bincount(query.seeds, minlength=engine.vertices) / len(query.seeds)
    exact, _ = verify.pagerank(
        *arcs_of(engine),
        engine.vertices,
        engine.options.damping,
        engine.options.dangling,
        restarts,
        arc_weights_of(engine),
    )
    found = np.zeros(engine.vertices)
    found[answer.vertices] = answer.ranks
    assert np.abs(found - exact).sum() <= answer.error_bound + 1e-11
