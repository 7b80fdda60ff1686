"""Personalized ranks of weighted graphs: alone, in blocks and watched, deflated along
the global ranks, against NetworkX and liverank_gpu.verify.
"""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Engine, Options, PersonalizedQuery
from liverank_gpu.operations.backend import Backend
from liverank_gpu.personalized.resolve import METHODS
from liverank_gpu.types import Dangling
from tests.gpu.graphs import (
    WeightedModel,
    networkx_ranks,
    random_graph,
    some_weights,
    weighted_batch,
)
from tests.gpu.personalized.certified import assert_certified, ranked

POLICIES: tuple[Dangling, ...] = get_args(Dangling)


@pytest.mark.any_thread_order
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("dangling", POLICIES)
def test_weighted_queries_are_those_of_networkx_alone_and_in_a_block(
    dangling: Dangling, directed: bool, backend: Backend, long: bool
) -> None:
    options = Options(dangling=dangling, weighted=True, directed=directed)
    for seed in range(4 if long else 2 if backend.name == "cpu" else 1):
        pairs = vertices, edges = random_graph(seed + 2)
        engine = ranked(pairs, options, backend)
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
            assert_certified(engine, query, answer)


def test_a_block_on_rows_of_every_length_is_certified(backend: Backend) -> None:
    # hubs that a device sums in chunks, by a warp and by half a warp
    generator = np.random.default_rng(4)
    vertices = 6_000
    edges = [generator.integers(0, vertices, (12_000, 2))]
    for hub, count in ((0, 5_000), (1, 1_500), (2, 200), (3, 30)):
        edges.append(np.stack([generator.permutation(vertices)[:count], np.full(count, hub)], 1))
        edges.append(edges[-1][: count // 2, ::-1])
    pairs = vertices, np.unique(np.concatenate(edges), axis=0)
    engine = ranked(pairs, Options(weighted=True), backend)
    asked = [
        PersonalizedQuery(np.array([v]), None, vertices, "pull", 1e-6)
        for v in range(max(4, backend.multivector.min_columns))
    ]
    for query, answer in zip(asked, engine.personalized_many(asked), strict=True):
        assert answer.error_bound <= 1e-6
        assert_certified(engine, query, answer)


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
        assert_certified(engine, query, answer)
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
        assert_certified(engine, asked["hybrid"], running.answers()[0])
        engine.close(running)
        engine.refresh_watched()
        for method, query in asked.items():
            answer = engine.watched(method)
            assert answer.error_bound <= 1e-6
            assert_certified(engine, query, answer)
