"""Readers that wait for a version."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Generic, TypeVar

Value = TypeVar("Value")


class VersionWaiters(Generic[Value]):
    """Futures, each of the first value with at least some version. Any thread may call any method.

    Versions only increase.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._newest: tuple[int, Value] | None = None
        self._waiting: list[tuple[int, Future[Value]]] = []
        self._closed: Exception | None = None

    def reach(self, version: int, value: Value) -> None:
        """Completes the futures of readers that wait for this version or an earlier one."""
        with self._changing:
            self._newest = version, value
            ready = [future for wanted, future in self._waiting if wanted <= version]
            self._waiting = [waiter for waiter in self._waiting if waiter[0] > version]
        for future in ready:
            if future.set_running_or_notify_cancel():
                future.set_result(value)

    def at_least(self, version: int) -> Future[Value]:
        """The first value with at least that version; the future may be cancelled.

        Raises the reason given to `close`.
        """
        future: Future[Value] = Future()
        with self._changing:
            if self._newest is None or self._newest[0] < version:
                if self._closed is not None:
                    raise self._closed
                self._waiting = [waiter for waiter in self._waiting if not waiter[1].cancelled()]
                self._waiting.append((version, future))
                return future
            value = self._newest[1]
        future.set_result(value)
        return future

    def close(self, reason: Exception) -> None:
        """Fails waiting readers, and later ones that would wait."""
        with self._changing:
            self._closed = reason
            waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(reason)
