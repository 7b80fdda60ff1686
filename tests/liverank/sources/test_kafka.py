"""Partitions of Kafka that move between consumers, without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from liverank.sources import kafka
from liverank.sources.broker import Address
from liverank.sources.consumer import CannotContinue, Interrupted
from liverank.sources.kafka import KafkaTopic
from liverank.sources.messages import Message

PARTITION = "partition 0 of topic 'edges'"
FIRST, SECOND = TopicPartition("edges", 0), TopicPartition("edges", 1)


class FakeConsumer:
    """That of aiokafka.

    ends  by partition, as of the last fetch
    """

    def __init__(self) -> None:
        self.ends: dict[TopicPartition, int] = {}
        self.assigned: set[TopicPartition] = set()
        self.stopped: set[TopicPartition] = set()
        self.sought: dict[TopicPartition, int] = {}

    def assignment(self) -> set[TopicPartition]:
        return self.assigned

    def paused(self) -> set[TopicPartition]:
        return self.stopped

    def pause(self, *partitions: TopicPartition) -> None:
        self.stopped.update(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self.stopped.difference_update(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        assert partition in self.stopped
        self.sought[partition] = offset

    async def seek_to_beginning(self, partition: TopicPartition) -> None:
        self.seek(partition, 0)

    async def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[Any, int]:
        return dict.fromkeys(partitions, 0)

    def highwater(self, partition: TopicPartition) -> int | None:
        assert partition in self.assigned
        return self.ends.get(partition)


class FakeBroker:
    """That of FastStream: keeps what it is given."""

    def __init__(self) -> None:
        self.consumer = FakeConsumer()
        self.listener: Any = None
        self.handle: Any = None

    def subscriber(self, _: str, *, listener: Any, **__: Any) -> Any:
        self.listener = listener

        def keep(handle: Any) -> None:
            self.handle = handle

        keep.consumer = self.consumer  # type: ignore[attr-defined]
        return keep

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def assign(self, *partitions: TopicPartition) -> None:
        """As at the end of a rebalance."""
        self.consumer.assigned = set(partitions)
        await self.listener.on_partitions_assigned(set(partitions))


class Session:
    """Takes groups until one fails; `gate` is closed while the server does not take a batch."""

    def __init__(self, stored: dict[str, str]) -> None:
        self.stored = stored
        self.positions = dict(stored)
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.broker = FakeBroker()
        self.topic = KafkaTopic(Address("kafka://127.0.0.1:1", "edges"))
        self.topic.broker = self.broker

    async def subscribe(self) -> None:
        await self.topic.subscribe(self.positions, self.take, self.refresh)

    async def take(self, partition: str, group: Awaitable[list[Message]]) -> bool:
        try:
            messages = await group
            await self.gate.wait()
            if messages:
                self.positions[partition] = self.stored[partition] = messages[-1].position
        except (Interrupted, CannotContinue) as error:
            self.error = error
        return self.error is None

    async def refresh(self) -> None:
        self.positions.clear()
        self.positions.update(self.stored)


def records(partition: int, first: int, count: int = 10) -> list[Any]:
    return [
        SimpleNamespace(topic="edges", partition=partition, offset=offset, value=b"", timestamp=0)
        for offset in range(first, first + count)
    ]


def test_a_rebalance_waits_for_the_group_in_flight_and_resumes_behind_it() -> None:
    async def run() -> None:
        session = Session({"0": "100"})
        broker = session.broker
        await session.subscribe()
        await broker.assign(FIRST)
        assert (broker.consumer.sought, broker.consumer.paused()) == ({FIRST: 100}, set())

        session.gate.clear()
        taking = asyncio.create_task(broker.handle(records(0, 100)))
        await asyncio.sleep(0)
        revoking = asyncio.create_task(broker.listener.on_partitions_revoked({FIRST}))
        await asyncio.sleep(0.01)
        assert not revoking.done()
        session.gate.set()
        await asyncio.gather(taking, revoking)

        session.stored["1"] = "70"  # another consumer had this one
        await broker.assign(FIRST, SECOND)
        assert broker.consumer.sought == {FIRST: 110, SECOND: 70}
        await broker.handle(records(0, 110) + records(1, 70))
        assert session.stored == {"0": "120", "1": "80"}
        assert session.error is None

    asyncio.run(run())


def test_a_connection_closes_while_a_rebalance_waits() -> None:
    async def run() -> None:
        session = Session({"0": "100"})
        await session.subscribe()
        await session.broker.assign(FIRST)
        session.gate.clear()
        taking = asyncio.create_task(session.broker.handle(records(0, 100)))
        await asyncio.sleep(0)
        revoking = asyncio.create_task(session.broker.listener.on_partitions_revoked({FIRST}))
        await asyncio.sleep(0)
        await session.topic.close()
        await asyncio.wait_for(revoking, 1)
        taking.cancel()

    asyncio.run(run())


def test_a_position_that_is_not_known_yet_says_nothing_about_the_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor does that of a partition that is lost while the broker is asked."""
    monkeypatch.setattr(kafka, "LEADER_SECONDS", 0.0)

    async def run() -> None:
        session = Session({"0": "5000", "1": "70"})
        consumer = session.broker.consumer
        await session.subscribe()
        consumer.assigned = {FIRST, SECOND}
        consumer.pause(FIRST)
        assert await session.topic.ping()
        consumer.resume(FIRST)
        assert await session.topic.ping()  # nothing was fetched yet
        consumer.ends[FIRST] = 1000
        with pytest.raises(CannotContinue, match="ends at 1000, but was read to 5000"):
            await session.topic.ping()

        asked = consumer.beginning_offsets

        async def beginning_offsets(partitions: list[TopicPartition]) -> dict[Any, int]:
            consumer.assigned = {SECOND}
            return await asked(partitions)

        consumer.beginning_offsets = beginning_offsets  # type: ignore[method-assign]
        assert await session.topic.ping()

    asyncio.run(run())


def test_a_new_leader_may_learn_of_the_end_of_a_partition_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        session = Session({"0": "900"})
        consumer = session.broker.consumer
        await session.subscribe()
        consumer.assigned = {FIRST}
        consumer.ends[FIRST] = 880
        monkeypatch.setattr(kafka, "LEADER_SECONDS", 0.2)
        ping = asyncio.create_task(session.topic.ping())
        await asyncio.sleep(0.05)
        assert not ping.done()
        consumer.ends[FIRST] = 910
        assert await ping

    asyncio.run(run())


@pytest.mark.parametrize(
    ("stored", "first", "expected"),
    [
        ("100", 90, (Interrupted, f"{PARTITION} continues at 90, but was read to 100")),
        ("later", 0, (CannotContinue, "stored position: expected a number, got 'later'")),
    ],
)
def test_positions_that_do_not_fit_end_the_session(
    stored: str, first: int, expected: tuple[type[Exception], str]
) -> None:
    async def run() -> None:
        session = Session({"0": stored})
        await session.subscribe()
        await session.broker.assign(FIRST)
        await session.broker.handle(records(0, first))
        assert (type(session.error), str(session.error)) == expected

    asyncio.run(run())
