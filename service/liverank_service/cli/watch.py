"""The vertices of highest rank, printed again whenever they change: `liverank top --watch`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from liverank_service.cli import display

if TYPE_CHECKING:
    from liverank.client import Client
    from liverank.client.responses import TopRanks

SECONDS_BETWEEN = 0.25
"""Between two requests for the places: of several changes in between, the last one counts."""


@dataclass(frozen=True)
class Places:
    """The first places of one revision, and who has entered since the one before."""

    top: TopRanks
    entered: frozenset[str | int]


def follow(client: Client, graph: str, k: int, ranks: Mapping[str, Any]) -> Iterator[Places]:
    """The places now, then whenever the change feed tells of others.

    ranks  which ranks, `view` and `among`
    """
    known: frozenset[str | int] | None = None
    shown, earliest = (-1, 0.0), 0.0
    for event in client.changes(graph, top=k, limit=max(1000, 2 * k), **ranks):
        if event.revision < shown[0] or (event.revision, event.error_bound) == shown:
            continue  # its places are shown already
        time.sleep(max(0.0, earliest - time.monotonic()))
        earliest = time.monotonic() + SECONDS_BETWEEN
        top = client.top(graph, k, min_version=event.version, **ranks)
        shown = top.revision, top.error_bound
        vertices = frozenset(place.vertex for place in top.ranks)
        yield Places(top, frozenset() if known is None else vertices - known)
        known = vertices


def watch(client: Client, graph: str, k: int, ranks: Mapping[str, Any], as_json: bool) -> None:
    """Prints until Ctrl-C: a live table on a terminal, otherwise a table for each change, or a
    line of JSON.
    """
    console = display.output()
    if as_json:
        for places in follow(client, graph, k, ranks):
            display.print_json(places.top)
        return
    if not console.is_terminal:
        for places in follow(client, graph, k, ranks):
            console.print(_shown(places))
        return
    with display.Screen(console=console, auto_refresh=False) as live:
        for places in follow(client, graph, k, ranks):
            live.update(_shown(places), refresh=True)


def _shown(places: Places) -> Group:
    top = places.top
    table = display.rank_table(top.ranks, entered=places.entered)
    line = f"version {top.version:,}, revision {top.revision:,}, error bound {top.error_bound:.1e}"
    return Group(table, *display.tie_lines(top), Text(line, style="dim"))
