"""What a push costs, and when that ends it; and what a single edge costs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from liverank_gpu import STRATEGIES, EdgeBatch, Engine, Options
from liverank_gpu.operations.backend import Backend, Costs
from liverank_gpu.operations.residual import Push, PushResult, ResidualDelta
from liverank_gpu.pagerank.strategies import TABLE, forms_of
from tests.gpu.doubles import looked_after
from tests.gpu.graphs import FAMILIES
from tests.gpu.observed import observable, observed


@pytest.mark.parametrize("price", ["pushed_edge", "round_overhead"])
def test_a_push_ends_when_it_has_cost_more_than_sweeps(price: str, backend: Backend) -> None:
    vertices, edges = FAMILIES["grid"]()
    pushed = {}
    for cost in (0.0, 1e12):
        costs = replace(backend.costs, pushed_edge=1.0)
        costs = replace(costs, **{price: cost} if cost else {})  # type: ignore[arg-type]
        engine = Engine(Options(target_error=1e-9), replace(backend, costs=costs))
        engine.apply(EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices))
        engine.update("auto")
        engine.apply(EdgeBatch.of(insert=[(0, vertices // 2), (7, vertices // 3)]))
        result = engine.update("auto", trace=True)
        assert result.converged
        assert result.trace is not None
        pushed[cost] = [step for step in result.trace.steps if step.kind == "push"]
    affordable, dear = pushed.values()
    assert len(affordable) > 1
    if price == "round_overhead":
        assert len(dear) == 1
    else:
        assert [step.rounds for step in dear] == [0]


@pytest.mark.parametrize("sweep_edges", [1.0, 1e12])
def test_a_push_ends_where_sweeps_gain_more(sweep_edges: float) -> None:
    """On ``cuda``, which knows what sweeps leave."""
    from tests.cuda_emulator.emulated import emulated_backend

    vertices, edges = FAMILIES["grid"]()
    engine = Engine(Options(target_error=1e-9), observable(emulated_backend()))
    engine.apply(EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices))
    engine.update("auto")
    assert engine.internals.iterate.left_by_sweeps == 0.0  # it began with nothing
    ends = []

    def with_edges(push: Push, run: Callable[[], PushResult]) -> PushResult:
        push.left, push.sweep_edges = 0.1, sweep_edges
        ends.append(run())
        return ends[-1]

    with observed(Push, with_edges):
        engine.apply(EdgeBatch.of(insert=[(0, vertices // 2), (7, vertices // 3)]))
        result = engine.update("auto")
    assert result.converged
    if sweep_edges == 1.0:
        assert [(each.end, each.rounds) for each in ends] == [("work", 1)]
        assert 0.0 < engine.internals.iterate.left_by_sweeps < 1.0
    else:
        assert ends[0].rounds > 1


def test_a_push_costs_its_edges_and_its_rounds() -> None:
    costs = Costs(pushed_edge=8.0, sweep_overhead=1e4, sparse_part=16, round_overhead=100.0)
    delta = ResidualDelta(additions=5)
    assert costs.of_push(PushResult("floor", 1e-3, 3, 2, 4, delta)) == 5 * 8.0 + 3 * 100.0


def _calls(work: Callable[[], object]) -> int:
    """Functions in Python that are called, generators that go on included."""
    calls, before = 0, sys.getprofile()

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def test_one_edge_takes_few_calls_in_python() -> None:
    """They are most of what a small graph costs, and do not vary as times do."""
    generator = np.random.default_rng(7)
    sources, targets = generator.integers(0, 2_000, (2, 16_000))
    engine = Engine(Options(), "cpu")
    engine.apply(EdgeBatch(sources, targets))
    engine.update()
    applied, ranked = [], []
    for edge in generator.integers(0, 2_000, (20, 2)).tolist():
        for batch in (EdgeBatch.of(insert=[edge]), EdgeBatch.of(delete=[edge])):
            applied.append(_calls(partial(engine.apply, batch)))
            ranked.append(_calls(engine.update))
    assert np.mean(applied) < 211
    assert np.mean(ranked) < 500


@pytest.mark.parametrize("by_states", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_solve_by_any_strategy_takes_no_more_than_was_checked(
    strategy: str, weighted: bool, by_states: bool, backend: Backend
) -> None:
    if not by_states and backend.costs.sparse_part == 0:
        pytest.skip("it keeps no lists")
    # states of all vertices, or lists of any length
    costs = replace(backend.costs, sparse_part=0 if by_states else 1)
    backend, device = looked_after(replace(backend, costs=costs))
    generator = np.random.default_rng(4)
    vertices = 5000
    options = Options(weighted=weighted, frontier_tolerance=1e-9)
    for form in forms_of(TABLE[strategy], options):
        engine = Engine(options, backend)
        sources, targets = generator.integers(0, vertices, (2, 20_000))
        engine.apply(EdgeBatch(sources, targets, vertices=vertices))
        held = sum(engine.memory().values())
        engine.check_memory(2, vertices)
        needed = device.required
        iterate = engine.internals.iterate
        needed_by_solve = iterate.bytes_needed(vertices)
        ranks = iterate.nbytes
        engine.apply(EdgeBatch.of(insert=[(0, 1)], delete=[(1, 2)]))
        engine.update(strategy, form)
        assert sum(engine.memory().values()) - held <= needed
        # what there is now is no longer needed
        assert 0 < iterate.nbytes - ranks <= needed_by_solve - iterate.bytes_needed(vertices)
