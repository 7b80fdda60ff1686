"""Brokers, consumers of their messages and a server, which are killed.

The server has a graph for each broker, and a consumer for each adds the messages of a stream to it.
Each message adds 1 to the weight of an edge, so that one that is lost, or counts twice, changes a
weight. Messages are published between kills. One of the processes is killed at a random moment and
started again; the broker of Kafka is not, since it keeps its topics in memory. After every tenth
kill each graph has to become what was published. RabbitMQ promises at least once: there, what was
delivered again is counted, and nothing may be missing.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aio_pika
import httpx
from aiokafka import AIOKafkaProducer

from liverank.choices import BrokerName
from tests.crash.nursery import Child, Nursery, Server
from tests.liverank.sources.brokers import (
    MAKE_PLACE,
    Process,
    add_entries,
    free_port,
    in_jetstream,
    kafka_broker,
    nats_server,
    rabbitmq_server,
    redis_server,
)

COMPARED_EVERY = 10
"""Number of kills between comparisons."""

PUBLISHED, GROUP_SIZE = 200, 20
"""Messages for each broker before a kill, and in a batch."""

PATIENCE = 120.0
"""Seconds until the consumers must have taken what was published."""

PLACE = "edges"
VERTICES = 40
CONSUMER_WEIGHT = 1.0
BROKER_WEIGHTS: dict[BrokerName, float] = {"redis": 1.5, "nats": 1.5, "kafka": 0.0, "rabbitmq": 0.1}
"""How often they are killed; RabbitMQ needs many seconds to start."""


@dataclass
class Stream:
    """A broker, what was published there, and the consumer of it."""

    broker: BrokerName
    process: Process
    published: Counter[str] = field(default_factory=Counter)
    consumer: Child | None = None

    @property
    def url(self) -> str:
        scheme = "amqp" if self.broker == "rabbitmq" else self.broker
        return f"{scheme}://127.0.0.1:{self.process.port}"

    async def publish(self, choose: random.Random) -> None:
        """Returns once the broker has confirmed all the messages."""
        edges = [
            {"source": f"v{choose.randrange(VERTICES)}", "target": f"w{choose.randrange(VERTICES)}"}
            for _ in range(PUBLISHED)
        ]
        messages = [json.dumps(edge).encode() for edge in edges]
        port = self.process.port
        if self.broker == "redis":
            add_entries(self.process, messages, PLACE)
        elif self.broker == "nats":

            async def send(jetstream: Any) -> None:
                sent = [await jetstream.publish_async(PLACE, message) for message in messages]
                await asyncio.gather(*sent)

            await in_jetstream(port, send)
        elif self.broker == "kafka":
            async with AIOKafkaProducer(bootstrap_servers=f"127.0.0.1:{port}") as producer:
                await asyncio.gather(
                    *[await producer.send(PLACE, one, partition=len(one) % 2) for one in messages]
                )
        else:
            async with await aio_pika.connect(self.url) as connection:
                exchange = (await connection.channel()).default_exchange
                await asyncio.gather(
                    *(
                        exchange.publish(aio_pika.Message(message, delivery_mode=2), PLACE)
                        for message in messages
                    )
                )
        self.published.update(f"{edge['source']} {edge['target']}" for edge in edges)


class Consumers:
    """A server, brokers and consumers, and the kills of them."""

    def __init__(self, directory: Path, seed: int, brokers: Sequence[BrokerName]) -> None:
        self._directory = directory
        self._seed = seed
        self._choose = random.Random(seed)
        self._brokers = brokers
        self._stack = ExitStack()
        self._weights = {"server": CONSUMER_WEIGHT * len(brokers)}
        self._weights |= {f"consumer of {one}": CONSUMER_WEIGHT for one in brokers}
        self._weights |= {one: BROKER_WEIGHTS[one] for one in brokers if BROKER_WEIGHTS[one]}

    def __enter__(self) -> Consumers:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        port = free_port()
        modules = (
            "liverank.sources.session",
            *(f"liverank.sources.{one}" for one in self._brokers),
        )
        log = self._directory / "processes.log"
        self._nursery = Nursery(log, range(port, port + 1), modules)
        self._stack.callback(self._nursery.close)
        self._server = self._start_server()
        self._stack.callback(lambda: self._server.kill())
        self._streams = [Stream(one, self._start_broker(one)) for one in self._brokers]
        for stream in self._streams:
            asyncio.run(MAKE_PLACE[stream.broker](stream.process.port, PLACE))
        answers = [
            # the first graph may compile its kernels
            httpx.put(f"{self._server.url}/graphs/{one}", json={"weighted": True}, timeout=PATIENCE)
            for one in self._brokers
        ]
        assert all(answer.status_code == 201 for answer in answers)
        for stream in self._streams:
            stream.consumer = self._start_consumer(stream)
        self._stack.callback(self._kill_consumers)

    def _start_server(self) -> Server:
        server = self._nursery.start(self._directory / "data")
        assert server.wait_until_ready(), f"no recovery: {self._directory}"
        return server

    def _start_broker(self, broker: BrokerName) -> Process:
        if broker == "kafka":
            return self._stack.enter_context(kafka_broker())
        folder = self._directory / broker
        folder.mkdir()
        starts = {"redis": redis_server, "nats": nats_server, "rabbitmq": rabbitmq_server}
        return self._stack.enter_context(starts[broker](folder))

    def _start_consumer(self, stream: Stream) -> Child:
        source = f"{stream.broker}:{PLACE}"
        return self._nursery.consume(
            url=self._server.url,
            broker=stream.broker,
            address={"url": stream.url, "place": PLACE, "size": GROUP_SIZE},
            target={"graph": stream.broker, "source": source, "on_conflict": "add"},
        )

    def _kill_consumers(self) -> None:
        for stream in self._streams:
            assert stream.consumer is not None
            stream.consumer.kill()

    def run(self, kills: int) -> Counter[str]:
        """Kills processes one after the other, each of them once before others are chosen."""
        every = self._choose.sample(list(self._weights), len(self._weights))
        others = self._choose.choices(list(self._weights), list(self._weights.values()), k=kills)
        victims = [*every, *others][:kills]
        try:
            again = self._run(victims)
        except BaseException as error:
            error.add_note(
                f"seed {self._seed}; data: {self._directory}; again: python -m "
                f"tests.crash.simulator --brokers {' '.join(self._brokers)} --seeds 1 "
                f"--first {self._seed}\n  " + "\n  ".join(victims)
            )
            raise
        counts = Counter(victims)
        return counts + Counter(messages=self._sent()) + Counter({"delivered again": again})

    def _run(self, victims: Sequence[str]) -> int:
        again = 0
        for number, victim in enumerate(victims, 1):
            if self._choose.random() < 0.8:
                asyncio.run(self._publish())
                time.sleep(self._choose.uniform(0.0, 0.5))
            self._kill(victim)
            self._check_consumers()
            if number % COMPARED_EVERY == 0 or number == len(victims):
                again = self._compare()
        return again

    def _sent(self) -> int:
        return sum(stream.published.total() for stream in self._streams)

    async def _publish(self) -> None:
        await asyncio.gather(*(stream.publish(self._choose) for stream in self._streams))

    def _kill(self, victim: str) -> None:
        """Kills a process, and starts it again."""
        if victim == "server":
            self._server.kill()
            self._server.wait()
            self._server = self._start_server()
            return
        stream = next(one for one in self._streams if one.broker == victim.rsplit(" ", 1)[-1])
        if victim == stream.broker:
            stream.process.kill()
            stream.process.start()
            return
        assert stream.consumer is not None
        stream.consumer.kill()
        stream.consumer.wait()
        stream.consumer = self._start_consumer(stream)

    def _check_consumers(self) -> None:
        for stream in self._streams:
            assert stream.consumer is not None
            assert stream.consumer.alive(), f"{stream.broker}: see {self._directory}"

    def _compare(self) -> int:
        """Waits until each graph is what was published; returns how many messages RabbitMQ has
        delivered again.
        """
        again = 0
        deadline = time.monotonic() + PATIENCE
        for stream in self._streams:
            while missing := stream.published - (found := self._weights_of(stream)):
                self._check_consumers()
                lost = f"{stream.broker}: {missing.total()} messages lost: {self._directory}"
                assert time.monotonic() < deadline, lost
                time.sleep(0.05)
            twice = (found - stream.published).total()
            if stream.broker == "rabbitmq":
                again = twice
            else:
                assert twice == 0, f"{stream.broker}: {twice} counted twice: {self._directory}"
        return again

    def _weights_of(self, stream: Stream) -> Counter[str]:
        headers = {"Accept": "application/x-ndjson"}
        url = f"{self._server.url}/graphs/{stream.broker}/edges"
        answer = httpx.get(url, headers=headers, timeout=60)
        assert answer.status_code == 200, answer.text
        rows = map(json.loads, answer.text.splitlines())
        return Counter({f"{row['source']} {row['target']}": int(row["weight"]) for row in rows})
