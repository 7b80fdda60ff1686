"""In-lists in pages in shards, on emulated devices: what they hold, when all have them, and sweeps
by them. Those of one device: test_pages.py in tests/gpu/graph, test_paged_sweeps.py in
tests/gpu/pagerank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from gpu import EdgeBatch, Options, PersonalizedQuery, ShardedEngine, verify
from gpu.graph import in_pages
from gpu.operations.backend import Backend, PageRule
from gpu.operations.csr import GraphView, PagedLists
from gpu.pagerank.schedule import SWEEP_KINDS
from gpu.pagerank.sweeps import sweep_to_target
from gpu.sharded import shard as shard_module
from gpu.sharded.capture import by_position
from gpu.sharded.in_pages import ShardInPages
from gpu.sharded.shard import Shard
from gpu.types import Dangling
from tests.gpu.graph.test_pages import edges_in, edges_of
from tests.gpu.graph.test_pages import paging as emulated
from tests.gpu.pagerank.test_paged_sweeps import Paged
from tests.gpu.sharded.threads import ThreadWorkers, failing_sweep

VERTICES, EDGES = 300, 3000


@pytest.fixture
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
    backend: Backend, options: Options, shards: int = 2
) -> Iterator[tuple[ShardedEngine, ThreadWorkers]]:
    workers = ThreadWorkers(options, shards, backend)
    with ShardedEngine(options, workers=workers) as engine:
        yield engine, workers


def loaded(engine: ShardedEngine) -> None:
    """A graph whose next solve builds pages."""
    engine.apply(skewed(np.random.default_rng(2), EDGES))
    engine.apply(EdgeBatch.of(insert=[(0, 1), (1, 7)], delete=[(5, 0)]))


def pages_of(shard: Shard) -> PagedLists | None:
    return shard.graph.in_pages._lists


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


@pytest.mark.parametrize(
    ("options", "shards"),
    [
        (Options(target_error=1e-6), 2),
        (Options(target_error=1e-10, dangling="self-loop", damping=0.99), 2),
        (Options(target_error=1e-9, directed=False, vertex_order="degree"), 3),
    ],
)
def test_errors_are_within_their_bounds_through_a_stream(
    paging: Backend, options: Options, shards: int
) -> None:
    random, strategies = np.random.default_rng(3), ["static", "residual", "auto", "naive-dynamic"]
    with running(paging, options, shards) as (engine, workers):
        loaded(engine)
        seen = Paged(paging)
        engine.update("static")
        first = kept(workers)
        stream = batches(random, engine, [3, 900, 40])
        for number, batch in enumerate(stream):
            engine.apply(batch)
            result = engine.update(strategies[number % 4])
            assert result.converged
            ranks = engine.publish().to_numpy()
            ids = np.flatnonzero(ranks)
            sources, targets = np.searchsorted(ids, engine.edge_list())
            if not options.directed:
                arcs = sources != targets
                sources, targets = (
                    np.append(sources, targets[arcs]),
                    np.append(targets, sources[arcs]),
                )
            exact, uncertain = verify.pagerank(
                sources, targets, len(ids), options.damping, options.dangling
            )
            error = np.abs(ranks[ids] - exact).sum()
            assert error <= result.error_bound + uncertain
            now = kept(workers)
            assert all(a is b for a, b in zip(first, now, strict=True))
        assert seen.sums > 0 == seen.rows
        assert max(int(lists.counts[0]) - lists.built for lists in now) > 0


@pytest.mark.parametrize("accelerated", [False, True])
@pytest.mark.parametrize("dangling", ["uniform", "self-loop"])
@pytest.mark.parametrize("coarse", [1.0, 2.0**48])
def test_what_one_shard_sends_is_what_others_take(
    paging: Backend, dangling: Dangling, coarse: float, accelerated: bool
) -> None:
    """r is the residual of y after sweeps, to the rounding of float64, also if units are so large
    that most contributions are rounded.
    """
    options = Options(dangling=dangling, target_error=1e-13, vertex_order="given")
    kinds = [kind for kind in SWEEP_KINDS if kind.accelerated == accelerated]

    def swept(shard: Shard) -> float:
        view, iterate = shard.graph.sweep_view, shard._iterate

        def coarser(largest_sum: float) -> GraphView:
            return view(coarse * largest_sum)

        shard.graph.sweep_view = coarser  # type: ignore[method-assign]
        shard._follow()
        iterate.reset()
        before = float(iterate.certificate.residual_l1)
        sweep_to_target(iterate, 12, kinds)
        return before

    with running(paging, options, 3) as (engine, workers):
        loaded(engine)
        seen = Paged(paging)
        calls = [partial(swept, shard) for shard in workers.shards]
        before = workers.together(calls, [()] * 3)[0]
        assert seen.sums >= 3 * 12
        assert seen.rows == 0
        shards = [(shard._iterate, shard.graph.vertices) for shard in workers.shards]
        values = by_position([each.values[:rows] for each, rows in shards])
        left = by_position([each.workspace.residual.values[:rows] for each, rows in shards])
        sources, targets = engine.edge_list()
        if dangling == "self-loop":
            loops = np.arange(len(values))
            sources, targets = np.append(sources, loops), np.append(targets, loops)
        expected = verify.residual(sources, targets, values, shards[0][0].rhs_scale)
        assert np.abs(left - expected).sum() <= 1e-14 * before
        if coarse == 1.0:
            assert shards[0][0].certificate.residual_l1 <= 0.01 * before


def test_it_is_the_sweep_over_rows(paging: Backend) -> None:
    found = []
    options = Options(vertex_order="given")
    for backend in (paging, replace(paging, pages=None)):
        with running(backend, options) as (engine, workers):
            loaded(engine)
            result = engine.update("static")
            found.append((engine.publish().to_numpy(), result.error_bound, result.iterations))
            assert all(
                (pages_of(shard) is None) == (backend.pages is None) for shard in workers.shards
            )
    (by_pages, bound, sweeps), (by_rows, other_bound, other_sweeps) = found
    assert sweeps == other_sweeps
    assert bound == pytest.approx(other_bound, rel=1e-6)
    assert np.allclose(by_pages, by_rows, rtol=0.0, atol=1e-14)


def test_personalized_queries_sweep_by_pages_too(paging: Backend) -> None:
    with running(paging, Options()) as (engine, workers):
        loaded(engine)
        engine.update("auto")
        seen = Paged(paging)
        query = PersonalizedQuery(np.array([5, 9]), k=10**6, method="pull", target_error=1e-8)
        (answer,) = engine.personalized_many([query])
        assert seen.sums > 0 == seen.rows
        kept(workers)
        teleport = np.isin(np.arange(VERTICES), [5, 9]) / 2.0
        exact, uncertain = verify.pagerank(*engine.edge_list(), VERTICES, 0.85, "uniform", teleport)
        ranks = np.zeros(VERTICES)
        ranks[answer.vertices] = answer.ranks
        assert np.abs(ranks - exact).sum() <= answer.error_bound + uncertain <= 2e-8


def test_they_take_no_exchanges_once_they_are_built(paging: Backend) -> None:
    found = []
    for backend in (paging, replace(paging, pages=None)):
        with running(backend, Options(vertex_order="given")) as (engine, workers):
            loaded(engine)
            engine.update("static")
            before = workers.communicators[0].exchanges
            engine.apply(EdgeBatch.of(insert=[(3, 4)]))
            sweeps = engine.update("static").iterations
            found.append((sweeps, workers.communicators[0].exchanges - before))
    assert found[0] == found[1]


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
                pages.wanted = True

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
    monkeypatch.setattr(shard_module, "sample_batches", lambda _: [])
    shard_module.warm_up(Options(weighted=weighted), backend)
    assert called == ([] if weighted else ["build", "follow"])
