"""Personalized queries on a graph in shards, against liverank_gpu.verify and against one device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from liverank_gpu import (
    EdgeBatch,
    Engine,
    Options,
    PersonalizedQuery,
    QueryBatch,
    ShardedEngine,
    UnknownVertex,
)
from liverank_gpu.backends import backend_named
from liverank_gpu.generate import grid
from liverank_gpu.operations.backend import Backend, Sizes
from liverank_gpu.sharded.operations import shard_costs
from tests.gpu.graphs import random_graph, some_weights
from tests.gpu.personalized.certified import assert_certified
from tests.gpu.sharded.test_shards import sharded_engine
from tests.gpu.sharded.threads import ThreadWorkers, failing_sweep

CPU = backend_named("cpu")
FREE = replace(CPU, costs=replace(CPU.costs, exchange=0.0))
"""An exchange costs nothing: small graphs are pushed too."""


@contextmanager
def both(
    options: Options, shards: int, backend: Backend, batch: EdgeBatch
) -> Iterator[tuple[Engine, ShardedEngine]]:
    """A graph on one device and in shards."""
    one = Engine(options, replace(CPU, sizes=backend.sizes))
    with sharded_engine(options, shards, backend) as engine:
        for each in (one, engine):
            each.apply(batch)
            each.update()
        yield one, engine


def random_edges(generator: np.random.Generator, vertices: int, edges: int) -> EdgeBatch:
    sources, targets = generator.integers(0, vertices, (2, edges))
    return EdgeBatch(sources, targets, vertices=vertices)


def weighted_or_not(seed: int, options: Options) -> tuple[int, EdgeBatch]:
    vertices, edges = random_graph(seed)
    generator = np.random.default_rng(seed)
    weights = some_weights(generator, len(edges)) if options.weighted else None
    return vertices, EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices, weights=weights)


def test_a_batch_between_two_steps_is_followed() -> None:
    generator = np.random.default_rng(3)
    edges = random_edges(generator, 40, 200)
    with both(Options(target_error=1e-8), 2, CPU, edges) as (one, engine):
        asked = (1, 2, 3, 4)
        queries = [PersonalizedQuery(np.array([v]), k=40, target_error=1e-8) for v in asked]
        batch = engine.submit(queries)
        steps = 0
        while (first := batch.take(range(1))) is None:
            assert not batch.done
            batch.step()
            steps += 1
        assert steps > 2
        assert_certified(one, queries[0], first[0])
        batch.step()  # of the second query, which continues
        change = EdgeBatch.of([(1, 39), (2, 38), (50, 3)])
        for each in (one, engine):
            each.apply(change)
        assert (batch.updates, batch.restarts) == (1, 0)
        answered = engine.submit(queries[1:2])
        finish(answered)
        change = EdgeBatch.of(insert=[(3, 1)], remove=[4])
        for each in (one, engine):
            each.apply(change)
        # the last query has lost its seed, and the answer was not taken
        assert (batch.updates, batch.restarts) == (2, 1)
        assert (answered.updates, answered.restarts, answered.done) == (1, 1, False)
        finish(answered)
        finish(batch)
        assert_certified(one, queries[1], answered.answers()[0])
        answered.close()
        for query, answer in zip(queries[1:3], batch.take(range(1, 3)) or (), strict=True):
            assert answer.error_bound <= 1e-8
            assert_certified(one, query, answer)
        with pytest.raises(UnknownVertex, match="seeds: 4"):
            batch.take(range(3, 4))
        batch.close()


def test_a_block_that_a_batch_restarts_is_counted_as_on_one_device() -> None:
    edges = random_edges(np.random.default_rng(3), 40, 200)
    with both(Options(), 2, CPU, edges) as (one, engine):
        query = PersonalizedQuery(np.array([1]), None, 40, "pull", 1e-6)
        running = [each.submit([query] * CPU.multivector.min_columns) for each in (one, engine)]
        for change in (EdgeBatch.of([(1, 39)]), EdgeBatch.of([(2, 38)]), EdgeBatch()):
            for job in running:
                job.step()
            one.apply(change)
            engine.apply(change)
        for job in running:
            while not job.done:
                job.step()
            assert (job.updates, job.restarts) == (3, 3)
        for answer in running[1].answers():
            assert_certified(one, query, answer)


def test_queries_of_two_batches_take_turns() -> None:
    vertices, edges = random_graph(6)
    query = PersonalizedQuery(np.array([1]), None, vertices, "pull", 1e-9)
    others = replace(query, seeds=np.array([2, 3]))
    with both(Options(), 3, CPU, EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices)) as (
        one,
        engine,
    ):
        first, closed, second = (engine.submit([each]) for each in (query, query, others))
        closed.step()
        closed.close()
        while not (first.done and second.done):
            for each in (first, second):
                if not each.done:
                    each.step()
        for asked, each in ((query, first), (others, second)):
            assert_certified(one, asked, each.answers()[0])
            each.close()


def test_an_interrupted_query_leaves_the_next_ones_right() -> None:
    generator = np.random.default_rng(9)
    options = Options(target_error=1e-9)
    workers, one = ThreadWorkers(options, 3, CPU), Engine(options, CPU)
    query = PersonalizedQuery(np.array([5]), None, 80, "pull", 1e-9)
    with ShardedEngine(options, workers=workers) as engine:
        batch = random_edges(generator, 80, 300)
        for each in (one, engine):
            each.apply(batch)
            each.update()
        with failing_sweep(workers), pytest.raises(MemoryError, match="the third sweep"):
            engine.personalized_many([query])
        for _ in range(2):
            (answer,) = engine.personalized_many([query])
            assert answer.error_bound <= 1e-9
            assert_certified(one, query, answer)


def finish(batch: QueryBatch) -> None:
    while not batch.done:
        batch.step()


def test_an_error_of_one_batch_leaves_the_answers_of_another() -> None:
    generator = np.random.default_rng(9)
    workers, one = ThreadWorkers(Options(), 2, CPU), Engine(Options(), CPU)
    queries = [PersonalizedQuery(np.array([v]), None, 80, "pull", 1e-9) for v in (1, 2, 3)]
    with ShardedEngine(Options(), workers=workers) as engine:
        edges = random_edges(generator, 80, 300)
        for each in (one, engine):
            each.apply(edges)
            each.update()
        batch, failing = engine.submit(queries), engine.submit(queries[:1])
        while (first := batch.take(range(1))) is None:
            batch.step()
        with failing_sweep(workers), pytest.raises(MemoryError, match="the third sweep"):
            finish(failing)
        failing.close()
        finish(batch)
        answers = [*first, *(batch.take(range(1, 3)) or ())]
        for query, answer in zip(queries, answers, strict=True):
            assert_certified(one, query, answer)
        batch.close()


def test_restarts_do_not_fall_when_shards_are_reset_after_an_error() -> None:
    query = PersonalizedQuery(np.array([1]), None, 40, "pull", 1e-6)
    workers, one = ThreadWorkers(Options(), 2, CPU), Engine(Options(), CPU)
    with ShardedEngine(Options(), workers=workers) as engine:
        edges = random_edges(np.random.default_rng(3), 40, 200)
        for each in (one, engine):
            each.apply(edges)
        running, found = engine.submit([query] * CPU.multivector.min_columns), list[int]()
        for end in (39, 38, 0, 37):
            running.step()
            found.append(running.restarts)
            for each in (one, engine) if end else ():
                each.apply(EdgeBatch.of([(1, end)]))
            if not end:
                with failing_sweep(workers), pytest.raises(MemoryError, match="the third sweep"):
                    engine.personalized_many([query])
        finish(running)
        assert [*found, running.restarts] == [0, 1, 2, 2, 3]
        for answer in running.answers():
            assert_certified(one, query, answer)


def test_a_slice_begins_with_one_exchange() -> None:
    workers = ThreadWorkers(Options(), 2, CPU)
    before = workers.communicators[0].exchanges
    assert workers.everywhere("call_kept", "answer", 0, [], [], 0.0) == [([], 0), ((), 0)]
    assert workers.communicators[0].exchanges == before + 1
    workers.close()


def test_shards_agree_to_look_at_all_vertices() -> None:
    # so many are reached on one shard that all are looked at; on the other it is one
    backend = replace(FREE, sizes=Sizes(copied=3))
    even = np.arange(0, 20, 2)
    edges = [*zip(even[:-1].tolist(), even[1:].tolist(), strict=True), (18, 0), (0, 1), (38, 39)]
    batch = EdgeBatch.of(edges, vertices=40)
    with both(Options(), 2, backend, batch) as (one, engine):
        for each in (one, engine):
            each.apply(EdgeBatch.of(remove=[20, 22, 24, 26, 28]))
            each.update()
        for k in (5, 30, 40):
            for target in ("error", "settled-top-k"):
                query = PersonalizedQuery(np.array([0]), None, k, "push", 0.5, target, zeros=True)
                (alone,), (answer,) = (
                    one.personalized_many([query]),
                    engine.personalized_many([query]),
                )
                assert_certified(one, query, answer)
                assert answer.vertices.tolist() == alone.vertices.tolist()
                assert (answer.settled, answer.groups) == (alone.settled, alone.groups)


def test_what_queries_are_predicted_to_cost_has_exchanges() -> None:
    costs = shard_costs(CPU.costs, 2)
    of_two, of_one = costs.queries, CPU.costs.queries
    exchanges = costs.sweep_overhead - CPU.costs.sweep_overhead
    assert exchanges > 0.0
    assert of_two.of_sweep(10, 20) == of_one.of_sweep(10, 20) + exchanges
    assert of_two.of_block_sweep(10, 20, 8) == of_one.of_block_sweep(10, 20, 8) + exchanges


def test_pushes_go_on_where_exchanges_use_up_their_work() -> None:
    # a round costs as much as a quarter of what a call may cost at first
    backend = replace(CPU, costs=replace(CPU.costs, exchange=5e3, sweep_overhead=0.0))
    assert shard_costs(backend.costs, 2).round_overhead == 2e4
    sources, targets = grid(128, 128)
    with both(Options(), 2, backend, EdgeBatch(sources, targets)) as (_, engine):
        answer = engine.personalized(np.array([8_256]), k=3, target_error=0.4, trace=True)
    assert answer.method == "push"
    assert answer.trace is not None
    assert {step.kind for step in answer.trace.steps} == {"push"}
    *pushes, last = answer.trace.steps
    assert [push.end for push in pushes] == ["work"] * len(pushes)
    assert last.end == "goal"
    # of their edges alone, there were more left
    assert len(pushes) > 1
    assert all(push.edges < 2_000 for push in pushes)
