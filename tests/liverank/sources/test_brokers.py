"""`liverank consume` with real brokers: every message counts once, whatever is killed."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import aio_pika
import pytest
import redis
from aiokafka import AIOKafkaProducer

from liverank import Client, SourceRange
from liverank.sources.consumer import CannotContinue
from liverank_service.cli.main import main
from tests.liverank.sources.brokers import (
    MAKE_PLACE,
    MESSAGES,
    Process,
    Weights,
    add_entries,
    arguments,
    changes,
    consumer,
    edges_of,
    finish,
    in_jetstream,
    make_queue,
    make_stream,
    make_topic,
    run_here,
    version,
    wait_for,
)
from tests.service.server import Server


def check_exactly_once(
    server: Server,
    options: list[object],
    path: str,
    model: Weights,
    broker: Process | None,
) -> None:
    """Kills the consumer, and the broker, at several places of the stream."""
    with consumer(*options) as process:
        wait_for(lambda: version(server, path) >= 5)
        process.kill()
    if broker is not None:
        before = version(server, path)
        with consumer(*options):
            wait_for(lambda: version(server, path) >= before + 3)
            broker.kill()
            broker.start()
            behind = version(server, path)
            wait_for(lambda: version(server, path) >= behind + 3)
    assert edges_of(server, path) != model, "nothing was left to do after the kills"
    finish(options)
    assert edges_of(server, path) == model


def test_redis_exactly_once(server: Server, redis_broker: Process) -> None:
    path = server.new_graph(weighted=True)
    messages, model = changes()
    add_entries(redis_broker, messages)

    options = arguments(server, path, "redis", f"redis://127.0.0.1:{redis_broker.port}")
    check_exactly_once(server, options, path, model, redis_broker)
    (found,) = server.http.get(f"{path}/sources").json()["sources"]
    with redis.Redis(port=redis_broker.port) as client:
        assert found["position"] == client.xinfo_stream("edges")["last-generated-id"].decode()
    assert found["source"] == "redis:edges"


def test_nats_exactly_once(server: Server, nats_broker: Process) -> None:
    path = server.new_graph(weighted=True)
    messages, model = changes()
    asyncio.run(make_stream(nats_broker.port, "edges"))

    async def publish(jetstream: Any) -> None:
        for first in range(0, len(messages), 200):
            part = messages[first : first + 200]
            await asyncio.gather(*[await jetstream.publish_async("edges", one) for one in part])

    asyncio.run(in_jetstream(nats_broker.port, publish))
    options = arguments(server, path, "nats", f"nats://127.0.0.1:{nats_broker.port}")
    check_exactly_once(server, options, path, model, nats_broker)
    (found,) = server.http.get(f"{path}/sources").json()["sources"]
    assert (found["source"], found["position"]) == ("nats:edges", str(MESSAGES))

    async def purge(jetstream: Any) -> None:
        await jetstream.publish("edges", messages[0])
        await jetstream.publish("edges", messages[0])
        await jetstream.purge_stream("edges")

    asyncio.run(in_jetstream(nats_broker.port, purge))
    with pytest.raises(CannotContinue, match="messages between them are lost"):
        run_here(server, path, "nats", nats_broker.port, "edges")


def test_a_consumer_that_nats_has_removed_is_made_again(
    server: Server, nats_broker: Process
) -> None:
    path = server.new_graph(weighted=True)
    asyncio.run(make_stream(nats_broker.port, "removed"))

    async def publish(jetstream: Any) -> None:
        await jetstream.publish("removed", b'{"source": "a", "target": "b"}')

    async def remove(jetstream: Any) -> None:
        for one in await jetstream.consumers_info("removed"):
            await jetstream.delete_consumer("removed", one.name)

    options = arguments(server, path, "nats", f"nats://127.0.0.1:{nats_broker.port}")
    options[1] = "removed"
    asyncio.run(in_jetstream(nats_broker.port, publish))
    with consumer(*options):
        wait_for(lambda: version(server, path) == 1)
        asyncio.run(in_jetstream(nats_broker.port, remove))
        asyncio.run(in_jetstream(nats_broker.port, publish))
        wait_for(lambda: version(server, path) == 2)
    assert edges_of(server, path) == {("a", "b"): 2.0}


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
            exchange = channel.default_exchange
            bodies = (
                json.dumps(dict(zip(("source", "target"), edge, strict=True))).encode()
                for edge in sent
            )
            messages = (aio_pika.Message(body, delivery_mode=2) for body in bodies)
            # at once: the broker would sync its disk for each confirmation otherwise
            await asyncio.gather(*(exchange.publish(each, "edges") for each in messages))

    asyncio.run(publish())
    options = arguments(server, path, "rabbitmq", address)
    options[options.index("add")] = "replace"
    with consumer(*options) as process:
        wait_for(lambda: version(server, path) >= 5)
        process.kill()
    assert int(server.http.get(path).json()["edges"]) < MESSAGES
    before = version(server, path)
    with consumer(*options):
        wait_for(lambda: version(server, path) >= before + 3)
        rabbitmq_broker.kill()
        behind = version(server, path)
        rabbitmq_broker.start()
        wait_for(lambda: version(server, path) >= behind + 3)
    assert int(server.http.get(path).json()["edges"]) < MESSAGES
    logged = finish(options)
    assert "messages count at least once" in logged
    assert "consuming rabbitmq from the beginning" in logged
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
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker: Process = request.getfixturevalue(f"{kind}_broker")
    monkeypatch.setattr("liverank_service.logs.set_up", lambda _: None)
    caplog.set_level(logging.INFO)
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
    assert "consuming " in caplog.text
    assert "is being executed" not in caplog.text  # what FastStream says of its tasks
    known = {"liverank consume", "redis-cli XADD", "pip install"}
    assert {" ".join(words[:2]) for words in commands} == known


def test_help_needs_no_broker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "faststream", None)
    for given, code, expected in (
        (["--help"], 0, "Consumes a stream of a message broker"),
        (["redis", "edges"], 1, "pip install -e '.[sources]' in the clone of liverank"),
    ):
        with pytest.raises(SystemExit) as end:
            main(["consume", *given])
        assert (end.value.code or 0) == code
        printed = capsys.readouterr()
        assert expected in printed.out + printed.err
