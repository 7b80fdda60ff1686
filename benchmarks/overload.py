"""Reads while batches are applied, and while far too many are sent; and the server's memory then.

    python -m benchmarks.overload                    the figures of docs/performance.md: 12 minutes
    python -m benchmarks.overload --seconds 10 --overload-seconds 60 --results /tmp

A server of its own (a process, the cpu backend, loopback) holds an R-MAT graph. Each batch inserts
500 edges and deletes the 500 that were inserted some batches before, so that the graph stays as
large as it is and growth would be a leak. One process reads ranks at a fixed rate and times each
read; others write. They share the machine with the server.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import math
import multiprocessing
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import RESULTS, record
from gpu.generate import rmat
from service.client import Client

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
    random = np.random.default_rng(seed)
    sets = [random.integers(0, 2**SCALE, (BATCH_EDGES // 2, 2)).tolist() for _ in range(POOL)]
    return [
        json.dumps({"insert": sets[number], "delete": sets[number - 1]}).encode()
        for number in range(POOL)
    ]


def read(port: int, stop: Event, answers: Any) -> None:
    """Reads a rank, `READS_PER_SECOND` times a second; puts (seconds, status) of each read."""
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
    """Sends batches: one writer at a rate, who waits for ranks; or many, each as fast as a batch is
    durable, who wait for as long as a refusal says.

    Puts (seconds, status) of each batch.
    """
    sent: list[tuple[float, int]] = []

    rings = [bodies(seed) for seed in range(min(writers, RINGS))]
    wait = "ranked" if rate else "durable"

    async def send(body: bytes, connection: Any) -> tuple[int, float]:
        """Status and, where the batch was refused, the seconds to wait."""
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

    async def all_of_them() -> None:
        await asyncio.gather(*(one(seed) for seed in range(writers)))

    asyncio.run(all_of_them())
    answers.put(sent)


def measure(
    port: int, pid: int, seconds: float, writers: int, rate: float | None, alone_ms: float | None
) -> dict[str, Any]:
    """Reads, batches and memory over some time of so many writers.

    alone_ms  median of a read without writers, where it is known
    """
    stop = multiprocessing.Event()
    reads: Any = multiprocessing.Queue()
    batches: Any = multiprocessing.Queue()
    processes = [multiprocessing.Process(target=read, args=(port, stop, reads))]
    if writers:
        arguments = (port, stop, batches, writers, rate)
        processes.append(multiprocessing.Process(target=write, args=arguments))
    for process in processes:
        process.start()
    memory = []
    started = time.monotonic()
    step = max(1.0, seconds / 60)
    while (passed := time.monotonic() - started) < seconds:
        memory.append((round(passed, 1), resident(pid)))
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
    if not seconds:
        return None
    values = np.quantile(np.array(seconds) * 1000, [0.5, 0.99, 0.999, 1.0])
    return dict(zip(("p50", "p99", "p999", "max"), values.round(3).tolist(), strict=True))


def resident(pid: int) -> int:
    """Bytes that the process has in memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) * 1024


def growth(memory: list[tuple[float, int]]) -> float:
    """The last fifth's mean over that of the second fifth; the first is warm-up."""
    fifth = len(memory) // 5
    bytes_held = np.array([held for _, held in memory], float)
    early, late = bytes_held[fifth : 2 * fifth].mean(), bytes_held[-fifth:].mean()
    return round(float(late / early - 1), 4)


def serve(folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """The server, and its port; its log is a file, which never makes it wait."""
    options = ["--data", str(folder / "data"), "--port", "0", "--backend", "cpu"]
    log = folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "service.cli", "serve", *options], stderr=file
        )
    while process.poll() is None:
        if found := re.search(r"http://127.0.0.1:(\d+)", log.read_text()):
            return process, int(found[1])
        time.sleep(0.05)
    raise RuntimeError(f"the server did not start: {log.read_text()}")


@contextmanager
def serving() -> Iterator[tuple[int, int]]:
    """A server of its own: its process, and its port."""
    with tempfile.TemporaryDirectory() as folder:
        process, port = serve(Path(folder))
        try:
            yield process.pid, port
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def fill(client: Client) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Puts an R-MAT graph into the server, once it is ready; the sources and targets sent."""
    import pyarrow as pa

    while not client.ready():
        time.sleep(0.1)
    client.drop("default")
    client.create("default", keys="integer")
    sources, targets = rmat(SCALE, EDGES_PER_VERTEX, seed=0)
    client.send_columns("default", pa.array(sources), pa.array(targets))
    return sources, targets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="of each quiet part")
    parser.add_argument("--overload-seconds", type=float, default=600)
    parser.add_argument("--note", default="", help="what else the machine did meanwhile")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with serving() as (pid, port):
        figures = run(pid, port, arguments.seconds, arguments.overload_seconds)
    figures["note"] = arguments.note
    print(json.dumps({name: part for name, part in figures.items() if name != "memory"}, indent=1))
    record("overload", "cpu", figures, arguments.results)


def run(pid: int, port: int, seconds: float, overload_seconds: float) -> dict[str, Any]:
    with Client(f"http://127.0.0.1:{port}") as client:
        fill(client)
        client.send("default", vertices=list(range(2**SCALE)))
        info = client.graph("default")
    figures: dict[str, Any] = {"vertices": info["vertices"], "edges": info["edges"]}
    figures["alone"] = measure(port, pid, seconds, 0, None, None)
    alone = figures["alone"]["read_ms"]["p50"]
    figures["stream"] = measure(port, pid, seconds, 1, BATCHES_PER_SECOND, alone)
    figures["overload"] = overload = measure(port, pid, overload_seconds, WRITERS, None, alone)
    overload["memory_growth"] = growth(overload["memory"])
    overload["read_p50_over_alone"] = round(overload["read_ms"]["p50"] / alone, 2)
    return figures


if __name__ == "__main__":
    main()
