"""Edge lists in files, without a server: generated and ranked."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import re
import resource
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from liverank import InvalidInput, pagerank
from liverank_gpu import InvalidValue, Options, Solve
from liverank_service.cli import table_files
from liverank_service.cli.rank import rank_edges
from liverank_service.formats.edge_files import read_edge_list
from tests.service.graphs import edge_list

DATA = Path(__file__).parents[3].parent / "shared" / "data"
FILES = ["g.txt", "g.csv", "g.txt.gz", "g.csv.zst", "g.txt.bz2", "g.parquet", "g.arrow"]


# generate


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("model", ["rmat", "preferential-attachment"])
def test_a_generated_file_reads_back_the_same_for_its_seed(
    run: Any, tmp_path: Path, model: str, name: str
) -> None:
    from liverank_gpu.generate import preferential_attachment, rmat

    if model == "rmat":
        options: tuple[object, ...] = ("--scale", 6, "--edges-per-vertex", 4, "--seed", 3)
        vertices, (sources, targets) = 64, rmat(6, 4, seed=3)
    else:
        options = ("--vertices", 300, "--edges-per-vertex", 3, "--probability", 0.25, "--seed", 9)
        graph = preferential_attachment(300, 3, probability=0.25, seed=9)
        vertices, (sources, targets) = 300, graph.edge_list()
        options += ("--backend", "cpu")
    code, out, _ = run("generate", model, *options, "--out", tmp_path / name, "--json")
    assert code == 0
    counts = {"vertices": vertices, "edges": 256 if model == "rmat" else 894}
    assert json.loads(out) == {"file": str(tmp_path / name), **counts}
    written = read_edge_list(tmp_path / name)
    assert written.sources.to_pylist() == sources.tolist()
    assert written.targets.to_pylist() == targets.tolist()


@pytest.mark.parametrize("suffix", [".txt", ".csv.gz"])
def test_generate_obeys_ctrl_c_and_leaves_no_incomplete_file(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    pieces = []

    class Interrupted(pa.csv.CSVWriter):  # type: ignore[misc]
        def write_batch(self, piece: pa.RecordBatch) -> None:
            pieces.append(len(piece))
            if len(pieces) == 2:
                signal.raise_signal(signal.SIGINT)
            super().write_batch(piece)

    monkeypatch.setattr(table_files, "PIECE_ROWS", 1000)
    monkeypatch.setattr(pa.csv, "CSVWriter", Interrupted)
    file = tmp_path / f"graph{suffix}"
    file.write_text("before")
    # a shell that starts the tests in the background has them ignore the signal
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code, out, _ = run("generate", "rmat", "--scale", 10, "--out", file)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert (code, out, pieces) == (130, "", [1000, 1000])
    assert [each.read_text() for each in tmp_path.iterdir()] == ["before"]


def test_generating_a_grid_prints_its_size(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "grid.txt"
    code, out, _ = run("generate", "grid", "--rows", 3, "--columns", 4, "--out", file)
    assert code == 0
    assert out.replace("\n", "") == f"{file}: 12 vertices, 34 edges"
    assert len(file.read_text().splitlines()) == 34


@pytest.mark.parametrize(
    ("arguments", "vertices"),
    [
        (("uniform", "--vertices", 50, "--edges", 200, "--seed", 3, "--backend", "cpu"), 50),
        (("chains", "--vertices", 90, "--length", 5, "--branching", 1, "--no-shuffle"), 90),
    ],
    ids=["uniform", "chains"],
)
def test_generated_edges_are_those_of_the_engine(
    run: Any, tmp_path: Path, arguments: tuple[object, ...], vertices: int
) -> None:
    from liverank_gpu import generate as engine

    file = tmp_path / "graph.csv"
    code, out, _ = run("generate", *arguments, "--out", file, "--json")
    expected = {
        "uniform": engine.uniform(50, 200, seed=3),
        "chains": engine.chains(90, length=5, branching=1, shuffle=False),
    }[str(arguments[0])]
    written = read_edge_list(file)
    assert code == 0
    assert json.loads(out) == {"file": str(file), "vertices": vertices, "edges": len(expected[0])}
    assert written.sources.to_pylist() == expected[0].tolist()
    assert written.targets.to_pylist() == expected[1].tolist()


@pytest.mark.parametrize("name", ["stream.txt", "stream.txt.zst"])
def test_a_temporal_file_has_the_batches_of_the_stream(run: Any, tmp_path: Path, name: str) -> None:
    from liverank_gpu.generate import temporal_stream

    file = tmp_path / name
    code, out, _ = run(
        *("generate", "temporal", "--arrivals", 20, "--edges-per-vertex", 2, "--lifetime", 3),
        *("--batches", 12, "--seed", 5, "--out", file, "--json"),
    )
    stream = list(temporal_stream(arrivals=20, edges_per_vertex=2, lifetime=3, batches=12, seed=5))
    expected = [
        event
        for number, batch in enumerate(stream)
        for inserted, sources, targets in (
            (False, batch.delete_sources, batch.delete_targets),
            (True, batch.insert_sources, batch.insert_targets),
        )
        for event in zip(
            *(sources.tolist(), targets.tolist()),
            *([number] * len(sources), [inserted] * len(sources)),
            strict=True,
        )
    ]
    written = read_edge_list(file)
    assert code == 0
    assert json.loads(out) == {"file": str(file), "vertices": 240, "events": len(expected)}
    assert written.times is not None
    assert written.operations is not None
    assert not written.operations.all()
    columns = (written.sources, written.targets, written.times, written.operations)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected


@pytest.mark.parametrize(
    ("arguments", "exit_code", "complaint"),
    [
        (
            ("preferential-attachment", "--vertices", 3, "--out", "g.txt"),
            1,
            "liverank: vertices: 3 is not allowed; it must be at least edges_per_vertex, 4\n",
        ),
        (("preferential-attachment",), 2, "expected either --out or --graph"),
        (
            ("preferential-attachment", "--out", "g.txt", "--graph", "g"),
            2,
            "expected either --out or --graph",
        ),
        (
            ("temporal", "--out", "g.csv"),
            1,
            "liverank: g.csv: the name must end in .txt, .txt.gz, .txt.zst or .txt.bz2\n",
        ),
        (("temporal", "--out", "no/g.txt"), 1, "liverank: no/g.txt: there is no directory no\n"),
    ],
)
def test_what_cannot_be_generated_is_refused(
    run: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[object, ...],
    exit_code: int,
    complaint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, error = run("generate", *arguments)
    assert (code, out) == (exit_code, "")
    assert error.endswith(complaint) or (exit_code == 2 and complaint in error)
    assert not list(tmp_path.iterdir())


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


def test_a_folder_is_no_file_to_write(run: Any, triangle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "ranks.csv"
    folder.mkdir()
    code, out, error = run("rank", triangle, "--out", folder)
    assert (code, out) == (1, "")
    assert error == f"liverank: {folder}: expected the name of a file, got that of a directory\n"


@pytest.mark.parametrize("name", ["g.txt", "g.csv.gz", "g.parquet"])
def test_a_write_that_fails_names_the_file(run: Any, tmp_path: Path, name: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        code, _, error = run("generate", "rmat", "--scale", 13, "--out", tmp_path / name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (code, error) == (1, f"liverank: [Errno 27] File too large: '{tmp_path / name}'\n")
    assert list(tmp_path.iterdir()) == []


def test_a_bad_figure_is_named(run: Any, tmp_path: Path) -> None:
    code, _, error = run("generate", "grid", "--keep", "1.5", "--out", tmp_path / "g.txt")
    assert code == 1
    assert error == (
        "liverank: keep: 1.5 is not allowed; it must be a number above 0 and at most 1\n"
    )


# rank


def test_rank_prints_the_ranks_of_networkx(run: Any, triangle: Path) -> None:
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


def test_rank_accepts_the_options_of_the_engine(run: Any, triangle: Path) -> None:
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
    code, _, error = run("rank", triangle, "--storage", "float32")
    assert code == 1
    assert error.startswith("liverank: storage: 'float32' is not allowed")
    assert "is no longer offered" in error


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
    ("name", "vertices", "edges", "note"),
    [
        (
            "CollegeMsg/CollegeMsg.txt.gz",
            1_899,
            20_296,
            "note: 39,539 duplicates; columns not used: times\n",
        ),
        ("wiki-Vote/wiki-Vote.txt.zst", 7_115, 103_689, ""),
        (
            "soc-sign-bitcoin/soc-sign-bitcoinotc.csv.zst",
            5_881,
            35_592,
            "note: columns not used: feature, times\n",
        ),
    ],
)
def test_rank_reads_real_files_unchanged(
    run: Any, name: str, vertices: int, edges: int, note: str
) -> None:
    code, out, error = run("rank", DATA / name, "--json")
    assert (code, error) == (0, note)
    answer = json.loads(out)
    assert (answer["vertices"], answer["edges"]) == (vertices, edges)


def test_a_vertex_that_lost_all_edges_is_still_ranked() -> None:
    edges = edge_list(["a", "a", "a"], ["b", "c", "c"], [0, 1, 2], [True, True, False])
    ranking = rank_edges(edges, Options(), Solve("static"), "cpu", top=3)
    assert (ranking.vertices, ranking.edges) == (3, 1)


def test_an_undirected_file_is_ranked_as_by_networkx(run: Any, tmp_path: Path) -> None:
    graph = nx.gnm_random_graph(40, 70, seed=3)
    file = tmp_path / "edges.txt"
    file.write_text("".join(f"{source} {target}\n" for source, target in graph.edges))
    code, out, _ = run("rank", file, "--undirected", "--top", 40, "--json")
    assert code == 0
    expected = nx.pagerank(graph.subgraph(v for v in graph if graph.degree(v)), tol=1e-12)
    found = {place["vertex"]: place["rank"] for place in json.loads(out)["ranks"]}
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("how", [(), ("--memory", "1MiB")])
@pytest.mark.parametrize("kind", ["seed", "csv", "parquet"])
def test_walks_restart_at_seeds_as_in_networkx(
    run: Any, tmp_path: Path, how: tuple[str, ...], kind: str
) -> None:
    graph = nx.gnp_random_graph(40, 0.08, seed=3, directed=True)
    file, seeds = tmp_path / "edges.txt", tmp_path / f"seeds.{kind}"
    file.write_text("".join(f"{source} {target}\n" for source, target in graph.edges))
    graph = nx.DiGraph(graph.edges)
    restarts = {7: 1.0, 11: 2.5}
    where: tuple[object, ...] = ("--seed", "7", "--seed", "11=2.5")
    if kind != "seed":
        where = ("--teleport", seeds)
        table = pa.table({"vertex": list(restarts), "weight": list(restarts.values())})
        table_files.write_table(seeds, table)
    code, out, _ = run("rank", file, *where, *how, "--top", 40, "--json")
    assert code == 0
    answer = json.loads(out)
    expected = nx.pagerank(graph, 0.85, restarts, dangling=restarts, max_iter=1000, tol=1e-14)
    found = {place["vertex"]: place["rank"] for place in answer["ranks"]}
    assert sum(abs(found[v] - expected[v]) for v in expected) <= answer["error_bound"] + 1e-11
    assert answer["error_bound"] <= 1e-6


def test_seeds_that_cannot_be_used_are_named(run: Any, tmp_path: Path) -> None:
    file, seeds = tmp_path / "edges.txt", tmp_path / "seeds.csv"
    file.write_text("1 2\n2 3\n")
    for where, text in (
        (("--seed", "9"), "seeds: 9 is not allowed; it must be a vertex of the graph"),
        (("--seed", "ada"), "seeds['ada']"),
        (("--seed", "1=x"), "the weight 'x' is not a number"),
        (("--seed", "1", "--teleport", seeds), "exclude each other"),
        (("--teleport", seeds), str(seeds)),
        (("--seed", "1", "--strategy", "naive-dynamic"), "strategy: 'naive-dynamic'"),
    ):
        code, _, error = run("rank", file, *where)
        assert code != 0
        assert text in error
    seeds.write_text("vertex,weight\n1,-1\n")
    assert "seeds['1']: -1.0 is not allowed" in run("rank", file, "--teleport", seeds)[2]


def test_a_weight_that_cannot_be_stored_is_named_as_it_is() -> None:
    edges = replace(edge_list(["a", "b"], ["b", "a"]), weights=np.array([1.0, 1e39]))
    with pytest.raises(InvalidValue, match=r"weights\[1\]: 1e\+39 is not allowed"):
        rank_edges(edges, Options(), Solve("static"), "cpu", top=3)


def read_ranks(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of ranks, by another reader than the writer's where there is one."""
    name = path.name
    if ".parquet" in name:
        return pl.read_parquet(path).to_dicts()
    if ".arrow" in name:
        return pl.read_ipc(path).to_dicts()
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    if path.suffix == ".bz2":
        content = bz2.decompress(content)
    if path.suffix == ".zst":
        content = pa.CompressedInputStream(pa.py_buffer(content), "zstd").read()
    if ".ndjson" in name:
        return [json.loads(line) for line in content.splitlines()]
    is_csv = ".csv" in name
    rows = list(csv.reader(content.decode().splitlines(), delimiter="," if is_csv else "\t"))
    if is_csv:
        assert rows.pop(0) == ["vertex", "rank"]
    return [{"vertex": vertex, "rank": float(rank)} for vertex, rank in rows]


