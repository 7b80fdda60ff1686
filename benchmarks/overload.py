"""Reads without writers, beside a stream of batches, and under overload; and the server's memory.

    python -m benchmarks.overload                    the figures of its record: 12 minutes
    python -m benchmarks.overload --seconds 10 --overload-seconds 60 --results /tmp
    python -m benchmarks.overload --other ../other --other-commit b04846f    and another commit

A server holds an R-MAT graph. Each batch inserts 500 edges and deletes the 500 that were inserted
some batches before, so the graph keeps its size, and growth of memory would be a leak. One process
reads ranks at a fixed rate and times each read; another writes. They share the machine with the
server.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import math
import multiprocessing
import re
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks import harness
from benchmarks.server import Server
from liverank.client import Client
from liverank_gpu.generate import rmat

SCALE = 16
EDGES_PER_VERTEX = 16
BATCH_EDGES = 1000
READS_PER_SECOND = 200
BATCHES_PER_SECOND = 10
WRITERS = 300
RINGS = 8
POOL = 16
"""Different batches; each deletes what the one before it in the ring inserted."""


def bodies(seed: int) -> list[bytes]:
    """The batches of a ring, as JSON."""
    random = np.random.default_rng(seed)
    sets = [random.integers(0, 2**SCALE, (BATCH_EDGES // 2, 2)).tolist() for _ in range(POOL)]
    return [
        json.dumps({"insert": sets[number], "delete": sets[number - 1]}).encode()
        for number in range(POOL)
    ]


def read(port: int, stop: Event, answers: Any) -> None:
    """Reads a rank READS_PER_SECOND times a second; puts (seconds, status) of each read."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    random = np.random.default_rng(1)
    taken: list[tuple[float, int]] = []
    due = time.perf_counter()
    while not stop.is_set():
        due += 1 / READS_PER_SECOND
        time.sleep(max(0.0, due - time.perf_counter()))
        vertex = int(random.integers(0, 2**SCALE))
        started = time.perf_counter()
        connection.request("GET", f"/graphs/default/ranks/{vertex}")
        answer = connection.getresponse()
        answer.read()
        taken.append((time.perf_counter() - started, answer.status))
    answers.put(taken)


