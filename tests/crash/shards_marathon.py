"""The promise of `liverank serve --shards` at scale: workers killed 100 times under a stream.

    python -m tests.crash.shards_marathon [--kills 100] [--shards 2] [--seed 0] [--directory DIR]
                                          [--backend cpu] [--note TEXT] [--results FOLDER]

Three clients send batches of insertions, deletions and removals to one graph, whose weights show
what counts twice; others read ranks and take checkpoints without a pause. A worker process of the
graph is killed at a random moment, also during a checkpoint, and while the graph recovers from the
kill before. No read may fail. After every fifth kill, versions, edges, weights, sets, ranks and
receipts are compared with a model: no batch that was acknowledged may be missing, none may count
twice.

The kills are done in legs of 20, each with a server and data of its own, which then starts again
with another number of shards, or none. With --directory, the figures of finished legs are kept
there, and the same command continues behind them. Prints progress, and records the sums in
benchmarks/results/shard-kills-cpu.json. Fails with an assertion, and leaves the data, if anything
is lost.
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import psutil

from benchmarks.harness import RESULTS, record
from tests.crash.legs import run_legs
from tests.crash.marathon import summed
from tests.crash.nursery import wait_until
from tests.crash.streams import (
    GRAPH,
    Comparison,
    Stream,
    check,
    create_weighted,
    run_until_killed,
    streams,
)

LEG_KILLS = 20
COMPARED_EVERY = 5
"""Number of kills between comparisons."""

MOST_SECONDS = 3.0
"""The longest pause before a kill: a recovery takes about as long."""

PATIENCE = 120.0
"""Seconds until a graph must have recovered."""

CHECKPOINT_PAUSE = 0.5
"""The longest pause between two checkpoints, in seconds."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--directory", type=Path, help="of the data, and of what was done")
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--note", default="", help="what else the machine did meanwhile")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="liverank-shards-"))

    def run(folder: Path, number: int, kills: int) -> dict[str, Any]:
        options = (arguments.shards, arguments.backend)
        return Leg(folder, arguments.seed + number, *options).run(kills)

    legs = run_legs(directory, arguments.kills, LEG_KILLS, run)
    figures = {"shards": arguments.shards, **figures_of(legs), "note": arguments.note}
    print(json.dumps(figures, indent=1))
    print(record("shard-kills", arguments.backend, figures, arguments.results))


def figures_of(legs: list[dict[str, Any]]) -> dict[str, Any]:
    """Those of all legs together."""
    seconds = [each for leg in legs for each in leg["seconds to new ranks"]]
    sums = summed([{**leg, "seconds to new ranks": 0} for leg in legs])
    del sums["seconds to new ranks"]
    return {
        **sums,
        "seconds from a kill to new ranks": {
            "measured": len(seconds),
            "median": round(median(seconds), 2),
            "largest": round(max(seconds), 2),
        },
    }


