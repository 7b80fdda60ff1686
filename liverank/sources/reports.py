"""What a consumer tells the server about itself, which `/readyz` and the dashboard show."""

from __future__ import annotations

import os
import socket
import time

from liverank.client import AsyncClient

PERIOD = 10.0
"""Seconds between reports that it consumes."""

STOPPED_SECONDS = 24 * 3600.0
"""How long the server shows why a consumer has stopped."""


class StateReports:
    """Reports of one consumer. One that the server does not get is not sent again."""

    def __init__(self, client: AsyncClient, graph: str, source: str) -> None:
        self._client = client
        self._graph = graph
        self._source = source
        self._consumer = f"{socket.gethostname()} {os.getpid()}"
        self._next = 0.0

    async def consuming(self) -> None:
        """Reports it if it is time to."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + PERIOD
            await self._client.report_consumer(
                self._graph, self._source, self._consumer, "consuming", seconds=3 * PERIOD
            )

    async def retrying(self, reason: object, pause: float) -> None:
        """pause: seconds until the next attempt."""
        self._next = 0.0
        await self._client.report_consumer(
            self._graph,
            self._source,
            self._consumer,
            "retrying",
            str(reason)[:1000],
            pause + 3 * PERIOD,
        )

    async def stopped(self, reason: object) -> None:
        await self._client.report_consumer(
            self._graph,
            self._source,
            self._consumer,
            "stopped",
            str(reason)[:1000],
            STOPPED_SECONDS,
        )
