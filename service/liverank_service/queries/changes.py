"""What changed in the ranks between two published versions, for one kind of subscription."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu import InvalidValue, Personalized, RankChanges, RankReference, Ranks
from liverank_service.queries.view import View, first_of

MAX_TOP = 5_000
MAX_CHANGES = 10_000
"""Bounds on `Subscription.top` and `Subscription.limit`."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What is told; equal subscriptions share events.

    top        places at the top, of which it is told who enters and who leaves
    threshold  a rank is told again once it differs by more than this part from what was told last
    limit      vertices in an event, at least twice `top`
    among      the name of a set: only its vertices count, and are at the top
    view       the name of a view: its ranks in place of the graph's
    watched    the name of a watched query: its places alone
    """

    top: int = 100
    threshold: float = 0.05
    limit: int = 1000
    among: str | None = None
    view: str | None = None
    watched: str | None = None

    def __post_init__(self) -> None:
        if self.watched is not None and (self.view, self.among) != (None, None):
            raise InvalidValue("watched", self.watched, "none beside view and among")
        if self.limit < 2 * self.top:
            requirement = f"at least twice top, {2 * self.top}: all {self.top} can change at once"
            raise InvalidValue("limit", self.limit, requirement)


class ChangeTracker:
    """What the subscribers of one subscription were told. Not thread-safe.

    view         the newest published version that was compared
    error_bound  of the ranks that are told

    A subscriber that joins later gets a snapshot with the ranks of `view`, which can differ by up
    to the threshold from what the others were told. A rank is told to all once it differs too much
    from what any of them was told.
    """

    def __init__(self, subscription: Subscription, view: View) -> None:
        """Raises OutOfMemory, UnknownSet and what View.seen and View.answer raise."""
        self._subscription = subscription
        self._take(view)
        self._told: RankReference | _SetReference = (
            RankReference(self._ranks)
            if self._members is None
            else _SetReference(self._members, self._ranks)
        )
        self._top = self._places()[0]
        # by id, the lowest and the highest rank in snapshots since the rank was told to all
        self._in_snapshots: dict[int, tuple[float, float]] = {}
        self._snapshot: list[dict[str, Any]] | None = None

    def differs(self, view: View) -> bool:
        """Whether the ranks that are told are others than those that were compared last, in a
        revision that is published again. Raises as `advance`.
        """
        of = self._subscription
        if view.revision != self.view.revision:
            return True  # those of the revision itself were skipped
        if of.watched is not None:
            known, answer = self._ranks.answer, view.answer(of.watched, "watched")
            return answer.vertices is not known.vertices or answer.error_bound != self.error_bound
        return of.view is not None and view.seen(of.view).ranks is not self._ranks

    def snapshot(self) -> list[dict[str, Any]]:
        """The vertices at the top, best first, with their ranks, for subscribers that join now."""
        if self._snapshot is not None:
            return self._snapshot
        ids, ranks = self._places()
        told_to_all = self._told.of(ids).tolist()
        for vertex, rank, told in zip(ids.tolist(), ranks.tolist(), told_to_all, strict=True):
            low, high = self._in_snapshots.get(vertex, (told, told))
            if not low == rank == high:
                self._in_snapshots[vertex] = min(low, rank), max(high, rank)
        self._snapshot = self._ranked(ids, ranks)
        return self._snapshot

    def advance(self, view: View) -> dict[str, Any]:
        """Compares a later version; returns the members of its event. Raises UnknownSet and what
        View.seen and View.answer raise.
        """
        before = self.view
        self._take(view)
        self._snapshot = None
        ids, ranks = self._places()
        removed = view.keys.removed_since(before.keys)
        self._forget(removed)
        if isinstance(self._told, _SetReference):
            assert self._members is not None
            self._told.follow(self._members)
            self._forget_others(self._members)
        gone = self._top[np.isin(self._top, removed)]
        stayed = self._top[np.isin(self._top, removed, invert=True)]
        is_new = np.isin(ids, stayed, invert=True)
        left = stayed[np.isin(stayed, ids, invert=True)]
        entered, self._top = ids[is_new], ids
        left_ranks = self._ranks.of(left)
        self._tell(entered)
        self._tell(left)
        room = self._subscription.limit - len(entered) - len(left) - len(gone)
        drifted = self._drifted_from_snapshots()
        first = drifted[:room]
        self._tell(first)
        room -= len(first)
        changes = self._told.changes(self._ranks, self._subscription.threshold, room)
        self._tell(changes.ids)
        moved = np.concatenate([first, changes.ids])
        return {
            "entered": self._ranked(entered, ranks[is_new]),
            "left": self._ranked(left, left_ranks)
            + [{"vertex": key, "rank": None} for key in before.keys.keys(gone).to_pylist()],
            "moved": self._ranked(moved, self._ranks.of(moved)),
            "truncated": len(first) < len(drifted) or len(changes.ids) < changes.found,
        }

    def _take(self, view: View) -> None:
        """Reads what is told of a published version. If it raises, all is as it was."""
        of = self._subscription
        ranks: Any  # Ranks, or _PlacesOfQuery where there are members
        members = None if of.among is None else view.members(of.among)
        if of.watched is not None:
            answer = view.answer(of.watched, "watched")
            ranks = _PlacesOfQuery(answer)
            members, bound = ranks.ids, answer.error_bound
        else:
            seen = view if of.view is None else view.seen(of.view)
            ranks, bound = seen.ranks, seen.error_bound
        self.view, self.error_bound = view, bound
        self._ranks, self._members = ranks, members

    def _places(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Ids and ranks at the top."""
        if self._members is not None:
            return first_of(self._members, self._ranks.of(self._members), self._subscription.top)
        found: tuple[NDArray[np.int64], NDArray[np.float64]]
        found = self._ranks.top(self._subscription.top)
        return found

    def _forget_others(self, members: NDArray[np.int64]) -> None:
        """Vertices that left the set are no longer followed."""
        if self._in_snapshots:
            here = set(members.tolist())
            for vertex in [vertex for vertex in self._in_snapshots if vertex not in here]:
                del self._in_snapshots[vertex]

    def _forget(self, removed: NDArray[np.int64]) -> None:
        """These ids are free, or of other vertices, which nobody has been told of."""
        if len(removed):
            self._told.forget(removed)
            for vertex in removed.tolist() if self._in_snapshots else ():
                self._in_snapshots.pop(vertex, None)

    def _tell(self, ids: NDArray[np.int64]) -> None:
        self._told.tell(self._ranks, ids)
        if self._in_snapshots:
            for vertex in ids.tolist():
                self._in_snapshots.pop(vertex, None)

    def _drifted_from_snapshots(self) -> NDArray[np.int64]:
        """Ids whose rank differs too much from that in a snapshot; the largest differences first"""
        ids = np.array(list(self._in_snapshots), np.int64)
        if len(ids) == 0:
            return ids
        low, high = np.array(list(self._in_snapshots.values())).T
        ranks, threshold = self._ranks.of(ids), self._subscription.threshold
        drifted = (ranks - low > threshold * low) | (high - ranks > threshold * high)
        difference = np.maximum(ranks - low, high - ranks)[drifted]
        order: NDArray[np.int64] = ids[drifted][np.argsort(-difference, kind="stable")]
        return order

    def _ranked(self, ids: NDArray[np.int64], ranks: NDArray[np.float64]) -> list[dict[str, Any]]:
        keys = self.view.keys.keys(ids).to_pylist()
        return [
            {"vertex": key, "rank": rank} for key, rank in zip(keys, ranks.tolist(), strict=True)
        ]


