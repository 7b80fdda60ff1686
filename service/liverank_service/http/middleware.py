"""Middleware of every request: its id and context, headers of the response, metrics, and errors
that nothing else handles.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
import logging
import re
import secrets
from time import perf_counter

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from liverank_service.errors import NotReady
from liverank_service.http.limits import (
    MIN_READING_BYTES_PER_SECOND,
    ConcurrencyLimit,
    RequestContext,
)
from liverank_service.http.metrics import HttpMetrics
from liverank_service.http.responses import problem_response
from liverank_service.logs import request_id
from liverank_service.settings import Settings

log = logging.getLogger("liverank.http")

LONG_BODY = 1 << 20
"""Bytes; a shorter one is left to the socket."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# A counter rather than random numbers: a system call for each would release the interpreter lock.
_PROCESS = secrets.token_hex(4)
_numbers = itertools.count()
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_INLINE_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


class RequestMiddleware:
    """Puts a RequestContext into ``scope["request_context"]``."""

    def __init__(
        self, app: ASGIApp, limit: ConcurrencyLimit, metrics: HttpMetrics, settings: Settings
    ) -> None:
        self._app = app
        self._limit = limit
        self._metrics = metrics
        self._client_seconds = settings.slow_client_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        context = scope["request_context"] = RequestContext(_request_id(scope))
        token = request_id.set(context.request_id)
        status = 0
        page: Message | None = None

        async def respond(message: Message) -> None:
            nonlocal status, page
            if message["type"] == "http.response.start":
                status = message["status"]
                sent = message["headers"]
                # a copy: a response object may be sent more than once
                headers = [*sent, (b"x-request-id", context.request_id.encode()), _NO_SNIFFING]
                message = {"type": "http.response.start", "status": status, "headers": headers}
                if any(map(_is_page, sent)):
                    page = message  # its headers depend on its body
                    return
            elif page is not None:
                _protect(MutableHeaders(scope=page), message["body"])
                await send(page)
                page = None
            if _is_long(message):
                await self._send_long(scope, message, send)
            else:
                await send(message)

        self._metrics.in_progress.inc()
        started = perf_counter()
        try:
            await self._app(scope, receive, respond)
        except ClientDisconnect:
            pass  # nothing was applied, and no response can be read
        except asyncio.CancelledError:
            if status:
                raise
            # the server stops and waits no longer for this request
            await problem_response(NotReady("stopping"), scope["path"])(scope, receive, respond)
        except Exception as error:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if status:  # the response has begun and can only be aborted
                raise
            await problem_response(error, scope["path"])(scope, receive, respond)
            # An error may be stored and raised again: it must not keep this request alive.
            error.__traceback__ = None
        finally:
            self._limit.leave(context)
            self._metrics.in_progress.dec()
            self._metrics.count(context.call, status, perf_counter() - started)
            request_id.reset(token)

    async def _send_long(self, scope: Scope, message: Message, send: Send) -> None:
        """Returns once the client has accepted the last body of a response, all but a little: until
        then the request counts, whose response takes memory. One that reads too slowly is cut off.
        """
        seconds = self._client_seconds + len(message["body"]) / MIN_READING_BYTES_PER_SECOND
        try:
            async with asyncio.timeout(seconds):
                await send({**message, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            log.warning("response cut: the client reads too slowly", extra={"path": scope["path"]})
            scope["abort"]()


def _is_long(message: Message) -> bool:
    is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
    return is_last and len(message.get("body", b"")) > LONG_BODY


def _request_id(scope: Scope) -> str:
    """The client's own if it can be logged, else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            given: str = value.decode("latin-1")
            if _REQUEST_ID.fullmatch(given):
                return given
    return f"{_PROCESS}{next(_numbers):08x}"


def _is_page(header: tuple[bytes, bytes]) -> bool:
    return header[0] == b"content-type" and header[1].startswith(b"text/html")


def _protect(headers: MutableHeaders, body: bytes) -> None:
    """Headers that let a page run only scripts of this server, and let no other page frame it,
    unless it has a policy of its own.
    """
    if "content-security-policy" in headers:
        return
    scripts = "".join(
        f" 'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'"
        for script in _INLINE_SCRIPT.findall(body)
    )
    headers["Content-Security-Policy"] = (
        f"default-src 'none'; script-src 'self'{scripts}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    headers["X-Frame-Options"] = "DENY"
    headers["Referrer-Policy"] = "no-referrer"
