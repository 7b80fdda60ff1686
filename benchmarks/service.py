"""A server with an R-MAT graph, and clients beside it on the same machine.

    python -m benchmarks.service overload               12 minutes
    python -m benchmarks.service overload --seconds 10 --overload-seconds 60 --results /tmp
    python -m benchmarks.service personalized-http --note "nothing else ran"
    python -m benchmarks.service compare-service --other ../other --other-commit NAME

overload: reads at a fixed rate without writers, beside a stream of batches, and under overload; and
the server's memory. Each batch inserts 500 edges and deletes the 500 that were inserted some
batches before, so the graph keeps its size, and growth of memory would be a leak.

personalized-http: clients, each on a connection that it keeps, query the first places from random
vertices that are not isolated, one query after the other. The rounds of the parts alternate.

compare-service: durable single edges, and the reads of `overload`, of the servers of two commits in
alternating processes. A figure is the median of that commit's processes; the ratio is this commit's
figure over the other's.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.clients import (
    BATCH_EDGES,
    SCALE,
    Beside,
    fill,
    percentiles,
    query,
    read,
    timed_edges,
    write,
)
from benchmarks.server import Server
from liverank.client import Client

BATCHES_PER_SECOND = 10
WRITERS = 300

# ---- overload ----


def reads(
    server: Server, seconds: float, writers: int, rate: float | None, alone_ms: float | None
) -> dict[str, Any]:
    """Reads, batches and memory over some time with this many writers.

    rate      see benchmarks.clients.write
    alone_ms  median of a read without writers, if it is known
    """
    reading = Beside(read, server.port)
    writing = Beside(write, server.port, writers, rate, BATCH_EDGES) if writers else None
    memory = []
    started = time.monotonic()
    step = max(1.0, seconds / 60)
    while (passed := time.monotonic() - started) < seconds:
        memory.append((round(passed, 1), server.resident_bytes))
        time.sleep(min(step, seconds - passed))
    of_reads = reading.ended()
    of_batches = writing.ended() if writing else []
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


def growth(memory: list[tuple[float, int]]) -> float:
    """How much the mean of the last fifth exceeds that of the second; the first is warm-up."""
    fifth = len(memory) // 5
    bytes_held = np.array([held for _, held in memory], float)
    early, late = bytes_held[fifth : 2 * fifth].mean(), bytes_held[-fifth:].mean()
    return round(float(late / early - 1), 4)


def filled(server: Server) -> Any:
    """What the server says of the graph, once it holds it, with the vertices that have no edge."""
    with Client(server.url) as client:
        fill(client)
        client.send("default", vertices=list(range(2**SCALE)))
        return client.graph("default")


def overload(seconds: float, overload_seconds: float, note: str) -> dict[str, Any]:
    with Server.temporary() as server:
        info = filled(server)
        alone = reads(server, seconds, 0, None, None)
        alone_ms = alone["read_ms"]["p50"]
        stream = reads(server, seconds, 1, BATCHES_PER_SECOND, alone_ms)
        under = reads(server, overload_seconds, WRITERS, None, alone_ms)
    under["writers"] = WRITERS
    under["memory_growth"] = growth(under["memory"])
    under["read_p50_over_alone"] = round(under["read_ms"]["p50"] / alone_ms, 2)
    parts = {"alone": alone, "stream": stream, "overload": under}
    return {"vertices": info.vertices, "edges": info.edges, **parts, "note": note}


# ---- personalized queries ----

CLIENTS = (1, 4, 16)
K, TARGET_ERROR = 10, 1e-4
EDGES_BESIDE = 100
"""Of a batch beside queries."""


def personalized(rounds: int, queries: int, note: str) -> dict[str, Any]:
    parts = [(clients, False) for clients in CLIENTS] + [(4, True)]
    taken: dict[tuple[int, bool], list[dict[str, Any]]] = {part: [] for part in parts}
    spent: list[float] = []
    random, path = np.random.default_rng(0), f"personalized/{{}}?k={K}&target_error={TARGET_ERROR}"
    with Server.temporary() as server, Client(server.url) as client:
        connected = np.unique(np.concatenate(fill(client)))
        info = client.graph("default")
        for number in range(rounds + 1):
            for clients, beside in parts:
                vertices = random.choice(connected, (clients, queries // clients)).tolist()
                arguments = (server.port, 1, BATCHES_PER_SECOND, EDGES_BESIDE)
                writing = Beside(write, *arguments) if beside else None
                found = Beside(query, server.port, path, vertices).ended(stop=False)
                written = writing.ended() if writing else []
                if number > 0:  # the first round is warm-up
                    taken[clients, beside] += found
                    spent += [seconds for seconds, _ in written]
    assert all(each["error_bound"] <= TARGET_ERROR for found in taken.values() for each in found)
    return {
        "vertices": info.vertices,
        "edges": info.edges,
        "k": K,
        "target_error": TARGET_ERROR,
        "batches_per_second": BATCHES_PER_SECOND,
        "batch_edges": EDGES_BESIDE,
        "rows": [
            {
                "clients": clients,
                "batches": beside,
                "queries": len(found),
                "ms": percentiles([each["seconds"] for each in found]),
                "median_iterations": float(np.median([each["iterations"] for each in found])),
            }
            for (clients, beside), found in taken.items()
        ],
        "batch_ms": percentiles(spent),
        "note": note,
    }


# ---- two commits ----


def _figures(tree: Path, seconds: float) -> dict[str, float]:
    """The figures of one process with the code of this checkout."""
    figures = {}
    with Server.temporary(tree) as server:
        latencies, took, spent = timed_edges(server, 32, seconds)
        figures["durable single edge, interval, ms"] = 1e3 * took / len(latencies)
        figures["durable single edge, latency, ms"] = 1e3 * median(latencies)
        figures["durable single edge, processor time, ms"] = 1e3 * spent / len(latencies)
    with Server.temporary(tree) as server:
        filled(server)
        for name, writers in {"alone": 0, "beside writes": 1}.items():
            before = server.cpu_seconds
            found = reads(server, seconds, writers, BATCHES_PER_SECOND, None)
            spent = server.cpu_seconds - before
            assert found["reads_refused"] == 0
            figures[f"read {name}, median, ms"] = found["read_ms"]["p50"]
            figures[f"read {name}, 99 %, ms"] = found["read_ms"]["p99"]
            figures[f"processor time a second, reads {name}, ms"] = 1e3 * spent / seconds
            if writers:
                figures["ranked batch of 1,000, ms"] = found["batch_ms"]["p50"]
    return figures


def compare(other: Path, other_commit: str, seconds: float, rounds: int) -> dict[str, Any]:
    rows = harness.compared(other, rounds, lambda tree: _figures(tree, seconds), median)
    return {"other commit": other_commit, "rows": rows}


if __name__ == "__main__":
    lengths = {"seconds": 60.0, "overload_seconds": 600.0, "note": ""}
    both = {"other": Path, "other_commit": str}
    harness.run(
        __doc__,
        {
            "overload": (overload, lengths),
            "personalized-http": (personalized, {"rounds": 5, "queries": 400, "note": ""}),
            "compare-service": (compare, {"seconds": 10.0, "rounds": 5, **both}),
        },
    )
