"""When shards have their in-lists in pages: all of them, or none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Options, ShardedEngine
from liverank_gpu.operations.backend import Backend, PageRule
from liverank_gpu.sharded import dask_shard
from tests.cuda_emulator.emulated import emulated_backend
from tests.gpu.doubles import instead, looked_after
from tests.gpu.graphs import assert_certified
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


def with_pages(backend: Backend, **own: Any) -> Backend:
    """The backend, of which a test answers some operations on pages itself."""
    return replace(backend, pages=instead(backend.pages, **own))


def test_a_load_builds_them(paging: Backend) -> None:
    with running(paging, Options()) as (engine, workers):
        engine.apply(skewed(np.random.default_rng(2), EDGES))
        built = kept(workers)
        seen = Paged(paging)
        engine.update("static")
        assert seen.sums > 0 == seen.rows
        assert all(a is b for a, b in zip(built, kept(workers), strict=True))


def test_a_graph_that_is_weighted_or_small_has_none(paging: Backend) -> None:
    rule = PageRule(EDGES // 2, 0.0, 0.0)  # of a shard
    least = replace(paging, costs=replace(paging.costs, pages=rule))
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
    full = with_pages(paging, follow=lambda *_: False)
    with running([paging, full], Options()) as (engine, workers):
        loaded(engine)
        engine.update("static")
        before = kept(workers)
        engine.apply(EdgeBatch.of(insert=[(3, 4)]))
        seen = Paged(paging)
        engine.update("static")
        assert seen.sums > 0 == seen.rows
        after = kept(workers)
        assert [a is b for a, b in zip(before, after, strict=True)] == [True, False]


def test_all_have_them_or_none(paging: Backend) -> None:
    """Where one shard has no memory, no other builds pages again with every batch."""
    assert paging.pages is not None
    built = Mock(wraps=paging.pages.build)
    short = Mock(wraps=paging.pages.build, side_effect=MemoryError)
    backends = with_pages(paging, build=built), with_pages(paging, build=short)
    with running(backends, Options()) as (engine, workers):
        loaded(engine)
        seen = Paged(paging)
        for _ in range(3):
            engine.apply(EdgeBatch.of(insert=[(3, 4)], delete=[(3, 4)]))
            engine.apply(EdgeBatch.of(insert=[(4, 3)]))
            engine.update("static")
            assert not any(shard.graph.in_pages.kept for shard in workers.shards)
        assert built.call_count == short.call_count == 2  # with the load, and after a batch
        short.side_effect = None
        assert seen.rows > 0 == seen.sums
        while engine.edges < 2 * EDGES:  # they are asked again when it has grown
            engine.apply(skewed(np.random.default_rng(engine.edges), EDGES))
        engine.update("static")
        kept(workers)


def test_a_batch_that_needs_the_memory_of_one_shard_takes_its_pages(paging: Backend) -> None:
    scarce, device = looked_after(paging)
    assert scarce.pages is not None
    build = Mock(wraps=scarce.pages.build)
    with running([with_pages(scarce, build=build), paging], Options()) as (engine, workers):
        loaded(engine)
        engine.update("static")
        kept(workers)
        device.memory_available = lambda: 0  # type: ignore[method-assign]
        engine.apply(EdgeBatch.of(insert=[(3, 4)]))
        assert [shard.graph.in_pages.kept for shard in workers.shards] == [False, True]
        build.side_effect = MemoryError
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
        assert_certified(engine, result.error_bound)


def test_one_that_is_interrupted_where_pages_are_built_does_too(paging: Backend) -> None:
    """One shard has its pages by then, and the other none."""
    assert paging.pages is not None
    # the first is that of the load
    errors = [MemoryError, RuntimeError("of the device")]
    build = Mock(wraps=paging.pages.build, side_effect=errors)
    with running([paging, with_pages(paging, build=build)], Options()) as (engine, workers):
        loaded(engine)
        with pytest.raises(RuntimeError, match="of the device"):
            engine.update("static")
        build.side_effect = None
        seen = Paged(paging)
        engine.update("static")
        kept(workers)
        assert seen.sums > 0 == seen.rows


def test_reads_of_rows_that_are_swept_together_are_not_random(paging: Backend) -> None:
    near = np.arange(EDGES) // 8
    grid = EdgeBatch(near, near + np.arange(EDGES) % 8)
    far = skewed(np.random.default_rng(6), EDGES, 50_000)

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
def test_a_warm_up_builds_pages_that_follow_a_batch(weighted: bool) -> None:
    backend, called = emulated_backend(), Mock()
    assert backend.pages is not None
    called.build.side_effect, called.follow.side_effect = backend.pages.build, backend.pages.follow
    backend = with_pages(backend, build=called.build, follow=called.follow)
    # the rest takes long
    merging = instead(backend.rebuild, merge=Mock(side_effect=RuntimeError("what comes next")))
    with pytest.raises(RuntimeError, match="what comes next"):
        dask_shard.warm_up(Options(weighted=weighted), replace(backend, rebuild=merging))
    assert [name for name, *_ in called.method_calls] == ["build", "follow"]
