"""Exports, pipes, figures, completion and `top --watch`."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from liverank import Client, SetChange, SourceRange
from liverank_service.cli import plots
from liverank_service.formats.edge_files import read_edge_list
from tests.crash.nursery import COMMAND, Nursery

Piped = Callable[..., bytes]
TRIANGLE = b"source,target\na,b\nb,c\nc,a\nd,a\n"
EDGES = {("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")}


@pytest.fixture(scope="module")
def piped(nursery: Nursery) -> Piped:
    """What the command writes to stdout, in a process of its own."""

    def run(*arguments: object, given: bytes = b"") -> bytes:
        done = nursery.run(COMMAND, *arguments, given=given)
        assert done.returncode == 0, done.stderr
        return os.fsencode(done.stdout)

    return run


@pytest.fixture(scope="module")
def loaded(url: str, piped: Piped) -> str:
    """The address of a server whose graph `triangle` has the edges."""
    piped("load", "-", "--graph", "triangle", "--url", url, given=TRIANGLE)
    return url


@pytest.mark.parametrize("name", ["e.csv", "e.csv.gz", "e.ndjson", "e.arrow", "e.parquet"])
def test_edges_are_exported_to_files_that_can_be_loaded(
    run: Any, loaded: str, tmp_path: Path, name: str
) -> None:
    out = tmp_path / name
    code, printed, _ = run(
        *("export", "edges", "--graph", "triangle", "--url", loaded, "--out", out)
    )
    assert (code, printed) == (0, f"{out}: edges of version 1\n")
    if name == "e.ndjson":
        found = {tuple(json.loads(line).values()) for line in out.read_text().splitlines()}
    else:
        edges = read_edge_list(out)
        found = set(zip(edges.sources.to_pylist(), edges.targets.to_pylist(), strict=True))
    assert found == EDGES


def test_ranks_are_exported_with_their_version(run: Any, loaded: str, tmp_path: Path) -> None:
    out = tmp_path / "ranks"
    code, printed, _ = run(
        *("export", "ranks", "--graph", "triangle", "--url", loaded, "--out", out),
        *("--format", "parquet", "--min-version", 1, "--json"),
    )
    document = json.loads(printed)
    assert (code, document["file"], document["version"]) == (0, str(out), 1)
    assert document["bytes"] == out.stat().st_size
    table = pyarrow.parquet.read_table(out)
    with Client(loaded) as client:
        assert table["rank"].to_pylist() == client.ranks("triangle", table["vertex"]).ranks


def test_an_export_waits_for_positions(run: Any, loaded: str, tmp_path: Path) -> None:
    with Client(loaded) as client:
        client.append("triangle", source_range=SourceRange("s", "7"))
    options = ("--graph", "triangle", "--url", loaded, "--out", tmp_path / "ranks.csv")
    code, *_ = run("export", "ranks", *options, "--min-position", "s::6", "--min-position", "s::7")
    assert code == 0
    code, _, error = run("export", "ranks", *options, "--min-position", "t::7")
    assert code == 1
    assert "graph 'triangle' has no source 't'" in " ".join(error.split())


def test_exports_are_piped(loaded: str, piped: Piped) -> None:
    place = ("--graph", "triangle", "--url", loaded)
    csv = pyarrow.csv.read_csv(io.BytesIO(piped("export", "edges", *place)))
    assert {tuple(row.values()) for row in csv.to_pylist()} == EDGES
    arrow = piped("export", "ranks", *place, "--out", "-", "--format", "arrow")
    assert pa.ipc.open_stream(arrow).read_all().column_names == ["vertex", "rank"]


def test_a_file_is_read_from_stdin_and_ranks_are_written_to_stdout(
    loaded: str, piped: Piped
) -> None:
    # `loaded` was read from stdin as it is
    given = gzip.compress(TRIANGLE)
    written = piped("rank", "-", "--backend", "cpu", "--out", "-", given=given)
    table = pyarrow.csv.read_csv(io.BytesIO(written))
    assert table.column_names == ["vertex", "rank"]
    assert sum(table["rank"].to_pylist()) == pytest.approx(1)
    lines = piped(
        *("top", "--graph", "triangle", "--url", loaded, "--out", "-", "--format", "ndjson")
    ).splitlines()
    assert [json.loads(line)["vertex"] for line in lines] == table["vertex"].to_pylist()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["export", "edges", "--out", "e.xml"], "the name must end in .csv, .ndjson"),
        (["export", "values"], "values needs --analysis ID"),
        (["export", "ranks", "--analysis", "5f2c"], "--analysis needs values, not ranks"),
        (
            ["export", "values", "--analysis", "5f2c", "--min-version", "2"],
            "leave out --min-version",
        ),
        (["export", "edges", "--json"], "--json needs --out FILE"),
        (["export", "edges", "--out", "e.parquet.gz"], "compressed internally"),
        (["top", "--format", "csv"], "--format is the format of --out"),
        (["top", "--watch", "--offset", "3"], "--watch shows up to 5,000 places"),
        (["rank", "-", "--plot", "ranks.pdf"], "the name must end in .svg or .png"),
    ],
)
def test_what_cannot_be_written_is_refused_first(
    run: Any, arguments: list[str], complaint: str
) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    assert complaint in err


@pytest.mark.parametrize("present", [False, True])
def test_a_failed_export_changes_no_file(
    run: Any, loaded: str, tmp_path: Path, present: bool
) -> None:
    out = tmp_path / "e.csv"
    if present:
        out.write_text("before")
    code, _, err = run("export", "edges", "--graph", "nothing", "--url", loaded, "--out", out)
    assert code == 1
    assert "there is no graph 'nothing'" in err
    assert [file.read_text() for file in tmp_path.iterdir()] == ["before"] * present


@pytest.mark.parametrize("which", [[], ["--view", "mine", "--among", "chosen"]])
def test_the_top_is_printed_again_when_it_changes(loaded: str, which: list[str]) -> None:
    line = [
        sys.executable,
        "-m",
        "liverank_service.cli",
        "top",
        "--watch",
        "-k",
        "2",
        "--graph",
        "watched",
        "--url",
        loaded,
        "--json",
    ]
    line += which
    with Client(loaded) as client:
        client.create("watched")
        client.insert("watched", [("a", "b"), ("c", "b")])
        client.put_view("watched", "mine", {"weights": {"b": 1, "z": 9}}, unknown="ignore")
        client.put_set("watched", "chosen", ["a", "b"])
        with subprocess.Popen(line, stdout=subprocess.PIPE) as watching:
            assert watching.stdout
            first = json.loads(watching.stdout.readline())
            assert first["ranks"][0]["vertex"] == "b"
            links = [(f"v{each}", "z") for each in range(20)]
            client.send("watched", insert=links, sets={"chosen": SetChange(add=["z"])})
            second = json.loads(watching.stdout.readline())
            assert second["ranks"][0]["vertex"] == "z"
            if "--among" in which:
                assert [place["vertex"] for place in second["ranks"]] == ["z", "b"]
            assert second["revision"] > first["revision"]
            client.drop("watched")  # which ends the feed, as a failure
            assert watching.stdout.read() == b""
            assert watching.wait(60) == 1


# Figures


@pytest.mark.parametrize(("name", "magic"), [("r.svg", b"<?xml"), ("r.png", b"\x89PNG")])
def test_ranks_are_drawn(run: Any, triangle: Path, name: str, magic: bytes) -> None:
    plot = triangle.parent / name
    code, out, _ = run("rank", triangle, "--backend", "cpu", "--top", 2, "--plot", plot)
    assert code == 0
    assert len(out.split("vertices")[0].splitlines()) == 4  # a header, two places, a blank line
    assert plot.read_bytes().startswith(magic)


def test_a_replay_is_drawn_by_strategy(run: Any, url: str, tmp_path: Path) -> None:
    events, plot = tmp_path / "events.txt", tmp_path / "replay.svg"
    events.write_text("".join(f"{each} {each * 7 % 30} {each}\n" for each in range(60)))
    code, _, _ = run(
        *("replay", events, "--batch-size", 2, "--strategy", "residual", "--graph", "drawn"),
        *("--url", url, "--plot", plot),
    )
    assert code == 0
    assert plot.read_bytes().startswith(b"<?xml")


def test_without_matplotlib_the_extra_is_named_before_anything_is_done(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, out, err = run("rank", "-", "--plot", tmp_path / "ranks.svg")
    assert (code, out) == (1, "")
    assert err == (
        "liverank: --plot needs matplotlib, which is not installed: "
        "pip install -e '.[plot]' in the clone of liverank\n"
    )


def test_the_largest_and_the_smallest_rank_of_many_are_drawn(tmp_path: Path) -> None:
    import numpy as np

    plots.plot_ranks(tmp_path / "one.svg", np.array([1.0]), "one")
    plots.plot_ranks(tmp_path / "many.svg", np.geomspace(1, 1e-9, 100_000), "many")
    assert (tmp_path / "many.svg").stat().st_size < 200_000


# Completion


@pytest.fixture(scope="module")
def command_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with `liverank` on its path."""
    command = tmp_path_factory.mktemp("command") / "liverank"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m liverank_service.cli "$@"\n')
    command.chmod(0o755)
    return {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}"}


