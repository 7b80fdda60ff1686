"""Connections of clients that are slow, on purpose or not, are closed before they add up.

uvicorn waits for ever for the end of a request's head, whatever its length, and for a client to
take its answer. Bodies are watched where they are read (service.http.parameters.read_body), and
where they are not (service.http.unread_bodies).
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.settings import Settings

LONGEST_HEAD = 64 * 1024
"""Bytes of a request's line and headers."""


def guarded_protocol(settings: Settings) -> type[asyncio.Protocol]:
    """The protocol of one server, for ``uvicorn.Config(http=…)``."""

    class Guarded(_GuardedProtocol):
        patience = settings.slow_client_seconds
        most = settings.max_connections

    return Guarded


class _GuardedProtocol(HttpToolsProtocol):
    patience: float
    most: int

    _overdue: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _body_is_open = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()
            return
        # The kernel ends a connection whose peer takes nothing for so long.
        endpoint: socket.socket = transport.get_extra_info("socket")
        patience = int(self.patience * 1000)
        endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        begins_in_head = not self._body_is_open
        super().data_received(data)
        if self.parser is None or self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._head_arrived()
            return
        # A head that is not complete, or the rest of a body that was answered before its end: data
        # in which such a body ends is its own, not the next head's.
        if begins_in_head:
            self._head_bytes += len(data)
        if self._head_bytes > LONGEST_HEAD:
            self.send_400_response(f"The head of a request is longer than {LONGEST_HEAD} bytes.")
        elif self._overdue is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        self._body_is_open = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._body_is_open = False
        self._head_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._head_arrived()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_arrived()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._overdue = self.loop.call_later(self.patience, self.transport.abort)

    def _head_arrived(self) -> None:
        self._head_bytes = 0
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None


def server_options(settings: Settings) -> dict[str, Any]:
    """What every server of this application gives to ``uvicorn.Config``."""
    # A line for each read would cost more than the read.
    return {
        "http": guarded_protocol(settings),
        "loop": "uvloop",
        "ws": "none",
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "log_config": None,
    }
