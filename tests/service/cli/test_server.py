"""Commands that use a server: load, replay and queries."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx as nx
import pyarrow as pa
import pyarrow.csv
import pytest

from liverank.client import Client
from liverank_gpu.generate import preferential_attachment, temporal_stream
from liverank_service.cli import CommandError, ingest
from tests.service.graphs import edge_list


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
    """Compares with a set of edges; each edge is inserted and deleted many times within a batch."""
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
        for start in range(0, len(edges), size):
            settled = ingest.last_operations(ingest.window(edges, start, start + size))
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


def test_events_on_either_direction_of_an_undirected_edge_are_in_order(
    run: Any, url: str, tmp_path: Path
) -> None:
    events = tmp_path / "events.txt"
    events.write_text("0 + 1 2\n0 - 2 1\n0 + 3 1\n0 + 1 3\n1 - 1 3\n1 + 3 1\n2 - 3 1\n2 + 2 3\n")
    for command in (("load",), ("replay", "--json")):
        graph = f"undirected-{command[0]}"
        asked = ("--graph", graph, "--url", url, "--undirected")
        code, _, error = run(command[0], events, *command[1:], *asked)
        assert code == 0, error
        with Client(url) as client:
            info = client.graph(graph)
            assert (info.options.directed, info.edges) == (False, 1)
            assert client.neighbors(graph, 2).neighbors[0].vertex == 3
    code, out, _ = run("rank", events, "--undirected", "--json")
    assert code == 0
    answer = json.loads(out)
    assert (answer["vertices"], answer["edges"]) == (3, 1)


def test_load_creates_a_graph_with_its_options(run: Any, url: str, triangle: Path) -> None:
    asked = ("--graph", "chosen", "--url", url, "--strategy", "residual", "--damping", 0.5)
    code, _, error = run("load", triangle, *asked, "--undirected")
    assert (code, error) == (0, "note: graph 'chosen' did not exist and was created\n")
    assert "created" not in run("load", triangle, *asked, "--undirected")[2]
    with Client(url) as client:
        options = client.graph("chosen").options
    assert (options.strategy, options.damping, options.directed) == ("residual", 0.5, False)


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


def test_views_are_put_read_and_removed(run: Any, url: str, triangle: Path, tmp_path: Path) -> None:
    here = ("--graph", "viewed", "--url", url)
    run("load", triangle, *here)
    code, out, _ = run("view", "put", "mine", "b=2", "c", "--refresh", 60, *here, "--json")
    view = json.loads(out)
    assert code == 0
    assert (view["name"], view["teleport"], view["weights"]) == ("mine", "weights", 2)
    assert view["refresh"] == 60.0
    graph = nx.DiGraph([("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")])
    weights = {"b": 2.0, "c": 1.0}
    expected = nx.pagerank(graph, personalization=weights, tol=1e-14, max_iter=1_000)
    _, out, _ = run("top", "--view", "mine", *here, "--json")
    ranks = {entry["vertex"]: entry["rank"] for entry in json.loads(out)["ranks"]}
    assert ranks == pytest.approx(expected, abs=1e-5)
    _, out, _ = run("get", "b", "--view", "mine", *here, "--json")
    assert json.loads(out)["rank"] == ranks["b"]
    file = tmp_path / "ranks.csv"
    assert run("export", "ranks", "--view", "mine", "--out", file, *here)[0] == 0
    assert f'"b",{ranks["b"]!r}' in file.read_text().splitlines()
    code, out, _ = run("view", "put", "all", "--uniform", "--direction", "reversed", *here)
    assert code == 0
    _, out, _ = run("top", "--view", "all", *here, "--json")
    ranks = {entry["vertex"]: entry["rank"] for entry in json.loads(out)["ranks"]}
    expected = nx.pagerank(graph.reverse(), tol=1e-14, max_iter=1_000)
    assert ranks == pytest.approx(expected, abs=1e-5)
    code, out, _ = run("view", "list", *here)
    assert [line.split()[0] for line in out.splitlines()] == ["view", "all", "mine"]
    assert "60 s" in out
    assert "uniform, reversed" in out
    with Client(url) as client:
        client.put_set("viewed", "team", list("acd"))
    code, out, _ = run("view", "put", "all", "--uniform", "--within", "team", *here)
    assert (code, "uniform, within team" in out) == (0, True)
    _, out, _ = run("top", "--view", "all", *here, "--json")
    ranks = {entry["vertex"]: entry["rank"] for entry in json.loads(out)["ranks"]}
    expected = nx.pagerank(graph.subgraph("acd"), tol=1e-14, max_iter=1_000)
    assert ranks == pytest.approx({"b": 0.0, **expected}, abs=1e-5)
    assert run("view", "remove", "all", *here)[0] == 0
    for arguments, message in (
        (("top", "--view", "all"), "has no view 'all'; there are: mine"),
        (("view", "put", "x"), "expected vertices, --set or --uniform"),
        (("view", "put", "x", "a", "--uniform"), "expected vertices, --set or --uniform"),
        (("view", "put", "x", "a=b"), "the weight 'b' is not a number"),
        (("view", "put", "x", "a", "--refresh", "hourly"), "refresh: 'hourly' is not allowed"),
        (("export", "edges", "--view", "mine"), "--view needs ranks"),
        (("top", "--watch", "--view", "all"), "has no view 'all'; there are: mine"),
    ):
        code, _, error = run(*arguments, *here)
        assert code == 1
        assert message in error


def test_load_counts_over_all_batches_what_it_did(
    run: Any, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "LOAD_BATCH_EDGES", 2)
    file = tmp_path / "edges.csv"
    file.write_text("source,target,weight\na,b,1\nb,c,1\na,b,2\nc,d,1\na,b,3\n")
    arguments = ("load", file, "--graph", "counted", "--url", url)
    code, out, error = run(*arguments, "--json")
    assert (code, error.splitlines()[1:]) == (
        0,
        ["note: 2 already present; columns not used: weight"],
    )
    assert json.loads(out)["load"] == {
        "edges": 5,
        "batches": 3,
        "inserted": 3,
        "already_present": 2,
        "reweighted": 0,
        "deleted": 0,
        "not_found": 0,
        "expired": 0,
        "new_vertices": 4,
        "superseded": 0,
        "unused_columns": ["weight"],
    }
    _, out, _ = run(*arguments)
    lines = [line.split() for line in out.splitlines()]
    assert ["already", "present", "5"] in lines
    assert ["columns", "not", "used", "weight"] in lines
    events = tmp_path / "events.txt"
    events.write_text("0 + x y\n1 - x y\n2 + y z\n")
    code, out, _ = run("load", events, "--graph", "counted", "--url", url, "--json")
    loaded = json.loads(out)["load"]
    assert (loaded["superseded"], loaded["inserted"], loaded["not_found"]) == (1, 1, 1)


def test_weights_of_a_file_are_loaded_and_replayed(run: Any, url: str, tmp_path: Path) -> None:
    rows = [("a", "b", 2.0), ("b", "c", 0.5), ("c", "a", 1.0), ("a", "c", 8.0), ("a", "b", 4.0)]
    file = tmp_path / "edges.csv"
    lines = (f"{','.join(map(str, row))},{number}" for number, row in enumerate(rows))
    file.write_text("source,target,w,t\n" + "\n".join(lines) + "\n")
    graph = nx.DiGraph()
    graph.add_weighted_edges_from(rows)
    expected = nx.pagerank(graph, tol=1e-12)

    def ranks(name: str) -> dict[str, float]:
        answer = json.loads(run("top", "--graph", name, "--url", url, "--json")[1])
        return {place["vertex"]: place["rank"] for place in answer["ranks"]}

    asked = ("--weights", "w", "--url", url, "--json")
    code, out, error = run("load", file, "--graph", "heavy", *asked)
    assert (code, error.splitlines()[1:]) == (
        0,
        ["note: 1 already present; columns not used: times"],
    )
    assert json.loads(out)["load"]["inserted"] == 4
    assert ranks("heavy") == pytest.approx(expected, abs=1e-5)
    again = json.loads(run("load", file, "--graph", "heavy", *asked)[1])["load"]
    assert (again["inserted"], again["already_present"], again["reweighted"]) == (0, 5, 0)
    code, _, error = run("replay", file, "--graph", "heavy-replayed", "--batch-size", 1, *asked)
    assert (code, error.splitlines()[1:]) == (0, ["note: 1 reweighted"])
    assert ranks("heavy-replayed") == pytest.approx(expected, abs=1e-5)
    code, out, error = run("rank", file, "--weights", "3", "--json")
    assert (code, error.strip()) == (0, "note: 1 duplicates; columns not used: times")
    ranked = {place["vertex"]: place["rank"] for place in json.loads(out)["ranks"]}
    assert ranked == pytest.approx(expected, abs=1e-5)

    code, _, error = run("load", file, "--graph", "default", *asked)
    assert code == 1
    assert "graph 'default' is unweighted; --graph NAME creates a weighted graph" in error


def test_the_server_of_the_environment_is_asked(
    run: Any, url: str, triangle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIVERANK_URL", url)
    run("load", triangle, "--graph", "listed")
    listed = json.loads(run("graphs", "--json")[1])
    (own,) = [graph for graph in listed if graph["graph"] == "listed"]
    assert (own["vertices"], own["edges"], own["options"]["keys"]) == (4, 4, "string")
    _, table, _ = run("graphs")
    assert ["listed", "4", "4", "1"] in [line.split()[:4] for line in table.splitlines()]

    before = json.loads(run("top", "--graph", "listed", "--json")[1])
    again = json.loads(run("recompute", "--graph", "listed", "--json")[1])
    assert (again["version"], again["revision"]) == (1, before["revision"] + 1)
    assert again["strategy"] == "static"
    _, table, _ = run("recompute", "--graph", "listed", "--strategy", "residual")
    assert ["revision", str(again["revision"] + 1)] in [line.split() for line in table.splitlines()]

    settled = json.loads(run("recompute", "--graph", "listed", "--settled", "1", "--json")[1])
    assert (settled["settled"], settled["strategy"]) == (1, "auto")
    _, table, _ = run("recompute", "--graph", "listed", "--settled", "1")
    assert ["proven", "places", "1"] in [line.split() for line in table.splitlines()]
    either = ("recompute", "--graph", "listed", "--settled-set", "3")
    receipt = json.loads(run(*either, "--json")[1])
    assert (receipt["settled_set"], receipt["strategy"]) == (True, "auto")
    assert ["proven", "set", "yes"] in [line.split() for line in run(*either)[1].splitlines()]
    code, _, error = run(*either, "--settled", "3")
    assert (code, error) == (1, "liverank: expected --settled or --settled-set, got both\n")

    for command in (["top", "--k", 2], ["ppr", "b", "--k", 2], ["ppr", "a=2", "b", "--k", 2]):
        out = tmp_path / "ranks.ndjson"
        _, printed, _ = run(*command, "--graph", "listed", "--out", out, "--json")
        written = [json.loads(line) for line in out.read_text().splitlines()]
        assert written == json.loads(printed)["ranks"]


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
    assert (code, answer["method"], len(answer["ranks"])) == (0, "push", 3)  # none leads to d
    for entry in answer["ranks"]:
        assert entry["rank"] == pytest.approx(expected[entry["vertex"]], abs=1e-9)
    code, out, _ = run("ppr", "b", "c", "--k", 1, "--settled", *server)
    assert (code, json.loads(out)["settled"]) == (0, 1)
    code, out, _ = run("ppr", "b", "c", "--k", 2, "--settled-set", *server)
    assert (code, json.loads(out)["settled_set"]) == (0, True)
    proofs = {"--settled": "proven places: 1 of 1", "--settled-set": "proven set: yes"}
    for option, line in proofs.items():
        code, table, _ = run("ppr", "b", "c", "--k", 1, option, *server[:-1])
        assert (code, table.splitlines()[-2]) == (0, line)
    with Client(url) as client:
        client.put_set("weighted", "chosen", ["a", "d"])  # none leads to d
    options = ("--damping", 0.5, "--among", "chosen", "--ignore-unknown")
    for seeds in (["b", "nobody=3"], ["b"]):
        answer = json.loads(run("ppr", *seeds, *options, *server)[1])
        expected = nx.pagerank(graph, 0.5, personalization={"b": 1}, tol=1e-14, max_iter=1_000)
        assert [entry["vertex"] for entry in answer["ranks"]] == ["a"]
        assert answer["ranks"][0]["rank"] == pytest.approx(expected["a"], abs=1e-5)
        assert answer["ignored"] == (["nobody"] if len(seeds) > 1 else [])
    code, table, _ = run("ppr", "b", "nobody=3", *options, *server[:-1])
    assert (code, table.splitlines()[-2]) == (0, "unknown: nobody")
    answer = json.loads(run("ppr", "a", "--within", "chosen", *server)[1])
    assert [entry["vertex"] for entry in answer["ranks"]] == ["a"]
    code, _, error = run("ppr", "b", "--within", "chosen", *server)
    assert (code, "in `within`" in error) == (1, True)
    published = ("--form", "published", "--method", "pushopt", "--trace")
    answer = json.loads(run("ppr", "b", *published, *server)[1])
    assert [step["mode"] for step in answer["trace"]["steps"]] == ["pushopt"] * answer["iterations"]
    table = run("ppr", "b", *published, *server[:-1])[1]
    assert "push (pushopt)" in table
    assert "Ψ" in table
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
    with Client(url) as client:
        client.put_view("people", "distrust", {"weights": {"a": 1.0}}, direction="reversed")
    code, out, _ = run("view", "list", *for_people)
    assert out.splitlines()[1].split()[:4] == ["distrust", "1", "weights,", "reversed"]
    code, out, _ = run("explain", "a", "--k", 1, *for_people)
    lines = [line.split() for line in out.splitlines()]
    assert [line[:-1] for line in lines[:4]] == [["c"], ["1", "others"], ["teleport"], ["rank"]]
    *parts, rank = (float(line[-1]) for line in lines[:4])
    assert sum(parts) == pytest.approx(rank, abs=3e-6)
    code, out, _ = run("explain", "d", "--view", "distrust", *for_people)
    assert [line.split()[0] for line in out.splitlines()[:3]] == ["a", "teleport", "rank"]
    code, out, _ = run("explain", "d", *for_people, "--json")
    explained = json.loads(out)
    assert explained["contributions"] == []
    assert explained["teleport"] == pytest.approx(explained["rank"], abs=1e-6)


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
    # nothing links to either: their ranks are equal within the bound
    ranks = {entry["vertex"]: entry["rank"] for entry in answer["ranks"]}
    assert abs(ranks[1] - ranks[4]) <= answer["error_bound"]
    assert sorted(order[2:]) == [1, 4]
    for graph in ("four", "default"):
        assert run("load", file, "--graph", graph, "--url", url)[0] == 0
        with Client(url) as client:
            assert client.graph(graph).vertices == 4
            assert client.rank(graph, 4).rank == pytest.approx(ranks[4])


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
        assert client.rank("strings", "20").vertex == "20"
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


def test_a_file_is_replayed_by_the_given_time_column(run: Any, url: str, tmp_path: Path) -> None:
    named, plain = tmp_path / "named.csv", tmp_path / "plain.txt"
    # the edge of the latest time, which is last, is the one with a single end
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


@pytest.mark.parametrize(("size", "batches"), [(7, 6), (40, 1), (1, 39)])
def test_a_graph_grows_on_the_server_vertex_by_vertex(
    run: Any, url: str, size: int, batches: int
) -> None:
    name = f"grown-{size}"
    arguments = ("generate", "preferential-attachment", "--vertices", 40, "--edges-per-vertex", 2)
    code, out, _ = run(
        *(*arguments, "--seed", 3, "--backend", "cpu", "--graph", name),
        *("--batch-size", size, "--url", url, "--json"),
    )
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [line["batch"] for line in lines] == list(range(1, batches + 1))
    graph = preferential_attachment(40, 2, seed=3)
    arrived = [min(first + size, 40) for first in range(0, 40, size)][-batches:]
    present = edges = 0
    for line, vertices in zip(lines, arrived, strict=True):
        present += line["new_vertices"]
        edges += line["inserted"]
        assert (present, edges) == (vertices, graph.edges_before(vertices))
    with Client(url) as client:
        assert client.graph(name).options.keys == "integer"
        sources, targets = graph.edge_list()
        again = client.insert(name, pa.table({"source": sources, "target": targets}))
        assert (again.inserted, again.already_present) == (0, 77)


def test_a_graph_that_grows_has_the_keys_of_the_server(run: Any, url: str) -> None:
    with Client(url) as client:
        client.create("grown-strings", keys="string")
    code, out, _ = run(
        *("generate", "preferential-attachment", "--vertices", 30, "--backend", "cpu"),
        *("--graph", "grown-strings", "--url", url),
    )
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["batch", "1/1"]
    with Client(url) as client:
        assert client.rank("grown-strings", "29").vertex == "29"


def test_a_generated_stream_is_replayed(run: Any, url: str, tmp_path: Path) -> None:
    file = tmp_path / "stream.txt"
    code, *_ = run(
        *("generate", "temporal", "--arrivals", 10, "--edges-per-vertex", 2, "--lifetime", 2),
        *("--batches", 6, "--out", file),
    )
    assert code == 0
    code, out, _ = run("replay", file, "--graph", "temporal", "--url", url, "--json")
    assert code == 0
    stream = temporal_stream(arrivals=10, edges_per_vertex=2, lifetime=2, batches=6)
    changes = [(len(batch.insert_sources), len(batch.delete_sources)) for batch in stream]
    lines = [json.loads(line) for line in out.splitlines()]
    # nobody is alive to link to in the first batch; the second one is loaded
    assert [(line["inserted"], line["deleted"]) for line in lines] == changes[2:]
    with Client(url) as client:
        left = sum(inserted - deleted for inserted, deleted in changes)
        assert client.graph("temporal").edges == left


@pytest.mark.parametrize("arguments", [("-5",), ("--", "-5"), ("--json", "-5")])
def test_a_negative_integer_is_a_key(run: Any, url: str, arguments: tuple[str, ...]) -> None:
    with Client(url) as client:
        client.create("negative", keys="integer")
        client.insert("negative", [(-5, 3), (3, -5), (-17, 3)])
    of = ("--graph", "negative", "--url", url)
    code, out, _ = run("get", *of, *arguments)
    assert (code, "-5" in out) == (0, True)
    if "--" not in arguments:
        assert run("get", *arguments, *of) == (0, out, "")
    code, out, _ = run("explain", *of, *arguments)
    assert (code, "3" in out) == (0, True)
    code, out, _ = run("ppr", *of, "-k", "3", *arguments, "3", "-17=2.5")
    assert (code, "-17" in out) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("get", "-5", "--grahp", "g"), "--grahp"),
        (("get", "-x"), "-x"),
        (("get", "-5", "-7"), "-7"),
        (("ppr", "-5", "-k", "-7"), "greater than or equal to 1"),
        (("ppr", "--settle", "-5"), "--settle"),
    ],
)
def test_what_is_no_negative_integer_is_an_option(
    run: Any, arguments: tuple[str, ...], named: str
) -> None:
    code, out, error = run(*arguments)
    assert (code, out) == (2, "")
    assert named in error.splitlines()[-1]


def test_a_refusal_of_the_server_is_one_line(run: Any, url: str) -> None:
    code, out, error = run("get", "nobody", "--graph", "nowhere", "--url", url)
    assert (code, out) == (1, "")
    expected = r"liverank: Unknown graph: there is no graph 'nowhere'; there are: .*\bdefault\b.*\n"
    assert re.fullmatch(expected, error)


@pytest.mark.parametrize("command", [("top",), ("load", "FILE")])
def test_a_server_that_is_not_there_is_one_line_at_once(
    run: Any, triangle: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=pauses.append))
    arguments = [triangle if word == "FILE" else word for word in command]
    code, out, error = run(*arguments, "--url", "http://127.0.0.1:9")
    assert (code, out, pauses) == (1, "", [])
    assert error.startswith("liverank: no answer from http://127.0.0.1:9 (")
    assert error.endswith("); is `liverank serve` running there?\n")


def test_options_of_a_new_graph_and_of_a_solve_are_given_to_the_command(
    run: Any, url: str, triangle: Path
) -> None:
    at = ("--url", url, "--graph", "published")
    given = ("--form", "published", "--prune-tolerance", "1e-3", "--max-iterations", "7")
    assert run("load", triangle, *at, *given, "--json")[0] == 0
    with Client(url) as client:
        options = client.graph("published").options
    assert (options.form, options.prune_tolerance, options.max_iterations) == ("published", 1e-3, 7)
    code, _, error = run("load", triangle, *at, "--max-iterations", "8")
    assert code == 1
    assert "max_iterations" in error
    again = json.loads(run("recompute", *at, "--trace", "--json")[1])
    assert (again["form"], again["iterations"]) == ("published", 7)
    assert len(again["trace"]["steps"]) == 7
    _, table, _ = run("recompute", *at, "--form", "accelerated", "--trace")
    assert "sweep" in table


def test_the_client_speaks_to_every_route(url: str) -> None:
    with Client(url) as client:
        client.create("routes", damping=0.5)
        first = client.send("routes", insert=[("a", "b")], key="once")
        assert client.send("routes", insert=[("a", "b")], key="once") == first
        insert, delete = (pa.table({"source": [one], "target": [two]}) for one, two in ("ca", "ab"))
        second = client.send("routes", insert, delete, strategy="static")
        assert (second.deleted, second.inserted, second.version) == (1, 1, 2)
        assert client.batch("routes", 2) == second
        again = client.recompute("routes")
        assert (again.version, again.revision) == (2, second.revision + 1)
        accepted = client.append("routes", vertices=["isolated"])
        assert (accepted.version, accepted.status) == (3, "durable")
        client.drop("routes")
        assert "routes" not in [graph.graph for graph in client.graphs()]