def write(port: int, stop: Event, answers: Any, writers: int, rate: float | None) -> None:
    """Sends batches; puts (seconds, status) of each.

    rate  batches a second of one writer, which waits for ranks; None for writers that send the next
          batch as soon as the last one is durable, or when a refusal allows it
    """
    sent: list[tuple[float, int]] = []

    rings = [bodies(seed) for seed in range(min(writers, RINGS))]
    wait = "ranked" if rate else "durable"

    async def send(body: bytes, connection: Any) -> tuple[int, float]:
        """The status and, for a refused batch, the seconds of its Retry-After."""
        reader, writer = connection
        writer.write(
            f"POST /graphs/default/batches?wait={wait} HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        assert length
        await reader.readexactly(int(length[1]))
        pause = re.search(rb"retry-after: (\d+)", head, re.IGNORECASE)
        return int(head.split()[1]), float(pause[1]) if pause else 0.0

    async def one(seed: int) -> None:
        connection = await asyncio.open_connection("127.0.0.1", port)
        ring = rings[seed % len(rings)]
        due = time.perf_counter()
        number = 0
        while not stop.is_set():
            if rate:
                due += 1 / rate
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
            started = time.perf_counter()
            status, pause = await send(ring[number % POOL], connection)
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
    answers.put(sent)


def measure(
    server: Server, seconds: float, writers: int, rate: float | None, alone_ms: float | None
) -> dict[str, Any]:
    """Reads, batches and memory over some time with this many writers.

    rate      see `write`
    alone_ms  median of a read without writers, if it is known
    """
    stop = multiprocessing.Event()
    reads: Any = multiprocessing.Queue()
    batches: Any = multiprocessing.Queue()
    processes = [multiprocessing.Process(target=read, args=(server.port, stop, reads))]
    if writers:
        arguments = (server.port, stop, batches, writers, rate)
        processes.append(multiprocessing.Process(target=write, args=arguments))
    for process in processes:
        process.start()
    memory = []
    started = time.monotonic()
    step = max(1.0, seconds / 60)
    while (passed := time.monotonic() - started) < seconds:
        memory.append((round(passed, 1), server.resident_bytes))
        time.sleep(min(step, seconds - passed))
    stop.set()
    of_reads = reads.get(timeout=60)
    of_batches = batches.get(timeout=600) if writers else []
    for process in processes:
        process.join()
    taken = [spent for spent, status in of_batches if status < 300]
    slow = 10 * (alone_ms or math.inf) / 1000
    return {
        "seconds": seconds,
        "reads": len(of_reads),
        "reads_refused": sum(status != 200 for _, status in of_reads),
        "reads_slowed_tenfold": sum(spent > slow for spent, _ in of_reads),
        "read_ms": percentiles([spent for spent, _ in of_reads]),
        "batches_taken": len(taken),
        "batches_refused": sum(status == 429 for _, status in of_batches),
        "batches_failed": sum(status not in (200, 202, 429) for _, status in of_batches),
        "batch_ms": percentiles(taken),
        "memory": memory,
    }


def percentiles(seconds: list[float]) -> dict[str, float] | None:
    """Milliseconds; None for no times."""
    if not seconds:
        return None
    values = np.quantile(np.array(seconds) * 1000, [0.5, 0.99, 0.999, 1.0])
    return dict(zip(("p50", "p99", "p999", "max"), values.round(3).tolist(), strict=True))


def growth(memory: list[tuple[float, int]]) -> float:
    """How much the mean of the last fifth exceeds that of the second; the first is warm-up."""
    fifth = len(memory) // 5
    bytes_held = np.array([held for _, held in memory], float)
    early, late = bytes_held[fifth : 2 * fifth].mean(), bytes_held[-fifth:].mean()
    return round(float(late / early - 1), 4)


def fill(client: Client) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Loads an R-MAT graph into the server; returns the sources and targets sent."""
    client.drop("default")
    client.create("default", keys="integer")
    sources, targets = rmat(SCALE, EDGES_PER_VERTEX, seed=0)
    client.insert("default", pa.table({"source": sources, "target": targets}))
    return sources, targets


def run(server: Server, seconds: float, overload_seconds: float) -> dict[str, Any]:
    """All parts, one after the other."""
    with Client(server.url) as client:
        fill(client)
        client.send("default", vertices=list(range(2**SCALE)))
        info = client.graph("default")
    figures: dict[str, Any] = {"vertices": info.vertices, "edges": info.edges}
    figures["alone"] = measure(server, seconds, 0, None, None)
    alone = figures["alone"]["read_ms"]["p50"]
    figures["stream"] = measure(server, seconds, 1, BATCHES_PER_SECOND, alone)
    figures["overload"] = overload = measure(server, overload_seconds, WRITERS, None, alone)
    overload["writers"] = WRITERS
    overload["memory_growth"] = growth(overload["memory"])
    overload["read_p50_over_alone"] = round(overload["read_ms"]["p50"] / alone, 2)
    return figures


def main() -> None:
    parser = harness.parser("reads and memory without writers, beside a stream, and under overload")
    parser.add_argument("--seconds", type=float, default=60, help="of each part but overload")
    parser.add_argument("--overload-seconds", type=float, default=600)
    parser.add_argument("--other", type=Path, help="checkout of another commit, measured first")
    parser.add_argument("--other-commit", help="its name in the record")
    parser.add_argument("--note", default="", help="what else the machine did meanwhile")
    arguments = parser.parse_args()
    seconds = (arguments.seconds, arguments.overload_seconds)
    other = {}
    if arguments.other:
        with Server.temporary(arguments.other.resolve()) as server:
            other = {"commit": arguments.other_commit, **run(server, *seconds)}
    with Server.temporary() as server:
        figures = run(server, *seconds)
    if other:
        figures["other"] = other
    figures["note"] = arguments.note
    print(json.dumps({name: part for name, part in figures.items() if name != "memory"}, indent=1))
    print(harness.record("overload", "cpu", figures, arguments.results))


if __name__ == "__main__":
    main()
