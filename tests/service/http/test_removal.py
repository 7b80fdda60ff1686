"""Vertices that are removed over HTTP: formats, receipts, ranks, reads, and what is refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import networkx as nx
import orjson
import pyarrow as pa
import pytest

from tests.service.formats.test_decode import ARROW, NDJSON, arrow_stream
from tests.service.http.test_changes import subscribed
from tests.service.server import Server, running

EDGES = [["a", "b"], ["b", "c"], ["c", "a"], ["d", "a"], ["a", "e"], ["e", "e"], ["b", "d"]]


@pytest.fixture
def path(server: Server) -> str:
    path = server.new_graph(target_error=1e-9)
    server.post(path, json={"insert": EDGES})
    return path


def counts(receipt: dict[str, Any]) -> tuple[int, ...]:
    names = ("removed", "unknown", "removed_edges", "inserted", "deleted", "not_found")
    return tuple(receipt[name] for name in (*names, "new_vertices"))


def assert_ranked(server: Server, path: str, graph: nx.DiGraph, tolerance: float = 1e-8) -> None:
    found = server.ranks(path)
    expected = nx.pagerank(graph, tol=1e-13, max_iter=2000)
    assert found.keys() == expected.keys()
    assert sum(abs(found[key] - expected[key]) for key in found) < tolerance
    info = server.http.get(path).json()
    edges = graph.number_of_edges()
    assert (info["vertices"], info["edges"]) == (graph.number_of_nodes(), edges)


NO_TARGET = "expected nothing, because a row that removes a vertex has no target"

BODIES = {
    "json": ({"remove": ["b", "nobody", "b"]}, None),
    "ndjson": (
        b'{"source":"b","operation":"remove"}\n'
        b'{"source":"nobody","target":null,"operation":"remove"}\n'
        b'{"source":"b","operation":"remove"}',
        NDJSON,
    ),
    "csv": (b"source,target,operation\nb,,remove\nnobody,,remove\nb,,remove\n", "text/csv"),
    "arrow": (
        arrow_stream(
            source=pa.array(["b", "nobody", "b"]),
            target=pa.array([None, "", None], pa.string()),
            operation=pa.array(["remove"] * 3),
        ),
        ARROW,
    ),
    "arrow without targets": (
        arrow_stream(
            source=pa.array(["b", "nobody", "b"]),
            target=pa.nulls(3),
            operation=pa.array(["remove"] * 3),
        ),
        ARROW,
    ),
}


@pytest.mark.parametrize("form", BODIES)
def test_a_vertex_is_removed_with_its_edges(server: Server, path: str, form: str) -> None:
    body, content_type = BODIES[form]
    if content_type is None:
        receipt = server.post(path, json=body)
    else:
        receipt = server.post(path, content=body, headers={"Content-Type": content_type})
    assert counts(receipt) == (1, 2, 3, 0, 0, 0, 0)
    expected = nx.DiGraph(EDGES)
    expected.remove_node("b")
    assert_ranked(server, path, expected)


@pytest.mark.parametrize("kind", ["string", "integer"])
def test_rows_that_remove_stand_among_others(server: Server, kind: str) -> None:
    path = server.new_graph(keys=kind, target_error=1e-9)
    names: list[Any] = list("abcde") if kind == "string" else [5, -1, 2**40, 7, 0]
    key = dict(zip("abcde", names, strict=True))
    edges = [[key[source], key[target]] for source, target in EDGES]
    server.post(path, json={"insert": edges})
    rows = [
        ("insert", key["a"], key["d"]),
        ("remove", key["b"], ""),
        ("delete", key["c"], key["a"]),
        ("delete", key["b"], key["d"]),
    ]
    body = "operation,source,target\n" + "".join(f"{op},{s},{t}\n" for op, s, t in rows)
    receipt = server.post(path, content=body.encode(), headers={"Content-Type": "text/csv"})
    assert counts(receipt) == (1, 0, 3, 1, 1, 1, 0)
    expected = nx.DiGraph(edges)
    expected.remove_node(key["b"])
    expected.remove_edge(key["c"], key["a"])
    expected.add_edge(key["a"], key["d"])
    assert_ranked(server, path, expected)


@pytest.mark.parametrize(
    ("body", "content_type", "field", "index", "message"),
    [
        (
            b"source,target,operation\na,,remove\nb,c,remove\n",
            "text/csv",
            "target",
            1,
            f'{NO_TARGET}, got the string "c"',
        ),
        (
            b'{"source":"b","target":"c","operation":"remove"}',
            NDJSON,
            "target",
            0,
            f'{NO_TARGET}, got the string "c"',
        ),
        (b'{"operation":"remove"}', NDJSON, "source", 0, "expected a non-empty string, got null"),
        (b'{"remove": "b"}', None, "remove", None, 'expected an array of keys, got the string "b"'),
        (b'{"remove": [1]}', None, "remove", 0, "expected a non-empty string, got the number 1"),
        (
            b"source,target,operation\na,b,forget\n",
            "text/csv",
            "operation",
            0,
            'expected "insert", "delete", "remove" or "replace", got the string "forget"',
        ),
    ],
)
def test_what_cannot_be_removed(
    server: Server,
    path: str,
    body: bytes,
    content_type: str | None,
    field: str,
    index: int | None,
    message: str,
) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    answer = server.http.post(f"{path}/batches", content=body, headers=headers)
    problem = answer.json()
    assert (answer.status_code, problem["field"]) == (422, field), problem
    assert problem.get("index") == index
    assert message in problem["detail"]
    assert_ranked(server, path, nx.DiGraph(EDGES))


def test_a_removed_key_comes_back_as_a_new_vertex(server: Server, path: str) -> None:
    receipt = server.post(path, json={"remove": ["b", "e"], "insert": [["b", "c"], ["new", "b"]]})
    assert counts(receipt) == (2, 0, 5, 2, 0, 0, 2)
    expected = nx.DiGraph(EDGES)
    expected.remove_nodes_from(["b", "e"])
    expected.add_edges_from([("b", "c"), ("new", "b")])
    assert_ranked(server, path, expected)
    assert counts(server.post(path, json={"vertices": ["e"]}))[-1] == 1
    expected.add_node("e")
    assert_ranked(server, path, expected)


def test_reads_do_not_know_a_removed_vertex(server: Server, path: str) -> None:
    http = server.http
    version = server.post(path, json={"remove": ["b"]})["version"]
    for read in (f"ranks/b?min_version={version}", "neighbors/b", "personalized/b"):
        answer = http.get(f"{path}/{read}")
        assert answer.status_code == 404, read
        assert answer.json()["type"] == "urn:liverank:problem:unknown-vertex"
    answer = http.post(f"{path}/ranks", json={"vertices": ["a", "b"]}).json()
    assert (answer["ranks"][0] > 0, answer["ranks"][1]) == (True, None)
    part = http.post(f"{path}/subgraph", json={"vertices": ["a", "b", "c"]}).json()
    assert (part["unknown"], part["edges"]) == (["b"], [["c", "a"]])
    query = {"seeds": {"a": 1, "b": 1}, "unknown": "ignore"}
    answer = http.post(f"{path}/personalized", json={"queries": [query]}).json()
    assert answer["answers"][0]["ignored"] == ["b"]
    exported = http.get(f"{path}/ranks", headers={"Accept": NDJSON}).text.splitlines()
    assert sorted(orjson.loads(line)["vertex"] for line in exported) == ["a", "c", "d", "e"]
    edges = http.get(f"{path}/edges", headers={"Accept": NDJSON}).text.splitlines()
    kept = [edge for edge in EDGES if "b" not in edge]
    assert sorted(list(orjson.loads(line).values()) for line in edges) == sorted(kept)


def test_a_removed_vertex_leaves_all_sets(server: Server, path: str) -> None:
    http = server.http
    for name, members in (("one", ["a", "b"]), ("two", ["c", "b", "d"]), ("three", ["d"])):
        http.put(f"{path}/sets/{name}", json={"vertices": members}).raise_for_status()
    change = {"two": {"add": ["x"], "remove": ["c"]}}
    server.post(path, json={"remove": ["b"], "vertices": ["x"], "sets": change})
    read = {name: http.get(f"{path}/sets/{name}").json() for name in ("one", "two", "three")}
    assert {name: sorted(one["vertices"]) for name, one in read.items()} == {
        "one": ["a"],
        "two": ["d", "x"],
        "three": ["d"],
    }
    answer = http.post(f"{path}/batches", json={"remove": ["d"], "sets": {"three": {"add": ["d"]}}})
    assert (answer.status_code, answer.json()["type"]) == (
        404,
        "urn:liverank:problem:unknown-vertex",
    )
    assert http.get(f"{path}/sets/three").json()["vertices"] == ["d"]
    assert http.get(f"{path}/ranks/d").status_code == 200


def test_a_watched_query_loses_its_seed_until_the_key_comes_back(server: Server, path: str) -> None:
    http = server.http
    for name, seeds in (("lost", {"b": 1, "a": 1}), ("kept", {"a": 1})):
        http.put(f"{path}/watched/{name}", json={"seeds": seeds}).raise_for_status()
    server.post(path, json={"remove": ["b"]})
    answer = http.get(f"{path}/watched/lost")
    assert (answer.status_code, answer.json()["value"]) == (404, "b")
    assert http.get(f"{path}/watched/kept").status_code == 200
    server.post(path, json={"insert": [["b", "c"], ["c", "b"]]})
    assert_answered_alike(server, path)
    # removed and back in one batch
    server.post(path, json={"remove": ["b"], "insert": [["d", "b"], ["b", "d"]]})
    assert_answered_alike(server, path)


def assert_answered_alike(server: Server, path: str) -> None:
    query = {"seeds": {"b": 1, "a": 1}}
    watched = server.http.get(f"{path}/watched/lost").json()["ranks"]
    answer = server.http.post(f"{path}/personalized", json={"queries": [query]}).json()
    (once,) = (one["ranks"] for one in answer["answers"])
    ranks = {place["vertex"]: place["rank"] for place in once}
    assert {place["vertex"] for place in watched} == set(ranks)
    for place in watched:
        assert place["rank"] == pytest.approx(ranks[place["vertex"]], abs=1e-5)


def test_subscribers_are_told_who_was_removed_and_who_took_the_id(
    server: Server, path: str
) -> None:
    with subscribed(server, path, top=3) as stream:
        top = [place["vertex"] for place in next(stream).data["top"]]
        gone = top[1]
        server.post(path, json={"remove": [gone], "insert": [["x", "fresh"], ["y", "fresh"]]})
        told = next(stream).data
        assert {"vertex": gone, "rank": None} in told["left"]
        ranks = server.ranks(path)
        said = {place["vertex"]: place["rank"] for place in told["entered"] + told["moved"]}
        assert said["fresh"] == pytest.approx(ranks["fresh"])
        assert gone not in said
        receipt = server.post(path, json={"remove": [gone]})
        assert counts(receipt)[:2] == (0, 1)
        told = next(stream).data
        assert (told["entered"], told["left"], told["moved"]) == ([], [], [])


def test_a_stream_of_removals_is_that_of_networkx_after_restarts(tmp_path: Path) -> None:
    generator = random.Random(4)
    model = nx.DiGraph()
    total = 0
    for start in range(3):
        with running(tmp_path) as server:
            path = "/graphs/turning"
            if start == 0:
                server.http.put(path, json={"target_error": 1e-8}).raise_for_status()
            else:
                assert_ranked(server, path, model, 2e-8)
            for step in range(24):
                keys = [f"v{total + generator.randrange(30)}" for _ in range(12)]
                insert = [[keys[2 * n], keys[2 * n + 1]] for n in range(5)]
                delete = [list(edge) for edge in list(model.edges)[:2]]
                remove = [f"v{total}", keys[11]] if model else []
                total += 1
                body = {"remove": remove, "delete": delete, "insert": insert, "vertices": keys[:1]}
                receipt = server.post(path, json=body)
                known = set(remove) & set(model)
                before = model.number_of_edges()
                model.remove_nodes_from(known)
                assert receipt["removed"] == len(known)
                assert receipt["unknown"] == len(remove) - len(known)
                assert receipt["removed_edges"] == before - model.number_of_edges()
                model.remove_edges_from(delete)
                model.add_edges_from(insert)
                model.add_nodes_from(keys[:1])
                if step % 8 == 5:
                    assert_ranked(server, path, model, 2e-8)
                if step == 12 and start == 1:
                    server.http.post(f"{path}/checkpoint").raise_for_status()
    info_vertices = model.number_of_nodes()
    with running(tmp_path) as server:
        engine_vertices = server.http.get("/graphs/turning").json()["vertices"]
    assert engine_vertices == info_vertices
