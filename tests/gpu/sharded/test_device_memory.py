"""A graph that is larger than one device may hold, in shards that hold it together: on emulated
devices whose arrays count.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from unittest.mock import Mock

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Options, OutOfMemory, ShardedEngine
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Sizes
from tests.cuda_emulator.emulated import MEMORY, counting_backend
from tests.gpu.doubles import instead
from tests.gpu.graphs import Model, WeightedModel, batch_for
from tests.gpu.sharded.test_shards import assert_ranks
from tests.gpu.sharded.threads import ThreadWorkers

OPTIONS = Options(target_error=1e-7)
BOUND = 1_550_000
"""Bytes of arrays in each worker: between what one shard needs, and what each of two does."""


def graph() -> EdgeBatch:
    sources, targets = np.random.default_rng(1).integers(0, 6_000, (2, 90_000))
    return EdgeBatch(sources, targets)


@contextmanager
def bounded(shards: int) -> Iterator[ShardedEngine]:
    backends = [counting_backend() for _ in range(shards)]
    for each in backends:
        each.device.limit_memory(BOUND)
    with ShardedEngine(OPTIONS, workers=ThreadWorkers(OPTIONS, shards, backends)) as engine:
        yield engine


def test_one_shard_refuses_what_two_hold() -> None:
    model = Model("uniform")
    with bounded(1) as engine:
        with pytest.raises(OutOfMemory):
            engine.apply(graph())
        assert (engine.vertices, engine.edges) == (0, 0)
        small = EdgeBatch.of(insert=[(0, 1), (1, 2)])
        assert replace(engine.apply(small), seconds=0.0) == model.apply(small)
        assert_ranks(engine, model, engine.update().error_bound)
    model = Model("uniform")
    with bounded(2) as engine:
        for batch in (graph(), EdgeBatch.of(insert=[(0, 5), (7, 9)], delete=[(0, 1)])):
            assert replace(engine.apply(batch), seconds=0.0) == model.apply(batch)
            result = engine.update()
            assert result.error_bound <= OPTIONS.target_error
            assert_ranks(engine, model, result.error_bound)
        # what both cannot hold changes neither
        before = engine.edges
        with pytest.raises(OutOfMemory):
            engine.apply(EdgeBatch(vertices=400_000))
        assert (engine.vertices, engine.edges) == (6_000, before)
        assert_ranks(engine, model, engine.update().error_bound)


def test_memory_that_runs_out_where_edges_are_routed_refuses_the_batch() -> None:
    model, cpu = Model("uniform"), backend_named("cpu")
    sort = Mock(wraps=cpu.graph.sort)
    second = replace(cpu, graph=instead(cpu.graph, sort=sort))
    workers = ThreadWorkers(OPTIONS, 2, [cpu, second])
    with ShardedEngine(OPTIONS, workers=workers) as engine:
        engine.apply(graph())
        model.apply(graph())
        engine.update()
        sort.side_effect = MemoryError("of the device")
        with pytest.raises(OutOfMemory, match=r"a batch of 2 edges .* needs [0-9,]+ bytes"):
            engine.apply(EdgeBatch.of(insert=[(0, 5), (7, 9)]))
        sort.side_effect = None
        assert (engine.vertices, engine.edges) == (6_000, len(model.edges))
        again = EdgeBatch.of(insert=[(0, 5), (7, 9)])
        assert replace(engine.apply(again), seconds=0.0) == model.apply(again)
        assert_ranks(engine, model, engine.update().error_bound)


@pytest.mark.parametrize(("weighted", "short"), [(False, [0, 1]), (True, [1])])
def test_a_batch_is_applied_by_all_shards_or_by_none(weighted: bool, short: list[int]) -> None:
    """With a little more memory each time, until there is enough."""
    assert refused_batches(weighted, short, {20: 1_740, 900: 12_300}) > 12


@pytest.mark.parametrize("weighted", [False, True])
def test_so_is_one_that_is_a_large_part_of_the_graph(weighted: bool) -> None:
    assert refused_batches(weighted, [1], {900: 1_300}, Sizes(rebuild=100)) > 12


def refused_batches(
    weighted: bool, short: list[int], steps: dict[int, int], sizes: Sizes | None = None
) -> int:
    """How often batches were refused while the shards that are `short` of memory had more each
    time.

    steps  how much more, by the size of the batch
    """
    generator = np.random.default_rng(2)
    options = Options(target_error=1e-7, weighted=weighted)
    model = (WeightedModel if weighted else Model)(options.dangling, options.directed)
    backends = [replace(counting_backend(), sizes=sizes or Sizes()) for _ in range(2)]
    refused = 0
    sources, targets = generator.integers(0, 600, (2, 3000))
    ones = np.ones(3000, np.float32) if weighted else None
    first = EdgeBatch(sources, targets, weights=ones)
    model.apply(first)
    with ShardedEngine(options, workers=ThreadWorkers(options, 2, backends)) as engine:
        engine.apply(first)
        engine.update()
        for size, step in steps.items():
            batch = batch_for(generator, model, size, size == 900)
            before = (engine.vertices, engine.edges)
            for spare in count(0, step):
                for rank in short:
                    device = backends[rank].device
                    used = MEMORY - device.memory_available()
                    device.limit_memory(max(1, used + spare))
                try:
                    change = engine.apply(batch)
                    break
                except OutOfMemory:
                    refused += 1
                finally:
                    for each in backends:
                        each.device.limit_memory(None)
                assert (engine.vertices, engine.edges) == before
                if refused % 4 == 0:
                    assert_ranks(engine, model, engine.update("static").error_bound)
            assert replace(change, seconds=0.0) == model.apply(batch)
            assert_ranks(engine, model, engine.update().error_bound)
    return refused
