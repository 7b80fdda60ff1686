"""Single edges from message brokers into a graph: `liverank consume`.

    python -m benchmarks.sources
    python -m benchmarks.sources --edges 50000 --results /tmp

A stream of single edges, JSON, is waiting in the broker. The time is that from the start of the
consumer until its last batch is on disk. Broker, consumer and server share the machine.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import redis
from nats import connect
from nats.js.api import StreamConfig

from benchmarks import harness
from benchmarks.clients import SCALE, fill
from benchmarks.server import Server
from liverank.client import Client
from liverank.sources.broker import Address
from liverank.sources.consumer import Target
from liverank.sources.session import consume

PLACE = "edges"
PORTS = {"redis": 16_379, "nats": 14_222}
IDLE_SECONDS = 2.0

BrokerName = Literal["redis", "nats"]


@contextmanager
def running(broker: BrokerName, directory: Path) -> Iterator[None]:
    port = str(PORTS[broker])
    if broker == "redis":
        command = ["redis-server", "--port", port, "--dir", str(directory), "--save", ""]
        command += ["--appendonly", "yes", "--appendfsync", "everysec"]
    else:
        wheel = Path(sysconfig.get_path("scripts")) / "nats-server"
        command = [shutil.which("nats-server") or str(wheel), "-p", port, "-js"]
        command += ["-sd", str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(2)
        yield
    finally:
        process.terminate()
        process.wait()


def fill_redis(messages: list[bytes]) -> None:
    with redis.Redis(port=PORTS["redis"]) as client:
        for first in range(0, len(messages), 10_000):
            pipeline = client.pipeline(transaction=False)
            for message in messages[first : first + 10_000]:
                pipeline.xadd(PLACE, {"data": message})
            pipeline.execute()


def fill_nats(messages: list[bytes]) -> None:
    async def fill() -> None:
        client = await connect(f"nats://127.0.0.1:{PORTS['nats']}")
        jetstream = client.jetstream()
        await jetstream.add_stream(StreamConfig(name="graph", subjects=[PLACE]))
        for first in range(0, len(messages), 1000):
            part = messages[first : first + 1000]
            await asyncio.gather(*[await jetstream.publish_async(PLACE, one) for one in part])
        await client.close()

    asyncio.run(fill())


FILL: dict[BrokerName, Callable[[list[bytes]], None]] = {"redis": fill_redis, "nats": fill_nats}


def consumed(url: str, broker: BrokerName, name: str, size: int) -> tuple[float, int]:
    """Seconds until the last message is on disk, and the number of batches."""
    address = Address(f"{broker}://127.0.0.1:{PORTS[broker]}", PLACE, size=size)
    with Client(url) as client:
        before = client.graph("default").version
        began = time.time()
        consume(url, broker, address, Target("default", name), IDLE_SECONDS)
        (ended,) = [one.time for one in client.sources("default") if one.source == name]
        return ended - began, client.graph("default").version - before


def measured(edges: int, rounds: int, sizes: list[int]) -> dict[str, Any]:
    figures: dict[str, Any] = {"vertices": 2**SCALE, "single edges": edges, "rounds": rounds}
    generator = np.random.default_rng(1)
    pairs = generator.integers(0, 2**SCALE, (edges, 2)).tolist()
    messages = [
        json.dumps({"source": source, "target": target}).encode() for source, target in pairs
    ]
    for broker in FILL:
        with (
            TemporaryDirectory() as folder,
            running(broker, Path(folder)),
            Server.temporary() as server,
        ):
            FILL[broker](messages)
            with Client(server.url) as client:
                fill(client)
            consumed(server.url, broker, "warm", sizes[-1])
            for size in sizes:
                seconds, batches = [], 0
                for number in range(rounds):
                    name = f"{broker} {size} {number}"
                    taken, batches = consumed(server.url, broker, name, size)
                    seconds.append(taken)
                place = f"{broker}, groups of {size:,}"
                figures[f"{place}: edges/s"] = round(edges / float(np.median(seconds)))
                figures[f"{place}: edges/s, largest"] = round(edges / min(seconds))
                figures[f"{place}: batches"] = batches
    return figures


if __name__ == "__main__":
    sizes = [10_000, 50_000]
    harness.run(__doc__, {"sources": (measured, {"edges": 400_000, "rounds": 3, "sizes": sizes})})
