"""Personalized ranks over HTTP: how long a client waits for one, alone and beside others.

    python -m benchmarks.personalized_http --note "nothing else ran"

A server of its own (a process, the cpu backend, loopback) holds an R-MAT graph of about a million
edges. Clients in a process of their own, each on a connection that is kept, ask for the first
places as seen from random vertices that are not isolated, and ask again once they are answered.
They share the machine with the server. The rounds of the parts alternate, so that what else the
machine does falls on all of them.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import RESULTS, record
from benchmarks.overload import SCALE, fill, percentiles, serving
from service.client import Client

CLIENTS = (1, 4, 16)
K = 10
TARGET_ERROR = 1e-4
BATCH_EDGES = 100
BATCHES_PER_SECOND = 10


def ask(port: int, vertices: list[list[int]], answers: Any) -> None:
    """Puts (seconds, iterations) of each query; every client has a list of vertices."""
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
    """Sends small batches at a rate, and puts the seconds of each."""
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
    """What `ask` puts, and what `write` does where batches come meanwhile."""
    answers: Any = multiprocessing.Queue()
    written: Any = multiprocessing.Queue()
    stop = multiprocessing.Event()
    asking = multiprocessing.Process(target=ask, args=(port, vertices, answers))
    writing = multiprocessing.Process(target=write, args=(port, stop, written))
    if batches:
        writing.start()
    asking.start()
    taken = answers.get(timeout=120)
    asking.join()
    stop.set()
    spent = []
    if batches:
        spent = written.get(timeout=60)
        writing.join()
    return taken, spent


def run(port: int, rounds: int, queries: int) -> dict[str, Any]:
    with Client(f"http://127.0.0.1:{port}") as client:
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
            found, written = measure(port, vertices, batches)
            if number > 0:  # the first round is warm-up
                taken[clients, batches] += found
                spent += written
    return {
        "vertices": info["vertices"],
        "edges": info["edges"],
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--queries", type=int, default=400, help="of each part in a round")
    parser.add_argument("--note", default="", help="what else the machine did meanwhile")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with serving() as (_, port):
        figures = run(port, arguments.rounds, arguments.queries)
    figures["note"] = arguments.note
    print(json.dumps(figures, indent=1))
    record("personalized-http", "cpu", figures, arguments.results)


if __name__ == "__main__":
    main()
