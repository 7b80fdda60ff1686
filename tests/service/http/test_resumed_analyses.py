"""Analyses that a restart interrupts go on from their saved state, or begin again and say so."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import networkx as nx
import numpy as np
import pytest

from liverank_gpu import SavedRun
from liverank_service.storage.saved_runs import DIRECTORY
from tests.crash.nursery import Nursery
from tests.service.server import PATIENCE, running, wait_for

SUPERSTEPS = 50_000

TURNING = """
class Turning:
    dtype = "int64"
    identity = 0
    merge = "sum"

    def initial(vertex):
        return vertex + 1

    def gather(source_value):
        return source_value * 3 + 1

    def apply(old, gathered, superstep):
        return old * 5 - gathered + superstep

    def scatter(old, new):
        return True
"""
"""Each superstep counts, and there is no end to them."""

CLUB = nx.karate_club_graph()
"""Who met whom outside a karate club (Zachary 1977)."""


@cache
def turned(graph: nx.Graph, supersteps: int) -> dict[int, int]:
    """The values, in 64 bits."""
    first = list(dict.fromkeys(v for edge in CLUB.edges for v in edge))
    adjacent = nx.to_numpy_array(graph, sorted(graph), np.int64, weight=None)
    values = np.zeros(len(graph), np.int64)
    values[first] = np.arange(1, len(first) + 1)
    for superstep in range(supersteps):
        values = values * 5 - adjacent @ (values * 3 + 1) + superstep
    return dict(enumerate(values.tolist()))


def with_club(http: httpx.Client) -> None:
    http.put("/graphs/club", json={"directed": False, "keys": "integer"}).raise_for_status()
    http.post("/graphs/club/batches", json={"insert": [[*edge] for edge in CLUB.edges]})
    http.put("/programs/turning", json={"source": TURNING}).raise_for_status()


def begin(http: httpx.Client, supersteps: int, save_every: int) -> str:
    body = {"limits": {"supersteps": supersteps}, "save_every": save_every}
    answer = http.post("/graphs/club/analyses/turning", json=body)
    assert answer.status_code == 202, answer.text
    return str(answer.headers["Location"])


def ended(http: httpx.Client, analysis: str) -> dict[str, Any]:
    found: dict[str, Any] = http.get(analysis, params={"wait": 120}).json()
    return found


def values_of(http: httpx.Client, analysis: str) -> dict[int, int]:
    lines = http.get(f"{analysis}/export", headers={"Accept": "text/csv"}).text.split()[1:]
    return {int(vertex): int(value) for vertex, value in (line.split(",") for line in lines)}


def states(data: Path) -> list[Path]:
    return sorted((data / "graphs/club" / DIRECTORY).glob("*"))


def test_an_analysis_goes_on_after_the_server_was_killed(tmp_path: Path, nursery: Nursery) -> None:
    killed = nursery.start(tmp_path, programs=True)
    assert killed.wait_until_ready()
    with httpx.Client(base_url=killed.url, timeout=PATIENCE) as http:
        with_club(http)
        analysis = begin(http, SUPERSTEPS, 1000)
        wait_for(lambda: [each for each in states(tmp_path) if each.suffix == ".state"])
        killed.kill()
    killed.wait()
    with running(tmp_path, programs=True) as server:
        found = ended(server.http, analysis)
        assert found["state"] == "finished", found
        resumed = found["receipt"]["resumed"]
        assert 0 < resumed < found["receipt"]["supersteps"] == SUPERSTEPS
        assert resumed >= 1000
        assert values_of(server.http, analysis) == turned(CLUB, SUPERSTEPS)
        wait_for(lambda: not states(tmp_path))


def test_a_run_that_ends_the_server_twice_does_not_go_on_again(tmp_path: Path) -> None:
    with running(tmp_path, programs=True) as server:
        with_club(server.http)
        analysis = begin(server.http, SUPERSTEPS, 5000)
        wait_for(lambda: [each for each in states(tmp_path) if each.suffix == ".state"])
    (state,) = states(tmp_path)
    state.rename(state.with_suffix(".taken"))  # as a server leaves it that is killed
    with running(tmp_path, programs=True) as server:
        assert server.http.get(analysis).json()["state"] == "interrupted"
        assert not states(tmp_path)


@pytest.mark.parametrize("why", ["changed", "torn", "shape", "note"])
def test_an_analysis_begins_again_if_it_cannot_go_on(tmp_path: Path, why: str) -> None:
    with running(tmp_path, programs=True) as server:
        with_club(server.http)
        analysis = begin(server.http, SUPERSTEPS, 5000)
        other = begin(server.http, 10, 0)
        assert ended(server.http, other)["receipt"]["resumed"] is None
        wait_for(lambda: [each for each in states(tmp_path) if each.suffix == ".state"])
        if why == "changed":
            batch = {"delete": [[0, 1]]}
            server.http.post("/graphs/club/batches", json=batch).raise_for_status()
    (state,) = states(tmp_path)
    assert state.stem == analysis.rpartition("/")[2]
    if why == "torn":
        state.write_bytes(state.read_bytes()[:-100])
    saved = SavedRun.load(state) if why in ("shape", "note") else None
    if saved is not None and why == "shape":
        replace(saved, arrays={"values": saved.arrays["values"]}).save(state)
    elif saved is not None:
        replace(saved, note=[1.0]).save(state)  # type: ignore[arg-type]
    stray = state.with_name("0123456789abcdef.state")
    stray.write_bytes(b"")
    with running(tmp_path, programs=True) as server:
        assert not stray.exists()
        assert ended(server.http, other)["state"] == "interrupted"
        found = ended(server.http, analysis)
        assert (found["state"], found["save_every"]) == ("finished", 5000)
        assert (found["receipt"]["resumed"], found["version"]) == (0, 2 if why == "changed" else 1)
        graph = CLUB.copy()
        if why == "changed":
            graph.remove_edge(0, 1)
        assert values_of(server.http, analysis) == turned(graph, SUPERSTEPS)
        wait_for(lambda: not states(tmp_path))
