"""A server with an R-MAT graph, and clients beside it on the same machine.

    python -m benchmarks.service overload               12 minutes
    python -m benchmarks.service overload --seconds 10 --overload-seconds 60 --results /tmp
    python -m benchmarks.service feed --rounds 2 --results /tmp
    python -m benchmarks.service connections --connections 1000
    python -m benchmarks.service personalized-http --note "nothing else ran"
    python -m benchmarks.service compare-service --other ../other --other-commit NAME

overload: reads at a fixed rate without writers, beside a stream of batches, and under overload; and
the server's memory. Each batch inserts 500 edges and deletes the 500 that were inserted some
batches before, so the graph keeps its size, and growth of memory would be a leak.

feed: what 100 subscribers cost the batches, and the delay of their events: from the publication of
a revision until a subscriber has read it whole. Two servers hold the graph; one of them has the
subscribers. One writer sends blocks of batches to them in turn: ten batches a second, and then each
batch as soon as the one before it is ranked.

connections: what each takes, and what happens to those beyond the limit. Every connection is opened
before the first request is sent; then each sends one. Needs a limit of open files above their
number.

personalized-http: clients, each on a connection that it keeps, query the first places from random
vertices that are not isolated, one query after the other. The rounds of the parts alternate.

compare-service: durable single edges, and the reads of `overload`, of the servers of two commits in
alternating processes. A figure is the median of that commit's processes; the ratio is this commit's
figure over the other's.
"""

from __future__ import annotations

