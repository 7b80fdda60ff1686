"""The position that a graph has reached in each external source, and what the sources' consumers
report. These are processes of their own, so the server knows of them only this; it is in memory
alone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from liverank.choices import ConsumerState
from liverank_service.errors import InvalidField, ServiceError, SourcePositionConflict
from liverank_service.formats.columns import EdgeColumns, SourceRange

MAX_PARTITIONS = 10_000
"""Of one graph, of all sources: every checkpoint has their positions."""


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """The graph has the messages of this partition up to a position.

    version, time  of the batch that brought it there; Unix seconds
    """

    source: str
    partition: str
    position: str
    version: int
    time: float

    def document(self) -> dict[str, Any]:
        return asdict(self)


class SourcePositions:
    """The positions of one graph. They follow from its batches: each that was applied moves the
    position of its range from the begin to the end; a rejected one moves none.

    Only for the writer's thread.
    """

    def __init__(self, graph: str, positions: Sequence[SourcePosition] = ()) -> None:
        self._graph = graph
        self._newest = {(one.source, one.partition): one for one in positions}

    @property
    def newest(self) -> list[SourcePosition]:
        """By source and partition."""
        return sorted(self._newest.values(), key=lambda one: (one.source, one.partition))

    @property
    def reached(self) -> dict[tuple[str, str], str]:
        """The position by source and partition."""
        return {key: one.position for key, one in self._newest.items()}

    def check(self, columns: EdgeColumns) -> None:
        """Raises SourcePositionConflict for a batch that does not begin at the position, and
        InvalidField for one partition too many.
        """
        (error,) = self.conflicts([columns])
        if error is not None:
            raise error

    def conflicts(self, batches: Sequence[EdgeColumns]) -> list[ServiceError | None]:
        """For each batch the error of `check` after the others, if those are applied, or None."""
        reached: dict[tuple[str, str], str] = {}
        return [self._conflict(columns.range, reached) for columns in batches]

    def advance(self, columns: EdgeColumns, version: int, time: float) -> None:
        """Notes that a batch that was checked is applied.

        time  of its commit, Unix seconds
        """
        given = columns.range
        if given is not None:
            found = SourcePosition(given.source, given.partition, given.end, version, time)
            self._newest[given.source, given.partition] = found

    def _conflict(
        self, given: SourceRange | None, reached: dict[tuple[str, str], str]
    ) -> ServiceError | None:
        """Adds the end of the range to `reached` if there is no conflict."""
        if given is None:
            return None
        key = given.source, given.partition
        before = self._newest.get(key)
        stored = reached.get(key, None if before is None else before.position)
        if given.begin != stored:
            return SourcePositionConflict(*key, given.begin, stored)
        known = len(self._newest.keys() | reached.keys()) if stored is None else 0
        if known >= MAX_PARTITIONS:
            message = f"graph {self._graph!r} has {known:,} partitions, which is the limit"
            return InvalidField("partition", None, given.partition, message)
        reached[key] = given.end
        return None


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
