"""What reads wait for, such as the positions of external sources, and the range of one that a batch
covers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypedDict

from liverank.client.responses import SourcePosition
from liverank.options import RanksKeywords, given


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


def range_query(messages: SourceRange | None) -> dict[str, Any]:
    """The parameters of a batch with these messages."""
    if messages is None:
        return {}
    names = {"from": messages.begin, "to": messages.end}
    return given(source=messages.source, partition=messages.partition, **names)
