"""Shards in threads, of which one can be lost at any call, or between two."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from liverank_gpu import BackendName, Options, ShardLost
from liverank_gpu.backends import backend_named
from tests.cuda_emulator.emulated import counting_backend
from tests.gpu.sharded.threads import ThreadWorkers

EDGES = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]


class Cluster:
    """Starts shards. `failing` names the next call during which one is lost, for watched queries
    and views by the method of ShardQueries, for edges by that of ShardEdgeReader; `absent` is how
    often workers do not start from now on, `later_absent` how often more from that loss on;
    `asked` counts the starts.
    """

    def __init__(self) -> None:
        self.failing: str | None = None
        self.absent = self.later_absent = self.asked = 0
        self.may_start = threading.Event()
        self.may_start.set()
        self.started: list[LosingWorkers] = []

    def start(
        self, options: Options, shards: int, backend: BackendName, device_memory: int | None
    ) -> LosingWorkers:
        assert backend == "cpu"
        self.asked += 1
        self.may_start.wait(60)
        if self.absent:
            self.absent -= 1
            raise TimeoutError("workers have not come")
        workers = LosingWorkers(self, options, shards, device_memory)
        self.started.append(workers)
        return workers


class LosingWorkers(ThreadWorkers):
    """On emulated GPUs, if there is a bound on their memory."""

    def __init__(
        self, cluster: Cluster, options: Options, size: int, device_memory: int | None
    ) -> None:
        backends = [backend_named("cpu") for _ in range(size)]
        if device_memory is not None:
            backends = [counting_backend() for _ in range(size)]
        for each in backends:
            each.device.limit_memory(device_memory)
        super().__init__(options, size, backends)
        self.closed = False
        self.frozen_seconds: float | None = None
        self._cluster = cluster
        self._lost = False
        self._notify: list[Callable[[], None]] = []

    def lose_frozen(self, seconds: float) -> None:
        self.frozen_seconds = seconds

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        assert not self.closed
        called = arguments[0][0] if method in ("call_kept", "call_program", "read") else method
        if method == "updated":  # an update, then the values
            self._fail("update")
            found = super().call(method, arguments)
            self._fail("values")
            return found
        self._fail(called)
        return super().call(method, arguments)

    def _fail(self, called: str) -> None:
        if self._cluster.failing == called:
            self._cluster.failing = None
            self._cluster.absent += self._cluster.later_absent
            raise ShardLost(1, self.size, "tls://127.0.0.1:1")

    def on_loss(self, notify: Callable[[], None]) -> None:
        self._notify.append(notify)

    def lose(self) -> None:
        """Loses a shard between two calls."""
        self._lost = True
        for notify in self._notify:
            notify()

    def check_alive(self) -> None:
        if self._lost:
            raise ShardLost(1, self.size, "tls://127.0.0.1:1")

    def close(self) -> None:
        self.closed = True
        super().close()