class _PlacesOfQuery:
    """The ranks of the places of a watched query; the rank of any other vertex is NaN.

    ids     int64[k], ascending
    answer  to the query
    """

    def __init__(self, answer: Personalized) -> None:
        self.answer = answer
        order = np.argsort(answer.vertices)
        self.ids, self._values = answer.vertices[order], answer.ranks[order]

    def of(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64[len(ids)]: as Ranks.of."""
        known = np.isin(ids, self.ids)
        ranks = np.full(len(ids), np.nan)
        ranks[known] = self._values[np.searchsorted(self.ids, ids[known])]
        return ranks


class _SetReference:
    """The rank last told of each vertex of a set, like liverank_gpu.RankReference, but on the host.
    A vertex that joins the set has rank 0.
    """

    def __init__(self, members: NDArray[np.int64], ranks: Ranks) -> None:
        self._members = members
        self._told = ranks.of(members)

    def follow(self, members: NDArray[np.int64]) -> None:
        """Later calls are about these vertices, ascending."""
        if members is self._members:
            return
        told = np.zeros(len(members))
        here = np.isin(members, self._members, assume_unique=True)
        told[here] = self.of(members[here])
        self._members, self._told = members, told

    def of(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64[len(ids)]: the rank last told of each id."""
        return np.asarray(self._told[np.searchsorted(self._members, ids)])

    def tell(self, ranks: Ranks, ids: NDArray[np.int64]) -> None:
        """The vertices with these ids were told their ranks; some may have left the set."""
        ids = ids[np.isin(ids, self._members)]
        self._told[np.searchsorted(self._members, ids)] = ranks.of(ids)

    def forget(self, ids: NDArray[np.int64]) -> None:
        """As liverank_gpu.RankReference.forget."""
        self._told[np.isin(self._members, ids)] = 0.0

    def changes(self, ranks: Ranks, threshold: float, most: int) -> RankChanges:
        """As liverank_gpu.RankReference.changes."""
        values = ranks.of(self._members)
        difference = np.abs(values - self._told)
        changed = np.flatnonzero(difference > threshold * self._told)
        largest = changed[np.argsort(-difference[changed], kind="stable")[:most]]
        return RankChanges(len(changed), self._members[largest], values[largest])
