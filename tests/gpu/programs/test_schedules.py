"""Edge-parallel runs answer what vertex-parallel ones do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpu import EdgeBatch, Engine, Options
from gpu.operations.backend import Backend


def _engine(backend: Backend, **options: Any) -> Engine:
    """Rows of every length, a few removed vertices and loops; weights that sums keep exact."""
    engine = Engine(Options(vertex_order="degree", **options), backend)
    generator = np.random.default_rng(4)
    edges = (300 * generator.random((2, 1200)) ** 2).astype(np.int64)
    spokes = np.stack([np.full(400, 5), np.arange(400)])
    sources, targets = np.concatenate([edges, spokes, edges[:, :50] * [[1], [0]]], axis=1)
    weights = None
    if options.get("weighted"):
        weights = np.asarray((1 + (sources + targets) % 8) / 4, np.float32)
    engine.apply(EdgeBatch(sources, targets, vertices=420, weights=weights))
    engine.apply(EdgeBatch(remove=np.array([7, 80])))
    return engine


@pytest.mark.any_thread_order
@pytest.mark.parametrize("weighted", [False, True], ids=["undirected", "directed and weighted"])
def test_both_schedules_have_the_same_answers(backend: Backend, weighted: bool) -> None:
    engine = _engine(backend, directed=weighted, weighted=weighted)
    for name in ("components", "distances", "pagerank") if weighted else ("components",):
        given: dict[str, Any] = {"tolerance": 1e-12} if name == "pagerank" else {}
        expected = engine.run(name, **given)
        for mode in ("synchronous", "asynchronous"):
            answer = engine.run(name, mode=mode, schedule="edges", **given)
            receipt = answer.receipt
            assert receipt.finished
            assert (receipt.schedule, expected.receipt.schedule) == ("edges", "vertices")
            if name == "pagerank":
                assert np.abs(answer.values - expected.values).sum() < 1e-10
                continue
            assert (answer.values == expected.values).all(), (name, mode)
            if mode == "synchronous":
                assert receipt.supersteps == expected.receipt.supersteps
                assert receipt.edges == expected.receipt.edges


def test_a_run_by_edges_continues_an_answer(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch.of([(v, v + 1) for v in range(9)], vertices=12))
    first = engine.run("components", schedule="edges")
    engine.apply(EdgeBatch.of([(11, 4)]))
    second = engine.run("components", after=first, schedule="edges")
    assert second.receipt.continued
    assert second.values.tolist() == [0] * 10 + [10, 0]
    assert first.values.tolist() == [0] * 10 + [10, 11]
