"""When shards have their in-lists in pages: all of them, or none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Options, ShardedEngine, verify
from liverank_gpu.graph import in_pages
from liverank_gpu.operations.backend import Backend, PageRule
from liverank_gpu.operations.csr import GraphView, PagedLists
from liverank_gpu.sharded import dask_shard
from liverank_gpu.sharded.graph import ShardInPages
from tests.gpu.graph.test_pages import paging as emulated
from tests.gpu.pagerank.test_paged_sweeps import Paged
from tests.gpu.sharded.paged_shards import (
    EDGES,
    VERTICES,
    kept,
    loaded,
    running,
    skewed,
)
from tests.gpu.sharded.paged_shards import (
    paging as pages_everywhere,
)
from tests.gpu.sharded.threads import failing_sweep


@pytest.fixture
def paging() -> Backend:
    return pages_everywhere()


def test_a_graph_that_is_loaded_weighted_or_small_has_none(paging: Backend) -> None:
    rule = PageRule(EDGES // 2, 0.0, 0.0)  # of a shard
    least = replace(paging, costs=replace(paging.costs, pages=rule))
    with running(paging, Options()) as (engine, workers):
        engine.apply(skewed(np.random.default_rng(2), EDGES))
        engine.update("static")
        assert not any(shard.graph.in_pages.kept for shard in workers.shards)
    with running(paging, Options(weighted=True)) as (engine, workers):
        loaded(engine)
        engine.update("static")
        assert not any(shard.graph.in_pages.kept for shard in workers.shards)
    with running(least, Options()) as (engine, workers):
        loaded(engine)
        assert engine.edges < EDGES
        engine.update("static")
        assert not any(shard.graph.in_pages.kept for shard in workers.shards)
        engine.apply(skewed(np.random.default_rng(4), EDGES))
        engine.update("static")
        kept(workers)


def _grown(engine: ShardedEngine) -> None:
    engine.apply(EdgeBatch.of(insert=[(0, 3 * VERTICES), (2 * VERTICES, 1)]))


def _loaded_again(engine: ShardedEngine) -> None:
    engine.apply(
        EdgeBatch(delete_sources=engine.edge_list()[0], delete_targets=engine.edge_list()[1])
    )
    loaded(engine)


def _many_more(engine: ShardedEngine) -> None:
    engine.apply(skewed(np.random.default_rng(5), 10 * EDGES))


@pytest.mark.parametrize("change", [_grown, _loaded_again, _many_more])
def test_pages_that_cannot_follow_are_built_again(
    paging: Backend, change: Callable[[ShardedEngine], None]
) -> None:
    with running(paging, Options()) as (engine, workers):
        loaded(engine)
        engine.update("static")
        before = kept(workers)
        change(engine)
        engine.update("static")
        assert all(a is not b for a, b in zip(before, kept(workers), strict=True))


def test_new_columns_mean_new_pages(paging: Backend) -> None:
    """For as many vertices as pages have room for."""
    with running(paging, Options()) as (engine, workers):
        engine.apply(skewed(np.random.default_rng(2), EDGES, 380))
        engine.apply(EdgeBatch.of(insert=[(0, 1), (1, 7)]))
        engine.update("static")
        before = kept(workers)
        numbering = workers.shards[0].graph.numbering
        engine.apply(EdgeBatch.of(insert=[(0, 399)]))
        assert workers.shards[0].graph.numbering != numbering
        assert all(shard.graph.vertices <= before[0].room for shard in workers.shards)
        engine.update("static")
        assert all(a is not b for a, b in zip(before, kept(workers), strict=True))


def test_one_shard_builds_its_own_again(paging: Backend) -> None:
    with running(paging, Options()) as (engine, workers):
        loaded(engine)
        engine.update("static")
        before = kept(workers)
        follow = ShardInPages.follow

        def without_room(pages: ShardInPages, *arguments: Any) -> None:
            follow(pages, *arguments)
            if pages is workers.shards[1].graph.in_pages:
                pages.drop()
                pages.want()

        with patch.object(ShardInPages, "follow", without_room):
            engine.apply(EdgeBatch.of(insert=[(3, 4)]))
        seen = Paged(paging)
        engine.update("static")
        assert seen.sums > 0 == seen.rows
        after = kept(workers)
        assert [a is b for a, b in zip(before, after, strict=True)] == [True, False]


def test_all_have_them_or_none(paging: Backend) -> None:
    """Where one shard has no memory, no other builds pages again with every batch."""
    built = []
    build = ShardInPages._built

    def short_of_memory(pages: ShardInPages, graph: GraphView) -> PagedLists | None:
        rank = pages._communicator.rank
        built.append(rank)
        return None if rank == 1 else build(pages, graph)

    with running(paging, Options()) as (engine, workers):
        loaded(engine)
        seen = Paged(paging)
        with patch.object(ShardInPages, "_built", short_of_memory):
            for _ in range(3):
                engine.apply(EdgeBatch.of(insert=[(3, 4)], delete=[(3, 4)]))
                engine.apply(EdgeBatch.of(insert=[(4, 3)]))
                engine.update("static")
                assert not any(shard.graph.in_pages.kept for shard in workers.shards)
        assert sorted(built) == [0, 1]
        assert seen.rows > 0 == seen.sums
        while engine.edges < 2 * EDGES:  # they are asked again when it has grown
            engine.apply(skewed(np.random.default_rng(engine.edges), EDGES))
        engine.update("static")
        kept(workers)


def test_a_batch_that_needs_the_memory_of_one_shard_takes_its_pages(paging: Backend) -> None:
    with running(paging, Options()) as (engine, workers):
        loaded(engine)
        engine.update("static")
        pages = workers.shards[0].graph.in_pages
        require = ShardInPages.require

        def scarce(own: ShardInPages, purpose: str, needed: int, times: int = 1) -> None:
            if own is pages:
                own.drop()
            require(own, purpose, needed, times)

        with patch.object(ShardInPages, "require", scarce):
            engine.apply(EdgeBatch.of(insert=[(3, 4)]))
        assert [shard.graph.in_pages.kept for shard in workers.shards] == [False, True]
        with patch.object(ShardInPages, "_built", lambda *_: None):
            engine.update("static")
        assert not any(shard.graph.in_pages.kept for shard in workers.shards)


def test_what_not_all_can_have_is_dropped(paging: Backend) -> None:
    with running(paging, Options()) as (engine, workers):
        loaded(engine)
        engine.update("static")
        workers.shards[0].graph.in_pages.drop()
        seen = Paged(paging)
        engine.update("static")
        assert seen.rows > 0 == seen.sums
        assert not any(shard.graph.in_pages.kept for shard in workers.shards)
        engine.apply(EdgeBatch.of(insert=[(3, 4)]))
        engine.update("static")
        kept(workers)


def test_an_interrupted_solve_leaves_them_right(paging: Backend) -> None:
    with running(paging, Options()) as (engine, workers):
        loaded(engine)
        with failing_sweep(workers), pytest.raises(MemoryError):
            engine.update("static")
        engine.apply(EdgeBatch.of(insert=[(3, 4)]))
        seen = Paged(paging)
        result = engine.update("static")
        kept(workers)
        assert seen.sums > 0 == seen.rows
        exact, uncertain = verify.pagerank(*engine.edge_list(), VERTICES)
        error = np.abs(engine.publish().to_numpy() - exact).sum()
        assert error <= result.error_bound + uncertain


def test_one_that_is_interrupted_where_pages_are_built_does_too(paging: Backend) -> None:
    """One shard has its pages by then, and the other none."""
    build = ShardInPages._built

    def fails(pages: ShardInPages, graph: GraphView) -> PagedLists | None:
        if pages._communicator.rank == 1:
            raise RuntimeError("of the device")
        return build(pages, graph)

    with running(paging, Options()) as (engine, workers):
        loaded(engine)
        with patch.object(ShardInPages, "_built", fails), pytest.raises(RuntimeError):
            engine.update("static")
        seen = Paged(paging)
        engine.update("static")
        kept(workers)
        assert seen.sums > 0 == seen.rows


def test_reads_of_rows_that_are_swept_together_are_not_random(
    paging: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_pages, "_NEAR", 16)
    near = np.arange(EDGES) // 8
    grid = EdgeBatch(near, near + np.arange(EDGES) % 8)
    far = skewed(np.random.default_rng(6), EDGES, 4 * VERTICES)

    def random_reads(batch: EdgeBatch) -> list[float]:
        with running(paging, Options(vertex_order="given")) as (engine, workers):
            engine.apply(batch)
            return [
                shard.graph.in_pages.random_reads(shard.graph.incoming.csr)
                for shard in workers.shards
            ]

    assert random_reads(grid) == [0.0, 0.0]
    assert min(random_reads(far)) > 0.5


@pytest.mark.parametrize("weighted", [False, True])
def test_a_warm_up_builds_pages_that_follow_a_batch(
    weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, called = emulated(), []

    def noted(name: str, method: Callable[..., Any], *given: Any) -> Any:
        called.append(name)
        return method(*given)

    for name in ("build", "follow"):
        method = getattr(backend.pages, name)
        monkeypatch.setattr(backend.pages, name, partial(noted, name, method))
    monkeypatch.setattr(dask_shard, "sample_batches", lambda _: [])
    dask_shard.warm_up(Options(weighted=weighted), backend)
    assert called == ([] if weighted else ["build", "follow"])
