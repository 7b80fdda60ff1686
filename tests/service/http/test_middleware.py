"""The middleware of every request, around a test application."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from liverank_service.errors import UnknownGraph
from liverank_service.http import middleware
from liverank_service.http.limits import ConcurrencyLimit
from liverank_service.http.metrics import HttpMetrics
from liverank_service.http.middleware import LONG_BODY, RequestMiddleware
from liverank_service.http.responses import EXCEPTION_HANDLERS
from liverank_service.settings import Settings


def answered(app: ASGIApp, path: str = "/") -> list[Message]:
    metrics = HttpMetrics(CollectorRegistry())
    handled = ExceptionMiddleware(app, EXCEPTION_HANDLERS)  # as in FastAPI's stack
    settings = Settings()
    every = RequestMiddleware(handled, ConcurrencyLimit(settings), metrics, settings)
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "headers": []}
    asyncio.run(every(scope, receive, send))
    return sent


def test_a_response_object_that_is_sent_twice_is_unchanged() -> None:
    shared = Response(b"ok")
    before = list(shared.raw_headers)
    first, second = (dict(answered(shared)[0]["headers"]) for _ in range(2))
    assert shared.raw_headers == before
    assert first.keys() == second.keys()
    assert first.pop(b"x-request-id") != second.pop(b"x-request-id")
    assert first == second
    assert first[b"x-content-type-options"] == b"nosniff"


def test_a_client_that_disconnects_during_its_body_is_no_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive, send).body()

    assert answered(app) == []
    assert not caplog.records


def test_an_error_that_is_raised_again_holds_nothing_of_a_request() -> None:
    kept = UnknownGraph("g")

    async def app(*_: Any) -> None:
        raise kept

    for _ in range(2):
        assert answered(app)[0]["status"] == 404
        assert kept.__traceback__ is None


@pytest.mark.parametrize(
    ("error", "status", "logged"),
    [(UnknownGraph("g"), 404, False), (MemoryError(), 507, True), (KeyError("x"), 500, True)],
)
def test_what_is_no_fault_of_the_request_is_logged(
    error: Exception, status: int, logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(*_: Any) -> None:
        raise error

    with caplog.at_level(logging.ERROR):
        sent = answered(app, "/graphs/a?b")
    assert sent[0]["status"] == status
    assert b'"instance":"/graphs/a%3Fb"' in sent[1]["body"]
    assert ("GET /graphs/a?b failed" in caplog.text) is logged


@pytest.mark.parametrize("length", [LONG_BODY, LONG_BODY + 1])
def test_a_long_response_counts_until_the_client_has_read_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, length: int
) -> None:
    monkeypatch.setattr(middleware, "MIN_READING_BYTES_PER_SECOND", 1 << 40)
    limit = ConcurrencyLimit(Settings())
    sent: list[Message] = []
    aborted: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        limit.answer(scope["request_context"], 500, "k")
        await Response(bytes(length))(scope, receive, send)

    async def stuck(message: Message) -> None:
        """As uvicorn: what follows a body waits until most of it is accepted."""
        if sent and sent[-1]["type"] == "http.response.body":
            await asyncio.get_running_loop().create_future()
        sent.append(message)

    async def never() -> Message:
        raise AssertionError("no body is read")

    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/", "headers": []}
    scope["abort"] = lambda: aborted.append(limit.places)
    metrics = HttpMetrics(CollectorRegistry())
    settings = Settings(slow_client_seconds=0.1)
    asyncio.run(RequestMiddleware(app, limit, metrics, settings)(scope, never, stuck))
    is_long = length > LONG_BODY
    assert aborted == ([500] if is_long else [])
    assert ("response cut" in caplog.text) == is_long
    assert len(sent[1]["body"]) == length
    assert limit.places == 0
