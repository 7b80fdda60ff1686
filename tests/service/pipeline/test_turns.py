"""Calls that wait for turns of an event loop, with a clock that only they move."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable

import pytest

from liverank_service.pipeline import waiting as module
from liverank_service.pipeline.waiting import ROUND_SECONDS, Turns, turns


class Clock:
    """The module's clock, and the rounds of the loop, each with what was called in it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.rounds: list[list[object]] = [[]]
        monkeypatch.setattr(module, "perf_counter", lambda: self.now)

    def call(self, name: object, seconds: float = 0.0) -> None:
        self.now += seconds
        self.rounds[-1].append(name)

    async def until(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            await asyncio.sleep(0)
            self.rounds.append([])

    def run(self, main: Callable[[], Awaitable[object]]) -> None:
        async def awaited() -> None:
            await main()

        asyncio.run(awaited())

    @property
    def called(self) -> list[object]:
        return [name for names in self.rounds for name in names]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_calls_are_made_in_order(clock: Clock) -> None:
    async def main() -> None:
        for number in range(100):
            turns().take(clock.call, number)
        assert clock.called == [0]  # at once: nothing waited
        await clock.until(lambda: len(clock.called) == 100)

    clock.run(main)
    assert clock.called == list(range(100))


@pytest.mark.parametrize("is_later", [False, True], ids=["in the call", "in a task it continues"])
@pytest.mark.parametrize(("seconds", "most"), [(ROUND_SECONDS * 2, 1), (ROUND_SECONDS / 3.5, 4)])
def test_a_round_stops_by_time(clock: Clock, seconds: float, most: int, is_later: bool) -> None:
    async def main() -> None:
        def call(number: int) -> None:
            if is_later:
                asyncio.get_running_loop().call_soon(clock.call, number, seconds)
            else:
                clock.call(number, seconds)

        for number in range(200):
            turns().take(call, number)
        await clock.until(lambda: len(clock.called) == 200)

    clock.run(main)
    counts = [len(names) for names in clock.rounds[1:]]
    assert max(counts) <= most
    assert max(counts[-20:]) == most  # many short ones, few long ones


def test_short_calls_are_made_many_in_a_round(clock: Clock) -> None:
    async def main() -> None:
        for number in range(300):
            turns().take(clock.call, number, ROUND_SECONDS / 1000)
        await clock.until(lambda: len(clock.called) == 300)

    clock.run(main)
    assert len(clock.rounds) <= 27


def test_what_needs_no_turn_comes_in_between(clock: Clock) -> None:
    async def main() -> None:
        for number in range(50):
            turns().take(clock.call, number, ROUND_SECONDS)
        asyncio.get_running_loop().call_soon(clock.call, "read")
        await clock.until(lambda: len(clock.called) == 51)

    clock.run(main)
    assert clock.called.index("read") <= 3


def test_calls_that_come_alone_do_not_make_room_for_many(clock: Clock) -> None:
    async def main() -> None:
        for number in range(100):
            turns().take(clock.call, number)
            await asyncio.sleep(0)
            await asyncio.sleep(0)  # the round after it has none
        clock.rounds.append([])
        for number in range(100, 130):
            turns().take(clock.call, number)
        await clock.until(lambda: len(clock.called) == 130)

    clock.run(main)
    assert max(len(names) for names in clock.rounds[1:4]) <= 4


def test_a_call_that_fails_does_not_hinder_the_others(clock: Clock) -> None:
    def fail() -> None:
        raise KeyError("lost")

    async def main() -> None:
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: failures.append(context["exception"])
        )
        turns().take(clock.call, 0)
        turns().take(fail)
        for number in range(1, 10):
            turns().take(clock.call, number)
        await clock.until(lambda: len(clock.called) == 10)
        assert list(map(type, failures)) == [KeyError]

    clock.run(main)
    assert clock.called == list(range(10))


def test_a_call_may_take_another_turn(clock: Clock) -> None:
    async def main() -> None:
        turns().take(lambda: turns().take(clock.call, "inner"))
        turns().take(clock.call, "outer")
        await clock.until(lambda: len(clock.called) == 2)

    clock.run(main)
    assert clock.called == ["inner", "outer"]


def test_each_loop_has_its_own_turns_as_long_as_it_lives() -> None:
    async def own() -> weakref.ref[Turns]:
        assert turns() is turns()
        turns().take(list)
        await asyncio.sleep(0)
        return weakref.ref(turns())

    found = asyncio.run(own())
    gc.collect()
    assert found() is None
