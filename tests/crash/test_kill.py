"""A real server process, killed with SIGKILL amid a stream of batches, and started again."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from gpu.verify import pagerank

SCRIPT = """
import sys
from pathlib import Path
import uvicorn
from service.app import create_app
from service.settings import Settings
settings = Settings(data=Path(sys.argv[1]), backend="cpu", port=int(sys.argv[2]))
uvicorn.run(create_app(settings), port=settings.port, log_level="error", access_log=False)
"""

GRAPH = "/graphs/default"
VERTICES = 300


@dataclass
class Process:
    process: subprocess.Popen[bytes]
    url: str

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        assert self.process.wait(30) == -signal.SIGKILL


@contextmanager
def serving(data: Path) -> Iterator[Process]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(data), str(port)])
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 120
        while not _is_ready(url):
            assert process.poll() is None, f"the server ended with {process.returncode}"
            assert time.monotonic() < deadline, "the server is not ready after 120 s"
            time.sleep(0.05)
        yield Process(process, url)
    finally:
        process.kill()
        process.wait(30)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.TransportError:
        return False


@dataclass
class Stream:
    """Random batches under idempotency keys, sent one after the other until the server is gone.

    The keys of the vertices carry the name of the stream: streams do not touch each other's edges.
    """

    name: str
    wait: str
    sent: list[dict[str, Any]] = field(default_factory=list)
    answers: list[tuple[int, bytes]] = field(default_factory=list)

    def run(self, url: str) -> None:
        choose = random.Random(self.name)
        present: list[list[str]] = []
        with httpx.Client(base_url=url, timeout=60) as http:
            while True:
                deleted = choose.sample(present, min(3, len(present)))
                inserted = [
                    [f"{self.name}{choose.randrange(VERTICES)}" for _ in range(2)]
                    for _ in range(choose.randrange(1, 30))
                ]
                self.sent.append({"delete": deleted, "insert": inserted})
                present = _applied(present, self.sent[-1])
                try:
                    answer = self.send(http, len(self.sent) - 1)
                except httpx.TransportError:
                    return
                assert answer.status_code == (202 if self.wait == "durable" else 200), answer.text
                self.answers.append((answer.json()["version"], answer.content))

    def send(self, http: httpx.Client, number: int) -> httpx.Response:
        return http.post(
            f"{GRAPH}/batches",
            params={"wait": self.wait},
            json=self.sent[number],
            headers={"Idempotency-Key": f"{self.name} {number}"},
        )

    def edges(self, batches: int) -> set[tuple[str, str]]:
        """The edges after the first `batches` batches: a model in plain Python."""
        present: list[list[str]] = []
        for one in self.sent[:batches]:
            present = _applied(present, one)
        return {(source, target) for source, target in present}


def _applied(present: list[list[str]], batch: dict[str, Any]) -> list[list[str]]:
    kept = [edge for edge in present if edge not in batch["delete"]]
    return kept + [
        edge
        for position, edge in enumerate(batch["insert"])
        if edge not in kept and edge not in batch["insert"][:position]
    ]


def _ranks(http: httpx.Client, keys: list[str]) -> tuple[list[float | None], float]:
    answer = http.post(f"{GRAPH}/ranks", json={"vertices": keys}).json()
    return answer["ranks"], answer["error_bound"]


@pytest.mark.parametrize("seconds", [0.15, 0.6])
def test_every_acknowledged_batch_survives_sigkill(tmp_path: Path, seconds: float) -> None:
    streams = [Stream("a", "ranked"), Stream("b", "ranked"), Stream("c", "durable")]
    with serving(tmp_path) as server:
        threads = [threading.Thread(target=stream.run, args=(server.url,)) for stream in streams]
        for thread in threads:
            thread.start()
        while not all(stream.answers for stream in streams):
            time.sleep(0.01)
        time.sleep(seconds)
        server.kill()
        for thread in threads:
            thread.join()
    acknowledged = max(version for stream in streams for version, _ in stream.answers)

    with serving(tmp_path) as server, httpx.Client(base_url=server.url, timeout=60) as http:
        info = http.get(GRAPH).json()
        assert info["version"] >= acknowledged
        # A repeat of the last batch, which nobody answered, makes the state of each stream known:
        # it was committed before the kill, or is applied now; it never counts twice.
        for stream in streams:
            assert len(stream.sent) == len(stream.answers) + 1
            last = stream.send(http, len(stream.sent) - 1)
            assert last.status_code in (200, 202)
        http.get(f"{GRAPH}/top", params={"min_version": http.get(GRAPH).json()["version"]})
        for stream in streams:
            for number, (_, first) in enumerate(stream.answers):
                assert stream.send(http, number).content == first
        newest = max(
            stream.send(http, len(stream.sent) - 1).json()["version"] for stream in streams
        )
        http.get(f"{GRAPH}/top", params={"min_version": newest})

        edges = sorted({edge for stream in streams for edge in stream.edges(len(stream.sent))})
        info = http.get(GRAPH).json()
        assert info["version"] == newest == sum(len(stream.sent) for stream in streams)
        assert info["edges"] == len(edges)
        seen = sorted(
            {key for s in streams for one in s.sent for edge in one["insert"] for key in edge}
        )
        assert info["vertices"] == len(seen)
        place = {key: number for number, key in enumerate(seen)}
        sources = np.array([place[source] for source, _ in edges])
        targets = np.array([place[target] for _, target in edges])
        exact, slack = pagerank(sources, targets, len(seen), 0.85, "uniform")
        ranks, bound = _ranks(http, seen)
        assert None not in ranks
        error = np.abs(np.array(ranks, np.float64) - exact).sum()
        assert error <= bound + slack
        assert bound <= 1e-6


def test_a_repeat_after_sigkill_gets_the_first_receipt_and_changes_nothing(tmp_path: Path) -> None:
    body = {"insert": [[f"s{i}", f"t{i}"] for i in range(1000)]}
    headers = {"Idempotency-Key": "a thousand edges"}
    with serving(tmp_path) as server:
        first = httpx.post(f"{server.url}{GRAPH}/batches", json=body, headers=headers)
        assert first.json()["inserted"] == 1000
        server.kill()
    with serving(tmp_path) as server:
        again = httpx.post(f"{server.url}{GRAPH}/batches", json=body, headers=headers)
        assert again.content == first.content
        info = httpx.get(f"{server.url}{GRAPH}").json()
        assert (info["version"], info["edges"]) == (1, 1000)
        assert info["revision"] > first.json()["revision"]


def test_a_batch_committed_but_not_ranked_survives_sigkill(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        url = f"{server.url}{GRAPH}/batches?wait=durable"
        edges = [[f"s{i % 997}", f"t{i % 1009}"] for i in range(100_000)]
        answer = httpx.post(url, json={"insert": edges}, timeout=60)
        server.kill()
        assert answer.status_code == 202
    with serving(tmp_path) as server:
        info = httpx.get(f"{server.url}{GRAPH}").json()
        assert (info["version"], info["edges"]) == (1, 100_000)
        receipt = httpx.get(f"{server.url}{GRAPH}/batches/1").json()
        assert (receipt["inserted"], receipt["new_vertices"]) == (100_000, 997 + 1009)
