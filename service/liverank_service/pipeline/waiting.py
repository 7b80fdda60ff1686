"""How work waits for its turn, and readers for results.

Turns of an event loop: what is done for writers waits for one, so that a read does not wait for a
hundred writers that were answered at once and all send their next batch at once. What is done for
strangers, who have no API key, waits for turns of its own: a flood of theirs takes ROUND_SECONDS of
a round, and delays no one else.

Results that the writer's thread delivers to futures, a group at a time: clients of the HTTP server
wait with futures of its event loop, which one `call_soon_threadsafe` completes for a whole group of
batches, since waking the loop for each would be a large part of the cost of a small batch. Code
that waits in threads uses futures of `concurrent.futures`.

Readers that wait for a value. Calls of an object by what it owns, without a cycle of references: it
is freed with its last reader, and needs no search for garbage, which holds up all reads.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Any, Generic, Literal, TypeVar, cast
from weakref import WeakKeyDictionary, WeakMethod

Kind = Literal["writer", "stranger"]

ROUND_SECONDS = 0.0005
"""A read waits for about two rounds: that in which it arrives, and that in which it is answered."""


class Turns:
    """Calls functions in order, in each round of the running event loop about as many as take
    ROUND_SECONDS. Reads, which need no turn, are served in between.

    What a call costs is only known a round later, when the task that it starts or continues has
    run. So their number follows the time of the last round: half as many after a long one, and one
    more after a short one that had all of them.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()
        self._most = 1
        self._called = 0  # in the last round
        self._began = 0.0  # that round

    def take(self, function: Callable[..., object], *arguments: Any) -> None:
        """Calls the function with these arguments; at once if no other was called in the last
        round.
        """
        self._waiting.append(partial(function, *arguments))
        if not self._called:
            self._call_some()

    def _next_round(self) -> None:
        if perf_counter() - self._began > ROUND_SECONDS:
            self._most = max(1, self._called // 2)
        elif self._called == self._most:
            self._most += 1
        self._call_some()

    def _call_some(self) -> None:
        self._called = min(self._most, len(self._waiting))
        if not self._called:
            return
        self._began = perf_counter()
        try:
            for _ in range(self._called):
                self._waiting.popleft()()
        finally:  # behind the tasks that were started or continued
            asyncio.get_running_loop().call_soon(self._next_round)


_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Kind, Turns]] = WeakKeyDictionary()


def turns(kind: Kind = "writer") -> Turns:
    """Those of the running event loop."""
    of_loop = _TURNS.setdefault(asyncio.get_running_loop(), {})
    if kind not in of_loop:
        of_loop[kind] = Turns()
    return of_loop[kind]


Value = TypeVar("Value")

Waiter = asyncio.Future[Value] | concurrent.futures.Future[Value]

_Completion = tuple[Any, Any, BaseException | None]
"""The result or the error of a future."""


class Completions:
    """Collects results and errors until `deliver`. Futures that are done already are left
    unchanged.
    """

    def __init__(self) -> None:
        self._local: list[_Completion] = []
        self._by_loop: dict[asyncio.AbstractEventLoop, list[_Completion]] = {}

    def set_result(self, future: Waiter[Value] | None, value: Value) -> None:
        """None: nobody waits."""
        self._add(future, value, None)

    def set_exception(self, future: Waiter[Any] | None, error: BaseException) -> None:
        self._add(future, None, error)

    def _add(self, future: Waiter[Any] | None, value: Any, error: BaseException | None) -> None:
        if isinstance(future, asyncio.Future):
            group = self._by_loop.setdefault(future.get_loop(), [])
            group.append((future, value, error))
        elif future is not None:
            self._local.append((future, value, error))

    def deliver(self) -> None:
        """Completes all futures; wakes each event loop once."""
        local, self._local = self._local, []
        by_loop, self._by_loop = self._by_loop, {}
        for completion in local:
            _complete(*completion)
        for loop, group in by_loop.items():
            with suppress(RuntimeError):  # the loop is closed, and nobody waits
                loop.call_soon_threadsafe(_complete_in_turn, group)


def _complete_in_turn(group: list[_Completion]) -> None:
    for completion in group:
        turns().take(_complete, *completion)


def _complete(future: Any, value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


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


AnyMethod = TypeVar("AnyMethod", bound=Callable[..., Any])


def weakly(method: AnyMethod) -> AnyMethod:
    """The same call, which does not keep the object of the method. Raises ReferenceError when that
    is gone.
    """
    found, name = WeakMethod(method), method.__qualname__

    def call(*arguments: Any) -> Any:
        if (present := found()) is None:
            raise ReferenceError(f"{name}: expected its object, which is gone")
        return present(*arguments)

    return cast(AnyMethod, call)
