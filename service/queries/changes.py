"""What changed in the ranks between two published versions, for one kind of subscription."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu import InvalidValue, RankReference
from service.queries.view import View

MAX_TOP = 5_000
MAX_CHANGES = 10_000
"""Bounds on `Subscription.top` and `Subscription.limit`."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What is told; equal subscriptions share events.

    top        places at the top, of which it is told who enters and who leaves
    threshold  a rank is told again once it differs by more than this part from what was told last
    limit      vertices in an event, at least twice `top`
    """

    top: int = 100
    threshold: float = 0.05
    limit: int = 1000

    def __post_init__(self) -> None:
        if self.limit < 2 * self.top:
            requirement = f"at least twice top, {2 * self.top}: all {self.top} can change at once"
            raise InvalidValue("limit", self.limit, requirement)


class ChangeTracker:
    """What the subscribers of one subscription were told. Not thread-safe.

    view  the newest published version that was compared

    A subscriber that joins later gets a snapshot with the ranks of `view`, which can differ by up
    to the threshold from what the others were told. A rank is told to all once it differs too much
    from what any of them was told.
    """

    def __init__(self, subscription: Subscription, view: View) -> None:
        """Raises OutOfMemory."""
        self.view = view
        self._subscription = subscription
        self._told = RankReference(view.ranks)
        self._top = view.ranks.top(subscription.top)[0]
        # by id, the lowest and the highest rank in snapshots since the rank was told to all
        self._in_snapshots: dict[int, tuple[float, float]] = {}
        self._snapshot: list[dict[str, Any]] | None = None

    def snapshot(self) -> list[dict[str, Any]]:
        """The vertices at the top, best first, with their ranks, for subscribers that join now."""
        if self._snapshot is not None:
            return self._snapshot
        ids, ranks = self.view.ranks.top(self._subscription.top)
        told_to_all = self._told.of(ids).tolist()
        for vertex, rank, told in zip(ids.tolist(), ranks.tolist(), told_to_all, strict=True):
            low, high = self._in_snapshots.get(vertex, (told, told))
            if not low == rank == high:
                self._in_snapshots[vertex] = min(low, rank), max(high, rank)
        self._snapshot = self._ranked(ids, ranks)
        return self._snapshot

    def advance(self, view: View) -> dict[str, Any]:
        """Compares a later version; returns the members of its event."""
        self.view, self._snapshot = view, None
        ids, ranks = view.ranks.top(self._subscription.top)
        is_new = np.isin(ids, self._top, invert=True)
        left = self._top[np.isin(self._top, ids, invert=True)]
        entered, self._top = ids[is_new], ids
        left_ranks = view.ranks.of(left)
        self._tell(entered)
        self._tell(left)
        room = self._subscription.limit - len(entered) - len(left)
        drifted = self._drifted_from_snapshots()
        first = drifted[:room]
        self._tell(first)
        room -= len(first)
        changes = self._told.changes(view.ranks, self._subscription.threshold, room)
        self._tell(changes.ids)
        moved = np.concatenate([first, changes.ids])
        return {
            "entered": self._ranked(entered, ranks[is_new]),
            "left": self._ranked(left, left_ranks),
            "moved": self._ranked(moved, view.ranks.of(moved)),
            "truncated": len(first) < len(drifted) or len(changes.ids) < changes.found,
        }

    def _tell(self, ids: NDArray[np.int64]) -> None:
        self._told.tell(self.view.ranks, ids)
        if self._in_snapshots:
            for vertex in ids.tolist():
                self._in_snapshots.pop(vertex, None)

    def _drifted_from_snapshots(self) -> NDArray[np.int64]:
        """Ids whose rank differs too much from that in a snapshot; the largest differences first"""
        ids = np.array(list(self._in_snapshots), np.int64)
        if len(ids) == 0:
            return ids
        low, high = np.array(list(self._in_snapshots.values())).T
        ranks, threshold = self.view.ranks.of(ids), self._subscription.threshold
        drifted = (ranks - low > threshold * low) | (high - ranks > threshold * high)
        difference = np.maximum(ranks - low, high - ranks)[drifted]
        order: NDArray[np.int64] = ids[drifted][np.argsort(-difference, kind="stable")]
        return order

    def _ranked(self, ids: NDArray[np.int64], ranks: NDArray[np.float64]) -> list[dict[str, Any]]:
        keys = self.view.keys.keys(ids).to_pylist()
        return [
            {"vertex": key, "rank": rank} for key, rank in zip(keys, ranks.tolist(), strict=True)
        ]
