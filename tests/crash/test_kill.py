"""A real server process, killed with SIGKILL at critical points, and restarted."""

from __future__ import annotations

import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.crash.nursery import Nursery
from tests.crash.points import CATALOGUE, CHECKPOINTING, EXPIRING, RECOVERING, WRITING
from tests.crash.streams import GRAPH, WEIGHTED, Stream, check, run_until_killed, streams
from tests.service.server import wait_for

SECONDS = 60.0
"""Timeout for reaching the point; the server is then killed anyway, and the test fails."""


def test_nothing_is_lost_or_done_twice_at_any_point_of_writing(
    nursery: Nursery, tmp_path: Path
) -> None:
    sending = streams(1)
    for number, point in enumerate([*WRITING, *CHECKPOINTING]):
        passes = 1 + 3 * (number % 2) if point in WRITING else 1
        server = nursery.start(tmp_path, point, passes)
        if server.wait_until_ready():
            run_until_killed(sending, server.url, SECONDS)
        assert server.dies(), f"{point}: was not passed"
        server.wait()
        if number % 4 == 3:
            _check(nursery, tmp_path, sending)
    _check(nursery, tmp_path, sending, everything=True)


def _check(nursery: Nursery, data: Path, sending: list[Stream], everything: bool = False) -> None:
    server = nursery.start(data)
    assert server.wait_until_ready()
    check(sending, server.url, everything)
    server.kill()
    server.wait()


def test_a_killed_recovery_starts_over(nursery: Nursery, tmp_path: Path) -> None:
    sending = streams(2)
    for point in RECOVERING:
        server = nursery.start(tmp_path)
        assert server.wait_until_ready()
        # batches after a checkpoint, the last of them without receipts
        run_until_killed(sending, server.url, 0.3)
        wait_for(lambda url=server.url: _checkpointed(url))
        run_until_killed(sending, server.url, 0.1)
        server.kill()
        server.wait()
        killed = nursery.start(tmp_path, point)
        assert killed.dies(SECONDS), f"{point}: was not passed"
        killed.wait()
    _check(nursery, tmp_path, sending, everything=True)


def test_a_kill_between_a_batch_and_its_expiry_changes_no_version(
    nursery: Nursery, tmp_path: Path
) -> None:
    """By the event clock: as if it had not been killed."""
    found = {}
    for number, point in enumerate([None, *EXPIRING, "before the journal's commit"]):
        server = nursery.start(tmp_path / str(number), point, 4)
        if server.wait_until_ready():
            with suppress(httpx.TransportError):
                send_stream(server.url)
        if point is None:
            server.kill()
        assert server.dies(SECONDS), f"{point}: was not passed"
        server.wait()
        again = nursery.start(tmp_path / str(number))
        assert again.wait_until_ready()
        send_stream(again.url)
        found[point] = windowed(again.url)
        again.kill()
        again.wait()
    expected = found.pop(None)
    assert sum(one["expired"] for one in expected["versions"]) > 3
    for point, each in found.items():
        ranks = each.pop("ranks")
        assert ranks == pytest.approx(expected["ranks"], abs=2e-6), point
        assert each == {name: expected[name] for name in each}, point


WINDOWED = "/graphs/windowed"
TOLD = ("version", "inserted", "already_present", "deleted", "removed", "expired")


def send_stream(url: str) -> None:
    """Sends batches that add to weights; each makes some edges of the earlier ones too old."""
    options = {"window": 10, "clock": "event", "weighted": True, "forget_vertices": True}
    with httpx.Client(base_url=url, timeout=180) as http:
        http.put(WINDOWED, json=options).raise_for_status()
        for number in range(4):
            now = 10.0 * number
            rows = [["hub", f"v{number}", 1.0, now], ["a", "b", 1.0, now - 4.0 * (number % 2)]]
            rows += [[f"v{number}", f"v{number + 1}", 2.0, now + 1.0]]
            http.post(
                f"{WINDOWED}/batches",
                params={"on_conflict": "add"},
                json={"insert": rows},
                headers={"Idempotency-Key": f"k{number}"},
            ).raise_for_status()


def windowed(url: str) -> dict[str, Any]:
    """What the graph is, and what is told of its versions."""
    with httpx.Client(base_url=url, timeout=180) as http:
        last = http.get(WINDOWED).json()["version"]
        versions = [http.get(f"{WINDOWED}/batches/{n}").json() for n in range(1, last + 1)]
        edges = http.get(f"{WINDOWED}/edges", headers={"Accept": "text/csv"}).text
        top = http.get(f"{WINDOWED}/top").json()["ranks"]
    return {
        "versions": [{name: one[name] for name in TOLD} for one in versions],
        "edges": sorted(edges.splitlines()),
        "ranks": {one["vertex"]: one["rank"] for one in top},
    }


def _checkpointed(url: str) -> bool:
    """False while the server recovers."""
    return httpx.post(f"{url}{GRAPH}/checkpoint", timeout=60).status_code == 200


@pytest.fixture(scope="module")
def kept(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a graph of one edge beside ``default``."""
    data = tmp_path_factory.mktemp("kept") / "data"
    server = nursery.start(data)
    assert server.wait_until_ready()
    with httpx.Client(base_url=server.url, timeout=60) as http:
        http.put("/graphs/kept", json={"damping": 0.5}).raise_for_status()
        http.post("/graphs/kept/batches", json={"insert": [["a", "b"]]}).raise_for_status()
    server.kill()
    server.wait()
    return data


@pytest.mark.parametrize("point", CATALOGUE)
def test_graphs_are_created_and_dropped_atomically(
    nursery: Nursery, kept: Path, tmp_path: Path, point: str
) -> None:
    shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
    armed = nursery.start(tmp_path, point)
    answered = []
    if armed.wait_until_ready():
        try:
            with httpx.Client(base_url=armed.url, timeout=60) as http:
                answered.append(http.put("/graphs/new", json={"damping": 0.7}).status_code)
                answered.append(http.delete("/graphs/kept").status_code)
        except httpx.TransportError:
            pass
    assert armed.dies(SECONDS), f"{point}: was not passed"
    armed.wait()
    again = nursery.start(tmp_path)
    assert again.wait_until_ready()
    with httpx.Client(base_url=again.url, timeout=60) as http:
        graphs = {graph["graph"]: graph for graph in http.get("/graphs").json()["graphs"]}
        assert "default" in graphs
        if answered:
            assert graphs["new"]["options"]["damping"] == 0.7
        if "new" in graphs:
            assert graphs["new"]["version"] == 0
        if "kept" in graphs:
            assert (graphs["kept"]["version"], graphs["kept"]["edges"]) == (1, 1)
        left = {path.name for path in (tmp_path / "graphs").iterdir()}
        assert left == set(graphs)
    again.kill()
    again.wait()


def test_nothing_is_lost_or_done_twice_at_random_moments(nursery: Nursery, tmp_path: Path) -> None:
    sending, weighted, choose = streams(3), streams(3, WEIGHTED), random.Random(3)
    for _ in range(6):
        server = nursery.start(tmp_path)
        if choose.random() < 0.8:
            assert server.wait_until_ready()
            run_until_killed([*sending, *weighted], server.url, choose.uniform(0.0, 0.3))
        server.kill()
        server.wait()
    _check(nursery, tmp_path, sending, everything=True)
    _check(nursery, tmp_path, weighted, everything=True)
