"""`liverank mcp`: tools for language models."""

from __future__ import annotations

from typing import Annotated

import typer

from service.cli.commands.options import DEFAULT_URL, Graph, Url

app = typer.Typer(rich_markup_mode=None)


@app.command()
def mcp(
    http: Annotated[
        bool, typer.Option("--http", help="Serve streamable HTTP at /mcp instead of stdio.")
    ] = False,
    host: Annotated[str, typer.Option(help="With --http: address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="With --http: port; 0 picks a free one.")
    ] = 8081,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="With --http: a name by which clients reach it, beside localhost. Repeatable.",
        ),
    ] = None,
    allow_writes: Annotated[
        bool, typer.Option("--allow-writes", help="Have the tool `add_edges`, too.")
    ] = False,
    graph: Graph = "default",
    url: Url = DEFAULT_URL,
) -> None:
    """Gives language models tools for the graphs of a server.

    It speaks the Model Context Protocol. Over stdio, its API key is LIVERANK_API_KEY. Over HTTP,
    each client sends its own, as Authorization: Bearer <key>. Needs liverank[mcp].
    """
    from liverank.errors import needs

    with needs("mcp"):
        from liverank.mcp import server
    if http:
        server.serve_http(url, graph, allow_writes, host, port, allow_host or (), _say_where)
    else:
        server.serve_stdio(url, graph, allow_writes)


def _say_where(address: str) -> None:
    import sys

    print(f"liverank: serving the Model Context Protocol at {address}", file=sys.stderr, flush=True)
