"""Sweeps with momentum, where a graph is like an undirected one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Engine, Options, generate
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.sweeps import OrthominProducts, Sweep
from liverank_gpu.pagerank.iterate import ContributionBuffers
from liverank_gpu.pagerank.sweeps import (
    SWEEP_KINDS,
    Momentum,
    sweep_to_target,
)
from tests.gpu.doubles import instead
from tests.gpu.graphs import assert_certified, loaded_with_gaps
from tests.gpu.observed import counted, observable, observed

OPTIONS = [
    Options(directed=False),
    Options(directed=False, dangling="self-loop"),
    Options(directed=False, weighted=True),
    Options(directed=False, weighted=True, dangling="self-loop"),
]
NAMES = ["uniform", "self-loop", "weighted", "weighted, self-loop"]


def _cpu() -> Backend:
    return observable(backend_named("cpu"))


def _grid(side: int, options: Options, backend: Backend | None = None) -> Engine:
    engine = Engine(options, backend or _cpu())
    sources, targets = generate.grid(side, side)
    weights = np.ones(len(sources)) if options.weighted else None
    engine.apply(EdgeBatch(sources, targets, vertices=side * side, weights=weights))  # type: ignore[arg-type]
    return engine


def _residual(engine: Engine) -> tuple[Any, Any]:
    """r as it is kept, and as it is computed from y."""
    iterate = engine.internals.iterate
    kept = iterate.workspace.residual.values.copy()
    iterate.recompute_residual()
    return kept, iterate.workspace.residual.values


@pytest.mark.parametrize("options", OPTIONS, ids=NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_the_residual_stays_that_of_the_ranks(options: Options, seed: int) -> None:
    engine = loaded_with_gaps(options, _cpu(), seed)
    iterate = engine.internals.iterate
    iterate.exclude_free()
    iterate.reset()
    buffers = ContributionBuffers.allocate(_cpu(), engine.internals.graph.columns)
    momentum, closed_class_residual = Momentum(iterate), 0.0
    bounds = []
    for _ in range(30):
        result, closed_class_residual = momentum.sweep(
            buffers, iterate.mean_correction, closed_class_residual
        )
        bounds.append(iterate.error_bound)
        if bounds[1:]:
            # so the sweep before has said what this one would leave
            assert abs(result.residual_sum) <= 1e-6 * result.residual_l1
    residual = iterate.workspace.residual.values
    assert abs(np.abs(residual).sum() - result.residual_l1) <= 1e-12
    kept, computed = _residual(engine)
    size = np.abs(iterate.values).sum()
    assert np.abs(kept - computed).sum() <= 1e-13 * size
    # 0.56 a sweep, and some more for the norm
    assert bounds[-1] <= 1e-5 * bounds[0]


@pytest.mark.parametrize("options", OPTIONS, ids=NAMES)
@pytest.mark.parametrize("target", [1e-3, 1e-6, 1e-11])
def test_bounds_hold(options: Options, target: float) -> None:
    for seed in range(3):
        engine = loaded_with_gaps(replace(options, target_error=target), _cpu(), seed)
        iterate = engine.internals.iterate
        iterate.exclude_free()
        iterate.reset()
        accelerated = [kind for kind in SWEEP_KINDS if kind.accelerated and kind.mean_corrected]
        found: list[OrthominProducts] = []
        with counted(OrthominProducts, found):
            assert sweep_to_target(iterate, 200, accelerated).converged
        assert not found
        iterate.solved = True
        result = engine.update("auto")
        assert result.converged
        assert result.iterations == 0
        assert_certified(engine, result.error_bound)
        assert result.error_bound <= target


def _ways(engine: Engine) -> tuple[int, set[str]]:
    """Iterations of a solve, and how its accelerated sweeps were accelerated."""
    swept: list[Sweep] = []
    steps: list[OrthominProducts] = []
    with counted(Sweep, swept), counted(OrthominProducts, steps):
        result = engine.update("auto")
    assert result.converged
    assert_certified(engine, result.error_bound)
    ways = {"momentum"} if any(sweep.kept for sweep in swept) else set()
    return result.iterations, ways | ({"orthomin"} if steps else set())


@pytest.mark.parametrize("directed", [True, False])
def test_a_grid_is_solved_with_momentum_in_fewer_sweeps(directed: bool) -> None:
    options = Options(directed=directed, target_error=1e-8)
    engine = _grid(64, options)
    iterations, ways = _ways(engine)
    assert ways == {"momentum"}
    # a directed graph, of which nothing tells that it is like an undirected one
    unknown = replace(_cpu(), components=None)
    by_orthomin, ways = _ways(_grid(64, replace(options, directed=True), unknown))
    assert ways == {"orthomin"}
    assert iterations <= by_orthomin + 2
    iterate = engine.internals.iterate
    iterate.reset()
    alone = [kind for kind in SWEEP_KINDS if not kind.accelerated]
    assert iterations < 0.6 * sweep_to_target(iterate, 200, alone).sweeps


@pytest.mark.parametrize("kept", [0.2, 0.3])
def test_it_is_charged_what_it_costs(kept: float) -> None:
    """Not what Orthomin costs: then it begins later, or ends where it still gains, and these solves
    took 17 and 14 sweeps.
    """
    sources, targets = generate.grid(128, 128)
    chosen = np.random.default_rng(1).random(len(sources)) < kept
    engine = Engine(Options(directed=False, dangling="self-loop", target_error=1e-3), _cpu())
    engine.apply(EdgeBatch(sources[chosen], targets[chosen], vertices=128 * 128))
    result = engine.update("auto")
    assert result.converged
    assert result.iterations <= 12


def test_a_graph_that_is_not_like_an_undirected_one_has_no_momentum(
    backend: Backend,
) -> None:
    ring = np.arange(300)
    around = EdgeBatch(ring, (ring + 1) % 300)
    engine = Engine(Options(), backend)
    engine.apply(around)
    assert not Momentum(engine.internals.iterate).suits
    both = Engine(Options(), backend)
    both.apply(EdgeBatch(np.append(ring, (ring + 1) % 300), np.append((ring + 1) % 300, ring)))
    assert Momentum(both.internals.iterate).suits == (backend.components is not None)
    # opposite edges of different weights
    assert not Momentum(_grid(8, Options(weighted=True)).internals.iterate).suits
    assert Momentum(_grid(8, Options(weighted=True, directed=False)).internals.iterate).suits


def test_where_it_gains_nothing_it_is_given_up() -> None:
    # eigenvalues all around 0: there the steps grow
    ring = np.arange(2000)
    chords = np.random.default_rng(1).integers(0, 2000, (2, 50))
    sources = np.concatenate([ring, ring, (ring + 1) % 2000, chords[0]])
    targets = np.concatenate([(ring + 1) % 2000, (ring + 7) % 2000, ring, chords[1]])
    # as if all edges had opposite ones
    components = instead(_cpu().components, reciprocity=lambda _: 1.0)
    engine = Engine(Options(target_error=1e-11), replace(_cpu(), components=components))
    engine.apply(EdgeBatch(sources, targets))
    ways: list[str] = []

    def seen(sweep: Sweep, run: Callable[[], Any]) -> Any:
        ways.append("momentum" if sweep.kept else "ordinary")
        return run()

    def stepped(_: OrthominProducts, run: Callable[[], Any]) -> Any:
        ways.append("orthomin")
        return run()

    with observed(Sweep, seen), observed(OrthominProducts, stepped):
        result = engine.update("auto")
    assert result.converged
    assert_certified(engine, result.error_bound)
    runs = [way for way, _ in groupby(ways) if way != "ordinary"]
    assert runs[0] == "momentum"
    assert set(runs[1:]) == {"orthomin"}
    assert ways.count("momentum") <= 12


def test_where_ordinary_sweeps_leave_less_orthomin_is_used() -> None:
    # edges at random: all eigenvalues but one are small
    generator = np.random.default_rng(5)
    engine = Engine(Options(directed=False, target_error=1e-12), _cpu())
    engine.apply(EdgeBatch(*generator.integers(0, 2000, (2, 5000))))
    momentum = Momentum(engine.internals.iterate)
    assert momentum.suits
    momentum.left = 0.7
    assert not momentum.chosen
    momentum.left = 0.8
    assert momentum.chosen
    momentum.gave_up = True
    assert not momentum.chosen
    assert _ways(engine)[1] == {"orthomin"}
