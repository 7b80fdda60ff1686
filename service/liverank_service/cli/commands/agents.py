"""`liverank mcp`: tools for language models."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from liverank_service.cli.commands.options import Server, grouped

if TYPE_CHECKING:
    import socket

app = typer.Typer(rich_markup_mode=None)

_BACKLOG = 32
"""Connections that asyncio accepts at once, before those beyond the limit are closed."""


@dataclass(frozen=True)
class _Http:
    """Tools over HTTP."""

    http: Annotated[
        bool, typer.Option("--http", help="Serve streamable HTTP at /mcp instead of stdio.")
    ] = False
    host: Annotated[str, typer.Option(help="With --http: address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="With --http: port; 0 picks a free one.")
    ] = 8081
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="With --http: a name by which clients reach it, beside localhost. Repeatable.",
        ),
    ] = None
    max_connections: Annotated[
        int, typer.Option(min=1, help="With --http: one more is closed at once.")
    ] = 1000
    slow_client_seconds: Annotated[
        float,
        typer.Option(
            min=0.1,
            max=86_400,
            help="With --http: for the head of a request, for its body, and for accepting a "
            "response.",
        ),
    ] = 30.0


@app.command()
@grouped
def mcp(
    *,
    over: _Http,
    allow_writes: Annotated[
        bool, typer.Option("--allow-writes", help="Have the tool `add_edges`, too.")
    ] = False,
    of: Server,
) -> None:
    """Gives language models tools for the graphs of a server.

    It speaks the Model Context Protocol. Over stdio, its API key is LIVERANK_API_KEY. Over HTTP,
    each client sends its own, as Authorization: Bearer <key>. Needs liverank[mcp].
    """
    from liverank.errors import needs

    with needs("mcp"):
        from liverank.mcp import server
    tools = of.url, of.graph, allow_writes
    if over.http:
        serve = partial(_serve, over.max_connections, over.slow_client_seconds)
        where = over.host, over.port, over.allow_host or ()
        server.serve_http(*tools, *where, _say_where, serve, over.slow_client_seconds)
    else:
        server.serve_stdio(*tools)


def _say_where(address: str) -> None:
    _say(f"serving the Model Context Protocol at {address}")


def _serve(max_connections: int, client_seconds: float, app: Any, listener: socket.socket) -> None:
    """Serves the application until it is interrupted, with the limits of `liverank serve`."""
    from liverank.mcp.server import POOLED_CONNECTIONS
    from liverank_service.http.server import Rules, server_of
    from liverank_service.process_limits import OTHER_FILES, raised_file_limit

    others = OTHER_FILES + POOLED_CONNECTIONS + 2 * _BACKLOG
    files = raised_file_limit(others + max_connections)
    if (most := max(1, files - others)) < max_connections:
        _say(f"{files} file descriptors (ulimit -n) are enough for {most} connections only")
    rules = Rules(min(most, max_connections), client_seconds, _malformed)
    options = {"log_level": "warning", "lifespan": "on", "backlog": _BACKLOG}
    server_of(app, rules, **options).run([listener])


def _malformed(reason: str) -> bytes:
    """The problem document for a request that is no valid HTTP."""
    import json

    return json.dumps(
        {
            "type": "urn:liverank:problem:malformed-request",
            "title": "Malformed request",
            "status": 400,
            "detail": f"the request is malformed: {reason}",
        }
    ).encode()


def _say(text: str) -> None:
    import sys

    print(f"liverank: {text}", file=sys.stderr, flush=True)
