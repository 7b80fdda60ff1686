"""The body of a request, and whether what is left of it can be discarded."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import Message, Receive

MAX_DISCARDED_BYTES = 256 * 1024
"""Up to this many unread bytes of a body are received and discarded to keep the connection; more
would cost more than a new connection.
"""


def has_body(headers: Headers) -> bool:
    """Whether a request has one."""
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


class RequestBody:
    """The body of a request while it is received.

    is_read  to its end, or the client has disconnected
    """

    def __init__(self, headers: Headers, receive: Receive) -> None:
        announced = headers.get("content-length", "")
        self.is_read = False
        self._receive = receive
        self._length = int(announced) if announced.isdecimal() else None
        self._received = 0
        self._waits_for_continue = headers.get("expect", "").lower() == "100-continue"

    @property
    def can_be_discarded(self) -> bool:
        """Whether the rest is short and certain to arrive."""
        if self.is_read:
            return True
        if self._waits_for_continue or self._length is None:
            return False
        return self._length - self._received <= MAX_DISCARDED_BYTES

    async def receive(self) -> Message:
        """The next part, as of ASGI."""
        self._waits_for_continue = False  # receiving sends 100 Continue
        message = await self._receive()
        self._received += len(message.get("body", b""))
        self.is_read = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message
