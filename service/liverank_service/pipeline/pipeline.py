"""The pipeline of one graph: journal → keys → engine → view, in order of arrival.

    submit ──▶ commit ──▶ apply, one by one ──▶ rank once ──▶ receipts ──▶ view ──▶ responses
                 │                │
                 ▼                ▼
              durable          rejected

Everything that uses the engine, including recomputations and personalized queries, runs on one
thread, the writer's; readers use the newest `View`. Batches and computations are admitted up to a
limit, and a batch that does not fit into memory is refused before it is journalled.

A graph with a checkpoint can be read, at the checkpoint's version, as soon as the checkpoint is
mapped. Later batches are then replayed and ranked; batches sent during that time wait. So they do
while a graph whose shards are lost is opened again, of which the newest view can be read.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from liverank.choices import KeyKind
from liverank.client.responses import CheckpointTaken, ExpiryDelay, SourcePosition
from liverank_gpu import BackendName, Cluster, DeviceLost, Engine, Options, ShardLost, Solve
from liverank_service.errors import (
    NotReady,
    RetiredVersion,
    StorageFailed,
    UnknownVersion,
)
from liverank_service.pipeline.analyses import Analyses, AnalysisLimits
from liverank_service.pipeline.batch import Batch, Observer, PendingBatch
from liverank_service.pipeline.checkpointer import (
    Captured,
    CheckpointLimits,
    snapshot_of,
)
from liverank_service.pipeline.edge_reading import EdgeReading
from liverank_service.pipeline.published import ChangeFeed, PublishedViews
from liverank_service.pipeline.recovery import (
    MappedGraph,
    Opening,
    map_checkpoint,
    restored_journal,
)
from liverank_service.pipeline.shards import FROZEN_SECONDS, Shards, end_process
from liverank_service.pipeline.waiting import Waiter, Waiters, weakly
from liverank_service.pipeline.window import WindowOptions
from liverank_service.pipeline.writer import Admission, QueueLimits, Task, WorkQueue, Writer
from liverank_service.queries.model import PendingQuery, QueryResponse
from liverank_service.queries.scheduler import WatchRequest
from liverank_service.queries.view import MinPosition, View
from liverank_service.storage import journal as journal_file
from liverank_service.storage.files import is_damage
from liverank_service.storage.journal import Outcome

log = logging.getLogger("liverank.pipeline")

Result = TypeVar("Result")

_QUIET_SECONDS = 5.0
"""For what is in progress when it is closed, after which the log says that it is waited for."""

_ENDS = "it ends, and what is committed is ranked when it is opened again"


class Pipeline:
    """The pipeline of an open graph. Any thread may call any method.

    fault  the error that ended it; None while it works, or if it was closed without one
    """

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
        shards: int = 0,
        cluster: Cluster | None = None,
        device_memory: int | None = None,
    ) -> None:
        """Starts the thread, which maps the newest checkpoint in `directory`, and replays the
        journal once `recover` is called.

        shards   number of worker processes that hold the graph, each on `backend`; 0: this process
        cluster  an existing Dask cluster with these processes; None: they are started here
        device_memory  of each of these processes: see liverank_gpu.limit_device_memory
        """
        self.graph = graph
        self.batches = Admission(graph, queue_limits or QueueLimits())
        self.computations = Admission(graph, queue_limits or QueueLimits())
        self._directory = directory
        self._keys = keys
        self._queue = WorkQueue()
        self.shards = Shards(graph, shards, cluster, device_memory, weakly(self._check_shards))
        self._new_engine = partial(self.shards.new_engine, options, backend)
        self._views = PublishedViews(graph)
        self._commits = Waiters[int]()
        self._opening = Opening(
            graph,
            directory,
            window,
            checkpoint_limits,
            analysis_limits or AnalysisLimits(),
            observer or Observer(),
            self._queue,
            self._views,
            self._commits,
            weakly(self._capture),
        )
        self.edges = EdgeReading(weakly(self.call), weakly(self._writer_or_not_ready))
        self._may_recover = threading.Event()
        self._mapped: Future[bool] = Future()
        self._writer: Future[Writer] = Future()
        self._last: Writer | None = None
        self._engine: Engine | None = None
        self.fault: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"liverank-{graph}", daemon=True)
        self._thread.start()

    def wait_until_mapped(self) -> bool:
        """Blocks until the newest checkpoint is mapped; returns whether there is one. Raises the
        error that prevented it.
        """
        return self._mapped.result()

    def recover(self) -> None:
        """Starts replaying and ranking the journal; call it once kernels are loaded."""
        self._may_recover.set()

    def wait_until_open(self) -> None:
        """Blocks until the journal is replayed and ranked. Raises the error that prevented it."""
        self._writer.result()

    @property
    def backend(self) -> str:
        """The name of the backend in use. Blocks until the engine is made."""
        self._mapped.result()
        assert self._engine is not None
        return self._engine.backend

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
    def expiry_delay(self) -> ExpiryDelay | None:
        """Why edges that are too old stay for now; None if they do not."""
        return writer.expiry.delay if (writer := self._open_writer) else None

    @property
    def committed(self) -> int:
        """The newest version known to be on disk."""
        writer = self._open_writer or self._last
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
        """Queues personalized queries, or one to be watched. Raises QueueFull, and NotReady while
        lost shards recover.
        """
        if self.shards.loss is not None:
            raise NotReady(f"graph {self.graph!r} is being recovered: {self.shards.loss.reason}")
        queries = request.queries = list(request.queries)
        request.answer.add_done_callback(
            partial(_end, self.computations.admit(request.nbytes), queries)
        )
        try:
            self._queue.put(request)
        except Exception as error:
            request.fail(error)
            raise

    def unwatch(self, name: str) -> Future[None]:
        """Removes a watched query. Fails with UnknownWatched if there is none. Raises QueueFull."""
        return self.call(lambda writer: writer.ranking.unwatch(name))

    def bring_view(self, name: str) -> Future[View]:
        """What is published once a view is solved, if a read has to: see
        Ranking.bring_view. Raises QueueFull.
        """
        return self.call(lambda writer: writer.ranking.bring_view(name))

    def remove_view(self, name: str) -> Future[None]:
        """Removes a view. Fails with UnknownView if there is none. Raises QueueFull."""
        return self.call(lambda writer: writer.ranking.remove_view(name))

    def call(self, function: Callable[[Writer], Result]) -> Future[Result]:
        """Calls a function on the writer's thread, in order of arrival. Raises QueueFull."""
        functions = [function]
        task = Task(lambda: functions[0](self._writer.result()))
        task.result.add_done_callback(partial(_end, self.computations.admit(0), functions))
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

    def checkpoint(self) -> Future[CheckpointTaken]:
        """A checkpoint of what is committed now. Raises NotReady while the graph is recovered, and
        the reason given to `close`.
        """
        return self._writer_or_not_ready().checkpointer.request()

    def end(self, reason: Exception) -> None:
        """Has it end after the batches in progress, and returns at once; waiting and later requests
        fail with `reason`. Batches whose worker does not answer any more, as it is frozen, are
        committed: their ranks follow at the next start.
        """
        self._queue.close(reason)
        self._may_recover.set()
        self.shards.lose_frozen()

    def close(self, reason: Exception) -> None:
        """Ends it, and returns once it has ended."""
        self.end(reason)
        self._thread.join(_QUIET_SECONDS)
        if self._thread.is_alive():
            each = f"; each worker has {FROZEN_SECONDS:g} s to answer" if self.shards.count else ""
            log.warning("graph %s: what is in progress is waited for%s", self.graph, each)
            self._thread.join()
        if self._last is not None:
            self._last.close(reason)

    @property
    def _open_writer(self) -> Writer | None:
        """None while the graph is recovered, and if recovery failed."""
        writer = self._writer  # another one while shards recover
        return writer.result() if writer.done() and writer.exception() is None else None

    def _writer_or_not_ready(self) -> Writer:
        if writer := self._open_writer:
            return writer
        raise NotReady(f"graph {self.graph!r} is being recovered")

    def _check_shards(self) -> None:
        """Has the writer find the loss of shards; nothing if it has found it already."""
        with suppress(Exception):  # the queue is closed
            self._queue.put(Task(self.shards.check_alive))

    def _capture(self) -> Captured:
        """The graph, once its writer has captured it: for the checkpointer's thread."""
        assert self._engine is not None
        buffer, call = self._engine.staging_buffer(), self._on_writer
        captured: Captured = call(lambda: self._writer.result().ranking.capture(buffer, call))
        return captured

    def _on_writer(self, function: Callable[[], Result]) -> Result:
        """What the function returns when the writer calls it, in order of arrival."""
        task = Task(function)
        self._queue.put(task)
        result: Result = task.result.result()
        return result

    # Everything below runs on the writer's thread.

    def _run(self) -> None:
        reason: Exception
        try:
            self._work()
            assert self._queue.closed is not None
            reason = self._queue.closed
        except DeviceLost as error:
            end_process(error)
        except Exception as error:
            if self._last is not None:  # otherwise callers that wait for the writer get the error
                log.exception("graph %s: its pipeline failed and has ended", self.graph)
            reason = self.fault = error
            self.shards.failed(error)
            self._queue.close(error)
            for future in (self._mapped, self._writer):
                if not future.done():
                    future.set_exception(error)
        self._queue.refuse(reason)
        self._views.close(reason)
        self._commits.close(reason)
        self.shards.release()

    def _work(self) -> None:
        """Until the queue is closed. A graph whose shards are lost, also while it is opened, is
        opened again, as often as it takes. Raises the error that ended it.
        """
        while self._queue.closed is None or self._last is None:
            try:
                self._last = writer = self._open() if self._last is None else self._reopen()
                self.shards.recovered()
                self._writer.set_result(writer)
                self._commits.reach(writer.journal.version)
                writer.run()
                return
            except (ShardLost, StorageFailed) as error:
                if not self._may_open_again(error):
                    raise
                if self._writer.done():
                    self._writer = Future()
                ends = self._queue.closed is not None
                delay = self.shards.lost(error, *[_ENDS] * ends)
                # their frames have the last engine
                error.__traceback__ = error.__context__ = error.__cause__ = None
                self._queue.wait_until_closed(delay)

    def _may_open_again(self, error: Exception) -> bool:
        """Whether the graph may be open after another attempt, though an attempt, or the writer,
        has ended with this error.
        """
        if isinstance(error, ShardLost):
            return self._last is not None or self.shards.may_open_again
        # a disk that refuses what recovery writes may take it later
        recovers = self._last is not None and self.shards.loss is not None
        return recovers and not is_damage(error.__cause__)

    def _open(self) -> Writer:
        mapped = self._mapped_graph()
        if not self._mapped.done():  # or a shard was lost during an earlier attempt
            if mapped.view is not None:
                self._views.publish(mapped.view)
            self._mapped.set_result(mapped.view is not None)
        self._may_recover.wait()
        if self._queue.closed is not None:
            raise self._queue.closed
        journal = restored_journal(self._directory / journal_file.FILE, mapped)
        try:
            return self._opening.writer(mapped, journal)
        except BaseException:
            journal.close()
            raise

    def _reopen(self) -> Writer:
        """A writer with another engine. Journal and checkpoints go on."""
        assert self._last is not None
        mapped = self._mapped_graph()
        if mapped.checkpoint is not None:
            mapped.engine.restore(snapshot_of(mapped.checkpoint))
        return self._opening.writer(mapped, self._last.journal, self._last.checkpointer)

    def _mapped_graph(self) -> MappedGraph:
        self._engine = self._new_engine()
        return map_checkpoint(self.graph, self._directory, self._engine, self._keys)


def _end(release: Callable[[], None], content: list[Any], result: Future[Any]) -> None:
    """Ends a job of the queue. One that is cancelled waits on there, without its content."""
    if result.cancelled():
        content.clear()
    release()
