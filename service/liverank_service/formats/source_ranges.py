"""The range of an external source, such as a broker's stream, that a batch covers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from liverank_service.errors import FormatError


@dataclass(frozen=True, slots=True)
class SourceRange:
    """The messages of a partition of a source after one position, up to another.

    Positions are texts of the source, without an order: a batch continues the one that ended where
    it begins.

    begin  None: the batch is the first of this partition
    """

    source: str
    partition: str
    begin: str | None
    end: str

    def document(self) -> list[str | None]:
        """As the journal stores it."""
        return [self.source, self.partition, self.begin, self.end]


def stored_range(document: Any) -> SourceRange:
    """The range from its document. Raises FormatError for anything else."""
    if isinstance(document, list) and len(document) == 4:
        source, partition, begin, end = document
        texts = (source, partition, end, "" if begin is None else begin)
        if all(isinstance(text, str) for text in texts):
            return SourceRange(source, partition, begin, end)
    message = f"expected range [source, partition, from or null, to], got {document!r}"
    raise FormatError("payload", None, message)
