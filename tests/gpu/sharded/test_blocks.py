"""Blocks of personalized queries in shards, against liverank_gpu.verify and against one device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Options, PersonalizedQuery
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.sweeps import SweepMany
from liverank_gpu.personalized.resolve import TARGETS
from tests.gpu.observed import observed
from tests.gpu.personalized.certified import assert_certified
from tests.gpu.sharded.test_personalized import both, random_edges, weighted_or_not
from tests.gpu.sharded.test_shards import kind_of_graph

CPU = backend_named("cpu")


@pytest.fixture
def sweeps() -> Iterator[list[int]]:
    """The number of columns of each sweep of a block, on each shard."""
    columns: list[int] = []

    def look(sweep: SweepMany, run: Callable[[], Any]) -> Any:
        columns.append(sweep.values.shape[1])
        return run()

    with observed(SweepMany, look):
        yield columns


def queries_of(generator: np.random.Generator, count: int, ids: int) -> list[PersonalizedQuery]:
    return [
        PersonalizedQuery(
            generator.integers(0, ids, 1 + number % 3),
            k=(5, ids + 3)[number % 2],
            method="pull",
            target_error=(1e-3, 1e-7)[number % 2],
            among=generator.integers(0, ids, 9) if number % 4 == 3 else None,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("seed", range(8))
def test_blocks_are_certified_on_every_kind_of_graph(
    seed: int, backend: Backend, sweeps: list[int]
) -> None:
    options = kind_of_graph(seed)
    vertices, batch = weighted_or_not(seed + 20, options)
    generator = np.random.default_rng(seed)
    with both(options, 2 + seed % 3, backend, batch) as (one, engine):
        if seed % 2:
            removed = EdgeBatch(remove=np.unique(generator.integers(0, vertices, 3)))
            for each in (one, engine):
                each.apply(removed)
        present = np.setdiff1d(np.arange(vertices), one.free_ids())
        if len(present) < 2:
            return
        queries = [
            replace(
                query,
                seeds=present[query.seeds % len(present)],
                among=None if query.among is None else present[query.among % len(present)],
            )
            for query in queries_of(generator, 9, vertices)
        ]
        for query, answer in zip(queries, engine.personalized_many(queries), strict=True):
            assert answer.error_bound <= (query.target_error or 0.0)
            assert_certified(one, query, answer)
        assert sweeps


@pytest.mark.parametrize("target", TARGETS)
def test_a_block_takes_the_sweeps_of_one_device(
    target: str, backend: Backend, sweeps: list[int]
) -> None:
    batch = random_edges(np.random.default_rng(1), 400, 4_000)
    with both(Options(target_error=1e-9), 3, backend, batch) as (one, engine):
        queries = [
            PersonalizedQuery(np.array([seed]), None, 7, "pull", 1e-6, target) for seed in range(5)
        ]
        ours = engine.personalized_many(queries)
        assert len(sweeps) == 3 * max(answer.iterations for answer in ours)
        theirs = one.personalized_many(queries)
        for mine, other in zip(ours, theirs, strict=True):
            assert mine.iterations == other.iterations
            assert mine.vertices.tolist() == other.vertices.tolist()
            apart = max(1e-9, 1e-4 * other.error_bound)
            assert np.abs(mine.ranks - other.ranks).max() <= apart
            assert mine.settled == other.settled
            assert (mine.error_bound > 1e-6) == (target != "error")


def test_a_block_that_a_batch_interrupts_starts_again(
    sweeps: list[int],
) -> None:
    edges = random_edges(np.random.default_rng(3), 60, 300)
    with both(Options(target_error=1e-9), 2, CPU, edges) as (one, engine):
        queries = [
            PersonalizedQuery(np.array([seed]), k=70, method="pull", target_error=1e-6)
            for seed in range(40)
        ]
        batch = engine.submit(queries)
        for _ in range(3):
            batch.step()
        assert sweeps
        assert not batch.take(range(1))
        change = EdgeBatch.of([(1, 59), (2, 58), (65, 3)], remove=[7])
        for each in (one, engine):
            each.apply(change)
        queries = [query for query in queries if query.seeds.tolist() != [7]]
        while not batch.done:
            batch.step()
        places = [place for place in range(40) if place != 7]
        for query, place in zip(queries, places, strict=True):
            taken = batch.take(range(place, place + 1))
            assert taken is not None
            assert_certified(one, query, taken[0])
        batch.close()
