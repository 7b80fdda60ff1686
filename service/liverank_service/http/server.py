"""The HTTP server: uvicorn, with limits on connections, heads of requests and idle clients, and
with defined handling of unread bodies. Of `liverank serve`, and of `liverank mcp`, which has
neither the engine nor FastAPI: what is special about either is in `Rules`.

This is the one place that relies on uvicorn's internals: those in `RELIED_ON`, which the installed
version must have, or no server is made. Tests say whether they still do what is expected;
tests/service/http/test_versions.py runs them on other versions.

uvicorn's own options do not replace any of it: `limit_concurrency` answers requests of existing
connections with 503 instead of closing new ones, `h11_max_incomplete_event_size` belongs to another
parser, and nothing bounds the time for a head, for accepting a response, or for the rest of a body.
"""

from __future__ import annotations

import asyncio
import re
import select
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any, NoReturn

import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from liverank_service.errors import UnsupportedUvicorn
from liverank_service.http.framing import MAX_HEAD_BYTES, Framing, RequestBody, has_body
from liverank_service.pipeline.waiting import Turns

TESTED = ">=0.34,<0.55"
"""tests/service/http/test_versions.py passed with the oldest and the newest of these versions of
uvicorn, and with some between. pyproject.toml accepts later ones too.
"""

try:
    from uvicorn.protocols.http.flow_control import FlowControl
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
except ImportError as error:
    if error.name == "httptools":  # another package
        raise
    raise UnsupportedUvicorn(uvicorn.__version__, str(error), TESTED) from error

_OF_CONNECTIONS = """
connection_lost connection_made data_received eof_received on_header on_headers_complete
on_message_begin on_message_complete on_response_complete send_400_response shutdown
_unset_keepalive_if_required
"""
RELIED_ON: dict[type, tuple[str, str]] = {
    HttpToolsProtocol: (
        _OF_CONNECTIONS,
        "connections cycle flow headers loop parser scope transport url",
    ),
    RequestResponseCycle: (
        "",
        "disconnected keep_alive message_event more_body response_complete response_started",
    ),
    FlowControl: ("pause_reading resume_reading", ""),
    uvicorn.Server: ("shutdown", "should_exit started"),
}
"""Of uvicorn's classes: methods that are overridden or called, and attributes of instances."""

QUIET_SECONDS = 2.0
"""A client that sends nothing for this long has stopped sending, and can read its response."""

STOP_SECONDS = 5
"""For requests in progress when the server stops; then they are cancelled."""

_HEAD_OF_400 = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n"
)
_AUTHORITY = re.compile(rb"(?i:https?)://([^/?#]*)")

WATCH_SECONDS = 1.0
"""Between two looks at a connection whose reading is paused."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How a server treats its connections.

    max_connections  one more is closed at once
    client_seconds   for the head of a request, and for accepting a response
    malformed        the body of the 400 to a request that is no valid HTTP, by the reason
    turns_of         the turns that a request waits for, by its first bytes and whether it arrived
                     before the request ahead of it was answered; None: it is parsed at once
    stop             called once the server stops
    """

    max_connections: int
    client_seconds: float
    malformed: Callable[[str], bytes]
    turns_of: Callable[[bytes, bool], Turns | None] = lambda _, __: None
    stop: Callable[[], None] = lambda: None


def server_of(app: ASGIApp, rules: Rules, **options: Any) -> Server:
    """A server for an application. options: of uvicorn.Config. Raises UnsupportedUvicorn."""
    check_uvicorn()
    config = uvicorn.Config(
        UnreadBodies(app, rules.client_seconds),
        http=partial(Connection, rules=rules),  # type: ignore[arg-type]
        ws="none",
        access_log=False,  # logging a read would take longer than the read
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=STOP_SECONDS,
        **options,
    )
    return Server(config, rules.stop)


def check_uvicorn() -> None:
    """Raises UnsupportedUvicorn if the installed version lacks what is in `RELIED_ON`."""
    missing = [
        f"{owner.__name__}.{name}"
        for owner, (methods, attributes) in RELIED_ON.items()
        for there, names in ((set(dir(owner)), methods), (_attributes(owner), attributes))
        for name in names.split()
        if name not in there
    ]
    if missing:
        raise UnsupportedUvicorn(uvicorn.__version__, ", ".join(missing), TESTED)


def _attributes(owner: type) -> set[str]:
    """Names that the functions of a class use, with the attributes that they set."""
    functions = (each for each in vars(owner).values() if isinstance(each, FunctionType))
    return {name for function in functions for name in function.__code__.co_names}


