"""What edges have beside their keys."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from liverank_service.errors import FormatError
from liverank_service.formats.columns import EdgeColumns
from liverank_service.formats.times import NEEDS_TIME, UNTIMED, TimeRule, too_far
from liverank_service.formats.weights import UNWEIGHTED

_REFUSALS = {"weight": UNWEIGHTED, "time": UNTIMED}


class Attributes(NamedTuple):
    """What insertions of a graph may have beside their keys. times: None if no times."""

    weighted: bool = False
    times: TimeRule | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return ("weight",) * self.weighted + ("time",) * (self.times is not None)

    def check(self, name: str, field: str, index: int | None = None) -> None:
        """Raises FormatError for an attribute that the graph does not have."""
        if name in _REFUSALS and name not in self.names:
            raise FormatError(field, index, _REFUSALS[name])

    def completed(self, columns: EdgeColumns) -> EdgeColumns:
        """The columns with a time for each insertion, in a graph with times. Raises FormatError."""
        count = len(columns.insert_sources)
        if self.times is None or columns.times is not None or not count:
            return columns
        if self.times.clock == "event":
            raise FormatError("time", None, NEEDS_TIME)
        if self.times.now > self.times.farthest:
            message = f"{too_far(self.times)}; it is {self.times.now:.3f} now"
            raise FormatError("time", None, message)
        return replace(columns, times=pa.array(np.full(count, self.times.now)))
