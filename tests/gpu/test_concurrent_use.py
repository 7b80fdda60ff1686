"""An engine and several threads: it notices them, and what is for any thread works beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import numpy as np
import pytest

from liverank_gpu import ConcurrentUse, EdgeBatch, Engine, PersonalizedQuery, Ranks
from liverank_gpu.operations.backend import Backend

SEEDS = np.array([1, 2])


class SlowBatch(EdgeBatch):
    """A batch whose application waits."""

    begun, may_end = Event(), Event()

    @property
    def operations(self) -> int:
        self.begun.set()
        assert self.may_end.wait(60)
        return super().operations


@pytest.fixture
def engine(backend: Backend) -> Engine:
    found = Engine(backend=backend)
    found.apply(EdgeBatch.of([(0, 1), (1, 2), (2, 0), (3, 0)]))
    found.update()
    found.watch("one", PersonalizedQuery(SEEDS, k=2))
    return found


@pytest.fixture
def in_use(engine: Engine) -> Iterator[Ranks]:
    """While another thread applies a batch: the ranks published before."""
    published = engine.publish()
    SlowBatch.begun, SlowBatch.may_end = Event(), Event()
    with ThreadPoolExecutor(1) as thread:
        applied = thread.submit(engine.apply, SlowBatch(np.array([3]), np.array([1])))
        assert SlowBatch.begun.wait(60)
        yield published
        SlowBatch.may_end.set()
        assert applied.result().inserted == 1


CALLS: dict[str, Callable[[Engine], Any]] = {
    "apply": lambda engine: engine.apply(EdgeBatch.of([(0, 2)])),
    "apply_coalesced": lambda engine: engine.apply_coalesced(EdgeBatch.of([(0, 2)]), [(1, 0)]),
    "update": lambda engine: engine.update(),
    "end_stage": lambda engine: engine.end_stage("publish"),
    "stage_seconds": lambda engine: engine.stage_seconds(),
    "publish": lambda engine: engine.publish(),
    "capture": lambda engine: engine.capture(engine.staging_buffer()),
    "personalized": lambda engine: engine.personalized(SEEDS),
    "personalized_many": lambda engine: engine.personalized_many([PersonalizedQuery(SEEDS)]),
    "submit": lambda engine: engine.submit([PersonalizedQuery(SEEDS)]),
    "resolve": lambda engine: engine.resolve([PersonalizedQuery(SEEDS)]),
    "watch": lambda engine: engine.watch("two", PersonalizedQuery(SEEDS)),
    "register": lambda engine: engine.register("two", PersonalizedQuery(SEEDS)),
    "restrict": lambda engine: engine.restrict("one", SEEDS),
    "refresh_watched": lambda engine: engine.refresh_watched(),
    "watched": lambda engine: engine.watched("one"),
    "unwatch": lambda engine: engine.unwatch("one"),
    "run": lambda engine: engine.run("components"),
    "edge_list": lambda engine: engine.edge_list(),
    "edge_weights": lambda engine: engine.edge_weights(),
}


@pytest.mark.usefixtures("in_use")
def test_a_call_beside_another_is_refused(engine: Engine) -> None:
    for name, call in CALLS.items():
        with pytest.raises(ConcurrentUse, match=r"^another thread is in a call of this engine"):
            pytest.fail(f"{name} returned {call(engine)!r}")


def test_the_calls_work_one_after_the_other_from_any_thread(engine: Engine) -> None:
    with ThreadPoolExecutor(4) as threads:
        for call in CALLS.values():
            threads.submit(call, engine).result()
    assert engine.edges == 5


def test_what_is_for_any_thread_works_beside_a_call(engine: Engine, in_use: Ranks) -> None:
    ids, ranks = in_use.top(4)
    assert set(ids) == {0, 1, 2, 3}
    assert ranks.sum() == pytest.approx(1.0)
    assert engine.staging_buffer() is not None
    assert engine.edge_reader.buffer() is not None
    assert (engine.vertices, engine.edges) == (4, 4)
