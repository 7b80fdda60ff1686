"""Ranks and certificates, against NetworkX and against liverank_gpu.verify, on every backend."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import STRATEGIES, EdgeBatch, Engine, Options
from liverank_gpu.operations.backend import Backend
from liverank_gpu.types import Dangling, VertexOrder
from tests.gpu.graphs import (
    FAMILIES,
    Model,
    Pairs,
    assert_certified,
    engine_on,
    igraph_ranks,
    is_slow,
    loaded,
    networkx_ranks,
    random_batch,
    random_graph,
    some_weights,
)

POLICIES: tuple[Dangling, ...] = get_args(Dangling)
KINDS = [(True, False), (True, True), (False, True)]
"""Directed or not, and whether batches remove vertices."""


def _tightly_solved(
    pairs: Pairs,
    dangling: Dangling,
    backend: Backend,
    directed: bool = True,
    weights: NDArray[np.float32] | None = None,
) -> NDArray[np.float64]:
    """The ranks, to 1e-10."""
    options = Options(
        dangling=dangling, target_error=1e-10, directed=directed, weighted=weights is not None
    )
    engine = loaded(pairs, options, backend, weights)
    assert engine.update("auto").converged
    return engine.publish().to_numpy()


def _weights(pairs: Pairs, weighted: bool) -> NDArray[np.float32] | None:
    return some_weights(np.random.default_rng(len(pairs[1])), len(pairs[1])) if weighted else None


@pytest.mark.in_shards
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dangling", POLICIES)
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_ranks_are_those_of_networkx_and_igraph(
    family: str, directed: bool, dangling: Dangling, weighted: bool, backend: Backend
) -> None:
    pairs = FAMILIES[family]()
    weights = _weights(pairs, weighted)
    ranks = _tightly_solved(pairs, dangling, backend, directed, weights)
    for oracle in (networkx_ranks, igraph_ranks):
        exact = oracle(pairs, dangling, weights=weights, directed=directed)
        assert np.abs(ranks - exact).sum() <= 1e-9


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("dangling", POLICIES)
def test_ranks_of_random_graphs_are_those_of_networkx(
    dangling: Dangling, directed: bool, weighted: bool, backend: Backend, long: bool
) -> None:
    for seed in range(0, 200, 1 if long else 32 if is_slow(backend) else 8):
        pairs = random_graph(seed)
        weights = _weights(pairs, weighted)
        ranks = _tightly_solved(pairs, dangling, backend, directed, weights)
        exact = networkx_ranks(pairs, dangling, weights=weights, directed=directed)
        error = np.abs(ranks - exact).sum()
        assert error <= 1e-9, f"random_graph({seed}) is off by {error}"


@pytest.mark.parametrize("dangling", POLICIES)
def test_ranks_of_college_messages_are_those_of_networkx(
    dangling: Dangling, backend: Backend, data: Path
) -> None:
    rows = np.loadtxt(data / "CollegeMsg" / "CollegeMsg.txt.gz", np.int64, usecols=(0, 1))
    keys, ids = np.unique(rows, return_inverse=True)
    pairs = len(keys), np.unique(ids.reshape(-1, 2), axis=0)
    assert (pairs[0], len(pairs[1])) == (1899, 20296)
    ranks = _tightly_solved(pairs, dangling, backend)
    assert np.abs(ranks - networkx_ranks(pairs, dangling)).sum() <= 1e-9


@pytest.mark.parametrize("dangling", POLICIES)
@pytest.mark.parametrize("damping", [0.05, 0.5, 0.99])
def test_any_damping_is_certified(damping: float, dangling: Dangling, backend: Backend) -> None:
    options = Options(damping=damping, dangling=dangling, target_error=1e-9, max_iterations=5000)
    engine = loaded(random_graph(7), options, backend)
    result = engine.update("auto")
    assert result.converged
    assert result.error_bound <= 1e-9
    assert_certified(engine, result.error_bound)


@pytest.mark.in_shards
@pytest.mark.parametrize(("directed", "removes"), KINDS)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("dangling", POLICIES)
def test_every_strategy_keeps_its_certificate_through_a_stream(
    strategy: str, dangling: Dangling, directed: bool, removes: bool, backend: Backend, long: bool
) -> None:
    generator = np.random.default_rng(STRATEGIES.index(strategy))
    engine = engine_on(Options(dangling=dangling, directed=directed), backend)
    model = Model(dangling, directed)
    for step in range(12 if is_slow(backend) and not long else 50):
        batch = random_batch(generator, model, 60 if step == 0 else 12, removes)
        expected, change = model.apply(batch), engine.apply(batch)
        assert replace(change, seconds=0.0) == expected, f"batch {step}"
        assert engine.vertices == model.vertices - len(model.free)
        assert engine.free_ids().tolist() == sorted(model.free)
        assert engine.edges == len(model.edges)
        sources, targets = engine.edge_list()
        assert set(zip(sources.tolist(), targets.tolist(), strict=True)) == model.edges

        result = engine.update(strategy)
        assert result.converged
        assert result.touched_vertices <= engine.vertices
        assert result.error_bound <= (1e-6 if strategy in ("auto", "residual") else 1e-3)
        assert_certified(engine, result.error_bound)
        assert abs(engine.publish().to_numpy().sum() - 1.0) < 1e-12 or engine.vertices == 0


@pytest.mark.any_thread_order
@pytest.mark.parametrize("removes", [False, True])
@pytest.mark.parametrize("dangling", POLICIES)
def test_batches_may_be_ranked_together_by_any_strategy_in_any_order(
    dangling: Dangling, removes: bool, backend: Backend
) -> None:
    generator = np.random.default_rng(11)
    engine, model = Engine(Options(dangling=dangling), backend), Model(dangling)
    for _ in range(40):
        for _ in range(int(generator.integers(1, 4))):
            batch = random_batch(generator, model, 16, removes)
            model.apply(batch)
            engine.apply(batch)
        strategy = STRATEGIES[int(generator.integers(len(STRATEGIES)))]
        result = engine.update(strategy)
        assert_certified(engine, result.error_bound)


def test_new_vertices_move_nobody_else(backend: Backend) -> None:
    engine = loaded(FAMILIES["karate club"](), Options(target_error=1e-12), backend)
    engine.update()
    before = engine.publish().to_numpy()
    engine.apply(EdgeBatch(vertices=50))
    result = engine.update("dynamic-frontier")
    after = engine.publish().to_numpy()
    assert (result.iterations, result.touched_vertices) == (0, 0)
    # the same but for the share that 16 isolated vertices take, up to the first solve's accuracy
    assert np.allclose(after[:34] / after[:34].sum(), before, rtol=1e-11, atol=0)
    assert len(set(after[34:].tolist())) == 1


@pytest.mark.in_shards
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_empty_graph_has_no_ranks_and_no_error(strategy: str, backend: Backend) -> None:
    engine = engine_on(Options(), backend)
    engine.apply(EdgeBatch())
    result = engine.update(strategy)
    assert (result.iterations, result.error_bound, result.converged) == (0, 0.0, True)
    assert engine.publish().count == 0
    assert engine.publish().top(5)[0].tolist() == []


def test_a_vertex_that_lost_its_edges_ranks_as_an_isolated_one(backend: Backend) -> None:
    engine = loaded((4, np.array([[0, 1], [1, 2]])), Options(target_error=1e-12), backend)
    engine.update()
    engine.apply(EdgeBatch.of(delete=[(0, 1), (1, 2)]))
    engine.update()
    assert np.allclose(engine.publish().to_numpy(), 0.25, rtol=0, atol=1e-12)


def test_published_ranks_do_not_change_with_the_graph(backend: Backend) -> None:
    engine = loaded(FAMILIES["karate club"](), Options(), backend)
    engine.update()
    ranks = engine.publish()
    before = ranks.to_numpy()
    engine.apply(EdgeBatch.of(insert=[(0, v) for v in range(1, 40)]))
    engine.update()
    assert np.array_equal(ranks.to_numpy(), before)
    assert engine.publish().count == 40


def test_top_is_ordered_by_rank_then_id(backend: Backend) -> None:
    engine = loaded(FAMILIES["star inwards"](), Options(), backend)
    engine.update()
    ranks = engine.publish()
    vertices, values = ranks.top(5)
    assert vertices.tolist() == [0, 1, 2, 3, 4]
    assert values[0] > values[1] == values[4]
    assert ranks.top(3, offset=2)[0].tolist() == [2, 3, 4]
    assert ranks.top(10, offset=9_999)[0].tolist() == [9_999, 10_000]
    assert ranks.of(np.array([4, 0])).tolist() == [values[4], values[0]]


@pytest.mark.parametrize("order", ["given", "degree"])
def test_the_same_batches_give_the_same_bits(order: VertexOrder, backend: Backend) -> None:
    def ranks() -> bytes:
        engine = loaded(random_graph(3), Options(vertex_order=order), backend)
        engine.update("static")
        engine.apply(EdgeBatch.of(insert=[(0, 5), (1, 6)], delete=[(0, 1)]))
        engine.update("naive-dynamic")
        return engine.publish().to_numpy().tobytes()

    assert ranks() == ranks()


def test_an_unreachable_target_is_said_to_be_missed(backend: Backend) -> None:
    engine = loaded(random_graph(1), Options(target_error=1e-17), backend)
    result = engine.update("auto")
    assert not result.converged
    assert 1e-17 < result.error_bound < 1e-11
    assert result.iterations < 400
    assert_certified(engine, result.error_bound)


def test_a_solve_cut_short_says_so_with_a_true_bound(backend: Backend) -> None:
    for strategy in STRATEGIES:
        engine = loaded(random_graph(1), Options(max_iterations=2), backend)
        result = engine.update(strategy)
        assert (result.converged, result.iterations) == (False, 2)
        assert_certified(engine, result.error_bound)
