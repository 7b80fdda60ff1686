"""The position that a graph has reached in each external source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

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
