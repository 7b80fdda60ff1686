"""What durability costs: durable writes a second, the pause for a checkpoint, a warm restart.

    python -m benchmarks.durability
    python -m benchmarks.durability --seconds 1 --pause-edges 100000 --restart-edges 100000

Writes are single edges with ``wait=durable`` and fsync on; the clients run on the same cores as the
server. Pauses are those of the graph's writer, as reported for each of five checkpoints beside a
stream of single edges. A restart is timed after a kill, from the start of the process to the first
rank that is read, and to the newest version in the journal.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from concurrent.futures import Future
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import harness
from benchmarks.pipelines import batch_of, created, load, opened, send
from benchmarks.server import Server
from liverank_gpu.generate import rmat
from liverank_service.errors import NotReady
from liverank_service.pipeline.pipeline import Pipeline

GRAPH = "/graphs/default"
CHECKPOINTS = 5


def main() -> None:
    parser = harness.parser("what durability costs")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--pause-edges", type=int, default=10_000_000)
    parser.add_argument("--restart-edges", type=int, default=50_000_000)
    parser.add_argument("--tail", type=int, default=1000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="liverank-durability-") as folder:
        figures = {
            "load of the machine before": round(os.getloadavg()[0], 2),
            **writes(Path(folder) / "writes", arguments.clients, arguments.seconds),
            **pause(Path(folder) / "pause", arguments.pause_edges),
            **restart(Path(folder) / "restart", arguments.restart_edges, arguments.tail),
        }
    print(json.dumps(figures, indent=1))
    print(harness.record("durability", "cpu", figures, arguments.results))


def writes(data: Path, clients: int, seconds: float) -> dict[str, Any]:
    """Throughput, latency and processor time of durable single edges."""
    server = Server(data)
    server.wait_for("/readyz")
    asyncio.run(send_single_edges(server.port, clients, 1.0))
    before = server.cpu_seconds
    latencies, took = asyncio.run(send_single_edges(server.port, clients, seconds))
    spent = server.cpu_seconds - before
    server.kill()
    latencies.sort()
    return {
        f"durable single edges, {clients} clients, 1/s": round(len(latencies) / took),
        "their latency, ms": {
            "median": round(1e3 * latencies[len(latencies) // 2], 2),
            "99 %": round(1e3 * latencies[int(0.99 * len(latencies))], 2),
        },
        "processor time of the server for one, ms": round(1e3 * spent / len(latencies), 3),
    }


async def send_single_edges(port: int, clients: int, seconds: float) -> tuple[list[float], float]:
    """Seconds of each durable single edge, and of all together."""
    latencies: list[float] = []
    begin = time.perf_counter()
    await asyncio.gather(
        *(_client(port, number, begin + seconds, latencies) for number in range(clients))
    )
    return latencies, time.perf_counter() - begin


async def _client(port: int, number: int, deadline: float, latencies: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sent = 0
    while time.perf_counter() < deadline:
        body = b'{"insert":[["c%d-%d","v%d"]]}' % (number, sent % 977, sent * 7919 % 10_007)
        head = b"POST %s/batches?wait=durable HTTP/1.1\r\nHost: localhost\r\n"
        head += b"Content-Length: %d\r\n\r\n"
        begin = time.perf_counter()
        writer.write(head % (GRAPH.encode(), len(body)) + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 202"):
            raise RuntimeError(answer.decode())
        await reader.readexactly(int(answer.lower().split(b"content-length: ")[1].split()[0]))
        latencies.append(time.perf_counter() - begin)
        sent += 1
    writer.close()


def pause(data: Path, edges: int) -> dict[str, Any]:
    """Pauses for checkpoints, and what they do to the latency of ranked single edges."""
    pipeline = _loaded(data, edges)
    pauses: list[float] = []
    sizes: list[int] = []
    took: list[float] = []
    latencies: list[float] = []
    for number in range(CHECKPOINTS):
        send(pipeline, [number], [number + 1])
        checkpoint = pipeline.checkpoint()
        while not checkpoint.done():
            begin = time.perf_counter()
            send(pipeline, [len(latencies)], [number])
            latencies.append(time.perf_counter() - begin)
        taken = checkpoint.result()
        pauses.append(1e3 * taken.pause_seconds)
        sizes.append(taken.bytes)
        took.append(taken.write_seconds)
    alone = []
    for number in range(50):
        begin = time.perf_counter()
        send(pipeline, [number], [number + 7])
        alone.append(time.perf_counter() - begin)
    edges = pipeline.view.edges
    pipeline.close(NotReady("the benchmark ends"))
    return {
        "edges of the graph that is checkpointed": edges,
        "pause of the writer, ms": {
            "median": round(median(pauses), 1),
            "longest": round(max(pauses), 1),
        },
        "checkpoint, bytes": sizes[-1],
        "checkpoint, s": round(median(took), 2),
        "ranked single edge, ms": {
            "median beside checkpoints": round(1e3 * median(latencies), 1),
            "longest beside checkpoints": round(1e3 * max(latencies), 1),
            "median alone": round(1e3 * median(alone), 1),
            "longest alone": round(1e3 * max(alone), 1),
        },
    }


def restart(data: Path, edges: int, tail: int) -> dict[str, Any]:
    """Restart after a kill, with `tail` batches after the last checkpoint."""
    pipeline = _loaded(data, edges)
    taken = pipeline.checkpoint().result()
    for number in range(tail):
        batch = batch_of(list(range(number, number + 10)), list(range(number + 5, number + 15)))
        ranked: Future[bytes] = Future()
        pipeline.submit(batch, ranked=ranked)
    ranked.result()
    held = pipeline.view.edges
    version = pipeline.view.version
    pipeline.close(NotReady("the benchmark ends"))
    server = Server(data)
    first = server.wait_for(f"{GRAPH}/ranks/1")
    newest = server.wait_for(
        f"{GRAPH}/ranks/1?min_version={version}&timeout=300",
        lambda answer: answer.status_code == 200 and answer.json()["version"] >= version,
    )
    server.kill()
    return {
        "edges of the graph that is restarted": held,
        "its checkpoint, bytes": taken.bytes,
        "batches after it": tail,
        "start to first read, s": round(first, 2),
        "start to the newest version, s": round(newest, 2),
    }


def _loaded(data: Path, edges: int) -> Pipeline:
    """The graph ``default`` of a data directory, with this many edges of an R-MAT graph."""
    pipeline = opened(created(data))
    scale = max(10, (edges // 16).bit_length())
    # R-MAT draws some edges more than once; the graph has them once
    load(pipeline, *rmat(scale, -(-edges // 2**scale), seed=1))
    return pipeline


if __name__ == "__main__":
    main()
