"""The only writer of a graph: commits, applies and ranks batches, on one thread."""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import Future
from time import perf_counter

from liverank_gpu import DeviceLost, ShardLost
from liverank_service.errors import BatchRejected, OutcomeDelayed, StorageFailed
from liverank_service.pipeline.analyses import Analyses
from liverank_service.pipeline.batch import Batch, PendingBatch
from liverank_service.pipeline.checkpointer import Checkpointer
from liverank_service.pipeline.commit import CommittedGroup, Committer
from liverank_service.pipeline.completions import Completions
from liverank_service.pipeline.device_loss import blame
from liverank_service.pipeline.expiry import Expiry
from liverank_service.pipeline.keyed_graph import IncompletelyApplied, KeyedGraph
from liverank_service.pipeline.observer import Observer, StageSeconds
from liverank_service.pipeline.ranking import Ranking
from liverank_service.pipeline.receipts import AppliedBatch
from liverank_service.pipeline.source_positions import SourcePositions
from liverank_service.pipeline.waiters import Waiters
from liverank_service.pipeline.weak_calls import weakly
from liverank_service.pipeline.work_queue import Task, WorkQueue
from liverank_service.problems import encode_problem, problem_of
from liverank_service.queries.scheduler import QueryScheduler
from liverank_service.shard_errors import RankingDelayed
from liverank_service.storage.journal import Journal

log = logging.getLogger("liverank.pipeline")

MAX_JOINING_SECONDS = 0.05
"""How long further batches may delay the ranking of earlier ones."""

_QUIET_SECONDS = 0.05
"""When nothing has come for so long, the ranks are brought nearer than the target error."""