@pytest.mark.parametrize(
    "name",
    [
        *("r.txt", "r.csv", "r.ndjson", "r.parquet", "r.arrow"),
        *("r.txt.gz", "r.csv.zst", "r.ndjson.bz2", "r.ndjson.gz"),
    ],
)
def test_rank_writes_the_ranks_of_all_vertices(
    run: Any, triangle: Path, tmp_path: Path, name: str
) -> None:
    out = tmp_path / name
    code, printed, error = run("rank", triangle, "--top", 1, "--json", "--out", out)
    assert (code, error) == (0, "")
    written = read_ranks(out)
    assert [row["vertex"] for row in written] == ["a", "b", "c", "d"]
    assert sum(row["rank"] for row in written) == pytest.approx(1)
    (first,) = json.loads(printed)["ranks"]
    assert written[0] == first


@pytest.mark.parametrize("name", ["r.txt", "r.csv", "r.ndjson", "r.parquet", "r.arrow"])
@pytest.mark.parametrize("command", ["rank", "analyse"])
def test_ranks_are_no_edges(
    run: Any, triangle: Path, tmp_path: Path, name: str, command: str
) -> None:
    ranks = tmp_path / name
    assert run("rank", triangle, "--out", ranks)[0] == 0
    arguments = [command, ranks, *(["components"] if command == "analyse" else [])]
    memory = [] if name == "r.ndjson" else [["--memory", "1GiB"]]
    for options in [[], *memory]:
        code, out, error = run(*arguments, *options)
        assert (code, out) == (1, "")
        assert re.search("string or an integer, in column 2|strings or integers below", error)


