"""Limits on all requests together: their number, and the bytes of their bodies.

Reads and all other calls are counted separately, so that waiting writers cannot keep readers out;
so are requests that wait for a version or for the answer to a query, by graph and by API key. Only
for the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
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
    waits       the names under which it is counted as a request that waits
    """

    request_id: str
    call: str | None = None
    kind: Kind | None = None
    held: int = 0
    waits: tuple[str, ...] = ()


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
    """Counts requests in progress, and the bytes of bodies that are being received or parsed.

    in_progress  requests that do not wait
    waiting      requests that wait: in the server, for each graph and with each API key
    """

    def __init__(self, settings: Settings) -> None:
        self._max_requests = settings.max_concurrent_requests
        self._max_waiting = settings.max_waiting_requests
        # the others are for requests that do not wait
        self._max_waiting_in_server = max(1, settings.max_connections // 2)
        self._stopping: asyncio.Future[None] | None = None
        self._max_bytes = settings.max_receiving_bytes
        self.in_progress: dict[Kind, int] = {"read": 0, "other": 0}
        self.waiting: Counter[str] = Counter()
        self.receiving = 0
        self.fair_start = FairStart()

    def enter(self, context: RequestContext, kind: Kind) -> None:
        """Counts the request. Raises TooBusy."""
        if self.in_progress[kind] >= self._max_requests:
            what = "reads" if kind == "read" else "calls other than reads"
            raise TooBusy(f"concurrent {what}", self._max_requests)
        context.kind = kind
        self.in_progress[kind] += 1

    def wait(self, context: RequestContext, graph: str, key: str | None) -> None:
        """Counts the request as one that waits, until it leaves. Raises TooBusy.

        key  the id of its API key
        """
        if context.waits:
            return
        limits = {
            "": self._max_waiting_in_server,
            f" for graph {graph!r}": self._max_waiting,
        }
        if key is not None:
            limits[f" with API key {key!r}"] = self._max_waiting
        for name, limit in limits.items():
            if self.waiting[name] >= limit:
                raise TooBusy(f"requests wait{name}", limit)
        self._leave_kind(context)
        context.waits = tuple(limits)
        self.waiting.update(limits.keys())

    @property
    def stopping(self) -> asyncio.Future[None]:
        """Done once the server stops, which ends every wait."""
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_future()
        return self._stopping

    def stop(self) -> None:
        """Ends every wait, also of later requests."""
        if not self.stopping.done():
            self.stopping.set_result(None)

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
        self._leave_kind(context)
        for name in context.waits:
            self.waiting[name] -= 1
            if not self.waiting[name]:
                del self.waiting[name]
        context.waits = ()

    def _leave_kind(self, context: RequestContext) -> None:
        if context.kind is not None:
            self.in_progress[context.kind] -= 1
            context.kind = None
