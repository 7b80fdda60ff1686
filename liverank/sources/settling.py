"""Changes of edges, in order, to one batch with the same result.

The server applies the deletions of a batch before its insertions, so of an edge that is inserted
and deleted in one batch only the last change counts here. With `on_conflict` `add`, insertions of
an edge are all kept, since the server adds them up, but those before a deletion are not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from liverank.choices import Key, OnConflict
from liverank.client.call import json_body
from liverank.sources.messages import EdgeChange


def settled(changes: Iterable[EdgeChange], on_conflict: OnConflict, directed: bool) -> bytes:
    """The body of the batch, JSON; `{}` without changes."""
    last: dict[tuple[Key, Key], tuple[bool, list[EdgeChange]]] = {}
    adds = on_conflict == "add"
    for change in changes:
        source, target = change.source, change.target
        # both have the type of the graph's keys
        edge = (source, target) if directed or source <= target else (target, source)  # type: ignore[operator]
        if change.deleted:
            last[edge] = True, []
        elif adds and edge in last:
            last[edge][1].append(change)
        else:
            last[edge] = False, [change]
    insert = [change for _, inserted in last.values() for change in inserted]
    delete = [edge for edge, (deleted, _) in last.items() if deleted]
    document = {}
    if insert:
        document["insert"] = _columns(insert)
    if delete:
        document["delete"] = {
            "source": [source for source, _ in delete],
            "target": [target for _, target in delete],
        }
    return json_body(document)


def _columns(insert: list[EdgeChange]) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "source": [change.source for change in insert],
        "target": [change.target for change in insert],
    }
    # a graph has weights, and times, or not
    for name in ("weight", "time"):
        if getattr(insert[0], name) is not None:
            columns[name] = [getattr(change, name) for change in insert]
    return columns
