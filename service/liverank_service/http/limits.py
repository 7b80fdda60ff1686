"""Limits on all requests together: their number, the bytes of their bodies, and the places in their
answers.

Reads and all other calls are counted separately, so that waiting writers cannot keep readers out;
so are exports. So are requests that wait for a version or for the answer to a query, and
subscribers of changes, both by graph and by API key. Only for the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from liverank_service.errors import RequestTooLarge, TooBusy
from liverank_service.settings import Settings

Kind = Literal["read", "other"]

MIN_READING_BYTES_PER_SECOND = 256 * 1024
"""Minimum average rate at which a client must accept an export or another long response, from
`slow_client_seconds` on.
"""


@dataclass(eq=False, slots=True)
class RequestContext:
    """State of one request.

    request_id  sent in the response's X-Request-ID and logged with everything about the request
    call        method and route, like ``GET /graphs``, once they are known
    kind        the limit that it counts towards; None while it is not counted
    held        bytes of its body that are counted
    places      in its answer that are counted
    shares      the counts of requests that wait, or of subscribers, and its names in them
    exports     whether it is counted as an export
    """

    request_id: str
    call: str | None = None
    kind: Kind | None = None
    held: int = 0
    places: int = 0
    shares: tuple[Counter[str], tuple[str, ...]] | None = None
    exports: bool = False


class ConcurrencyLimit:
    """Counts requests in progress, the bytes of bodies that are being received or parsed, and the
    places in answers that are being made or sent.

    in_progress  requests that do not wait
    waiting      requests that wait: in the server, for each graph and with each API key
    subscribers  of changes, likewise
    exports      in progress, in the server
    """

    def __init__(self, settings: Settings) -> None:
        self._max_requests = settings.max_concurrent_requests
        # each: for a graph or a key, and in the server, whose other connections are for requests
        # that do not wait
        self._max_waiting = settings.max_waiting_requests, max(1, settings.max_connections // 2)
        self._max_subscribers = settings.max_subscribers, max(1, settings.max_connections // 4)
        self._max_exports = settings.max_exports
        self._stopping: asyncio.Future[None] | None = None
        self._max_bytes = settings.max_receiving_bytes
        self._max_places = settings.max_places
        self._max_places_in_progress = settings.max_places_in_progress
        self.in_progress: dict[Kind, int] = {"read": 0, "other": 0}
        self.waiting: Counter[str] = Counter()
        self.subscribers: Counter[str] = Counter()
        self.exports = 0
        self.receiving = 0
        self.places = 0

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
        if context.shares is None:
            self._share(context, self.waiting, graph, key, self._max_waiting, "requests wait")

    def subscribe(self, context: RequestContext, graph: str, key: str | None) -> None:
        """Counts the request as a subscriber instead, until it leaves. Raises TooBusy.

        key  the id of its API key
        """
        self._share(context, self.subscribers, graph, key, self._max_subscribers, "subscribers")

    def _share(
        self,
        context: RequestContext,
        counts: Counter[str],
        graph: str,
        key: str | None,
        most: tuple[int, int],
        what: str,
    ) -> None:
        """Counts the request instead in the server, for the graph and with the API key."""
        limit, limit_in_server = most
        limits = {"": limit_in_server, f" for graph {graph!r}": limit}
        if key is not None:
            limits[f" with API key {key!r}"] = limit
        for name, largest in limits.items():
            if counts[name] >= largest:
                raise TooBusy(f"{what}{name}", largest)
        self._leave_kind(context)
        context.shares = counts, tuple(limits)
        counts.update(limits.keys())

    def start_export(self, context: RequestContext) -> None:
        """Counts the request as an export instead, until it leaves. Raises TooBusy."""
        if self.exports >= self._max_exports:
            raise TooBusy("exports", self._max_exports)
        self._leave_kind(context)
        context.exports = True
        self.exports += 1

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
        """Counts `count` more bytes of the request's body, or for parsing it. Raises TooBusy, but
        not while all others are small: a body that needs more than the limit would else never pass.
        """
        others = self.receiving - context.held
        if others > self._max_bytes // 8 and self.receiving + count > self._max_bytes:
            raise TooBusy("bytes of bodies are being received", self._max_bytes)
        self.receiving += count
        context.held += count

    def answer(self, context: RequestContext, places: int, field: str) -> None:
        """Counts places of the answer, until the request leaves.

        field  of the request, that asks for them

        Raises RequestTooLarge, and TooBusy unless it is the only answer.
        """
        if places > self._max_places:
            raise RequestTooLarge(field, places, self._max_places, "places")
        self.copy(context, places)

    def copy(self, context: RequestContext, places: int) -> None:
        """As `answer`, for a table of the graph, which is as long as it is."""
        alone = self.places == context.places
        if not alone and self.places + places > self._max_places_in_progress:
            raise TooBusy("places of answers are in progress", self._max_places_in_progress)
        self.places += places
        context.places += places

    def release_body(self, context: RequestContext) -> None:
        """Stops counting the request's body, which has been parsed."""
        self.receiving -= context.held
        context.held = 0

    def leave(self, context: RequestContext) -> None:
        """Stops counting the request and its body."""
        self.release_body(context)
        self._leave_kind(context)
        self.places -= context.places
        context.places = 0
        if context.shares is not None:
            counts, names = context.shares
            counts.subtract(names)
            for name in names:
                if not counts[name]:
                    del counts[name]
            context.shares = None
        self.exports -= context.exports
        context.exports = False

    def _leave_kind(self, context: RequestContext) -> None:
        if context.kind is not None:
            self.in_progress[context.kind] -= 1
            context.kind = None
