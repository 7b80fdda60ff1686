"""RabbitMQ queues. They have no positions: a message is acknowledged once the batch with it is on
disk, so it counts at least once, and again if a connection is lost before that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from liverank.sources.broker import Address, Take, broker_log, decoded, parsed
from liverank.sources.consumer import CannotContinue, Interrupted, Letter, encoded
from liverank.sources.messages import Message

_CONNECT_SECONDS = 5.0
_MAX_PREFETCH = 65_535


class RabbitQueues:
    name = "rabbitmq"
    has_positions = False

    def __init__(self, address: Address) -> None:
        self._address = address

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[_Connection]:
        from faststream.rabbit import Channel, RabbitBroker

        size = min(self._address.size, _MAX_PREFETCH)
        broker = RabbitBroker(
            self._address.url,
            security=self._address.security,
            timeout=_CONNECT_SECONDS,
            default_channel=Channel(prefetch_count=size),
            parser=parsed,
            decoder=decoded,
            apply_types=False,
            logger=broker_log,
            log_level=logging.DEBUG,
        )
        connection = _Connection(self._address, broker, size)
        try:
            async with _errors():
                await broker.connect()
            yield connection
        finally:
            connection.close()
            await broker.stop()


class _Connection:
    def __init__(self, address: Address, broker: Any, size: int) -> None:
        self._address = address
        self._broker = broker
        self._size = size
        self._waiting: asyncio.Queue[Any] = asyncio.Queue()
        self._grouping: asyncio.Task[None] | None = None

    async def subscribe(self, positions: Mapping[str, str], take: Take) -> None:  # noqa: ARG002
        from faststream import AckPolicy
        from faststream.rabbit import RabbitQueue

        queue = RabbitQueue(self._address.place, declare=False)
        subscriber = self._broker.subscriber(queue, ack_policy=AckPolicy.MANUAL)

        async def handle(raw: Any) -> None:
            await self._waiting.put(raw)

        subscriber(handle)
        async with _errors():
            await self._broker.start()
        self._grouping = asyncio.create_task(self._group(take))

    async def _group(self, take: Take) -> None:
        while True:
            group = [await self._waiting.get()]
            deadline = asyncio.get_running_loop().time() + self._address.linger
            while len(group) < self._size:
                try:
                    async with asyncio.timeout_at(deadline):
                        group.append(await self._waiting.get())
                except TimeoutError:
                    break

            async def messages(group: list[Any] = group) -> list[Message]:
                return [_message(one) for one in group]

            if not await take("", messages()):
                return
            async with _errors():
                await group[-1].ack(multiple=True)

    async def ping(self) -> bool:
        is_grouping = self._grouping is not None and not self._grouping.done()
        return is_grouping and bool(await self._broker.ping(timeout=1.0))

    async def keep(self, letter: Letter) -> None:
        async with _errors():
            await self._broker.publish(
                encoded(letter),
                queue=self._address.dead_letter,
                mandatory=True,
                persist=True,
                content_type="application/json",
            )

    def close(self) -> None:
        if self._grouping is not None:
            self._grouping.cancel()


def _message(message: Any) -> Message:
    sent = time.time() if message.timestamp is None else message.timestamp.timestamp()
    return Message(str(message.delivery_tag), message.body, sent)


@asynccontextmanager
async def _errors() -> AsyncIterator[None]:
    """Raises Interrupted where another attempt may succeed, else CannotContinue."""
    from aio_pika import exceptions

    try:
        yield
    except (
        exceptions.AuthenticationError,
        exceptions.ChannelNotFoundEntity,
        exceptions.PublishError,
    ) as error:
        raise CannotContinue(f"rabbitmq: {error}") from error
    except (exceptions.AMQPError, OSError, TimeoutError) as error:
        raise Interrupted(f"rabbitmq: {error!r}") from error
