"""What a consumer tells the server about itself, which `/readyz` and the dashboard show."""

from __future__ import annotations

import os
import socket
import time

from liverank.choices import ConsumerState
from liverank.client import AsyncClient

PERIOD = 10.0
"""Seconds between reports that it consumes."""

MAX_REASON = 1_000
"""Characters of a reason that the server accepts."""

STOPPED_SECONDS = 24 * 3600.0
"""How long the server shows why a consumer has stopped."""


class StateReports:
    """Reports of one consumer. One that the server does not get is not sent again."""

    def __init__(self, client: AsyncClient, graph: str, source: str) -> None:
        self._client = client
        self._graph = graph
        self._source = source
        self._consumer = f"{socket.gethostname()} {os.getpid()}"
        self._state: ConsumerState | None = None
        self._next = 0.0

    async def connected(self, waits_for: str | None) -> None:
        """Reports that it consumes, or for what it waits, if that is new or it is time to."""
        state: ConsumerState = "consuming" if waits_for is None else "retrying"
        if state != self._state or time.monotonic() >= self._next:
            self._next = time.monotonic() + PERIOD
            await self._report(state, waits_for, 3 * PERIOD)

    async def retrying(self, reason: object, pause: float) -> None:
        """pause: seconds until the next attempt."""
        self._next = 0.0
        await self._report("retrying", str(reason), pause + 3 * PERIOD)

    async def stopped(self, reason: object) -> None:
        await self._report("stopped", str(reason), STOPPED_SECONDS)

    async def _report(self, state: ConsumerState, reason: str | None, seconds: float) -> None:
        self._state = state
        reason = None if reason is None else reason[:MAX_REASON]
        await self._client.report_consumer(
            self._graph, self._source, self._consumer, state, reason, seconds
        )
