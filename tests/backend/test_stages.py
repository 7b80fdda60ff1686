"""Stages follow each other, leave nothing out, and are the caller's time."""

from __future__ import annotations

from time import perf_counter, sleep

import pytest

from gpu.backends.base import Backend
from gpu.stages import Stages

RESOLUTION = 2e-6
"""Seconds by which times of a device's events can be off."""


def test_stages_add_up_to_the_time_from_the_first_boundary_to_the_last(backend: Backend) -> None:
    stages, names = Stages(backend), ["one", "two", "three"]
    began = perf_counter()
    stages.begin()
    for name in names:
        backend.xp.sort(backend.xp.arange(10_000.0)[::-1])
        stages.end(name)
    seconds = stages.seconds()
    spent = perf_counter() - began
    whole = backend.seconds_between(stages._events[0], stages._events[-1])
    assert list(seconds) == names
    assert min(seconds.values()) > 0.0
    assert sum(seconds.values()) == pytest.approx(whole, abs=len(names) * RESOLUTION)
    assert whole <= spent + RESOLUTION


def test_a_stage_counts_what_the_host_does_too(backend: Backend) -> None:
    stages = Stages(backend)
    stages.begin()
    stages.end("nothing")
    sleep(0.02)
    stages.end("host")
    seconds = stages.seconds()
    assert seconds["host"] >= 0.019
    assert seconds["nothing"] >= 0.0


def test_stages_begun_anew_forget_those_before_and_record_the_same_events(backend: Backend) -> None:
    stages = Stages(backend)
    for _ in range(3):
        stages.begin()
        stages.end("one")
        stages.end("two")
    events = list(stages._events)
    assert len(events) == 3
    began = perf_counter()
    sleep(0.02)
    stages.begin()
    stages.end("other")
    seconds = stages.seconds()
    assert list(seconds) == ["other"]
    assert seconds["other"] <= perf_counter() - began - 0.019
    assert stages._events == events
