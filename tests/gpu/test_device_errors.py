"""An error of the device at any of its calls is DeviceLost, whatever the engine does just then."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liverank_gpu import (
    Answer,
    DeviceLost,
    EdgeBatch,
    Engine,
    Options,
    PersonalizedQuery,
    RankReference,
    Snapshot,
)
from liverank_gpu.backends.cuda import make_backend
from liverank_gpu.graph.reading import CapturedEdges
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Event
from tests.cuda_emulator.emulated import emulated_device


class IllegalAddress(RuntimeError):
    """As CUDARuntimeError of CuPy: after it every call fails in the same way."""

    status = 700


def test_a_forked_child_is_told_how_to_start_processes() -> None:
    backend = make_backend(emulated_device())
    engine = Engine(backend=backend)
    engine.apply(EdgeBatch.of([(0, 1), (1, 0)]))
    engine.update()
    ranks = engine.publish()
    calls: list[Callable[[], Any]] = [
        lambda: Engine(backend=backend),
        lambda: engine.apply(EdgeBatch.of([(1, 1)])),
        engine.update,
        engine.publish,
        lambda: ranks.top(1),
    ]
    child = os.fork()
    if child == 0:
        told = 0
        try:
            for call in calls:
                with pytest.raises(DeviceLost, match="processes by spawn or forkserver"):
                    call()
                told += 1
        finally:
            os._exit(told)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == len(calls)
    engine.apply(EdgeBatch.of([(1, 1)]))
    engine.update()


class FailingDevice:
    """Counts calls of the device; from call number `at` on they fail."""

    def __init__(self) -> None:
        self.calls = 0
        self.at: int | None = None

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            if self.at is not None and self.calls > self.at:
                raise IllegalAddress("an illegal memory access was encountered")
            return function(*arguments, **named)

        return call

    def backend(self) -> Backend:
        device = emulated_device()

        def load(unit: str) -> Callable[[str], Any]:
            kernels = device.load(unit)
            return lambda expression: self.counted(kernels(expression))

        @contextmanager
        def reading(after: Event | None) -> Any:
            self.counted(lambda: None)()
            with device.reading(after):
                yield

        def compiled(*program: Any) -> Callable[[str], Any]:
            kernels = device.compile(*program)
            return lambda expression: self.counted(kernels(expression))

        return make_backend(
            replace(
                device,
                load=load,
                compile=compiled,
                to_host=self.counted(device.to_host),
                synchronize=self.counted(device.synchronize),
                reading=reading,
            )
        )


def batch(options: Options, edges: list[tuple[int, int]]) -> EdgeBatch:
    """Inserts edges, one second after the other."""
    sources, targets = np.array(edges).T
    times = np.arange(len(edges), dtype=np.float64) if options.half_life else None
    return EdgeBatch(sources, targets, times=times)


def steps(engine: Engine) -> list[Callable[[], Any]]:
    """What an engine does in its life, one after the other."""
    options, reader = engine.options, engine.edge_reader
    links = batch(options, [(v, w) for v in range(40) for w in (v // 2, (v * 7) % 40)])
    both = batch(options, [(1, 3), (3, 2)])
    seeds = np.array([3, 5])
    published: list[Any] = []
    captured: list[CapturedEdges] = []
    told: list[RankReference] = []

    snapshots: list[Snapshot] = []

    def publish() -> None:
        published[:] = [engine.publish()]

    def capture() -> None:
        snapshots[:] = [engine.capture(engine.staging_buffer()).snapshot()]

    return [
        lambda: engine.apply(links),
        lambda: engine.update("static"),
        publish,
        lambda: published[0].top(5),
        lambda: published[0].of(seeds),
        lambda: published[0].to_numpy(),
        lambda: told.append(RankReference(published[0])),
        lambda: captured.append(reader.capture(reader.buffer())),
        lambda: engine.apply_coalesced(both, [(1, 0), (1, 0)]),
        lambda: list(captured[0].blocks()),
        lambda: reader.neighbours(3, "out", 5),
        lambda: reader.out_edges(seeds, 1_000),
        lambda: engine.update("dynamic-frontier-prune"),
        lambda: engine.update("residual"),
        lambda: engine.update("dynamic-frontier", "published"),
        lambda: engine.personalized(seeds, k=3, among=np.arange(9)),
        lambda: engine.personalized_many([PersonalizedQuery(seeds, k=3)] * 9),
        lambda: engine.watch("one", PersonalizedQuery(seeds, k=3, among=np.arange(20))),
        lambda: engine.apply(EdgeBatch(remove=np.array([7, 8]))),
        lambda: engine.update("auto"),
        lambda: engine.restrict("one", np.arange(5)),
        lambda: engine.refresh_watched(),
        lambda: reader.are_isolated(seeds),
        publish,
        lambda: told[0].changes(published[0], 1e-6, 5),
        lambda: told[0].tell(published[0], seeds),
        lambda: told[0].of(seeds),
        capture,
        lambda: Engine(options, engine.internals.backend).restore(snapshots[0]),
        lambda: engine.edge_list(),
        lambda: engine.edge_weights(),
    ]


def program_steps(engine: Engine) -> list[Callable[[], Any]]:
    """Runs of programs, one after the other: each kind, in each mode."""
    options = engine.options
    answers: list[Answer] = []
    return [
        lambda: engine.apply(batch(options, [(v, w) for v in range(9) for w in (v // 2, 8 - v)])),
        lambda: answers.append(engine.run("components")),
        lambda: engine.apply(batch(options, [(1, 3), (3, 2)])),
        lambda: engine.run("components", after=answers[0], mode="asynchronous"),
        lambda: engine.run("pagerank"),
        lambda: engine.run("cores"),
        lambda: engine.run("densest"),
        lambda: engine.run("clustering"),
        lambda: answers.append(engine.run("trussness", partitions=2)),
        lambda: answers[0].values,
        lambda: answers[1].edges,
    ]


def run(engine: Engine, all_steps: Callable[[Engine], list[Callable[[], Any]]] = steps) -> None:
    for step in all_steps(engine):
        step()


@pytest.mark.parametrize(
    ("options", "turn"),
    [(Options(), 0), (Options(weighted=True), 1), (Options(half_life=1.0, directed=False), 2)],
    ids=["unweighted", "weighted", "decaying, undirected"],
)
def test_every_error_of_the_device_is_told_as_such(options: Options, turn: int, long: bool) -> None:
    device = FailingDevice()
    backend = device.backend()
    engine = Engine(options, backend)
    ends = []
    device.calls = 0
    for step in steps(engine):
        step()
        ends.append(device.calls)
    assert ends[-1] > 250
    # every call in turn would take long; these are spread over all steps. The last call of a step
    # fails with one of the options
    last, apart = (ends, 101) if long else (ends[turn::3], 303)
    for at in sorted({*range(apart // 3 * turn, ends[-1], apart), *(end - 1 for end in last)}):
        device.at, device.calls = None, -1_000_000
        engine = Engine(options, backend)
        device.at, device.calls = at, 0
        with pytest.raises(DeviceLost, match="illegal memory access"):
            run(engine)
        device.at = None


def test_an_error_at_any_call_of_a_program_is_told_as_such() -> None:
    device = FailingDevice()
    backend = device.backend()
    device.calls = 0
    run(Engine(Options(), backend), program_steps)
    calls = device.calls
    assert calls > 50
    for at in range(calls):
        device.at, device.calls = None, -1_000_000
        engine = Engine(Options(), backend)
        device.at, device.calls = at, 0
        with pytest.raises(DeviceLost, match="illegal memory access"):
            run(engine, program_steps)
