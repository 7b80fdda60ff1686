"""Sweeps of shards by in-lists in pages, on emulated devices. Those of one device: test_pages.py in
tests/gpu/graph, test_paged_sweeps.py in tests/gpu/pagerank.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Options, verify
from liverank_gpu.graph.in_pages import SWEEPS_BY_ROWS
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import GraphView
from liverank_gpu.pagerank.sweeps import SWEEP_KINDS, sweep_to_target
from liverank_gpu.sharded.columns import by_position
from liverank_gpu.sharded.member import Member
from liverank_gpu.types import Dangling
from tests.gpu.doubles import instead
from tests.gpu.graph.test_pages import NO_EDGES
from tests.gpu.graphs import assert_certified
from tests.gpu.pagerank.test_paged_sweeps import Paged
from tests.gpu.sharded.paged_shards import (
    EDGES,
    batches,
    kept,
    loaded,
    pages_of,
    running,
    skewed,
)
from tests.gpu.sharded.paged_shards import (
    paging as pages_everywhere,
)


@pytest.fixture
def paging() -> Backend:
    return pages_everywhere()


@pytest.mark.parametrize(
    ("options", "shards"),
    [
        (Options(target_error=1e-6), 2),
        # exchanges that cost nothing have it push for hundreds of rounds
        (Options(0.99, target_error=1e-10, dangling="self-loop", max_iterations=1000), 2),
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
            assert_certified(engine, result.error_bound)
            now = kept(workers)
            assert all(a is b for a, b in zip(first, now, strict=True))
        assert seen.sums > 0 == seen.rows
        assert max(int(lists.counts[0]) - lists.built for lists in now) > 0
        engine.apply(EdgeBatch(*NO_EDGES, *engine.edge_list()))
        engine.apply(skewed(random, EDGES))  # all at once, as into a new graph
        engine.update("static")
        kept(workers)


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

    def swept(shard: Member) -> float:
        view, iterate = shard.graph.sweep_view, shard.internals.iterate

        def coarser(largest_sum: float, of_query: bool = False) -> GraphView:
            return view(coarse * largest_sum, of_query)

        shard.graph.sweep_view = coarser  # type: ignore[method-assign]
        iterate.reset()
        before = float(iterate.certificate.residual_l1)
        sweep_to_target(iterate, 12, kinds)
        return before

    with running(paging, options, 3) as (engine, workers):
        loaded(engine)
        engine.update("static")  # has pages
        seen = Paged(paging)
        calls = [partial(swept, shard) for shard in workers.shards]
        before = workers.together(calls, [()] * 3)[0]
        assert seen.sums >= 3 * 12
        assert seen.rows == 0
        shards = [(shard.internals.iterate, shard.graph.vertices) for shard in workers.shards]
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


def test_sweeps_by_rows_do_not_build_pages_in_one_shard(paging: Backend) -> None:
    """Shards agree after a load or a batch alone; here one had no memory for a load's."""
    assert paging.pages is not None
    short = instead(paging.pages, build=Mock(side_effect=MemoryError))
    backends = [paging, replace(paging, pages=short)]
    with running(backends, Options(target_error=1e-12)) as (engine, workers):
        engine.apply(skewed(np.random.default_rng(2), EDGES))
        swept = 0
        while swept <= SWEEPS_BY_ROWS:
            swept += engine.update("static").iterations
        assert [pages_of(shard) for shard in workers.shards] == [None, None]
