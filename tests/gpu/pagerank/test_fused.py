"""Sweeps that a device runs several of in one launch do what they do one at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch, Engine, Options
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.sweeps import (
    FusedOrthomin,
    FusedRun,
    FusedSweeps,
    OrthominProducts,
    OrthominState,
    OrthominUpdate,
    Sweep,
    SweepResult,
)
from liverank_gpu.pagerank.iterate import ContributionBuffers, Deflation
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


class _Started:
    """An iterate before its first sweep, with all that sweeps change."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.backend = engine, engine.internals.graph.backend
        self.iterate = iterate = engine.internals.iterate
        iterate.exclude_free()
        iterate.reset()
        graph = iterate.graph
        self.buffers = ContributionBuffers.allocate(self.backend, graph.columns)
        iterate.quantize(self.buffers)
        arrays = (iterate.values, iterate.workspace.residual.values)
        self.arrays = [*arrays, *self.buffers.arrays(graph.columns)]
        self._before = [array.copy() for array in self.arrays]

    def restore(self) -> None:
        for array, before in zip(self.arrays, self._before, strict=True):
            array[:] = before

    def state(self) -> list[NDArray[Any]]:
        """y, r, and what the contributions stand for, rounded: they may differ by a digit."""
        return [self.backend.device.to_host(array).copy() for array in self.arrays[:2]]

    def run(self, **others: Any) -> FusedRun:
        certificate, iterate = self.iterate.certificate, self.iterate
        limits: dict[str, Any] = {
            "image_sum": iterate.mean_correction.image_sum,
            "residual_goal": 0.0,
            "step_goal": 0.0,
            "least_gain": -inf,
            "least_bounds": 1,
            "bounds": (),
            "most": 5,
        }
        return FusedRun(
            certificate.residual_l1,
            certificate.residual_sum,
            certificate.mass,
            self.buffers.next_residual_sum,
            free_mass=certificate.free_mass / iterate.rhs_scale,
            **(limits | others),
        )

    def sweeps(self, run: FusedRun) -> list[tuple[SweepResult, float]]:
        self.restore()
        graph, damping = self.iterate.graph, self.iterate.options.damping
        values, residual, contributions, following = self.arrays
        arrays = (values, residual, contributions, following)
        return self.backend.run(FusedSweeps(graph.view, graph.in_rows(), *arrays, damping, run))

    def orthomin(self, run: FusedRun) -> list[Any]:
        self.restore()
        graph, damping = self.iterate.graph, self.iterate.options.damping
        values, residual, contributions, _ = self.arrays
        arrays = (values, residual, contributions, self.orthomin_state(), damping)
        return self.backend.run(
            FusedOrthomin(graph.view, graph.in_rows(), *arrays, 0.0, 1e-3, False, run)
        )

    def orthomin_state(self) -> OrthominState:
        xp, count = self.backend.xp, self.iterate.graph.vertices
        direction, last_image, image = xp.zeros((3, count))
        return OrthominState(direction, last_image, image, xp.zeros(count, np.float32))


