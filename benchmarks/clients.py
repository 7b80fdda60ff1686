"""Clients of a server, in processes beside it, on the same machine."""

from __future__ import annotations

import asyncio
import http.client
import json
import multiprocessing
import re
import threading
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.server import Server
from liverank.client import Client
from liverank_gpu.generate import rmat

SCALE, EDGES_PER_VERTEX = 16, 16
"""Of the R-MAT graph that servers hold."""

BATCH_EDGES = 1000
RINGS = 8
POOL = 16
"""Different batches; each deletes what the one before it in the ring inserted."""

READS_PER_SECOND = 200

Answers = list[tuple[float, int]]
"""Seconds of each request, and the status of its answer."""


class Beside:
    """A client in a process of its own: calls `work` with these arguments and an event, which is
    set when the client is to end.
    """

    def __init__(self, work: Callable[..., Any], *arguments: Any) -> None:
        fork = multiprocessing.get_context("fork")
        self._stop, self._answers = fork.Event(), fork.Queue()
        self._process = fork.Process(
            target=_answer, args=(self._answers, work, *arguments, self._stop)
        )
        self._process.start()

    def ended(self, *, stop: bool = True) -> Any:
        """What the client returned, once it has; `stop` tells it to end."""
        if stop:
            self._stop.set()
        answer = self._answers.get(timeout=600)
        self._process.join()
        return answer


def _answer(answers: Any, work: Callable[..., Any], *arguments: Any) -> None:
    answers.put(work(*arguments))


def percentiles(seconds: list[float]) -> dict[str, float] | None:
    """Milliseconds; None for no times."""
    if not seconds:
        return None
    values = np.quantile(np.array(seconds) * 1000, [0.5, 0.99, 0.999, 1.0])
    return dict(zip(("p50", "p99", "p999", "max"), values.round(3).tolist(), strict=True))


def fill(client: Client) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Loads an R-MAT graph into the server; returns the sources and targets sent."""
    client.drop("default")
    client.create("default", keys="integer")
    sources, targets = rmat(SCALE, EDGES_PER_VERTEX, seed=0)
    client.insert("default", pa.table({"source": sources, "target": targets}))
    return sources, targets


def bodies(seed: int, edges: int = BATCH_EDGES) -> list[bytes]:
    """The batches of a ring, as JSON."""
    random = np.random.default_rng(seed)
    sets = [random.integers(0, 2**SCALE, (edges // 2, 2)).tolist() for _ in range(POOL)]
    return [
        json.dumps({"insert": sets[number], "delete": sets[number - 1]}).encode()
        for number in range(POOL)
    ]


def requested(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None
) -> tuple[float, int, bytes]:
    """Seconds, status and body of an answer of the graph ``default``."""
    started = time.perf_counter()
    connection.request(method, f"/graphs/default/{path}", body)
    answer = connection.getresponse()
    read = answer.read()
    return time.perf_counter() - started, answer.status, read


def read(port: int, stop: Event) -> Answers:
    """Reads a rank READS_PER_SECOND times a second."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    random, taken, due = np.random.default_rng(1), Answers(), time.perf_counter()
    while not stop.is_set():
        due += 1 / READS_PER_SECOND
        time.sleep(max(0.0, due - time.perf_counter()))
        vertex = int(random.integers(0, 2**SCALE))
        taken.append(requested(connection, "GET", f"ranks/{vertex}")[:2])
    return taken


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def post(connection: Connection, wait: str, body: bytes) -> tuple[int, float]:
    """Sends a batch. The status and, for a refused batch, the seconds of its Retry-After."""
    reader, writer = connection
    writer.write(
        b"POST /graphs/default/batches?wait=%b HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (wait.encode(), len(body), body)
    )
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    assert length
    await reader.readexactly(int(length[1]))
    pause = re.search(rb"retry-after: (\d+)", head, re.IGNORECASE)
    return int(head.split(maxsplit=2)[1]), float(pause[1]) if pause else 0.0


def write(port: int, writers: int, rate: float | None, edges: int, stop: Event) -> Answers:
    """Sends batches of so many edges.

    rate  batches a second of one writer, which waits for ranks; None for writers that send the next
          batch as soon as the last one is durable, or when a refusal allows it
    """
    sent = Answers()
    rings = [bodies(seed, edges) for seed in range(min(writers, RINGS))]
    wait = "ranked" if rate else "durable"

    async def one(seed: int) -> None:
        connection = await asyncio.open_connection("127.0.0.1", port)
        ring, due, number = rings[seed % len(rings)], time.perf_counter(), 0
        while not stop.is_set():
            if rate:
                due += 1 / rate
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
            started = time.perf_counter()
            status, pause = await post(connection, wait, ring[number % POOL])
            sent.append((time.perf_counter() - started, status))
            number += not pause
            if pause:
                await asyncio.sleep(pause)
                if connection[0].at_eof():  # idle for too long
                    connection[1].close()
                    connection = await asyncio.open_connection("127.0.0.1", port)
        connection[1].close()

    async def all_writers() -> None:
        await asyncio.gather(*(one(seed) for seed in range(writers)))

    asyncio.run(all_writers())
    return sent


def single_edges(port: int, clients: int, seconds: float) -> tuple[list[float], float]:
    """Seconds of each durable single edge, and of all together."""
    latencies: list[float] = []

    async def one(client: int) -> None:
        connection, sent = await asyncio.open_connection("127.0.0.1", port), 0
        while time.perf_counter() < begun + seconds:
            body = b'{"insert":[["c%d-%d","v%d"]]}' % (client, sent % 977, sent * 7919 % 10_007)
            started = time.perf_counter()
            status, _ = await post(connection, "durable", body)
            assert status == 202, status
            latencies.append(time.perf_counter() - started)
            sent += 1
        connection[1].close()

    async def all_clients() -> None:
        await asyncio.gather(*map(one, range(clients)))

    begun = time.perf_counter()
    asyncio.run(all_clients())
    return latencies, time.perf_counter() - begun


def timed_edges(server: Server, clients: int, seconds: float) -> tuple[list[float], float, float]:
    """What `single_edges` returns, and the processor time of the server; a second before is not
    counted.
    """
    single_edges(server.port, clients, 1.0)
    before = server.cpu_seconds
    latencies, took = single_edges(server.port, clients, seconds)
    return latencies, took, server.cpu_seconds - before


def query(port: int, path: str, vertices: list[list[int]], _: Event) -> list[dict[str, Any]]:
    """The answers to queries for vertices, with their `seconds`; each client has a list of vertices
    and a connection.

    path  with a place for the vertex
    """
    taken: list[dict[str, Any]] = []

    def one(own: list[int]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for vertex in own:
            seconds, status, body = requested(connection, "GET", path.format(vertex))
            assert status == 200, body
            taken.append(json.loads(body) | {"seconds": seconds})
        connection.close()

    threads = [threading.Thread(target=one, args=(own,)) for own in vertices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return taken
