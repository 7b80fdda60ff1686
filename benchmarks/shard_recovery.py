"""Workers of a server with shards that are killed: the seconds until ranks follow again.

    python -m benchmarks.shard_recovery --scale 18
    python -m benchmarks.shard_recovery --backend cuda --scale 22

A server with two shards has an R-MAT graph, which `liverank load` sent, and a checkpoint of it. A
client sends batches of 1,000 edges, one after the other, and waits for the ranks of each. Each time
a worker is killed a few batches later. Time runs from the kill to the ranks of the first batch that
was sent after it. Then workers are killed while nothing is sent, and time runs until the shards
serve again. A batch that is lost, or counts twice, is an error.
"""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import numpy as np
import psutil

from benchmarks import harness
from benchmarks.load import written
from benchmarks.server import Server

GRAPH = "/graphs/loaded"
BATCH_EDGES = 1_000
FIRST_KEY = 1 << 40
"""Of the vertices that batches add: no edge of theirs is in the graph before."""

UNDISTURBED = 5
"""Batches before each kill."""

PATIENCE = 300.0
_POLL_SECONDS = 0.02


@dataclass
class Stream:
    """Batches of new edges, each sent again until its ranks are there.

    scale   targets are keys below 2^scale
    sent    when each batch was sent first; ranked: when its ranks arrived
    """

    url: str
    scale: int
    sent: list[float] = field(default_factory=list)
    ranked: list[float] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        """Sends until `stop`, and returns when the last batch is ranked."""
        generator = np.random.default_rng(5)
        with httpx.Client(base_url=self.url, timeout=PATIENCE) as http:
            while not stop.is_set():
                targets = generator.choice(1 << self.scale, BATCH_EDGES, replace=False).tolist()
                source = FIRST_KEY + len(self.sent)
                batch = {"insert": [[source, target] for target in targets]}
                self.sent.append(time.monotonic())
                while not self._is_ranked(http, batch):
                    time.sleep(_POLL_SECONDS)
                self.ranked.append(time.monotonic())

    def _is_ranked(self, http: httpx.Client, batch: dict[str, Any]) -> bool:
        key = {"Idempotency-Key": str(len(self.sent))}
        answer = http.post(f"{GRAPH}/batches", json=batch, headers=key)
        if answer.status_code == 503:
            return False
        answer.raise_for_status()
        return True

    def wait_for(self, count: int) -> None:
        """Returns when so many batches are ranked."""
        until = time.monotonic() + PATIENCE
        while len(self.ranked) < count:
            if time.monotonic() > until:
                raise TimeoutError(f"expected {count} ranked batches, got {len(self.ranked)}")
            time.sleep(_POLL_SECONDS)

    def seconds_after(self, moment: float) -> float:
        """From a moment to the ranks of the first batch that was sent after it."""
        number = sum(sent <= moment for sent in self.sent)
        self.wait_for(number + 1)
        return self.ranked[number] - moment


@dataclass(frozen=True)
class Workers:
    """The processes that hold the shards of the server's only graph."""

    server: psutil.Process
    shards: int
    choose: random.Random = field(default_factory=lambda: random.Random(1))

    def kill(self) -> float:
        """Kills one of them, at random. Returns when."""
        running = [
            each
            for each in self.server.children(recursive=True)
            if "spawn_main" in " ".join(each.cmdline())
        ]
        if len(running) != self.shards:
            raise RuntimeError(f"expected {self.shards} workers, got {len(running)}")
        self.choose.choice(sorted(running, key=lambda worker: worker.pid)).kill()
        return time.monotonic()


def killed_under_batches(stream: Stream, workers: Workers, kills: int) -> list[float]:
    """Seconds to the ranks of a later batch, of each kill."""
    stop, seconds = threading.Event(), []
    with ThreadPoolExecutor(1) as thread:
        sending = thread.submit(stream.run, stop)
        try:
            for _ in range(kills):
                stream.wait_for(len(stream.ranked) + UNDISTURBED)
                time.sleep(workers.choose.uniform(0.0, 0.2))
                seconds.append(stream.seconds_after(workers.kill()))
                print(f"ranks {seconds[-1]:.2f} s after a kill", flush=True)
        finally:
            stop.set()
        sending.result()
    return seconds


def killed_while_idle(url: str, workers: Workers, kills: int) -> list[float]:
    """Seconds until the shards serve again, of each kill."""
    seconds: list[float] = []
    with httpx.Client(base_url=url, timeout=PATIENCE) as http:

        def shards() -> dict[str, Any]:
            found: dict[str, Any] = http.get(GRAPH).json()["shards"]
            return found

        for _ in range(kills):
            restarts, killed = shards()["restarts"], workers.kill()
            while (found := shards())["restarts"] == restarts or found["state"] != "serving":
                if time.monotonic() > killed + PATIENCE:
                    raise TimeoutError(f"expected shards that serve, got {found}")
                time.sleep(_POLL_SECONDS)
            seconds.append(time.monotonic() - killed)
            print(f"serving {seconds[-1]:.2f} s after a kill", flush=True)
    return seconds


def measured(backend: str, scale: int, shards: int, kills: int, idle_kills: int) -> dict[str, Any]:
    """`kills` while batches are sent, `idle_kills` while none is."""
    environment = {"LIVERANK_SHARDS": str(shards)}
    with TemporaryDirectory(prefix="liverank-shards-") as folder:
        file = written(Path(folder), scale, ["integer"])["integer"]
        server = Server(Path(folder) / "data", backend=backend, environment=environment)
        with ExitStack() as stack:
            stack.callback(server.stop)
            http = stack.enter_context(httpx.Client(base_url=server.url, timeout=PATIENCE))
            server.wait_for("/readyz")
            # it would have workers too
            http.delete("/graphs/default").raise_for_status()
            load_seconds = server.load(file, GRAPH.rpartition("/")[-1])
            begun = time.perf_counter()
            http.post(f"{GRAPH}/checkpoint").raise_for_status()
            checkpoint_seconds = time.perf_counter() - begun
            before = http.get(GRAPH).json()
            workers = Workers(psutil.Process(server.process_id), shards)
            stream = Stream(server.url, scale)
            under = killed_under_batches(stream, workers, kills)
            while_idle = killed_while_idle(server.url, workers, idle_kills)
            found = http.get(GRAPH).json()
    for name, each in (("edges", BATCH_EDGES), ("version", 1)):
        expected = before[name] + each * len(stream.sent)
        if found[name] != expected:
            raise RuntimeError(f"{name}: expected {expected:,}, got {found[name]:,}")
    undisturbed = [after - before for before, after in zip(stream.sent, stream.ranked, strict=True)]
    return {
        "edges": before["edges"],
        "shards": shards,
        "load seconds": round(load_seconds, 2),
        "checkpoint seconds": round(checkpoint_seconds, 2),
        "batches": len(stream.sent),
        "median seconds of a batch": round(median(undisturbed), 4),
        "restarts of the workers": found["shards"]["restarts"],
        "seconds from a kill to new ranks": summary(under),
        "seconds from a kill to shards that serve, without batches": summary(while_idle),
    }


def summary(seconds: list[float]) -> dict[str, float]:
    """As the record has them."""
    if not seconds:
        return {"measured": 0}
    return {
        "measured": len(seconds),
        "median": round(median(seconds), 2),
        "largest": round(max(seconds), 2),
    }


if __name__ == "__main__":
    options = {"scale": 18, "shards": 2, "kills": 3, "idle_kills": 1}
    harness.run(__doc__, {"shard-recovery": (measured, options)}, backends=True)
