"""What edges have beside their keys."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liverank_service.errors import FormatError
from liverank_service.formats.columns import EdgeColumns
from liverank_service.formats.values import NEEDS_TIME, UNTIMED, UNWEIGHTED, TimeRule, too_far

_REFUSALS = {"weight": UNWEIGHTED, "time": UNTIMED}
_OF_DELETIONS = {
    "weight": "a deletion has a weight, which it takes away, only with on_conflict=add",
    "time": "a deletion has a time, that of the weight which it takes away, only with "
    "on_conflict=add in a graph with the option half_life",
}


class Attributes(NamedTuple):
    """What insertions of a graph may have beside their keys.

    times      None if no times
    adds       whether weights add up, so that deletions may have weights too
    deletions  whether these are those of deletions
    """

    weighted: bool = False
    times: TimeRule | None = None
    adds: bool = False
    deletions: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        has_weight, has_time = self.weighted, self.times is not None
        if self.deletions:
            has_weight = self.adds
            has_time = self.adds and self.times is not None and self.times.decays
        return ("weight",) * has_weight + ("time",) * has_time

    @property
    def of_deletions(self) -> Attributes | None:
        """Those of deletions; None for an unweighted graph."""
        return self._replace(deletions=True) if self.weighted else None

    def subtracts(self, name: str) -> bool:
        """Whether deletions may have the attribute."""
        return self.of_deletions is not None and name in self.of_deletions.names

    def check(self, name: str, field: str, index: int | None = None) -> None:
        """Raises FormatError for an attribute that the graph, or a deletion, does not have."""
        if name in _REFUSALS and name not in self.names:
            refusals = _OF_DELETIONS if self.deletions else _REFUSALS
            raise FormatError(field, index, refusals[name])

    def completed(self, columns: EdgeColumns) -> EdgeColumns:
        """The columns with a time for each insertion, in a graph with times, and for each weight
        that is taken away, where weights decay. Raises FormatError.
        """
        if columns.delete_weights is not None and len(columns.replace):
            message = "expected nothing where a deletion has a weight: send two batches"
            raise FormatError("replace", None, message)
        rule, given = self.times, {}
        if rule is None:
            return columns
        if columns.times is None and len(columns.insert_sources):
            given["times"] = pa.array(np.full(len(columns.insert_sources), rule.now))
        if rule.decays and columns.delete_weights is not None and columns.delete_times is None:
            is_whole, none = columns.delete_weights.is_null(), pa.scalar(None, pa.float64())
            given["delete_times"] = pc.if_else(is_whole, none, rule.now)
        if not given:
            return columns
        if rule.clock == "event":
            needs = NEEDS_TIME
            if "times" not in given:
                needs = needs.replace("insertion", "deletion with a weight")
            raise FormatError("time", None, needs)
        if rule.now > rule.farthest:
            raise FormatError("time", None, f"{too_far(rule)}; it is {rule.now:.3f} now")
        return replace(columns, **given)
