"""Limits on all requests together: their number, and the bytes of their bodies.

Reads and all other calls are counted separately, so that waiting writers cannot keep readers out.
Only for the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Literal

from service.errors import TooBusy
from service.settings import Settings

Kind = Literal["read", "other"]

STARTS_PER_ROUND = 4
"""Calls other than reads that start in one round of the event loop; each takes about as long as a
read.
"""


@dataclass(eq=False, slots=True)
class RequestContext:
    """State of one request.

    request_id  sent in the response's X-Request-ID and logged with everything about the request
    call        method and route, like ``GET /graphs``, once they are known
    kind        the limit that it counts towards; None while it is not counted
    held        bytes of its body that are counted
    """

    request_id: str
    call: str | None = None
    kind: Kind | None = None
    held: int = 0


class FairStart:
    """Starts a few calls in each round of the event loop. When many writers are answered at once,
    all send their next batch at once; a read that arrives then is served between two rounds instead
    of after all of them.
    """

    def __init__(self) -> None:
        self._started = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Returns when the call may start, in order of arrival."""
        loop = asyncio.get_running_loop()
        if self._started < STARTS_PER_ROUND:
            if not self._started:
                loop.call_soon(self._next_round, loop)
            self._started += 1
        else:
            turn = loop.create_future()
            self._waiting.append(turn)
            await turn

    def _next_round(self, loop: asyncio.AbstractEventLoop) -> None:
        """Runs in every round of the loop until no call waits."""
        self._started = 0
        while self._waiting and self._started < STARTS_PER_ROUND:
            turn = self._waiting.popleft()
            if not turn.done():  # else the client has disconnected
                turn.set_result(None)
                self._started += 1
        if self._started:
            loop.call_soon(self._next_round, loop)


class ConcurrencyLimit:
    """Counts requests in progress, and the bytes of bodies that are being received or parsed."""

    def __init__(self, settings: Settings) -> None:
        self._max_requests = settings.max_concurrent_requests
        self._max_bytes = settings.max_receiving_bytes
        self.in_progress: dict[Kind, int] = {"read": 0, "other": 0}
        self.receiving = 0
        self.fair_start = FairStart()

    def enter(self, context: RequestContext, kind: Kind) -> None:
        """Counts the request. Raises TooBusy."""
        if self.in_progress[kind] >= self._max_requests:
            what = "reads" if kind == "read" else "calls other than reads"
            raise TooBusy(f"concurrent {what}", self._max_requests)
        context.kind = kind
        self.in_progress[kind] += 1

    def hold(self, context: RequestContext, count: int) -> None:
        """Counts `count` more bytes of the request's body. Raises TooBusy unless it is the only
        body.
        """
        alone = self.receiving == context.held
        if not alone and self.receiving + count > self._max_bytes:
            raise TooBusy("bytes of bodies are being received", self._max_bytes)
        self.receiving += count
        context.held += count

    def release_body(self, context: RequestContext) -> None:
        """Stops counting the request's body, which has been parsed."""
        self.receiving -= context.held
        context.held = 0

    def leave(self, context: RequestContext) -> None:
        """Stops counting the request and its body."""
        self.release_body(context)
        if context.kind is not None:
            self.in_progress[context.kind] -= 1
            context.kind = None
