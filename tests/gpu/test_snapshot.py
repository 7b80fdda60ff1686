"""A graph restored from a snapshot is the graph it was taken from, and stays it."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args
from unittest.mock import Mock

import numpy as np
import pytest

from liverank_gpu import DeviceLost, EdgeBatch, Engine, Options
from liverank_gpu.operations.backend import Backend
from liverank_gpu.types import Dangling
from tests.cuda_emulator.emulated import emulated_backend
from tests.gpu.doubles import instead
from tests.gpu.graphs import Model, assert_certified, batch_for, model_of, random_batch, restored
from tests.gpu.invariants import check_invariants

POLICIES: tuple[Dangling, ...] = get_args(Dangling)
KINDS = [(True, False), (True, True), (False, True)]
"""Directed or not, and whether batches remove vertices."""


def assert_ranked(engine: Engine, model: Model) -> None:
    sources, targets = engine.edge_list()
    assert set(zip(sources.tolist(), targets.tolist(), strict=True)) == model.edges
    bound = engine.publish().error_bound
    assert_certified(engine, bound)
    assert bound <= engine.options.target_error


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("directed", "removes"), KINDS)
@pytest.mark.parametrize("dangling", POLICIES)
def test_a_restored_engine_goes_on_as_the_first_one_does(
    backend: Backend, dangling: Dangling, directed: bool, removes: bool, weighted: bool
) -> None:
    generator = np.random.default_rng(7)
    options = Options(dangling=dangling, directed=directed, weighted=weighted)
    engine, model = Engine(options, backend), model_of(options)
    for _ in range(6):
        batch = batch_for(generator, model, 200, removes)
        engine.apply(batch)
        model.apply(batch)
        engine.update()
        before = engine.publish()
        engine = restored(engine, backend)
        assert (engine.id_limit, engine.edges) == (model.vertices, len(model.edges))
        assert np.array_equal(engine.publish().to_numpy(), before.to_numpy())
        assert engine.publish().error_bound == before.error_bound
        check_invariants(engine.internals.graph, model)
        batch = batch_for(generator, model, 20, removes)
        assert engine.apply(batch).inserted == model.apply(batch).inserted
        engine.update()
        assert_ranked(engine, model)


def test_a_snapshot_is_of_the_moment_of_its_cut(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch.of(insert=[(0, 1), (1, 2), (2, 0), (2, 2)]))
    engine.update()
    published = engine.publish()
    room = engine.staging_buffer()
    cut = engine.capture(room)
    engine.apply(EdgeBatch.of(insert=[(v, 0) for v in range(3, 400)], delete=[(0, 1)]))
    engine.update()
    snapshot = cut.snapshot()
    assert snapshot.numbers["edges"] == 4
    assert snapshot.arrays["length"].tolist() == [1, 1, 1]
    assert snapshot.arrays["neighbours"].tolist() == [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]
    assert snapshot.arrays["loop"].tolist() == [0, 0, 1]
    again = engine.ranks_of(snapshot)
    assert np.array_equal(again.to_numpy(), published.to_numpy())


def test_a_graph_that_outgrew_the_room_is_copied_whole(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch.of(insert=[(0, 1)]))
    room = engine.staging_buffer()
    edges = {(v, (v * 7 + 1) % 500) for v in range(500)}
    engine.apply(EdgeBatch.of(insert=sorted(edges)))
    engine.update()
    again = Engine(engine.options, backend)
    again.restore(engine.capture(room).snapshot())
    sources, targets = again.edge_list()
    assert set(zip(sources.tolist(), targets.tolist(), strict=True)) == edges | {(0, 1)}


def test_an_empty_graph_has_a_snapshot(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    engine.update()
    again = restored(engine, backend)
    again.apply(EdgeBatch.of(insert=[(0, 1)]))
    assert again.update().error_bound <= 1e-6
    assert (again.vertices, again.edges) == (2, 1)


def test_an_error_that_ends_the_device_is_told_from_others() -> None:
    class CudaError(RuntimeError):
        def __init__(self, status: int) -> None:
            super().__init__(f"status {status}")
            self.status = status

    backend = emulated_backend()
    for status, kind in ((700, DeviceLost), (719, DeviceLost), (1, CudaError)):
        rebuild = instead(backend.rebuild, row_ranges=Mock(side_effect=CudaError(status)))
        engine = Engine(Options(), replace(backend, rebuild=rebuild))
        with pytest.raises(kind, match=f"status {status}"):
            engine.apply(EdgeBatch.of(insert=[(0, 1)]))


def test_an_order_of_vertices_survives(backend: Backend) -> None:
    generator = np.random.default_rng(23)
    options = Options(vertex_order="degree", target_error=1e-5)
    engine, model = Engine(options, backend), Model(options.dangling)
    hub = EdgeBatch.of(insert=[(v, w) for v in range(30) for w in (30, v % 4)])
    for batch in (hub, random_batch(generator, model, 40)):
        engine.apply(batch)
        model.apply(batch)
    engine.update()
    before = engine.publish()
    snapshot = engine.capture(engine.staging_buffer()).snapshot()
    assert snapshot.arrays["values"].dtype == np.float64
    ids = snapshot.arrays["ids"]
    assert sorted(ids.tolist()) == list(range(len(ids)))
    assert ids.tolist() != list(range(len(ids)))
    assert np.array_equal(engine.ranks_of(snapshot).to_numpy(), before.to_numpy())
    again = Engine(options, backend)
    again.restore(snapshot)
    assert np.array_equal(again.publish().to_numpy(), before.to_numpy())
    assert again.memory()["ranks"] <= engine.memory()["ranks"]
    assert_ranked(again, model)
    batch = random_batch(generator, model, 30)
    assert again.apply(batch).inserted == model.apply(batch).inserted
    check_invariants(again.internals.graph, model)
    again.update()
    assert_ranked(again, model)


def test_a_graph_restored_without_edges_still_chooses_its_order(backend: Backend) -> None:
    engine = Engine(Options(vertex_order="degree"), backend)
    engine.apply(EdgeBatch.of(vertices=3))
    engine.update()
    again = restored(engine, backend)
    again.apply(EdgeBatch.of(insert=[(0, 2), (1, 2), (3, 2), (4, 2)]))
    assert again.internals.graph.permutation.ids.tolist()[0] == 2
    again.update()
    assert again.publish().top(1)[0].tolist() == [2]
