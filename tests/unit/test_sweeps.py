"""Which way dense sweeps go, by what they leave of the bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from gpu import Options
from gpu.sweeps import _STALLED_SWEEPS, WAYS, Way, _cost, _Pace

BALANCED, ACCELERATED = Way(balanced=True, accelerated=False), Way(balanced=True, accelerated=True)
PLAIN = Way(balanced=False, accelerated=False)


def _state(target: float = 1e-8, vertices: int = 200_000) -> Any:
    """As much of a state as is asked. Acceleration costs by the vertices."""
    backend = SimpleNamespace(sweep_overhead=1e4)
    graph = SimpleNamespace(edges=1_000_000, vertices=vertices, backend=backend)
    return SimpleNamespace(graph=graph, options=Options(target_error=target))


def _walk(left: Callable[[Way, int], float], state: Any, ways: Sequence[Way] = WAYS) -> list[Way]:
    """The ways of all sweeps from a bound of 1 to the target.

    left  what the i-th sweep since the last change, from 0 on, leaves of the bound
    """
    pace, bound, since = _Pace(state, ways), 1.0, 0
    walked = []
    while bound > state.options.target_error:
        walked.append(pace.way)
        bound *= left(pace.way, since)
        since = 0 if pace.changes(bound) else since + 1
    return walked


def test_sweeps_that_are_quick_stay_balanced() -> None:
    walked = _walk(lambda way, _: 0.01 if way.accelerated else 0.3, _state(1e-14))
    assert set(walked) == {BALANCED}


def test_a_way_that_gains_more_is_kept() -> None:
    walked = _walk(lambda way, _: 0.5 if way.accelerated else 0.8, _state())
    assert [way for way, _ in groupby(walked)] == [BALANCED, ACCELERATED]
    assert walked.index(ACCELERATED) < 6


@pytest.mark.parametrize("left", [0.7, 0.8, 0.85])
@pytest.mark.parametrize("target", [1e-4, 1e-6, 1e-8])
def test_trials_of_a_way_that_gains_no_more_are_cheap(left: float, target: float) -> None:
    state = _state(target)
    walked = _walk(lambda *_: left, state)
    extra = walked.count(ACCELERATED) * (_cost(ACCELERATED, state) - 1.0)
    assert extra < 0.1 * len(walked)
    assert ACCELERATED in walked or len(walked) < 30


def test_one_that_gains_at_first_is_left_and_taken_again() -> None:
    def left(way: Way, since: int) -> float:
        return 0.82 if not way.accelerated else 0.4 if since < 5 else 0.9

    turns = [(way, len(list(group))) for way, group in groupby(_walk(left, _state()))]
    assert len(turns) > 3
    # a sweep of each kind says little: some are needed to notice
    assert all(count < 12 for way, count in turns if way == ACCELERATED)


def test_what_a_way_gained_is_remembered() -> None:
    walked = _walk(lambda way, _: 0.75 if way.accelerated else 0.7, _state(1e-12))
    turns = [way for way, _ in groupby(walked)]
    assert turns == [BALANCED, ACCELERATED, BALANCED]


def test_a_short_solve_has_no_time_for_trials() -> None:
    for state in (_state(0.2, vertices=1), _state(0.05)):
        walked = _walk(lambda way, _: 0.1 if way.accelerated else 0.7, state)
        assert set(walked) == {BALANCED}


def test_trials_become_rare_where_the_bound_no_longer_falls() -> None:
    pace, random = _Pace(_state(), WAYS), Random(1)
    turns, walked = 0, 0
    while walked <= _STALLED_SWEEPS:
        noisy = 1e-3 * (1.0 + 0.1 * random.random())
        turns, walked = (turns + 1, 0) if pace.changes(noisy) else (turns, walked + 1)
        assert turns < 20


def test_without_acceleration_plain_sweeps_are_tried_when_balanced_ones_are_slow() -> None:
    ways = [way for way in WAYS if not way.accelerated]
    walked = _walk(lambda *_: 0.85, _state(), ways)
    assert 0 < walked.count(PLAIN) < 0.1 * len(walked)


def test_a_single_way_is_kept() -> None:
    for way in WAYS:
        assert set(_walk(lambda *_: 0.8, _state(), (way,))) == {way}
