"""Streams of server-sent events to subscribers. Only for the event loop's thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from functools import lru_cache, partial
from typing import Any, cast

from fastapi import Request
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event
from starlette.types import Receive, Scope, Send

from liverank_service import problems
from liverank_service.errors import NotReady, SlowSubscriber, WaitEnded
from liverank_service.http.access import key_id
from liverank_service.http.body import limit_of
from liverank_service.pipeline.published import ChangeFeed, Event, Joined

log = logging.getLogger("liverank.changes")

KEEPALIVE_SECONDS = 15.0
"""After this time without an event, a comment is sent: proxies close silent connections."""

SLOW_SECONDS = 1.0
"""A subscriber has accepted nothing for this long when its connection ends: it reads too slowly."""


class Subscriber:
    """An open stream, which ends once it has a reason.

    key    the id of its API key
    ended  the reason
    """

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.ended: Exception | None = None
        self.waiter: asyncio.Future[Any] | None = None

    def end(self, reason: Exception) -> None:
        if self.ended is None:
            self.ended = reason
        self.wake()

    def wake(self, is_silent: bool = False) -> None:
        """Ends its wait for an event."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(is_silent)


class Subscribers:
    """All open streams of the server."""

    def __init__(self) -> None:
        self._open: set[Subscriber] = set()

    def add(self, request: Request) -> Subscriber:
        """A stream that ends with its connection and when the server stops."""
        subscriber = Subscriber(key_id(request))
        self._open.add(subscriber)
        return subscriber

    def remove(self, subscriber: Subscriber) -> None:
        self._open.discard(subscriber)

    def end(self, key: str, reason: Exception) -> None:
        """Ends the streams of an API key."""
        for subscriber in list(self._open):
            if subscriber.key == key:
                subscriber.end(reason)


class ChangeStream(EventSourceResponse):
    """The events of one subscriber: see liverank_service.pipeline.published. The last one,
    ``end``, has the reason as a problem document, unless the connection ends first.
    """

    def __init__(
        self, request: Request, subscriber: Subscriber, feed: ChangeFeed, joined: Joined
    ) -> None:
        # nginx would collect events before it passes them on
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(self._events(), headers=headers)
        self._request = request
        self._subscriber = subscriber
        self._feed = feed
        self._joined = joined
        self._sending_since: float | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        subscriber, feed = self._subscriber, self._feed
        ends: list[tuple[asyncio.Future[None], Any]] = [
            (scope["input_end"], partial(_end, subscriber, WaitEnded())),
            (limit_of(self._request).stopping, partial(_end, subscriber, NotReady("stopping"))),
        ]
        for future, callback in ends:
            future.add_done_callback(callback)
        try:
            await super().__call__(scope, receive, send)
        finally:
            for future, callback in ends:
                future.remove_done_callback(callback)
            if subscriber.waiter is not None:
                self._joined.ring.forget(subscriber.waiter)
            if self._is_slow or isinstance(subscriber.ended, SlowSubscriber):
                feed.dropped += 1
                log.warning("subscriber dropped: it reads too slowly", extra={"graph": feed.graph})
            feed.leave(self._joined.ring)
            subscribers_of(self._request).remove(subscriber)

    @property
    def _is_slow(self) -> bool:
        """Whether the client has accepted nothing for long: one that leaves is not slow."""
        since = self._sending_since
        return since is not None and asyncio.get_running_loop().time() - since > SLOW_SECONDS

    async def _events(self) -> AsyncIterator[bytes]:
        """Waits in `yield` while the client accepts nothing."""
        joined, subscriber = self._joined, self._subscriber
        loop = asyncio.get_running_loop()
        after = joined.after
        first = KEEPALIVE_COMMENT if joined.first is None else encoded(joined.first)
        self._sending_since = loop.time()
        yield first
        # it stays set if the connection ended while something could not be sent
        while not (self._is_slow and isinstance(subscriber.ended, WaitEnded)):
            self._sending_since = None
            subscriber.waiter = loop.create_future()
            try:
                if subscriber.ended is not None:
                    raise subscriber.ended
                events = joined.ring.read(after, subscriber.waiter)
            except Exception as error:
                subscriber.ended = error
                yield _end_event(error)
                return
            if not events:
                timer = loop.call_later(KEEPALIVE_SECONDS, subscriber.wake, True)
                is_silent = await subscriber.waiter
                timer.cancel()
                if is_silent:
                    joined.ring.forget(subscriber.waiter)
                    yield KEEPALIVE_COMMENT
                continue
            for event in events:
                self._sending_since = loop.time()
                yield encoded(event)
                after = event.position
                if subscriber.ended is not None:
                    break


def subscribers_of(request: Request) -> Subscribers:
    return cast(Subscribers, request.app.state.subscribers)


def _end(subscriber: Subscriber, reason: Exception, _: asyncio.Future[None]) -> None:
    subscriber.end(reason)


@lru_cache(maxsize=64)
def encoded(event: Event) -> bytes:
    """The event as it is sent, to all its subscribers."""
    return format_sse_event(data_str=event.data.decode(), event=event.name, id=event.id)


def _end_event(error: Exception) -> bytes:
    document = problems.encode_problem(problems.problem_of(error)).decode()
    return format_sse_event(data_str=document, event="end")
