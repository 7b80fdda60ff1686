"""How much work for one graph may wait: a count, and bytes.

What was admitted counts until it is done, at work or not: only so is memory bounded, since
the pipeline takes all that waits at once. Reads of published versions are no such work.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol

from service.errors import QueueFull

LONGEST_RETRY_AFTER = 60


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Of one graph: jobs that are not ended, and the bytes that they hold. Unlimited as it is."""

    jobs: int = sys.maxsize
    bytes: int = sys.maxsize


class Job(Protocol):
    """A promise or a future."""

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None: ...


class Admission:
    """Any thread may call any method.

    jobs, bytes  what is admitted and not ended
    refused      jobs that were sent away
    """

    def __init__(self, graph: str, limits: QueueLimits) -> None:
        self._graph = graph
        self._limits = limits
        self._changing = threading.Lock()
        self._turnover = 0.0  # seconds that the job which ended last was here
        self.jobs = 0
        self.bytes = 0
        self.refused = 0

    def check(self, size: int) -> None:
        """Raises QueueFull where a job of `size` bytes would not be admitted now.

        A job that comes first is admitted, whatever its size: else it never would be.
        """
        with self._changing:
            self._check(size)

    def admit(self, job: Job, size: int) -> None:
        """Counts the job until it is done. Raises QueueFull."""
        with self._changing:
            self._check(size)
            self.jobs += 1
            self.bytes += size
        since = monotonic()
        job.add_done_callback(lambda _: self._leave(size, since))

    def _check(self, size: int) -> None:
        limits = self._limits
        if self.jobs and (self.jobs >= limits.jobs or self.bytes + size > limits.bytes):
            self.refused += 1
            wait = min(max(1, math.ceil(self._turnover)), LONGEST_RETRY_AFTER)
            raise QueueFull(self._graph, self.jobs, self.bytes, wait)

    def _leave(self, size: int, since: float) -> None:
        with self._changing:
            self.jobs -= 1
            self.bytes -= size
            self._turnover = monotonic() - since
