"""Stages follow each other, leave nothing out, and are the caller's time."""

from __future__ import annotations

from time import perf_counter, sleep

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Engine, Options, PersonalizedQuery
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import DeviceOperations, Event, StageTimer
from tests.gpu.doubles import instead
from tests.gpu.graphs import random_graph

RESOLUTION = 2e-6
"""Seconds by which times of a device's events can be off."""


def _noting(device: DeviceOperations) -> tuple[DeviceOperations, list[Event]]:
    """The device, and the events that it makes."""
    events: list[Event] = []

    def event() -> Event:
        events.append(device.event())
        return events[-1]

    return instead(device, event=event), events


def test_stages_add_up_to_the_time_from_the_first_boundary_to_the_last(backend: Backend) -> None:
    device, events = _noting(backend.device)
    stages, names = StageTimer(device), ["one", "two", "three"]
    began = perf_counter()
    stages.begin()
    for name in names:
        backend.xp.sort(backend.xp.arange(10_000.0)[::-1])
        stages.end(name)
    seconds = stages.seconds()
    spent = perf_counter() - began
    whole = backend.device.seconds_between(events[0], events[-1])
    assert list(seconds) == names
    assert min(seconds.values()) > 0.0
    assert sum(seconds.values()) == pytest.approx(whole, abs=len(names) * RESOLUTION)
    assert whole <= spent + RESOLUTION


def test_a_stage_counts_what_the_host_does_too(backend: Backend) -> None:
    stages = StageTimer(backend.device)
    stages.begin()
    stages.end("nothing")
    sleep(0.02)
    stages.end("host")
    seconds = stages.seconds()
    assert seconds["host"] >= 0.019
    assert seconds["nothing"] >= 0.0


def test_stages_begun_anew_forget_those_before_and_record_the_same_events(backend: Backend) -> None:
    device, events = _noting(backend.device)
    stages = StageTimer(device)
    for _ in range(3):
        stages.begin()
        stages.end("one")
        stages.end("two")
    assert len(events) == 3
    began = perf_counter()
    sleep(0.02)
    stages.begin()
    stages.end("other")
    seconds = stages.seconds()
    assert list(seconds) == ["other"]
    assert seconds["other"] <= perf_counter() - began - 0.019
    assert len(events) == 3


def test_the_stages_of_a_batch_are_within_the_time_that_the_caller_waited(
    backend: Backend,
) -> None:
    vertices, edges = random_graph(3)
    engine = Engine(Options(), backend)
    empty = engine.update("auto")
    seconds = engine.stage_seconds()
    assert list(seconds.values()) == [
        empty.mark_seconds,
        empty.solve_seconds,
        empty.certify_seconds,
    ]
    assert min(seconds.values()) >= 0.0
    engine.apply(EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices))
    engine.watch("one", PersonalizedQuery(np.array([0])))
    for strategy in ("auto", "dynamic-frontier", "static"):
        began = perf_counter()
        change = engine.apply(EdgeBatch.of(insert=[(0, vertices - 1)], delete=[(1, 2)]))
        result = engine.update(strategy)
        engine.refresh_watched()
        engine.end_stage("watched")
        engine.publish()
        engine.end_stage("publish")
        seconds = engine.stage_seconds()
        spent = perf_counter() - began
        assert list(seconds) == ["mark", "solve", "certify", "watched", "publish"]
        assert (seconds["mark"], seconds["solve"]) == (result.mark_seconds, result.solve_seconds)
        # nothing is marked for `auto`: a device can say that it took no time
        assert seconds.pop("mark") >= 0.0
        assert min(change.seconds, *seconds.values()) > 0.0
        assert change.seconds + sum(seconds.values()) <= spent + 5 * RESOLUTION


def test_batches_applied_as_one_have_equal_shares_of_the_time(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch.of(insert=[(0, 1), (1, 2)]))
    began = perf_counter()
    changes = engine.apply_coalesced(
        EdgeBatch.of(insert=[(2, 3), (3, 4), (4, 0)]), [(1, 0), (2, 0)]
    )
    spent = perf_counter() - began
    assert changes is not None
    assert changes[0].seconds == changes[1].seconds > 0.0
    assert sum(change.seconds for change in changes) <= spent + RESOLUTION
