"""`liverank consume` with real brokers: every message counts once, whatever is killed."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Literal

import aio_pika
import numpy as np
import pytest
import redis
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from nats import connect as connect_nats
from nats.js.api import StreamConfig

from liverank import Client, SourceRange
from liverank.sources.broker import Address
from liverank.sources.consumer import CannotContinue, Target
from liverank.sources.session import consume
from service.cli.main import main
from tests.liverank.sources.brokers import (
    Process,
    consumer,
    kafka_broker,
    nats_server,
    rabbitmq_server,
    redis_server,
    wait_for,
)
from tests.service.server import Server

MESSAGES = 2_000

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
    kind: Literal["redis", "nats", "kafka"],
    port: int,
    place: str,
    dead_letter: str | None = None,
) -> int:
    """Consumes in this process until nothing more comes; returns the number of messages."""
    address = Address(f"{kind}://127.0.0.1:{port}", place, None, dead_letter)
    target = Target(path.rsplit("/", 1)[1], f"{kind}:{place}", on_conflict="add")
    # long enough to look after the positions once
    return consume(server.url(""), kind, address, target, 1.5)


def check_exactly_once(
    server: Server,
    options: list[object],
    path: str,
    model: Weights,
    kill_broker: Callable[[], None] | None,
) -> None:
    """Kills the consumer, and the broker, at several places of the stream."""
    with consumer(*options) as process:
        wait_for(lambda: version(server, path) >= 5)
        process.kill()
    if kill_broker is not None:
        before = version(server, path)
        with consumer(*options):
            wait_for(lambda: version(server, path) >= before + 3)
            kill_broker()
            behind = version(server, path)
            wait_for(lambda: version(server, path) >= behind + 3)
    assert edges_of(server, path) != model, "nothing was left to do after the kills"
    finish(options)
    assert edges_of(server, path) == model


@pytest.fixture(scope="module")
def redis_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with redis_server(tmp_path_factory.mktemp("redis")) as started:
        yield started


def add_entries(broker: Process, messages: list[bytes], stream: str = "edges") -> None:
    with redis.Redis(port=broker.port) as client:
        pipeline = client.pipeline(transaction=False)
        for message in messages:
            pipeline.xadd(stream, {"data": message})
        pipeline.execute()


def test_redis_exactly_once(server: Server, redis_broker: Process) -> None:
    path = server.new_graph(weighted=True)
    messages, model = changes()
    add_entries(redis_broker, messages)

    def kill() -> None:
        redis_broker.kill()
        redis_broker.start()

    options = arguments(server, path, "redis", f"redis://127.0.0.1:{redis_broker.port}")
    check_exactly_once(server, options, path, model, kill)
    (found,) = server.http.get(f"{path}/sources").json()["sources"]
    with redis.Redis(port=redis_broker.port) as client:
        assert found["position"] == client.xinfo_stream("edges")["last-generated-id"].decode()
    assert found["source"] == "redis:edges"


def test_what_redis_no_longer_has_stops_consumption(server: Server, redis_broker: Process) -> None:
    path = server.new_graph(weighted=True)
    stream = "trimmed"
    messages, _ = changes(100)
    add_entries(redis_broker, messages[:50], stream)
    assert run_here(server, path, "redis", redis_broker.port, stream) == 50
    before = version(server, path)
    add_entries(redis_broker, messages[50:], stream)
    with redis.Redis(port=redis_broker.port) as client:
        client.xtrim(stream, maxlen=10, approximate=False)
    with pytest.raises(CannotContinue, match="no longer has"):
        run_here(server, path, "redis", redis_broker.port, stream)
    assert version(server, path) == before
    (report,) = server.http.get(f"{path}/sources").json()["consumers"]
    assert (report["source"], report["state"]) == ("redis:trimmed", "stopped")
    assert "no longer has" in report["reason"]
    with redis.Redis(port=redis_broker.port) as client:
        client.delete(stream)
    with pytest.raises(CannotContinue, match="does not exist, but was read to"):
        run_here(server, path, "redis", redis_broker.port, stream)
    add_entries(redis_broker, messages[:1], stream)
    with pytest.raises(CannotContinue, match="no longer has"):
        run_here(server, path, "redis", redis_broker.port, stream)
    assert version(server, path) == before


def test_a_stream_that_is_made_again_under_its_consumer_stops_it(
    server: Server, redis_broker: Process
) -> None:
    path = server.new_graph(weighted=True)
    messages, _ = changes(2)
    add_entries(redis_broker, messages, "remade")
    url = f"redis://127.0.0.1:{redis_broker.port}"
    options = arguments(server, path, "redis", url)
    options[1] = "remade"
    with consumer(*options) as process:
        wait_for(lambda: version(server, path) == 1)
        with redis.Redis(port=redis_broker.port) as client:
            client.delete("remade")
        add_entries(redis_broker, messages, "remade")
        _, logged = process.communicate(timeout=60)
        assert process.returncode == 1
    assert "no longer has" in logged
    assert version(server, path) == 1


def test_messages_that_cannot_be_used_are_passed_on_with_the_reason(
    server: Server, redis_broker: Process
) -> None:
    path = server.new_graph(weighted=True)
    good = b'{"source": "a", "target": "b", "weight": 2}'
    # the server alone knows which weights are too small
    bad = [b"\xff\x00", b'{"source": 1, "target": "b"}', good.replace(b"2", b"-2"), b"[]"]
    add_entries(redis_broker, [good, *bad, good], "mixed")
    with pytest.raises(CannotContinue, match="--dead-letter names a place"):
        run_here(server, path, "redis", redis_broker.port, "mixed")
    assert version(server, path) == 0
    assert run_here(server, path, "redis", redis_broker.port, "mixed", "dead") == 6
    assert edges_of(server, path) == {("a", "b"): 4.0}
    with redis.Redis(port=redis_broker.port) as client:
        letters = [json.loads(fields[b"data"]) for _, fields in client.xrange("dead")]
        positions = [key.decode() for key, _ in client.xrange("mixed")]
    assert {letter["position"] for letter in letters} == set(positions[1:-1])
    assert all(letter["reason"] and letter["source"] == "redis:mixed" for letter in letters)
    reasons = {letter["position"]: letter["reason"] for letter in letters}
    assert reasons[positions[2]] == "source: expected a non-empty string, got 1"
    assert "weight" in reasons[positions[3]]
    (found,) = server.http.get(f"{path}/sources").json()["sources"]
    assert found["position"] == positions[-1]


def test_a_broker_that_is_away_is_tried_again_after_growing_pauses(
    server: Server, tmp_path: Path
) -> None:
    path = server.new_graph(weighted=True)
    with redis_server(tmp_path) as started:
        started.kill()
        options = arguments(server, path, "redis", f"redis://127.0.0.1:{started.port}")
        with consumer(*options) as process:
            assert process.stderr is not None
            waits = [process.stderr.readline() for _ in range(3)]
            assert ["connecting again in" in line for line in waits] == [True] * 3
            pauses = [float(line.rsplit(" ", 2)[1]) for line in waits]
            assert pauses == [0.5, 1.0, 2.0]
            graph = path.rsplit("/", 1)[1]

            def away() -> list[dict[str, Any]]:
                answer = server.http.get("/readyz")
                assert answer.status_code == 200
                listed = answer.json().get("consumers", [])
                return [one for one in listed if one["graph"] == graph]

            wait_for(lambda: bool(away()))
            (report,) = away()
            assert (report["source"], report["state"]) == ("redis:edges", "retrying")
            assert str(started.port) in report["reason"]
            started.start()
            add_entries(started, [b'{"source": "a", "target": "b"}'])
            wait_for(lambda: version(server, path) == 1)
            wait_for(lambda: not away())
            (report,) = server.http.get(f"{path}/sources").json()["consumers"]
            assert (report["state"], report["reason"]) == ("consuming", None)
    assert edges_of(server, path) == {("a", "b"): 1.0}


@pytest.fixture(scope="module")
def nats_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with nats_server(tmp_path_factory.mktemp("nats")) as started:
        yield started


@pytest.fixture(scope="module", name="kafka_broker")
def kafka() -> Iterator[Process]:
    with kafka_broker() as started:
        yield started


@pytest.fixture(scope="module")
def rabbitmq_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with rabbitmq_server(tmp_path_factory.mktemp("rabbitmq")) as started:
        yield started


async def make_nothing(_: int, __: str) -> None:
    """A stream of Redis appears with its first entry."""


async def make_stream(port: int, subject: str) -> None:
    async def add(jetstream: Any) -> None:
        name = subject.replace(".", "-")
        await jetstream.add_stream(StreamConfig(name=name, subjects=[subject]))

    await _in_jetstream(port, add)


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


async def _in_jetstream(port: int, work: Callable[[Any], Awaitable[None]]) -> None:
    client = await connect_nats(f"nats://127.0.0.1:{port}")
    await work(client.jetstream())
    await client.close()


def test_nats_exactly_once(server: Server, nats_broker: Process) -> None:
    path = server.new_graph(weighted=True)
    messages, model = changes()
    asyncio.run(make_stream(nats_broker.port, "edges"))

    async def publish(jetstream: Any) -> None:
        for first in range(0, len(messages), 200):
            part = messages[first : first + 200]
            await asyncio.gather(*[await jetstream.publish_async("edges", one) for one in part])

    asyncio.run(_in_jetstream(nats_broker.port, publish))
    options = arguments(server, path, "nats", f"nats://127.0.0.1:{nats_broker.port}")
    check_exactly_once(server, options, path, model, None)
    (found,) = server.http.get(f"{path}/sources").json()["sources"]
    assert (found["source"], found["position"]) == ("nats:edges", str(MESSAGES))

    async def purge(jetstream: Any) -> None:
        await jetstream.publish("edges", messages[0])
        await jetstream.publish("edges", messages[0])
        await jetstream.purge_stream("edges")

    asyncio.run(_in_jetstream(nats_broker.port, purge))
    with pytest.raises(CannotContinue, match="messages between them are lost"):
        run_here(server, path, "nats", nats_broker.port, "edges")


def test_kafka_exactly_once(server: Server, kafka_broker: Process) -> None:
    path = server.new_graph(weighted=True)
    messages, model = changes()
    address = f"127.0.0.1:{kafka_broker.port}"
    asyncio.run(make_topic(kafka_broker.port, "edges"))

    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=address) as producer:
            for one in messages:  # those of one edge stay in order
                edge = json.loads(one)
                partition = len(edge["source"] + edge["target"]) % 2
                await producer.send("edges", one, partition=partition)

    asyncio.run(produce())
    options = arguments(server, path, "kafka", f"kafka://{address}")
    check_exactly_once(server, options, path, model, None)
    found = server.http.get(f"{path}/sources").json()["sources"]
    assert [one["partition"] for one in found] == ["0", "1"]
    assert sum(int(one["position"]) for one in found) == MESSAGES
    # as if the topic had been made again, and had fewer messages now
    moved = SourceRange("kafka:edges", "1000000", found[0]["position"], "0")
    with Client(server.url("")) as client:
        client.send(path.rsplit("/", 1)[1], source_range=moved)
    with pytest.raises(CannotContinue, match=r"at \d+, but was read to 1000000"):
        run_here(server, path, "kafka", kafka_broker.port, "edges")


def test_rabbitmq_at_least_once(server: Server, rabbitmq_broker: Process) -> None:
    path = server.new_graph()
    sent = [(f"v{each % 40}", f"w{each}") for each in range(MESSAGES)]
    address = f"amqp://127.0.0.1:{rabbitmq_broker.port}"
    asyncio.run(make_queue(rabbitmq_broker.port, "edges"))

    async def publish() -> None:
        async with await aio_pika.connect(address) as connection:
            channel = await connection.channel()
            for edge in sent:
                body = json.dumps(dict(zip(("source", "target"), edge, strict=True))).encode()
                message = aio_pika.Message(body, delivery_mode=2)
                await channel.default_exchange.publish(message, "edges")

    asyncio.run(publish())
    options = arguments(server, path, "rabbitmq", address)
    options[options.index("add")] = "replace"
    with consumer(*options) as process:
        wait_for(lambda: version(server, path) >= 5)
        process.kill()
    assert int(server.http.get(path).json()["edges"]) < MESSAGES
    assert "messages count at least once" in finish(options)
    answer = server.http.get(f"{path}/edges", headers={"Accept": "application/x-ndjson"})
    rows = map(json.loads, answer.text.splitlines())
    assert {(row["source"], row["target"]) for row in rows} == set(sent)
    listed = server.http.get(f"{path}/sources").json()
    assert listed["sources"] == []
    assert {one["source"] for one in listed["consumers"]} == {"rabbitmq:edges"}


PAGE = Path("docs/sources.md").read_text("utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS = [line for block in BLOCKS for line in block.replace("\\\n", " ").splitlines()]


@pytest.mark.parametrize("kind", ["redis", "nats", "kafka", "rabbitmq"])
def test_the_commands_of_the_page_run(
    server: Server,
    kind: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broker: Process = request.getfixturevalue(f"{kind}_broker")
    monkeypatch.setattr("service.logs.set_up", lambda _: None)
    monkeypatch.setenv("LIVERANK_URL", server.url(""))
    scheme = "amqp" if kind == "rabbitmq" else kind
    monkeypatch.setenv("LIVERANK_SOURCE_URL", f"{scheme}://127.0.0.1:{broker.port}")
    server.http.put("/graphs/follows")
    commands = [shlex.split(line) for line in COMMANDS]
    consuming = [words for words in commands if words[:3] == ["liverank", "consume", kind]]
    assert consuming
    for words in consuming:
        asyncio.run(MAKE_PLACE[kind](broker.port, words[3]))
        with pytest.raises(SystemExit) as end:
            main([*words[1:], "--idle", "0.1"])
        assert not end.value.code, capsys.readouterr().err
    if kind == "redis":
        added = [words[1:] for words in commands if words[0] == "redis-cli"]
        with redis.Redis(port=broker.port) as client:
            for words in added:
                client.execute_command(*words)
        with pytest.raises(SystemExit):
            main([*consuming[0][1:], "--idle", "0.5"])
        assert f"{len(added)} messages consumed" in capsys.readouterr().out
    known = {"liverank consume", "redis-cli XADD", "pip install"}
    assert {" ".join(words[:2]) for words in commands} == known


def test_help_needs_no_broker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "faststream", None)
    for given, code, expected in (
        (["--help"], 0, "Consumes a stream of a broker"),
        (["redis", "edges"], 1, "pip install 'liverank[sources]'"),
    ):
        with pytest.raises(SystemExit) as end:
            main(["consume", *given])
        assert (end.value.code or 0) == code
        printed = capsys.readouterr()
        assert expected in printed.out + printed.err
