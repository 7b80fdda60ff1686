"""Consumes a place of a broker until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module

import tenacity

from liverank.choices import BrokerName
from liverank.client import AsyncClient, ClientError, ServerError, ServerUnreachable
from liverank.errors import needs
from liverank.sources.broker import Address, Connection
from liverank.sources.consumer import CannotContinue, Consumer, Interrupted, Target
from liverank.sources.messages import Message
from liverank.sources.reports import StateReports

log = logging.getLogger("liverank.consume")

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
"""Seconds before another connection; doubled each time until messages arrive again."""

PING_SECONDS = 1.0


class Sessions:
    """Connections one after the other, each from the positions that the server has."""

    def __init__(
        self,
        client: AsyncClient,
        kind: type[Connection],
        address: Address,
        target: Target,
        reports: StateReports,
        idle_seconds: float | None = None,
    ) -> None:
        """idle_seconds: end after so long without a message, also while the broker, the place or
        the server is away; None: never.
        """
        self._client = client
        self._reports = reports
        self._kind, self._address = kind, address
        self._target = target
        self._idle_seconds = idle_seconds
        self._activity = _Activity()
        self._failures = 0
        self.messages = 0

    async def run(self) -> None:
        """Raises CannotContinue, and ClientError if the server refuses."""
        attempts = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(Interrupted),
            stop=self._is_idle,
            wait=self._pause,
            before_sleep=self._say,
            retry_error_callback=self._give_up,
        )
        try:
            await attempts(self._session)
        except (CannotContinue, ClientError) as error:
            await self._reports.stopped(error)
            raise

    def _is_idle(self, _: tenacity.RetryCallState | None = None) -> bool:
        return self._idle_left() == 0.0

    def _idle_left(self) -> float:
        """Seconds without a message until it ends."""
        if self._idle_seconds is None:
            return math.inf
        return max(0.0, self._idle_seconds - self._activity.idle_seconds)

    def _pause(self, _: tenacity.RetryCallState) -> float:
        self._failures += 1
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self._failures - 1, 20))
        return min(pause, self._idle_left())

    def _give_up(self, state: tenacity.RetryCallState) -> None:
        assert state.outcome is not None
        error = state.outcome.exception()
        raise CannotContinue(f"no message for {self._idle_seconds:g} s: {error}") from error

    async def _say(self, state: tenacity.RetryCallState) -> None:
        assert state.outcome is not None
        error, pause = state.outcome.exception(), state.upcoming_sleep
        log.warning("%s; connecting again in %.1f s", error, pause)
        await self._reports.retrying(error, pause)

    async def _session(self) -> None:
        with _server_errors():
            options = (await self._client.graph(self._target.graph)).options
        positions = await self._positions()
        async with self._kind.connected(self._address) as connection:
            keep = None if self._address.dead_letter is None else connection.keep
            consumer = Consumer(self._client, self._target, options, positions, keep)
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            ended.add_done_callback(_retrieve)

            async def take(partition: str, group: Awaitable[list[Message]]) -> bool:
                """FastStream goes on after an error, so nothing is taken after one."""
                with self._activity:
                    try:
                        messages = await group
                        if messages and not ended.done():
                            await consumer.take(partition, messages)
                            self._failures = 0
                            self.messages += len(messages)
                    except (Interrupted, CannotContinue, ClientError) as error:
                        _end(ended, error)
                    except Exception as error:
                        log.exception("a group of messages failed")
                        _end(ended, CannotContinue(f"unexpected {error!r}"))
                return not ended.done()

            async def refresh() -> None:
                stored = await self._positions()
                positions.clear()
                positions.update(stored)

            await connection.subscribe(positions, take, refresh)
            self._activity.begin()
            where = ", ".join(f"{key or 'its position'} {at}" for key, at in positions.items())
            source = self._target.source or self._kind.name
            log.info("consuming %s from %s", source, where or "the beginning")
            while not ended.done():
                await self._reports.connected(consumer.waits_for)
                await asyncio.wait([ended], timeout=PING_SECONDS)
                if self._is_idle():
                    return
                if not ended.done() and not await connection.ping():
                    raise Interrupted(f"{self._kind.name} does not answer")
            ended.result()

    async def _positions(self) -> dict[str, str]:
        """By partition, where the server has the source. Raises Interrupted and ClientError."""
        with _server_errors():
            stored = await self._client.sources(self._target.graph)
        return {one.partition: one.position for one in stored if one.source == self._target.source}


class _Activity:
    """Whether a group of messages is being taken, and when the last one was."""

    def __init__(self) -> None:
        self._running = 0
        self._has_begun = False
        self._since = time.monotonic()

    def begin(self) -> None:
        """The first time, messages can arrive from now on. Later connections change nothing."""
        if not self._has_begun:
            self._has_begun, self._since = True, time.monotonic()

    @property
    def idle_seconds(self) -> float:
        return 0.0 if self._running else time.monotonic() - self._since

    def __enter__(self) -> None:
        self._running += 1

    def __exit__(self, *_: object) -> None:
        self._running -= 1
        self._since = time.monotonic()


@contextmanager
def _server_errors() -> Iterator[None]:
    """Raises Interrupted where another attempt may succeed."""
    try:
        yield
    except ServerUnreachable as error:
        if error.responded:
            raise
        raise Interrupted(str(error)) from error
    except ServerError as error:
        if error.status >= 500 or error.status == 429:
            raise Interrupted(str(error)) from error
        raise


def _retrieve(ended: asyncio.Future[None]) -> None:
    """The session may have ended for another reason already."""
    ended.exception()


def _end(ended: asyncio.Future[None], error: Exception) -> None:
    if not ended.done():
        ended.set_exception(error)


def consume(
    url: str,
    broker: BrokerName,
    address: Address,
    target: Target,
    idle_seconds: float | None = None,
) -> int:
    """Consumes until it is stopped, or idle for so long; returns the number of messages.

    url  of the server

    Raises CannotContinue, ClientError, and MissingPackage without the extra `sources`.
    """
    name = f"{broker}:{address.place}" if target.source is None else target.source
    with needs("sources"):
        consumers = f"liverank {target.graph} {target.source}"
        kind, address = _kind(broker), replace(address, consumers=consumers)
        if not kind.has_positions:
            log.warning("%s has no positions: messages count at least once", broker)
            target = replace(target, source=None)

    async def run() -> int:
        async with AsyncClient(url) as client:
            reports = StateReports(client, target.graph, name)
            sessions = Sessions(client, kind, address, target, reports, idle_seconds)
            await sessions.run()
            return sessions.messages

    return asyncio.run(run())


_KINDS: dict[BrokerName, str] = {
    "redis": "RedisStream",
    "nats": "NatsSubject",
    "kafka": "KafkaTopic",
    "rabbitmq": "RabbitMQQueue",
}


def _kind(broker: BrokerName) -> type[Connection]:
    """In a module of its own, which needs the client of the broker."""
    kind: type[Connection] = getattr(import_module(f"liverank.sources.{broker}"), _KINDS[broker])
    return kind
