"""How far a graph has external sources, and what a batch says about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from liverank.client.call import Call, given, member, operation, path_of, read


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
        """How far the committed batches have each partition of each external source."""
        path = path_of("graphs", graph, "sources")
        return read(path, member("sources", list[SourcePosition]))
