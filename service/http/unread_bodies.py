"""What happens to the rest of a body that is answered before it was read to its end.

A refusal does not wait for the body. What is left of it must not be taken for the next request,
and the client must get to read the answer (RFC 9112, sections 9.3 and 9.6):

- a short rest whose length is known is read and forgotten, and the connection is kept;
- any other connection ends: the answer says ``Connection: close``, and what still comes is read
  and forgotten for a while. To close a socket that holds unread bytes resets the connection, and a
  reset can take the answer away from a client that is still sending.
"""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LONGEST_REST = 256 * 1024
"""Bytes of a body that are read and forgotten to keep a connection; more cost more than a new
connection does.
"""

QUIET_SECONDS = 2.0
"""A client that is to read its answer and sends nothing for so long has stopped sending."""


class UnreadBodies:
    """The layer next to the server, for answers whose length is announced.

    patience  seconds that a rest may take in all, where the connection ends
    """

    def __init__(self, app: ASGIApp, patience: float) -> None:
        self._app = app
        self._patience = patience

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _has_body(headers := Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        body = _Body(headers, receive)
        ends = False

        async def answer(message: Message) -> None:
            nonlocal ends
            if message["type"] == "http.response.start" and not body.is_read:
                answered = MutableHeaders(scope=message)
                if not body.may_be_forgotten:
                    answered["Connection"] = "close"
                ends = "close" in (answered.get("connection"), headers.get("connection"))
            elif ends and not message.get("more_body", False):
                # The answer is out, but it is not over: the server does not close yet.
                message = {**message, "more_body": True}
            await send(message)

        await self._app(scope, body.receive, answer)
        if ends:
            await self._forget(body)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _forget(self, body: _Body) -> None:
        """Reads what is left, as long as it keeps coming and the client has time."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._patience
        try:
            while not body.is_read and loop.time() < end:
                async with asyncio.timeout_at(min(end, loop.time() + QUIET_SECONDS)):
                    await body.receive()
        except TimeoutError:
            pass


def _has_body(headers: Headers) -> bool:
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


class _Body:
    """How far a request's body is read.

    is_read          to its end, or the client is gone
    received         bytes that were read
    """

    def __init__(self, headers: Headers, receive: Receive) -> None:
        self._receive = receive
        announced = headers.get("content-length", "")
        self._length = int(announced) if announced.isdecimal() else None
        self._waits_to_be_asked = headers.get("expect", "").lower() == "100-continue"
        self.is_read = False
        self.received = 0

    @property
    def may_be_forgotten(self) -> bool:
        """Whether what is left is short, and sure to come."""
        if self.is_read:
            return True
        if self._waits_to_be_asked or self._length is None:
            return False
        return self._length - self.received <= LONGEST_REST

    async def receive(self) -> Message:
        self._waits_to_be_asked = False  # this asks, or asked
        message = await self._receive()
        self.received += len(message.get("body", b""))
        self.is_read = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message
