"""Deletes the edges that are too old, in journalled batches of their own.

By the ``wall`` clock it does so between other batches, when an edge has become too old. By the
``event`` clock it does so after each batch that makes edges too old; since the batches are then
committed one by one, the same batches in the same order make the same graph, however they were
grouped. A batch that is refused or rejected expires nothing. A replay of the journal finds these
batches in it, and consults no clock.

Where vertices are to be forgotten, a further batch removes those that were left without edges.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from http import HTTPStatus
from time import monotonic

from gpu import Solve
from service.errors import BatchRejected, BodyTooLarge, OutcomeDelayed, StorageFailed
from service.formats.columns import EdgeColumns
from service.pipeline.batch import Batch
from service.pipeline.edge_times import Ids
from service.pipeline.keyed_graph import KeyedGraph
from service.pipeline.window import Window

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


class Expiry:
    """Only for the writer's thread; does nothing for a graph without a window."""

    def __init__(self, graph: str, keyed: KeyedGraph, commit: Callable[[Batch], None]) -> None:
        """commit: commits and applies a batch. Raises the error that prevented it."""
        self._graph = graph
        self._keyed = keyed
        self._commit = commit
        self._not_before = 0.0
        self._incomplete = self.by_event  # a batch may be committed whose expiry is not

    @property
    def _window(self) -> Window | None:
        return self._keyed.window

    @property
    def by_event(self) -> bool:
        """Whether batches are to be committed singly, and `follow` called after each."""
        return self._window is not None and self._window.options.clock == "event"

    def seconds_left(self) -> float | None:
        """How long `run` need not be called; None: until there is another batch."""
        if self._window is None:
            return None
        earliest = None if self.by_event else self._window.times.earliest
        if self._incomplete or len(self._window.isolated):
            pause = 0.0
        elif earliest is None:
            return None
        else:
            pause = min(earliest - self._cutoff(), _LONGEST_PAUSE)
        return max(0.0, pause, self._not_before - monotonic())

    def run(self) -> None:
        """Expires what is too old by the wall clock, if it is time for it. By the event clock it
        only completes an expiry that failed, or that an earlier process did not finish.
        """
        window = self._window
        if window is None or monotonic() < self._not_before:
            return
        if not self.by_event or self._incomplete or len(window.isolated):
            self._try(window.options.solve, False)
            pause = min(_LONGEST_PAUSE, max(_LEAST_PAUSE, window.options.seconds / 100))
            self._not_before = monotonic() + (RETRY_SECONDS if self._incomplete else pause)

    def follow(self, batch: Batch) -> None:
        """Expires what a client's batch makes too old by the event clock."""
        if not self._incomplete or monotonic() >= self._not_before:
            self._try(batch.solve, batch.rank_later)

    def _try(self, solve: Solve, rank_later: bool) -> None:
        try:
            self._expire(solve, rank_later)
            self._incomplete = False
        except _FAILURES as error:
            log.error("graph %s: edges that are too old stay for now: %s", self._graph, error)
            self._incomplete = True

    def _cutoff(self) -> float:
        """Edges with a smaller time are too old."""
        assert self._window is not None
        newest = self._window.times.newest if self.by_event else time.time()
        return float("-inf") if newest is None else newest - self._window.options.seconds

    def _expire(self, solve: Solve, rank_later: bool) -> None:
        assert self._window is not None
        sources, targets = self._window.times.expired(self._cutoff())
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
