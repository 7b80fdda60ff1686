"""Many connections at once: what each takes, and what happens to those beyond the limit.

    python -m benchmarks.connections                      10,000 connections and 500 more
    python -m benchmarks.connections --connections 1000

Needs a limit of open files (`ulimit -n`) above the number of connections, for the server and for
the clients. Every connection is opened before the first request is sent; then each sends one.
"""

from __future__ import annotations

import os
import resource
import select
import socket
import time
from collections import Counter
from typing import Any

from benchmarks import harness
from benchmarks.server import Server

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


def measured(connections: int) -> dict[str, Any]:
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
            "limit of open files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
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


def main() -> None:
    options = harness.parser("Many connections at once.")
    options.add_argument("--connections", type=int, default=10_000)
    arguments = options.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    figures = measured(arguments.connections)
    print(figures)
    print(harness.record("connections", "cpu", figures, arguments.results))


if __name__ == "__main__":
    main()
