"""What the benchmarks of the two papers on generators and kernels compute."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from benchmarks import harness, kim, plots, sahu, sahu_programs, tables, wang
from benchmarks import preferential_attachment as attachment
from benchmarks.tables import papers
from liverank_gpu import METHODS, PUBLISHED_METHODS, EdgeBatch, Engine, Options
from liverank_gpu.backends import backend_named
from liverank_gpu.backends.cuda.device import CudaDevice
from liverank_gpu.generate import grid, preferential_attachment, uniform
from liverank_gpu.operations.backend import Backend
from tests.cuda_emulator.emulated import emulated_backend
from tests.cuda_emulator.harness import CpuLoader
from tests.gpu.pagerank.published_reference import PublishedReference

FIGURE_1 = (
    *((0, 1), (0, 2), (0, 4), (0, 5), (2, 3), (4, 5)),
    *((4, 6), (5, 7), (3, 6), (6, 7), (7, 9), (8, 9)),
)
"""A network with what the paper's text says of figure 1: 10 vertices, 12 undirected edges, and
neighbours of degree 1, 2, 3 and 3 at vertex 0.
"""


def load(order: str) -> kim.Load:
    return CpuLoader(
        "shuffled" if order == "shuffled" else "forward",
        source=lambda _: kim.SOURCE.read_text(),
        names=lambda _: kim.NAMES,
    )("kim")


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> Backend:
    """An emulated device; fewer threads than a graph has vertices and edges."""
    monkeypatch.setattr(kim, "BLOCKS", 2)
    monkeypatch.setattr(kim, "THREADS", 50)
    monkeypatch.setattr(kim, "REPEATS", 1)
    return emulated_backend()


def symmetric(name: str, vertices: int, edges: list[tuple[int, int]]) -> kim.Graph:
    both = np.array(edges + [(v, u) for u, v in edges], np.int32).T.copy()
    return kim.Graph(name, vertices, both[0], both[1], undirected=True)


@pytest.mark.parametrize("method", kim.METHODS.values(), ids=lambda method: method.__name__)
def test_one_iteration_on_figure_1_gives_vertex_0_what_the_paper_says(
    emulated: Backend, method: Callable[..., kim.Method]
) -> None:
    graph = symmetric("figure 1", 10, list(FIGURE_1))
    ranked = kim.ranks(emulated, method(emulated, load("forward"), graph), count=1)
    assert ranked[0] == pytest.approx(0.199, abs=5e-4)
    assert ranked.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("order", ["forward", "shuffled"])
@pytest.mark.parametrize("method", kim.METHODS.values(), ids=lambda method: method.__name__)
def test_ten_iterations_are_those_of_the_equation(
    emulated: Backend, method: Callable[..., kim.Method], order: str
) -> None:
    streets = [ends.astype(np.int32) for ends in grid(12, 14, keep=0.8, seed=2)]
    attached = preferential_attachment(300, 3, seed=1).columns()
    for graph in (
        kim.Graph("directed", 300, *attached),
        kim.Graph("directed, random", 400, *uniform(400, 2000, seed=1)),
        kim.Graph("undirected", 168, streets[0], streets[1], undirected=True),
    ):
        exact = kim.expected(emulated, graph)
        in_double = kim.ranks(emulated, method(emulated, load(order), graph, np.float64))
        assert np.abs(in_double - exact).sum() < 1e-14
        in_single = kim.ranks(emulated, method(emulated, load(order), graph))
        assert in_single.dtype == np.float32
        assert np.abs(in_single - exact).sum() < 1e-5


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_edges_are_ranked_once_beside_it(emulated: Backend, name: str) -> None:
    graph = kim.Graph("directed, random", 400, *uniform(400, 2000, seed=1))
    row = kim.by_us_once(backend_named("cpu") if name == "cpu" else emulated, graph)
    assert row["method"] == f"liverank once, {name}"
    assert 0.0 < row["error_bound"] <= 1e-6
    assert row["sweeps_to_target"] > kim.ITERATIONS
    assert min(row[name] for name in row if name.endswith("_ms")) > 0.0


def test_the_expected_ranks_are_those_of_networkx() -> None:
    import networkx

    graph = symmetric("figure 1", 10, list(FIGURE_1))
    found = networkx.pagerank(networkx.Graph(FIGURE_1), alpha=0.85, tol=1e-13, max_iter=500)
    ranked = kim.expected(backend_named("cpu"), graph, count=200)
    assert ranked == pytest.approx([found[v] for v in range(10)], abs=1e-12)


def test_the_measurements_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVERANK_COMMIT", "test")
    monkeypatch.setattr(attachment, "REPEATS", 1)
    monkeypatch.setattr(attachment, "compiled", lambda loop: loop)
    folder = str(tmp_path)
    program = str(Path(attachment.__file__))
    monkeypatch.setattr("sys.argv", [program, "--shrink", "10000", "--results", folder])
    attachment.main()
    assert (tmp_path / "preferential-attachment-cpu.json").exists()


def test_the_published_algorithm_is_measured_beside_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIVERANK_COMMIT", "test")
    monkeypatch.setattr(attachment, "REPEATS", 1)
    arguments = ["cuppa", "--shrink", "10000", "--results", str(tmp_path)]
    monkeypatch.setattr("sys.argv", [str(Path(attachment.__file__)), *arguments])
    attachment.main()
    document = json.loads((tmp_path / "cuppa-cpu.json").read_text())
    rows = document["figures"]["models"]
    assert [row["model"] for row in rows] == ["liverank", *attachment.PUBLISHED]
    assert rows[1]["rounds"] == 1
    assert rows[2]["rounds"] > rows[3]["rounds"] > 1
    assert max(row["exponent"] for row in rows) - min(row["exponent"] for row in rows) < 0.02
    assert tables.TABLES["cuppa"](document).count("\n| ") > 20


def test_queues_are_measured_where_threads_run_at_the_same_time(emulated: Backend) -> None:
    largest = {
        (row["edges_per_vertex"], row["probability"]): row["largest_queue"]
        for row in attachment.largest_queues(emulated, 8)
    }
    # on the emulated device the last thread runs first: its vertex waits for those before it
    assert {d for d, _ in largest} == {1, 2, 4, 8}
    assert all(largest[d, 1.0] == 0 for d in (1, 2, 4, 8))
    assert all(0 < largest[d, 0.0] <= d for d in (4, 8))
    by_round = attachment.queues_by_round(emulated, 16)
    assert [row["round"] for row in by_round] == [*range(1, 101)]
    assert by_round[0]["largest_queue"] > by_round[-1]["largest_queue"]
    draw = attachment.theirs(emulated, **attachment.PUBLISHED["SRRP, dynamic"], threads=64)
    rows = attachment.sweep(emulated, draw, [(2000, 4)], [0.5])
    assert rows[0]["rounds"] > 1
    assert rows[0]["queued"] > 0


def test_ten_of_our_sweeps_are_timed_on_the_same_graph(emulated: Backend) -> None:
    graph = kim.Graph("random", 500, *uniform(500, 2500, seed=1))
    ours = kim.by_us(backend_named("cpu"), graph)
    assert ours["iterations_ms"] > 0
    (edges, nodes) = kim.by_kim(emulated, load("forward"), graph)
    assert edges["method"] == "edge-centric"
    assert nodes["error"] < 1e-5


def test_the_figures_of_the_paper_are_measured_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIVERANK_COMMIT", "test")
    arguments = ["--small", "--scale", "6", "--networks", "--graphs", "R-MAT", "grid", "chains"]
    command = [str(Path(sahu.__file__)), str(tmp_path), *arguments, "--results", str(tmp_path)]
    monkeypatch.setattr("sys.argv", command)
    sahu.main()
    document = json.loads((tmp_path / "sahu-cpu.json").read_text())
    rows = document["figures"]
    solves = [row for row in rows if row["figures"] == "2"]
    rows = [row for row in rows if row["figures"] == "4, 5"]
    # three graphs, two sizes
    assert len(rows) == 3 * 2 * len(sahu.CONTENDERS)
    assert all(len(row["error_of_each"].split()) == row["batches"] for row in rows)
    assert {row["graph"] for row in solves} == {"R-MAT", "grid", "chains"}
    errors = {(row["graph"], row["contender"]): row["error"] for row in solves}
    for graph in ("R-MAT", "grid", "chains"):
        # the same iterates by another program
        product, own = errors[graph, "SciPy"], errors[graph, "Static, published"]
        assert product == pytest.approx(own, abs=1e-14)
    assert "| SciPy |" in papers.sahu(document)
    assert "| 0.0001 | published |" in papers.sahu(document)
    assert "<polyline" in plots.sahu(document)
    assert not list(tmp_path.glob(".sahu*"))


def test_the_figure_of_personalized_ranks_is_measured_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LIVERANK_COMMIT", "test")
    arguments = ["--small", "--scale", "8", "--graphs", "R-MAT", "grid", "Pokec"]
    command = [str(Path(wang.__file__)), str(tmp_path), *arguments, "--results", str(tmp_path)]
    monkeypatch.setattr("sys.argv", command)
    wang.main()
    assert "Pokec: no" in capsys.readouterr().out
    document = json.loads((tmp_path / "wang-cpu.json").read_text())
    rows, switching = document["figures"]["times"], document["figures"]["switching"]
    published = [row for row in rows if row["form"] == "published"]
    assert len(published) == 2 * len(PUBLISHED_METHODS)
    assert len(rows) == 2 * (len(PUBLISHED_METHODS) + len(METHODS))
    assert all(0.0 < row["error_bound"] <= 1e-4 for row in rows)
    for row in switching:
        modes, costs = row["mode"].split(), map(float, row["psi"].split())
        assert modes == ["pushopt" if cost < 0.0 else "pull" for cost in costs]
        assert len(row["pull_ms"].split()) == len(row["pushopt_ms"].split()) == len(modes)
    assert "| R-MAT |" in papers.wang(document)
    assert "<polyline" in plots.wang(document)
    assert not list(tmp_path.glob(".wang*"))


def test_each_way_of_dividing_the_vertices_is_timed(emulated: Backend) -> None:
    first = EdgeBatch(*uniform(60, 300, seed=1), vertices=60)
    batches = [EdgeBatch.of(insert=[(0, 1), (2, 3)])]
    rows = list(sahu_programs.partitions("uniform", first, batches, emulated))
    assert len(rows) == len(sahu_programs.FRONTIERS) * len(sahu_programs.WAYS)
    document = {"figures": rows, "backend": "cpu"}
    assert "| uniform, dynamic-frontier |" in papers.sahu(document)


@pytest.mark.parametrize("way", sahu_programs.WAYS)
@pytest.mark.parametrize("strategy", sahu_programs.FRONTIERS)
def test_each_way_of_dividing_the_vertices_is_the_pseudocode(
    emulated: Backend, way: str, strategy: str
) -> None:
    """With rows for blocks and for threads in both directions, and rows of just as many entries."""
    options, generator = Options(dangling="self-loop"), np.random.default_rng(1)
    hubs = [(0, v) for v in range(1, 120)] + [(v, 1) for v in range(2, 120)]
    hubs += [(2, v) for v in range(3, 3 + sahu_programs.LONG)]
    hubs += [(v, 3) for v in range(4, 4 + sahu_programs.LONG)]
    edges = sorted({*hubs, *map(tuple, generator.integers(0, 120, (300, 2)).tolist())})
    reference = PublishedReference(options, 120)
    engine = Engine(options, emulated)
    engine.apply(EdgeBatch.of(edges, vertices=120))
    reference.apply(edges, [])
    engine.update("static", "published")
    reference.update("static")
    for insert, delete in (([(5, 0), (1, 7)], [(0, 9), (9, 1)]), ([(0, 9)], [(2, 3), (5, 0)])):
        engine.apply(EdgeBatch.of(insert, delete=delete))
        reference.apply(insert, delete)
        with sahu_programs.divided(engine, way):
            result = engine.update(strategy, "published")
        iterations, converged, affected = reference.update(strategy)
        assert (result.iterations, result.converged) == (iterations, converged)
        assert result.touched_vertices == affected
        found = engine.publish().to_numpy()
        assert np.abs(found - reference.ranks / reference.ranks.sum()).sum() < 1e-12


def test_a_kernel_that_selects_leaves_the_others_to_the_other_one(emulated: Backend) -> None:
    """Without either of the two, ranks of its vertices stay as they were."""
    hub = [(v, 0) for v in range(1, 100)] + [(0, 1), (1, 2)]
    engine = Engine(Options(dangling="self-loop"), emulated)
    engine.apply(EdgeBatch.of(hub))
    device = emulated.device
    assert isinstance(device, CudaDevice)
    for left_out, changed in (("BLOCK", False), ("1", True)):
        engine.update("static", "published")
        before = engine.internals.iterate.values.copy()
        engine.apply(EdgeBatch.of([(0, 3 + changed)]))
        with sahu_programs.divided(engine, sahu_programs.NOT_PARTITIONED):
            nothing = {f"update_ranks<{left_out}>": lambda *_, **__: None}
            with patch.dict(device.kernels["published"], nothing):
                engine.update("naive-dynamic", "published")
        moved = np.flatnonzero(engine.internals.iterate.values != before)
        assert (0 in moved) == changed
        assert (len(moved) > 1) == (not changed)


def test_times_of_both_backends_are_compared_where_both_have_a_graph() -> None:
    row: dict[str, object] = {
        "figures": "4, 5",
        "graph": "grid",
        "vertices": 9,
        "dangling": "uniform",
        "fraction": 1e-4,
        "mean_error": 1e-6,
    }
    names = [name for name in sahu.CONTENDERS if name != "auto"]
    there: dict[str, Any] = {
        "figures": [row | {"contender": name, "median_ms": 6.0} for name in names],
        "machine": {"cores": 2, "processor": "one"},
    }
    here = {"figures": [row | {"contender": name, "median_ms": 2.0} for name in names]}
    lines = "\n".join(papers.beside_cpu(here, there))
    cell = "3.0, 1.0e-06 / 1.0e-06"
    assert (
        f"| 4, 5, 0.0001, `uniform` | published | {' | '.join([cell] * 5)} | Static 24 |" in lines
    )
    there["figures"] = [each | {"vertices": 10} for each in there["figures"]]
    assert papers.beside_cpu(here, there) == []


def half_written(path: Path, text: str) -> None:
    path.write_bytes(text.encode()[: len(text) // 2])
    raise KeyboardInterrupt


def test_an_interrupted_run_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVERANK_COMMIT", "test")
    path, begun = tmp_path / "partial", list[str]()

    def work(name: str) -> list[str]:
        begun.append(name)
        if begun == ["grid", "R-MAT"]:
            raise KeyboardInterrupt
        return [name]

    works = {name: partial(work, name) for name in ("grid", "R-MAT")}
    with pytest.raises(KeyboardInterrupt):
        harness.resumed(path, "sizes", works)
    assert harness.resumed(path, "sizes", works) == {"grid": ["grid"], "R-MAT": ["R-MAT"]}
    assert begun == ["grid", "R-MAT", "R-MAT"]
    assert not path.exists()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", half_written)
        with pytest.raises(KeyboardInterrupt):
            harness.resumed(path, "sizes", works)
    assert list(harness.resumed(path, "sizes", works)) == ["grid", "R-MAT"]
    path.write_text('{"run": "another commit", "rows": {"grid": []}}')
    assert harness.resumed(path, "sizes", works)["grid"] == ["grid"]
