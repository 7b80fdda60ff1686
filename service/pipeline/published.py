"""The published versions of one graph."""

from __future__ import annotations

import secrets
from concurrent.futures import Future

from service.errors import NotReady
from service.pipeline.change_feed import ChangeFeed
from service.pipeline.version_waiters import VersionWaiters
from service.queries.view import View


class PublishedViews:
    """The newest view, and readers waiting for a later one. Any thread may call any method.

    epoch    another one for each start, creation or restore of the graph: only within it does a
             revision identify the ranks
    changes  what changes with each revision
    """

    def __init__(self, graph: str) -> None:
        self._graph = graph
        self._newest: View | None = None
        self._waiting = VersionWaiters[View]()
        self.epoch = secrets.token_hex(8)
        self.changes = ChangeFeed(graph, self.epoch, lambda: self.newest)

    @property
    def newest(self) -> View:
        """Raises NotReady before the first publication."""
        if self._newest is None:
            raise NotReady(f"graph {self._graph!r} is being recovered")
        return self._newest

    def publish(self, view: View) -> None:
        self._newest = view
        self._waiting.reach(view.version, view)

    def at_least(self, version: int) -> Future[View]:
        """The first view with at least that version; the future may be cancelled.

        Raises NotReady before the first publication, and the reason given to `close`.
        """
        return self._waiting.at_least(max(version, self.newest.version))

    def close(self, reason: Exception) -> None:
        """Fails waiting readers, and later ones that would wait; ends the change feed."""
        self._waiting.close(reason)
        self.changes.close(reason)
