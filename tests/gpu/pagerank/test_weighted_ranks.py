"""Ranks of weighted graphs and their certificates: every strategy and family, against
NetworkX and liverank_gpu.verify, on every backend.
"""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from liverank_gpu import STRATEGIES, EdgeBatch, Engine, Options
from liverank_gpu.operations.backend import Backend
from liverank_gpu.pagerank.sweeps import SWEEP_KINDS, sweep_to_target
from liverank_gpu.types import Dangling
from tests.gpu.graphs import (
    assert_certified,
    loaded,
    networkx_ranks,
    random_graph,
    residual_error,
)

POLICIES: tuple[Dangling, ...] = get_args(Dangling)


@pytest.mark.parametrize("dangling", POLICIES)
def test_weighted_sweeps_of_every_kind_are_certified(dangling: Dangling, backend: Backend) -> None:
    pairs = random_graph(3)
    for kind in SWEEP_KINDS:
        options = Options(dangling=dangling, target_error=1e-8, weighted=True)
        engine = loaded(pairs, options, backend)
        iterate = engine.internals.iterate
        iterate.reset()
        assert sweep_to_target(iterate, 300, (kind,)).converged, kind
        assert residual_error(engine) <= 1e-12, kind


def test_equal_weights_rank_as_none(backend: Backend) -> None:
    vertices, edges = random_graph(7)
    exact = networkx_ranks((vertices, edges), "uniform")
    for weight in (1e-9, 1.0, 7.0, 1e9):
        weights = np.full(len(edges), weight, np.float32)
        options = Options(target_error=1e-9, weighted=True)
        engine = loaded((vertices, edges), options, backend, weights)
        assert engine.update().converged, weight
        assert np.abs(engine.publish().to_numpy() - exact).sum() <= 1e-8, weight


def test_weights_at_the_ends_of_float32_are_certified(backend: Backend) -> None:
    vertices, edges = random_graph(7)
    generator = np.random.default_rng(1)
    options = Options(weighted=True)
    for exponents in ((-37.5, -37.0), (38.0, 38.5), (-37.5, 38.5)):
        # each vertex has a scale of its own
        scale = 10.0 ** generator.uniform(*exponents, vertices)
        spread = generator.uniform(0.5, 1.0, len(edges))
        weights = (scale[edges[:, 0]] * spread).astype(np.float32)
        engine = loaded((vertices, edges), options, backend, weights)
        for strategy in STRATEGIES:
            result = engine.update(strategy)
            assert np.isfinite(engine.publish().to_numpy()).all(), (strategy, exponents)
            assert_certified(engine, result.error_bound)


FAR_APART = [
    *((1, 0, 3.4028234e38), (1, 3, 1.1754944e-38), (2, 0, 3.4028234e38), (3, 0, 3.4028234e38)),
    *((3, 2, 1.5321426e34), (0, 0, 134855.27)),
]
"""Acceleration leaves no Σy of it."""


def test_ranks_stay_a_distribution_where_the_weights_of_a_vertex_are_far_apart(
    backend: Backend,
) -> None:
    engine = Engine(Options(weighted=True, vertex_order="given"), backend)
    engine.apply(EdgeBatch.of(FAR_APART))
    result, ranks = engine.update(), engine.publish().to_numpy()
    assert (ranks >= 0.0).all()
    assert ranks.sum() == pytest.approx(1.0)
    assert result.error_bound < 1.0
    assert_certified(engine, result.error_bound)
