"""Turns of an event loop: what is done for writers waits for one, so that a read does not wait for
a hundred writers that were answered at once and all send their next batch at once. What is done for
strangers, who have no API key, waits for turns of its own: a flood of theirs takes ROUND_SECONDS of
a round, and delays no one else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any, Literal
from weakref import WeakKeyDictionary

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
