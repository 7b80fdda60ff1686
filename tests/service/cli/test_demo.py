"""`liverank demo`."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from liverank.client import Client, RankedVertex
from liverank_service.cli import demo, ingest
from liverank_service.cli.demo import Board, back_and_forth, generated_replay
from liverank_service.formats.edge_list import EdgeList
from tests.crash.nursery import COMMAND, Nursery

SECONDS = 120.0
"""For a demo, which takes a few."""


def test_the_demo_shows_every_batch_and_cleans_up(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
    lines: list[str] = []
    error = tmp_path / "error"
    command = [sys.executable, "-u", "-m", "liverank_service.cli", "demo", "--batches", "3"]
    with (
        error.open("w") as stderr,
        subprocess.Popen(
            [*command, "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=environment,
        ) as process,
    ):
        assert process.stdout is not None
        limit = threading.Timer(SECONDS, process.kill)
        limit.start()
        try:
            for line in process.stdout:
                lines.append(line.rstrip("\n"))
                if line.startswith("Ctrl-C stops it"):
                    wait_for_a_change(lines[0].split()[-1])
                    process.send_signal(signal.SIGINT)
            process.wait()
        finally:
            limit.cancel()
            process.kill()
    assert process.returncode == 0
    assert_shown(lines[:-1], error.read_text())
    assert lines[-1] == "stopping"
    assert list(tmp_path.glob("liverank-demo-*")) == []


SMALL = "from liverank_service.cli import demo; demo.SCALE, demo.BATCH_EDGES = 8, 20; "


def test_it_ends_by_itself_if_asked_to(nursery: Nursery) -> None:
    ended = nursery.run(SMALL + COMMAND, "demo", "--batches", "3", "--port", "0", "--exit")
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert_shown(lines, ended.stderr)
    assert lines[-1].startswith("3 batches: ")


def assert_shown(lines: list[str], error: str) -> None:
    """What the demo printed of three batches."""
    waits = r"(starting|generating a graph|starting the service .*|loading .* edges|waiting for .*)"
    assert all(re.fullmatch(rf"{waits} … \d+ s", line) for line in error.splitlines())
    assert lines[0].startswith("liverank is up at http://127.0.0.1:")
    assert lines[1] == f"its dashboard, live: {lines[0].split()[-1]}/"
    assert [line.split(":")[0] for line in lines if line.startswith("batch ")] == [
        "batch 1/3",
        "batch 2/3",
        "batch 3/3",
    ]
    assert all("error bound" in line for line in lines if line.startswith("batch "))
    summary = next(place for place, line in enumerate(lines) if line.startswith("3 batches: "))
    assert lines[summary].startswith("3 batches: median latency ")


def wait_for_a_change(url: str) -> None:
    """Until the graph has another version than now."""
    with Client(url) as client:
        version = client.graph(demo.GRAPH).version
        deadline = time.monotonic() + SECONDS
        while client.graph(demo.GRAPH).version == version and time.monotonic() < deadline:
            time.sleep(0.05)


def test_the_graph_of_the_demo_is_the_same_each_time_and_large_enough() -> None:
    plan, again = generated_replay(2), generated_replay(2)
    assert len(plan.initial.sources) == 262_144
    assert plan.initial.sources.equals(again.initial.sources)
    for batch, repeated in zip(plan.batches, again.batches, strict=True):
        assert batch.sources.equals(repeated.sources)
        assert batch.operations is not None
        assert (len(batch.operations), int(batch.operations.sum())) == (2_000, 1_600)


def test_the_demo_undoes_its_batches_and_repeats_them() -> None:
    first = EdgeList(
        pa.array(["a", "b", "a"]),
        pa.array(["b", "c", "c"]),
        operations=np.array([True, False, True]),
    )
    second = EdgeList(pa.array(["b"]), pa.array(["c"]), operations=np.array([True]))
    before = edges = {("b", "c"), ("c", "a")}
    for batch in (first, second):
        edges = after(edges, batch)
    states = []
    for batch in itertools.islice(back_and_forth([first, second]), 8):
        edges = after(edges, batch)
        states.append(edges)
    assert states[1] == states[5] == before
    assert states[3] == states[7] == {("b", "c"), ("c", "a"), ("a", "b"), ("a", "c")}
    assert list(back_and_forth([])) == []


def after(edges: set[tuple[str, str]], batch: EdgeList) -> set[tuple[str, str]]:
    """The edges after the operations of a batch."""
    edges = set(edges)
    assert batch.operations is not None
    ends = zip(batch.sources.to_pylist(), batch.targets.to_pylist(), strict=True)
    for edge, inserts in zip(ends, batch.operations, strict=True):
        (edges.add if inserts else edges.discard)(edge)
    return edges


@pytest.mark.parametrize(
    ("wanted", "variables", "opened"),
    [
        (None, {}, False),
        (None, {"DISPLAY": ":0"}, False),  # the output is no terminal
        (False, {"DISPLAY": ":0"}, False),
        (True, {}, True),
    ],
)
def test_the_dashboard_opens_where_somebody_can_see_it(
    wanted: bool | None,
    variables: dict[str, str],
    opened: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    addresses: list[str] = []
    monkeypatch.setattr("webbrowser.open", addresses.append)  # None: it could open none
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    demo._open_dashboard("http://127.0.0.1:1/", wanted)
    assert addresses == ["http://127.0.0.1:1/"] * opened
    assert capsys.readouterr().out == "no browser could be opened\n" * opened


def test_the_demo_shows_how_places_moved() -> None:
    receipt: Any = SimpleNamespace(
        inserted=1,
        deleted=0,
        touched_vertices=3,
        error_bound=1e-7,
        seconds=dict.fromkeys(("journal", "keys", "mutate", "solve", "publish"), 0.001),
    )
    board = Board(1, [RankedVertex(key, 0.1) for key in ("a", "b", "c")])
    batch = ingest.ReplayedBatch(1, 0.002, receipt)
    board.add(batch, [RankedVertex(key, 0.1) for key in ("c", "b", "x", "a")])
    assert [board.movement(place) for place in range(4)] == ["↑2", "", "new", "↓3"]
    table = board._place_table()
    assert list(table.columns[0].cells) == ["1", "2", "3", "4"]
    assert [str(vertex) for vertex in table.columns[2].cells] == ["c", "b", "x", "a"]
