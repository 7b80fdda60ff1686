"""What will be known later, made in one thread and awaited in another.

A `concurrent.futures.Future` makes a lock and a condition for each, whether or not anybody waits,
and wakes the event loop for each that is done: a good part of what a small batch costs.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

log = logging.getLogger("liverank.pipeline")

Value = TypeVar("Value")

WAKE_TOGETHER = 8
"""Those who wait and go on in one round of the event loop."""

_changing = threading.Lock()  # one for all: it is held for the length of a list's append


class Promise(Generic[Value]):
    """A value or an error, given once. Nobody can cancel it: others may rely on it too."""

    __slots__ = ("_callbacks", "_error", "_value")

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Promise[Value]], object]] | None = []  # None: it is done
        self._error: BaseException | None = None
        self._value: Value

    def done(self) -> bool:
        return self._callbacks is None

    def set_result(self, value: Value) -> None:
        self._value = value
        self._settle()

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._settle()

    def add_done_callback(self, callback: Callable[[Promise[Value]], object]) -> None:
        """Calls it once this is done, in the thread that settles it, or at once."""
        with _changing:
            if self._callbacks is not None:
                self._callbacks.append(callback)
                return
        callback(self)

    def result(self, timeout: float | None = None) -> Value:
        """The value. Blocks at most `timeout` seconds. Raises the error, TimeoutError."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error, None where there is a value. Raises TimeoutError."""
        if not self.done():
            settled = threading.Event()
            self.add_done_callback(lambda _: settled.set())
            if not settled.wait(timeout):
                raise TimeoutError
        return self._error

    async def arrival(self) -> Value:
        """The value, in an event loop. Raises the error."""
        if not self.done():
            loop = asyncio.get_running_loop()
            arrived: asyncio.Future[None] = loop.create_future()
            self.add_done_callback(partial(_Bell.of(loop).ring, arrived))
            await arrived
        return self.result()

    def _settle(self) -> None:
        with _changing:
            callbacks, self._callbacks = self._callbacks, None
        if callbacks is None:
            raise RuntimeError("a promise is settled twice")
        for callback in callbacks:
            try:
                callback(self)
            except Exception:  # the others, and whoever settles this, are not at fault
                log.exception("a callback of a promise failed")


class _Bell:
    """Wakes one event loop, once for all that arrived since it woke."""

    _of_thread = threading.local()  # its newest loop's

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._arrived: deque[asyncio.Future[None]] = deque()
        self._rung = False

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> _Bell:
        bell: _Bell | None = getattr(cls._of_thread, "bell", None)
        if bell is None or bell._loop is not loop:
            bell = cls._of_thread.bell = cls(loop)
        return bell

    def ring(self, arrived: asyncio.Future[None], _promise: Promise[Any]) -> None:
        self._arrived.append(arrived)
        if not self._rung:  # else the loop has yet to look, and will see it
            self._rung = True
            with suppress(RuntimeError):  # the loop is closed, and nobody waits
                self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        """Wakes a few at a time, with a look at the network in between: readers come first."""
        for _ in range(min(WAKE_TOGETHER, len(self._arrived))):
            arrived = self._arrived.popleft()
            if not arrived.done():  # else nobody waits any more
                arrived.set_result(None)
        if not self._arrived:
            self._rung = False
            if not self._arrived:  # nor came one before that was to be seen
                return
            self._rung = True
        self._loop.call_soon(self._answer)
