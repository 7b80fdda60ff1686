"""Programs of the papers' authors beside ours: formats, what they print, the web-like graph."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from benchmarks import harness
from benchmarks.authors import __main__ as authors
from benchmarks.authors import build, ppr, web
from benchmarks.authors.theirs import Graph, Solved, logged, solves
from benchmarks.tables import papers, summaries
from liverank_gpu import verify
from liverank_gpu.backends import backend_named
from liverank_gpu.types import Dangling

CPU = backend_named("cpu")
SMALL = 8

LOG = """\
OMP_NUM_THREADS=16
order: 24818 size: 239978 [directed] {} (insertions=4)
{-0.000e+00/+1.000e-05 batchf, 000 batchi, 016 threads} -> {000012.3ms, 000000.1ms init, \
000000.0ms mark, 000012.2ms comp, 074 iter, 3.25e-10 err} pagerankStaticCudaPartition
{-0.000e+00/+1.000e-05 batchf, 001 batchi, 016 threads} -> {000003.0ms, 000000.1ms init, \
000000.4ms mark, 000002.5ms comp, 012 iter, 1.10e-06 err} pagerankPruneDynamicFrontierCudaPartition
"""


def test_what_sahus_program_prints_is_read() -> None:
    assert logged(LOG) == [
        Solved("pagerankStaticCudaPartition", 12.3, 74, 0, 3.25e-10),
        Solved("pagerankPruneDynamicFrontierCudaPartition", 3.0, 12, 1, 1.1e-6),
    ]


def test_what_the_programs_around_their_functions_print_is_read() -> None:
    printed = "choose 7 as source vertex id\ndf-p: 1.250000 ms, 9 iterations\n1e-6: 0.5 ms\n"
    printed += "ppr_time 3.5\nsolve 1: 2.000000 ms\n"
    assert solves(printed) == [Solved("df-p", 1.25, 9), Solved("1e-6", 0.5), Solved("solve 1", 2.0)]


def test_a_change_that_does_not_apply_is_refused() -> None:
    changes = build.PROGRAMS["guo"].changes
    kernel = "while (cub::WarpAny(valid)){"
    assert "any_of_warp(valid)" in build.changed(kernel, "gpu/StreamUpdate.cuh", changes)
    with pytest.raises(ValueError, match="WarpAny"):
        build.changed("", "gpu/StreamUpdate.cuh", changes)


def test_the_commit_of_a_checkout_without_history_is_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "COMMIT").write_text("f78f3a4\n")
    assert build.commit_of(tmp_path) == "f78f3a4"


def _row(program: str, method: str, fraction: float, ms: float, **more: object) -> dict[str, Any]:
    ours = {"target_error": 1e-6, "ms": 0.5, "iterations": 9, "error": 1e-7}
    row = {"program": program, "method": method, "fraction": fraction, "ms": ms, "ours": ours}
    return row | {"graph": "web-2", "edges": 1000, "error": 1e-6, "times_as_fast": 2 * ms} | more


def test_the_tables_have_every_solve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    like = {"vertices": 20, "out-degrees": [1, 2, 3, 4], "edges back": 0.25}
    rows = [
        _row("Sahu", "static", 0.0, 8.0, iterations=70),
        _row("Sahu", "nd", 1e-5, 4.0, iterations=30),
        _row("Sahu", "df-p", 1e-5, 3.0, iterations=20),
        _row("Gunrock", "float, tolerance 1e-6", 0.0, 5.0),
        *(_row("Guo", "after a batch", 1e-3, ms, tolerance=1e-9) for ms in (1.0, 2.0, 9.0)),
    ]
    figures: dict[str, Any] = {
        "commits": {"gunrock": 40 * "a"},
        "web": {"web-2": like | {"the crawl": like}},
    }
    figures["failed"] = ["guo: TimeoutExpired"]
    document = {
        "machine": {"device": "a GPU", "processor": "", "cores": 1},
        "figures": figures | {"rows": rows},
    }
    full = papers.authors(document)
    assert "`gunrock` aaaaaaa." in full
    assert "| out-degrees | 1, 2, 3, 4 | 1, 2, 3, 4 |" in full
    assert "Did not end: guo: TimeoutExpired." in full
    assert full.count("| web-2 |") == len(rows) + 1
    assert (
        "| Sahu | web-2 | 1,000 | 1e-05 | df-p | 20 | 3 | 1.0e-06 | 9 | 0.5 | 1.0e-07 | 6.0 |"
        in full
    )
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    (tmp_path / "authors-cuda.json").write_text(json.dumps(document))
    assert summaries.authors().splitlines()[4:] == [
        "| Sahu: web-2 | 1,000 | 1e-06 | 8 | 0.5 | 16.0 | 6.0 |  |",
        "| Gunrock, float, tolerance 1e-6: web-2 | 1,000 | 1e-06 | 5 | 0.5 | 10.0 |  |  |",
        "| Guo, tolerance 1e-09: web-2 | 1,000 |  |  |  |  |  | 4.0 |",
    ]


def test_what_does_not_build_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compiler = tmp_path / "nvcc"
    # a compiler that refuses Gunrock with float64
    compiler.write_text('#!/bin/sh\ncase "$*" in *RANK=double*) exit 1;; esac\ntouch "$6"')
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (tmp_path / "gunrock").mkdir()
    assert build.built(tmp_path) == {"gunrock-float": tmp_path / "build" / "gunrock-float"}
    printed = capsys.readouterr().out
    assert "gunrock-double left out: it does not build" in printed
    assert "guo left out: no dynamicppr" in printed


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Path]:
    """Makes a program that reads and writes as theirs, in Python."""

    def made(body: str) -> Path:
        path = tmp_path / f"program-{len(list(tmp_path.iterdir()))}"
        path.write_text(f"#!{sys.executable}\nimport sys\nimport numpy as np\n{body}")
        path.chmod(0o755)
        return path

    return made


READ = """
folder, vertices, edges, repeats, *methods = sys.argv[1:]
vertices, edges = int(vertices), int(edges)
read = lambda name: np.fromfile(f"{folder}/{name}", np.uint32).astype(int)
offsets, targets = read("out-offsets"), read("out-ids")
degrees = np.diff(offsets)
sources = np.repeat(np.arange(vertices), degrees)
assert offsets[-1] == len(targets) == edges
matrix = np.zeros((vertices, vertices))
np.add.at(matrix, (targets, sources), 0.85 / degrees[sources])
assert matrix.max() <= 0.85 and UNIFORM or (degrees > 0).all()
matrix[:, degrees == 0] += 0.85 / vertices
exact = np.linalg.solve(np.eye(vertices) - matrix, np.full(vertices, 0.15 / vertices))
"""
SAHU = (
    "UNIFORM = False"
    + READ
    + """