def test_a_file_of_ranks_that_cannot_be_written_is_refused_first(
    run: Any, triangle: Path, tmp_path: Path
) -> None:
    code, out, error = run("rank", triangle, "--out", tmp_path / "r.xls")
    assert (code, out) == (1, "")
    assert error == (
        f"liverank: {tmp_path}/r.xls: the name must end in .txt, .csv, .ndjson, .parquet or "
        ".arrow; .txt, .csv and .ndjson may be compressed: .gz, .zst or .bz2\n"
    )
    keys = tmp_path / "keys.csv"
    keys.write_text('source,target\n"a\tb",c\n')
    code, _, error = run("rank", keys, "--out", tmp_path / "r.txt")
    assert code == 1
    assert error.endswith(".csv, .ndjson, .parquet and .arrow hold any key\n")
    assert not (tmp_path / "r.txt").exists()
    assert run("rank", keys, "--out", tmp_path / "r.csv")[0] == 0
    assert {row["vertex"] for row in read_ranks(tmp_path / "r.csv")} == {"a\tb", "c"}


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        (
            "g.csv",
            "source,target,weight,note\na,b,1,x\na,b,2,y\nb,c,1,z\n",
            {"duplicates": "1", "columns not used": "weight, note"},
        ),
        ("g.txt", "1 2 7 5\n2 3 5 4\n", {"columns not used": "column 3, column 4"}),
        ("g.txt", "1 2 5\n2 3 6\n1 2 7\n", {"duplicates": "1", "columns not used": "times"}),
        (
            "g.mtx",
            "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 0.5\n",
            {"columns not used": "values"},
        ),
        ("g.txt", "0 + 1 2\n0 + 2 3\n1 - 1 2\n", {"superseded": "2"}),
        ("g.txt", "1 2\n2 3\n", {}),
    ],
)
def test_rank_says_what_of_a_file_did_not_count(
    run: Any, tmp_path: Path, name: str, content: str, rows: dict[str, str]
) -> None:
    file = tmp_path / name
    file.write_text(content)
    code, out, _ = run("rank", file)
    assert code == 0
    found = re.findall(r"^(duplicates|superseded|columns not used) +(.*)$", out, re.MULTILINE)
    assert {name: value.rstrip() for name, value in found} == rows
    document = json.loads(run("rank", file, "--json")[1])
    assert str(document["duplicates"] or "") == rows.get("duplicates", "")
    assert ", ".join(document["unused_columns"]) == rows.get("columns not used", "")


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv"])
def test_floating_point_numbers_are_no_keys_as_in_python(
    run: Any, tmp_path: Path, kind: str
) -> None:
    table = pa.table({"source": [1.0, 2.5], "target": [2, 3]})
    file = tmp_path / f"edges.{kind}"
    write = {
        "parquet": pyarrow.parquet.write_table,
        "arrow": pyarrow.feather.write_feather,
        "csv": pyarrow.csv.write_csv,
    }[kind]
    write(table, file)
    expected = "expected a column of strings or integers below 2**63, got double"
    if kind == "csv":
        expected = "expected a key, a string or an integer, in column 1, got '2.5'"
    code, out, error = run("rank", file)
    assert (code, out) == (1, "")
    assert error.endswith(f": {expected}\n")
    with pytest.raises(InvalidInput) as refused:
        pagerank(table)
    if kind != "csv":
        assert str(refused.value) == f"source: {expected}"


