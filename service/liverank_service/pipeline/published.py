"""The published versions of one graph."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from concurrent.futures import Future

from liverank_service.errors import NotReady
from liverank_service.pipeline.change_feed import ChangeFeed
from liverank_service.pipeline.waiters import Waiters
from liverank_service.pipeline.weak_calls import weakly
from liverank_service.queries.positions import MinPosition, are_reached
from liverank_service.queries.view import View


class PublishedViews:
    """The newest view, and readers waiting for a later one. Any thread may call any method.

    epoch    another one for each start, creation or restore of the graph: only within it does a
             revision identify the ranks
    changes  what changes with each revision
    """

    def __init__(self, graph: str) -> None:
        self._graph = graph
        self._newest: View | None = None
        self._waiting = Waiters[View]()
        self.epoch = secrets.token_hex(8)
        self.changes = ChangeFeed(graph, self.epoch, weakly(self._current))

    @property
    def newest(self) -> View:
        """Raises NotReady before the first publication."""
        if self._newest is None:
            raise NotReady(f"graph {self._graph!r} is being recovered")
        return self._newest

    @property
    def is_ready(self) -> bool:
        """Whether anything has been published."""
        return self._newest is not None

    def _current(self) -> View:
        return self.newest

    def publish(self, view: View) -> None:
        self._newest = view
        self._waiting.reach(view)

    def at_least(self, version: int, positions: Collection[MinPosition] = ()) -> Future[View]:
        """The first view with at least that version and these positions; the future may be
        cancelled.

        Raises NotReady before the first publication, and the reason given to `close`.
        """
        wanted = max(version, self.newest.version)
        return self._waiting.first(
            lambda view: view.version >= wanted and are_reached(positions, view.positions)
        )

    def close(self, reason: Exception) -> None:
        """Fails waiting readers, and later ones that would wait; ends the change feed."""
        self._waiting.close(reason)
        self.changes.close(reason)