class Server(uvicorn.Server):
    """A server whose requests do not wait for anything once it stops."""

    def __init__(self, config: uvicorn.Config, stop_waits: Callable[[], None]) -> None:
        super().__init__(config)
        self._stop_waits = stop_waits

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._stop_waits()
        await super().shutdown(sockets)


class Connection(HttpToolsProtocol):
    """One connection. It is closed if there are too many, if the head of a request is too long or
    takes too long, and if the client does not accept its response.

    The time for a head runs from the start of the connection, or from the first byte of a later
    head, until the head is complete. What arrives behind a request is not parsed before that is
    answered, and no more is read. A request is parsed in its turn, if it has to wait for one.

    A client that has sent a request may close its side of the connection and still gets the
    response. ``scope["input_end"]`` is a future that is done from then on. ``scope["abort"]``, a
    function, ends the connection at once.
    """

    def __init__(self, *arguments: Any, rules: Rules, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._rules = rules
        self._deadline: asyncio.TimerHandle | None = None
        self._framing = Framing()
        self._unparsed = b""
        self._input_end: asyncio.Future[None] = self.loop.create_future()
        self._end_is_received = False
        self._is_watched = False
        self._waits_for_turn = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._rules.max_connections:
            transport.abort()
            return
        # The kernel closes a connection whose peer acknowledges nothing for this long.
        endpoint: socket.socket = transport.get_extra_info("socket")
        milliseconds = int(self._rules.client_seconds * 1000)
        endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        self._start_deadline()

    def data_received(self, data: bytes) -> None:
        self._unparsed = self._unparsed + data if self._unparsed else data
        self._parse_in_turn()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Returns whether the connection stays open for a response."""
        self._end_is_received = True
        self._take_turn()
        self._end_input()
        if not self._is_answering:
            return False
        self.cycle.keep_alive = bool(self._unparsed)
        return True

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["input_end"] = self._input_end  # type: ignore[typeddict-unknown-key]
        self.scope["abort"] = self.transport.abort  # type: ignore[typeddict-unknown-key]
        self._in_trailers = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_trailers:  # those would count as headers
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_trailers = True
        self._check_host()
        self._framing.headers_complete(self.headers)
        super().on_headers_complete()
        if not self.parser.should_keep_alive():  # uvicorn below 0.53 compares one spelling only
            self.cycle.keep_alive = False

    def on_chunk_header(self) -> None:
        self._framing.chunk_header()

    def on_chunk_complete(self) -> None:
        self._framing.chunk_complete()

    def on_message_complete(self) -> None:
        self._framing.message_complete()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._cancel_deadline()
        super().on_response_complete()
        if self._unparsed:
            self._parse_in_turn(is_behind=True)
        if self._end_is_received and not self._is_answering:
            self.transport.close()

    def shutdown(self) -> None:
        self._take_turn()  # what has arrived is answered
        super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        self._end_input()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Ends the connection; sends a problem document first, unless a response has begun.

        msg  the reason
        """
        if self.transport.is_closing():
            return
        cycle, self._unparsed = self.cycle, b""
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.abort()
                return
        body = self._rules.malformed(msg) + b"\n"
        self.transport.write(_HEAD_OF_400 % len(body) + body)
        self.transport.close()

    def _check_host(self) -> None:
        """RFC 9112, section 3.2: one Host, which is that of the target if the target has one."""
        hosts = [value for name, value in self.headers if name == b"host"]
        if len(hosts) > 1 or (not hosts and self.parser.get_http_version() != "1.0"):
            self._refuse(f"expected one Host header, got {len(hosts)}")
        if self.url.startswith(b"/"):
            return
        target = _AUTHORITY.match(self.url)
        if target and hosts and target[1].lower() != hosts[0].lower():
            named, host = target[1].decode("latin-1"), hosts[0].decode("latin-1")
            self._refuse(f"the request's target is of host {named!r}, its Host header is {host!r}")

    def _refuse(self, reason: str) -> NoReturn:
        """Called by the parser, which must not continue."""
        self.send_400_response(reason)
        raise ValueError(reason)

    @property
    def _is_answering(self) -> bool:
        """Whether a request is complete and its response is not."""
        cycle = self.cycle
        return cycle is not None and not cycle.more_body and not cycle.response_complete

    @property
    def _begins_request(self) -> bool:
        """Whether what arrives is the first of a request, and more can arrive."""
        return self._framing.is_between and not (self._is_answering or self._end_is_received)

    def _parse_in_turn(self, is_behind: bool = False) -> None:
        """Parses what has arrived: at once, unless it begins a request that waits for its turn.

        is_behind  whether it arrived before the last request was answered
        """
        if self._waits_for_turn:
            if len(self._unparsed) > MAX_HEAD_BYTES:
                self.flow.pause_reading()
            return
        turns = self._rules.turns_of(self._unparsed, is_behind) if self._begins_request else None
        if turns is None:
            self._parse()
            return
        self._waits_for_turn = True
        self._unset_keepalive_if_required()
        turns.take(self._take_turn)

    def _take_turn(self) -> None:
        if self._waits_for_turn:
            self._waits_for_turn = False
            self.flow.resume_reading()
            self._parse()

    def _parse(self) -> None:
        """Parses what has arrived, up to the end of a request that is not answered yet."""
        data, self._unparsed = self._unparsed, b""
        start = 0
        while start < len(data) and not self._is_answering and not self.transport.is_closing():
            end = self._framing.piece(data, start)
            assert end > start, "the parser and the framing disagree"
            super().data_received(data if end - start == len(data) else data[start:end])
            start = end
            if self._framing.too_long and not self.transport.is_closing():
                self.send_400_response(f"request head exceeds {MAX_HEAD_BYTES:,} bytes")
        if self.transport.is_closing():
            return
        if self._is_answering:
            self._cancel_deadline()
            self._unparsed = data[start:]
            if self._unparsed:
                self.flow.pause_reading()
                if not self._is_watched:
                    self._watch_input()
            else:  # the last part of a long body has paused it: nobody would notice the end
                self.flow.resume_reading()
        elif self.cycle is not None and not self.cycle.response_complete:
            self._cancel_deadline()
        # Either a head that is not complete, or the rest of a body whose response is complete.
        elif self._deadline is None:
            self._start_deadline()

    def _watch_input(self) -> None:
        """Notices the end of the input, which a transport whose reading is paused does not."""
        self._is_watched = False
        if self.transport.is_closing() or not (self._unparsed and self._is_answering):
            return
        ends = select.poll()
        ends.register(self.transport.get_extra_info("socket"), select.POLLRDHUP)
        if ends.poll(0):
            self._end_input()
        else:
            self._is_watched = True
            self.loop.call_later(WATCH_SECONDS, self._watch_input)

    def _end_input(self) -> None:
        if not self._input_end.done():
            self._input_end.set_result(None)

    def _start_deadline(self) -> None:
        self._deadline = self.loop.call_later(self._rules.client_seconds, self._end_slow_client)

    def _end_slow_client(self) -> None:
        self._take_turn()  # a head that waits for it may be complete
        if self._deadline is not None:
            self.transport.abort()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class UnreadBodies:
    """An ASGI layer for responses that are sent before the request's body was read to its end.

    A refusal does not wait for the body. Its rest must not be taken for the next request, and the
    client must be able to read the response (RFC 9112, sections 9.3 and 9.6):

    - a short rest of known length is received and discarded, and the connection is kept;
    - any other connection is closed: the response has ``Connection: close``, and for a while what
      still arrives is received and discarded. Closing a socket with unread bytes resets the
      connection, and a reset can destroy the response before a client that is still sending reads
      it.

    Responses have to announce their length.
    """

    def __init__(self, app: ASGIApp, client_seconds: float) -> None:
        """client_seconds: for the rest of a body before the connection is closed."""
        self._app = app
        self._client_seconds = client_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not has_body(headers := Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        body = RequestBody(headers, receive)
        closes = False

        async def respond(message: Message) -> None:
            nonlocal closes
            if message["type"] == "http.response.start" and not body.is_read:
                response_headers = MutableHeaders(scope=message)
                if not body.can_be_discarded:
                    response_headers["Connection"] = "close"
                closes = _ends(response_headers) or _ends(headers)
            elif closes and not message.get("more_body", False):
                # Not complete yet: uvicorn would close the connection.
                message = {**message, "more_body": True}
            await send(message)

        await self._app(scope, body.receive, respond)
        if closes:
            with suppress(asyncio.CancelledError):  # the server stops
                await self._discard(body)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _discard(self, body: RequestBody) -> None:
        """Receives the rest, while it keeps arriving and for `client_seconds` at most."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._client_seconds
        try:
            while not body.is_read and loop.time() < end:
                async with asyncio.timeout_at(min(end, loop.time() + QUIET_SECONDS)):
                    await body.receive()
        except TimeoutError:
            pass


def _ends(headers: Headers) -> bool:
    """Whether the connection ends after the message with these headers."""
    options = ",".join(headers.getlist("connection")).lower().split(",")
    return "close" in map(str.strip, options)
