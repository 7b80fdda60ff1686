"""What the Python client does while a server is starting."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from liverank import AsyncClient, Client, ServerError
from liverank_service.errors import NotReady, TooBusy
from liverank_service.problems import problem_of
from tests.liverank.client.recorder import TOP, Recorder, answer


def starting(reason: str) -> httpx.Response:
    problem = problem_of(NotReady(reason))
    return httpx.Response(503, json=problem, headers={"Retry-After": "1"})


def busy() -> httpx.Response:
    problem = problem_of(TooBusy("requests", 1))
    return httpx.Response(503, json=problem, headers={"Retry-After": "0"})


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_call_waits_while_the_server_starts(
    asynchronous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, told = [0.0], list[str]()

    def sleep(seconds: float) -> None:
        now[0] += seconds

    async def sleep_asynchronously(seconds: float) -> None:
        if threading.current_thread() is not client_thread:  # a server of another test
            await really_sleep(seconds)
        else:
            sleep(seconds)

    client_thread, really_sleep = threading.current_thread(), asyncio.sleep
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr("tenacity.time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(asyncio, "sleep", sleep_asynchronously)
    reasons = ["compiling kernels"] * 98 + ["recovering graph 'g'"] * 3
    expected = [f"the server is not ready: {reason}" for reason in reasons[:100]]
    patience: dict[str, Any] = {"start_seconds": 100.0, "waiting": told.append}

    def top(*answers: httpx.Response) -> Any:
        told.clear()
        now[0] = 0.0
        transport = httpx.MockTransport(Recorder(*answers))
        if not asynchronous:
            with Client("http://liverank.test", transport=transport, **patience) as client:
                return client.top("g")

        async def run() -> Any:
            options: dict[str, Any] = {"transport": transport, **patience}
            async with AsyncClient("http://liverank.test", **options) as client:
                return await client.top("g")

        return asyncio.run(run())

    assert top(*map(starting, reasons[:100]), answer(TOP)).ranks == []
    assert (told, now) == (expected, [100.0])
    with pytest.raises(ServerError, match="not ready: recovering graph 'g'"):
        top(*map(starting, reasons))
    assert (told, now) == (expected, [100.0])
    # one that is busy as soon as it has started was not busy all the time
    assert top(*map(starting, reasons[:60]), busy(), answer(TOP)).ranks == []
    assert (told, now) == (expected[:60], [60.0])


def test_a_server_that_is_busy_is_not_one_that_is_starting() -> None:
    told = list[str]()
    transport = httpx.MockTransport(Recorder(busy(), answer(TOP)))
    with Client("http://liverank.test", transport=transport, waiting=told.append) as client:
        assert client.top("g").ranks == []
    assert told == []
