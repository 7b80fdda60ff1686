"""Events of a graph's pipeline; liverank_service.http.metrics has an observer that counts them."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Context
from dataclasses import dataclass

from liverank_gpu import Change, Result


@dataclass(slots=True)
class StageSeconds:
    """The time of a batch by stage: the members of the receipt's `seconds`.

    others  time in no other stage, see docs/api.md
    total   the sum of the others
    """

    queue: float = 0.0
    journal: float = 0.0
    keys: float = 0.0
    mutate: float = 0.0
    mark: float = 0.0
    solve: float = 0.0
    certify: float = 0.0
    watched: float = 0.0
    publish: float = 0.0
    others: float = 0.0
    total: float = 0.0

    def close(self, total: float | None) -> None:
        """Sets `others` and `total`.

        total  seconds from submission to ranks; None if nobody waits: `others` is then 0
        """
        spent = self.queue + self.journal + self.keys + self.mutate
        spent += self.mark + self.solve + self.certify + self.watched + self.publish
        self.total = spent if total is None else total
        # not below 0: the clock of a device can differ slightly
        self.others = max(0.0, self.total - spent)


@dataclass(frozen=True, slots=True)
class RankedBatch:
    """A batch whose ranks are published.

    submitted  by `perf_counter`; None if nobody waited all the time
    context    of its request; empty if nobody waits
    """

    version: int
    change: Change
    seconds: StageSeconds
    submitted: float | None
    context: Context


class Observer:
    """Does nothing. Methods are called on the writer's thread and must not raise."""

    def ranked(self, batches: Sequence[RankedBatch], result: Result) -> None:
        """These batches were ranked together."""

    def refused(self, fallback: str) -> None:
        """The ranks of a solve were no distribution. fallback: as in the receipt"""

    def query_refused(self, kind: str) -> None:
        """The ranks of a personalized query were none. kind: query, watched"""

    def rejected(self) -> None:
        """A batch was committed, but could not be applied."""

    def failed(self, batches: int) -> None:
        """Batches were not committed, or were applied but not ranked."""

    def analysed(self, program: str, outcome: str, seconds: float) -> None:
        """An analysis has ended. seconds: that its program ran"""

    def dropped(self) -> None:
        """The graph was dropped."""


class Observers(Observer):
    """Several observers, one after the other."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def ranked(self, batches: Sequence[RankedBatch], result: Result) -> None:
        for each in self._observers:
            each.ranked(batches, result)

    def refused(self, fallback: str) -> None:
        for each in self._observers:
            each.refused(fallback)

    def query_refused(self, kind: str) -> None:
        for each in self._observers:
            each.query_refused(kind)

    def rejected(self) -> None:
        for each in self._observers:
            each.rejected()

    def failed(self, batches: int) -> None:
        for each in self._observers:
            each.failed(batches)

    def analysed(self, program: str, outcome: str, seconds: float) -> None:
        for each in self._observers:
            each.analysed(program, outcome, seconds)

    def dropped(self) -> None:
        for each in self._observers:
            each.dropped()
