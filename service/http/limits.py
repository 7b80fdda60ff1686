"""What requests may take of the server together: places at work, and bytes of bodies.

Reads and all other calls have places of their own, so that writers who wait cannot keep readers
out. One thread, that of the event loop, uses this.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Literal

from service.errors import TooBusy
from service.settings import Settings

Kind = Literal["read", "other"]

BEGIN_TOGETHER = 4
"""Calls that are no reads and begin in one round of the event loop; each takes about as long as a
read does.
"""


@dataclass(eq=False, slots=True)
class Exchange:
    """One request and its answer, on their way through the server.

    request_id  stands in the answer's X-Request-ID, and in every line that is logged for it
    call        method and route, like ``GET /graphs``, once it is known
    kind        of the place that it takes, None while it takes none
    held        bytes of its body that count
    """

    request_id: str
    call: str | None = None
    kind: Kind | None = None
    held: int = 0


class Turns:
    """Lets calls begin a few at a time, with a look at the network in between: when a hundred
    writers are answered together, all send their next batch at once, and a reader who comes then
    need not wait for all of them.
    """

    def __init__(self) -> None:
        self._begun = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Waits until the call may begin; in order of arrival."""
        loop = asyncio.get_running_loop()
        if self._begun < BEGIN_TOGETHER:
            if not self._begun:
                loop.call_soon(self._next, loop)
            self._begun += 1
        else:
            turn = loop.create_future()
            self._waiting.append(turn)
            await turn

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Runs in each round of the loop, until nobody waits."""
        self._begun = 0
        while self._waiting and self._begun < BEGIN_TOGETHER:
            turn = self._waiting.popleft()
            if not turn.done():  # the client is still there
                turn.set_result(None)
                self._begun += 1
        if self._begun:
            loop.call_soon(self._next, loop)


class Capacity:
    """Places and bytes in use."""

    def __init__(self, settings: Settings) -> None:
        self._places = settings.max_concurrent_requests
        self._bytes = settings.max_receiving_bytes
        self.at_work: dict[Kind, int] = {"read": 0, "other": 0}
        self.receiving = 0
        self.turns = Turns()

    def enter(self, exchange: Exchange, kind: Kind) -> None:
        """Takes a place. Raises TooBusy."""
        if self.at_work[kind] >= self._places:
            what = "reads" if kind == "read" else "calls that change something"
            raise TooBusy(f"too many {what} are at work", self._places)
        exchange.kind = kind
        self.at_work[kind] += 1

    def hold(self, exchange: Exchange, count: int) -> None:
        """Takes `count` more bytes. Raises TooBusy; a body that is alone is never too much."""
        alone = self.receiving == exchange.held
        if not alone and self.receiving + count > self._bytes:
            raise TooBusy("too many bytes of bodies are being received", self._bytes)
        self.receiving += count
        exchange.held += count

    def release_body(self, exchange: Exchange) -> None:
        """Gives the bytes of a body back: it is parsed."""
        self.receiving -= exchange.held
        exchange.held = 0

    def leave(self, exchange: Exchange) -> None:
        """Gives back all that the exchange has."""
        self.release_body(exchange)
        if exchange.kind is not None:
            self.at_work[exchange.kind] -= 1
            exchange.kind = None