@pytest.fixture(scope="module", params=["bash", "zsh"])
def shell(request: pytest.FixtureRequest) -> str:
    path: str | None = shutil.which(request.param)
    if path is None:
        pytest.skip(f"{request.param} is not installed")
    return path


@pytest.fixture(scope="module")
def script(command_environment: dict[str, str], shell: str) -> str:
    """What the shell evaluates to complete the command."""
    return subprocess.run(
        ["liverank"],
        env={**command_environment, "_LIVERANK_COMPLETE": f"source_{Path(shell).name}"},
        capture_output=True,
        text=True,
    ).stdout


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("liverank re", ["recompute", "remove", "replace", "replay", "restore"]),
        ("liverank top --wa", ["--watch"]),
        ("liverank rank --strategy dynamic-t", ["dynamic-traversal"]),
    ],
)
def test_the_shell_completes_commands_options_and_values(
    command_environment: dict[str, str],
    script: str,
    shell: str,
    line: str,
    completed: list[str],
) -> None:
    environment = command_environment
    words = line.split()
    if shell.endswith("bash"):
        call = (
            f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; "
            '_liverank_completion liverank; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(
            [shell, "--norc", "-c", f"{script}\n{call}"],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert sorted(done.stdout.split()) == completed, done.stderr
        return
    # the completion system of zsh needs a terminal: only what it is told is looked at
    done = subprocess.run(
        [
            shell,
            "-fc",
            f"autoload -U compinit; compinit -u\n{script}\nwhence -w _liverank_completion",
        ],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert "_liverank_completion: function" in done.stdout, done.stderr
    told = subprocess.run(
        ["liverank"],
        env={
            **environment,
            "_LIVERANK_COMPLETE": "complete_zsh",
            "_TYPER_COMPLETE_ARGS": line,
        },
        capture_output=True,
        text=True,
    ).stdout
    for each in completed:
        assert f'"{each}"' in told
