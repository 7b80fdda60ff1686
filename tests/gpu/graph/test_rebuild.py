"""Batches that are a good part of the graph: sorted together with it, all or nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from liverank_gpu import STRATEGIES, EdgeBatch, Engine, Options
from liverank_gpu.engine import Group
from liverank_gpu.graph.dynamic_graph import DynamicGraph, is_large_part
from liverank_gpu.operations.backend import Backend, Sizes
from liverank_gpu.types import Dangling, VertexOrder
from tests.gpu.graph.model import apply
from tests.gpu.graphs import Model, WeightedModel, assert_certified, batch_for, random_batch
from tests.gpu.invariants import check_invariants

POLICIES: tuple[Dangling, ...] = get_args(Dangling)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize("dangling", POLICIES)
def test_a_rebuild_leaves_the_graph_that_a_set_of_edges_does(
    dangling: Dangling, order: VertexOrder, directed: bool, weighted: bool, backend: Backend
) -> None:
    backend = replace(backend, sizes=Sizes(entries=37))
    for seed in range(3):
        generator = np.random.default_rng(seed)
        graph = DynamicGraph(backend, dangling, order, weighted, directed)
        model = (WeightedModel if weighted else Model)(dangling, directed)
        rebuilt = 0
        for step in range(12):
            size, removes = 100 if step % 4 == 0 else 20, step % 3 == 2
            batch = batch_for(generator, model, size, removes)
            update = apply(graph, model, batch, rebuilds=True)
            check_invariants(graph, model)
            rebuilt += update.rebuilt
        assert rebuilt > 4
        # and goes on in place
        assert not apply(graph, model, batch_for(generator, model, 6)).rebuilt
        check_invariants(graph, model)


def test_all_edges_can_be_deleted_at_once(backend: Backend) -> None:
    graph, model = DynamicGraph(backend, "uniform"), Model("uniform")
    edges = [(0, 1), (1, 2), (2, 2), (3, 0)]
    for batch in (EdgeBatch.of(insert=edges), EdgeBatch.of(delete=[*edges, (0, 1), (4, 4)])):
        apply(graph, model, batch, rebuilds=True)
        check_invariants(graph, model)
    assert (graph.vertices, graph.edges) == (4, 0)


class _Graph(DynamicGraph):
    """A graph of which a test says whether a batch rebuilds it."""

    rebuilds = True

    def is_rebuilt_by(self, operations: int) -> bool:  # noqa: ARG002
        return self.rebuilds


class _Alone(Group):
    def graph(self, backend: Backend, options: Options) -> DynamicGraph:
        return _Graph(backend, options.dangling)


@pytest.mark.parametrize("dangling", POLICIES)
def test_ranks_stay_certified_through_rebuilds(dangling: Dangling, backend: Backend) -> None:
    generator = np.random.default_rng(3)
    engine = Engine(Options(dangling=dangling), backend, group=_Alone())
    graph, model = engine.internals.graph, Model(dangling)
    assert isinstance(graph, _Graph)
    for step in range(2 * len(STRATEGIES)):
        batch = random_batch(generator, model, 60, removes=True)
        model.apply(batch)
        graph.rebuilds = step % 2 == 1
        engine.apply(batch)
        strategy = STRATEGIES[step % len(STRATEGIES)]
        result = engine.update(strategy)
        assert_certified(engine, result.error_bound)
        assert result.error_bound <= 1e-3


def test_only_batches_of_a_good_part_of_the_graph_rebuild_it(backend: Backend) -> None:
    large = 1 << 20
    for arcs, most in ((0, large), (4 * large, large), (16 * large, 4 * large)):
        assert not is_large_part(most, arcs, Sizes())
        assert is_large_part(most + 1, arcs, Sizes())
    tips = np.arange(400)
    for directed in (True, False):
        graph = DynamicGraph(backend, "uniform", directed=directed)
        assert graph.apply(EdgeBatch(tips, tips + 1)).rebuilt
        assert not graph.apply(EdgeBatch(tips, tips + 5)).rebuilt
        most = large if directed else large // 2
        assert not graph.is_rebuilt_by(most)
        assert graph.is_rebuilt_by(most + 1)


def test_a_large_batch_needs_far_less_than_its_scratch(backend: Backend) -> None:
    graph = _Graph(backend, "uniform")
    tips = np.arange(400)
    graph.apply(EdgeBatch(tips, tips + 1))
    rebuilt = graph.bytes_needed(10_000_000, 1_000_000)
    graph.rebuilds = False
    looked_up = graph.bytes_needed(10_000_000, 1_000_000)
    assert looked_up > 10_000_000 * 210
    assert rebuilt < 0.4 * looked_up
