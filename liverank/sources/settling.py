"""Changes of edges, in order, to one batch with the same result.

The server replaces lists and applies the deletions of a batch before its insertions, so of an edge
that is inserted and deleted in one batch only the last change counts here. With `on_conflict`
`add`, insertions of an edge are all kept, since the server adds them up, but those before a
deletion are not, and a deletion with a weight takes it from the insertions before it, then from
what the server has. Where edges have times it cannot: these changes need several batches. What an
insertion that is taken back does beside is kept: its vertices stay, and its time moves the clock of
the graph.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from liverank.choices import Key, OnConflict
from liverank.client.call import json_body
from liverank.sources.messages import Change, EdgeChange

Edge = tuple[Any, Any]
Target = tuple[Key, Change]
"""One in a list, and the insertion that it was."""

_LEAST_WEIGHT = 2.0**-126
"""Of the server. What rounding leaves below it is nothing."""


def settled(changes: Sequence[Change], on_conflict: OnConflict, directed: bool) -> bytes | None:
    """The body of the batch, JSON; `{}` without changes; None if they are not one batch, which a
    single message always is.
    """
    edges = _edges(changes, directed)
    settling = _Settling(directed)
    inserted: Sequence[Change] = changes
    is_plain = all(change.operation == "insert" for change in changes)
    if not is_plain:
        if not settling.take(edges, changes):
            return None
        inserted = settling.inserted()
    document: dict[str, Any] = {}
    if on_conflict == "replace" and len(set(edges)) < len(changes):
        newest = list(dict(zip(_edges(inserted, directed), inserted, strict=True)).values())
        # otherwise the server gets the repeats, of which it takes the last one
        if _newest_time(newest) == _newest_time(inserted):
            inserted = newest
    lists, others = settling.divided(inserted)
    if others:
        document["insert"] = _columns(others)
    if deleted := settling.deleted(adds=on_conflict == "add"):
        if lists and any(weight is not None for *_, weight, _ in deleted):
            return None
        document["delete"] = _deletions(deleted)
    if lists:
        document["replace"] = {str(vertex): list(map(_row, rows)) for vertex, rows in lists}
    if not is_plain:
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


def _edges(changes: Sequence[Change], directed: bool) -> list[Edge]:
    """The edge of each change, in an undirected graph with its lower end first."""
    edges: list[Edge] = [(change.source, change.target) for change in changes]
    if directed:
        return edges
    # both ends have the type of the graph's keys
    return [edge if edge[1] is None or edge[0] <= edge[1] else edge[::-1] for edge in edges]


class _Settling:
    """What is left of changes that were taken in order.

    kept      the places of insertions of an edge that nothing took back
    rests     by place, those of which a part was taken back
    taken     deletions of what the server has of an edge; one without a weight has taken all
    replaced  the vertices whose lists are replaced, in order: what the server has of them has gone
    """

    def __init__(self, directed: bool) -> None:
        self._directed = directed
        self._changes: Sequence[Change] = ()
        self._kept: dict[Edge, list[int]] = {}
        self._rests: dict[int, EdgeChange] = {}
        self._taken: dict[Edge, list[Change]] = {}
        self._replaced: dict[Key, None] = {}

    def take(self, edges: Sequence[Edge], changes: Sequence[Change]) -> bool:
        """Whether these changes are one batch."""
        self._changes = changes
        of_vertex: dict[Key, set[Edge]] = defaultdict(set)
        has_lists = any(change.operation == "replace" for change in changes)
        kept = self._kept
        for place, (edge, change) in enumerate(zip(edges, changes, strict=True)):
            if has_lists:
                if change.operation == "replace":
                    self._replaced[change.source] = None
                    for gone in of_vertex.pop(change.source, ()):
                        kept.pop(gone, None)
                        self._taken.pop(gone, None)
                    continue
                for end in self._ends(edge):
                    of_vertex[end].add(edge)
            if change.operation == "insert":
                if edge in kept:
                    kept[edge].append(place)
                else:
                    kept[edge] = [place]
            elif change.weight is None:
                kept.pop(edge, None)
                if not self._is_replaced(edge):
                    self._taken[edge] = [change]
            elif not self._lower(edge, change):
                return False
        return True

    def _lower(self, edge: Edge, change: Change) -> bool:
        """Whether a deletion with a weight fits into the batch."""
        left, places = change.weight or 0.0, self._kept.get(edge, [])
        while places and left > 0.0:
            place = places.pop()
            last = self._rests.get(place, self._changes[place])
            if change.time is not None or last.time is not None or not (last.weight or 0.0) > 0.0:
                return False  # the server is to decide
            rest = (last.weight or 0.0) - left
            if rest >= _LEAST_WEIGHT:
                places.append(place)
                self._rests[place] = EdgeChange(last.source, last.target or "", weight=rest)
            left = max(0.0, -rest)
        if not places:
            self._kept.pop(edge, None)
        taken = self._taken.get(edge, [])
        has_gone = self._is_replaced(edge) or (taken and taken[0].weight is None)
        if left >= _LEAST_WEIGHT and not has_gone:
            deletion = EdgeChange(*edge, "delete", left, change.time)
            self._taken[edge] = [*taken, deletion]
        return True

    def inserted(self) -> list[Change]:
        """The insertions that are left, in order."""
        places = sorted(chain.from_iterable(self._kept.values()))
        if not self._rests:
            return [self._changes[place] for place in places]
        return [self._rests.get(place, self._changes[place]) for place in places]

    def deleted(self, adds: bool) -> list[tuple[Any, Any, float | None, float | None]]:
        """Source, target, weight and time of the deletions that are left. adds: whether an
        insertion leaves the weight that there is
        """
        return [
            (*edge, change.weight, change.time)
            for edge, rows in self._taken.items()
            if adds or edge not in self._kept
            for change in rows
        ]

    def divided(
        self, inserted: Sequence[Change]
    ) -> tuple[list[tuple[Key, list[Target]]], Sequence[Change]]:
        """The vertices with new lists, each with its targets, and the other insertions."""
        if not self._replaced:
            return [], inserted
        lists: dict[Key, list[Target]] = {vertex: [] for vertex in self._replaced}
        others = []
        for edge, change in zip(_edges(inserted, self._directed), inserted, strict=True):
            vertex = next((end for end in self._ends(edge) if end in lists), None)
            if vertex is None:
                others.append(change)
            else:
                lists[vertex].append((edge[1] if vertex == edge[0] else edge[0], change))
        return list(lists.items()), others

    def _ends(self, edge: Edge) -> Edge | tuple[Any]:
        """The vertices whose lists have the edge."""
        return edge[:1] if self._directed else edge

    def _is_replaced(self, edge: Edge) -> bool:
        replaced = self._replaced
        return bool(replaced) and any(end in replaced for end in self._ends(edge))


def loses_newest_time(changes: Sequence[Change], directed: bool) -> bool:
    """Whether no batch of all changes has their newest time: each insertion with it is taken back
    by a later deletion or replacement.
    """
    newest = _newest_time(changes)
    if newest is None or all(change.operation == "insert" for change in changes):
        return False
    deleted, replaced = set(), set()
    edges = _edges(changes, directed)
    for edge, change in zip(reversed(edges), reversed(changes), strict=True):
        if change.operation == "replace":
            replaced.add(change.source)
        elif change.operation == "delete":
            if change.weight is None:
                deleted.add(edge)
        elif change.time == newest and edge not in deleted:
            is_lost = not replaced.isdisjoint(edge[:1] if directed else edge)
            if not is_lost:
                return False
    return True


def _newest_time(changes: Iterable[Change]) -> float | None:
    """Of insertions."""
    inserted = (change for change in changes if change.operation == "insert")
    return max((each.time for each in inserted if each.time is not None), default=None)


def _columns(insert: Sequence[Change]) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "source": [change.source for change in insert],
        "target": [change.target for change in insert],
    }
    # a graph has weights, and times, or not
    for name in ("weight", "time"):
        if getattr(insert[0], name) is not None:
            columns[name] = [getattr(change, name) for change in insert]
    return columns


def _deletions(rows: Sequence[tuple[Any, Any, float | None, float | None]]) -> dict[str, Any]:
    names = ("source", "target", "weight", "time")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    return {
        name: column
        for name, column in columns.items()
        if name in names[:2] or any(value is not None for value in column)
    }


def _row(row: Target) -> Any:
    """A target as a list of the server has it."""
    target, change = row
    if change.time is not None:
        return target, change.weight, change.time
    return target if change.weight is None else (target, change.weight)
