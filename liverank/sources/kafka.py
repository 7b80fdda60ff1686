"""Kafka topics. A position is the offset of the next message of its partition."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import groupby
from typing import Any
from urllib.parse import urlsplit

from liverank.sources.broker import Address, Take, broker_log, decoded, parsed
from liverank.sources.consumer import CannotContinue, Interrupted, Letter, encoded
from liverank.sources.messages import Message


class KafkaTopics:
    name = "kafka"
    has_positions = True

    def __init__(self, address: Address, group: str) -> None:
        """group: of consumers, which share the partitions."""
        self._address = address
        self._group = group

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[_Connection]:
        from faststream.kafka import KafkaBroker

        broker = KafkaBroker(
            urlsplit(self._address.url).netloc.split(","),
            security=self._address.security,
            allow_auto_create_topics=False,
            parser=parsed,
            decoder=decoded,
            apply_types=False,
            logger=broker_log,
            log_level=logging.DEBUG,
        )
        try:
            async with _errors():
                await broker.connect()
            yield _Connection(self._address, self._group, broker)
        finally:
            await broker.stop()


class _Connection:
    def __init__(self, address: Address, group: str, broker: Any) -> None:
        self._address = address
        self._group = group
        self._broker = broker
        self._subscriber: Any = None
        self._positions: Mapping[str, str] = {}

    async def subscribe(self, positions: Mapping[str, str], take: Take) -> None:
        from aiokafka import ConsumerRebalanceListener
        from faststream import AckPolicy

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

        self._subscriber = self._broker.subscriber(
            self._address.place,
            batch=True,
            group_id=self._group,
            listener=Resume(),
            max_records=self._address.size,
            batch_timeout_ms=max(1, round(1000 * self._address.linger)),
            auto_offset_reset="earliest",
            ack_policy=AckPolicy.MANUAL,
        )
        self._subscriber(handle)
        async with _errors():
            await self._broker.start()

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
        async with _errors():
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
        async with _errors():
            await self._broker.publish(encoded(letter), topic=self._address.dead_letter)


@asynccontextmanager
async def _errors() -> AsyncIterator[None]:
    """Raises Interrupted where another attempt may succeed, else CannotContinue."""
    from aiokafka import errors

    try:
        yield
    except (
        errors.AuthenticationFailedError,
        errors.AuthorizationError,
        errors.MessageSizeTooLargeError,
    ) as error:
        raise CannotContinue(f"kafka: {error}") from error
    except (errors.KafkaError, OSError, TimeoutError) as error:
        raise Interrupted(f"kafka: {error}") from error
