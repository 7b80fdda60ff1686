"""Rows that are scaled because their newest weight has grown, and the memory that this takes."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch, Engine, Options, OutOfMemory
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend
from tests.gpu.doubles import instead, looked_after
from tests.gpu.graph.decaying import DAY, NOW, assert_certified, stored_weights


def test_the_warm_up_of_a_graph_with_a_half_life_scales_rows() -> None:
    cpu = backend_named("cpu")
    scale_rows = Mock(wraps=cpu.rebuild.scale_rows)
    rebuild = instead(cpu.rebuild, scale_rows=scale_rows)
    # as on a GPU
    engine = Engine(Options(half_life=DAY), replace(cpu, rebuild=rebuild, compiles_kernels=True))
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
def test_scaled_rows_keep_their_probabilities(directed: bool, backend: Backend) -> None:
    found: list[tuple[dict[tuple[int, int], float], NDArray[np.float64]]] = []

    def compared(*arguments: Any) -> None:
        graph = engine.internals.graph
        found.append((stored_weights(engine), np.array(backend.device.to_host(graph.degree))))
        backend.rebuild.scale_rows(*arguments)
        found.append((stored_weights(engine), np.array(backend.device.to_host(graph.degree))))

    rebuild = instead(backend.rebuild, scale_rows=compared)
    engine = _decaying(replace(backend, rebuild=rebuild), directed)
    engine.apply(_scaling(engine))
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


def test_each_array_that_is_refused_leaves_all_of_a_batch_or_nothing(backend: Backend) -> None:
    """Whatever the step: each is told as OutOfMemory, and the same batch can be sent again."""
    backend, device = looked_after(backend)
    other = _decaying(backend)
    batch = replace(_scaling(other), remove=np.array([30]))
    other.apply(batch)
    told: set[str] = set()
    for refused in count(1):
        engine = _decaying(backend)
        before = stored_weights(engine)
        with device.without_arrays(refused) as arrays:
            try:
                engine.apply(batch)
            except OutOfMemory as error:
                told.add(str(error)[:20])
        if arrays.left > 0:
            break
        if engine.edges == len(before):
            assert stored_weights(engine) == before
            engine.apply(batch)
        assert stored_weights(engine) == stored_weights(other)
    assert refused > 20
    assert any(each.startswith("a batch of 4 edges") for each in told)
    engine.update()
