"""What is promised in one thread and awaited in another."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from service.pipeline.promise import WAKE_TOGETHER, Promise


def test_a_value_reaches_callbacks_and_those_who_block() -> None:
    promise: Promise[int] = Promise()
    seen: list[Promise[int]] = []
    promise.add_done_callback(seen.append)
    assert not promise.done()
    with pytest.raises(TimeoutError):
        promise.result(0.01)
    threading.Timer(0.05, lambda: promise.set_result(7)).start()
    assert promise.result(10) == 7
    assert promise.exception() is None
    promise.add_done_callback(seen.append)
    assert seen == [promise, promise]


def test_an_error_reaches_all_who_ask() -> None:
    promise: Promise[int] = Promise()
    promise.set_exception(KeyError("lost"))
    assert isinstance(promise.exception(), KeyError)
    for _ in range(2):
        with pytest.raises(KeyError, match="lost"):
            promise.result()
    with pytest.raises(KeyError, match="lost"):
        asyncio.run(promise.arrival())


def test_it_is_settled_once() -> None:
    promise: Promise[int] = Promise()
    promise.set_result(1)
    with pytest.raises(RuntimeError, match="settled twice"):
        promise.set_exception(KeyError())


def test_a_callback_that_fails_keeps_nothing_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    promise: Promise[int] = Promise()
    seen: list[int] = []
    promise.add_done_callback(lambda _: 1 // 0)
    promise.add_done_callback(lambda done: seen.append(done.result()))
    promise.set_result(4)
    assert seen == [4]
    assert "a callback of a promise failed" in caplog.text


def test_everybody_in_a_loop_is_woken_whatever_threads_settle() -> None:
    """More at once than are woken in one round, and from several threads."""
    promises: list[Promise[int]] = [Promise() for _ in range(40 * WAKE_TOGETHER)]

    def settle(first: int) -> None:
        for number in range(first, len(promises), 4):
            promises[number].set_result(number)
            if number % 50 == 0:
                time.sleep(0.001)

    async def main() -> list[int]:
        waiting = asyncio.gather(*(promise.arrival() for promise in promises))
        await asyncio.sleep(0)  # all of them wait before the first is settled
        threads = [threading.Thread(target=settle, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        return await asyncio.wait_for(waiting, 30)

    assert asyncio.run(main()) == list(range(len(promises)))


def test_who_gave_up_does_not_hinder_the_others() -> None:
    promise: Promise[int] = Promise()

    async def main() -> int:
        impatient = asyncio.create_task(promise.arrival())
        patient = asyncio.create_task(promise.arrival())
        await asyncio.sleep(0)
        impatient.cancel()
        threading.Timer(0.02, lambda: promise.set_result(3)).start()
        return await asyncio.wait_for(patient, 30)

    assert asyncio.run(main()) == 3


def test_a_loop_that_is_closed_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    promise: Promise[int] = Promise()

    async def give_up() -> None:
        waiting = asyncio.create_task(promise.arrival())
        await asyncio.sleep(0)
        waiting.cancel()

    asyncio.run(give_up())
    promise.set_result(1)
    assert promise.result() == 1
    assert not caplog.records
