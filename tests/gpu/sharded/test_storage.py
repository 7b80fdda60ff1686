"""Ranks of shards stored as float32: certified, and taken over by one device and back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpu import EdgeBatch, Engine, Options, PersonalizedQuery
from gpu.backends import backend_named
from gpu.operations.backend import Backend
from tests.gpu.graphs import FAMILIES, Model
from tests.gpu.sharded.test_capture import snapshot_of
from tests.gpu.sharded.test_personalized import assert_certified, both, random_edges
from tests.gpu.sharded.test_shards import assert_ranks, kind_of_graph, run_stream, sharded_engine

CPU = backend_named("cpu")


@pytest.mark.parametrize("seed", range(8))
def test_streams_are_certified(
    seed: int, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a round costs nothing: small graphs are pushed too
    monkeypatch.setattr("gpu.sharded.sweeps._ROUND_SWEEPS", 0)
    backend = replace(backend, costs=replace(backend.costs, exchange=0.0))
    options = replace(kind_of_graph(seed), storage="float32", target_error=1e-6)
    run_stream(seed + 300, options, 2 + seed % 2, backend, batches=4, removes=seed % 4 > 1)


@pytest.mark.parametrize("family", ["star inwards", "grid", "disconnected parts"])
def test_ranks_are_in_float32_and_within_the_target(family: str, backend: Backend) -> None:
    vertices, edges = FAMILIES[family]()
    model, options = Model("uniform"), Options(storage="float32")
    with sharded_engine(options, 3, backend) as engine:
        batch = EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices)
        engine.apply(batch)
        model.apply(batch)
        for strategy in ("auto", "static", "naive-dynamic"):
            result = engine.update(strategy)
            assert result.converged
            assert_ranks(engine, model, result.error_bound)
        assert engine.update().error_bound <= 1e-6
        assert snapshot_of(engine).arrays["values"].dtype == np.float32
        assert engine.top(3)[1].dtype == np.float64


def test_a_snapshot_opens_on_one_device_and_in_other_shards(backend: Backend) -> None:
    options, model = Options(storage="float32", vertex_order="degree"), Model("uniform")
    with sharded_engine(options, 2, backend) as engine:
        batch = random_edges(np.random.default_rng(1), 200, 900)
        engine.apply(batch)
        model.apply(batch)
        engine.update()
        snapshot, ranks = snapshot_of(engine), engine.publish().to_numpy()
    one = Engine(options, CPU)
    one.restore(snapshot)
    assert np.array_equal(one.publish().to_numpy(), ranks)
    with sharded_engine(options, 3, backend) as again:
        again.restore(snapshot.arrays, snapshot.numbers)
        assert np.array_equal(again.publish().to_numpy(), ranks)
        result = again.update()
        assert result.iterations <= 1
        assert_ranks(again, model, result.error_bound)


def test_personalized_queries_are_certified(backend: Backend) -> None:
    options, batch = Options(storage="float32"), random_edges(np.random.default_rng(2), 300, 1500)
    with both(options, 2, backend, batch) as (one, engine):
        query = PersonalizedQuery(np.array([3, 5]), k=20, target_error=1e-9)
        assert_certified(one, query, engine.personalized_many([query])[0])
