"""Ranks stored as float32: as true as those in float64, in half the memory, on every backend."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from gpu import STRATEGIES, EdgeBatch, Engine, Options
from gpu.operations.backend import Backend
from gpu.operations.residual import PushLimits
from gpu.types import Dangling
from tests.gpu.graphs import FAMILIES, Model, networkx_ranks, random_batch
from tests.gpu.pagerank.test_residual import _batch, _exact, _residual_error, _skewed

POLICIES: tuple[Dangling, ...] = get_args(Dangling)
SMALL_FAMILIES = sorted(name for name, pairs in FAMILIES.items() if pairs()[0] <= 400)
HALF_STEP = 2.0**-24


def _relative_uncertainty(engine: Engine) -> float:
    certificate = engine.internals.iterate.certificate
    return float(certificate.uncertainty / certificate.mass)


def _assert_true(engine: Engine, bound: float, message: str) -> None:
    ranks = engine.publish().to_numpy()
    assert abs(ranks.sum() - 1.0) <= 1e-12
    # the dense system is right to about 1e-13
    assert np.abs(ranks - _exact(engine)).sum() <= bound + 1e-12, message
    assert _residual_error(engine) <= _relative_uncertainty(engine), message


@pytest.mark.parametrize("dangling", POLICIES)
@pytest.mark.parametrize("family", SMALL_FAMILIES)
def test_every_batch_is_certified_whatever_strategies_ran_before(
    family: str, dangling: Dangling, backend: Backend
) -> None:
    vertices, edges = FAMILIES[family]()
    generator = np.random.default_rng(SMALL_FAMILIES.index(family))
    engine = Engine(Options(dangling=dangling, storage="float32"), backend)
    model = Model(dangling)
    batch = EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices)
    for step in range(60 if backend.name == "cpu" else 5):
        model.apply(batch)
        engine.apply(batch)
        strategy = STRATEGIES[int(generator.integers(len(STRATEGIES)))]
        result = engine.update(strategy)
        _assert_true(engine, result.error_bound, f"{strategy}, batch {step}")
        assert result.converged, f"{strategy}, batch {step}"
        if strategy in ("auto", "residual"):
            assert result.error_bound <= 1e-6
        batch = random_batch(generator, model, size=int(generator.choice([1, 2, 8])))


@pytest.mark.parametrize("dangling", POLICIES)
def test_after_a_long_stream_the_bound_is_true_and_not_inflated(
    dangling: Dangling, backend: Backend, long: bool
) -> None:
    generator = np.random.default_rng(3)
    vertices = 300
    edges = generator.integers(0, vertices, (1500, 2))
    engine = Engine(Options(dangling=dangling, storage="float32"), backend)
    engine.apply(EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices))
    count = (5_000 if long else 1_000) if backend.name == "cpu" else (50 if long else 20)
    for step in range(count):
        insert = generator.integers(0, vertices, (2, 2))
        if step % 100 == 0:
            insert[0, 1] = vertices
            vertices += 1
        place = generator.integers(0, len(edges), 2)
        engine.apply(_batch(insert, edges[place]))
        edges[place] = insert
        result = engine.update("auto")
        assert result.converged
    _assert_true(engine, result.error_bound, "the last batch")
    error = np.abs(engine.publish().to_numpy() - _exact(engine)).sum()
    assert result.error_bound <= 100 * error


def test_the_certificate_allows_for_what_float32_loses(backend: Backend) -> None:
    vertices, edges = FAMILIES["grid"]()
    engine = Engine(Options(storage="float32"), backend)
    engine.apply(EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices))
    engine.update("auto")
    for _ in range(8):
        engine.apply(EdgeBatch.of(insert=[(0, 399), (5, 17)]))
        engine.apply(EdgeBatch.of(delete=[(0, 399), (5, 17)]))
    # far above what the same operations lose in float64, and still below the account
    assert 1e-12 <= _residual_error(engine) <= _relative_uncertainty(engine) <= 1e-7


@pytest.mark.parametrize("dangling", POLICIES)
def test_a_large_rank_has_no_digits_for_a_small_step(dangling: Dangling, backend: Backend) -> None:
    # the hub holds half of all rank: one step of a float32 there is more than many a residual
    pairs = FAMILIES["star inwards"]()
    engine = Engine(Options(dangling=dangling, storage="float32"), backend)
    engine.apply(EdgeBatch(pairs[1][:, 0], pairs[1][:, 1], vertices=pairs[0]))
    assert engine.update("auto").converged
    ranks = engine.publish()
    error = np.abs(ranks.to_numpy() - networkx_ranks(pairs, dangling)).sum()
    assert error <= ranks.error_bound <= 1e-6
    vertices, values = ranks.top(2)
    assert vertices.tolist() == [0, 1]
    assert values.dtype == ranks.of(vertices).dtype == np.float64
    assert ranks.of(vertices).tolist() == values.tolist()
    for leaf in range(1, 20, 2):
        engine.apply(EdgeBatch.of(insert=[(leaf, leaf + 1)]))
        result = engine.update("auto")
        assert result.converged
        assert result.iterations <= 10


def test_what_a_rank_has_no_digits_for_is_pushed_by_nobody(backend: Backend) -> None:
    # vertex 0 has a residual above every threshold and below half of its own last digit
    engine = Engine(Options(storage="float32"), backend)
    tips = np.arange(1, 1000)
    engine.apply(EdgeBatch(tips, np.zeros_like(tips), vertices=1001))
    engine.update("auto")
    values, residual = engine.internals.iterate.values, engine.internals.iterate.workspace.residual
    hub = float(values[0])
    small = float(np.float32(0.4 * HALF_STEP * hub))
    residual.values[:] = 0.0
    residual.values[0], residual.values[1000] = small, 0.125
    backend.residual.select_candidates(residual, 1e-7)
    assert residual.listed == 2
    pushed = backend.residual.push(
        engine.internals.graph.view,
        values,
        0.85,
        residual,
        PushLimits(
            residual_l1=0.125 + small,
            residual_sum=0.125 + small,
            mass=engine.internals.iterate.certificate.mass,
            goal=0.0,
            threshold=0.1,
            edge_weight=0.0,
            round_edges=1 << 20,
            edges=1 << 20,
            rounds=100,
        ),
    )
    assert (pushed.end, pushed.rounds, pushed.vertices) == ("floor", 1, 1)
    assert (float(values[0]), float(residual.values[0])) == (hub, small)
    assert abs(float(residual.values[1000])) <= HALF_STEP


def test_sweeps_are_about_as_few_as_in_float64(backend: Backend) -> None:
    edges = _skewed(np.random.default_rng(5), 10, 16 << 10)
    sweeps = {}
    for storage in ("float64", "float32"):
        engine = Engine(Options(storage=storage), backend)
        engine.apply(EdgeBatch(edges[:, 0], edges[:, 1]))
        result = engine.update("auto")
        assert result.converged
        sweeps[storage] = result.iterations
    # one sweep recomputes the residual when the rounding of the first ones shows
    assert sweeps["float32"] <= sweeps["float64"] + 3


def test_a_target_that_float32_cannot_reach_is_said_to_be_missed(backend: Backend) -> None:
    vertices, edges = FAMILIES["grid"]()
    options = Options(damping=0.99, storage="float32", max_iterations=5000)
    engine = Engine(options, backend)
    engine.apply(EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices))
    result = engine.update("auto")
    assert not result.converged
    assert 1e-6 < result.error_bound < 2e-4
    assert result.iterations < 2500
    _assert_true(engine, result.error_bound, "cut short")


def test_everything_over_the_vertices_is_half_as_large(backend: Backend) -> None:
    def held(storage: str) -> tuple[int, int, int]:
        engine = Engine(Options(storage=storage), backend)  # type: ignore[arg-type]
        edges = _skewed(np.random.default_rng(6), 12, 4 << 12)
        engine.apply(EdgeBatch(edges[:, 0], edges[:, 1], vertices=1 << 12))
        for _ in range(2):  # the second one computes the residual, in arrays of its own
            engine.update("auto")
            engine.internals.iterate.invalidate()
        workspace = engine.internals.iterate.workspace
        return (
            workspace.values.nbytes + workspace.residual.values.nbytes,
            engine.publish()._values.nbytes,
            engine.memory()["ranks"],
        )

    double, single = held("float64"), held("float32")
    assert double[:2] == (16 << 12, 8 << 12)
    assert single[:2] == (8 << 12, 4 << 12)
    # contributions and marks are no smaller
    assert single[2] <= 2 / 3 * double[2]
