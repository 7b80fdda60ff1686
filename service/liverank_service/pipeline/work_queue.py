"""The queue of a graph's writer."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Reversible
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from liverank_gpu import DeviceLost, ShardLost
from liverank_service.pipeline.batch import PendingBatch
from liverank_service.pipeline.completions import Completions
from liverank_service.queries.requests import PendingQuery, QueryResponse
from liverank_service.queries.scheduler import QueryQueue, WatchRequest


@dataclass(eq=False, slots=True)
class Task:
    """A function to be called on the writer's thread, between two groups of batches."""

    function: Callable[[], Any]
    result: Future[Any] = field(default_factory=Future)

    def run(self) -> None:
        """Completes `result`. Raises DeviceLost, and ShardLost, with which `result` fails too."""
        if not self.result.set_running_or_notify_cancel():
            return
        try:
            self.result.set_result(self.function())
        except DeviceLost:
            raise
        except Exception as error:
            self.result.set_exception(error)
            if isinstance(error, ShardLost):
                raise


class WorkQueue:
    """Batches and tasks in order of arrival, and queries. Any thread may add, one takes.

    queries  for the writer's QueryScheduler
    closed   the reason; None while it is open
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[PendingBatch | Task] = deque()
        self.queries = QueryQueue(self._changed)
        self.closed: Exception | None = None

    def put(self, work: PendingBatch | Task) -> None:
        """Raises the reason given to `close`."""
        with self._changed:
            if self.closed is not None:
                raise self.closed
            self._waiting.append(work)
            self._changed.notify()

    def put_back(self, batches: Reversible[PendingBatch]) -> None:
        """Batches that were taken become the next ones again, in this order."""
        with self._changed:
            self._waiting.extendleft(reversed(batches))

    def put_query(self, request: PendingQuery[QueryResponse] | WatchRequest) -> None:
        """Raises the reason given to `close`."""
        with self._changed:
            if self.closed is not None:
                raise self.closed
            self.queries.put(request)
            self._changed.notify()

    def close(self, reason: Exception) -> None:
        """From now on `take` returns None, and `put` raises the reason."""
        with self._changed:
            self.closed = reason
            self._changed.notify()

    def take(self, block: bool, seconds: float | None = None) -> list[PendingBatch] | Task | None:
        """The next task, or all batches before the next task; None once the queue is closed.

        block    wait if the queue is empty; otherwise, and if only queries wait, an empty list is
                 returned
        seconds  how long to wait; an empty list is returned then
        """
        with self._changed:
            if block:
                self._changed.wait_for(
                    lambda: self._waiting or self.queries or self.closed is not None, seconds
                )
            if self.closed is not None:
                return None
            if not self._waiting:
                return []
            first = self._waiting.popleft()
            if isinstance(first, Task):
                return first
            batches = [first]
            while self._waiting and isinstance(self._waiting[0], PendingBatch):
                batches.append(self._waiting.popleft())  # type: ignore[arg-type]
            return batches

    def wait_until_closed(self, seconds: float) -> None:
        """Waits until the queue is closed, for `seconds` at most."""
        with self._changed:
            self._changed.wait_for(lambda: self.closed is not None, seconds)

    def batch_is_next(self) -> bool:
        """Whether `take` would return batches."""
        with self._changed:
            return (
                self.closed is None
                and bool(self._waiting)
                and isinstance(self._waiting[0], PendingBatch)
            )

    def refuse(self, reason: Exception) -> None:
        """Fails everything that waits; the queue is closed."""
        completions = Completions()
        for work in self._waiting:
            if isinstance(work, PendingBatch):
                work.fail(reason, completions)
            elif work.result.set_running_or_notify_cancel():
                work.result.set_exception(reason)
        completions.deliver()
        self.queries.refuse(reason)
