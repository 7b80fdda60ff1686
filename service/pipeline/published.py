"""The published versions of one graph."""

from __future__ import annotations

import secrets
import threading
from concurrent.futures import Future

from service.errors import NotReady
from service.pipeline.change_feed import ChangeFeed
from service.queries.view import View


class PublishedViews:
    """The newest view, and readers waiting for a later one. Any thread may call any method.

    epoch    another one for each start, creation or restore of the graph: only within it does a
             revision identify the ranks
    changes  what changes with each revision
    """

    def __init__(self, graph: str) -> None:
        self._graph = graph
        self._changing = threading.Lock()
        self._newest: View | None = None
        self._waiting: list[tuple[int, Future[View]]] = []
        self._closed: Exception | None = None
        self.epoch = secrets.token_hex(8)
        self.changes = ChangeFeed(graph, self.epoch, lambda: self.newest)

    @property
    def newest(self) -> View:
        """Raises NotReady before the first publication."""
        if self._newest is None:
            raise NotReady(f"graph {self._graph!r} is being recovered")
        return self._newest

    def publish(self, view: View) -> None:
        with self._changing:
            self._newest = view
            ready = [future for version, future in self._waiting if version <= view.version]
            self._waiting = [waiter for waiter in self._waiting if waiter[0] > view.version]
        for future in ready:
            if future.set_running_or_notify_cancel():
                future.set_result(view)

    def at_least(self, version: int) -> Future[View]:
        """The first view with at least that version; the future may be cancelled.

        Raises the reason given to `close`.
        """
        future: Future[View] = Future()
        with self._changing:
            view = self.newest
            if view.version < version:
                if self._closed is not None:
                    raise self._closed
                self._waiting = [waiter for waiter in self._waiting if not waiter[1].cancelled()]
                self._waiting.append((version, future))
                return future
        future.set_result(view)
        return future

    def close(self, reason: Exception) -> None:
        """Fails waiting readers, and later ones that would wait; ends the change feed."""
        with self._changing:
            self._closed = reason
            waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(reason)
        self.changes.close(reason)
