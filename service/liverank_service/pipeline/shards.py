"""What a graph can lose. Its shards: what does not work in them is refused here by name, before
anything is done; and their state. The device: the process ends with it, a supervisor starts it
again, and recovery applies the committed batches.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from liverank.choices import Mode
from liverank_gpu import (
    EXIT_DEVICE_LOST,
    Algorithm,
    BackendName,
    Cluster,
    DeviceLost,
    Engine,
    EngineError,
    Options,
    ShardedEngine,
    ShardLost,
    Workers,
    started_workers,
)
from liverank_service.errors import NotReady, StorageFailed, Unsupported
from liverank_service.logs import write_last_line
from liverank_service.queries.analyses import AnyProgram
from liverank_service.storage.journal import Journal

log = logging.getLogger("liverank.shards")
_device_log = logging.getLogger("liverank.pipeline")


def end_process(error: DeviceLost) -> NoReturn:
    """Ends the process at once: an orderly shutdown could wait for the lost device forever."""
    message = f"{error}; the process ends and must be restarted"
    _device_log.critical(message)
    write_last_line(message)
    os._exit(EXIT_DEVICE_LOST)


@contextmanager
def device_loss_ends_process() -> Iterator[None]:
    """For readers of published ranks: no batch is to blame, and each later use would fail."""
    try:
        yield
    except DeviceLost as error:
        end_process(error)


def blame(journal: Journal, versions: Sequence[int], error: DeviceLost) -> NoReturn:
    """Records the batches that were being processed, and ends the process."""
    try:
        journal.blame(versions)
    except StorageFailed as storage_error:
        _device_log.error("%s: batches %s were not recorded as suspects", storage_error, versions)
    end_process(error)


_ONE_DEVICE = "a server without --shards, or `liverank analyse` of an export of the edges,"

_FIRST_DELAY, _LONGEST_DELAY = 0.1, 60.0
"""Seconds between attempts to recover: doubled with each that fails."""

_OPENING_ATTEMPTS = 8
"""At a graph that has not been open yet, before the loss of a shard is an error."""

FROZEN_SECONDS = 20.0
"""Without an answer of a worker, after which it is lost, once its graph is to end."""

_RELEASE_SECONDS = 30.0
"""How long workers that do not end may hold up the recovery of their graph."""


class ShardsFailed(ShardLost):
    """A call did not return from the shards. Whether they are alive is unknown."""

    def __init__(self, shards: int, error: Exception) -> None:
        EngineError.__init__(self, f"the {shards} shards did not answer: {error!r}")


class _WorkersWhenCalled(Workers):
    """Workers that start with the first call that needs them.

    backend  of the shards; as it was asked for, until they have started
    """

    def __init__(
        self,
        start: Callable[[], Workers],
        shards: int,
        backend: BackendName,
        lost: Callable[[], None],
    ) -> None:
        """lost  called on another thread when a shard is lost, also between calls"""
        self.size, self.backend = shards, backend
        self.started: Workers | None = None
        self._start, self._notify_lost, self._closed = start, lost, False
        self._frozen_seconds: float | None = None

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """See Workers. Raises ShardsFailed for errors of connections and processes, and NotReady
        after `close`: a ShardLost would be one of now.
        """
        if self._closed:  # only captures are used for longer than their shards
            raise NotReady("the shards have ended")
        if self.started is None:
            # Dask raises RuntimeError if a worker ends while it starts
            with self._answering(OSError, CancelledError, RuntimeError):
                self.started = self._start()
                self.backend = self.started.backend
                self.started.on_loss(self._notify_lost)
            if self._frozen_seconds is not None:  # asked for while they started
                self.lose_frozen(self._frozen_seconds)
        with self._answering(OSError, CancelledError):
            return self.started.call(method, arguments)

    @contextmanager
    def _answering(self, *errors: type[Exception]) -> Iterator[None]:
        try:
            yield
        except EngineError:
            raise
        except errors as error:
            raise ShardsFailed(self.size, error) from error

    def check_alive(self) -> None:
        if self.started is not None:
            self.started.check_alive()

    def lose_frozen(self, seconds: float) -> None:
        self._frozen_seconds = seconds
        if (started := self.started) is not None:
            with suppress(RuntimeError):  # they end at this moment, and their event loop with them
                started.lose_frozen(seconds)

    def close(self) -> None:
        """Ends them, also after ShardLost; waits for `_RELEASE_SECONDS` at most."""
        self._closed = True
        started, self.started = self.started, None
        if started is None:
            return
        closing = threading.Thread(target=_close, args=(started,), daemon=True)
        closing.start()
        closing.join(_RELEASE_SECONDS)
        if closing.is_alive():
            log.error("the workers of %d shards have not ended", self.size)


def _close(workers: Workers) -> None:
    try:
        workers.close()
    except Exception as error:  # they are lost, or the cluster was ending already
        log.warning("ending the workers of shards: %r", error)


@dataclass(frozen=True, slots=True)
class Loss:
    """Since when (Unix time, in seconds) shards are lost, and why."""

    since: float
    reason: str


class Shards:
    """Any thread may read. Without shards, nothing is refused.

    count     of worker processes; 0 for a graph on one device
    restarts  how often the workers were started again
    loss      None while the graph is open
    """

    def __init__(
        self,
        graph: str,
        count: int,
        cluster: Cluster | None = None,
        device_memory: int | None = None,
        notify_lost: Callable[[], None] = lambda: None,
    ) -> None:
        """cluster, device_memory  see ShardedEngine
        notify_lost  called on another thread when a shard is lost, also between calls
        """
        self.count = count
        self.restarts = 0
        self.loss: Loss | None = None
        self._graph, self._cluster, self._notify_lost = graph, cluster, notify_lost
        self._device_memory = device_memory
        self._delay = _FIRST_DELAY
        self._workers: _WorkersWhenCalled | None = None
        self._engine: ShardedEngine | None = None

    def new_engine(self, options: Options, backend: BackendName) -> Engine:
        """An engine without vertices, in shards or not. Raises BackendUnavailable."""
        if not self.count:
            return Engine(options, backend, "ignore")  # the receipt says it
        asked = (options, self.count, backend, self._cluster, self._device_memory)
        start = partial(started_workers, *asked)
        self._workers = _WorkersWhenCalled(start, self.count, backend, self._notify_lost)
        self._engine = ShardedEngine(options, workers=self._workers, unconverged="ignore")
        return self._engine

    def check_analysis(self, program: AnyProgram, mode: Mode) -> None:
        """Raises Unsupported for what needs the graph on one device."""
        if self.count and isinstance(program, Algorithm) and not program.in_shards:
            raise Unsupported("analysis", program.name, _ONE_DEVICE)
        if self.count and mode == "asynchronous":
            raise Unsupported("mode", mode, "'synchronous'")

    def check_alive(self) -> None:
        """Raises ShardLost if a shard of the present engine is known to be lost."""
        if self._workers is not None:
            self._workers.check_alive()

    @property
    def may_open_again(self) -> bool:
        """Whether the loss of a shard while the graph is opened for the first time is worth another
        attempt: not if workers have never started, since the settings may be wrong.
        """
        started = self._workers is not None and self._workers.started is not None
        return (started or self.restarts > 0) and self.restarts + 1 < _OPENING_ATTEMPTS

    def lost(self, error: Exception, follows: str = "it recovers with new workers") -> float:
        """Ends the workers that are left. Returns the seconds after which to recover.

        error    that of a shard, or of the disk during an earlier recovery
        follows  what does, for the log
        """
        log.error("graph %s: %s: %s", self._graph, error, follows)
        self.loss = self.loss or Loss(time.time(), str(error))
        self.restarts += 1
        self.release()
        delay, self._delay = self._delay, min(2 * self._delay, _LONGEST_DELAY)
        return delay

    def failed(self, error: Exception) -> None:
        """The graph cannot recover."""
        if self.loss is not None:
            self.loss = Loss(self.loss.since, f"recovery failed, restart the server: {error}")

    def recovered(self) -> None:
        """The graph is open, with all its shards."""
        if self.loss is not None:
            seconds = time.time() - self.loss.since
            log.info("graph %s: recovered in %.1f s", self._graph, seconds)
        self.loss, self._delay = None, _FIRST_DELAY

    def lose_frozen(self) -> None:
        """From now on a worker that does not answer for FROZEN_SECONDS is lost, which ends the call
        in progress. One that answers may take as long as it needs. Any thread may call it.
        """
        if self._workers is not None:
            self._workers.lose_frozen(FROZEN_SECONDS)

    def release(self) -> None:
        """Ends the workers, if there are any."""
        self._engine = None
        if self._workers is not None:
            self._workers.close()

    @property
    def edges(self) -> list[int]:
        """Of each shard: entries of its out-lists at the last publication."""
        return list(engine.shard_edges) if (engine := self._engine) else []

    @property
    def vertices(self) -> list[int]:
        """Of each shard, at the last publication."""
        return list(engine.shard_vertices) if (engine := self._engine) else []

    def document(self) -> dict[str, Any]:
        """As JSON shows it."""
        loss = self.loss
        return {
            "count": self.count,
            "state": "recovering" if loss else "serving",
            "reason": loss.reason if loss else None,
            "since": loss.since if loss else None,
            "restarts": self.restarts,
            "vertices": self.vertices,
            "edges": self.edges,
        }