@pytest.mark.parametrize("corrected", [True, False], ids=["mean-corrected", "plain"])
@pytest.mark.parametrize("options", KINDS, ids=IDS)
def test_each_sweep_is_that_of_a_launch_of_its_own(
    options: Options, corrected: bool, backend: Backend
) -> None:
    started = _Started(_loaded(options, backend))
    image_sum = started.iterate.mean_correction.image_sum if corrected else 0.0
    found = started.sweeps(started.run(image_sum=image_sum))
    fused = started.state()
    started.restore()
    graph, alpha = started.iterate.graph, options.damping
    values, residual, *buffers = started.arrays
    following = started.buffers.next_residual_sum
    for result, shift in found:
        assert shift == pytest.approx(
            Deflation(image_sum).coefficient(following) if corrected else 0.0, rel=1e-6, abs=1e-12
        )
        contributions, new = buffers
        arrays = (values, residual, contributions, new)
        single = backend.run(Sweep(graph.view, graph.in_rows(), *arrays, alpha, shift))
        buffers.reverse()
        following = single.next_residual_sum
        for name in SweepResult._fields:
            expected_sum = pytest.approx(getattr(single, name), rel=1e-10, abs=1e-10)
            assert getattr(result, name) == expected_sum, name
    assert len(found) == 5
    for array, expected in zip(fused, started.state(), strict=True):
        assert np.allclose(array, expected, rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("options", KINDS, ids=IDS)
def test_each_step_of_orthomin_is_that_of_launches_of_its_own(
    options: Options, backend: Backend
) -> None:
    started = _Started(_loaded(options, backend))
    image_sum = started.iterate.mean_correction.image_sum
    found = started.orthomin(started.run())
    fused = started.state()
    started.restore()
    graph, state = started.iterate.graph, started.orthomin_state()
    values, residual, contributions, _ = started.arrays
    sums = started.iterate.certificate.residual_sum, started.buffers.next_residual_sum
    for place, (step, result, mean) in enumerate(found):
        assert mean == pytest.approx((sums[0] - sums[1]) / image_sum, rel=1e-9, abs=1e-12)
        arrays = (values, residual, contributions, state, options.damping, mean)
        first = (*arrays, 0.0 if place else 1e-3, place > 0)
        products = backend.run(OrthominProducts(graph.view, graph.in_rows(), *first))
        single_step, single = backend.run(OrthominUpdate(graph.view, *arrays, products, place > 0))
        assert (step.alpha, step.beta) == pytest.approx(
            (single_step.alpha, single_step.beta), rel=1e-6, abs=1e-9
        )
        assert result.residual_l1 == pytest.approx(single.residual_l1, rel=1e-8)
        assert result.next_residual_sum == pytest.approx(single.next_residual_sum, abs=1e-8)
        sums = single.residual_sum, single.next_residual_sum
    assert 2 <= len(found) <= 5
    for array, expected in zip(fused, started.state(), strict=True):
        assert np.allclose(array, expected, rtol=1e-7, atol=1e-9)


def test_a_run_ends_where_it_is_told(backend: Backend) -> None:
    started = _Started(_loaded(Options(), backend))
    whole = [result for result, _ in started.sweeps(started.run(most=12))]
    assert len(whole) == 12
    mass, bounds = float(started.iterate.certificate.mass), list[float]()
    free_mass = started.run().free_mass
    for result, shift in started.sweeps(started.run(most=12)):
        mass += result.mass + free_mass * shift
        bounds.append((result.residual_l1 + abs(result.residual_sum)) / mass)
        last_mass = mass
    assert len(bounds) == 12

    def ended(**limits: Any) -> int:
        return len(started.sweeps(started.run(most=12, **limits)))

    assert ended(residual_goal=1.001 * bounds[4]) == 5
    assert ended(step_goal=1.001 * whole[6].largest_step / last_mass) in (6, 7)
    gains = [float(np.log(bounds[max(at - 4, 0)] / bounds[at]) / min(at, 4)) for at in range(1, 12)]
    slow = next(at for at, gain in enumerate(gains) if at >= 3 and gain < 0.999 * min(gains[:at]))
    assert ended(least_gain=0.999 * min(gains[:slow]), least_bounds=1) == slow + 2
    # with the bounds of earlier sweeps, the first one is late enough, and slow beside them
    assert ended(least_gain=0.1, least_bounds=4, bounds=(bounds[0],) * 4) == 1
    assert ended(least_gain=9.0, least_bounds=4, bounds=(1.0, 1.0)) == 3
    ineffective = started.orthomin(started.run(most=12))
    effective = [result.residual_l1 for _, result, _ in ineffective]
    assert all(after < before for before, after in pairwise(effective[:-1]))


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
