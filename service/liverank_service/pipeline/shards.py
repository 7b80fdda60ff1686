"""The shards of one graph: what does not work in them is refused here by name, before anything is
done; and their state.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from liverank_gpu import BackendName, Cluster, Engine, Options
from liverank_service.pipeline.sharded_engine import ONE_DEVICE, ShardedGraphEngine
from liverank_service.shard_errors import Unsupported

log = logging.getLogger("liverank.shards")

_FIRST_DELAY, _LONGEST_DELAY = 0.1, 60.0
"""Seconds between attempts to recover: doubled with each that fails."""

_OPENING_ATTEMPTS = 8
"""At a graph that has not been open yet, before the loss of a shard is an error."""


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
        """cluster, device_memory  see ShardedGraphEngine
        notify_lost  called on another thread when a shard is lost, also between calls
        """
        self.count = count
        self.restarts = 0
        self.loss: Loss | None = None
        self._graph, self._cluster, self._notify_lost = graph, cluster, notify_lost
        self._device_memory = device_memory
        self._delay = _FIRST_DELAY
        self._engine: Engine | None = None

    def new_engine(self, options: Options, backend: BackendName) -> Engine:
        """An engine without vertices, in shards or not. Raises BackendUnavailable."""
        if self.count:
            self._engine = ShardedGraphEngine(
                options, self.count, backend, self._cluster, self._device_memory, self._notify_lost
            )
        else:
            self._engine = Engine(options, backend, "ignore")  # the receipt says it
        return self._engine

    def check_call(self, call: str) -> None:
        """Raises Unsupported for a call that needs the graph on one device."""
        if self.count:
            raise Unsupported("call", call, ONE_DEVICE)

    def check_alive(self) -> None:
        """Raises ShardLost if a shard of the present engine is known to be lost."""
        if isinstance(self._engine, ShardedGraphEngine):
            self._engine.check_alive()

    @property
    def may_open_again(self) -> bool:
        """Whether the loss of a shard while the graph is opened for the first time is worth another
        attempt: not if workers have never started, since the settings may be wrong.
        """
        engine = self._engine
        started = isinstance(engine, ShardedGraphEngine) and engine.has_started
        return (started or self.restarts > 0) and self.restarts + 1 < _OPENING_ATTEMPTS

    def lost(self, error: Exception) -> float:
        """Ends the workers that are left. Returns the seconds after which to recover."""
        log.error("graph %s: %s: it recovers with new workers", self._graph, error)
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

    def release(self) -> None:
        """Ends the workers, if there are any."""
        if isinstance(self._engine, ShardedGraphEngine):
            self._engine.release()

    @property
    def edges(self) -> list[int]:
        """Of each shard: entries of its out-lists at the last publication."""
        engine = self._engine
        return list(engine.shard_edges) if isinstance(engine, ShardedGraphEngine) else []

    @property
    def vertices(self) -> list[int]:
        """Of each shard, at the last publication."""
        engine = self._engine
        return list(engine.shard_vertices) if isinstance(engine, ShardedGraphEngine) else []

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
