"""Batches that are a good part of the graph: sorted together with it, all or nothing."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import get_args
from unittest.mock import patch

import numpy as np
import pytest

from gpu import STRATEGIES, EdgeBatch, Engine, Options, OutOfMemory, verify
from gpu.backends.base import Array, Backend
from gpu.graph import Applied, Graph, Loaded
from gpu.types import Dangling, VertexOrder
from tests.graphs import Model, random_batch
from tests.invariants import check_invariants

POLICIES: tuple[Dangling, ...] = get_args(Dangling)
COUNTS = ("inserted", "already_present", "deleted", "not_found", "new_vertices")


def always_merged() -> AbstractContextManager[int]:
    return patch("gpu.graph._LEAST_MERGED", new=-1)


@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize("dangling", POLICIES)
def test_a_merged_batch_leaves_the_graph_that_a_set_of_edges_does(
    dangling: Dangling, order: VertexOrder, backend: Backend
) -> None:
    for seed in range(6):
        generator = np.random.default_rng(seed)
        graph, model = Graph(backend, dangling, order), Model(dangling)
        merged = 0
        with always_merged(), patch("gpu.merge.CHUNK", 37), patch("gpu.graph.CHUNK", 37):
            for step in range(12):
                batch = random_batch(generator, model, 100 if step % 4 == 0 else 20)
                before = set(model.edges)
                expected, applied = model.apply(batch), graph.apply(batch)
                for count in COUNTS:
                    assert getattr(applied, count) == getattr(expected, count), count
                check_invariants(graph, model)
                merged += isinstance(applied, Loaded)
                sources = graph.numbering.ids_of(applied.sources).tolist()
                assert {source for source, _ in before ^ model.edges} <= set(sources)
                targets = graph.numbering.ids_of(applied.removed_targets).tolist()
                assert {target for _, target in before - model.edges} <= set(targets)
        assert merged > 4
        # and goes on in place
        batch = random_batch(generator, model, 6)
        expected, applied = model.apply(batch), graph.apply(batch)
        assert isinstance(applied, Applied)
        assert applied.inserted == expected.inserted
        check_invariants(graph, model)


def test_all_edges_can_be_deleted_at_once(backend: Backend) -> None:
    graph, model = Graph(backend, "uniform"), Model("uniform")
    edges = [(0, 1), (1, 2), (2, 2), (3, 0)]
    for batch in (EdgeBatch.of(insert=edges), EdgeBatch.of(delete=[*edges, (0, 1), (4, 4)])):
        with always_merged():
            expected, applied = model.apply(batch), graph.apply(batch)
        assert (applied.deleted, applied.not_found) == (expected.deleted, expected.not_found)
        check_invariants(graph, model)
    assert (graph.vertices, graph.edges) == (4, 0)


@pytest.mark.parametrize("dangling", POLICIES)
def test_ranks_stay_certified_through_merged_batches(dangling: Dangling, backend: Backend) -> None:
    generator = np.random.default_rng(3)
    engine, model = Engine(Options(dangling=dangling), backend), Model(dangling)
    for step in range(2 * len(STRATEGIES)):
        batch = random_batch(generator, model, 60)
        model.apply(batch)
        with patch("gpu.graph._LEAST_MERGED", -1 if step % 2 else 1 << 20):
            engine.apply(batch)
        strategy = STRATEGIES[step % len(STRATEGIES)]
        result = engine.update(strategy)
        exact, oracle_bound = verify.pagerank(
            *engine.edge_list(), engine.vertices, dangling=dangling
        )
        error = np.abs(engine.publish().to_numpy() - exact).sum()
        assert error <= result.error_bound + oracle_bound
        assert result.error_bound <= 1e-3


def test_each_allocation_that_fails_leaves_the_graph_as_it_was(backend: Backend) -> None:
    allocate = backend.allocate
    for refused in range(1, 60):
        generator = np.random.default_rng(8)
        graph, model = Graph(backend, "uniform"), Model("uniform")
        first = random_batch(generator, model, 60)
        model.apply(first)
        graph.apply(first)
        batch = random_batch(generator, model, 60)
        asked = 0

        def refusing(purpose: str, count: int, dtype: type[np.generic]) -> Array:
            nonlocal asked
            asked += 1
            if asked == refused:  # noqa: B023
                raise OutOfMemory(purpose, count, 0)
            return allocate(purpose, count, dtype)

        with always_merged(), patch.object(backend, "allocate", refusing):
            try:
                graph.apply(batch)
            except OutOfMemory:
                check_invariants(graph, model)
            else:
                break
    assert refused > 20
    model.apply(batch)
    check_invariants(graph, model)


def test_only_batches_of_a_good_part_of_the_graph_are_merged(backend: Backend) -> None:
    graph = Graph(backend, "uniform")
    tips = np.arange(400)
    graph.apply(EdgeBatch(tips, tips + 1))
    with patch("gpu.graph._LEAST_MERGED", 20):
        # a quarter of the edges, and one more
        in_place = graph.apply(EdgeBatch(tips[:100], tips[:100] + 2))
        together = graph.apply(EdgeBatch(tips[:126], tips[:126] + 3))
    assert isinstance(in_place, Applied)
    assert isinstance(together, Loaded)
    assert isinstance(graph.apply(EdgeBatch(tips, tips + 5)), Applied)


def test_a_large_batch_needs_far_less_than_its_scratch(backend: Backend) -> None:
    graph = Graph(backend, "uniform")
    tips = np.arange(400)
    graph.apply(EdgeBatch(tips, tips + 1))
    merged = graph.bytes_needed(10_000_000, 1_000_000)
    with patch("gpu.graph._LEAST_MERGED", 1 << 40):
        looked_up = graph.bytes_needed(10_000_000, 1_000_000)
    assert looked_up > 10_000_000 * 210
    assert merged < 0.4 * looked_up
