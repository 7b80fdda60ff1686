"""Shards on emulated devices whose in-lists are in pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from liverank_gpu import EdgeBatch, Options, ShardedEngine
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import PagedLists
from liverank_gpu.sharded.member import Member
from tests.gpu.graph.test_pages import edges_in, edges_of
from tests.gpu.graph.test_pages import paging as emulated
from tests.gpu.sharded.threads import ThreadWorkers

VERTICES, EDGES = 300, 3000


def paging() -> Backend:
    """Pages for small graphs too, and exchanges that cost nothing."""
    backend = emulated()
    return replace(backend, costs=replace(backend.costs, exchange=0.0))


def skewed(random: np.random.Generator, count: int, vertices: int = VERTICES) -> EdgeBatch:
    """Insertions, of which many end in few vertices, loops among them, and dangling vertices."""
    sources = random.integers(0, vertices, count)
    targets = (vertices * random.random(count) ** 3).astype(np.int64)
    targets[::50] = sources[::50]
    sources[sources % 17 == 3] = 5
    return EdgeBatch(sources, targets, vertices=vertices)


@contextmanager
def running(
    backend: Backend | Sequence[Backend], options: Options, shards: int = 2
) -> Iterator[tuple[ShardedEngine, ThreadWorkers]]:
    workers = ThreadWorkers(options, shards, backend)
    with ShardedEngine(options, workers=workers) as engine:
        yield engine, workers


def loaded(engine: ShardedEngine) -> None:
    """A graph in pages, which have followed a batch."""
    engine.apply(skewed(np.random.default_rng(2), EDGES))
    engine.apply(EdgeBatch.of(insert=[(0, 1), (1, 7)], delete=[(5, 0)]))


def pages_of(shard: Member) -> PagedLists | None:
    return shard.graph.in_pages.lists


def kept(workers: ThreadWorkers) -> list[PagedLists]:
    """The pages of all shards, which hold the edges of their in-lists."""
    found = [pages_of(shard) for shard in workers.shards]
    for shard, lists in zip(workers.shards, found, strict=True):
        assert lists is not None
        assert edges_in(lists) == edges_of(shard.graph)
        assert shard.graph.memory()["pages"] == lists.nbytes
    return [lists for lists in found if lists is not None]


def batches(random: np.random.Generator, engine: ShardedEngine, sizes: list[int]) -> Any:
    for size in sizes:
        sources, targets = engine.edge_list()
        gone = random.choice(len(sources), min(size, len(sources) // 8), replace=False)
        new = skewed(random, size)
        deleted = (sources[gone].copy(), targets[gone].copy())
        yield EdgeBatch(new.insert_sources, new.insert_targets, *deleted)
        yield EdgeBatch.of(remove=[int(random.integers(20, VERTICES))])
