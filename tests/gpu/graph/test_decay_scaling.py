"""Rows that are scaled because their newest weight has grown, and the memory that this takes."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import Mock, patch

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Engine, Options, OutOfMemory
from liverank_gpu.backends import backend_named
from liverank_gpu.graph.decay import Decay
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.graph import GraphUpdate
from tests.gpu.graph.decaying import DAY, NOW, assert_certified, stored_weights


def test_the_warm_up_of_a_graph_with_a_half_life_scales_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # as on a GPU
    backend = replace(backend_named("cpu"), compiles_kernels=True)
    engine = Engine(Options(half_life=DAY), backend)
    rebuild = engine.internals.backend.rebuild
    scale_rows = Mock(wraps=rebuild.scale_rows)
    monkeypatch.setattr(rebuild, "scale_rows", scale_rows)
    engine.warm_up()
    engine.warm_up_others()
    assert scale_rows.called
    assert (engine.vertices, engine.edges) == (0, 0)


def _decaying(backend: Backend, directed: bool = True) -> Engine:
    """A graph of 40 vertices, of which the next batch of `_scaling` scales all rows."""
    generator = np.random.default_rng(5)
    engine = Engine(Options(half_life=DAY, directed=directed), backend)
    for time in (NOW, NOW + 12 * DAY):
        ends = generator.integers(0, 40, (2, 300))
        batch = EdgeBatch(ends[0], ends[1], vertices=40, times=np.full(300, time))
        engine.apply(batch)
    engine.update()
    return engine


def _scaling(engine: Engine) -> EdgeBatch:
    sources, targets = (column[:3] for column in engine.edge_list())
    deleted = np.array([7]), np.array([8])
    return EdgeBatch(sources, targets, *deleted, times=np.full(3, NOW + 20 * DAY))


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("chunk", [1, 1 << 22])
def test_scaled_rows_keep_their_probabilities(chunk: int, directed: bool, backend: Backend) -> None:
    engine = _decaying(backend, directed)
    batch = _scaling(engine)
    scale = Decay.scale
    found = []

    def compared(decay: Decay[DynamicGraph], graph: DynamicGraph) -> None:
        found.append((stored_weights(engine), np.array(backend.device.to_host(graph.degree))))
        scale(decay, graph)
        found.append((stored_weights(engine), np.array(backend.device.to_host(graph.degree))))

    with (
        patch("liverank_gpu.graph.decay._CHUNK", chunk),
        patch.object(Decay, "scale", compared),
    ):
        engine.apply(batch)
    *_, (weights, degree), (scaled, scaled_degree) = found
    assert weights.keys() == scaled.keys()
    graph = engine.internals.graph
    factors = scaled_degree / degree
    assert (factors < 1.0).any()
    assert (np.exp2(np.round(np.log2(factors))) == factors).all()
    for (source, target), weight in weights.items():
        factor = factors[int(graph.permutation.positions_of(np.array([source]))[0])]
        assert scaled[source, target] == weight * factor
    engine.update()
    assert_certified(engine)


def test_no_memory_is_needed_once_a_batch_that_scales_rows_stands(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, other = _decaying(backend), _decaying(backend)
    batch = _scaling(engine)
    other.apply(batch)
    perturb = engine._queries.perturb

    def then_out_of_memory(update: GraphUpdate) -> None:
        perturb(update)
        failing = Mock(side_effect=MemoryError)
        for name in ("liverank_gpu.graph.vertices._mapped", "liverank_gpu.graph.decay.rows_of"):
            monkeypatch.setattr(name, failing)
        monkeypatch.setattr(type(backend.device), "allocate", failing)

    monkeypatch.setattr(engine._queries, "perturb", then_out_of_memory)
    engine.apply(batch)
    monkeypatch.undo()
    assert stored_weights(engine) == stored_weights(other)


def test_a_batch_that_runs_out_of_memory_before_it_stands_changes_nothing(
    backend: Backend,
) -> None:
    """Whatever the step: each is told as OutOfMemory, and the same batch can be sent again."""
    for step in (
        "liverank_gpu.graph.decay.factors_at",
        "liverank_gpu.graph.decay.expired_among",
        "liverank_gpu.graph.dynamic_graph.Arcs.of",
        "liverank_gpu.graph.dynamic_graph.Removal.of",
    ):
        engine, other = _decaying(backend), _decaying(backend)
        batch = replace(_scaling(engine), remove=np.array([30]))
        before = stored_weights(engine)
        with (
            patch(step, side_effect=MemoryError),
            pytest.raises(OutOfMemory, match="a batch of 4 edges"),
        ):
            engine.apply(batch)
        assert stored_weights(engine) == before
        for each in (engine, other):
            each.apply(batch)
        assert stored_weights(engine) == stored_weights(other)
        engine.update()
