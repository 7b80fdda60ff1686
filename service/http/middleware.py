"""Around every request: its id, its place, the headers of its answer, its time; and what nobody
foresaw.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import logging
import re
import secrets
from collections.abc import Callable
from time import perf_counter

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import FORESEEN
from service.http.limits import Capacity, Exchange
from service.http.metrics import HttpMetrics
from service.logs import request_id

log = logging.getLogger("liverank.http")

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# Not from the system's random numbers each time: to ask for them hands the interpreter over.
_PROCESS = secrets.token_hex(4)
_numbers = itertools.count()
_INLINE_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


class Exchanges:
    """Around the routes: everything inside finds its Exchange in ``scope["exchange"]``.

    answer_of  makes the answer of an error, and of the path that was asked for
    """

    def __init__(
        self,
        app: ASGIApp,
        capacity: Capacity,
        metrics: HttpMetrics,
        answer_of: Callable[[Exception, str], Response],
    ) -> None:
        self._app = app
        self._capacity = capacity
        self._metrics = metrics
        self._answer_of = answer_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = scope["exchange"] = Exchange(_request_id(scope))
        token = request_id.set(exchange.request_id)
        status = 0
        page: Message | None = None

        async def answer(message: Message) -> None:
            nonlocal status, page
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [
                    *message["headers"],  # the answer may be one of many: they are copied
                    (b"x-request-id", exchange.request_id.encode()),
                    (b"x-content-type-options", b"nosniff"),
                ]
                message = {**message, "headers": headers}
                if _is_page(headers):
                    page = message  # its headers depend on its body
                    return
            elif page is not None:
                _protect(MutableHeaders(scope=page), message["body"])
                await send(page)
                page = None
            await send(message)

        self._metrics.at_work.inc()
        started = perf_counter()
        try:
            await self._app(scope, receive, answer)
        except ClientDisconnect:
            pass  # in the middle of its body: nothing was taken, and nobody reads an answer
        except Exception as error:
            if not isinstance(error, FORESEEN):
                log.exception("%s %s failed", scope["method"], scope["path"])
            if status:  # the answer has begun: all that is left is to break it off
                raise
            await self._answer_of(error, _escaped(scope["path"]))(scope, receive, answer)
            # It may be kept, to be raised again, or by what its frames hold.
            error.__traceback__ = None
        finally:
            self._capacity.leave(exchange)
            self._metrics.at_work.dec()
            self._metrics.answered(exchange.call, status, perf_counter() - started)
            request_id.reset(token)


def _request_id(scope: Scope) -> str:
    """The client's own, where it is one that may stand in a log; else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            given: str = value.decode("latin-1")
            if _REQUEST_ID.fullmatch(given):
                return given
    return f"{_PROCESS}{next(_numbers):08x}"


def _escaped(path: str) -> str:
    """The path as a problem names it: what would end it in a URI is escaped again."""
    return path.replace("?", "%3F").replace("#", "%23").replace("\\", "%5C")


def _is_page(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(
        name == b"content-type" and value.startswith(b"text/html") for name, value in headers
    )


def _protect(headers: MutableHeaders, body: bytes) -> None:
    """Headers of a page: it runs only scripts of this server, and stands in no other page."""
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
