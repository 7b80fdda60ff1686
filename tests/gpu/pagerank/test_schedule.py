"""Which kind of sweep comes next, by what each leaves of the bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Engine, Options
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Costs
from liverank_gpu.operations.sweeps import OrthominUpdate
from liverank_gpu.pagerank.certificate import StallRule
from liverank_gpu.pagerank.sweeps import (
    SWEEP_KINDS,
    SweepKind,
    SweepSchedule,
    relative_cost,
    sweep_to_target,
)
from tests.gpu.observed import counted, observable

CORRECTED = SweepKind(mean_corrected=True, accelerated=False)
ACCELERATED = SweepKind(mean_corrected=True, accelerated=True)
PLAIN = SweepKind(mean_corrected=False, accelerated=False)


def _iterate(target: float = 1e-8, vertices: int = 200_000) -> Any:
    """As much of an iterate as a schedule reads. Acceleration costs by the vertices."""
    backend = SimpleNamespace(costs=Costs(pushed_edge=8.0, sweep_overhead=1e4, sparse_part=16))
    ids = SimpleNamespace(limit=vertices)
    graph = SimpleNamespace(arcs=1_000_000, ids=ids, backend=backend)
    return SimpleNamespace(graph=graph, options=Options(target_error=target))


def _sweeps(
    left: Callable[[SweepKind, int], float],
    iterate: Any,
    kinds: Sequence[SweepKind] = SWEEP_KINDS,
    momentum: Any = None,
) -> list[SweepKind]:
    """The kinds of all sweeps from a bound of 1 to the target.

    left  what the i-th sweep since the last change, from 0 on, leaves of the bound
    """
    schedule, bound, since = SweepSchedule(iterate, kinds, momentum), 1.0, 0
    swept = []
    while bound > iterate.options.target_error:
        swept.append(schedule.kind)
        bound *= left(schedule.kind, since)
        since = 0 if schedule.switch(bound) else since + 1
    return swept


def test_fast_sweeps_stay_mean_corrected() -> None:
    swept = _sweeps(lambda kind, _: 0.01 if kind.accelerated else 0.3, _iterate(1e-14))
    assert set(swept) == {CORRECTED}


def test_a_kind_that_gains_more_is_kept() -> None:
    swept = _sweeps(lambda kind, _: 0.5 if kind.accelerated else 0.8, _iterate())
    assert [kind for kind, _ in groupby(swept)] == [CORRECTED, ACCELERATED]
    assert swept.index(ACCELERATED) < 6


@pytest.mark.parametrize("left", [0.7, 0.8, 0.85])
@pytest.mark.parametrize("target", [1e-4, 1e-6, 1e-8])
def test_trials_of_a_kind_that_gains_no_more_are_cheap(left: float, target: float) -> None:
    iterate = _iterate(target)
    swept = _sweeps(lambda *_: left, iterate)
    extra = swept.count(ACCELERATED) * (relative_cost(ACCELERATED, iterate) - 1.0)
    assert extra < 0.1 * len(swept)
    assert ACCELERATED in swept or len(swept) < 30


def test_a_kind_that_gains_at_first_is_left_and_used_again() -> None:
    def left(kind: SweepKind, since: int) -> float:
        return 0.82 if not kind.accelerated else 0.4 if since < 5 else 0.9

    turns = [(kind, len(list(group))) for kind, group in groupby(_sweeps(left, _iterate()))]
    assert len(turns) > 3
    # one sweep says little: some are needed to notice
    assert all(count < 12 for kind, count in turns if kind == ACCELERATED)


def test_what_a_kind_gained_is_remembered() -> None:
    swept = _sweeps(lambda kind, _: 0.75 if kind.accelerated else 0.7, _iterate(1e-12))
    turns = [kind for kind, _ in groupby(swept)]
    assert turns == [CORRECTED, ACCELERATED, CORRECTED]


@pytest.mark.parametrize("target", [0.1, 1e-3, 1e-8])
def test_sweeps_with_momentum_cost_no_more(target: float) -> None:
    def left(kind: SweepKind, _: int) -> float:
        return 0.7 if kind.accelerated else 0.75

    momentum = SimpleNamespace(chosen=True)
    swept = _sweeps(left, _iterate(target), momentum=momentum)
    assert [kind for kind, _ in groupby(swept)] == [CORRECTED, ACCELERATED]
    assert swept.count(CORRECTED) == 2
    # Orthomin gains too little for its two passes
    momentum.chosen = False
    by_orthomin = _sweeps(left, _iterate(target), momentum=momentum)
    assert by_orthomin == _sweeps(left, _iterate(target))
    assert [kind for kind, _ in groupby(by_orthomin)] == [CORRECTED, ACCELERATED, CORRECTED]


def test_a_short_solve_has_no_time_for_trials() -> None:
    for iterate in (_iterate(0.4, vertices=1), _iterate(0.15)):
        swept = _sweeps(lambda kind, _: 0.1 if kind.accelerated else 0.7, iterate)
        assert set(swept) == {CORRECTED}


def test_trials_become_rare_where_the_bound_no_longer_falls() -> None:
    schedule, random = SweepSchedule(_iterate(), SWEEP_KINDS), Random(1)
    turns, swept = 0, 0
    while swept <= StallRule.LIMIT:
        noisy = 1e-3 * (1.0 + 0.1 * random.random())
        turns, swept = (turns + 1, 0) if schedule.switch(noisy) else (turns, swept + 1)
        assert turns < 20


def test_without_acceleration_plain_sweeps_are_tried_when_corrected_ones_are_slow() -> None:
    kinds = [kind for kind in SWEEP_KINDS if not kind.accelerated]
    swept = _sweeps(lambda *_: 0.85, _iterate(), kinds)
    assert 0 < swept.count(PLAIN) < 0.1 * len(swept)


def test_a_single_kind_is_kept() -> None:
    for kind in SWEEP_KINDS:
        assert set(_sweeps(lambda *_: 0.8, _iterate(), (kind,))) == {kind}


def _most_expensive_of_looser(costs: list[float]) -> float:
    """By how much a solve to a looser target can be more expensive than one to a tighter target."""
    return float((np.maximum.accumulate(costs) - costs).max())


@pytest.mark.parametrize("accelerated", [0.4, 0.5, 0.65])
@pytest.mark.parametrize("corrected", [0.7, 0.78, 0.85])
def test_a_tighter_target_is_no_cheaper(corrected: float, accelerated: float) -> None:
    def left(kind: SweepKind, since: int) -> float:
        # the first two accelerated ones have no last direction
        return accelerated if kind.accelerated and since >= 2 else corrected

    costs = []
    for exponent in range(8, 128):
        iterate = _iterate(10.0 ** (-exponent / 16))
        cost = relative_cost(ACCELERATED, iterate)
        costs.append(sum(cost if kind.accelerated else 1.0 for kind in _sweeps(left, iterate)))
    assert _most_expensive_of_looser(costs) < cost


def test_a_grid_is_solved_no_faster_to_a_tighter_target() -> None:
    side = 64
    vertices = np.arange(side * side).reshape(side, side)
    across, down = vertices[:, 1:].ravel(), vertices[1:].ravel()
    sources = np.concatenate([across, across - 1, down, down - side])
    targets = np.concatenate([across - 1, across, down - side, down])
    kept = np.random.default_rng(1).random(len(sources)) < 0.75
    engine = Engine(Options(), observable(backend_named("cpu")))
    engine.apply(EdgeBatch(sources[kept], targets[kept], vertices=side * side))
    iterate, costs, accelerated = engine.internals.iterate, [], list[OrthominUpdate]()
    with counted(OrthominUpdate, accelerated):
        for exponent in range(16, 48):
            iterate.options = replace(iterate.options, target_error=10.0 ** (-exponent / 8))
            # a guess and components would begin otherwise
            iterate.reset()
            accelerated.clear()
            swept = sweep_to_target(iterate, 500)
            assert swept.converged
            cost = relative_cost(ACCELERATED, iterate)
            costs.append(swept.sweeps + (cost - 1.0) * len(accelerated))
    assert accelerated
    assert _most_expensive_of_looser(costs) < cost
