"""Personalized ranks over HTTP: latency of a query, alone and beside others.

    python -m benchmarks.personalized_http --note "nothing else ran"

A server holds an R-MAT graph of about a million edges. Clients in a process of their own, each on a
connection that it keeps, query the first places from random vertices that are not isolated, one
query after the other. They share the machine with the server. The rounds of the parts alternate, so
that other work on the machine affects all of them alike.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import threading
import time
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.overload import SCALE, fill, percentiles
from benchmarks.server import Server
from liverank.client import Client

CLIENTS = (1, 4, 16)
K = 10
TARGET_ERROR = 1e-4
BATCH_EDGES = 100
BATCHES_PER_SECOND = 10


def query(port: int, vertices: list[list[int]], answers: Any) -> None:
    """Puts (seconds, iterations) of each query; each client has a list of vertices."""
    taken: list[tuple[float, int]] = []

    def one(own: list[int]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for vertex in own:
            started = time.perf_counter()
            connection.request(
                "GET",
                f"/graphs/default/personalized/{vertex}?k={K}&target_error={TARGET_ERROR}",
            )
            answer = connection.getresponse()
            body = json.loads(answer.read())
            spent = time.perf_counter() - started
            assert answer.status == 200, body
            assert body["error_bound"] <= TARGET_ERROR, body
            taken.append((spent, body["iterations"]))
        connection.close()

    threads = [threading.Thread(target=one, args=(own,)) for own in vertices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers.put(taken)


def write(port: int, stop: Any, answers: Any) -> None:
    """Sends small batches at a fixed rate; puts the seconds of each."""
    random = np.random.default_rng(0)
    connection = http.client.HTTPConnection("127.0.0.1", port)
    spent = []
    due = time.perf_counter()
    while not stop.is_set():
        due += 1 / BATCHES_PER_SECOND
        time.sleep(max(0.0, due - time.perf_counter()))
        edges = random.integers(0, 2**SCALE, (BATCH_EDGES, 2)).tolist()
        started = time.perf_counter()
        connection.request("POST", "/graphs/default/batches", json.dumps({"insert": edges}))
        answer = connection.getresponse()
        assert answer.read() is not None
        assert answer.status == 200
        spent.append(time.perf_counter() - started)
    answers.put(spent)


def measure(
    port: int, vertices: list[list[int]], batches: bool
) -> tuple[list[tuple[float, int]], list[float]]:
    """What `query` puts, and what `write` puts if there are batches meanwhile."""
    answers: Any = multiprocessing.Queue()
    written: Any = multiprocessing.Queue()
    stop = multiprocessing.Event()
    querying = multiprocessing.Process(target=query, args=(port, vertices, answers))
    writing = multiprocessing.Process(target=write, args=(port, stop, written))
    if batches:
        writing.start()
    querying.start()
    taken = answers.get(timeout=120)
    querying.join()
    stop.set()
    spent = []
    if batches:
        spent = written.get(timeout=60)
        writing.join()
    return taken, spent


def run(server: Server, rounds: int, queries: int) -> dict[str, Any]:
    """The figures of several rounds of all parts."""
    with Client(server.url) as client:
        sources, targets = fill(client)
        info = client.graph("default")
    parts = [(clients, False) for clients in CLIENTS] + [(4, True)]
    taken: dict[tuple[int, bool], list[tuple[float, int]]] = {part: [] for part in parts}
    spent: list[float] = []
    random = np.random.default_rng(0)
    connected = np.unique(np.concatenate([sources, targets]))
    for number in range(rounds + 1):
        for clients, batches in parts:
            vertices = random.choice(connected, (clients, queries // clients)).tolist()
            found, written = measure(server.port, vertices, batches)
            if number > 0:  # the first round is warm-up
                taken[clients, batches] += found
                spent += written
    return {
        "vertices": info.vertices,
        "edges": info.edges,
        "k": K,
        "target_error": TARGET_ERROR,
        "batches_per_second": BATCHES_PER_SECOND,
        "batch_edges": BATCH_EDGES,
        "rows": [
            {
                "clients": clients,
                "batches": batches,
                "queries": len(found),
                "ms": percentiles([seconds for seconds, _ in found]),
                "median_iterations": float(np.median([count for _, count in found])),
            }
            for (clients, batches), found in taken.items()
        ],
        "batch_ms": percentiles(spent),
    }


def main() -> None:
    parser = harness.parser("latency of personalized queries over HTTP")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--queries", type=int, default=400, help="queries of each part in a round")
    parser.add_argument("--note", default="", help="what else the machine did meanwhile")
    arguments = parser.parse_args()
    with Server.temporary() as server:
        figures = run(server, arguments.rounds, arguments.queries)
    figures["note"] = arguments.note
    print(json.dumps(figures, indent=1))
    print(harness.record("personalized-http", "cpu", figures, arguments.results))


if __name__ == "__main__":
    main()
