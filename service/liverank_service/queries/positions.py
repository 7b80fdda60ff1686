"""Positions of external sources that a read waits for.

Positions are texts of their source. Those of brokers have an order, by one or several numbers: a
sequence of NATS, an offset of Kafka, an id of Redis such as `1526919030474-55`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from liverank_gpu import InvalidValue
from liverank_service.errors import InvalidField

Positions = Mapping[tuple[str, str], str]
"""By source and partition."""

FIELD = "min_position"

_POSITION = r"[0-9]{1,20}(?:-[0-9]{1,20})*"
_NUMBERS = re.compile(_POSITION)

PATTERN = rf"^[\s\S]+:[^:]*:{_POSITION}$"
"""What `MinPosition.parsed` accepts, for the OpenAPI document."""


@dataclass(frozen=True, slots=True)
class MinPosition:
    """The messages of one partition up to a position, and perhaps later ones."""

    source: str
    partition: str
    position: str

    @classmethod
    def parsed(cls, text: str) -> MinPosition:
        """From SOURCE:PARTITION:POSITION; only SOURCE may have colons. Raises InvalidValue."""
        head, *last = text.rsplit(":", 2)
        if not head or len(last) != 2 or numbers_of(last[1]) is None:
            expected = "SOURCE:PARTITION:POSITION, with a position such as 12 or 12-3"
            raise InvalidValue(FIELD, text, expected)
        return cls(head, *last)

    def __str__(self) -> str:
        return f"{self.source}:{self.partition}:{self.position}"

    def check(self, graph: str, positions: Positions) -> None:
        """Raises InvalidField if the graph cannot reach it: for an unknown source, and if the
        stored position has another form. A partition of a known source may still get messages.
        """
        if not any(source == self.source for source, _ in positions):
            message = f"graph {graph!r} has no source {self.source!r}"
            raise InvalidField(FIELD, None, str(self), message)
        stored = positions.get((self.source, self.partition))
        if stored is not None and len(numbers_of(stored) or ()) != len(self._numbers):
            message = f"expected a position of the form of the stored one, {stored!r}"
            raise InvalidField(FIELD, None, str(self), f"{message}, got {self.position!r}")

    def is_reached(self, positions: Positions) -> bool:
        stored = numbers_of(positions.get((self.source, self.partition), ""))
        wanted = self._numbers
        return stored is not None and len(stored) == len(wanted) and stored >= wanted

    @property
    def _numbers(self) -> tuple[int, ...]:
        found = numbers_of(self.position)
        assert found is not None
        return found


def numbers_of(position: str) -> tuple[int, ...] | None:
    """The numbers by which a position is ordered; None if it has no order."""
    if _NUMBERS.fullmatch(position) is None:
        return None
    return tuple(map(int, position.split("-")))


def are_reached(wanted: Collection[MinPosition], positions: Positions) -> bool:
    return all(one.is_reached(positions) for one in wanted)