class Writer:
    """Batches that wait together are committed together (one fsync), applied one by one, deletions
    first, and ranked once; a batch that is to be ranked in another way ends such a group. For a
    short time, batches that arrive in between are committed and join the group. Batches to be
    ranked later are only applied; the next ranking is theirs too. Queries are solved between
    groups, programs run, and edges that are too old are deleted.
    """

    def __init__(
        self,
        graph: str,
        queue: WorkQueue,
        journal: Journal,
        keyed: KeyedGraph,
        positions: SourcePositions,
        ranking: Ranking,
        scheduler: QueryScheduler,
        analyses: Analyses,
        checkpointer: Checkpointer,
        observer: Observer,
        commits: Waiters[int],
    ) -> None:
        self.journal = journal
        self.ranking = ranking
        self.checkpointer = checkpointer
        self.analyses = analyses
        self._graph = graph
        self._queue = queue
        self.keyed = keyed
        self.positions = positions
        self._scheduler = scheduler
        self._observer = observer
        self.expiry = Expiry(graph, keyed, ranking, weakly(self._commit_expiry))
        self._committer = Committer(
            graph, journal, keyed, positions, ranking, checkpointer, observer, commits
        )

    def run(self) -> None:
        """Works until the queue is closed; ranks the applied batches, then fails all other work."""
        try:
            self._expire()
            while (work := self._take()) is not None:
                if isinstance(work, Task):
                    work.run()
                else:
                    self._process(work)
                del work  # they would stay in memory until the next ones arrive
                if self._queue.closed is None:
                    self._scheduler.advance()
                    self.analyses.advance()
                    self._expire()
            self.ranking.rank_group()
        except DeviceLost:
            raise
        except ShardLost as error:  # another writer continues
            self.ranking.fail_unranked(error)
            self._scheduler.refuse(error)
            self.keyed.window = None  # so that there is never memory for the times of two
            raise
        except Exception as error:
            self._refuse(error)
            raise
        assert self._queue.closed is not None
        self._refuse(self._queue.closed)

    def _take(self) -> list[PendingBatch] | Task | None:
        idle, left = not self._scheduler and not self.analyses, self.expiry.seconds_left()
        if not idle or not self.ranking.improvable:
            return self._queue.take(idle, left)
        work = self._queue.take(True, _QUIET_SECONDS)
        if work == [] and not self._queue.queries:
            self.ranking.improve()
        return work

    def close(self, reason: Exception) -> None:
        """Releases the files, once the thread has ended."""
        self.checkpointer.close(reason)
        self.journal.close()

    def _refuse(self, reason: Exception) -> None:
        self.ranking.refuse(reason)
        self._scheduler.refuse(reason)
        self.analyses.refuse(reason)

    def _process(self, batches: list[PendingBatch]) -> None:
        """Commits and applies batches, and ranks them unless more are waiting to join."""
        try:
            if self.expiry.by_event:
                self._commit_singly(batches)
            else:
                self._commit(batches)
            if not self._more_can_join():
                self.ranking.rank_group()
        except (DeviceLost, ShardLost):
            raise
        except Exception as error:  # a fault of this code: all other errors are handled below
            completions = Completions()
            for batch in batches:
                batch.fail(error, completions)
            completions.deliver()
            raise

    def _commit_singly(self, batches: list[PendingBatch]) -> None:
        """Commits and applies batches, each with what it makes too old: the next one must not find
        it any more.
        """
        waiting = deque(batches)
        try:
            while waiting:
                one = waiting.popleft()
                self.expiry.catch_up()
                self._commit([one])
                self.expiry.follow(one.batch)
        except ShardLost:
            self._queue.put_back(waiting)  # for the next writer
            raise

    def _commit(self, batches: list[PendingBatch]) -> None:
        """Commits and applies batches."""
        began = perf_counter()
        groups = self._committer.commit(batches)
        try:
            for group in groups:
                unranked = self.ranking.group
                if unranked is not None and (unranked.solve != group.solve or group.rank_later):
                    self.ranking.rank_group()
                self._apply(group)
                if not group.rank_later or not self.ranking.unranked:  # or all are rejected
                    self.ranking.add_group(group.solve, group.version, began)
        except ShardLost as error:
            completions = Completions()
            for version, pending in (one for group in groups for one in group.batches):
                pending.fail(RankingDelayed(version, error), completions)
            completions.deliver()
            raise

    def _expire(self) -> None:
        """Deletes what is too old, and ranks unless more can join."""
        self.expiry.run()
        if not self._more_can_join():
            self.ranking.rank_group()

    def _commit_expiry(self, batch: Batch) -> None:
        """Raises BatchRejected, OutcomeDelayed, OutOfMemory, StorageFailed."""
        durable: Future[int] = Future()
        ranked: Future[bytes] = Future()
        self._commit([PendingBatch(batch, durable, ranked, lambda: None)])
        durable.result(0)
        if ranked.done():
            ranked.result()

    def _more_can_join(self) -> bool:
        group = self.ranking.group
        if group is None or perf_counter() - group.since >= MAX_JOINING_SECONDS:
            return False
        return self._queue.batch_is_next()

    def _apply(self, group: CommittedGroup) -> None:
        versions = [version for version, _ in group.batches]
        columns = [pending.batch.columns for _, pending in group.batches]
        # after a rejection, batches of the same source that were committed with it are rejected too
        alone = any(self.positions.conflicts(columns))
        try:
            coalesced = None if alone else self.keyed.apply_coalesced(columns)
        except DeviceLost as error:
            blame(self.journal, versions, error)
        if coalesced is None:
            for version, pending in group.batches:
                self._apply_one(group, version, pending)
            return
        changes, keys_seconds = coalesced
        for (version, pending), change in zip(group.batches, changes, strict=True):
            seconds = _stages_before(group, pending)
            seconds.keys, seconds.mutate = keys_seconds, change.seconds
            self._add_applied(group, AppliedBatch(version, change, seconds, pending), pending)

    def _apply_one(self, group: CommittedGroup, version: int, pending: PendingBatch) -> None:
        seconds = _stages_before(group, pending)
        try:
            self.positions.check(pending.batch.columns)
            change, seconds.keys = self.keyed.apply(pending.batch.columns)
        except DeviceLost as error:
            blame(self.journal, [version], error)
        except (IncompletelyApplied, ShardLost):
            raise  # the graph stops, or recovers
        except Exception as error:
            self._reject(version, pending, error)
        else:
            seconds.mutate = change.seconds
            self._add_applied(group, AppliedBatch(version, change, seconds, pending), pending)

    def _add_applied(
        self, group: CommittedGroup, applied: AppliedBatch, pending: PendingBatch
    ) -> None:
        self.positions.advance(pending.batch.columns, applied.version, group.time)
        if pending.rank_later:
            pending.end()
            # the columns need not stay in memory until it is ranked
            applied.pending, applied.deferred = None, True
        self.ranking.unranked.append(applied)

    def _reject(self, version: int, pending: PendingBatch, error: Exception) -> None:
        log.warning("graph %s: batch %d is rejected: %s", self._graph, version, error)
        problem = problem_of(error)
        completions = Completions()
        self.ranking.rejected.append((version, encode_problem(problem)))
        try:
            self.ranking.store_rejections()
        except StorageFailed as storage_error:
            pending.fail(OutcomeDelayed(version, storage_error), completions)
        else:
            pending.fail(BatchRejected(version, problem), completions)
            self._observer.rejected()
        completions.deliver()


def _stages_before(group: CommittedGroup, pending: PendingBatch) -> StageSeconds:
    """The stages of a committed batch."""
    return StageSeconds(queue=group.began - pending.submitted, journal=group.seconds)
