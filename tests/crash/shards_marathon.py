"""The promise of `liverank serve --shards` at scale: workers killed 100 times under a stream.

    python -m tests.crash.shards_marathon [--kills 100] [--shards 2] [--seed 0] [--directory DIR]
                                          [--backend cpu] [--results FOLDER]

A writer inserts and deletes edges of one graph, batch after batch; a reader asks for ranks without
a pause. A worker process of the graph is killed at a random moment, also while the graph recovers
from the kill before. No read may fail, no batch that was acknowledged may be missing, none may
count twice. After every tenth kill the number of edges, and the ranks, have to be those of the
batches. In the end the server starts again on its data, without shards. Prints progress, and
records the sums in benchmarks/results/shard-kills-cpu.json. Fails with an assertion, and leaves the
data, if anything is lost.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np
import psutil

from benchmarks.harness import RESULTS, record
from gpu import EdgeBatch, Engine, Options
from tests.crash.nursery import wait_until

VERTICES = 300
OPERATIONS = 20
"""Of a batch."""

COMPARED_EVERY = 10
"""Number of kills between comparisons."""

MOST_SECONDS = 3.0
"""The longest pause before a kill: a recovery takes about as long."""

PATIENCE = 120.0
"""Seconds until a graph must have recovered."""

PATH = "/graphs/default"
Edge = tuple[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--directory", type=Path, help="of the data")
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="liverank-shards-"))
    figures = run(directory, arguments.shards, arguments.kills, arguments.seed, arguments.backend)
    print(json.dumps(figures, indent=1))
    print(record("shard-kills", arguments.backend, figures, arguments.results))


@contextmanager
def serving(directory: Path, *options: str) -> Iterator[tuple[psutil.Process, str]]:
    """A server and its address."""
    with open(directory / "server.log", "ab") as log:
        command = [sys.executable, "-m", "service.cli", "serve", "--port", "0"]
        command += ["--data", str(directory / "data"), *options]
        begin = log.tell()
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        found: list[str] = []

        def has_address() -> bool:
            assert server.poll() is None, f"the server ended: {directory}/server.log"
            printed = (directory / "server.log").read_bytes()[begin:].decode()
            found[:] = [word for word in printed.split() if word.startswith("http://127.0.0.1:")]
            return bool(found)

        assert wait_until(has_address, PATIENCE), f"no server: {directory}/server.log"
        url = found[0].rstrip(".,/")
        assert wait_until(lambda: is_ready(url), PATIENCE), f"not ready: {directory}/server.log"
        yield psutil.Process(server.pid), url
    finally:
        server.terminate()
        server.wait(60)


def is_ready(url: str) -> bool:
    with suppress(httpx.TransportError):
        return bool(httpx.get(f"{url}/readyz").json() == {"status": "ready"})
    return False


class Stream:
    """A writer and a reader of the graph, in threads of their own.

    edges    those of the batches that were acknowledged
    version  of the last one
    delayed  batches whose answer said that their ranks are delayed
    reads    answered with 200
    paused   held while no batch is sent
    """

    def __init__(self, url: str, seed: int) -> None:
        self._choose = random.Random(seed)
        self._http = httpx.Client(base_url=url, timeout=PATIENCE)
        self.edges: set[Edge] = set()
        self.version = self.delayed = self.reads = 0
        self.paused = threading.Lock()
        self._ended = threading.Event()
        self._failure: Exception | None = None
        self._threads = [
            threading.Thread(target=self._repeat, args=(work,))
            for work in (self._write, self._read)
        ]

    def __enter__(self) -> Stream:
        self._write()  # ranks to read
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self.check()

    def check(self) -> None:
        """Raises what ended the writer or the reader."""
        if self._failure is not None:
            raise self._failure

    def _repeat(self, work: Callable[[], None]) -> None:
        try:
            while not self._ended.is_set():
                work()
        except Exception as error:
            self._failure = error

    def _write(self) -> None:
        """A batch of edges that the graph does not have, and of others that it has."""
        with self.paused:
            inserted = {self._edge() for _ in range(OPERATIONS)} - self.edges
            several = min(len(self.edges), self._choose.randrange(OPERATIONS))
            deleted = self._choose.sample(sorted(self.edges), several)
            body = {"insert": [*inserted], "delete": deleted}
            answer = self._http.post(f"{PATH}/batches", json=body)
            receipt = answer.json()
            if answer.status_code == 503:
                # committed; its ranks follow
                assert receipt["type"] == "urn:liverank:problem:ranking-delayed", answer.text
                self.delayed += 1
            else:
                assert answer.status_code == 200, answer.text
                counts = receipt["inserted"], receipt["deleted"]
                assert counts == (len(inserted), several), answer.text
            assert receipt["version"] == self.version + 1, answer.text
            self.version = receipt["version"]
            self.edges = self.edges - set(deleted) | inserted
        time.sleep(self._choose.uniform(0.0, 0.1))

    def _edge(self) -> Edge:
        return (f"v{self._choose.randrange(VERTICES)}", f"v{self._choose.randrange(VERTICES)}")

    def _read(self) -> None:
        answer = self._http.get(f"{PATH}/top?k=10")
        assert answer.status_code == 200, answer.text
        self.reads += 1
        time.sleep(0.01)


def run(directory: Path, shards: int, kills: int, seed: int, backend: str) -> dict[str, Any]:
    """Kills the workers, and compares; returns the figures."""
    directory.mkdir(parents=True, exist_ok=True)
    choose, begin, recoveries = random.Random(seed), time.monotonic(), []
    with serving(directory, "--shards", str(shards), "--backend", backend) as (server, url):
        with Stream(url, seed) as stream:
            for number in range(1, kills + 1):
                time.sleep(choose.uniform(0.0, MOST_SECONDS))
                killed = kill_worker(server, choose)
                if choose.random() < 0.5:
                    version = stream.version + 1
                    assert wait_until(lambda v=version: ranked(url) > v, PATIENCE)  # type: ignore[misc]
                    recoveries.append(time.monotonic() - killed)
                stream.check()
                if number % COMPARED_EVERY == 0 or number == kills:
                    with stream.paused:
                        compare(url, stream)
                    print(f"{number} kills, {stream.version:,} batches", flush=True)
        restarts = httpx.get(f"{url}{PATH}").json()["shards"]["restarts"]
    with serving(directory) as (_, url):
        compare(url, stream)
    return {
        "shards": shards,
        "kills": kills,
        "restarts of the workers": restarts,
        "batches": stream.version,
        "batches whose ranks were delayed": stream.delayed,
        "batches lost": 0,
        "batches counted twice": 0,
        "reads": stream.reads,
        "reads that failed": 0,
        "seconds from a kill to new ranks, median": round(median(recoveries), 2),
        "seconds from a kill to new ranks, largest": round(max(recoveries), 2),
        "seconds": round(time.monotonic() - begin, 1),
    }


def kill_worker(server: psutil.Process, choose: random.Random) -> float:
    """Kills one of the workers, at random, as soon as there is one; returns when it did."""
    killed = False
    workers: list[psutil.Process] = []

    def has_workers() -> bool:
        workers[:] = [each for each in server.children(recursive=True) if is_worker(each)]
        return bool(workers)

    while not killed:
        assert wait_until(has_workers, PATIENCE), "no workers"
        with suppress(psutil.NoSuchProcess):
            choose.choice(sorted(workers, key=lambda worker: worker.pid)).kill()
            killed = True
    return time.monotonic()


def is_worker(process: psutil.Process) -> bool:
    """Whether it is one of the processes that Dask has spawned."""
    with suppress(psutil.Error):
        return "spawn_main" in " ".join(process.cmdline())
    return False


def ranked(url: str) -> int:
    """The version of the ranks that are served."""
    version: int = httpx.get(f"{url}{PATH}").json()["version"]
    return version


def compare(url: str, stream: Stream) -> None:
    """Waits until the graph has all batches, and compares its edges and its ranks."""
    assert wait_until(lambda: is_ready(url) and ranked(url) == stream.version, PATIENCE)
    document = httpx.get(f"{url}{PATH}").json()
    assert document["edges"] == len(stream.edges), document
    lines = httpx.get(f"{url}{PATH}/ranks", headers={"Accept": "application/x-ndjson"}).text
    served = {row["vertex"]: row["rank"] for row in map(json.loads, lines.splitlines())}
    places = {key: place for place, key in enumerate(served)}
    sources, targets = np.array([[places[end] for end in edge] for edge in stream.edges]).T
    engine = Engine(Options(target_error=1e-9), "cpu")
    engine.apply(EdgeBatch(sources, targets, vertices=len(served)))
    error_bound = engine.update().error_bound + document["error_bound"]
    difference = np.abs(engine.publish().to_numpy() - np.array(list(served.values()))).sum()
    assert difference <= error_bound, f"ranks differ by {difference}, expected {error_bound}"


if __name__ == "__main__":
    main()
