"""The command `liverank`, as its users meet it: arguments in, text and exit code out."""

from __future__ import annotations

import importlib
import json
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import service.client.connection
from gpu import STRATEGIES, BackendName, Options
from service.cli import display, generate, ingest
from service.cli import main as cli
from service.cli.board import Board
from service.cli.commands import options
from service.cli.demo import generated_replay, running_service
from service.cli.errors import CommandError
from service.cli.rank import rank_edges
from service.client import Client
from service.formats.edge_files import read_edge_list
from service.formats.edge_list import EdgeList

DATA = Path(__file__).parents[2].parent / "shared" / "data"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with an empty data directory."""
    with running_service(tmp_path_factory.mktemp("data")) as address:
        yield address


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command line in this process: its exit code, stdout and stderr."""

    def run_here(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            cli.main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return int(end.value.code or 0), printed.out, printed.err

    return run_here


def edge_list(
    sources: list[Any],
    targets: list[Any],
    times: list[float] | None = None,
    operations: list[bool] | None = None,
) -> EdgeList:
    return EdgeList(
        sources=pa.array(sources),
        targets=pa.array(targets),
        times=None if times is None else np.array(times, np.float64),
        operations=None if operations is None else np.array(operations, np.bool_),
    )


@pytest.fixture
def triangle(tmp_path: Path) -> Path:
    """a → b → c → a, and d → a."""
    file = tmp_path / "triangle.csv"
    file.write_text("source,target\na,b\nb,c\nc,a\nd,a\n")
    return file


# Parsing and printing


def imported_by(arguments: list[str], heavy: set[str]) -> subprocess.CompletedProcess[str]:
    """Runs the command, which ends stderr with its exit status and what it imported of `heavy`."""
    program = (
        "import sys; from service.cli import main as cli\n"
        f"try: cli.main({arguments!r})\n"
        "except SystemExit as end: code = end.code\n"
        f"print(code, set({sorted(heavy)!r}) & set(sys.modules), file=sys.stderr)"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


def test_help_names_every_command_and_imports_nothing_heavy() -> None:
    heavy = {"numba", "numpy", "pyarrow", "fastapi", "httpx", "uvicorn"}
    done = imported_by(["--help"], heavy)
    assert done.stderr == "0 set()\n"
    for name in ("serve", "load", "replay", "rank", "top", "get", "ppr", "generate", "demo"):
        assert f"\n  {name} " in done.stdout


def test_what_asks_a_server_imports_neither_engine_nor_web_framework_even_when_it_fails() -> None:
    heavy = {"numba", "numpy", "pyarrow", "fastapi", "uvicorn"}
    done = imported_by(["top", "--url", "http://127.0.0.1:9"], heavy)
    assert done.stderr.startswith("liverank: no answer from http://127.0.0.1:9 ")
    assert done.stderr.endswith("\n1 set()\n")


@pytest.mark.parametrize(("module", "name"), cli._EXPECTED.items())
def test_expected_errors_are_named_as_they_are_called(module: str, name: str) -> None:
    assert issubclass(getattr(importlib.import_module(module), name), Exception)


def test_the_module_runs_as_the_command_does() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "service.cli", "generate", "--help"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "rmat" in done.stdout
    assert "grid" in done.stdout


def test_choices_are_those_of_the_engine_and_the_address_that_of_the_client() -> None:
    assert set(get_args(options.Strategy)) == set(STRATEGIES)
    assert set(get_args(options.Backend)) == set(get_args(BackendName))
    assert service.client.DEFAULT_URL == options.DEFAULT_URL


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["rank"], "Missing argument 'FILE'"),
        (["rank", "/nowhere/at/all.txt"], "file '/nowhere/at/all.txt' does not exist"),
        (["top", "--k", "0"], "'--k' / '-k': Input should be greater than or equal to 1"),
        (["rank", __file__, "--strategy", "fast"], "'fast' is not one of 'auto', 'static'"),
        (["generate", "rmat"], "Missing option '--out'"),
    ],
)
def test_wrong_usage_ends_with_2(run: Any, arguments: list[str], complaint: str) -> None:
    code, out, error = run(*arguments)
    assert (code, out) == (2, "")
    assert complaint in error


