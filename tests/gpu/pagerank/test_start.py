"""Solves from nothing: the guess from in-degrees, and when it is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch, Engine, Options, verify
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.sweeps import ComputeResidual, StartFromInDegrees
from liverank_gpu.pagerank import sweeps
from liverank_gpu.pagerank.iterate import ContributionBuffers
from liverank_gpu.pagerank.sweeps import start_from_in_degrees
from tests.gpu.graphs import loaded_with_gaps
from tests.gpu.observed import counted

POLICIES = [Options(), Options(dangling="self-loop"), Options(weighted=True)]


def _matrix(engine: Engine) -> verify.GoogleMatrix:
    """Of the vertices that are there, in the order of their ids."""
    kept = np.delete(np.arange(engine.id_limit), engine.free_ids())
    (sources, targets), options = np.searchsorted(kept, engine.edge_list()), engine.options
    weights = engine.edge_weights() if options.weighted else None
    return verify.GoogleMatrix(
        sources, targets, len(kept), options.damping, options.dangling, weights=weights
    )


def _by_id(engine: Engine, values: Any) -> NDArray[np.float64]:
    graph = engine.internals.graph
    ranked = graph.backend.device.to_host(graph.permutation.by_id(values)).astype(np.float64)
    return np.delete(ranked, engine.free_ids())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("options", POLICIES, ids=["uniform", "self-loop", "weighted"])
def test_the_guess_has_the_residual_and_the_sums_that_are_kept(
    options: Options, seed: int, backend: Backend
) -> None:
    engine = loaded_with_gaps(options, backend, seed)
    iterate = engine.internals.iterate
    iterate.exclude_free()
    buffers = ContributionBuffers.allocate(backend, engine.id_limit)
    start_from_in_degrees(iterate, buffers)
    values = _by_id(engine, iterate.values)
    matrix = _matrix(engine)
    share = np.divide(values, matrix.degree, out=np.zeros_like(values), where=matrix.degree > 0)
    followed = np.bincount(
        matrix.targets, share[matrix.sources] * matrix.weights, minlength=len(values)
    )
    residual = iterate.rhs_scale + options.damping * followed - values
    certificate = iterate.certificate
    scale = 1e-13 * values.sum()
    assert np.abs(_by_id(engine, iterate.workspace.residual.values) - residual).sum() <= scale
    assert certificate.residual_l1 == pytest.approx(np.abs(residual).sum(), abs=scale)
    assert certificate.residual_sum == pytest.approx(residual.sum(), abs=scale)
    assert certificate.mass == pytest.approx(values.sum(), abs=scale)
    # what it is a guess of: every edge sends the same
    in_degrees = np.bincount(matrix.targets, minlength=len(values))
    loops = np.zeros(len(values))
    own = matrix.sources == matrix.targets
    loops[matrix.sources[own]] = matrix.weights[own] / matrix.degree[matrix.sources[own]]
    in_degrees[matrix.sources[own]] -= 1
    linked = (matrix.degree > 0) & (loops < 1.0)
    received = (values * (1.0 - options.damping * loops) - iterate.rhs_scale)[linked]
    assert np.all(received >= -1e-2 * values[linked])
    if in_degrees[linked].sum() and not options.weighted:
        each = received.sum() / in_degrees[linked].sum()
        # bfloat16 and float32 contributions
        assert np.abs(received - each * in_degrees[linked]).max() <= 0.02 * values.max()
    error = np.abs(values / values.sum() - matrix.stationary()).sum()
    assert error <= iterate.error_bound + 1e-13


def _solved(options: Options, edges: NDArray[np.int64], backend: Backend) -> tuple[Engine, bool]:
    """An engine that ranked the edges, and whether it kept the guess."""
    guesses: list[StartFromInDegrees] = []
    engine = Engine(options, backend)
    engine.apply(EdgeBatch(edges[0], edges[1]))
    with counted(StartFromInDegrees, guesses):
        result = engine.update("auto", trace=True)
    assert result.converged
    assert result.trace is not None
    assert sum(step.rounds for step in result.trace.steps) == result.iterations
    matrix = _matrix(engine)
    error = np.abs(engine.publish().to_numpy() - matrix.stationary()).sum()
    assert error <= result.error_bound + 1e-13
    return engine, bool(guesses) and engine.internals.iterate.unguessable == 0


def _dense() -> NDArray[np.int64]:
    return (600 * np.random.default_rng(2).random((2, 9_000)) ** 2).astype(np.int64)


def _downwards() -> NDArray[np.int64]:
    # at last into pairs that no edge leaves
    generator = np.random.default_rng(3)
    sources = generator.integers(20, 900, 3600)
    targets = (sources * generator.random(3600) ** 2).astype(np.int64)
    pairs = np.arange(20)
    return np.stack([np.concatenate([sources, pairs]), np.concatenate([targets, pairs ^ 1])])


@pytest.mark.parametrize(("edges", "kept"), [(_dense, True), (_downwards, False)])
def test_the_bound_of_the_guess_decides(
    edges: Callable[[], NDArray[np.int64]], kept: bool, backend: Backend
) -> None:
    for options in (Options(), Options(dangling="self-loop")):
        engine, used = _solved(options, edges(), backend)
        assert used == kept, options.dangling
        iterate = engine.internals.iterate
        iterate.reset()
        reference = sweeps.sweep_to_target(iterate, 500)
        from_nothing = sweeps.sweep_to_target(iterate, 500, from_nothing=True)
        assert from_nothing.converged
        assert from_nothing.sweeps <= reference.sweeps + (0 if kept else 1)


@pytest.mark.parametrize("strategy", ["auto", "static"])
def test_one_sweep_is_one_sweep(strategy: str, backend: Backend) -> None:
    edges = _dense()
    for options in (Options(max_iterations=1), Options(max_iterations=2)):
        engine = Engine(options, backend)
        engine.apply(EdgeBatch(edges[0], edges[1]))
        assert engine.update(strategy).iterations == options.max_iterations


def test_only_a_graph_without_ranks_is_solved_without_its_residual(backend: Backend) -> None:
    edges = _dense()
    engine = Engine(Options(form="accelerated"), backend)
    engine.apply(EdgeBatch(edges[0], edges[1]))
    passes: list[ComputeResidual] = []
    with counted(ComputeResidual, passes):
        first = engine.update("auto")
        assert first.converged
        assert not passes

        iterate = engine.internals.iterate
        iterate.invalidate()
        again = engine.update("auto")
        assert len(passes) == 1
        assert again.iterations == 0

        restored = Engine(engine.options, backend)
        restored.restore(engine.capture(engine.staging_buffer()).snapshot())
        passes.clear()
        assert restored.update("auto").iterations == 0
        assert len(passes) == 1
