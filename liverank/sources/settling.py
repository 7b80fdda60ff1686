"""Changes of edges, in order, to one batch with the same result.

The server applies the deletions of a batch before its insertions, so of an edge that is inserted
and deleted in one batch only the last change counts here. With `on_conflict` `add`, insertions of
an edge are all kept, since the server adds them up, but those before a deletion are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from liverank.choices import OnConflict
from liverank.client.call import json_body
from liverank.sources.messages import EdgeChange


def settled(changes: Sequence[EdgeChange], on_conflict: OnConflict, directed: bool) -> bytes:
    """The body of the batch, JSON; `{}` without changes."""
    edges = [(change.source, change.target) for change in changes]
    if not directed:
        # both have the type of the graph's keys
        edges = [edge if edge[0] <= edge[1] else edge[::-1] for edge in edges]  # type: ignore[operator]
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
        inserted = [change for change in last.values() if change.operation == "insert"]
    document: dict[str, Any] = {}
    if inserted:
        document["insert"] = _columns(inserted)
    if deleted:
        sources, targets = zip(*deleted, strict=True)
        document["delete"] = {"source": sources, "target": targets}
    return json_body(document)


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
