"""Deletes the edges that are too old, in journalled batches of their own.

By the ``event`` clock it does so after each batch that makes edges too old. Batches are then
committed one by one, and until this has succeeded the next one is refused and nothing is ranked,
so the same batches in the same order make the same graph, however they were grouped and whatever
failed meanwhile. A batch that is refused or rejected expires nothing.

By the ``wall`` clock it does so between other batches, when an edge has become too old. A clock
that jumps forward would empty the window for good, so much is deleted at once only if the clock
has not jumped for a while.

A replay of the journal finds these batches in it, and consults no clock. Where vertices are to be
forgotten, a further batch removes those that were left without edges.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from http import HTTPStatus

from liverank.client.responses import ExpiryDelay
from liverank_gpu import Solve
from liverank_service.errors import BatchRejected, BodyTooLarge, OutcomeDelayed, StorageFailed
from liverank_service.formats.columns import EdgeColumns
from liverank_service.pipeline.batch import Batch
from liverank_service.pipeline.keyed_graph import KeyedGraph
from liverank_service.pipeline.ranking import Ranking
from liverank_service.pipeline.window import Ids, Window

log = logging.getLogger("liverank.pipeline")

MAX_EDGES = 1_000_000
"""Of one batch."""

_FAILURES = (
    BatchRejected,
    BodyTooLarge,
    MemoryError,
    OutcomeDelayed,
    OverflowError,
    StorageFailed,
)
"""Of an expiry; it is tried again."""

RETRY_SECONDS = 10.0
"""Delay after a failure."""

_LEAST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two looks at the wall clock."""

_JUMP = 1.0
"""Seconds by which the wall clock differs from a steady one after a jump, at least: it is also
corrected by running faster or slower.
"""


