"""The published strategies in shards, in both forms, step by step as on one device."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest

from liverank_gpu import STRATEGIES, EdgeBatch, Engine, Options, ShardedEngine
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Operation
from liverank_gpu.operations.residual import ExpandForward
from liverank_gpu.pagerank.strategies import TABLE
from liverank_gpu.sharded.communicator import SingleCommunicator
from liverank_gpu.sharded.member import Member
from tests.gpu.graphs import Model, random_batch
from tests.gpu.sharded.test_shards import assert_ranks, sharded_engine
from tests.gpu.sharded.threads import ThreadWorkers, failing_sweep

CPU = backend_named("cpu")


@pytest.mark.parametrize(
    "strategy", [name for name in STRATEGIES if TABLE[name].affected in ("reachable", "frontier")]
)
def test_a_small_change_is_followed_to_the_vertices_that_it_affects(
    strategy: str, backend: Backend
) -> None:
    # a path: what a change affects is behind it. The residual follows that alone
    backend = replace(backend, costs=replace(backend.costs, exchange=0.0, sweep_overhead=0.0))
    count = 3_000
    ends = np.arange(count - 1)
    options = Options(frontier_tolerance=1e-3, prune_tolerance=1e-3)
    model, one = Model("uniform"), Engine(options, CPU)
    with sharded_engine(options, 3, backend) as engine:
        for batch in (
            EdgeBatch(ends, ends + 1),
            EdgeBatch.of(insert=[(2_900, 2_905)], delete=[(2_950, 2_951)]),
            EdgeBatch.of(insert=[(2_950, 2_951)]),
        ):
            model.apply(batch)
            for each in (one, engine):
                each.apply(batch)
            first = batch.operations > 10
            ours, theirs = (each.update("static" if first else strategy) for each in (engine, one))
            assert ours.converged
            if not first:
                assert ours.touched_vertices == theirs.touched_vertices < 120
            assert_ranks(engine, model, ours.error_bound)


def test_batches_between_two_solves_are_all_followed(backend: Backend) -> None:
    generator = np.random.default_rng(4)
    options, model = Options(target_error=1e-9), Model("uniform")
    with sharded_engine(options, 3, backend) as engine:
        for step, size in enumerate((300, 4, 4, 4, 4)):
            # vertices join, so that columns are renumbered between the batches
            batch = replace(random_batch(generator, model, size), vertices=100 * (step + 1))
            model.apply(batch)
            engine.apply(batch)
        for strategy in ("dynamic-frontier", "dynamic-traversal"):
            result = engine.update(strategy)
            assert result.converged
            assert_ranks(engine, model, result.error_bound)
            assert result.error_bound <= 1e-4


def test_a_step_that_memory_ends_hides_no_vertex_from_the_next_one() -> None:
    numbers = count()

    def failing(operation: Operation[Any], /) -> Any:
        found = CPU.run(operation)
        if isinstance(operation, ExpandForward) and next(numbers) == 0:
            raise MemoryError("flagged, and not listed")
        return found

    shard = Member(SingleCommunicator(), Options(), replace(CPU, run=failing))
    shard.apply(EdgeBatch.of([(0, 1), (0, 2)]))

    def reached() -> list[int]:
        step = ExpandForward(shard.graph.view, np.array([0], np.int32), np.zeros(3, np.int32))
        return sorted(shard.graph.backend.run(step).tolist())

    with pytest.raises(MemoryError):
        reached()
    for _ in range(2):
        assert reached() == [1, 2]


@pytest.mark.parametrize("strategy", ["dynamic-frontier", "dynamic-traversal"])
def test_after_an_interrupted_solve_all_vertices_are_ranked(strategy: str) -> None:
    generator = np.random.default_rng(9)
    options, model = Options(target_error=1e-9), Model("uniform")
    workers = ThreadWorkers(options, 3, CPU)
    with ShardedEngine(options, workers=workers) as engine:
        batch = EdgeBatch(*generator.integers(0, 80, (2, 300)))
        engine.apply(batch)
        model.apply(batch)
        engine.update()
        with failing_sweep(workers), pytest.raises(MemoryError, match="the third sweep"):
            engine.update("static")
        result = engine.update(strategy)
        assert_ranks(engine, model, result.error_bound)
        assert result.error_bound <= 1e-6
