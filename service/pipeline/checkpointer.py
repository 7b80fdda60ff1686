"""When a graph's checkpoints are taken, and what goes once they are there.

One thread a graph. It asks the graph's writer for a `Moment`, which holds the writer up for a copy
in memory, then writes it to disk beside the writer's work. Due when the journal has grown by so
many bytes, by no less than the last checkpoint had (so that what is written grows with what was
sent, not with the graph), or when so many seconds have passed since something changed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from service.pipeline.capture import Moment
from service.storage import checkpoint as checkpoints
from service.storage.checkpoint import Checkpoint
from service.storage.journal import Journal

log = logging.getLogger("liverank.checkpoint")

_RETRY_SECONDS = 10.0
"""After a failure; who asks for a checkpoint gets one at once."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A checkpoint on disk. write_seconds: until it was; pause_seconds: of the graph's writer."""

    version: int
    revision: int
    bytes: int
    write_seconds: float
    pause_seconds: float


@dataclass(frozen=True, slots=True)
class _Known:
    """A checkpoint on disk, without its arrays."""

    name: str
    version: int
    chain: bytes
    nbytes: int

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> _Known:
        return cls(checkpoint.name, checkpoint.version, checkpoint.chain, checkpoint.nbytes)


class Checkpointer:
    """Takes the checkpoints of one graph.

    directory       where they are
    limit_bytes     of journal after which one is due
    limit_seconds   after which one is due if anything changed
    take            asks the writer for a moment; called from the checkpointer's thread
    newest          the checkpoint that the graph was opened from
    """

    def __init__(
        self,
        graph: str,
        directory: Path,
        journal: Journal,
        limit_bytes: int,
        limit_seconds: float,
        take: Callable[[], Moment],
        newest: Checkpoint | None,
    ) -> None:
        self._graph = graph
        self._directory = directory
        self._journal = journal
        self._limit_bytes = limit_bytes
        self._limit_seconds = limit_seconds
        self._take = take
        self._newest = None if newest is None else _Known.of(newest)
        self._grown = journal.bytes_after(newest.version if newest else 0)
        self._changed_at: float | None = None
        self._not_before = 0.0
        self._asked: list[Future[Taken]] = []
        self._closed = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(
            target=self._run, name=f"liverank-{graph}-checkpoints", daemon=True
        )
        self._thread.start()

    def committed(self, size: int) -> None:
        """Takes note of so many bytes of journal."""
        with self._wake:
            self._grown += size
            if self._changed_at is None:
                self._changed_at = time.monotonic()
            self._wake.notify()

    def ask(self) -> Future[Taken]:
        """A checkpoint of what is ranked now, or later; it ends in StorageFailed where the disk
        refuses it.
        """
        future: Future[Taken] = Future()
        future.set_running_or_notify_cancel()
        with self._wake:
            self._asked.append(future)
            self._wake.notify()
        return future

    def close(self) -> None:
        """Waits for a checkpoint that is being written. To be called when `take` answers no more,
        or raises.
        """
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not (self._closed or self._asked or self._seconds_left() == 0.0):
                    self._wake.wait(self._seconds_left())
                if self._closed:
                    asked, self._asked = self._asked, []
                    break
                asked, self._asked = self._asked, []
            try:
                taken = self._make()
            except Exception as error:
                log.error("graph %s: no checkpoint: %s", self._graph, error)
                self._not_before = time.monotonic() + _RETRY_SECONDS
                for future in asked:
                    future.set_exception(error)
            else:
                for future in asked:
                    future.set_result(taken)
        for future in asked:
            future.set_exception(RuntimeError("the graph is closed"))

    def _seconds_left(self) -> float | None:
        """Until a checkpoint is due; None where nothing changed."""
        if self._changed_at is None:
            return None
        least = max(self._limit_bytes, self._newest.nbytes if self._newest else 0)
        due = self._changed_at if self._grown >= least else self._changed_at + self._limit_seconds
        return max(0.0, max(due, self._not_before) - time.monotonic())

    def _make(self) -> Taken:
        begin = time.monotonic()
        with self._wake:
            grown, changed_at = self._grown, self._changed_at
            self._changed_at = None
        try:
            moment = self._take()
            checkpoint = moment.checkpoint()
            if self._newest is None or self._newest.name != checkpoint.name:
                checkpoints.write(self._directory, checkpoint)
        except BaseException:
            with self._wake:
                self._changed_at = changed_at or self._changed_at
            raise
        with self._wake:
            self._grown -= grown
        self._retain(checkpoint)
        return Taken(
            version=checkpoint.version,
            revision=checkpoint.revision,
            bytes=checkpoint.nbytes,
            write_seconds=time.monotonic() - begin,
            pause_seconds=moment.pause_seconds,
        )

    def _retain(self, newest: Checkpoint) -> None:
        """Two checkpoints stay, and the batches that the older of them lacks."""
        before = self._newest
        self._newest = _Known.of(newest)
        try:
            self._journal.sync_head()
            checkpoints.remove_old(self._directory)
            if before is not None and before != self._newest:
                self._journal.retire(before.version, before.chain)
        except Exception as error:
            # the checkpoint is there all the same; what stays too long goes with the next one
            log.error("graph %s: what is old is not removed: %s", self._graph, error)