class Leg:
    """The kills of workers of one server.

    sending      the clients that write
    restarts     of the graph's workers
    checkpoints  taken
    reads        answered with 200
    failed       other answers to reads
    """

    def __init__(self, directory: Path, seed: int, shards: int, backend: str) -> None:
        self._directory, self._seed = directory, seed
        self._shards, self._backend = shards, backend
        self._choose = random.Random(seed)
        self.sending: list[Stream] = streams(seed, weighted=True)
        self.restarts = self.checkpoints = self.reads = 0
        self.failed: list[str] = []
        self._seconds: list[float] = []

    def run(self, kills: int) -> dict[str, Any]:
        """Kills that many workers, and compares; returns the figures."""
        begin = time.monotonic()
        create_weighted(self._directory / "data")
        compared: list[Comparison] = []
        with serving(self._directory, self._shards, self._backend) as (server, url):
            for done in range(0, kills, COMPARED_EVERY):
                share = min(COMPARED_EVERY, kills - done)
                killing = partial(self._kill, server, share)
                beside = (self._read, self._take_checkpoints, killing)
                run_until_killed(self.sending, url, PATIENCE * (share + 1), beside)
                compared.append(check(self.sending, url))
                assert not self.failed, self.failed
                print(f"leg {self._seed}: {done + share} kills, {compared[-1]}", flush=True)
            self.restarts = described(url)["shards"]["restarts"]
        other = (0, self._shards + 1)[self._seed % 2]
        with serving(self._directory, other, self._backend) as (_, url):
            compared.append(check(self.sending, url, everything=True))
        return {
            "kills": kills,
            "restarts of the workers": self.restarts,
            "checkpoints taken": self.checkpoints,
            "comparisons": len(compared),
            "batches acknowledged": compared[-1].acknowledged,
            "lost": sum(each.lost for each in compared),
            "twice": sum(each.twice for each in compared),
            "answered before they were ranked": sum(each.delayed for each in self.sending),
            "batches sent again": sum(each.repeated for each in compared),
            "receipts that differ": sum(each.differing for each in compared),
            "reads": self.reads,
            "reads that failed": len(self.failed),
            "seconds to new ranks": self._seconds,
            "seconds": round(time.monotonic() - begin, 1),
        }

    def _kill(self, server: psutil.Process, kills: int, url: str, stop: threading.Event) -> None:
        """Kills workers, and waits until the ranks follow; then stops what is beside."""
        for number in range(1, kills + 1):
            time.sleep(self._choose.uniform(0.0, MOST_SECONDS))
            self._kill_worker(server)
            killed = time.monotonic()
            if number == kills or self._choose.random() < 0.5:
                # each client had a batch in progress at most
                version = described(url)["version"] + len(self.sending)
                ranked = wait_until(lambda v=version: described(url)["version"] > v, PATIENCE)  # type: ignore[misc]
                assert ranked, f"no new ranks after {PATIENCE} s: {self._directory}"
                self._seconds.append(round(time.monotonic() - killed, 2))
            if stop.is_set():  # something beside has failed
                return
        stop.set()

    def _kill_worker(self, server: psutil.Process) -> None:
        """Kills one of the workers, at random, as soon as there is one."""
        workers: list[psutil.Process] = []

        def has_workers() -> bool:
            workers[:] = [each for each in server.children(recursive=True) if is_worker(each)]
            return bool(workers)

        while True:
            assert wait_until(has_workers, PATIENCE), f"no workers: {self._directory}"
            with suppress(psutil.NoSuchProcess):
                self._choose.choice(sorted(workers, key=lambda worker: worker.pid)).kill()
                return

    def _read(self, url: str, stop: threading.Event) -> None:
        with httpx.Client(base_url=url, timeout=PATIENCE) as http:
            while not stop.is_set():
                answer = http.get(f"{GRAPH}/top?k=10")
                if answer.status_code == 200:
                    self.reads += 1
                else:
                    self.failed.append(answer.text)
                time.sleep(0.01)

    def _take_checkpoints(self, url: str, stop: threading.Event) -> None:
        choose = random.Random(self._seed)
        with httpx.Client(base_url=url, timeout=PATIENCE) as http:
            while not stop.wait(choose.uniform(0.0, CHECKPOINT_PAUSE)):
                answer = http.post(f"{GRAPH}/checkpoint")
                # while the graph recovers, or if its shards are lost
                assert answer.status_code in (200, 503), answer.text
                self.checkpoints += answer.status_code == 200


@contextmanager
def serving(directory: Path, shards: int, backend: str) -> Iterator[tuple[psutil.Process, str]]:
    """A server of the data in a directory, and its address."""
    command = [
        sys.executable,
        "-m",
        "liverank_service.cli",
        "serve",
        "--port",
        "0",
        "--backend",
        backend,
    ]
    command += ["--data", str(directory / "data"), "--shards", str(shards)]
    with open(directory / "server.log", "ab") as log:
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


def is_worker(process: psutil.Process) -> bool:
    """Whether it is one of the processes that Dask has spawned."""
    with suppress(psutil.Error):
        return "spawn_main" in " ".join(process.cmdline())
    return False


def described(url: str) -> dict[str, Any]:
    """The graph, as the server describes it."""
    document: dict[str, Any] = httpx.get(f"{url}{GRAPH}", timeout=PATIENCE).json()
    return document


if __name__ == "__main__":
    main()