starts, back = read("in-offsets"), read("in-ids")
turned = np.stack([back, np.repeat(np.arange(vertices), np.diff(starts))])
assert sorted(zip(*turned)) == list(zip(sources, targets))
inserted, deleted = (set(map(tuple, read(n).reshape(-1, 2))) for n in ("inserted", "deleted"))
here = set(zip(sources, targets))
assert inserted <= here and not deleted & here
if inserted:
    assert abs(np.fromfile(f"{folder}/first").sum() - 1) < 1e-9
for method in methods:
    ranks = exact.copy()
    ranks[0] += 1e-6
    ranks.tofile(f"{folder}/{method}.ranks")
    print(f"{method}: 1.5 ms, 7 iterations")
"""
)
GUNROCK = (
    "UNIFORM = True"
    + READ
    + """
for method in methods:
    (exact + float(method) / vertices).tofile(f"{folder}/{method}.ranks")
    print(f"{method}: 2.5 ms")
"""
)
GUO = """
folder, given = sys.argv[1], dict(zip(sys.argv[2::2], sys.argv[3::2]))
vertices, *stream = np.fromfile(given["-d"], np.int32)
stream = np.array(stream).reshape(-1, 2)
size, count = int(len(stream) * float(given["-w"])), int(given["-c"])
for place in range(1 + int(given["-l"]) // count):
    matrix = np.zeros((vertices, vertices))
    for u, v in stream[place * count : place * count + size]:
        matrix[u, v] = matrix[v, u] = 1.0
    seed = np.zeros(vertices)
    seed[int(given["-s"])] = 0.15
    walk = 0.85 * matrix / (matrix.sum(axis=1, keepdims=True) + 1)
    found = np.linalg.solve(np.eye(vertices) - walk, seed) + float(given["-e"])
    found.tofile(f"{folder}/{place}.ranks")
    print(f"solve {place}: 3.5 ms")
"""


def _check(rows: list[dict[str, Any]], error: float) -> None:
    for row in rows:
        assert row["error"] == pytest.approx(error, rel=0.01)
        assert row["ours"]["error"] <= row["error"]
        assert row["times_as_fast"] == pytest.approx(row["ms"] / row["ours"]["ms"], rel=0.01)


def test_sahus_functions_get_the_graph_and_the_batches(
    tmp_path: Path, program: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authors, "FRACTIONS", (1e-3, 1e-2))
    monkeypatch.setattr(authors, "ALL_METHODS", 1e-2)
    graph, _ = authors.named(CPU, tmp_path, f"rmat-{SMALL}")
    rows = list(authors.beside_sahu(graph, "small", program(SAHU), tmp_path))
    assert [row["method"] for row in rows] == ["static", "nd", "df-p", "nd", "df-p", "dt", "df"]
    assert [row["fraction"] for row in rows] == [0.0, 1e-3, 1e-3, 1e-2, 1e-2, 1e-2, 1e-2]
    _check(rows, 1e-6)


def test_gunrock_gets_the_graph(tmp_path: Path, program: Callable[[str], Path]) -> None:
    graph, _ = authors.named(CPU, tmp_path, f"rmat-{SMALL}")
    programs = {"gunrock-float": program(GUNROCK)}
    (row,) = authors.beside_gunrock(graph, "small", programs, tmp_path)
    assert row["method"] == "float, tolerance 1e-6"
    _check([row], 1e-6)


def test_guos_push_gets_the_windows(tmp_path: Path, program: Callable[[str], Path]) -> None:
    rows = list(ppr.beside_guo(CPU, program(GUO), tmp_path, SMALL, (1e-6,)))
    assert [row["method"] for row in rows] == ["from nothing", *4 * ["after a batch"]]
    _check(rows, 1e-6)


def test_sahus_own_program_gets_a_network(
    tmp_path: Path, program: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authors, "TEMPORAL_FRACTIONS", (1e-3, 1e-2))
    events = np.random.default_rng(1).integers(0, 50, (1000, 2))
    times = np.arange(1000)[:, None]
    np.savetxt(tmp_path / "events.txt", np.hstack([events, times]), "%d")
    path = program(f"print('''{LOG}''')\nassert sys.argv[2:4] == ['50', '1000']")
    rows = list(authors.beside_main(CPU, "events", tmp_path / "events.txt", path, tmp_path))
    solved = [(row["method"], row["fraction"]) for row in rows]
    pruned = [("PruneDynamicFrontier", fraction) for fraction in authors.TEMPORAL_FRACTIONS]
    assert solved == [("Static", 0.0), *pruned]
    _check(rows[:1], 3.25e-10)
    _check(rows[1:], 1.1e-6)


@pytest.mark.parametrize("uniform", [False, True])
def test_the_bound_of_the_reference_is_one(uniform: bool, tmp_path: Path) -> None:
    graph, _ = authors.named(CPU, tmp_path, f"rmat-{SMALL}")
    walked = graph if uniform else graph.with_loops()
    dangling: Dangling = "uniform" if uniform else "self-loop"
    exact, _ = verify.pagerank(*graph.columns, graph.vertices, 0.85, dangling)
    assert walked.error_bound(exact, 0.85, uniform) <= 1e-11
    off = exact.copy()
    off[3] += 1e-4
    assert 1e-4 <= walked.error_bound(off, 0.85, uniform) <= 2e-3


def test_the_web_like_graph_is_like_the_crawl() -> None:
    generator = np.random.default_rng(1)
    # hosts of 20 pages in a row, whose pages lead to near ones, and some to the first of a host
    crawl = nx.DiGraph([(u, (u + 1) % 20 + u - u % 20) for u in range(400)])
    crawl.add_edges_from(
        (int(u), int(v) * 20) for u, v in generator.integers(0, 20, (60, 2)) * [20, 1]
    )
    crawl.add_edges_from((u, 400 + u) for u in range(0, 400, 4))
    crawl.remove_edges_from(list(nx.selfloop_edges(crawl)))
    edges = np.array(crawl.edges, np.int32).T
    copies = 12
    sources, targets = web.web(CPU, (edges[0], edges[1]), copies)
    base = 1 + int(edges.max())
    vertices = copies * base
    assert len(np.unique(sources.astype(np.int64) * vertices + targets)) == copies * edges.shape[1]
    like = web.figures(np, vertices, sources, targets)
    of_crawl = web.figures(np, base, edges[0], edges[1])
    assert like["out-degrees"] == of_crawl["out-degrees"]
    assert like["in-degrees"][3] >= of_crawl["in-degrees"][3]
    assert like["without out-edges"] == pytest.approx(of_crawl["without out-edges"])
    assert like["distances of ids"][0] == of_crawl["distances of ids"][0]
    assert like["edges back"] == pytest.approx(of_crawl["edges back"], abs=web.EXCHANGED)
    # every edge has its image in the crawl, and about one in 32 leads to another copy
    assert {(u % base, v % base) for u, v in zip(sources, targets, strict=True)} == set(crawl.edges)
    place = {v: i for i, part in enumerate(nx.strongly_connected_components(crawl)) for v in part}
    whole = nx.DiGraph(list(zip(sources.tolist(), targets.tolist(), strict=True)))
    parts = list(nx.strongly_connected_components(whole))
    assert all(len({place[v % base] for v in part}) == 1 for part in parts)
    assert len({v // base for v in max(parts, key=len)}) == copies
    exchanged = (sources // base != targets // base).mean()
    assert exchanged == pytest.approx(web.EXCHANGED, rel=0.4)


def test_one_copy_is_the_crawl(tmp_path: Path) -> None:
    path = tmp_path / "crawl.txt"
    path.write_text("0 0\n0 2\n1 0\n2 1\n")
    sources, targets = web.web(CPU, web.crawl(path), 1)
    assert (sources.tolist(), targets.tolist()) == ([0, 1, 2], [2, 0, 1])


def test_repeats_and_loops_are_left_out() -> None:
    graph = Graph.of(CPU, 4, np.array([0, 1, 0, 2, 0]), np.array([1, 0, 1, 2, 3]))
    assert [column.tolist() for column in graph.columns] == [[0, 0, 1], [1, 3, 0]]
    assert [column.tolist() for column in graph.reversed().columns] == [[0, 1, 3], [1, 0, 0]]
    assert graph.with_loops().offsets().tolist() == [0, 3, 5, 6, 7]
