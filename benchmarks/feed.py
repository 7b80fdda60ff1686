"""The change feed with many subscribers: the delay of its events, and what it costs the batches.

    python -m benchmarks.feed
    python -m benchmarks.feed --rounds 2 --results /tmp

Two servers hold the same R-MAT graph; one of them has the subscribers. One writer sends blocks of
batches to them in turn, each batch as soon as the one before it is ranked. The delay of an event is
the time from the publication of its revision until a subscriber has read it whole. Writer,
subscribers and servers share the machine.
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
from gpu.generate import rmat
from service.client import Client

SUBSCRIBERS = 100
BLOCK = 10
PAUSE_SECONDS = 0.3
"""After a block, so that its events do not slow the other server."""

_PUBLISHED = re.compile(rb'"time":([0-9.]+)')


def subscribe(port: int, subscribers: int, ready: Event, stop: Event, results: Any) -> None:
    """Reads the events of many subscribers; puts the delays, in seconds, the bytes read and the
    processor time. It parses nothing but the time of publication, since it shares the processor
    with the server.
    """
    poll, received, begun = select.epoll(), 0, 0
    delays: list[float] = []
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
            delays += [arrived - float(when) for when in published]
            begun += not published  # the snapshot
            if begun == subscribers and not ready.is_set():
                ready.set()
    results.put((delays, received, time.process_time()))


def block(connection: http.client.HTTPConnection, ring: list[bytes], first: int) -> float:
    """Sends the batches of a block one after the other; returns seconds a batch."""
    started = time.perf_counter()
    for number in range(first, first + BLOCK):
        connection.request("POST", "/graphs/default/batches", ring[number % POOL])
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
    return (time.perf_counter() - started) / BLOCK


def loaded(server: Server) -> http.client.HTTPConnection:
    """A connection to a server that holds the graph."""
    sources, targets = rmat(SCALE, EDGES_PER_VERTEX, seed=0)
    with Client(server.url) as client:
        client.drop("default")
        client.create("default", keys="integer")
        client.send_columns("default", pa.array(sources), pa.array(targets))
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
        seconds: list[list[float]] = [[], []]
        used = [0.0, 0.0]
        for number in range(rounds + 1):
            for place in (0, 1) if number % 2 else (1, 0):
                server = (alone, followed)[place]
                used_before = server.cpu_seconds
                taken = block(connections[place], ring, number * BLOCK)
                time.sleep(PAUSE_SECONDS)
                if number:  # the first round compiles and fills caches
                    seconds[place].append(taken)
                    used[place] += server.cpu_seconds - used_before
        stop.set()
        delays, received, reading = results.get(timeout=60)
        readers.join()
    batches = (rounds + 1) * BLOCK
    counted = rounds * BLOCK
    without, with_them = np.array(seconds)
    percentiles = np.percentile(1e3 * np.array(delays), (50, 99, 100))
    return {
        "vertices": 2**SCALE,
        "edges of a batch": BATCH_EDGES,
        "batches to each server": batches,
        "subscribers": subscribers,
        "events read": len(delays),
        "events missed": batches * subscribers - len(delays),
        "bytes of an event": round(received / len(delays)),
        "delay, ms (p50)": round(float(percentiles[0]), 1),
        "delay, ms (p99)": round(float(percentiles[1]), 1),
        "delay, ms (largest)": round(float(percentiles[2]), 1),
        "ms a batch without subscribers": round(1e3 * float(np.median(without)), 2),
        "ms a batch with them": round(1e3 * float(np.median(with_them)), 2),
        "with them over without, median of blocks": round(float(np.median(with_them / without)), 3),
        "processor ms of the server a batch without": round(1e3 * used[0] / counted, 1),
        "processor ms of the server a batch with them": round(1e3 * used[1] / counted, 1),
        "processor ms of the subscribers a batch": round(1e3 * reading / batches, 1),
    }


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