def test_columns_of_a_table_that_are_not_used_are_named(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "g.parquet"
    columns = {"w": [1.0, 2.0], "src": ["a", "b"], "dst": ["b", "a"], "time": [1, 2]}
    pl.DataFrame(columns).write_parquet(file)
    assert json.loads(run("rank", file, "--json")[1])["unused_columns"] == ["w", "times"]


@pytest.mark.parametrize("budget", [(), ("--memory", "4MiB")])
@pytest.mark.parametrize("command", [("rank",), ("analyse", "components")])
def test_columns_of_keys_are_named_in_every_command_that_reads_a_file(
    run: Any, tmp_path: Path, command: tuple[str, ...], budget: tuple[str, ...]
) -> None:
    file, out = tmp_path / "papers.csv", tmp_path / "out.csv"
    file.write_text("id,citing,cited\n0,a,b\n1,c,b\n")
    name, *programs = command
    named = ("--source-column", "citing", "--target-column", "cited", "--out", str(out))
    run(name, str(file), *programs, *named, *budget)
    assert sorted(line.split(",")[0] for line in out.read_text().splitlines()[1:]) == [
        '"a"',
        '"b"',
        '"c"',
    ]


def test_a_file_is_ranked_in_the_published_form_with_a_trace(run: Any, triangle: Path) -> None:
    options = ("--form", "published", "--trace", "--tolerance", "1e-3", "--dangling", "self-loop")
    code, out, error = run("rank", triangle, *options, "--json")
    assert (code, error) == (0, "")
    ranking = json.loads(out)
    assert ranking["form"] == "published"
    assert ranking["certify_seconds"] > 0.0
    trace = ranking["trace"]
    assert trace["affected"] == ranking["vertices"] == 4
    assert len(trace["steps"]) == ranking["iterations"]
    assert run("rank", triangle, "--max-iterations", "1", "--json")[1].count('"trace": null') == 1
    table = run("rank", triangle, *options)[1]
    assert "4 initially affected vertices" in table
    code, _, error = run("rank", triangle, "--strategy", "auto", "--form", "published")
    assert code == 1
    assert "form" in error
