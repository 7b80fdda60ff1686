"""The crash tests at scale: thousands of SIGKILLs, for a nightly run.

    python -m tests.crash.marathon [--kills 2000] [--processes 1] [--seed 0] [--directory DIR]
                                   [--seconds S] [--results FOLDER]

Every second kill is at a named point, the others at random moments, recoveries included, while
three clients write to an unweighted graph, three to one whose weights decay, and another takes
checkpoints of the first without a pause. They insert and delete edges, remove vertices and change
sets. After every tenth kill everything is compared with the model; published ranks and receipts are
compared all the time, since no revision may be published with two different ranks. Several
processes share the kills, each with a seed, a data directory and servers of its own. Prints
progress, and records the sums in benchmarks/results/crash-cpu.json. Fails with an assertion, and
leaves the data, if anything is lost, applied twice or wrong.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from benchmarks.harness import RESULTS, record
from tests.crash.nursery import Nursery
from tests.crash.points import CHECKPOINTING, RECOVERING, WRITING
from tests.crash.revisions import Revisions
from tests.crash.streams import (
    GRAPH,
    WEIGHTED,
    Comparison,
    Stream,
    check,
    run_until_killed,
    streams,
)

STAGES = {"writing": WRITING, "checkpointing": CHECKPOINTING, "recovering": RECOVERING}
POINTS = [point for points in STAGES.values() for point in points]
COMPARED_EVERY = 10
"""Number of kills between comparisons."""

CHECKPOINT_BYTES = 2_000
FIRST_PORT, PORTS = 10_000, 500
"""Below the ports that connections get, so that processes do not take each other's."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=2000, help="of all processes together")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--seed", type=int, default=0, help="of the first process")
    parser.add_argument("--directory", type=Path, help="of a data directory for each seed")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="liverank-crash-"))
    figures = run_all(
        directory, arguments.kills, arguments.seed, arguments.processes, arguments.seconds
    )
    print(json.dumps(figures, indent=1))
    print(record("crash", "cpu", figures, arguments.results))


def run_all(
    directory: Path, kills: int, seed: int, processes: int, seconds: float = float("inf")
) -> dict[str, Any]:
    """Shares the kills among processes; returns the sums of their figures."""
    begin = time.monotonic()
    shares = [kills // processes + (place < kills % processes) for place in range(processes)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context) as pool:
        runs = [
            pool.submit(
                _run_alone, directory / str(seed + place), share, seed + place, place, seconds
            )
            for place, share in enumerate(shares)
            if share
        ]
        figures = [each.result() for each in runs]
    return {
        "processes": len(figures),
        **summed(figures),
        "seconds": round(time.monotonic() - begin, 1),
    }


def summed(figures: list[dict[str, Any]]) -> dict[str, Any]:
    """The members of all documents, added up."""
    return {
        name: summed([each[name] for each in figures])
        if isinstance(value, dict)
        else sum(each[name] for each in figures)
        for name, value in figures[0].items()
    }


def _run_alone(
    directory: Path, kills: int, seed: int, place: int, seconds: float
) -> dict[str, Any]:
    """The figures of one process."""
    directory.mkdir(parents=True, exist_ok=True)
    first = FIRST_PORT + PORTS * place
    return Run(directory, seed, range(first, first + PORTS)).run(kills, seconds)


class Run:
    """The kills of one process, on one data directory."""

    def __init__(self, directory: Path, seed: int, ports: range) -> None:
        self._seed = seed
        self._data = directory / "data"
        self._choose = random.Random(seed)
        self._sending: list[Stream] = streams(seed)
        self._weighted: list[Stream] = streams(seed, WEIGHTED)
        self._nursery = Nursery(directory / "servers.log", ports)
        self._revisions = Revisions(GRAPH)
        self._checkpoints = 0

    def run(self, kills: int, seconds: float = float("inf")) -> dict[str, Any]:
        """Kills that many servers, or those that time allows; returns the figures."""
        deadline = time.monotonic() + seconds
        at_points: Counter[str] = Counter()
        compared: list[Comparison] = []
        for killed in range(1, kills + 1):
            last = killed == kills or time.monotonic() > deadline
            if killed % COMPARED_EVERY == 0 or last:
                compared.append(self._compare(everything=last))
                print(f"seed {self._seed}: {killed} kills, {compared[-1]}", flush=True)
            else:
                point = self._choose.choice(POINTS) if killed % 2 else None
                if self._kill(point):
                    assert point is not None
                    at_points[point] += 1
            self._check_revisions()
            if last:
                break
        self._nursery.close()
        return {
            "kills": killed,
            "kills at random moments": killed - at_points.total(),
            "kills at named points": {
                stage: sum(at_points[point] for point in points) for stage, points in STAGES.items()
            },
            "kills by point": {point: at_points[point] for point in POINTS},
            "checkpoints taken": self._checkpoints,
            "comparisons": len(compared),
            "batches acknowledged": compared[-1].acknowledged,
            "lost": sum(each.lost for each in compared),
            "twice": sum(each.twice for each in compared),
            "batches sent again": sum(each.repeated for each in compared),
            "receipts that differ": sum(each.differing for each in compared),
            "revisions seen": self._revisions.seen,
            "revisions with two different ranks": len(self._revisions.twice),
        }

    def _kill(self, point: str | None) -> bool:
        """Starts a server, sends batches and kills it; returns whether that was at `point`."""
        # a server does not pass the other points that often in a few seconds
        passes = self._choose.randrange(1, 4) if point in WRITING else 1
        server = self._nursery.start(self._data, point, passes, CHECKPOINT_BYTES)
        if point is None and self._choose.random() < 0.2:
            time.sleep(self._choose.uniform(0.0, 1.0))
        elif server.wait_until_ready():
            seconds = 3.0 if point else self._choose.uniform(0.0, 0.5)
            beside = (self._revisions.watch, self._take_checkpoints)
            sending = [*self._sending, *self._weighted]
            run_until_killed(sending, server.url, seconds, beside)
        passed = point is not None and server.dies(0.1)
        server.kill()
        server.wait()
        return passed

    def _take_checkpoints(self, url: str, stop: threading.Event) -> None:
        with httpx.Client(base_url=url, timeout=60) as http, suppress(httpx.TransportError):
            while not stop.is_set():
                answer = http.post(f"{GRAPH}/checkpoint")
                if answer.status_code == 200:
                    self._checkpoints += 1
                else:
                    assert answer.status_code == 503, answer.text
                    time.sleep(0.01)  # the graph is being recovered

    def _compare(self, everything: bool) -> Comparison:
        """Compares a server, and kills it."""
        server = self._nursery.start(self._data, checkpoint_bytes=CHECKPOINT_BYTES)
        assert server.wait_until_ready(), f"no recovery: {self._data}"
        compared = check(self._sending, server.url, everything)
        compared += check(self._weighted, server.url, everything)
        server.kill()
        server.wait()
        return compared

    def _check_revisions(self) -> None:
        for stream in self._sending:
            for receipt in stream.new_receipts():
                self._revisions.add_receipt(receipt)
        assert not self._revisions.twice, f"revisions with other ranks: {self._revisions.twice}"


if __name__ == "__main__":
    main()