class _WallClock:
    """The wall clock, and for how long it has not jumped, as far as it was looked at."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._ahead = time.time() - self._since
        self.jumps = 0

    def look(self) -> float:
        """Unix time."""
        now, steady = time.time(), time.monotonic()
        if abs(now - steady - self._ahead) >= _JUMP:
            self._since, self._ahead = steady, now - steady
            self.jumps += 1
        return now

    def held(self) -> float:
        """Seconds without a jump."""
        return time.monotonic() - self._since


class Expiry:
    """Only for the writer's thread; does nothing for a graph without a window.

    delay  why edges that are too old stay for now, or None; any thread may read it
    """

    def __init__(self, ranking: Ranking, commit: Callable[[Batch], None]) -> None:
        """commit: commits and applies a batch. Raises the error that prevented it."""
        self._graph, self._keyed = ranking.keyed.graph, ranking.keyed
        self._ranking = ranking
        self._commit = commit
        self._clock = _WallClock()
        self._not_before = 0.0
        self._used_version = False  # by the last failure
        self._waits_after: int | None = None  # the jump of the clock after which it waits
        self.delay: ExpiryDelay | None = None
        # how to rank an expiry that is not complete: an earlier process may have left one
        self._due = None if self._window is None else (self._window.options.solve, False)

    @property
    def _window(self) -> Window | None:
        return self._keyed.window

    @property
    def by_event(self) -> bool:
        """Whether batches are to be committed singly, with `catch_up` before and `follow` after
        each.
        """
        return self._window is not None and self._window.options.clock == "event"

    def seconds_left(self) -> float | None:
        """How long `run` need not be called; None: until there is another batch."""
        if self._window is None:
            return None
        earliest = None if self.by_event else self._window.times.earliest
        if self._due is not None or self.delay is not None:
            pause = 0.0
        elif earliest is None:
            return None
        else:
            pause = min(earliest - self._cutoff(), _LONGEST_PAUSE)
        return max(0.0, pause, self._not_before - time.monotonic())

    def run(self) -> None:
        """Expires what is too old by the wall clock, if it is time for it. By the event clock it
        only completes an expiry that failed, or that an earlier process did not finish.
        """
        window = self._window
        if window is None or time.monotonic() < self._not_before:
            return
        if self.by_event:
            if self._due is not None:
                self._try(*self._due)
            return
        pause = min(_LONGEST_PAUSE, max(_LEAST_PAUSE, window.options.seconds / 100))
        self._not_before = time.monotonic() + pause
        cutoff = self._cutoff()
        if not self._waits_for_clock(cutoff):
            self._try(window.options.solve, False, cutoff)

    def catch_up(self) -> None:
        """Completes the expiry of earlier batches by the event clock, before another one is
        committed. At once, since that is refused otherwise; only an expiry that is rejected when
        it is applied, and uses up versions, waits.
        """
        if self._due is not None and not (
            self._used_version and time.monotonic() < self._not_before
        ):
            self._try(*self._due)

    def follow(self, batch: Batch) -> None:
        """Expires what a client's batch makes too old by the event clock."""
        if self._due is None:  # otherwise the batch was refused
            self._try(batch.solve, batch.rank_later)

    def _try(self, solve: Solve, rank_later: bool, cutoff: float | None = None) -> None:
        try:
            self._expire(self._cutoff() if cutoff is None else cutoff, solve, rank_later)
        except _FAILURES as error:
            log.error("graph %s: edges that are too old stay for now: %s", self._graph, error)
            self._due = (solve, rank_later)
            self._used_version = isinstance(error, BatchRejected | OutcomeDelayed)
            self._not_before = time.monotonic() + RETRY_SECONDS
            self._set_delay(str(error))
        else:
            self._due = self.delay = None
        self._ranking.overdue = self.delay.reason if self.delay and self.by_event else None

    def _set_delay(self, reason: str) -> None:
        self.delay = ExpiryDelay(reason, self.delay.since if self.delay else time.time())

    def _waits_for_clock(self, cutoff: float) -> bool:
        """Whether too many edges are too old by a wall clock that may have jumped.

        It may be wrong when the process starts, so this counts as a jump. There is no use in
        waiting for longer than the window lasts, in which all edges leave anyway.
        """
        window, clock = self._window, self._clock
        assert window is not None
        options = window.options
        hold = min(options.hold_seconds, options.seconds)
        if options.max_share < 1.0 and clock.held() < hold:
            if self._waits_after == clock.jumps:
                return True
            old, edges = window.times.count_older(cutoff), len(window.times)
            if old > options.max_share * edges:
                self._waits_after = clock.jumps
                event = "the last jump of the clock" if clock.jumps else "the start"
                reason = (
                    f"{old:,} of {edges:,} edges are too old, {clock.held():.0f} s after {event}: "
                    f"they leave {hold:g} s after it, if they are too old then"
                )
                log.warning("graph %s: %s", self._graph, reason)
                self._set_delay(reason)
                return True
        if self._waits_after is not None:
            log.info("graph %s: edges leave by age again", self._graph)
            self._waits_after = self.delay = None
        return False

    def _cutoff(self) -> float:
        """Edges with a smaller time are too old."""
        assert self._window is not None
        newest = self._window.times.newest if self.by_event else self._clock.look()
        return float("-inf") if newest is None else newest - self._window.options.seconds

    def _expire(self, cutoff: float, solve: Solve, rank_later: bool) -> None:
        assert self._window is not None
        sources, targets = self._window.times.expired(cutoff)
        self._commit_all(
            lambda part: _deletion(self._keyed, sources[part], targets[part]),
            len(sources),
            solve,
            rank_later,
        )
        self._forget(solve, rank_later)

    def _forget(self, solve: Solve, rank_later: bool) -> None:
        """Removes the vertices that were left without edges."""
        assert self._window is not None
        isolated = self._window.isolated
        if len(isolated) == 0:
            return
        isolated = self._window.isolated = isolated[self._window.are_isolated(isolated)]
        self._commit_all(
            lambda part: _removal(self._keyed, isolated[part]), len(isolated), solve, rank_later
        )

    def _commit_all(
        self,
        columns_of: Callable[[slice], EdgeColumns],
        count: int,
        solve: Solve,
        rank_later: bool,
    ) -> None:
        """Commits a batch of `count` items, or several, if memory or the journal have no room for
        that, or if they are many. Memory may be found short beforehand, or by shards, which reject
        the batch.

        columns_of  of some of the items
        Raises BatchRejected, BodyTooLarge, MemoryError, OutcomeDelayed, OverflowError,
        StorageFailed.
        """
        firsts = range(0, count, MAX_EDGES)
        parts = [slice(first, min(first + MAX_EDGES, count)) for first in firsts]
        while parts:
            part = parts.pop(0)
            try:
                columns = columns_of(part)
                (short,) = self._keyed.check_memory([columns])
                if short is not None:
                    raise short
                self._commit(Batch.of(columns, b"", solve, rank_later=rank_later))
            except (BatchRejected, BodyTooLarge, MemoryError, OverflowError) as error:
                middle = (part.start + part.stop) // 2
                if middle == part.start or not _is_for_size(error):
                    raise
                parts[:0] = slice(part.start, middle), slice(middle, part.stop)


def _is_for_size(error: Exception) -> bool:
    """Whether a smaller batch may do."""
    if not isinstance(error, BatchRejected):
        return True
    return bool(error.reason["status"] == HTTPStatus.INSUFFICIENT_STORAGE)


def _deletion(keyed: KeyedGraph, sources: Ids, targets: Ids) -> EdgeColumns:
    nothing = keyed.keys.keys(sources[:0])
    deleted = (keyed.keys.keys(sources), keyed.keys.keys(targets))
    return EdgeColumns(nothing, nothing, *deleted, vertices=nothing, expiry=True)


def _removal(keyed: KeyedGraph, vertices: Ids) -> EdgeColumns:
    remove = keyed.keys.keys(vertices)
    nothing = remove[:0]
    return EdgeColumns(
        nothing, nothing, nothing, nothing, vertices=nothing, remove=remove, expiry=True
    )
