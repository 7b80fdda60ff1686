"""The positions that a graph has reached in external sources, and the range that a batch covers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypedDict

from liverank.choices import ConsumerState
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
from liverank.client.responses import SourceConsumer, SourcePosition
from liverank.options import RanksKeywords


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


Positions = str | SourcePosition | Iterable[str | SourcePosition]
"""One or several; a text is SOURCE:PARTITION:POSITION."""


class ReadKeywords(TypedDict, total=False):
    """What a read waits for, and how long: see Calls."""

    min_version: int | None
    min_position: Positions | None
    timeout: float | None


class ViewedKeywords(RanksKeywords, ReadKeywords, total=False):
    """Of a read of the ranks of a graph, or of a view."""


def query_of(**options: Any) -> dict[str, Any]:
    """The options of a read as parameters of a query: those that are not None."""
    positions = options.pop("min_position", None)
    several = [positions] if isinstance(positions, str | SourcePosition) else positions
    texts = None if several is None else [str(one) for one in several]
    return given(**options, min_position=texts)


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
