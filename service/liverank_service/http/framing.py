"""Where the parts of HTTP/1.1 requests end in the bytes of a connection (RFC 9112).

The parser, llhttp through httptools, does not tell at which byte a request ends, nor how many of
its bytes were no body. `Framing` finds the ends, so that each part can be parsed on its own: the
server then counts the bytes of a head exactly and does not parse a request before the previous one
is answered. What is valid is decided by the parser alone.

The body of a request is received in parts; what is left of it can be discarded if it is short.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from starlette.datastructures import Headers
from starlette.types import Message, Receive

MAX_HEAD_BYTES = 64 * 1024
"""Maximum size of a request line with its headers, its trailers and its chunk extensions."""

_MAX_DIGITS = 16
_CHUNK_SIZE_BYTES = _MAX_DIGITS + 2
"""Of the line with a chunk's size, which has digits and a line break; more bytes, which are an
extension, count towards the head.
"""

_BLANK_LINE = re.compile(rb"\n\r?\n")


class _Part(Enum):
    HEAD = auto()
    BODY = auto()  # all of it, or the data of one chunk
    CHUNK_SIZE = auto()
    TRAILERS = auto()


class Framing:
    """The place of a connection within its current request.

    Feed the parser one `piece` after the other, and call `headers_complete`, `chunk_header`,
    `chunk_complete` and `message_complete` from its callbacks of these names.
    """

    def __init__(self) -> None:
        self.message_complete()

    def message_complete(self) -> None:
        self._part = _Part.HEAD
        self._line = b""  # the start of a chunk's size line, or the last two bytes of a head
        self._counted = 0
        self._free = 0  # bytes of this part that are not counted
        self._left = 0  # bytes of the body or the chunk

    def headers_complete(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Headers as the parser accepts them, names in lower case."""
        given = dict(headers)
        if b"transfer-encoding" in given:
            self.chunk_complete()
        else:
            self._part = _Part.BODY
            self._left = int(given.get(b"content-length", b"0"))

    def chunk_header(self) -> None:
        digits = self._line.partition(b";")[0].strip()
        if len(digits) > _MAX_DIGITS:
            raise ValueError("the size of a chunk has too many digits")
        if size := int(digits, 16):
            self._part = _Part.BODY
            self._left = size + len(b"\r\n")
        else:
            self._part = _Part.TRAILERS
            self._free = len(b"\r\n")

    def chunk_complete(self) -> None:
        self._part = _Part.CHUNK_SIZE
        self._line = b""
        self._free = _CHUNK_SIZE_BYTES

    @property
    def is_between(self) -> bool:
        """Whether no byte of a request came since the last one was complete."""
        return self._part is _Part.HEAD and not self._counted

    @property
    def too_long(self) -> bool:
        """Whether the head would exceed MAX_HEAD_BYTES with the next byte."""
        is_body = self._part is _Part.BODY
        return not is_body and not self._free and self._counted >= MAX_HEAD_BYTES

    def piece(self, data: bytes, start: int) -> int:
        """The end of the next piece of `data`, which begins at `start` and is not empty. A piece
        has bytes of one part only, and of a head at most as many as are allowed.
        """
        if self._part is _Part.BODY:
            end = min(len(data), start + self._left)
            self._left -= end - start
            return end
        most = min(len(data), start + MAX_HEAD_BYTES - self._counted + self._free)
        if self._part is _Part.HEAD:
            end = self._end_of_head(data, start, most)
        else:
            end = data.find(b"\n", start, most) + 1 or most
            if self._part is _Part.CHUNK_SIZE and len(self._line) < _CHUNK_SIZE_BYTES:
                self._line += data[start : min(end, start + _CHUNK_SIZE_BYTES)]
        free = min(end - start, self._free)
        self._free -= free
        self._counted += end - start - free
        return end

    def _end_of_head(self, data: bytes, start: int, most: int) -> int:
        """After the next blank line, which the previous piece may have begun, or `most`."""
        last = self._line
        if found := _BLANK_LINE.search(last + data[start : start + 2]):
            end = start + found.end() - len(last)
        elif found := _BLANK_LINE.search(data, start, most):
            end = found.end()
        else:
            self._line = (last + data[max(start, most - 2) : most])[-2:]
            return most
        self._line = b""
        return min(end, most)


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
