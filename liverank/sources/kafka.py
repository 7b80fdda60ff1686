"""Kafka topics. A position is the offset of the next message of its partition."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any
from urllib.parse import urlsplit

from aiokafka import ConsumerRebalanceListener, errors
from faststream import AckPolicy
from faststream.kafka import KafkaBroker

from liverank.sources.broker import Address, Connection, Take
from liverank.sources.consumer import CannotContinue, Letter, encoded
from liverank.sources.messages import Message


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

    def create(self) -> KafkaBroker:
        return KafkaBroker(
            urlsplit(self.address.url).netloc.split(","),
            allow_auto_create_topics=False,
            **self.address.options,
        )

    async def subscribe(self, positions: Mapping[str, str], take: Take) -> None:
        self._positions, connection = positions, self

        class Resume(ConsumerRebalanceListener):  # type: ignore[misc]
            """Begins an assigned partition at its stored position."""

            async def on_partitions_revoked(self, revoked: Any) -> None:
                pass

            async def on_partitions_assigned(self, assigned: Any) -> None:
                for partition in assigned:
                    position = positions.get(str(partition.partition))
                    if position is None:
                        await connection.consumer.seek_to_beginning(partition)
                    else:
                        connection.consumer.seek(partition, int(position))

        async def handle(raw: Any) -> None:
            for partition, grouped in groupby(raw, lambda record: record.partition):
                records = list(grouped)
                if not await take(str(partition), self._messages(records)):
                    return

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

    async def _messages(self, records: list[Any]) -> list[Message]:
        """Raises CannotContinue for records before the position: the topic was made again."""
        number, first = records[0].partition, records[0].offset
        position = int(self._positions.get(str(number), "0"))
        if first < position:
            raise CannotContinue(
                f"partition {number} of topic {records[0].topic!r} continues at {first}, but was "
                f"read to {position}"
            )
        if first > position:  # compacted, unless the broker removed messages
            await self.ping()
        return [
            Message(str(one.offset + 1), one.value or b"", one.timestamp / 1000) for one in records
        ]

    async def ping(self) -> bool:
        """Raises CannotContinue if messages after a position are gone."""
        with self.errors():
            assigned = list(self.consumer.assignment())
            begins = await self.consumer.beginning_offsets(assigned) if assigned else {}
            ends = await self.consumer.end_offsets(assigned) if assigned else {}
        for partition, begin in begins.items():
            # what was fetched since then may be behind the end
            end = max(ends[partition], self.consumer.highwater(partition) or 0)
            position = self._positions.get(str(partition.partition), "0")
            if begin > int(position) and position != "0":
                raise CannotContinue(
                    f"partition {partition.partition} of topic {partition.topic!r} begins at "
                    f"{begin}, after {position}, from which to continue: messages between them "
                    "are lost"
                )
            if end < int(position):
                raise CannotContinue(
                    f"partition {partition.partition} of topic {partition.topic!r} ends at {end}, "
                    f"but was read to {position}"
                )
        return True

    async def keep(self, letter: Letter) -> None:
        with self.errors():
            await self.broker.publish(encoded(letter), topic=self.address.dead_letter)
