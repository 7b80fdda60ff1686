"""Readers that wait for a value."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Waiters(Generic[Value]):
    """Futures, each of the first value that meets a condition. Any thread may call any method.

    A value that follows one that meets a condition meets it too.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._newest: Value | None = None
        self._waiting: list[tuple[Callable[[Value], bool], Future[Value]]] = []
        self._closed: Exception | None = None

    def reach(self, value: Value) -> None:
        """Completes the futures of readers whose conditions the value meets."""
        ready: list[Future[Value]] = []
        with self._changing:
            self._newest = value
            waiting, self._waiting = self._waiting, []
            for condition, future in waiting:
                if condition(value):
                    ready.append(future)
                else:
                    self._waiting.append((condition, future))
        for future in ready:
            if future.set_running_or_notify_cancel():
                future.set_result(value)

    def first(self, condition: Callable[[Value], bool]) -> Future[Value]:
        """The newest value if it meets the condition, or the first one that does; the future may be
        cancelled.

        Raises the reason given to `close`.
        """
        future: Future[Value] = Future()
        with self._changing:
            if self._newest is None or not condition(self._newest):
                if self._closed is not None:
                    raise self._closed
                self._waiting = [waiter for waiter in self._waiting if not waiter[1].cancelled()]
                self._waiting.append((condition, future))
                return future
            value = self._newest
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
