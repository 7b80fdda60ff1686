"""Kafka topics. A position is the offset of the next message of its partition."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any
from urllib.parse import urlsplit

from aiokafka import ConsumerRebalanceListener, errors
from faststream import AckPolicy
from faststream.kafka import KafkaBroker

from liverank.client.call import json_body
from liverank.sources.broker import Address, Connection, Refresh, Take, number_of
from liverank.sources.consumer import CannotContinue, Interrupted, Letter
from liverank.sources.messages import Message

LEADER_SECONDS = 2.0
"""How long a partition may seem shorter than it was: a new leader learns of its end late."""


class KafkaTopic(Connection):
    name = "kafka"
    refusals = (
        errors.AuthenticationFailedError,
        errors.ClusterAuthorizationFailedError,
        errors.GroupAuthorizationFailedError,
        errors.TopicAuthorizationFailedError,
        errors.MessageSizeTooLargeError,
        errors.SaslAuthenticationFailed,
    )
    failures = (errors.KafkaError,)

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._subscriber: Any = None
        self._positions: Mapping[str, str] = {}
        self._is_idle = asyncio.Event()  # no group is being taken
        self._is_idle.set()

    def create(self) -> KafkaBroker:
        return KafkaBroker(
            urlsplit(self.address.url).netloc.split(","),
            allow_auto_create_topics=False,
            **self.address.options,
        )

    async def subscribe(self, positions: Mapping[str, str], take: Take, refresh: Refresh) -> None:
        self._positions, connection = positions, self

        class Resume(ConsumerRebalanceListener):  # type: ignore[misc]
            """Begins an assigned partition at its stored position."""

            async def on_partitions_revoked(self, revoked: Any) -> None:  # noqa: ARG002
                """Waits for the group in flight, which moves positions."""
                await connection._is_idle.wait()

            async def on_partitions_assigned(self, assigned: Any) -> None:
                # until they have a position, they would be read from their beginning
                connection.consumer.pause(*assigned)
                # aiokafka would only log an error
                await take("", connection._resume(assigned, refresh))

        async def handle(raw: Any) -> None:
            self._is_idle.clear()
            try:
                for partition, grouped in groupby(raw, lambda record: record.partition):
                    records = list(grouped)
                    if not await take(str(partition), self._messages(records)):
                        return
            finally:
                self._is_idle.set()

        self._subscriber = self.broker.subscriber(
            self.address.place,
            batch=True,
            group_id=self.address.consumers,
            listener=Resume(),
            max_records=self.address.size,
            batch_timeout_ms=max(1, round(1000 * self.address.linger)),
            auto_offset_reset="earliest",
            ack_policy=AckPolicy.MANUAL,
        )
        self._subscriber(handle)
        with self.errors():
            await self.broker.start()

    @property
    def consumer(self) -> Any:
        return self._subscriber.consumer

    async def _resume(self, assigned: Iterable[Any], refresh: Refresh) -> list[Message]:
        """Begins partitions where the server has them: others may have consumed them meanwhile."""
        await refresh()
        with self.errors():
            for partition in assigned:
                position = self._positions.get(str(partition.partition))
                if position is None:
                    await self.consumer.seek_to_beginning(partition)
                else:
                    self.consumer.seek(partition, number_of(position))
            self.consumer.resume(*assigned)
        return []

    async def _messages(self, records: list[Any]) -> list[Message]:
        """Raises Interrupted for records before the position, and CannotContinue if messages after
        it are gone.
        """
        number, first = records[0].partition, records[0].offset
        position = number_of(self._positions.get(str(number), "0"))
        if (
            first != position
        ):  # compacted, unless the broker removed messages or made the topic again
            await self.ping()
        if first < position:
            raise Interrupted(
                f"partition {number} of topic {records[0].topic!r} continues at {first}, but was "
                f"read to {position}"
            )
        return [
            Message(str(one.offset + 1), one.value or b"", one.timestamp / 1000) for one in records
        ]

    async def ping(self) -> bool:
        """Raises CannotContinue if messages after a position are gone."""
        with self.errors():
            assigned = list(self._resumed())
            begins = await self.consumer.beginning_offsets(assigned) if assigned else {}
        for partition in self._resumed() & begins.keys():
            begin, position = begins[partition], self._position(partition)
            if begin > position > 0:
                raise CannotContinue(
                    f"{_name(partition)} begins at {begin}, after {position}, from which to "
                    "continue: messages between them are lost"
                )
        if self._shortened():
            await asyncio.sleep(LEADER_SECONDS)
            if short := self._shortened():
                raise CannotContinue("; ".join(short))
        return True

    def _shortened(self) -> list[str]:
        """What ends before its position, as of the last fetch: brokers may answer a request for the
        end with an older one.
        """
        ends = ((each, self.consumer.highwater(each)) for each in self._resumed())
        return [
            f"{_name(each)} ends at {end}, but was read to {self._position(each)}"
            for each, end in ends
            if end is not None and end < self._position(each)
        ]

    def _position(self, partition: Any) -> int:
        return number_of(self._positions.get(str(partition.partition), "0"))

    def _resumed(self) -> set[Any]:
        """The assigned partitions whose positions are those of the server."""
        resumed: set[Any] = set(self.consumer.assignment()) - self.consumer.paused()
        return resumed

    async def keep(self, letter: Letter) -> None:
        with self.errors():
            await self.broker.publish(json_body(letter), topic=self.address.dead_letter)

    async def close(self) -> None:
        self._is_idle.set()  # leaving the group waits for on_partitions_revoked
        await super().close()


def _name(partition: Any) -> str:
    return f"partition {partition.partition} of topic {partition.topic!r}"
