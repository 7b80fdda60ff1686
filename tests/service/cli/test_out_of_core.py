"""`liverank rank` and `analyse FILE --memory SIZE`: the edges of a file are not held in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from liverank_gpu.generate import rmat
from liverank_service.cli.commands.options import size


@pytest.fixture
def crawl(tmp_path: Path) -> Path:
    """String keys, repeats, loops, and a column that is not read."""
    sources, targets = rmat(9, 8, seed=2)
    file = tmp_path / "crawl.csv"
    rows = [f"p{u},p{v},1\n" for u, v in zip(sources.tolist(), targets.tolist(), strict=True)]
    file.write_text("source,target,w\n" + "".join(rows))
    return file


@pytest.fixture
def roads(tmp_path: Path) -> Path:
    """Integer keys and weights; each edge is named more than once, from either end."""
    generator = np.random.default_rng(3)
    ends = generator.integers(0, 60, (2000, 2))
    weights = generator.integers(1, 1000, 2000) / 8
    file = tmp_path / "roads.csv"
    rows = zip(*ends.T.tolist(), weights.tolist(), strict=True)
    file.write_text("source,target,w\n" + "".join(f"{u},{v},{w}\n" for u, v, w in rows))
    return file


@pytest.mark.parametrize("options", [(), ("--dangling", "self-loop"), ("--undirected",)])
def test_ranks_of_weighted_edges_are_those_of_the_whole_file(
    run: Any, roads: Path, options: tuple[str, ...]
) -> None:
    common = ("rank", roads, "--json", "--backend", "cpu", "--top", 100, "--weights", "w", *options)
    whole = json.loads(run(*common)[1])
    code, out, error = run(*common, "--memory", "0.5MiB")
    assert code == 0, error
    streamed = json.loads(out)
    expected = {place["vertex"]: place["rank"] for place in whole["ranks"]}
    found = {place["vertex"]: place["rank"] for place in streamed["ranks"]}
    assert found.keys() == expected.keys()
    error_bound = whole["error_bound"] + streamed["error_bound"]
    assert sum(abs(found[key] - expected[key]) for key in found) <= error_bound < 1e-6
    assert (streamed["edges"], streamed["unused_columns"]) == (whole["edges"], [])


@pytest.mark.parametrize("options", [(), ("--dangling", "self-loop"), ("--undirected",)])
def test_ranks_are_those_of_the_whole_file(
    run: Any, crawl: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    common = ("rank", crawl, "--json", "--backend", "cpu", "--top", 1000, *options)
    whole = json.loads(run(*common)[1])
    code, out, error = run(*common, "--memory", "0.5MiB", "--scratch", scratch)
    assert code == 0, error
    streamed = json.loads(out)
    expected = {place["vertex"]: place["rank"] for place in whole["ranks"]}
    found = {place["vertex"]: place["rank"] for place in streamed["ranks"]}
    assert found.keys() == expected.keys()
    error_bound = whole["error_bound"] + streamed["error_bound"]
    assert sum(abs(found[key] - expected[key]) for key in found) <= error_bound < 1e-6
    for name in ("vertices", "edges", "duplicates", "unused_columns", "strategy", "form"):
        assert streamed[name] == whole[name], name
    assert whole["streaming"] is None
    streaming = streamed["streaming"]
    assert streaming["memory"] == 1 << 19
    assert streaming["passes"] == streamed["iterations"] + 1
    assert not list(scratch.iterdir())


def test_the_table_has_the_figures_of_the_stream(run: Any, crawl: Path) -> None:
    code, out, error = run("rank", crawl, "--memory", "1 MiB", "--strategy", "auto")
    assert code == 0, error
    assert "passes, windows: 1" in out
    assert "duplicates" in error + out


def test_out_writes_all_ranks(run: Any, crawl: Path, tmp_path: Path) -> None:
    out = tmp_path / "ranks.csv"
    assert run("rank", crawl, "--memory", "1MiB", "--out", out)[0] == 0
    ranks = [float(line.split(",")[1]) for line in out.read_text().splitlines()[1:]]
    assert sum(ranks) == pytest.approx(1)
    assert ranks == sorted(ranks, reverse=True)


def test_too_little_memory_names_the_least(run: Any, crawl: Path) -> None:
    code, out, error = run("rank", crawl, "--memory", 1000)
    assert (code, out) == (1, "")
    least = error.split("at least ")[1].split(" bytes")[0].replace(",", "")
    assert "vertices and their keys" in error
    assert run("rank", crawl, "--memory", least)[0] == 0
    assert run("rank", crawl, "--memory", int(least) - 1)[0] == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--memory", "8GB"), 2, "expected whole bytes, or a number with KiB, MiB, GiB or TiB"),
        (("--memory", "-1"), 2, "expected whole bytes"),
        (("--memory", "0"), 1, "memory: 0 is not allowed"),
        (("--scratch", "."), 1, "--scratch needs --memory"),
        (("--memory", "1MiB", "--weights", "v"), 1, "there is no column 'v' for the weight"),
        (
            ("--memory", "1MiB", "--time", "w", "--half-life", "60"),
            1,
            "--half-life cannot be used with --memory",
        ),
        (("--memory", "1MiB", "--scratch", "/nowhere"), 1, "/nowhere"),
        (("--memory", "1MiB", "--strategy", "dynamic-frontier"), 1, "strategy: "),
    ],
)
def test_wrong_options_are_named(
    run: Any, crawl: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    got, _, error = run("rank", crawl, *arguments)
    assert got == code
    assert message in " ".join(error.replace("│", " ").split())


@pytest.mark.parametrize("undirected", [(), ("--undirected",)], ids=["directed", "undirected"])
def test_answers_of_programs_are_those_of_the_whole_file(
    run: Any, crawl: Path, undirected: tuple[str, ...]
) -> None:
    options = ("--source", "p3", "--json", "--backend", "cpu", "--top", 1000, *undirected)
    common = ("analyse", crawl, "levels", "components", "labels", "support", *options)
    whole = json.loads(run(*common)[1])
    code, out, error = run(*common, "--memory", "0.5MiB")
    assert code == 0, error
    assert "columns not used: w" in error
    streamed = json.loads(out)
    for name in ("vertices", "edges", "duplicates", "components", "triangles"):
        assert streamed[name] == whole[name], name
    for name, found in streamed["programs"].items():
        for member in ("parameters", "summary", "values"):
            assert found[member] == whole["programs"][name][member], (name, member)
        assert found["streaming"]["memory"] == 1 << 19
        assert found["streaming"]["passes"] == found["supersteps"]
        assert "streaming" not in whole["programs"][name]


def test_distances_over_weights_are_written(run: Any, roads: Path, tmp_path: Path) -> None:
    outputs = []
    for name, options in (("whole", ()), ("streamed", ("--memory", "0.5MiB"))):
        out = tmp_path / f"{name}.csv"
        arguments = ("distances", "--source", "7", "--weights", "w", "--backend", "cpu")
        code, shown, error = run("analyse", roads, *arguments, *options, "--out", out)
        assert code == 0, error
        outputs.append(out.read_text())
    assert outputs[0] == outputs[1]
    assert "passes, windows: 1" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("trussness", "--iterations", "0", "--memory", "1MiB"), "iterations: 0 is not allowed"),
        (("levels", "--source", "p3", "--memory", "1000"), "vertices and their keys"),
        (("levels", "--source", "nobody", "--memory", "1MiB"), "has no vertex 'nobody'"),
        (("levels", "--memory", "1MiB"), "levels needs --source, the vertex"),
        (("components", "--scratch", "."), "--scratch needs --memory"),
    ],
)
def test_programs_that_cannot_run_are_refused(
    run: Any, crawl: Path, arguments: tuple[str, ...], message: str
) -> None:
    code, _, error = run("analyse", crawl, *arguments, "--backend", "cpu")
    assert code == 1
    assert message in " ".join(error.split())


def test_sizes_have_binary_units() -> None:
    assert [size(text) for text in ("17", "2KiB", "1.5 MiB", "0.5GiB", "8GiB", "1TiB")] == [
        *(17, 2 << 10, 3 << 19, 1 << 29, 8 << 30, 1 << 40)
    ]


@pytest.mark.parametrize("text", ["8GB", "-1", "1.5", "1.5 ", "9" * 400])
def test_what_is_no_size_is_named(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=f"expected whole bytes, or .*, got '{text}'"):
        size(text)
