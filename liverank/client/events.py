"""Streams of server-sent events: where they continue after a lost connection, and how they end."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, Generic

import httpx
import msgspec
from httpx_sse import ServerSentEvent

from liverank.client import connection
from liverank.client.call import Call, T
from liverank.errors import ServerError, ServerUnreachable

SILENCE_SECONDS = 45.0
"""Without any byte of a stream for this long, the connection is lost: the server sends a comment
every 15 seconds.
"""

TIMEOUT = httpx.Timeout(SILENCE_SECONDS, connect=connection.CONNECT_SECONDS)


class Position(Generic[T]):
    """Where a stream is.

    call  what to request now: the first request, or one that continues after the last event
    """

    def __init__(self, call: Call[T], url: str) -> None:
        self.call = call
        self._url = url
        self._lost = 0

    def event(self, received: ServerSentEvent) -> T | None:
        """The event, or None if the server ends the stream because it stops, which is a lost
        connection. Raises ServerError if it ends it for another reason.
        """
        data: dict[str, Any] = msgspec.json.decode(received.data)
        if received.event == "end":
            if data["status"] == httpx.codes.SERVICE_UNAVAILABLE:
                return None
            raise ServerError(data["status"], data)
        self._lost = 0
        headers = {**self.call.headers, "Last-Event-ID": received.id}
        self.call = replace(self.call, headers=headers)
        document = {**data, "event": received.event, "id": received.id}
        return self.call.parse(msgspec.json.encode(document))

    def pause(self, error: httpx.RequestError | None) -> float:
        """Seconds before the next request, after the stream ended, or the connection was lost.

        Raises ServerUnreachable if too many streams have ended without an event.
        """
        if self._lost == len(connection.RETRY_PAUSES):
            if error is not None:
                raise connection.unreachable(self._url, error) from error
            raise ServerUnreachable(self._url, "the stream ended without an event")
        self._lost += 1
        return connection.RETRY_PAUSES[self._lost - 1] * random.uniform(0.75, 1.0)
