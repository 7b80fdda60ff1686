"""Messages, places and brokers that `liverank consume` cannot use, with real brokers."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import aio_pika
import pytest
import redis

from liverank.sources.consumer import LETTER_BYTES, CannotContinue
from tests.liverank.sources.brokers import (
    Process,
    add_entries,
    arguments,
    changes,
    consumer,
    edges_of,
    free_port,
    make_queue,
    redis_server,
    run_here,
    version,
    wait_for,
)
from tests.service.server import Server


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


def test_what_redis_refuses_to_read_stops_consumption(
    server: Server, redis_broker: Process
) -> None:
    path = server.new_graph(weighted=True)
    with redis.Redis(port=redis_broker.port) as client:
        client.rpush("list", "a")
    with pytest.raises(CannotContinue, match="WRONGTYPE"):
        run_here(server, path, "redis", redis_broker.port, "list")


def test_messages_that_cannot_be_used_are_passed_on_with_the_reason(
    server: Server, redis_broker: Process
) -> None:
    path = server.new_graph(weighted=True)
    good = b'{"source": "a", "target": "b", "weight": 2}'
    # the server alone knows which weights are too small
    bad = [b'{"source": "\xff"}', b'{"source": 1, "target": "b"}', good.replace(b"2", b"-2"), b"[]"]
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


@pytest.mark.parametrize(
    ("kind", "scheme"),
    [("redis", "redis"), ("nats", "nats"), ("kafka", "kafka"), ("rabbitmq", "amqp")],
)
def test_idle_ends_it_while_the_broker_is_away(server: Server, kind: str, scheme: str) -> None:
    options = arguments(server, server.new_graph(), kind, f"{scheme}://127.0.0.1:{free_port()}")
    with consumer(*options, "--on-conflict", "replace", "--idle", 2) as process:
        printed, logged = process.communicate(timeout=60)
    assert (process.returncode, printed) == (1, "")
    assert f"liverank: no message for 2 s: {kind}: " in logged


def test_idle_ends_it_while_the_stream_is_missing(server: Server, nats_broker: Process) -> None:
    path = server.new_graph()
    options = arguments(server, path, "nats", f"nats://127.0.0.1:{nats_broker.port}")
    options[1] = "not.there"
    with consumer(*options, "--on-conflict", "replace", "--idle", 2) as process:
        _, logged = process.communicate(timeout=60)
    reason = "nats: no stream has subject 'not.there'"
    assert (process.returncode, logged.splitlines()[-1]) == (
        1,
        f"liverank: no message for 2 s: {reason}",
    )


def test_idle_ends_it_while_the_server_is_away(server: Server, redis_broker: Process) -> None:
    options = arguments(server, "/x/y", "redis", f"redis://127.0.0.1:{redis_broker.port}")
    options[options.index("--url") + 1] = f"http://127.0.0.1:{free_port()}"
    with consumer(*options, "--idle", 2) as process:
        _, logged = process.communicate(timeout=60)
    assert process.returncode == 1
    assert logged.splitlines()[-1].startswith("liverank: no message for 2 s: no answer from ")


def test_a_message_of_100_mb_is_passed_on_and_consumption_goes_on(
    server: Server, redis_broker: Process
) -> None:
    path = server.new_graph(weighted=True)
    good = b'{"source": "a", "target": "b"}'
    place, size = "large", 100_000_000
    large = b'{"source": "' + b"a" * (size - 29) + b'", "target": "b"}'
    add_entries(redis_broker, [good, large, good], place)
    options = arguments(server, path, "redis", f"redis://127.0.0.1:{redis_broker.port}")
    options[options.index("edges")] = place
    with consumer(*options, "--dead-letter", "large-dead") as process:
        wait_for(lambda: edges_of(server, path) == {("a", "b"): 2.0})
        status = Path(f"/proc/{process.pid}/status").read_text()
    with redis.Redis(port=redis_broker.port) as client:
        ((_, fields),) = client.xrange("large-dead")
        client.delete(place)
    letter = json.loads(fields[b"data"])
    assert letter["reason"] == "message of 100,000,000 bytes exceeds the 16 MiB limit"
    assert (letter["bytes"], len(letter["body"])) == (size, LETTER_BYTES)
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert peak is not None
    assert int(peak[1]) * 1024 < 6 * size


def test_a_dead_letter_that_no_queue_of_rabbitmq_gets_stops_consumption(
    server: Server, rabbitmq_broker: Process
) -> None:
    path = server.new_graph(weighted=True)
    port = rabbitmq_broker.port
    for queue in ("poison", "poison-dead"):
        asyncio.run(make_queue(port, queue))

    async def in_channel(letters: bool) -> list[bytes]:
        async with await aio_pika.connect(f"amqp://127.0.0.1:{port}") as connection:
            channel = await connection.channel()
            if not letters:
                await channel.default_exchange.publish(aio_pika.Message(b"no edge"), "poison")
                return []
            queue = await channel.declare_queue("poison-dead", durable=True)
            letter = await queue.get(no_ack=True)
            assert letter is not None
            return [letter.body]

    asyncio.run(in_channel(letters=False))
    with pytest.raises(CannotContinue, match="NO_ROUTE"):
        run_here(server, path, "rabbitmq", port, "poison", "nowhere")
    assert run_here(server, path, "rabbitmq", port, "poison", "poison-dead") == 1
    (letter,) = map(json.loads, asyncio.run(in_channel(letters=True)))
    assert letter["body"] == "no edge"
