"""Times of edges in the command: `load --time`, `replay` and `rank --half-life`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import networkx as nx
import pytest

from liverank.client import Client

HALF_LIFE = 10.0
ROWS = [("a", "b", 4.0, 0.0), ("a", "c", 1.0, 20.0), ("b", "a", 1.0, 25.0), ("c", "a", 3.0, 30.0)]


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    file = tmp_path / "calls.csv"
    rows = "".join(f"{s},{t},{weight},{at}\n" for s, t, weight, at in ROWS)
    file.write_text(f"source,target,minutes,when\n{rows}")
    return file


def expected(weighted: bool) -> dict[str, float]:
    graph = nx.DiGraph()
    graph.add_weighted_edges_from(
        (s, t, (weight if weighted else 1.0) * 2 ** (at / HALF_LIFE)) for s, t, weight, at in ROWS
    )
    ranks: dict[str, float] = nx.pagerank(graph, weight="weight", tol=1e-14, max_iter=1000)
    return ranks


@pytest.mark.parametrize("weighted", [False, True])
def test_load_sends_the_times(run: Any, url: str, calls: Path, weighted: bool) -> None:
    name = f"decaying-{weighted}"
    weights = ("--weights", "minutes") if weighted else ()
    code, out, error = run(
        *("load", calls, "--graph", name, "--url", url, "--time", "when", "--json", *weights),
        *("--half-life", HALF_LIFE, "--window", 1000, "--clock", "event", "--target-error", 1e-9),
    )
    assert code == 0
    assert error.splitlines()[1:] == ([] if weighted else ["note: columns not used: minutes"])
    assert (json.loads(out)["inserted"], json.loads(out)["load"]["expired"]) == (4, 0)
    with Client(url) as client:
        options = client.graph(name).options
        assert (options.half_life, options.window, options.clock) == (HALF_LIFE, 1000, "event")
        ranks = client.top(name).to_dict()
    assert ranks == pytest.approx(expected(weighted), abs=1e-7)


def test_load_without_a_time_says_that_times_are_not_used(
    run: Any, url: str, tmp_path: Path
) -> None:
    file = tmp_path / "calls.csv"
    file.write_text("source,target,time\na,b,5\n")
    code, _, error = run("load", file, "--graph", "arrivals", "--url", url, "--half-life", 60)
    assert (code, error.splitlines()[1:]) == (0, ["note: columns not used: times"])


def test_times_for_a_graph_without_are_refused(run: Any, url: str, calls: Path) -> None:
    arguments = ("load", calls, "--graph", "timeless", "--url", url)
    code, _, error = run(*arguments, "--time", "when")
    assert code == 1
    assert "graph 'timeless' does not exist: with --half-life or --window" in error
    assert httpx.get(f"{url}/graphs/timeless").status_code == 404
    assert run(*arguments)[0] == 0
    code, _, error = run(*arguments, "--time", "when")
    assert code == 1
    assert "the edges of graph 'timeless' have no times; --graph NAME with --half-life" in error


def test_a_format_without_times_is_refused(run: Any, url: str, tmp_path: Path) -> None:
    file = tmp_path / "pairs.gr.bin"
    file.write_bytes(b"\1\0\0\0\2\0\0\0")
    code, _, error = run("load", file, "--url", url, "--graph", "none", "--time", "1")
    assert code == 1
    assert error.strip().endswith("pairs.gr.bin: a file of this format has no column of times")


def test_replay_sends_times_to_a_graph_that_has_them(run: Any, url: str, tmp_path: Path) -> None:
    file = tmp_path / "stream.csv"
    rows = "".join(f"v{number},v{number + 1},{number}\n" for number in range(40))
    file.write_text(f"source,target,time\n{rows}")
    options = ("--window", 5, "--clock", "event", "--forget-vertices", "--batch-size", 1)
    code, out, _ = run("replay", file, "--graph", "moving", "--url", url, "--json", *options)
    assert code == 0
    versions = [json.loads(line)["version"] for line in out.splitlines()]
    assert len(versions) == 4
    with Client(url) as client:
        info = client.graph("moving")
    # those of the times 34 … 39
    assert (info.edges, info.vertices) == (6, 7)


@pytest.mark.parametrize("weighted", [False, True])
def test_rank_decays_weights(run: Any, calls: Path, weighted: bool) -> None:
    weights = ("--weights", "minutes") if weighted else ()
    code, out, error = run(
        *("rank", calls, "--time", "when", "--half-life", HALF_LIFE, "--json", *weights)
    )
    document = json.loads(out)
    assert code == 0
    assert "times" not in document["unused_columns"]
    assert error.strip() == ("" if weighted else "note: columns not used: minutes")
    ranks = {place["vertex"]: place["rank"] for place in document["ranks"]}
    assert ranks == pytest.approx(expected(weighted), abs=1e-5)


@pytest.mark.parametrize("option", [("--time", "when"), ("--half-life", 60)])
def test_rank_needs_both_times_and_a_half_life(
    run: Any, calls: Path, option: tuple[str, object]
) -> None:
    code, _, error = run("rank", calls, *option)
    assert (code, error.strip()) == (1, "liverank: --time and --half-life need each other")
