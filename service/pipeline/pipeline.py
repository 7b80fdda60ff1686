"""The only writer of one graph: journal → keys → engine → view, one thread, in order of arrival.

Batches that wait together are journalled together (one fsync), applied one by one, each deletions
first, ranked once and published as one view; a different strategy ends such a group. Those that
come meanwhile are made durable and join it, for a short time. Everything
that touches the engine, recomputations and personalized queries too, runs here; readers use the
newest `View`. Batches and computations are admitted up to a limit, and a batch for which memory has
no room is refused before it is journalled.

    submit ──▶ commit ──▶ apply, one by one ──▶ rank once ──▶ receipts ──▶ view ──▶ answers
                 │                │
                 ▼                ▼
              durable          rejected

A graph that has a checkpoint is readable as soon as that is mapped, at its old version; what it is
behind is applied and ranked meanwhile, and batches sent in that time wait.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from time import perf_counter
from typing import Any, NoReturn, TypeVar

import orjson

from gpu import Change, DeviceLost, Engine, Options, OutOfMemory, Result
from gpu.snapshot import Room
from gpu.types import BackendName
from gpu.watched import Registration
from service.errors import (
    BatchRejected,
    IdempotencyConflict,
    NotReady,
    RankingFailed,
    RetiredVersion,
    StorageFailed,
    UnknownVersion,
    encode_problem,
    problem_of,
)
from service.pipeline.admission import Admission, QueueLimits
from service.pipeline.batch import Batch
from service.pipeline.capture import Moment, keys_of, snapshot_of, view_of
from service.pipeline.checkpointer import Checkpointer, Taken
from service.pipeline.keyed_graph import KeyedGraph
from service.pipeline.observer import Observer, RankedBatch, StageSeconds
from service.pipeline.promise import Promise
from service.pipeline.receipts import Applied, Ranked, receipt_of
from service.queries.model import Waiting
from service.queries.scheduler import Queries, Watch
from service.queries.view import View
from service.queries.watched import WatchedQueries
from service.storage import checkpoint as checkpoints
from service.storage.checkpoint import Checkpoint
from service.storage.journal import Journal, Outcome
from service.storage.recovery import replay, verified_journal
from service.vertex_keys.table import KeyKind, KeyTable

log = logging.getLogger("liverank.pipeline")

Answer = TypeVar("Answer")

EXIT_DEVICE_LOST = 70
"""EX_SOFTWARE of sysexits.h."""

LONGEST_JOINING = 0.05
"""Seconds for which batches that keep coming may put off the ranking of those before them."""

RECOVERY_STRATEGY = "auto"
"""Recovery solves from nothing; only `auto` promises the target error from there."""


@dataclass(eq=False, slots=True)
class _Task:
    run: Callable[[], Any]
    answer: Promise[Any] = field(default_factory=Promise)


@dataclass(frozen=True, slots=True)
class _Due:
    """Batches up to `version` are applied, but not ranked; `since`: of the first one, on the clock
    of performance.
    """

    strategy: str
    version: int
    since: float


class Pipeline:
    """One graph at work. Every method may be called from any thread."""

    def __init__(
        self,
        graph: str,
        directory: Path,
        options: Options,
        keys: KeyKind,
        backend: BackendName,
        checkpoint_bytes: int,
        checkpoint_seconds: float,
        limits: QueueLimits | None = None,
        observer: Observer | None = None,
    ) -> None:
        """Starts the thread, which maps the newest checkpoint in `directory`, and recovers once
        `recover` is called.
        """
        self.graph = graph
        self.backend = ""
        self.batches = Admission(graph, limits or QueueLimits())
        self.computations = Admission(graph, limits or QueueLimits())
        self._observer = observer or Observer()
        self._directory = directory
        self._options = options
        self._requested_backend = backend
        self._checkpoint_limits = (checkpoint_bytes, checkpoint_seconds)
        self._journal: Journal
        self._checkpointer: Checkpointer | None = None
        self._keys = KeyTable(keys)
        self._queue: deque[Batch | _Task] = deque()
        self._changed = threading.Condition()
        self._closed: Exception | None = None
        self._may_recover = False
        self._readable: Promise[bool] = Promise()
        self._opened: Promise[None] = Promise()
        self._waiting_readers: list[tuple[int, Future[View]]] = []
        self._queries = Queries(graph)
        self._unreceipted: list[Applied] = []
        self._due: _Due | None = None
        self._revision = 0
        self._view: View | None = None
        self._thread = threading.Thread(target=self._run, name=f"liverank-{graph}", daemon=True)
        self._thread.start()

    def wait_until_readable(self) -> bool:
        """Blocks until the newest checkpoint is mapped; whether there is one, and reads can come.

        Raises what stopped it.
        """
        return self._readable.result()

    def recover(self) -> None:
        """Lets the journal's later batches be applied and ranked: once the kernels are compiled."""
        with self._changed:
            self._may_recover = True
            self._changed.notify()

    def wait_until_open(self) -> None:
        """Blocks until the journal is replayed and ranked. Raises what stopped it."""
        self._opened.result()

    @property
    def view(self) -> View:
        """The newest published version."""
        if self._view is None:
            raise RuntimeError("the pipeline is not open yet")
        return self._view

    @property
    def committed(self) -> int:
        """The newest version that is known to be on disk."""
        return self._journal.version if self._opened.done() else self.view.version

    def submit(self, batch: Batch) -> None:
        """Queues a batch; its promises say how it goes.

        Raises QueueFull, UnknownGraph after a drop.
        """
        self.batches.admit(batch.ranked, batch.nbytes)
        self._enqueue(batch)

    def recompute(self, strategy: str) -> Promise[bytes]:
        """Ranks again; the receipt, with the same version and the next revision."""
        submitted = perf_counter()
        return self._enqueue_task(lambda: self._recompute(strategy, submitted))

    def ask(self, request: Waiting[Any]) -> None:
        """Queues personalized queries, or one to be kept fresh; ``request.answered`` says how they
        go. Raises QueueFull.
        """
        with self._changed:
            if self._closed is not None:
                raise self._closed
            self.computations.admit(request.answered, request.nbytes)
            self._queries.add(request)
            self._changed.notify()

    def unwatch(self, name: str) -> Promise[None]:
        """Forgets a watched query. Ends in UnknownWatched where there is none."""
        return self._enqueue_task(lambda: self._unwatch(name))

    def published(self, version: int) -> Future[View]:
        """The first view whose version is at least `version`; the future may be cancelled.

        Raises UnknownGraph once the graph is dropped.
        """
        future: Future[View] = Future()
        with self._changed:
            view = self.view
            if view.version < version:
                if self._closed is not None:
                    raise self._closed
                self._waiting_readers = [
                    reader for reader in self._waiting_readers if not reader[1].cancelled()
                ]
                self._waiting_readers.append((version, future))
                return future
        future.set_result(view)
        return future

    def outcome(self, version: int) -> Outcome | None:
        """How a batch ended, None while it is pending. Reads the disk.

        Raises UnknownVersion, RetiredVersion for one whose outcome the journal no longer has, and
        NotReady while the journal is being recovered.
        """
        if not self._opened.done():
            raise NotReady(f"graph {self.graph!r} is being recovered")
        journal = self._journal
        if not 1 <= version <= journal.version:
            raise UnknownVersion(self.graph, version, journal.version)
        outcome = journal.outcome(version)
        if outcome is None and version <= journal.retired:
            raise RetiredVersion(self.graph, version, journal.retired)
        return outcome

    def checkpoint(self) -> Future[Taken]:
        """A checkpoint of what is committed now. Raises NotReady while the graph is recovered."""
        if self._checkpointer is None:
            raise NotReady(f"graph {self.graph!r} is being recovered")
        return self._checkpointer.ask()

    def close(self, reason: Exception) -> None:
        """Ends after the batches at work; what waits, and what comes later, fails with `reason`."""
        with self._changed:
            self._closed = reason
            self._changed.notify()
        self._thread.join()
        if self._checkpointer is not None:
            self._checkpointer.close()
            self._journal.close()

    def _enqueue(self, job: Batch | _Task) -> None:
        with self._changed:
            if self._closed is not None:
                raise self._closed
            self._queue.append(job)
            self._changed.notify()

    def _enqueue_task(self, run: Callable[[], Answer]) -> Promise[Answer]:
        """Queues what a client asked for. Raises QueueFull."""
        task = _Task(run)
        self.computations.admit(task.answer, 0)
        self._enqueue(task)
        return task.answer

    # ---- everything below runs on the pipeline's thread ----

    def _run(self) -> None:
        try:
            self._open()
            self._opened.set_result(None)
            self._work()
        except DeviceLost as error:
            end_process(error)
        except Exception as error:
            if self._opened.done():  # else whoever waits for that is told
                log.exception("graph %s: its pipeline failed and has ended", self.graph)
            with self._changed:
                self._closed = error
            for promise in (self._readable, self._opened):
                if not promise.done():
                    promise.set_exception(error)
        self._refuse_the_rest()

    def _work(self) -> None:
        while (work := self._take()) is not None:
            if isinstance(work, _Task):
                _settle_task(work)
            else:
                try:
                    self._process(work)
                except DeviceLost:
                    raise
                except Exception as error:  # of this code: what can be foreseen is dealt with
                    for batch in work:
                        batch.fail(error)
                    raise
            del work  # its columns would live until the next one comes
            if self._closed is None:
                self._queries.advance()
        self._rank_due()

    def _open(self) -> None:
        self._engine = Engine(self._options, self._requested_backend)
        self.backend = self._engine.backend
        checkpoint = checkpoints.newest_valid(self._directory / "checkpoints")
        if checkpoint is not None:
            self._keys = keys_of(checkpoint, self._keys.kind)
            self._show(view_of(checkpoint, self._engine, self._keys))
        self._keyed = KeyedGraph(self.graph, self._engine, self._keys)
        self._readable.set_result(checkpoint is not None)
        with self._changed:
            self._changed.wait_for(lambda: self._may_recover or self._closed is not None)
            if self._closed is not None:
                raise self._closed
        self._recover(checkpoint)

    def _recover(self, checkpoint: Checkpoint | None) -> None:
        self._journal = self._journal_verified_beside_restore(checkpoint)
        try:
            self._revision = self._journal.revision
            applied = checkpoint.version if checkpoint is not None else 0
            unanswered = replay(
                self._journal,
                applied,
                lambda columns: self._keyed.apply(columns)[0],
                lambda: self._engine.update(RECOVERY_STRATEGY),
            )
            self._unreceipted = [
                Applied(version, change, StageSeconds(mutate=change.seconds))
                for version, change in unanswered.items()
            ]
            self._open_queries()
            if checkpoint is None or applied < self._journal.version:
                self._journal.reserve(1)
                self._rank_and_publish(RECOVERY_STRATEGY, self._journal.version)
            else:
                self._show_watched()
            if self._journal.deaths():
                self._journal.acquit()
            self._checkpointer = Checkpointer(
                self.graph,
                self._directory / "checkpoints",
                self._journal,
                *self._checkpoint_limits,
                self._take_moment,
                checkpoint,
            )
        except BaseException:
            self._journal.close()
            raise

    def _journal_verified_beside_restore(self, checkpoint: Checkpoint | None) -> Journal:
        """The journal, read and checked while the engine takes over what the checkpoint has: each
        takes seconds and one processor, and neither needs the other.
        """
        with ThreadPoolExecutor(1, f"liverank-{self.graph}-verify") as beside:
            journal = beside.submit(verified_journal, self._directory / "journal.db", checkpoint)
            try:
                if checkpoint is not None:
                    self._engine.restore(snapshot_of(checkpoint))
            except BaseException:
                journal.result().close()
                raise
            return journal.result()

    def _open_queries(self) -> None:
        self._watched = WatchedQueries(self.graph, self._directory, self._engine, self._keys)
        self._queries.open(
            self._engine,
            self._keys,
            newest=lambda: (self._journal.version, self._revision),
            keep=self._keep_watched,
            ending=lambda: self._closed is not None,
        )

    def _take(self) -> list[Batch] | _Task | None:
        """The next task, or all batches in front of the next task, none where only queries wait;
        None when closed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._queries or self._closed is not None)
            if self._closed is not None:
                return None
            if not self._queue:
                return []
            first = self._queue.popleft()
            if isinstance(first, _Task):
                return first
            batches = [first]
            while self._queue and isinstance(self._queue[0], Batch):
                batches.append(self._queue.popleft())  # type: ignore[arg-type]
            return batches

    def _refuse_the_rest(self) -> None:
        assert self._closed is not None
        for applied in self._unreceipted:
            if applied.batch is not None:
                applied.batch.fail(self._closed)
        for job in self._queue:
            if isinstance(job, Batch):
                job.fail(self._closed)
            else:
                job.answer.set_exception(self._closed)
        self._queries.refuse(self._closed)
        for _, reader in self._waiting_readers:
            if reader.set_running_or_notify_cancel():
                reader.set_exception(self._closed)

    def _process(self, batches: Sequence[Batch]) -> None:
        """Commits, applies, and ranks, unless more batches wait: those first become durable too."""
        taken = perf_counter()
        for group, journal_began, journal_seconds in self._committed(batches):
            strategy = group[0][1].record.strategy
            if self._due is not None and self._due.strategy != strategy:
                self._rank_due()
            self._apply_group(group, journal_began, journal_seconds)
            since = taken if self._due is None else self._due.since
            self._due = _Due(strategy, group[-1][0], since)
        if self._due is not None and not self._more_can_join(self._due):
            self._rank_due()

    def _more_can_join(self, due: _Due) -> bool:
        with self._changed:
            waiting = bool(self._queue) and isinstance(self._queue[0], Batch)
            return waiting and self._closed is None and perf_counter() - due.since < LONGEST_JOINING

    def _committed(
        self, batches: Sequence[Batch]
    ) -> Iterator[tuple[list[tuple[int, Batch]], float, float]]:
        """The groups of new batches with their versions, each as durable as it is said to be; when
        that began, and the seconds that it took, with telling those who wait for no more.
        """
        try:
            new = self._keyed.fitting(self._without_repeats(batches), self._refuse)
            groups = [list(group) for _, group in groupby(new, lambda batch: batch.record.strategy)]
            if not new:
                return
            began = perf_counter()
            versions = iter(self._journal.append([batch.record for batch in new], len(groups)))
        except Exception as error:
            log.exception("graph %s: batches were not committed", self.graph)
            for batch in batches:
                batch.fail(error)
            self._observer.failed(len(batches))
            return
        assert self._checkpointer is not None
        self._checkpointer.committed(sum(len(batch.record.payload) for batch in new))
        numbered = [[(next(versions), batch) for batch in group] for group in groups]
        for group in numbered:
            for version, batch in group:
                batch.durable.set_result(version)
        seconds = perf_counter() - began
        for group in numbered:
            yield group, began, seconds

    def _without_repeats(self, batches: Sequence[Batch]) -> list[Batch]:
        """The batches that are new; a repeat is answered as its first is."""
        new: list[Batch] = []
        first_of: dict[str, Batch] = {}
        for batch in batches:
            key = batch.record.idempotency_key
            if key is None:
                new.append(batch)
            elif key in first_of:
                if first_of[key].record.body_hash == batch.record.body_hash:
                    batch.follow(first_of[key])
                else:
                    batch.fail(IdempotencyConflict(key, None))
            elif (holder := self._journal.holder(key)) is not None:
                self._answer_again(batch, key, *holder)
            else:
                first_of[key] = batch
                new.append(batch)
        return new

    def _answer_again(self, batch: Batch, key: str, version: int, body_hash: bytes) -> None:
        if body_hash != batch.record.body_hash:
            batch.fail(IdempotencyConflict(key, version))
            return
        batch.durable.set_result(version)
        outcome = self._journal.outcome(version)
        if outcome is None:
            for applied in self._unreceipted:
                if applied.version == version and applied.batch is not None:
                    batch.follow_receipt(applied.batch)
                    return
            batch.fail(RankingFailed(version, "the first request for it failed"))
        elif outcome.status == "ranked":
            batch.ranked.set_result(outcome.body)
        else:
            batch.fail(BatchRejected(version, orjson.loads(outcome.body)))

    def _refuse(self, batch: Batch, error: OutOfMemory) -> None:
        log.warning("graph %s: a batch is refused: %s", self.graph, error)
        batch.fail(error)

    def _apply_group(
        self, group: Sequence[tuple[int, Batch]], journal_began: float, journal_seconds: float
    ) -> None:
        try:
            together = self._keyed.apply_together([batch.columns for _, batch in group])
        except DeviceLost as error:
            self._blame([version for version, _ in group], error)
        if together is not None:
            changes, keys_seconds = together
            for (version, batch), change in zip(group, changes, strict=True):
                seconds = StageSeconds(
                    queue=journal_began - batch.submitted,
                    journal=journal_seconds,
                    keys=keys_seconds,
                    mutate=change.seconds,
                )
                self._unreceipted.append(Applied(version, change, seconds, batch))
            return
        for version, batch in group:
            seconds = StageSeconds(queue=journal_began - batch.submitted, journal=journal_seconds)
            try:
                change, seconds.keys = self._keyed.apply(batch.columns)
            except DeviceLost as error:
                self._blame([version], error)
            except Exception as error:
                self._reject(version, batch, error)
                continue
            seconds.mutate = change.seconds
            self._unreceipted.append(Applied(version, change, seconds, batch))

    def _blame(self, versions: Sequence[int], error: DeviceLost) -> NoReturn:
        """Notes which batches were at work when the device was lost, and ends the process."""
        try:
            self._journal.blame(versions)
        except StorageFailed as storage_error:
            log.error("graph %s: %s: not noted: %s", self.graph, versions, storage_error)
        end_process(error)

    def _rank_due(self) -> None:
        """Ranks what was applied and not ranked, all of which asked for one strategy."""
        due, self._due = self._due, None
        if due is None:
            return
        if not self._unreceipted:
            self._show(replace(self.view, version=due.version))
            return
        try:
            self._rank_and_publish(due.strategy, due.version)
        except Exception as error:
            log.exception("graph %s: version %d is not ranked", self.graph, due.version)
            refused = isinstance(error, StorageFailed)
            for applied in self._unreceipted:
                if applied.batch is not None:
                    failure = error if refused else RankingFailed(applied.version, str(error))
                    applied.batch.fail(failure)
                    applied.batch = None
                    self._observer.failed(1)

    def _reject(self, version: int, batch: Batch, error: Exception) -> None:
        log.warning("graph %s: batch %d is rejected: %s", self.graph, version, error)
        problem = problem_of(error)
        try:
            self._journal.reject(version, encode_problem(problem))
        except Exception as storage_error:
            batch.fail(storage_error)
            return
        batch.fail(BatchRejected(version, problem))
        self._observer.rejected()

    def _rank_and_publish(self, strategy: str, version: int) -> Ranked:
        """Ranks, writes every receipt that is due, then shows the view and completes who waits."""
        ranked = self._rank(strategy, version)
        receipts = [
            receipt_of(one, ranked, one.batch.submitted if one.batch is not None else None)
            for one in self._unreceipted
        ]
        self._journal.settle(
            (applied.version, receipt)
            for applied, receipt in zip(self._unreceipted, receipts, strict=True)
        )
        answered, self._unreceipted = self._unreceipted, []
        self._show(ranked.view)
        for applied, receipt in zip(answered, receipts, strict=True):
            if applied.batch is not None:
                applied.batch.ranked.set_result(receipt)
        self._observer.ranked(
            [
                RankedBatch(one.version, one.change, one.seconds, one.batch.request_id)
                for one in answered
                if one.batch is not None
            ],
            ranked.result,
        )
        return ranked

    def _rank(self, strategy: str, version: int) -> Ranked:
        """Ranks under the next revision, which is reserved already."""
        try:
            result = self._engine.update(strategy)
            self._watched.refresh()
            self._engine.end_stage("watched")
            view = self._next_view(version, result)
            self._engine.end_stage("publish")
            return Ranked(result, view, self._engine.stage_seconds(), perf_counter())
        except DeviceLost as error:
            self._blame([applied.version for applied in self._unreceipted], error)

    def _next_view(self, version: int, result: Result) -> View:
        self._revision += 1
        return View(
            version=version,
            revision=self._revision,
            error_bound=result.error_bound,
            vertices=self._engine.vertices,
            edges=self._engine.edges,
            memory={**self._engine.memory(), "keys": self._keys.nbytes()},
            ranks=self._engine.publish(),
            keys=self._keys,
            watched=self._watched.answers,
        )

    def _show(self, view: View) -> None:
        with self._changed:
            self._view = view
            due = [reader for version, reader in self._waiting_readers if version <= view.version]
            self._waiting_readers = [
                waiting for waiting in self._waiting_readers if waiting[0] > view.version
            ]
        for reader in due:
            if reader.set_running_or_notify_cancel():
                reader.set_result(view)

    def _recompute(self, strategy: str, submitted: float) -> bytes:
        began = perf_counter()
        self._journal.reserve(1)
        seconds = StageSeconds(queue=began - submitted, journal=perf_counter() - began)
        version = self._journal.version
        ranked = self._rank_and_publish(strategy, version)
        nothing = Change(0, 0, 0, 0, 0, 0.0)
        return receipt_of(Applied(version, nothing, seconds), ranked, submitted)

    def _take_moment(self) -> Moment:
        """For a checkpoint; called from its thread."""
        room = self._engine.snapshot_room()
        task = _Task(lambda: self._cut(room))
        self._enqueue(task)
        moment: Moment = task.answer.result()
        return moment

    def _cut(self, room: Room) -> Moment:
        begin = perf_counter()
        if self._unreceipted:
            # a solve failed; a checkpoint has no place for what it left to do
            self._rank_and_publish(RECOVERY_STRATEGY, self._journal.version)
        cut = self._engine.cut(room)
        return Moment(self.view, self._journal.chain, cut, self._keys.cut(), perf_counter() - begin)

    def _keep_watched(self, watch: Watch, registration: Registration) -> tuple[bool, View]:
        # the query is of the graph as it is now, and shown beside ranks of the same
        self._rank_due()
        new = self._watched.keep(watch.definition, registration)
        self._show_watched()
        return new, self.view

    def _unwatch(self, name: str) -> None:
        self._watched.remove(name)
        self._show_watched()

    def _show_watched(self) -> None:
        self._show(replace(self.view, watched=self._watched.answers))


def end_process(reason: DeviceLost) -> NoReturn:
    """Ends the process at once: with the device lost, an orderly end could wait for ever. Its
    supervisor starts it again, and recovery does what was committed.
    """
    log.critical("%s; the process ends, to be started again", reason)
    print(f"liverank: {reason}; the process ends, to be started again", file=sys.stderr, flush=True)
    os._exit(EXIT_DEVICE_LOST)


def _settle_task(task: _Task) -> None:
    try:
        task.answer.set_result(task.run())
    except DeviceLost:
        raise
    except Exception as error:
        task.answer.set_exception(error)
