"""What the consumers of a graph's external sources report. They are processes of their own, so the
server knows of them only this; it is in memory alone.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from liverank.choices import ConsumerState
from liverank_service.errors import InvalidField

MAX_CONSUMERS = 1_000
"""Of one graph."""


@dataclass(frozen=True, slots=True)
class ConsumerReport:
    """consumer  one of those of the source
    reason    why it does not consume
    since     when this state began, Unix seconds
    expires   when the report is dropped, Unix seconds
    """

    source: str
    consumer: str
    state: ConsumerState
    reason: str | None
    since: float
    expires: float

    def document(self) -> dict[str, Any]:
        return asdict(self)


class Consumers:
    """The newest reports of one graph. Only for the event loop's thread."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], ConsumerReport] = {}

    @property
    def newest(self) -> list[ConsumerReport]:
        """Those that have not expired, by source and consumer."""
        now = time.time()
        self._newest = {key: one for key, one in self._newest.items() if one.expires > now}
        return sorted(self._newest.values(), key=lambda one: (one.source, one.consumer))

    def report(
        self, source: str, consumer: str, state: ConsumerState, reason: str | None, seconds: float
    ) -> None:
        """Replaces the report of this consumer for this many seconds, and those of others of the
        source that have stopped: it may have been started in their place. Raises InvalidField for
        one consumer too many.
        """
        key = source, consumer
        self._newest = {
            other: one
            for other, one in self._newest.items()
            if one.state != "stopped" or one.source != source or other == key
        }
        if key not in self._newest and len(self.newest) >= MAX_CONSUMERS:
            message = f"the graph has {MAX_CONSUMERS:,} consumers, which is the limit"
            raise InvalidField("consumer", None, consumer, message)
        now = time.time()
        before = self._newest.get(key)
        goes_on = before is not None and before.state == state and before.expires > now
        since = before.since if before is not None and goes_on else now
        found = ConsumerReport(source, consumer, state, reason, since, now + seconds)
        self._newest[key] = found
