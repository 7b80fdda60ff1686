"""Sweeps that a device runs several of in one launch do what they do one at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Engine, Options
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.sweeps import (
    FusedOrthomin,
    FusedSweeps,
)
from liverank_gpu.pagerank.sweeps import SWEEP_KINDS, iterate_to_tolerance, sweep_to_target
from tests.gpu.doubles import sweeping_singly
from tests.gpu.graphs import exact_ranks
from tests.gpu.observed import observed

KINDS = [Options(), Options(dangling="self-loop", weighted=True)]
IDS = [f"{each.dangling}{' weighted' * each.weighted}" for each in KINDS]


def _loaded(options: Options, backend: Backend) -> Engine:
    """Rows of every length, parts that are seldom left, loops, dangling vertices, vertices without
    edges and removed ones.
    """
    if backend.name != "cuda":
        pytest.skip("runs sweeps one at a time")
    random = np.random.default_rng(4)
    sources = (900 * random.random(4000) ** 2).astype(np.int64)
    targets = np.where(random.random(4000) < 0.9, sources // 30 * 30 + sources % 7, sources // 2)
    spokes, pairs = np.arange(900), np.arange(900, 940)
    columns = (
        np.concatenate([sources, spokes, pairs]),
        np.concatenate([targets, 0 * spokes + 5, pairs ^ 1]),
    )
    weights: Any = random.uniform(0.1, 9.0, len(columns[0])) if options.weighted else None
    engine = Engine(options, backend)
    engine.apply(EdgeBatch(*columns, vertices=1000, weights=weights))
    engine.apply(EdgeBatch.of(remove=[3, 950, 990]))
    return engine


def _error(engine: Engine) -> float:
    """L1 distance of y / Σy to the exact ranks."""
    graph = engine.internals.graph
    values = graph.backend.device.to_host(graph.permutation.by_id(engine.internals.iterate.values))
    ranks = values.astype(np.float64)
    ranks[engine.free_ids()] = 0.0
    return float(np.abs(ranks / ranks.sum() - exact_ranks(engine)[0]).sum())


@pytest.mark.parametrize("options", KINDS, ids=IDS)
def test_a_solve_takes_the_same_sweeps_to_the_same_bound(
    options: Options, backend: Backend
) -> None:
    def solved(backend: Backend) -> tuple[int, float]:
        engine = _loaded(replace(options, target_error=1e-6), backend)
        iterate = engine.internals.iterate
        iterate.exclude_free()
        swept = sweep_to_target(iterate, 200, from_nothing=True)
        assert swept.converged
        assert _error(engine) <= iterate.error_bound <= 1e-6
        return swept.sweeps, iterate.error_bound

    launched: list[int] = []

    def look(_: FusedSweeps | FusedOrthomin, run: Callable[[], list[Any]]) -> list[Any]:
        results = run()
        launched.append(len(results))
        return results

    sweeps, bound = solved(sweeping_singly(backend))
    with observed(FusedSweeps, look), observed(FusedOrthomin, look):
        fused_sweeps, fused_bound = solved(backend)
    assert fused_sweeps == sweeps > 20
    assert fused_bound == pytest.approx(bound, rel=1e-3)
    # the other sweeps are a guess, and those of which only one may follow
    assert sum(launched) > 0.7 * sweeps
    assert len(launched) < sweeps / 2


@pytest.mark.parametrize("options", KINDS, ids=IDS)
def test_a_solve_by_the_published_stop_rule_takes_the_same_sweeps(
    options: Options, backend: Backend
) -> None:
    found = []
    for each in (sweeping_singly(backend), backend):
        iterate = _loaded(replace(options, tolerance=1e-8), each).internals.iterate
        iterate.exclude_free()
        swept = iterate_to_tolerance(iterate, 200, from_nothing=True)
        found.append((swept, iterate.error_bound))
    (swept, bound), (expected, expected_bound) = found
    assert swept == expected
    assert bound == pytest.approx(expected_bound, rel=1e-3)
    assert iterate_to_tolerance(iterate, 7, from_nothing=True).sweeps == 7


def test_only_small_graphs_are_fused(backend: Backend) -> None:
    graph = _loaded(Options(), backend).internals.graph.view
    assert backend.sweeps.most_fused(graph) > 1
    assert backend.sweeps.most_fused(graph._replace(edges=1 << 25)) == 1
    assert backend.sweeps.most_fused(graph._replace(vertices=1 << 24)) == 1


def test_accelerated_sweeps_alone_are_fused_between_new_weights(backend: Backend) -> None:
    kinds = [kind for kind in SWEEP_KINDS if kind.accelerated and kind.mean_corrected]
    found = []
    for each in (sweeping_singly(backend), backend):
        engine = _loaded(Options(target_error=1e-9), each)
        iterate = engine.internals.iterate
        iterate.exclude_free()
        iterate.reset()
        found.append((sweep_to_target(iterate, 300, kinds), _error(engine)))
        assert _error(engine) <= iterate.error_bound <= 1e-9
    assert abs(found[0][0].sweeps - found[1][0].sweeps) <= 2
