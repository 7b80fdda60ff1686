"""RabbitMQ queues. They have no positions: a message is acknowledged once the batch with it is on
disk, so it counts at least once, and again if a connection is lost before that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from aio_pika import exceptions
from faststream import AckPolicy
from faststream.rabbit import Channel, RabbitBroker, RabbitQueue

from liverank.client.call import json_body
from liverank.sources.broker import CONNECT_SECONDS, Address, Connection, Refresh, Take
from liverank.sources.consumer import Letter
from liverank.sources.messages import Message

_MAX_PREFETCH = 65_535


class RabbitMQQueue(Connection):
    name = "rabbitmq"
    has_positions = False
    refusals = (
        exceptions.AuthenticationError,
        exceptions.ChannelNotFoundEntity,
        exceptions.PublishError,
    )
    failures = (exceptions.AMQPError,)

    def __init__(self, address: Address) -> None:
        self._size = min(address.size, _MAX_PREFETCH)
        super().__init__(address)
        self._waiting: asyncio.Queue[Any] = asyncio.Queue()
        self._grouping: asyncio.Task[None] | None = None

    def create(self) -> RabbitBroker:
        # otherwise a dead letter for a queue that does not exist would be lost
        channel = Channel(prefetch_count=self._size, on_return_raises=True)
        return RabbitBroker(
            self.address.url,
            timeout=CONNECT_SECONDS,
            default_channel=channel,
            **self.address.options,
        )

    async def subscribe(
        self,
        positions: Mapping[str, str],  # noqa: ARG002
        take: Take,
        refresh: Refresh,  # noqa: ARG002
    ) -> None:
        queue = RabbitQueue(self.address.place, declare=False)
        subscriber = self.broker.subscriber(queue, ack_policy=AckPolicy.MANUAL)

        async def handle(raw: Any) -> None:
            await self._waiting.put(raw)

        subscriber(handle)
        with self.errors():
            await self.broker.start()
        self._grouping = asyncio.create_task(self._group(take))

    async def _group(self, take: Take) -> None:
        while True:
            group = [await self._waiting.get()]
            deadline = asyncio.get_running_loop().time() + self.address.linger
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
            with self.errors():
                await group[-1].ack(multiple=True)

    async def ping(self) -> bool:
        is_grouping = self._grouping is not None and not self._grouping.done()
        return is_grouping and await super().ping()

    async def keep(self, letter: Letter) -> None:
        with self.errors():
            await self.broker.publish(
                json_body(letter),
                queue=self.address.dead_letter,
                mandatory=True,
                persist=True,
                content_type="application/json",
            )

    async def close(self) -> None:
        if self._grouping is not None:
            self._grouping.cancel()
        await super().close()


def _message(message: Any) -> Message:
    sent = time.time() if message.timestamp is None else message.timestamp.timestamp()
    return Message(str(message.delivery_tag), message.body, sent)
