"""The change feed with many subscribers: the delay of its events, and what it costs the batches.

    python -m benchmarks.feed
    python -m benchmarks.feed --rounds 2 --results /tmp

Two servers hold the same R-MAT graph; one of them has the subscribers. One writer sends blocks of
batches to them in turn: ten batches a second, and then each batch as soon as the one before it is
ranked. The delay of an event is the time from the publication of its revision until a subscriber
has read it whole. Writer, subscribers and servers share the machine.
"""

from __future__ import annotations

import http.client
import multiprocessing
import re
import select
import socket
import time
from multiprocessing.synchronize import Event
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import harness
from benchmarks.overload import BATCH_EDGES, EDGES_PER_VERTEX, POOL, SCALE, bodies
from benchmarks.server import Server
from liverank.client import Client
from liverank_gpu.generate import rmat

SUBSCRIBERS = 100
BLOCK = 10
PAUSE_SECONDS = 0.3
"""After a block, so that its events do not slow the other server."""

MODES = {"ten a second": 0.1, "back to back": 0.0}
"""Seconds from one batch to the next, at least."""

_PUBLISHED = re.compile(rb'"time":([0-9.]+)')


def subscribe(port: int, subscribers: int, ready: Event, stop: Event, results: Any) -> None:
    """Reads the events of many subscribers; puts the time of publication and the delay of each, in
    seconds, the bytes read and the processor time. It parses nothing but the time of publication,
    since it shares the processor with the server.
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
            if begun == subscribers and not ready.is_set():
                ready.set()
    results.put((delays, received, time.process_time()))


def block(
    connection: http.client.HTTPConnection, ring: list[bytes], first: int, every: float
) -> float:
    """Sends the batches of a block, one every so many seconds; returns the mean seconds of one."""
    taken = []
    for number in range(first, first + BLOCK):
        started = time.perf_counter()
        connection.request("POST", "/graphs/default/batches", ring[number % POOL])
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
        taken.append(time.perf_counter() - started)
        time.sleep(max(0.0, every - taken[-1]))
    return sum(taken) / BLOCK


def loaded(server: Server) -> http.client.HTTPConnection:
    """A connection to a server that holds the graph."""
    sources, targets = rmat(SCALE, EDGES_PER_VERTEX, seed=0)
    with Client(server.url) as client:
        client.drop("default")
        client.create("default", keys="integer")
        client.insert("default", pa.table({"source": sources, "target": targets}))
    return http.client.HTTPConnection("127.0.0.1", server.port)


def measured(subscribers: int, rounds: int) -> dict[str, Any]:
    spawn = multiprocessing.get_context("spawn")
    ready, stop, results = spawn.Event(), spawn.Event(), spawn.Queue()
    with Server.temporary() as alone, Server.temporary() as followed:
        connections = [loaded(server) for server in (alone, followed)]
        readers = spawn.Process(
            target=subscribe, args=(followed.port, subscribers, ready, stop, results)
        )
        readers.start()
        assert ready.wait(60)
        ring = bodies(0)
        servers = (alone, followed)
        seconds: dict[str, list[list[float]]] = {mode: [[], []] for mode in MODES}
        used = {mode: [0.0, 0.0] for mode in MODES}
        began: dict[str, float] = {}
        sent = 0
        for mode, every in MODES.items():
            began[mode] = time.time()
            for number in range(rounds + 1):
                for place in (0, 1) if number % 2 else (1, 0):
                    used_before = servers[place].cpu_seconds
                    taken = block(connections[place], ring, sent, every)
                    time.sleep(PAUSE_SECONDS)
                    if number:  # the first round compiles and fills caches
                        seconds[mode][place].append(taken)
                        used[mode][place] += servers[place].cpu_seconds - used_before
                sent += BLOCK
        stop.set()
        delays, received, reading = results.get(timeout=60)
        readers.join()
    published, delay = np.array(delays).T
    figures: dict[str, Any] = {
        "vertices": 2**SCALE,
        "edges of a batch": BATCH_EDGES,
        "batches to each server": sent,
        "subscribers": subscribers,
        "events read": len(delay),
        "events missed": sent * subscribers - len(delay),
        "bytes of an event": round(received / len(delay)),
        "processor ms of the subscribers a batch": round(1e3 * reading / sent, 1),
    }
    for mode in MODES:
        ends = [began[later] for later in MODES if began[later] > began[mode]]
        inside = (published >= began[mode]) & (published < min(ends, default=np.inf))
        percentiles = np.percentile(1e3 * delay[inside], (50, 99, 100))
        without, with_them = np.array(seconds[mode])
        for name, milliseconds in zip(("p50", "p99", "largest"), percentiles, strict=True):
            figures[f"{mode}: delay, ms ({name})"] = round(float(milliseconds), 1)
        for name, values in (("without subscribers", without), ("with them", with_them)):
            figures[f"{mode}: ms a batch {name}"] = round(1e3 * float(np.median(values)), 2)
        ratio = float(np.median(with_them / without))
        figures[f"{mode}: with over without, median of blocks"] = round(ratio, 3)
        for name, spent in zip(("without", "with them"), used[mode], strict=True):
            milliseconds = 1e3 * spent / (rounds * BLOCK)
            figures[f"{mode}: processor ms of the server a batch {name}"] = round(milliseconds, 1)
    return figures


def main() -> None:
    options = harness.parser("The change feed with many subscribers.")
    options.add_argument("--subscribers", type=int, default=SUBSCRIBERS)
    options.add_argument("--rounds", type=int, default=30)
    arguments = options.parse_args()
    figures = measured(arguments.subscribers, arguments.rounds)
    print(figures)
    print(harness.record("feed", "cpu", figures, arguments.results))


if __name__ == "__main__":
    main()