import http.client
import math
import multiprocessing
import os
import re
import resource
import select
import socket
import time
from collections import Counter
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.clients import (
    BATCH_EDGES,
    POOL,
    SCALE,
    Beside,
    bodies,
    fill,
    percentiles,
    query,
    read,
    requested,
    single_edges,
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


# ---- the change feed ----

BLOCK = 10
PAUSE_SECONDS = 0.3
"""After a block, so that its events do not slow the other server."""

MODES = {"ten a second": 0.1, "back to back": 0.0}
"""Seconds from one batch to the next, at least."""

_PUBLISHED = re.compile(rb'"time":([0-9.]+)')


def subscribe(port: int, subscribers: int, ready: Event, stop: Event) -> Any:
    """Reads the events of many subscribers; returns the time of publication and the delay of each,
    in seconds, the bytes read and the processor time. It parses nothing but the time of
    publication, since it shares the processor with the server.
    """
    poll, received, begun = select.epoll(), 0, 0
    delays: list[tuple[float, float]] = []
    pieces: dict[int, list[bytes]] = {}
    connections = {}
    for _ in range(subscribers):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(b"GET /graphs/default/changes HTTP/1.1\r\nHost: localhost\r\n\r\n")
        connections[connection.fileno()] = connection
        pieces[connection.fileno()] = []
        poll.register(connection.fileno(), select.EPOLLIN)
    while not stop.is_set():
        for place, _ in poll.poll(0.05):
            piece = connections[place].recv(1 << 20)
            assert piece, "the server ended a stream"
            received += len(piece)
            pieces[place].append(piece)
            if not piece.endswith(b"\n\n\r\n"):  # in a chunk of the response
                continue
            arrived = time.time()
            event, pieces[place] = b"".join(pieces[place]), []
            published = _PUBLISHED.findall(event)
            delays += [(float(when), arrived - float(when)) for when in published]
            begun += not published  # the snapshot
            if begun == subscribers:
                ready.set()
    return delays, received, time.process_time()


def block(server: Server, ring: list[bytes], first: int, every: float) -> float:
    """Sends the batches of a block, one every so many seconds; returns the mean seconds of one."""
    connection, taken = http.client.HTTPConnection("127.0.0.1", server.port), []
    connection.connect()
    for number in range(first, first + BLOCK):
        seconds, status, _ = requested(connection, "POST", "batches", ring[number % POOL])
        assert status == 200, status
        taken.append(seconds)
        time.sleep(max(0.0, every - seconds))
    connection.close()
    return sum(taken) / BLOCK


def feed(subscribers: int, rounds: int) -> dict[str, Any]:
    ready = multiprocessing.get_context("fork").Event()
    with Server.temporary() as alone, Server.temporary() as followed:
        servers = (alone, followed)
        for server in servers:
            with Client(server.url) as client:
                fill(client)
        reading = Beside(subscribe, followed.port, subscribers, ready)
        assert ready.wait(60)
        ring = bodies(0)
        seconds: dict[str, list[list[float]]] = {mode: [[], []] for mode in MODES}
        used = {mode: [0.0, 0.0] for mode in MODES}
        began: dict[str, float] = {}
        sent = 0
        for mode, every in MODES.items():
            began[mode] = time.time()
            for number in range(rounds + 1):
                for place in (0, 1) if number % 2 else (1, 0):
                    used_before = servers[place].cpu_seconds
                    taken = block(servers[place], ring, sent, every)
                    time.sleep(PAUSE_SECONDS)
                    if number:  # the first round compiles and fills caches
                        seconds[mode][place].append(taken)
                        used[mode][place] += servers[place].cpu_seconds - used_before
                sent += BLOCK
        delays, received, spent = reading.ended()
    published, delay = np.array(delays).T
    figures: dict[str, Any] = {
        "vertices": 2**SCALE,
        "edges of a batch": BATCH_EDGES,
        "batches to each server": sent,
        "subscribers": subscribers,
        "events read": len(delay),
        "events missed": sent * subscribers - len(delay),
        "bytes of an event": round(received / len(delay)),
        "processor ms of the subscribers a batch": round(1e3 * spent / sent, 1),
    }
    for mode in MODES:
        ends = [began[later] for later in MODES if began[later] > began[mode]]
        inside = (published >= began[mode]) & (published < min(ends, default=np.inf))
        shares = np.percentile(1e3 * delay[inside], (50, 99, 100))
        without, with_them = np.array(seconds[mode])
        for name, milliseconds in zip(("p50", "p99", "largest"), shares, strict=True):
            figures[f"{mode}: delay, ms ({name})"] = round(float(milliseconds), 1)
        for name, values in (("without subscribers", without), ("with them", with_them)):
            figures[f"{mode}: ms a batch {name}"] = round(1e3 * float(np.median(values)), 2)
        ratio = float(np.median(with_them / without))
        figures[f"{mode}: with over without, median of blocks"] = round(ratio, 3)
        for name, each in zip(("without", "with them"), used[mode], strict=True):
            milliseconds = 1e3 * each / (rounds * BLOCK)
            figures[f"{mode}: processor ms of the server a batch {name}"] = round(milliseconds, 1)
    return figures


# ---- connections ----

BEYOND = 500
REQUEST = b"GET /graphs/default/top HTTP/1.1\r\nHost: localhost\r\n\r\n"


def opened(port: int, count: int) -> list[socket.socket]:
    """Connections, each from an address of its own, since one has 28,000 ports."""
    return [
        socket.create_connection(
            ("127.0.0.1", port), 60, source_address=(f"127.0.{1 + number // 5000}.1", 0)
        )
        for number in range(count)
    ]


def closed(connections: list[socket.socket], expected: int) -> int:
    """How many of the connections the server has closed, once that is `expected` or a second has
    passed without another one.
    """
    poll = select.poll()
    found: set[int] = set()
    for connection in connections:
        poll.register(connection, select.POLLIN)
    while len(found) < expected and (ready := poll.poll(1000)):
        for descriptor, _ in ready:
            poll.unregister(descriptor)
            found.add(descriptor)
    return len(found)


def statuses(connections: list[socket.socket]) -> Counter[str]:
    """Sends a request on each, and reads the statuses."""
    for connection in connections:
        connection.sendall(REQUEST)
    return Counter(connection.recv(4096)[9:12].decode() for connection in connections)


def many_connections(connections: int) -> dict[str, Any]:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.environ["LIVERANK_MAX_CONNECTIONS"] = str(connections)
    os.environ["LIVERANK_MAX_CONCURRENT_REQUESTS"] = str(connections)
    os.environ["LIVERANK_SLOW_CLIENT_SECONDS"] = "600"
    with Server.temporary() as server:
        before = server.resident_bytes
        started = time.perf_counter()
        held = opened(server.port, connections)
        seconds = time.perf_counter() - started
        beyond = opened(server.port, BEYOND)
        refused = closed(beyond, BEYOND)
        idle = server.resident_bytes
        answered = statuses(held)
        used = server.resident_bytes
        for connection in (*held, *beyond):
            connection.close()
        server.wait_for("/livez")
    return {
        "limit of open files": hard,
        "connections": connections,
        "opened, 1/s": round(connections / seconds),
        "beyond the limit": BEYOND,
        "of these closed at once": refused,
        "requests answered with 200": answered["200"],
        "requests that failed": answered.total() - answered["200"],
        "resident before, MB": round(before / 1e6),
        "a connection that waits, kB": round((idle - before) / connections / 1e3, 1),
        "a connection after a request, kB": round((used - before) / connections / 1e3, 1),
    }


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
        single_edges(server.port, 32, 1.0)
        before = server.cpu_seconds
        latencies, took = single_edges(server.port, 32, seconds)
        spent = server.cpu_seconds - before
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
            "feed": (feed, {"subscribers": 100, "rounds": 30}),
            "connections": (many_connections, {"connections": 10_000}),
            "personalized-http": (personalized, {"rounds": 5, "queries": 400, "note": ""}),
            "compare-service": (compare, {"seconds": 10.0, "rounds": 5, **both}),
        },
    )
