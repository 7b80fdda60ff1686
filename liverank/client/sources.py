"""The positions that a graph has reached in external sources, and the range that a batch covers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from liverank.client.call import (
    JSON,
    Call,
    given,
    json_body,
    member,
    operation,
    path_of,
    read,
    yes,
)

ConsumerState = Literal["consuming", "retrying", "stopped"]


@dataclass(frozen=True, slots=True)
class SourceRange:
    """A batch has the messages of a partition of an external source after one position, up to
    another. The server refuses it (409) unless the graph has the partition up to `begin`.

    begin  None: the batch is the first of the partition
    """

    source: str
    end: str
    begin: str | None = None
    partition: str = ""


class SourcePosition(msgspec.Struct, frozen=True):
    """position: that the next batch of the partition begins from; version: of the batch that moved
    it; time: of its commit, Unix seconds.
    """

    source: str
    partition: str
    position: str
    version: int
    time: float

    def __str__(self) -> str:
        """As `min_position` of a read, also of another server that consumes the source."""
        return f"{self.source}:{self.partition}:{self.position}"


class SourceConsumer(msgspec.Struct, frozen=True):
    """What a consumer of a source reported; `since`, when this state began, and `expires`, when the
    report is dropped, are in Unix seconds.
    """

    source: str
    consumer: str
    state: ConsumerState
    reason: str | None
    since: float
    expires: float


Positions = str | SourcePosition | Iterable[str | SourcePosition]
"""One or several; a text is SOURCE:PARTITION:POSITION."""


def waiting(
    min_version: int | None, min_position: Positions | None, timeout: float | None
) -> dict[str, Any]:
    """The parameters of a read that say for what it waits, and how long."""
    several = [min_position] if isinstance(min_position, str | SourcePosition) else min_position
    texts = None if several is None else [str(one) for one in several]
    return given(min_version=min_version, min_position=texts, timeout=timeout)


def range_query(messages: SourceRange | None) -> dict[str, Any]:
    """The parameters of a batch with these messages."""
    if messages is None:
        return {}
    names = {"from": messages.begin, "to": messages.end}
    return given(source=messages.source, partition=messages.partition, **names)


class SourceCalls:
    """A part of Calls."""

    @operation
    def sources(self, graph: str) -> Call[list[SourcePosition]]:
        """The position that the committed batches have reached in each partition of each external
        source.
        """
        path = path_of("graphs", graph, "sources")
        return read(path, member("sources", list[SourcePosition]))

    @operation
    def consumers(self, graph: str) -> Call[list[SourceConsumer]]:
        """What the consumers of external sources have reported lately."""
        return read(path_of("graphs", graph, "sources"), member("consumers", list[SourceConsumer]))

    @operation
    def report_consumer(
        self,
        graph: str,
        source: str,
        consumer: str,
        state: ConsumerState,
        reason: str | None = None,
        seconds: float = 60.0,
    ) -> Call[bool]:
        """Reports the state of a consumer of an external source; one attempt, and no error. Returns
        whether the server has it.

        consumer  a name among those of the source
        reason    why it does not consume, at most 1,000 characters
        seconds   until the report is dropped, unless another one follows; at most a day
        """
        body = {"consumer": consumer, "state": state, "reason": reason, "seconds": seconds}
        return Call(
            method="PUT",
            path=path_of("graphs", graph, "consumers", source),
            body=json_body(body),
            headers={"Content-Type": JSON},
            parse=yes,
            otherwise=False,
        )