def test_an_unforeseen_error_is_one_line_that_says_where(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("a fault\nof ours")

    monkeypatch.setattr(Client, "top", fail)
    code, out, error = run("top")
    assert (code, out) == (1, "")
    assert error.startswith("liverank: unexpected KeyError at ")
    assert "test_cli.py:" in error
    assert error.count("\n") == 1


def test_what_could_steer_the_terminal_is_escaped() -> None:
    assert display.printable("Zoë [bold]") == "Zoë [bold]"
    assert display.printable("a\x1b[2Jb\nc") == "a\\u001b[2Jb\\nc"
    assert display.printable(-5) == "-5"


# generate


@pytest.mark.parametrize(
    "name", ["g.txt", "g.csv", "g.txt.gz", "g.csv.zst", "g.txt.bz2", "g.parquet", "g.arrow"]
)
def test_a_generated_file_reads_back_the_same_for_its_seed(
    run: Any, tmp_path: Path, name: str
) -> None:
    from gpu.generate import rmat

    code, out, _ = run(
        *("generate", "rmat", "--scale", 6, "--edges-per-vertex", 4, "--seed", 3),
        *("--out", tmp_path / name, "--json"),
    )
    assert code == 0
    assert json.loads(out) == {"file": str(tmp_path / name), "vertices": 64, "edges": 256}
    written = read_edge_list(tmp_path / name)
    sources, targets = rmat(6, 4, seed=3)
    assert written.sources.to_pylist() == sources.tolist()
    assert written.targets.to_pylist() == targets.tolist()


@pytest.mark.parametrize("suffix", [".txt", ".csv.gz"])
def test_generate_heeds_ctrl_c_and_leaves_no_half_file(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    pieces = []

    class Interrupted(pa.csv.CSVWriter):  # type: ignore[misc]
        def write_batch(self, piece: pa.RecordBatch) -> None:
            pieces.append(len(piece))
            if len(pieces) == 2:
                signal.raise_signal(signal.SIGINT)
            super().write_batch(piece)

    monkeypatch.setattr(generate, "PIECE_EDGES", 1000)
    monkeypatch.setattr(pa.csv, "CSVWriter", Interrupted)
    file = tmp_path / f"graph{suffix}"
    code, out, _ = run("generate", "rmat", "--scale", 10, "--out", file)
    assert (code, out, pieces) == (130, "", [1000, 1000])
    assert not file.exists()


def test_a_generated_grid_says_its_size(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "grid.txt"
    code, out, _ = run("generate", "grid", "--rows", 3, "--columns", 4, "--out", file)
    assert code == 0
    assert out.replace("\n", "") == f"{file}: 12 vertices, 34 edges"
    assert len(file.read_text().splitlines()) == 34


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        (
            "g.xls",
            "g.xls: the name must end in .txt, .csv, .parquet or .arrow; "
            ".txt and .csv may be compressed: .gz, .zst or .bz2",
        ),
        ("g.parquet.gz", "g.parquet.gz: .parquet files are compressed internally; omit .gz"),
        ("no/g.txt", "no/g.txt: there is no directory {folder}/no"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_first(
    run: Any, tmp_path: Path, name: str, complaint: str
) -> None:
    code, out, error = run("generate", "grid", "--out", tmp_path / name)
    assert (code, out) == (1, "")
    assert error == f"liverank: {tmp_path}/{complaint.format(folder=tmp_path)}\n"


def test_a_bad_figure_is_named(run: Any, tmp_path: Path) -> None:
    code, _, error = run("generate", "grid", "--keep", "1.5", "--out", tmp_path / "g.txt")
    assert code == 1
    assert error == (
        "liverank: keep: 1.5 is not allowed; it must be a number above 0 and at most 1\n"
    )


# rank


def test_rank_prints_what_networkx_says(run: Any, triangle: Path) -> None:
    code, out, _ = run("rank", triangle, "--json", "--backend", "cpu")
    answer = json.loads(out)
    expected = nx.pagerank(
        nx.DiGraph([("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]), tol=1e-14, max_iter=1_000
    )
    assert code == 0
    assert [entry["vertex"] for entry in answer["ranks"]] == ["a", "b", "c", "d"]
    for entry in answer["ranks"]:
        assert entry["rank"] == pytest.approx(expected[entry["vertex"]], abs=1e-8)
    assert (answer["vertices"], answer["edges"]) == (4, 4)
    assert (answer["strategy"], answer["backend"]) == ("static", "cpu")
    assert 0 <= answer["error_bound"] < 1e-6


def test_rank_prints_a_table_for_people(run: Any, triangle: Path) -> None:
    code, out, _ = run("rank", triangle, "--top", 2)
    lines = [line.split() for line in out.splitlines()]
    assert code == 0
    assert lines[0] == ["place", "vertex", "rank"]
    assert lines[1][:2] == ["1", "a"]
    assert lines[2][:2] == ["2", "b"]
    assert ["vertices", "4"] in lines
    assert ["edges", "4"] in lines


def test_rank_takes_the_options_of_the_engine(run: Any, triangle: Path) -> None:
    code, out, _ = run("rank", triangle, "--json", "--damping", 0.5, "--dangling", "self-loop")
    graph = nx.DiGraph([("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")])
    graph.add_edges_from((vertex, vertex) for vertex in "abcd")
    expected = nx.pagerank(graph, alpha=0.5, tol=1e-14, max_iter=1_000)
    assert code == 0
    for entry in json.loads(out)["ranks"]:
        assert entry["rank"] == pytest.approx(expected[entry["vertex"]], abs=1e-8)
    code, out, error = run("rank", triangle, "--damping", 1)
    assert (code, out) == (1, "")
    assert error == (
        "liverank: damping: 1.0 is not allowed; it must be a number above 0 and below 1\n"
    )


def test_rank_of_a_file_that_is_no_edge_list_is_one_line(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "letter.txt"
    file.write_text("Dear\n")
    code, out, error = run("rank", file)
    assert (code, out) == (1, "")
    assert error.startswith("liverank: ")
    assert "letter.txt" in error
    assert error.count("\n") == 1


@pytest.mark.skipif(not DATA.is_dir(), reason="../shared/data is not there")
@pytest.mark.parametrize(
    ("name", "vertices", "edges"),
    [
        ("CollegeMsg/CollegeMsg.txt.gz", 1_899, 20_296),
        ("wiki-Vote/wiki-Vote.txt.zst", 7_115, 103_689),
        ("soc-sign-bitcoin/soc-sign-bitcoinotc.csv.zst", 5_881, 35_592),
    ],
)
def test_rank_takes_real_files_as_they_are(run: Any, name: str, vertices: int, edges: int) -> None:
    code, out, error = run("rank", DATA / name, "--json")
    assert (code, error) == (0, "")
    answer = json.loads(out)
    assert (answer["vertices"], answer["edges"]) == (vertices, edges)


# Batches of a file


def test_a_temporal_list_begins_with_90_percent_in_order_of_time() -> None:
    times = [float(time) for time in range(40)][::-1]
    edges = edge_list(list(range(40)), [0] * 40, times)
    plan = ingest.plan_replay(edges, batch_size=1, batches=3)
    assert plan.initial.sources.to_pylist() == list(range(39, 3, -1))
    assert [batch.sources.to_pylist() for batch in plan.batches] == [[3], [2], [1]]
    rest = ingest.plan_replay(edges, batch_size=3, batches=100)
    assert [batch.sources.to_pylist() for batch in rest.batches] == [[3, 2, 1], [0]]


def test_a_list_with_operations_is_replayed_by_its_snapshots() -> None:
    edges = edge_list(
        ["a", "b", "c", "a", "d", "c"],
        ["b", "c", "a", "b", "a", "a"],
        [0, 0, 0, 1, 1, 7],
        [True, True, True, False, True, False],
    )
    plan = ingest.plan_replay(edges, None, 100)
    assert plan.initial.sources.to_pylist() == ["a", "b", "c"]
    assert [batch.sources.to_pylist() for batch in plan.batches] == [["a", "d"], ["c"]]
    few = ingest.plan_replay(edges, 1, 2).batches
    assert [batch.sources.to_pylist() for batch in few] == [["a"], ["d"]]


def test_what_cannot_be_replayed_is_refused() -> None:
    with pytest.raises(CommandError, match="the file has no times"):
        ingest.plan_replay(edge_list(["a"], ["b"]), 1, 1)
    with pytest.raises(CommandError, match="needs --batch-size, the number of edges in a batch"):
        ingest.plan_replay(edge_list(["a"], ["b"], [0]), None, 1)


def test_events_as_batches_leave_the_graph_that_they_leave_in_order() -> None:
    """Against a set of edges, with each edge coming and going many times within one batch."""
    chance = random.Random(4)
    events = [
        (chance.randrange(6), chance.randrange(6), chance.random() < 0.6) for _ in range(2_000)
    ]
    sources, targets, operations = (list(column) for column in zip(*events, strict=True))
    edges = edge_list(sources, targets, [0.0] * len(events), operations)
    expected: set[tuple[int, int]] = set()
    for source, target, insertion in events:
        (expected.add if insertion else expected.discard)((source, target))
    for size in (1, 7, 100, 2_000):
        present: set[tuple[int, int]] = set()
        for batch in ingest.windows(edges, size):
            settled = ingest.last_operations(batch)
            assert settled.operations is not None
            pairs = list(zip(settled.sources.to_pylist(), settled.targets.to_pylist(), strict=True))
            assert len(pairs) == len(set(pairs))
            present -= {
                pair for pair, kept in zip(pairs, settled.operations, strict=True) if not kept
            }
            present |= {pair for pair, kept in zip(pairs, settled.operations, strict=True) if kept}
        assert present == expected
    final = ingest.final_graph(edges)
    assert set(zip(final.sources.to_pylist(), final.targets.to_pylist(), strict=True)) == expected


def test_a_vertex_whose_edges_all_went_is_still_ranked() -> None:
    edges = edge_list(["a", "a", "a"], ["b", "c", "c"], [0, 1, 2], [True, True, False])
    ranking = rank_edges(edges, Options(), "static", "cpu", top=3)
    assert (ranking.vertices, ranking.edges) == (3, 1)


# Against a server


def test_load_then_ask(run: Any, url: str, triangle: Path) -> None:
    code, out, _ = run("load", triangle, "--graph", "triangle", "--url", url, "--json")
    receipt = json.loads(out)
    assert code == 0
    assert (receipt["version"], receipt["inserted"], receipt["new_vertices"]) == (1, 4, 4)

    code, out, _ = run("top", "--k", 2, "--graph", "triangle", "--url", url, "--json")
    top = json.loads(out)
    assert code == 0
    assert [entry["vertex"] for entry in top["ranks"]] == ["a", "b"]

    code, out, _ = run("get", "a", "--graph", "triangle", "--url", url, "--json")
    assert code == 0
    assert json.loads(out) == {
        "vertex": "a",
        "rank": top["ranks"][0]["rank"],
        "version": 1,
        "revision": top["revision"],
        "error_bound": top["error_bound"],
    }

    code, out, _ = run("ppr", "b", "--k", 3, "--graph", "triangle", "--url", url, "--json")
    answer = json.loads(out)
    graph = nx.DiGraph([("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")])
    expected = nx.pagerank(graph, personalization={"b": 1}, tol=1e-14, max_iter=1_000)
    assert code == 0
    assert [entry["vertex"] for entry in answer["ranks"]] == ["b", "c", "a"]
    for entry in answer["ranks"]:
        assert entry["rank"] == pytest.approx(expected[entry["vertex"]], abs=1e-5)


def test_several_seeds_have_weights_behind_the_last_equals_sign(
    run: Any, url: str, triangle: Path
) -> None:
    server = ("--graph", "weighted", "--url", url, "--json")
    run("load", triangle, "--graph", "weighted", "--url", url)
    code, out, _ = run(
        "ppr", "b=3", "c", "--k", 4, "--method", "push", "--target-error", 1e-10, *server
    )
    answer = json.loads(out)
    graph = nx.DiGraph([("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")])
    expected = nx.pagerank(graph, personalization={"b": 3, "c": 1}, tol=1e-14, max_iter=1_000)
    assert (code, answer["method"], len(answer["ranks"])) == (0, "push", 4)
    for entry in answer["ranks"]:
        assert entry["rank"] == pytest.approx(expected[entry["vertex"]], abs=1e-9)
    code, out, _ = run("ppr", "b", "c", "--k", 1, "--settled", *server)
    assert (code, json.loads(out)["settled"]) == (0, 1)
    code, _, error = run("ppr", "b=much", "c", *server)
    assert (code, error) == (1, "liverank: b=much: the weight 'much' is not a number\n")


def test_answers_of_a_server_are_tables_for_people(run: Any, url: str, triangle: Path) -> None:
    for_people = ("--graph", "people", "--url", url)
    code, out, _ = run("load", triangle, *for_people)
    assert code == 0
    assert ["edges", "sent", "4"] in [line.split() for line in out.splitlines()]
    code, out, _ = run("top", "--offset", 1, "--k", 1, *for_people)
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["place", "vertex", "rank"]
    assert lines[1][:2] == ["2", "b"]
    assert lines[2][:2] == ["version", "1,"]
    code, out, _ = run("get", "d", *for_people)
    assert out.splitlines()[0].split() == ["vertex", "d"]
    code, out, _ = run("ppr", "d", "--k", 1, *for_people)
    assert out.splitlines()[1].split()[:2] == ["1", "a"]


def test_a_large_file_is_loaded_in_batches(
    run: Any, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "LOAD_BATCH_EDGES", 100)
    file = tmp_path / "grid.txt"
    run("generate", "grid", "--rows", 10, "--columns", 10, "--out", file)
    code, out, _ = run("load", file, "--graph", "grid", "--url", url, "--json")
    assert code == 0
    assert json.loads(out)["version"] == 4
    with Client(url) as client:
        information = client.graph("grid")
        (known,) = [graph for graph in client.graphs() if graph["graph"] == "grid"]
    assert (information["vertices"], information["edges"]) == (100, 360)
    assert information["options"]["keys"] == "integer"
    assert known == information


def test_isolated_vertices_of_a_file_are_ranked_and_loaded(
    run: Any, url: str, tmp_path: Path
) -> None:
    file = tmp_path / "four.mtx"
    file.write_text("%%MatrixMarket matrix coordinate pattern general\n4 4 2\n1 2\n2 3\n")
    code, out, _ = run("rank", file, "--top", 9, "--json")
    answer = json.loads(out)
    assert code == 0
    assert (answer["vertices"], answer["edges"]) == (4, 2)
    order = [entry["vertex"] for entry in answer["ranks"]]
    assert order[:2] == [3, 2]
    # nothing links to either: the same rank, as far as the bound says
    ranks = {entry["vertex"]: entry["rank"] for entry in answer["ranks"]}
    assert abs(ranks[1] - ranks[4]) <= answer["error_bound"]
    assert sorted(order[2:]) == [1, 4]
    for graph in ("four", "default"):
        assert run("load", file, "--graph", graph, "--url", url)[0] == 0
        with Client(url) as client:
            assert client.graph(graph)["vertices"] == 4
            assert client.rank(graph, 4)["rank"] == pytest.approx(ranks[4])


def test_integer_ids_become_strings_in_a_graph_of_strings(
    run: Any, url: str, tmp_path: Path, triangle: Path
) -> None:
    file = tmp_path / "numbers.txt"
    file.write_text("10 20\n20 30\n")
    with Client(url) as client:
        client.create("strings", keys="string")
        client.create("integers", keys="integer")
    run("load", file, "--graph", "strings", "--url", url)
    with Client(url) as client:
        assert client.rank("strings", "20")["vertex"] == "20"
    code, _, error = run("load", triangle, "--graph", "integers", "--url", url)
    assert code == 1
    assert error == ("liverank: graph 'integers' has integer keys, but the file has string keys\n")


def test_replay_streams_batches_and_prints_a_line_each(run: Any, url: str, tmp_path: Path) -> None:
    chance = random.Random(1)
    file = tmp_path / "temporal.txt"
    file.write_text(
        "".join(f"{chance.randrange(50)} {chance.randrange(50)} {time}\n" for time in range(200))
    )
    arguments = ("replay", file, "--batch-size", 5, "--batches", 3, "--url", url)
    strategy = ("--strategy", "dynamic-frontier-prune")
    code, out, _ = run(*arguments, *strategy, "--graph", "replayed", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [line["batch"] for line in lines] == [1, 2, 3]
    assert [line["version"] for line in lines] == [2, 3, 4]
    for line in lines:
        assert line["inserted"] + line["already_present"] == 5
        assert line["strategy"] == "dynamic-frontier-prune"
        assert line["latency_seconds"] >= line["seconds"]["total"]
    code, out, error = run(*arguments, "--graph", "replayed")
    rows = [line.split() for line in out.splitlines()]
    assert code == 0
    assert "graph 'replayed' already has" in error
    assert rows[0][:3] == ["batch", "inserted", "deleted"]
    assert [row[0] for row in rows[1:]] == ["1/3", "2/3", "3/3"]


def test_a_file_is_replayed_by_the_column_of_times_that_was_said(
    run: Any, url: str, tmp_path: Path
) -> None:
    named, plain = tmp_path / "named.csv", tmp_path / "plain.txt"
    # the edge of the latest time, which comes last, is the one with a single end
    named.write_text("src,dst,When,w\n1,1,9,0\n3,4,5,0\n5,6,7,0\n")
    plain.write_text("1 1 9 0\n3 4 5 0\n5 6 7 0\n")
    for file, column in ((named, "when"), (plain, "3")):
        arguments = ("replay", file, "--batch-size", 1, "--graph", file.stem, "--url", url)
        code, _, error = run(*arguments)
        assert code == 1
        assert "has no times" in error
        code, out, _ = run(*arguments, "--time-column", column, "--json")
        assert code == 0
        assert [json.loads(line)["new_vertices"] for line in out.splitlines()] == [1]
    code, _, error = run(*arguments, "--time-column", "5")
    assert code == 1
    assert error.endswith("plain.txt: there is no column 5 for the time; the file has 4\n")


def test_an_event_file_is_replayed_with_its_deletions(run: Any, url: str, tmp_path: Path) -> None:
    file = tmp_path / "packages.events.txt"
    file.write_text("0 + 1 2\n0 + 2 3\n0 + 3 1\n1 - 1 2\n1 + 1 3\n2 - 3 1\n2 - 2 3\n")
    code, out, _ = run("replay", file, "--graph", "events", "--url", url, "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [(line["inserted"], line["deleted"]) for line in lines] == [(1, 1), (0, 2)]
    with Client(url) as client:
        assert client.graph("events")["edges"] == 1


def test_a_refusal_of_the_server_is_one_line(run: Any, url: str) -> None:
    code, out, error = run("get", "nobody", "--graph", "nowhere", "--url", url)
    assert (code, out) == (1, "")
    assert error == "liverank: Unknown graph: there is no graph 'nowhere'\n"


def test_a_server_that_is_not_there_is_one_line(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service.client.connection, "RETRY_PAUSES", ())
    code, out, error = run("top", "--url", "http://127.0.0.1:9")
    assert (code, out) == (1, "")
    assert error.startswith("liverank: no answer from http://127.0.0.1:9 (")
    assert error.endswith("); is `liverank serve` running there?\n")


def test_any_key_comes_back_through_the_path(url: str) -> None:
    keys = ["a/b", ".", "..", "a b", "ünï", "100%", "a?b#c", "%2E"]
    with Client(url) as client:
        client.create("keys")
        client.send("keys", insert=[(key, "hub") for key in keys])
        for key in keys:
            assert client.rank("keys", key)["vertex"] == key
            assert client.personalized("keys", key, k=1)["vertex"] == key
        ranks = client.ranks("keys", [*keys, "unknown"])["ranks"]
        assert ranks[-1] is None
        assert None not in ranks[:-1]


def test_the_client_speaks_to_every_route(url: str) -> None:
    with Client(url) as client:
        client.create("routes", damping=0.5)
        first = client.send("routes", insert=[("a", "b")], key="once")
        assert client.send("routes", insert=[("a", "b")], key="once") == first
        columns = pa.array(["a", "c"]), pa.array(["b", "a"]), pa.array(["delete", "insert"])
        second = client.send_columns("routes", *columns, strategy="static")
        assert (second["deleted"], second["inserted"], second["version"]) == (1, 1, 2)
        assert client.batch("routes", 2)["inserted"] == 1
        again = client.recompute("routes")
        assert (again["version"], again["revision"]) == (2, second["revision"] + 1)
        accepted = client.add_vertices("routes", ["isolated"])
        assert accepted == {"version": 3, "status": "durable"}
        client.drop("routes")
        assert "routes" not in [graph["graph"] for graph in client.graphs()]


def test_serve_answers_until_it_is_told_to_stop(tmp_path: Path) -> None:
    arguments = ("serve", "--data", str(tmp_path), "--backend", "cpu", "--port", "0")
    with subprocess.Popen(
        [sys.executable, "-m", "service.cli", *arguments], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        (address,) = next(
            found for line in lines if (found := re.findall(r"http://[0-9.:]+", line))
        )
        with Client(address) as client:
            for _ in range(600):
                if client.ready():
                    break
                time.sleep(0.1)
            assert client.send("default", insert=[("a", "b")])["version"] == 1
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
    assert process.returncode in (0, -signal.SIGTERM)


def serve_ending_by_itself(*arguments: str) -> tuple[int, list[str]]:
    """Exit code and the lines on stderr that are the command's own."""
    done = subprocess.run(
        [sys.executable, "-m", "service.cli", "serve", "--backend", "cpu", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in done.stderr
    own = [line for line in done.stderr.splitlines() if line.startswith("liverank: ")]
    return done.returncode, own


def test_serve_ends_where_another_server_uses_its_data(tmp_path: Path) -> None:
    with running_service(tmp_path):
        code, lines = serve_ending_by_itself("--data", str(tmp_path), "--port", "0")
    assert (code, lines) == (
        1,
        [f"liverank: {tmp_path}: another server uses this data directory"],
    )


def test_serve_ends_where_its_data_cannot_be_a_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    code, lines = serve_ending_by_itself("--data", str(file), "--port", "0")
    assert (code, len(lines)) == (1, 1)
    assert lines[0].startswith(f"liverank: {file}: ")
    assert "Not a directory" in lines[0]


def test_serve_ends_where_a_graph_cannot_be_recovered(tmp_path: Path) -> None:
    with running_service(tmp_path):
        pass
    journal = tmp_path / "graphs" / "default" / "journal.db"
    journal.write_bytes(b"no database" * 1000)
    journal.with_suffix(".head").unlink()
    code, lines = serve_ending_by_itself("--data", str(tmp_path), "--port", "0")
    reason = "file is not a database; the number of its batches is unknown: restore a backup"
    assert (code, lines) == (1, [f"liverank: {journal}: {reason}"])


def test_serve_ends_where_its_port_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        code, lines = serve_ending_by_itself("--data", str(tmp_path), "--port", port)
    refusal = f"liverank: cannot listen on port {port} of 127.0.0.1, see the log above; "
    assert (code, lines) == (1, [f"{refusal}--port 0 picks a free one"])


def test_serve_refuses_a_setting_in_one_line(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVERANK_MAX_BODY_BYTES", "plenty")
    code, out, error = run("serve")
    assert (code, out) == (1, "")
    assert error.startswith("liverank: LIVERANK_MAX_BODY_BYTES: 'plenty' must be an integer")


def test_serve_without_keys_ends_where_others_could_connect(tmp_path: Path) -> None:
    code, lines = serve_ending_by_itself("--data", str(tmp_path), "--host", "0.0.0.0")
    assert code == 1
    assert lines == [
        "liverank: host '0.0.0.0' lets other machines connect, but no API key is set: set "
        "LIVERANK_API_KEY, create a key with `liverank keys create --data DIR`, or start with "
        "--insecure"
    ]


# API keys


def test_keys_are_made_listed_and_revoked(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, file = tmp_path / "data", tmp_path / "key"
    code, out, _ = run("keys", "create", "--scope", "admin", "--data", data, "--out", file)
    assert (code, file.stat().st_mode & 0o777) == (0, 0o600)
    key = file.read_text().strip()
    assert key.startswith("lvr_")
    assert key not in out
    with running_service(data) as url:
        assert run("keys", "list", "--url", url)[0] == 1
        monkeypatch.setenv("LIVERANK_API_KEY", key)
        arguments = ("--scope", "read", "--graph", "a", "--graph", "b", "--name", "for two")
        code, made, _ = run("keys", "create", *arguments, "--url", url)
        assert (code, made[:4]) == (0, "lvr_")
        listed = json.loads(run("keys", "list", "--json", "--url", url)[1])
        assert [row["name"] for row in listed] == ["unnamed", "for two"]
        assert listed[1]["graphs"] == ["a", "b"]
        code, table, _ = run("keys", "list", "--url", url)
        assert re.search(r"read +a, b +\S+ +for two", table)
        assert run("keys", "revoke", listed[1]["id"], "--url", url) == (0, "", "")
        assert len(json.loads(run("keys", "list", "--json", "--url", url)[1])) == 1
        code, _, error = run("keys", "revoke", listed[0]["id"], "--url", url)
        assert (code, "is the last one with scope admin" in error) == (1, True)


def test_a_key_is_not_made_where_its_file_exists(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.touch()
    code, _, error = run("keys", "create", "--scope", "admin", "--data", tmp_path, "--out", file)
    assert code == 1
    assert error == f"liverank: {file} exists; a key is not written over another file\n"
    assert not (tmp_path / "keys.json").exists()


def test_a_key_that_is_not_made_leaves_no_file(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "key"
    code, _, error = run("keys", "create", "--scope", "read", "--data", tmp_path, "--out", file)
    assert (code, file.exists()) == (1, False)
    assert "it is the first key" in error


def test_keys_of_a_data_directory_in_use_are_left_alone(run: Any, tmp_path: Path) -> None:
    with running_service(tmp_path):
        code, _, error = run("keys", "create", "--scope", "admin", "--data", tmp_path)
    assert (code, error) == (
        1,
        f"liverank: {tmp_path}: another server uses this data directory\n",
    )


# demo


def test_the_demo_shows_every_batch_and_cleans_up(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "service.cli", "demo", "--batches", "3", "--port", "0", "--exit"],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "HOME": str(tmp_path)},
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("liverank is up at http://127.0.0.1:")
    assert [line.split(":")[0] for line in lines if line.startswith("batch ")] == [
        "batch 1/3",
        "batch 2/3",
        "batch 3/3",
    ]
    assert all("error bound" in line for line in lines if line.startswith("batch "))
    assert lines[-1].startswith("3 batches: median latency ")
    assert list(tmp_path.glob("liverank-demo-*")) == []


def test_the_graph_of_the_demo_is_the_same_each_time_and_large_enough() -> None:
    plan, again = generated_replay(2), generated_replay(2)
    assert len(plan.initial.sources) == 262_144
    assert plan.initial.sources.equals(again.initial.sources)
    for batch, repeated in zip(plan.batches, again.batches, strict=True):
        assert batch.sources.equals(repeated.sources)
        assert batch.operations is not None
        assert (len(batch.operations), int(batch.operations.sum())) == (2_000, 1_600)


def test_the_demo_tells_how_places_moved() -> None:
    receipt: Any = {
        "inserted": 1,
        "deleted": 0,
        "error_bound": 1e-7,
        "seconds": dict.fromkeys(("journal", "keys", "mutate", "solve", "publish"), 0.001),
    }
    board = Board(1, [{"vertex": key, "rank": 0.1} for key in ("a", "b", "c")])
    batch = ingest.ReplayedBatch(1, 0.002, receipt)
    board.add(batch, [{"vertex": key, "rank": 0.1} for key in ("c", "b", "x", "a")])
    assert [board.movement(place) for place in range(4)] == ["↑2", "", "new", "↓3"]
