"""The only writer of a graph: commits, applies and ranks batches, on one thread.

How much work may wait for it is a number of jobs, and their bytes. A job counts from its admission
until it ends, waiting or running: the writer takes all waiting batches at once, so counting only
waiting jobs would not bound memory. Reads of published versions are not counted.

Batches become durable with one fsync for those that wait together. Repeats are answered, and those
that do not fit into memory or do not continue their source are refused.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Reversible, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from time import monotonic, perf_counter
from typing import Any

import orjson

from liverank_gpu import DeviceLost, ShardLost, Solve
from liverank_service.errors import (
    BatchRejected,
    ExpiryFailed,
    IdempotencyConflict,
    OutcomeDelayed,
    QueueFull,
    RankingDelayed,
    StorageFailed,
)
from liverank_service.formats.columns import EdgeColumns
from liverank_service.pipeline.analyses import Analyses
from liverank_service.pipeline.batch import (
    AppliedBatch,
    Batch,
    Observer,
    PendingBatch,
    StageSeconds,
)
from liverank_service.pipeline.checkpointer import Checkpointer
from liverank_service.pipeline.expiry import Expiry
from liverank_service.pipeline.keyed_graph import IncompletelyApplied
from liverank_service.pipeline.ranking import Ranking
from liverank_service.pipeline.shards import blame
from liverank_service.pipeline.waiting import Completions, Waiters, weakly
from liverank_service.problems import encode_problem, problem_of
from liverank_service.queries.model import PendingQuery, QueryResponse
from liverank_service.queries.scheduler import QueryQueue, QueryScheduler, WatchRequest

log = logging.getLogger("liverank.pipeline")

MAX_RETRY_AFTER = 60


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Unfinished jobs of one graph, and their bytes. Unlimited by default."""

    jobs: int = sys.maxsize
    bytes: int = sys.maxsize


class Admission:
    """Any thread may call any method.

    jobs, bytes  admitted and unfinished
    refused      jobs refused so far
    """

    def __init__(self, graph: str, limits: QueueLimits) -> None:
        self._graph = graph
        self._limits = limits
        self._changing = threading.Lock()
        self._last_seconds = 0.0  # of the job that ended last, from its admission
        self.jobs = 0
        self.bytes = 0
        self.refused = 0

    def check(self, size: int) -> None:
        """Raises QueueFull if a job of `size` bytes would not be admitted now.

        A job is always admitted if there is no other, or it might never be.
        """
        with self._changing:
            self._check(size)

    def admit(self, size: int) -> Callable[[], None]:
        """Counts a job until the returned function is called, once. Raises QueueFull."""
        with self._changing:
            self._check(size)
            self.jobs += 1
            self.bytes += size
        return partial(self._release, size, monotonic())

    def _check(self, size: int) -> None:
        limits = self._limits
        if self.jobs and (self.jobs >= limits.jobs or self.bytes + size > limits.bytes):
            self.refused += 1
            wait = min(max(1, math.ceil(self._last_seconds)), MAX_RETRY_AFTER)
            raise QueueFull(self._graph, self.jobs, self.bytes, wait)

    def _release(self, size: int, since: float) -> None:
        with self._changing:
            self.jobs -= 1
            self.bytes -= size
            self._last_seconds = monotonic() - since


@dataclass(eq=False, slots=True)
class Task:
    """A function to be called on the writer's thread, between two groups of batches."""

    function: Callable[[], Any]
    result: Future[Any] = field(default_factory=Future)

    def run(self) -> None:
        """Completes `result`. Raises DeviceLost, and ShardLost, with which `result` fails too."""
        if not self.result.set_running_or_notify_cancel():
            return
        try:
            self.result.set_result(self.function())
        except DeviceLost:
            raise
        except Exception as error:
            self.result.set_exception(error)
            if isinstance(error, ShardLost):
                raise


