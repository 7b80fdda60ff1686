"""Results that the writer's thread delivers to futures, a group at a time.

Clients of the HTTP server wait with futures of its event loop, which one `call_soon_threadsafe`
completes for a whole group of batches: waking the loop for each would be a large part of the cost
of a small batch. Code that waits in threads uses futures of `concurrent.futures`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from contextlib import suppress
from typing import Any, TypeVar

from liverank_service.pipeline.turns import turns

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
