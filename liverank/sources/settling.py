"""Changes of edges, in order, to one batch with the same result.

The server applies the deletions of a batch before its insertions, so of an edge that is inserted
and deleted in one batch only the last change counts here. With `on_conflict` `add`, insertions of
an edge are all kept, since the server adds them up, but those before a deletion are not. What such
an insertion does beside is kept: its vertices stay, and its time moves the clock of the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from liverank.choices import OnConflict
from liverank.client.call import json_body
from liverank.sources.messages import EdgeChange


def settled(changes: Sequence[EdgeChange], on_conflict: OnConflict, directed: bool) -> bytes:
    """The body of the batch, JSON; `{}` without changes."""
    edges = _edges(changes, directed)
    last = dict(zip(edges, changes, strict=True))
    deleted: list[tuple[Any, Any]] = []
    inserted: Sequence[EdgeChange] = changes
    if any(change.operation == "delete" for change in changes):
        deletions = {
            edge: number
            for number, (edge, change) in enumerate(zip(edges, changes, strict=True))
            if change.operation == "delete"
        }
        adds = on_conflict == "add"
        deleted = [edge for edge in deletions if adds or last[edge].operation == "delete"]
        inserted = [
            change
            for number, (edge, change) in enumerate(zip(edges, changes, strict=True))
            if number > deletions.get(edge, -1)
        ]
    if on_conflict == "replace" and len(last) < len(changes):
        newest = [change for change in last.values() if change.operation == "insert"]
        # otherwise the server gets the repeats, of which it takes the last one
        if _newest_time(newest) == _newest_time(inserted):
            inserted = newest
    document: dict[str, Any] = {}
    if inserted:
        document["insert"] = _columns(inserted)
    if deleted:
        sources, targets = zip(*deleted, strict=True)
        document["delete"] = {"source": sources, "target": targets}
        named = {end for change in inserted for end in (change.source, change.target)}
        made = (
            end
            for change in changes
            if change.operation == "insert"
            for end in (change.source, change.target)
            if end not in named
        )
        if vertices := list(dict.fromkeys(made)):
            document["vertices"] = vertices
    return json_body(document)


def loses_newest_time(changes: Sequence[EdgeChange], directed: bool) -> bool:
    """Whether no batch of all changes has their newest time: each insertion with it is taken back
    by a later deletion.
    """
    newest = _newest_time(changes)
    if newest is None or all(change.operation == "insert" for change in changes):
        return False
    deleted = set()
    for edge, change in zip(reversed(_edges(changes, directed)), reversed(changes), strict=True):
        if change.operation == "delete":
            deleted.add(edge)
        elif change.time == newest and edge not in deleted:
            return False
    return True


def _edges(changes: Sequence[EdgeChange], directed: bool) -> list[tuple[Any, Any]]:
    edges: list[tuple[Any, Any]] = [(change.source, change.target) for change in changes]
    if directed:
        return edges
    # both ends have the type of the graph's keys
    return [edge if edge[0] <= edge[1] else edge[::-1] for edge in edges]


def _newest_time(changes: Sequence[EdgeChange]) -> float | None:
    return max((change.time for change in changes if change.time is not None), default=None)


def _columns(insert: Sequence[EdgeChange]) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "source": [change.source for change in insert],
        "target": [change.target for change in insert],
    }
    # a graph has weights, and times, or not
    for name in ("weight", "time"):
        if getattr(insert[0], name) is not None:
            columns[name] = [getattr(change, name) for change in insert]
    return columns
