"""How much work may wait for one graph: a number of jobs, and their bytes.

A job counts from its admission until it ends, waiting or running: the writer takes all waiting
batches at once, so counting only waiting jobs would not bound memory. Reads of published versions
are not counted.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import monotonic

from liverank_service.errors import QueueFull

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
