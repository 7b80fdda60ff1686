"""What a solve says that it did."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import get_args

import numpy as np
import pytest

from liverank_gpu import STRATEGIES, EdgeBatch, Engine, Options
from liverank_gpu.operations.backend import Backend
from liverank_gpu.pagerank.strategies import TABLE, forms_of
from liverank_gpu.types import TRACED_STEPS, Form, Trace, TraceStep
from tests.gpu.graphs import random_graph

ALL = [name for name, strategy in TABLE.items() if strategy.affected in ("all", "residual")]
"""Strategies that start from all vertices."""


def _started(options: Options, backend: Backend) -> tuple[Engine, np.random.Generator]:
    """An engine with ranks, and a batch of which they know nothing yet."""
    vertices, edges = random_graph(9)
    engine, generator = Engine(options, backend), np.random.default_rng(9)
    engine.apply(EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices))
    engine.update("static")
    inserted = generator.integers(0, vertices, (2, len(edges) // 20 + 1))
    deleted = edges[generator.integers(0, len(edges), len(edges) // 20 + 1)].T
    engine.apply(EdgeBatch(inserted[0], inserted[1], deleted[0], deleted[1]))
    return engine, generator


@pytest.mark.parametrize("form", get_args(Form))
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_trace_accounts_for_what_the_solve_did(
    strategy: str, form: Form, backend: Backend
) -> None:
    if form not in forms_of(TABLE[strategy], Options()):
        pytest.skip(f"{strategy} has no {form} form")
    engine, _ = _started(Options(dangling="self-loop"), backend)
    untraced = engine.update("residual") if strategy == "auto" else None
    engine.apply(EdgeBatch.of([(0, 1), (1, 2)], [(1, 2), (2, 0)]))
    result = engine.update(strategy, form, trace=True)
    trace = result.trace
    assert trace is not None
    assert untraced is None or untraced.trace is None
    assert trace.pushes + trace.sweeps == result.iterations
    assert sum(step.rounds for step in trace.steps) == result.iterations
    for step, following in pairwise(trace.steps):
        if step.kind == "iteration":
            assert step.joined is not None
            assert step.pruned is not None
            assert following.vertices == step.vertices - step.pruned + step.joined
        assert 0 <= step.edges <= engine.edges + engine.vertices or step.kind == "push"
    if strategy in ("dynamic-frontier", "dynamic-frontier-prune"):
        assert trace.steps[0].vertices == trace.affected
        assert sum(step.joined or 0 for step in trace.steps) > 0
        pruned = sum(step.pruned or 0 for step in trace.steps)
        assert (pruned > 0) == (strategy == "dynamic-frontier-prune")
    if form == "published":
        largest = [step.largest_change for step in trace.steps]
        assert largest[0] is not None
        assert largest[-1] is not None
        assert largest[0] > 1e-3 > largest[-1]
    assert engine.update(strategy, form).trace is None


@pytest.mark.parametrize("strategy", ALL)
def test_sweeps_read_each_direction_and_no_removed_vertex(strategy: str, backend: Backend) -> None:
    engine, generator = _started(Options(directed=False, target_error=1e-10), backend)
    engine.apply(EdgeBatch(remove=generator.integers(0, engine.vertices, 5)))
    # a tenth of the ranks is as good as none: this solve sweeps
    engine.internals.iterate.reset()
    trace = engine.update(strategy, trace=True).trace
    assert trace is not None
    assert trace.affected == engine.vertices < engine.id_limit
    sweeps = [step for step in trace.steps if step.kind == "sweep"]
    assert sweeps
    loops = int(np.equal(*engine.edge_list()).sum())
    for step in sweeps:
        assert (step.vertices, step.edges) == (engine.vertices, 2 * engine.edges - loops)


@pytest.mark.parametrize("strategy", ALL)
def test_a_sweep_that_computes_the_residual_is_a_step(strategy: str, backend: Backend) -> None:
    # below rounding
    engine, _ = _started(Options(target_error=1e-15, tolerance=1e-300), backend)
    engine.internals.iterate.reset()
    result = engine.update(strategy, trace=True)
    trace = result.trace
    assert trace is not None
    assert sum(step.rounds for step in trace.steps) == result.iterations
    assert trace.pushes + trace.sweeps == result.iterations


def test_iterations_that_are_not_listed_are_counted(backend: Backend) -> None:
    iterations = TRACED_STEPS + 10
    options = Options(damping=0.999, tolerance=1e-300, max_iterations=iterations)
    engine = Engine(options, backend)
    # a cycle, on which each iteration takes a thousandth of the error
    engine.apply(EdgeBatch.of([(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (5, 0)]))
    result = engine.update("naive-dynamic", "published", trace=True)
    assert result.trace is not None
    assert result.iterations == result.trace.sweeps > TRACED_STEPS
    assert len(result.trace.steps) == TRACED_STEPS
    swept = Trace.of(6, iterations, iterations * [TraceStep("sweep", 1, 6, 6)])
    assert swept.sweeps == iterations
    assert len(swept.steps) == TRACED_STEPS


def test_a_solve_by_lists_has_no_more_iterations_than_are_allowed(backend: Backend) -> None:
    if backend.costs.sparse_part == 0:
        pytest.skip("it keeps no lists")
    # by lists at first; by states once there is something to expand
    costs = replace(backend.costs, sparse_part=1 << 30)
    options = Options(max_iterations=1, frontier_tolerance=1e-9)
    engine, _ = _started(options, replace(backend, costs=costs))
    result = engine.update("dynamic-frontier", trace=True)
    assert result.iterations == 1
    assert result.trace is not None
    assert len(result.trace.steps) == 1
