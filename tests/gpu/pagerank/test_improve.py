"""What an engine does while it is idle, and the residual of long rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Engine, Options
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.residual import RecomputeRows, Residual
from liverank_gpu.operations.sweeps import QuantizeContributions
from liverank_gpu.types import Ranking
from liverank_gpu.verify import pagerank
from tests.gpu.observed import observed

N = 600


def ranked(backend: Backend, seed: int = 3) -> Engine:
    """An engine with ranks of a random graph."""
    ends = np.random.default_rng(seed).integers(0, N, (2, 5 * N))
    engine = Engine(Options(target_error=1e-6), backend)
    engine.apply(EdgeBatch(ends[0], ends[1], vertices=N))
    engine.update()
    return engine


def exact(engine: Engine) -> Ranking:
    ranks, _ = pagerank(*engine.edge_list(), N, engine.options.damping)
    return ranks


def test_ranks_come_nearer_and_what_was_published_stays(backend: Backend) -> None:
    engine = ranked(backend)
    before = engine.publish()
    stored, calls = before.to_numpy(), 1
    while engine.improve():
        calls += 1
    after = engine.publish()
    assert np.array_equal(before.to_numpy(), stored)
    if backend.repeatable:  # the same calls leave the same bits there
        assert calls == 1
        assert np.array_equal(after.to_numpy(), stored)
        return
    assert after.error_bound <= 0.1 * engine.options.target_error < before.error_bound
    assert np.abs(after.to_numpy() - exact(engine)).sum() <= after.error_bound
    assert not engine.improve()


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_that_follows_is_within_the_target(backend: Backend, seed: int) -> None:
    engine, random = ranked(backend, seed), np.random.default_rng(seed)
    for _ in range(6):
        while engine.improve():
            pass
        inserted, deleted = random.integers(0, N, (2, 3)), random.integers(0, N, (2, 2))
        engine.apply(EdgeBatch(*inserted, *deleted))
        assert not engine.improve()  # the ranks that can be published are those of the last update
        result = engine.update()
        ranks = engine.publish()
        error = np.abs(ranks.to_numpy() - exact(engine)).sum()
        assert error <= ranks.error_bound == result.error_bound <= engine.options.target_error


@pytest.mark.reference
def test_long_in_lists_are_recomputed(backend: Backend) -> None:
    """Their sums are divided among warps on ``cuda``: chunks of 1,024 entries."""
    n = 5000
    random = np.random.default_rng(5)
    lists = [np.full(4000, 0), np.full(1025, 1), np.full(2048, 7), random.integers(0, n, 9000)]
    targets = np.concatenate(lists)
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch(random.integers(0, n, len(targets)), targets, vertices=n))
    engine.update()
    graph, iterate = engine.internals.graph, engine.internals.iterate
    iterate.recompute_residual()
    residual = iterate.workspace.residual
    wanted = backend.device.to_host(residual.values).copy()
    residual.values[:] = 0.25
    longest = int(graph.incoming.csr.row_lengths.max())
    assert longest > 2 * 1024
    backend.run(
        RecomputeRows(
            graph.view,
            0,
            n,
            len(targets),
            iterate.values,
            iterate.rhs_scale,
            engine.options.damping,
            Residual(*(residual.values, residual.marks, residual.candidates), 0, np.inf, 0),
        )
    )
    found = backend.device.to_host(residual.values)
    assert np.abs(found - wanted).max() <= 1e-11


def test_ranks_stay_where_memory_is_short(backend: Backend) -> None:
    """What is idle work raises nothing, and what is published then is within its bound."""
    if backend.repeatable:
        pytest.skip("such backends do not improve")
    engine, failed = ranked(backend), []

    def fails(_: Any, __: Any) -> None:
        failed.append(True)
        raise MemoryError

    with observed(QuantizeContributions, fails):
        assert not engine.improve()
    assert failed
    ranks = engine.publish()
    assert np.abs(ranks.to_numpy() - exact(engine)).sum() <= ranks.error_bound
    assert ranks.error_bound <= engine.options.target_error
    assert not engine.improve()  # until there is another batch


def test_published_ranks_stay_and_follow_whatever_changes(backend: Backend) -> None:
    """Ranks that did not change are published in the same array again."""
    engine, random = ranked(backend), np.random.default_rng(6)
    kept = []
    for number in range(12):
        if number % 4 != 3:
            while engine.improve():
                pass
        batch = EdgeBatch(*random.integers(0, N, (2, 1)))
        if number % 5 == 1:
            batch = EdgeBatch(np.array([number]), np.array([engine.id_limit]))
        elif number % 5 == 2:
            batch = EdgeBatch.of(remove=[number])
        elif number % 5 == 4:
            batch = EdgeBatch(*random.integers(0, N, (2, 80)))
        engine.apply(batch)
        engine.update()
        ranks = engine.publish()
        assert ranks.id_limit == engine.id_limit
        found = ranks.to_numpy()
        assert not found[engine.free_ids()].any()
        same = Engine(engine.options, "cpu")
        same.apply(EdgeBatch(*engine.edge_list(), vertices=engine.id_limit))
        same.apply(EdgeBatch(remove=engine.free_ids()))
        bound = same.update().error_bound + ranks.error_bound
        assert np.abs(found - same.publish().to_numpy()).sum() <= bound
        kept.append((ranks, found))
    for ranks, found in kept:
        np.testing.assert_array_equal(ranks.to_numpy(), found)
