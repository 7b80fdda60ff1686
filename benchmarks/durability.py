"""What durability costs: durable writes a second, the pause for a checkpoint, a warm restart.

    python -m benchmarks.durability
    python -m benchmarks.durability --seconds 1 --pause-edges 100000 --restart-edges 100000

Writes are single edges with ``wait=durable`` and fsync on; the clients run on the same cores as the
server. Pauses are those of the graph's writer, as reported for each of five checkpoints beside a
stream of single edges. A restart is timed after a kill, from the start of the process to the first
rank that is read, and to the newest version in the journal.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from concurrent.futures import Future
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

from benchmarks.clients import timed_edges
from benchmarks.harness import run
from benchmarks.server import Server
from liverank_gpu import Options, Solve
from liverank_gpu.generate import rmat
from liverank_service.errors import NotReady
from liverank_service.formats.columns import EdgeColumns
from liverank_service.pipeline.batch import Batch
from liverank_service.pipeline.checkpointer import CheckpointLimits
from liverank_service.pipeline.pipeline import Pipeline
from liverank_service.storage.graph_store import MANIFEST_FORMAT
from liverank_service.storage.journal import Journal

_EDGES_A_BATCH = 10_000_000
GRAPH = "/graphs/default"
CHECKPOINTS = 5


def created(data: Path) -> Path:
    """The directory of a new graph ``default`` with integer keys."""
    directory = data / "graphs" / "default"
    directory.mkdir(parents=True)
    manifest = {"format": MANIFEST_FORMAT, "options": {"keys": "integer"}}
    (directory / "graph.json").write_text(json.dumps(manifest))
    Journal.create(directory / "journal.db")
    return directory


def send(pipeline: Pipeline, sources: Any, targets: Any) -> None:
    """Inserts the edges in large batches, and ranks them."""
    for first in range(0, len(sources), _EDGES_A_BATCH):
        part = slice(first, first + _EDGES_A_BATCH)
        durable, ranked = Future[int](), Future[bytes]()
        pipeline.submit(batch_of(sources[part], targets[part]), durable=durable, ranked=ranked)
        durable.result()
    ranked.result()


def batch_of(sources: Any, targets: Any) -> Batch:
    """Of insertions."""
    nothing = pa.array([], pa.int64())
    ends = pa.array(sources, pa.int64()), pa.array(targets, pa.int64())
    return Batch.of(EdgeColumns(*ends, nothing, nothing, nothing), b"", Solve())


def writes(data: Path, clients: int, seconds: float) -> dict[str, Any]:
    """Throughput, latency and processor time of durable single edges."""
    server = Server(data)
    server.wait_for("/readyz")
    latencies, took, spent = timed_edges(server, clients, seconds)
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
    on_request = CheckpointLimits(1 << 40, 1e9)
    pipeline = Pipeline("default", created(data), Options(), "integer", "cpu", on_request)
    pipeline.recover()
    pipeline.wait_until_open()
    scale = max(10, (edges // 16).bit_length())
    # R-MAT draws some edges more than once; the graph has them once
    send(pipeline, *rmat(scale, -(-edges // 2**scale), seed=1))
    return pipeline


def measured(
    clients: int, seconds: float, pause_edges: int, restart_edges: int, tail: int
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="liverank-durability-") as folder:
        return {
            "load of the machine before": round(os.getloadavg()[0], 2),
            **writes(Path(folder) / "writes", clients, seconds),
            **pause(Path(folder) / "pause", pause_edges),
            **restart(Path(folder) / "restart", restart_edges, tail),
        }


if __name__ == "__main__":
    options = {"clients": 32, "seconds": 5.0, "pause_edges": 10_000_000}
    options |= {"restart_edges": 50_000_000, "tail": 1000}
    run(__doc__, {"durability": (measured, options)})