class WorkQueue:
    """Batches and tasks in order of arrival, and queries. Any thread may add, one takes.

    queries  for the writer's QueryScheduler
    closed   the reason; None while it is open
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[PendingBatch | Task] = deque()
        self.queries = QueryQueue(self._changed)
        self.closed: Exception | None = None

    def put(self, work: PendingBatch | Task | PendingQuery[QueryResponse] | WatchRequest) -> None:
        """Raises the reason given to `close`."""
        with self._changed:
            if self.closed is not None:
                raise self.closed
            if isinstance(work, PendingQuery):
                self.queries.put(work)
            else:
                self._waiting.append(work)
            self._changed.notify()

    def put_back(self, batches: Reversible[PendingBatch]) -> None:
        """Batches that were taken become the next ones again, in this order."""
        with self._changed:
            self._waiting.extendleft(reversed(batches))

    def close(self, reason: Exception) -> None:
        """From now on `take` returns None, and `put` raises the reason."""
        with self._changed:
            self.closed = reason
            self._changed.notify()

    def take(self, block: bool, seconds: float | None = None) -> list[PendingBatch] | Task | None:
        """The next task, or all batches before the next task; None once the queue is closed.

        block    wait if the queue is empty; otherwise, and if only queries wait, an empty list is
                 returned
        seconds  how long to wait; an empty list is returned then
        """
        with self._changed:
            if block:
                self._changed.wait_for(
                    lambda: self._waiting or self.queries or self.closed is not None, seconds
                )
            if self.closed is not None:
                return None
            if not self._waiting:
                return []
            first = self._waiting.popleft()
            if isinstance(first, Task):
                return first
            batches = [first]
            while self._waiting and isinstance(self._waiting[0], PendingBatch):
                batches.append(self._waiting.popleft())  # type: ignore[arg-type]
            return batches

    def wait_until_closed(self, seconds: float) -> None:
        """Waits until the queue is closed, for `seconds` at most."""
        with self._changed:
            self._changed.wait_for(lambda: self.closed is not None, seconds)

    def batch_is_next(self) -> bool:
        """Whether `take` would return batches."""
        with self._changed:
            return (
                self.closed is None
                and bool(self._waiting)
                and isinstance(self._waiting[0], PendingBatch)
            )

    def refuse(self, reason: Exception) -> None:
        """Fails everything that waits; the queue is closed."""
        completions = Completions()
        for work in self._waiting:
            if isinstance(work, PendingBatch):
                work.fail(reason, completions)
            elif work.result.set_running_or_notify_cancel():
                work.result.set_exception(reason)
        completions.deliver()
        self.queries.refuse(reason)


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
        queue: WorkQueue,
        ranking: Ranking,
        scheduler: QueryScheduler,
        analyses: Analyses,
        checkpointer: Checkpointer,
        observer: Observer,
        commits: Waiters[int],
    ) -> None:
        self.ranking = ranking
        self.journal, self.keyed, self.positions = ranking.journal, ranking.keyed, ranking.positions
        self.checkpointer = checkpointer
        self.analyses = analyses
        self._graph = ranking.keyed.graph
        self._queue = queue
        self._scheduler = scheduler
        self._observer = observer
        self._commits = commits
        self.expiry = Expiry(ranking, weakly(self._commit_expiry))

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
            self.analyses.refuse(error)
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
        groups = self._made_durable(batches)
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
        finally:
            self.keyed.look_ahead(())

    def _made_durable(self, batches: Sequence[PendingBatch]) -> list[CommittedGroup]:
        """Commits the batches that are new, fit into memory and continue their sources, and
        answers all the others.

        The batches must be applied and ranked in the order of the groups.
        """
        completions = Completions()
        new = list(batches)
        try:
            new = self._without_repeats(batches, completions)
            for errors_of in (self._overdue, self.keyed.check_memory, self.positions.conflicts):
                new = self._without_errors(new, errors_of, completions)
            self.ranking.store_rejections()
            began = perf_counter()
            groups = [list(group) for _, group in groupby(new, lambda one: one.batch.solve)]
            if new:
                self.keyed.look_ahead([one.batch.columns for one in new])
                versions = self.journal.append([one.record for one in new], len(groups))
        except Exception as error:
            is_fault = not isinstance(error, StorageFailed)  # others say all there is to say
            message = "graph %s: batches were not committed: %s"
            log.error(message, self._graph, error, exc_info=is_fault)
            for batch in new:
                batch.fail(error, completions)
            completions.deliver()
            self._observer.failed(len(new))
            return []
        if not new:
            completions.deliver()
            return []
        size = sum(len(batch.record.payload) for batch in new)
        self.checkpointer.journal_grew(size, all(batch.rank_later for batch in new))
        for version, batch in zip(versions, new, strict=True):
            batch.set_durable(version, completions)
        completions.deliver()
        self._commits.reach(versions[-1])
        seconds = perf_counter() - began
        numbered = iter(zip(versions, new, strict=True))
        time = self.journal.committed_at
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
            elif (holder := self.journal.holder(key)) is not None:
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
        outcome = self.journal.outcome(version)
        if outcome is not None and outcome.status == "ranked":
            batch.set_ranked(outcome.body, completions)
        elif outcome is not None:
            batch.fail(BatchRejected(version, orjson.loads(outcome.body)), completions)
        else:
            self._await_outcome(batch, version, completions)

    def _await_outcome(self, batch: PendingBatch, version: int, completions: Completions) -> None:
        """The repeat gets the receipt of the ranking that follows."""
        if self.ranking.overdue is not None:
            overdue = ExpiryFailed(self.ranking.overdue)
            batch.fail(RankingDelayed(version, overdue), completions)
            return
        for applied in self.ranking.unranked:
            if applied.version == version:
                if applied.pending is not None:
                    applied.pending.followers.append(batch)
                else:
                    applied.pending = batch
                    if self.ranking.group is None:
                        newest = self.journal.version
                        self.ranking.add_group(batch.batch.solve, newest, perf_counter())
                return
        # a rejection that could not be stored: the next attempt finds it
        batch.fail(OutcomeDelayed(version, "the disk refused it"), completions)

    def _overdue(self, batches: Sequence[EdgeColumns]) -> list[ExpiryFailed | None]:
        """The error of each, if an expiry has to be committed first."""
        overdue = self.ranking.overdue
        return [
            None if overdue is None or columns.expiry else ExpiryFailed(overdue)
            for columns in batches
        ]

    def _without_errors(
        self,
        batches: Sequence[PendingBatch],
        errors_of: Callable[[Sequence[EdgeColumns]], Sequence[Exception | None]],
        completions: Completions,
    ) -> list[PendingBatch]:
        """The batches without one; the others are refused."""
        if not batches:  # nothing has come for some time
            return []
        errors = errors_of([batch.batch.columns for batch in batches])
        for batch, error in zip(batches, errors, strict=True):
            if error is not None:
                log.warning("graph %s: batch refused: %s", self._graph, error)
                batch.fail(error, completions)
        return [batch for batch, error in zip(batches, errors, strict=True) if error is None]

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
