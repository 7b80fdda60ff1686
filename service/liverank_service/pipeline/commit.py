"""Makes batches durable: answers repeats, refuses batches that do not fit into memory or do not
continue their source, and commits the rest with one fsync.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from time import perf_counter

import orjson

from liverank_gpu import Solve
from liverank_service.errors import BatchRejected, ExpiryFailed, IdempotencyConflict, OutcomeDelayed
from liverank_service.pipeline.batch import PendingBatch
from liverank_service.pipeline.checkpointer import Checkpointer
from liverank_service.pipeline.completions import Completions
from liverank_service.pipeline.keyed_graph import KeyedGraph
from liverank_service.pipeline.observer import Observer
from liverank_service.pipeline.ranking import Ranking
from liverank_service.pipeline.source_positions import SourcePositions
from liverank_service.pipeline.waiters import Waiters
from liverank_service.shard_errors import RankingDelayed
from liverank_service.storage.journal import Journal

log = logging.getLogger("liverank.pipeline")


@dataclass(frozen=True, slots=True)
class CommittedGroup:
    """Batches to be ranked in the same way, with their versions, that were committed together.

    began, seconds  of the commit, by `perf_counter`; includes completing the futures
    time            of the commit, Unix seconds
    """

    batches: Sequence[tuple[int, PendingBatch]]
    began: float
    seconds: float
    time: float

    @property
    def solve(self) -> Solve:
        return self.batches[0][1].batch.solve

    @property
    def rank_later(self) -> bool:
        """Whether none of them is to be ranked now."""
        return all(pending.rank_later for _, pending in self.batches)

    @property
    def version(self) -> int:
        """Of the last batch."""
        return self.batches[-1][0]


class Committer:
    """Only for the writer's thread."""

    def __init__(
        self,
        graph: str,
        journal: Journal,
        keyed: KeyedGraph,
        positions: SourcePositions,
        ranking: Ranking,
        checkpointer: Checkpointer,
        observer: Observer,
        commits: Waiters[int],
    ) -> None:
        self._graph = graph
        self._journal = journal
        self._keyed = keyed
        self._positions = positions
        self._ranking = ranking
        self._checkpointer = checkpointer
        self._observer = observer
        self._commits = commits

    def commit(self, batches: Sequence[PendingBatch]) -> list[CommittedGroup]:
        """Commits the batches that are new, fit into memory and continue their sources, and
        answers all the others.

        The batches must be applied and ranked in the order of the groups.
        """
        completions = Completions()
        new = list(batches)
        try:
            new = self._in_time(self._without_repeats(batches, completions), completions)
            new = self._continuing(self._fitting(new, completions), completions)
            self._ranking.store_rejections()
            began = perf_counter()
            groups = [list(group) for _, group in groupby(new, lambda one: one.batch.solve)]
            if new:
                versions = self._journal.append([one.record for one in new], len(groups))
        except Exception as error:
            log.exception("graph %s: batches were not committed", self._graph)
            for batch in new:
                batch.fail(error, completions)
            completions.deliver()
            self._observer.failed(len(new))
            return []
        if not new:
            completions.deliver()
            return []
        size = sum(len(batch.record.payload) for batch in new)
        self._checkpointer.journal_grew(size, all(batch.rank_later for batch in new))
        for version, batch in zip(versions, new, strict=True):
            batch.set_durable(version, completions)
        completions.deliver()
        self._commits.reach(versions[-1])
        seconds = perf_counter() - began
        numbered = iter(zip(versions, new, strict=True))
        time = self._journal.committed_at
        return [
            CommittedGroup([next(numbered) for _ in group], began, seconds, time)
            for group in groups
        ]

    def _without_repeats(
        self, batches: Sequence[PendingBatch], completions: Completions
    ) -> list[PendingBatch]:
        """The batches that are new; a repeat gets the results of the first request."""
        new: list[PendingBatch] = []
        first_of: dict[str, PendingBatch] = {}
        for batch in batches:
            key = batch.record.idempotency_key
            if key is None:
                new.append(batch)
            elif key in first_of:
                first = first_of[key]
                if first.record.body_hash == batch.record.body_hash:
                    first.followers.append(batch)
                else:
                    batch.fail(IdempotencyConflict(key, None), completions)
            elif (holder := self._journal.holder(key)) is not None:
                self._answer_repeat(batch, key, *holder, completions)
            else:
                first_of[key] = batch
                new.append(batch)
        return new

    def _answer_repeat(
        self,
        batch: PendingBatch,
        key: str,
        version: int,
        body_hash: bytes,
        completions: Completions,
    ) -> None:
        """Answers a repeat of a batch that is committed."""
        if body_hash != batch.record.body_hash:
            batch.fail(IdempotencyConflict(key, version), completions)
            return
        batch.set_durable(version, completions)
        if batch.rank_later:
            batch.end()
            return
        outcome = self._journal.outcome(version)
        if outcome is not None and outcome.status == "ranked":
            batch.set_ranked(outcome.body, completions)
        elif outcome is not None:
            batch.fail(BatchRejected(version, orjson.loads(outcome.body)), completions)
        else:
            self._await_outcome(batch, version, completions)

    def _await_outcome(self, batch: PendingBatch, version: int, completions: Completions) -> None:
        """The repeat gets the receipt of the ranking that follows."""
        if self._ranking.overdue is not None:
            overdue = ExpiryFailed(self._ranking.overdue)
            batch.fail(RankingDelayed(version, overdue), completions)
            return
        for applied in self._ranking.unranked:
            if applied.version == version:
                if applied.pending is not None:
                    applied.pending.followers.append(batch)
                else:
                    applied.pending = batch
                    if self._ranking.group is None:
                        newest = self._journal.version
                        self._ranking.add_group(batch.batch.solve, newest, perf_counter())
                return
        # a rejection that could not be stored: the next attempt finds it
        batch.fail(OutcomeDelayed(version, "the disk refused it"), completions)

    def _in_time(self, batches: list[PendingBatch], completions: Completions) -> list[PendingBatch]:
        """All of them, unless an expiry has to be committed first; they are then refused."""
        overdue = self._ranking.overdue
        errors = [
            None if overdue is None or batch.batch.columns.expiry else ExpiryFailed(overdue)
            for batch in batches
        ]
        return self._without_errors(batches, errors, completions)

    def _fitting(self, batches: list[PendingBatch], completions: Completions) -> list[PendingBatch]:
        """The batches that fit into memory; the others are refused."""
        errors = self._keyed.check_memory([batch.batch.columns for batch in batches])
        return self._without_errors(batches, errors, completions)

    def _continuing(
        self, batches: list[PendingBatch], completions: Completions
    ) -> list[PendingBatch]:
        """The batches that begin at the stored positions of their sources; the others are
        refused.
        """
        errors = self._positions.conflicts([batch.batch.columns for batch in batches])
        return self._without_errors(batches, errors, completions)

    def _without_errors(
        self,
        batches: list[PendingBatch],
        errors: Sequence[Exception | None],
        completions: Completions,
    ) -> list[PendingBatch]:
        for batch, error in zip(batches, errors, strict=True):
            if error is not None:
                log.warning("graph %s: batch refused: %s", self._graph, error)
                batch.fail(error, completions)
        return [batch for batch, error in zip(batches, errors, strict=True) if error is None]
