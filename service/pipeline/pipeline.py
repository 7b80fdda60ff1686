"""The pipeline of one graph: journal → keys → engine → view, in order of arrival.

    submit ──▶ commit ──▶ apply, one by one ──▶ rank once ──▶ receipts ──▶ view ──▶ responses
                 │                │
                 ▼                ▼
              durable          rejected

Everything that uses the engine, including recomputations and personalized queries, runs on one
thread, the writer's; readers use the newest `View`. Batches and computations are admitted up to a
limit, and a batch that does not fit into memory is refused before it is journalled.

A graph with a checkpoint can be read, at the checkpoint's version, as soon as the checkpoint is
mapped. Later batches are then replayed and ranked; batches sent during that time wait.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TypeVar

from gpu import BackendName, DeviceLost, Options, Solve
from service.errors import (
    NotReady,
    RetiredVersion,
    UnknownVersion,
)
from service.pipeline.admission import Admission, QueueLimits
from service.pipeline.analyses import Analyses, AnalysisLimits, Versions
from service.pipeline.batch import Batch, PendingBatch
from service.pipeline.capture import Captured, source_positions_of
from service.pipeline.change_feed import ChangeFeed
from service.pipeline.checkpointer import (
    Checkpointer,
    CheckpointLimits,
    StoredCheckpoint,
    TakenCheckpoint,
)
from service.pipeline.completions import Waiter
from service.pipeline.device_loss import end_process
from service.pipeline.edge_reading import EdgeReading
from service.pipeline.keyed_graph import KeyedGraph
from service.pipeline.observer import Observer
from service.pipeline.published import PublishedViews
from service.pipeline.ranking import RECOVERY, Ranking
from service.pipeline.recovery import (
    MappedGraph,
    map_checkpoint,
    replayed,
    restored_analyses,
    restored_journal,
    restored_watched,
    restored_window,
)
from service.pipeline.source_positions import SourcePosition, SourcePositions
from service.pipeline.vertex_sets import VertexSets
from service.pipeline.waiters import Waiters
from service.pipeline.window import WindowOptions
from service.pipeline.work_queue import Task, WorkQueue
from service.pipeline.writer import Writer
from service.queries.positions import MinPosition
from service.queries.requests import PendingQuery, QueryResponse
from service.queries.scheduler import QueryScheduler, WatchRequest
from service.queries.view import View
from service.storage import checkpoint as checkpoints
from service.storage import journal as journal_file
from service.storage import watched_file
from service.storage.journal import Journal, Outcome
from service.storage.replay_mark import ReplayMark
from service.vertex_keys import KeyKind

log = logging.getLogger("liverank.pipeline")

Result = TypeVar("Result")


class Pipeline:
    """The pipeline of an open graph. Any thread may call any method."""

    def __init__(
        self,
        graph: str,
        directory: Path,
        options: Options,
        keys: KeyKind,
        backend: BackendName,
        checkpoint_limits: CheckpointLimits,
        queue_limits: QueueLimits | None = None,
        observer: Observer | None = None,
        window: WindowOptions | None = None,
        analysis_limits: AnalysisLimits | None = None,
    ) -> None:
        """Starts the thread, which maps the newest checkpoint in `directory`, and replays the
        journal once `recover` is called.
        """
        self.graph = graph
        self.batches = Admission(graph, queue_limits or QueueLimits())
        self.computations = Admission(graph, queue_limits or QueueLimits())
        self._directory = directory
        self._map = partial(map_checkpoint, directory, options, keys, backend)
        self._checkpoint_limits = checkpoint_limits
        self._window_options = window
        self._analysis_limits = analysis_limits or AnalysisLimits()
        self._observer = observer or Observer()
        self._queue = WorkQueue()
        self._views = PublishedViews(graph)
        self._commits = Waiters[int]()
        self.edges = EdgeReading(graph, self.call, self._writer_or_not_ready)
        self._may_recover = threading.Event()
        # name of the backend; whether the graph can be read
        self._mapped: Future[tuple[str, bool]] = Future()
        self._writer: Future[Writer] = Future()
        self._thread = threading.Thread(target=self._run, name=f"liverank-{graph}", daemon=True)
        self._thread.start()

    def wait_until_mapped(self) -> bool:
        """Blocks until the newest checkpoint is mapped; returns whether there is one. Raises the
        error that prevented it.
        """
        return self._mapped.result()[1]

    def recover(self) -> None:
        """Starts replaying and ranking the journal; call it once the kernels are compiled."""
        self._may_recover.set()

    def wait_until_open(self) -> None:
        """Blocks until the journal is replayed and ranked. Raises the error that prevented it."""
        self._writer.result()

    @property
    def backend(self) -> str:
        """The name of the backend in use. Blocks until the engine is made."""
        return self._mapped.result()[0]

    @property
    def view(self) -> View:
        """The newest published version. Raises NotReady before there is one."""
        return self._views.newest

    @property
    def epoch(self) -> str:
        """The run of the graph: revisions and versions name their content only within it."""
        return self._views.epoch

    @property
    def changes(self) -> ChangeFeed:
        """What changes with each published revision."""
        return self._views.changes

    @property
    def analyses(self) -> Analyses | None:
        """None while the graph is being recovered."""
        return writer.analyses if (writer := self._open_writer) else None

    @property
    def committed(self) -> int:
        """The newest version known to be on disk."""
        writer = self._open_writer
        return writer.journal.version if writer else self.view.version

    def submit(
        self,
        batch: Batch,
        *,
        durable: Waiter[int] | None = None,
        ranked: Waiter[bytes] | None = None,
    ) -> None:
        """Queues a batch; for the futures see PendingBatch.

        Raises QueueFull, and the reason given to `close`.
        """
        release = self.batches.admit(batch.nbytes)
        try:
            self._queue.put(PendingBatch(batch, durable, ranked, release))
        except BaseException:
            release()
            raise

    def recompute(self, solve: Solve) -> Future[bytes]:
        """Ranks the same version again; the future holds the receipt. Raises QueueFull."""
        submitted = perf_counter()
        return self.call(lambda writer: writer.ranking.recompute(solve, submitted))

    def submit_query(self, request: PendingQuery[QueryResponse] | WatchRequest) -> None:
        """Queues personalized queries, or one to be watched. Raises QueueFull."""
        release = self.computations.admit(request.nbytes)
        request.answer.add_done_callback(lambda _: release())
        try:
            self._queue.put_query(request)
        except Exception as error:
            request.fail(error)
            raise

    def unwatch(self, name: str) -> Future[None]:
        """Removes a watched query. Fails with UnknownWatched if there is none. Raises QueueFull."""
        return self.call(lambda writer: writer.ranking.unwatch(name))

    def call(self, function: Callable[[Writer], Result]) -> Future[Result]:
        """Calls a function on the writer's thread, in order of arrival. Raises QueueFull."""
        task = Task(lambda: function(self._writer.result()))
        release = self.computations.admit(0)
        task.result.add_done_callback(lambda _: release())
        try:
            self._queue.put(task)
        except BaseException:
            task.result.cancel()
            raise
        return task.result

    def published(self, version: int, positions: Collection[MinPosition] = ()) -> Future[View]:
        """The first view with at least that version and these positions; the future may be
        cancelled.

        Raises the reason given to `close`.
        """
        return self._views.at_least(version, positions)

    def commit_of(self, version: int) -> Future[int]:
        """The newest version once it is at least that one; the future may be cancelled. Reads on
        the writer's thread that are requested from then on have it.

        Raises the reason given to `close`.
        """
        return self._commits.first(lambda newest: newest >= version)

    def outcome(self, version: int) -> Outcome | None:
        """The outcome of a batch; None while it is pending. Reads from disk.

        Raises UnknownVersion, RetiredVersion if the journal no longer has the outcome, and NotReady
        while the journal is being recovered.
        """
        journal = self._writer_or_not_ready().journal
        if not 1 <= version <= journal.version:
            raise UnknownVersion(self.graph, version, journal.version)
        outcome = journal.outcome(version)
        if outcome is None and version <= journal.retired:
            raise RetiredVersion(self.graph, version, journal.retired)
        return outcome

    def source_positions(self) -> Future[list[SourcePosition]]:
        """The positions of the sources, after all batches committed so far.

        Raises QueueFull.
        """
        return self.call(lambda writer: writer.positions.newest)

    def checkpoint(self) -> Future[TakenCheckpoint]:
        """A checkpoint of what is committed now. Raises NotReady while the graph is recovered."""
        return self._writer_or_not_ready().checkpointer.request()

    def close(self, reason: Exception) -> None:
        """Ends after the batches in progress; waiting and later requests fail with `reason`."""
        self._queue.close(reason)
        self._may_recover.set()
        self._thread.join()
        if writer := self._open_writer:
            writer.close(reason)

    @property
    def _open_writer(self) -> Writer | None:
        """None before the graph is recovered, and if recovery failed."""
        recovered = self._writer.done() and self._writer.exception() is None
        return self._writer.result() if recovered else None

    def _writer_or_not_ready(self) -> Writer:
        if writer := self._open_writer:
            return writer
        raise NotReady(f"graph {self.graph!r} is being recovered")

    # Everything below runs on the writer's thread.

    def _run(self) -> None:
        reason: Exception
        try:
            writer = self._open()
            self._writer.set_result(writer)
            self._commits.reach(writer.journal.version)
            writer.run()
            assert self._queue.closed is not None
            reason = self._queue.closed
        except DeviceLost as error:
            end_process(error)
        except Exception as error:
            if self._writer.done():  # otherwise those who wait for the writer get the error
                log.exception("graph %s: its pipeline failed and has ended", self.graph)
            reason = error
            self._queue.close(error)
            for future in (self._mapped, self._writer):
                if not future.done():
                    future.set_exception(error)
        self._queue.refuse(reason)
        self._views.close(reason)
        self._commits.close(reason)

    def _open(self) -> Writer:
        mapped: MappedGraph = self._map()
        if mapped.view is not None:
            self._views.publish(mapped.view)
        self._mapped.set_result((mapped.engine.backend, mapped.view is not None))
        self._may_recover.wait()
        if self._queue.closed is not None:
            raise self._queue.closed
        journal = restored_journal(self._directory / journal_file.FILE, mapped)
        try:
            return self._recovered(mapped, journal)
        except BaseException:
            journal.close()
            raise

    def _recovered(self, mapped: MappedGraph, journal: Journal) -> Writer:
        """Replays and ranks the batches after the checkpoint."""
        engine, checkpoint = mapped.engine, mapped.checkpoint
        sets = VertexSets(self.graph, mapped.sets)
        window = restored_window(self._window_options, engine, checkpoint)
        keyed = KeyedGraph(self.graph, engine, mapped.keys, sets, window)
        stored = [] if checkpoint is None else source_positions_of(checkpoint)
        positions = SourcePositions(self.graph, stored)
        version = checkpoint.version if checkpoint is not None else 0
        mark = ReplayMark(journal.path)
        unranked = replayed(journal, version, keyed, positions, engine, mark)
        file = self._directory / watched_file.FILE
        watched = restored_watched(self.graph, engine, keyed, file)
        ranking = Ranking(
            self.graph,
            engine,
            keyed,
            positions,
            journal,
            watched,
            file,
            self._views,
            self._observer,
            unranked,
            checkpoint.revision if checkpoint is not None else 0,
        )
        if checkpoint is None or version < journal.version:
            ranking.rank(RECOVERY, journal.version)
        else:
            ranking.publish_watched()
        mark.end()
        if journal.deaths():
            journal.acquit()
        scheduler = QueryScheduler(
            self.graph,
            self._queue.queries,
            engine,
            keys=lambda: keyed.keys,
            newest=ranking.newest,
            keep=ranking.watch,
            closing=lambda: self._queue.closed is not None,
            sets=lambda: keyed.sets.members,
        )
        versions = Versions(lambda: journal.version, lambda: self._views.newest.version)
        requested = restored_analyses(self._directory)
        kept = (self._analysis_limits, self._observer)
        analyses = Analyses(self.graph, engine, keyed, versions, requested, self._directory, *kept)

        def capture() -> Captured:
            """For the checkpointer's thread."""
            buffer = engine.staging_buffer()
            task = Task(lambda: ranking.capture(buffer))
            self._queue.put(task)
            captured: Captured = task.result.result()
            return captured

        checkpointer = Checkpointer(
            self.graph,
            self._directory / checkpoints.DIRECTORY,
            journal,
            self._checkpoint_limits,
            capture,
            None if checkpoint is None else StoredCheckpoint.of(checkpoint),
        )
        return Writer(
            self.graph,
            self._queue,
            journal,
            keyed,
            positions,
            ranking,
            scheduler,
            analyses,
            checkpointer,
            self._observer,
            self._commits,
        )
