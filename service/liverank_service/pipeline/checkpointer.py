"""Takes a graph's checkpoints, and removes what each makes superfluous.

One thread for each graph. It lets the graph's writer capture the graph, which blocks the writer for
a copy in memory, and then writes the copy to disk while the writer continues. If the graph is in
shards, they keep the copy, and the writer reads a piece of it now and then, between batches.

A checkpoint is taken when the journal has grown by a number of bytes, but not by less than the size
of the last checkpoint (so that the bytes written grow with the bytes received, not with the graph),
or a number of seconds after a change.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

from liverank_service.pipeline.capture import Captured
from liverank_service.pipeline.device_loss import device_loss_ends_process
from liverank_service.storage import checkpoint as checkpoints
from liverank_service.storage.checkpoint import Checkpoint
from liverank_service.storage.journal import Journal

log = logging.getLogger("liverank.checkpoint")

_RETRY_SECONDS = 10.0
"""Delay after a failure; a requested checkpoint is taken at once."""


@dataclass(frozen=True, slots=True)
class CheckpointLimits:
    """bytes    of journal after which a checkpoint is taken
    seconds  after a change, until one is taken
    """

    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TakenCheckpoint:
    """A checkpoint on disk. write_seconds: in all; pause_seconds: of the blocked writer."""

    version: int
    revision: int
    bytes: int
    write_seconds: float
    pause_seconds: float


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint on disk, without its arrays."""

    name: str
    version: int
    chain: bytes
    nbytes: int

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> StoredCheckpoint:
        return cls(checkpoint.name, checkpoint.version, checkpoint.chain, checkpoint.nbytes)


class Checkpointer:
    """Takes the checkpoints of one graph.

    directory  of the checkpoints
    capture    lets the writer capture the graph; called on the checkpointer's thread
    newest     the checkpoint that the graph was opened from
    """

    def __init__(
        self,
        graph: str,
        directory: Path,
        journal: Journal,
        limits: CheckpointLimits,
        capture: Callable[[], Captured],
        newest: StoredCheckpoint | None,
    ) -> None:
        self._graph = graph
        self._directory = directory
        self._journal = journal
        self._limits = limits
        self._capture = capture
        self._newest = newest
        self._grown = journal.bytes_after(newest.version if newest else 0)
        self._changed_at: float | None = None
        self._expects_more = False
        self._not_before = 0.0
        self._requested: list[Future[TakenCheckpoint]] = []
        self._closed: Exception | None = None
        self._wake = threading.Condition()
        self._thread = threading.Thread(
            target=self._run, name=f"liverank-{graph}-checkpoints", daemon=True
        )
        self._thread.start()

    def journal_grew(self, size: int, rank_later: bool = False) -> None:
        """Notes that `size` bytes were added to the journal.

        rank_later  whether more batches are expected before they are ranked, which a checkpoint
                    would do: then only time counts
        """
        with self._wake:
            self._grown += size
            self._expects_more = rank_later
            if self._changed_at is None:
                self._changed_at = time.monotonic()
            self._wake.notify()

    def request(self) -> Future[TakenCheckpoint]:
        """A checkpoint of the current version or a later one. May fail with StorageFailed.

        Raises the reason given to `close`.
        """
        future: Future[TakenCheckpoint] = Future()
        future.set_running_or_notify_cancel()
        with self._wake:
            if self._closed is not None:
                raise self._closed
            self._requested.append(future)
            self._wake.notify()
        return future

    def close(self, reason: Exception) -> None:
        """Waits for a checkpoint that is being written, and fails the other requests. `capture`
        must no longer block.
        """
        with self._wake:
            self._closed = reason
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not (self._closed or self._requested or self._seconds_left() == 0.0):
                    self._wake.wait(self._seconds_left())
                requested, self._requested = self._requested, []
                if self._closed is not None:
                    break
            try:
                with device_loss_ends_process():
                    taken = self._take()
            except Exception as error:
                log.error("graph %s: no checkpoint was taken: %s", self._graph, error)
                self._not_before = time.monotonic() + _RETRY_SECONDS
                for future in requested:
                    future.set_exception(error)
            else:
                for future in requested:
                    future.set_result(taken)
        for future in requested:
            future.set_exception(self._closed)

    def _seconds_left(self) -> float | None:
        """Until the next checkpoint; None if nothing changed."""
        if self._changed_at is None:
            return None
        enough = max(self._limits.bytes, self._newest.nbytes if self._newest else 0)
        is_due = self._grown >= enough and not self._expects_more
        delay = 0.0 if is_due else self._limits.seconds
        return max(0.0, max(self._changed_at + delay, self._not_before) - time.monotonic())

    def _take(self) -> TakenCheckpoint:
        begin = time.monotonic()
        with self._wake:
            grown, changed_at = self._grown, self._changed_at
            self._changed_at = None
        try:
            captured = self._capture()
            try:
                taken = self._written(captured.checkpoint())
            finally:
                captured.release()
        except BaseException:
            with self._wake:
                self._changed_at = changed_at or self._changed_at
            raise
        with self._wake:
            self._grown -= grown
        self._retain(taken)
        return TakenCheckpoint(
            version=taken.version,
            revision=captured.view.revision,
            bytes=taken.nbytes,
            write_seconds=time.monotonic() - begin,
            pause_seconds=captured.pause_seconds,
        )

    def _written(self, checkpoint: Checkpoint) -> StoredCheckpoint:
        """Writes the checkpoint, unless it is the newest one."""
        if self._newest is not None and self._newest.name == checkpoint.name:
            return self._newest
        self._journal.sync_receipts()
        nbytes = checkpoints.write(self._directory, checkpoint)
        return replace(StoredCheckpoint.of(checkpoint), nbytes=nbytes)

    def _retain(self, newest: StoredCheckpoint) -> None:
        """Keeps two checkpoints, and the batches that the older one lacks."""
        before, self._newest = self._newest, newest
        try:
            self._journal.sync_head()
            checkpoints.remove_old(self._directory)
            if before is not None and before != newest:
                self._journal.retire(before.version, before.chain)
        except Exception as error:
            # the checkpoint is valid nevertheless, and the next one removes these too
            log.error("graph %s: old files were not removed: %s", self._graph, error)
