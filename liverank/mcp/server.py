"""The server of the tools: over stdio for one client, or over HTTP for several, each with its own
API key.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version

import httpx
from mcp.server import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from liverank.client import AsyncClient, Client
from liverank.client.connection import CONNECT_SECONDS, http_options, is_loopback
from liverank.errors import InvalidInput, ServerError
from liverank.mcp.tools import Tools

PATH = "/mcp"

POOLED_CONNECTIONS = 100
"""To the liverank server at most."""

Serve = Callable[[ASGIApp, socket.socket], None]
"""Serves an application at a listening socket until it is interrupted."""

_INSTRUCTIONS = """\
liverank keeps graphs and the PageRank of their vertices while edges are added. Use `related` to \
find what is connected to things you know, `top` for an overview, `rank` for single vertices. \
Ranks are as of the newest version, each answer with a proven bound on its error.\
"""
_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


def serve_stdio(url: str, graph: str, allow_writes: bool) -> None:
    """Serves one client over stdin and stdout until it closes stdin. The API key is that of the
    environment, LIVERANK_API_KEY.

    url           of the liverank server
    graph         of calls that name none
    allow_writes  whether there is the tool `add_edges`
    """
    client = AsyncClient(url)
    _server(lambda _headers: client, graph, allow_writes).run("stdio")


def serve_http(
    url: str,
    graph: str,
    allow_writes: bool,
    host: str,
    port: int,
    names: Sequence[str],
    listening: Callable[[str], None],
    serve: Serve,
    body_seconds: float,
) -> None:
    """Serves streamable HTTP at /mcp until it is interrupted. Each request is made with the API key
    of its own header Authorization, never with one of the environment.

    names         by which clients reach this server, beside those of loopback
    listening     called with the address, once it listens
    serve         the HTTP server, which limits connections and the time for heads and responses
    body_seconds  for receiving a body

    Raises InvalidInput if other machines could use a server that needs no key, OSError if it cannot
    listen.
    """
    if not is_loopback(host):
        _check_protected(url, host, names)
    app = http_app(Connections(url), graph, allow_writes, names, body_seconds)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listener:
        shown = f"[{host}]" if ":" in host else host
        listening(f"http://{shown}:{listener.getsockname()[1]}{PATH}")
        serve(app, listener)


def http_app(
    connections: Connections,
    graph: str,
    allow_writes: bool,
    names: Sequence[str],
    body_seconds: float,
) -> Starlette:
    """The application of `serve_http`."""
    allowed = [*_LOOPBACK_NAMES, *names]
    security = TransportSecuritySettings(
        allowed_hosts=[f"{name}{port}" for name in allowed for port in ("", ":*")],
        allowed_origins=[
            f"{scheme}://{name}{port}"
            for scheme in ("http", "https")
            for name in allowed
            for port in ("", ":*")
        ],
    )
    app = _server(connections.client, graph, allow_writes).streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,  # a session would keep the key of its first request
        json_response=True,
        transport_security=security,
    )
    app.add_middleware(SlowBodies, seconds=body_seconds)
    app.add_middleware(KeyCheck, connections=connections)
    return app


class Connections:
    """Connections to one liverank server, each request with the API key of the one that caused it.

    They share a pool; the clients are not to be closed, which would close it.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        limits = httpx.Limits(max_connections=POOLED_CONNECTIONS)
        self._pool = httpx.AsyncHTTPTransport(limits=limits)

    def client(self, headers: Mapping[str, str] | None) -> AsyncClient:
        return AsyncClient(self._url, api_key=_key_in(headers or {}), transport=self._pool)

    async def refusal(self, headers: Mapping[str, str]) -> Response | None:
        """The 401 with which the liverank server refuses the key in these headers, or that there is
        none; None if it accepts it or does not respond.
        """
        options = http_options(self._url, _key_in(headers)) | {"timeout": CONNECT_SECONDS}
        try:
            answer = await httpx.AsyncClient(**options, transport=self._pool).get("/graphs")
        except httpx.TransportError:
            return None
        if answer.status_code != httpx.codes.UNAUTHORIZED:
            return None
        kept = ("content-type", "www-authenticate")
        sent = {name: answer.headers[name] for name in kept if name in answer.headers}
        return Response(answer.content, answer.status_code, sent)


class KeyCheck:
    """Refuses requests whose API key the liverank server refuses: clients take only the status 401
    as a request for another key. If that server does not respond, the tools say so.
    """

    def __init__(self, app: ASGIApp, connections: Connections) -> None:
        self._app = app
        self._connections = connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            refusal = await self._connections.refusal(Headers(scope=scope))
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


class SlowBodies:
    """Refuses requests whose body does not arrive in time."""

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] == "http" else {}
        if "transfer-encoding" not in headers and headers.get("content-length", "0") == "0":
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._seconds) as limit:

                async def received() -> Message:
                    message = await receive()
                    if not message.get("more_body", False):
                        limit.reschedule(None)
                    return message

                await self._app(scope, received, send)
        except TimeoutError:
            problem = {
                "type": "urn:liverank:problem:slow-client",
                "title": "Slow client",
                "status": 408,
                "detail": f"the body did not arrive within {self._seconds:g} s",
            }
            response = Response(json.dumps(problem), 408, media_type="application/problem+json")
            await response(scope, receive, send)


def _key_in(headers: Mapping[str, str]) -> str:
    """The API key in the header Authorization; empty if there is none."""
    kind, _, key = headers.get("authorization", "").partition(" ")
    usable = kind.lower() == "bearer" and key.isascii() and key.isprintable()
    return key.strip() if usable else ""


def _check_protected(url: str, host: str, names: Sequence[str]) -> None:
    """Raises InvalidInput if the liverank server serves requests without a key: other machines
    could then use it, which it would not let them.
    """
    if not names:
        message = f"expected the names by which clients reach {host}, got none"
        raise InvalidInput("allow-host", message)
    with Client(url, api_key="") as client:
        try:
            client.graphs()
        except ServerError as error:
            if error.status == httpx.codes.UNAUTHORIZED:
                return
            raise
    message = f"expected a loopback address, got {host}: {url} needs no API key"
    raise InvalidInput("host", message)


def _server(
    connect: Callable[[Mapping[str, str] | None], AsyncClient], graph: str, allow_writes: bool
) -> MCPServer[None]:
    return MCPServer(
        "liverank",
        title="liverank",
        instructions=f"{_INSTRUCTIONS} The usual graph is {graph!r}.",
        version=version("liverank"),
        tools=Tools(connect, graph).listed(allow_writes),
        log_level="WARNING",
    )
