"""Results that one thread delivers to event loops and other threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from typing import Any

import pytest

from liverank_service.pipeline.waiting import Completions


def test_results_and_errors_reach_threads_that_wait() -> None:
    good, bad = concurrent.futures.Future[int](), concurrent.futures.Future[int]()
    completions = Completions()
    completions.set_result(good, 7)
    completions.set_exception(bad, KeyError("lost"))
    completions.set_result(None, 8)  # nobody waits
    assert not good.done()
    threading.Timer(0.05, completions.deliver).start()
    assert good.result(10) == 7
    for _ in range(2):
        with pytest.raises(KeyError, match="lost"):
            bad.result(10)


def test_results_and_errors_reach_an_event_loop() -> None:
    async def main() -> tuple[int, type[BaseException]]:
        loop = asyncio.get_running_loop()
        good: asyncio.Future[int] = loop.create_future()
        bad: asyncio.Future[int] = loop.create_future()
        completions = Completions()
        completions.set_result(good, 7)
        completions.set_exception(bad, KeyError("lost"))
        threading.Thread(target=completions.deliver).start()
        with pytest.raises(KeyError, match="lost") as caught:
            await asyncio.wait_for(bad, 30)
        return await good, caught.type

    assert asyncio.run(main()) == (7, KeyError)


def test_a_future_is_completed_once() -> None:
    async def main() -> tuple[int, int]:
        futures = (asyncio.get_running_loop().create_future(), concurrent.futures.Future[int]())
        completions = Completions()
        for future in futures:
            completions.set_result(future, 1)
            completions.set_exception(future, KeyError())
        completions.deliver()
        completions.set_result(futures[0], 2)
        completions.set_result(futures[1], 2)
        completions.deliver()
        return await futures[0], futures[1].result(0)

    assert asyncio.run(main()) == (1, 1)


def test_one_group_wakes_a_loop_once_and_leaves_room_between_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 30

    async def main() -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        wakes: list[Any] = []
        original = loop.call_soon_threadsafe

        def counted(*arguments: Any) -> Any:
            wakes.append(arguments)
            return original(*arguments)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        futures: list[asyncio.Future[int]] = [loop.create_future() for _ in range(count)]
        completions = Completions()
        for number, future in enumerate(futures):
            completions.set_result(future, number)
        completions.deliver()
        rounds = 0
        while not futures[-1].done():
            await asyncio.sleep(0)
            rounds += 1
        assert [future.result() for future in futures] == list(range(count))
        return len(wakes), rounds

    wakes, rounds = asyncio.run(main())
    assert wakes == 1
    assert rounds > 3


def test_everybody_in_a_loop_is_woken_whatever_threads_deliver() -> None:
    """More results than one round completes, from several threads."""
    count = 320

    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[int]] = [loop.create_future() for _ in range(count)]
        waiting = asyncio.gather(*futures)

        def deliver(first: int) -> None:
            completions = Completions()
            for number in range(first, count, 4):
                completions.set_result(futures[number], number)
                if number % 50 == 0:
                    completions.deliver()
                    time.sleep(0.001)
            completions.deliver()

        await asyncio.sleep(0)  # all of them wait before the first delivery
        threads = [threading.Thread(target=deliver, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        return await asyncio.wait_for(waiting, 30)

    assert asyncio.run(main()) == list(range(count))


def test_who_gave_up_does_not_hinder_the_others() -> None:
    async def main() -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        impatient: asyncio.Future[int] = loop.create_future()
        patient: asyncio.Future[int] = loop.create_future()
        in_a_thread = concurrent.futures.Future[int]()
        gone = concurrent.futures.Future[int]()
        assert impatient.cancel()
        assert gone.cancel()
        completions = Completions()
        for future in (impatient, gone, patient, in_a_thread):
            completions.set_result(future, 3)
        threading.Timer(0.02, completions.deliver).start()
        return await asyncio.wait_for(patient, 30), in_a_thread.result(30)

    assert asyncio.run(main()) == (3, 3)


def test_a_loop_that_is_closed_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    completions = Completions()
    in_a_thread = concurrent.futures.Future[int]()

    async def give_up() -> None:
        completions.set_result(asyncio.get_running_loop().create_future(), 1)

    asyncio.run(give_up())
    completions.set_result(in_a_thread, 1)
    completions.deliver()
    assert in_a_thread.result(0) == 1
    assert not caplog.records
