"""New out-lists of vertices over HTTP: every format, receipts, restarts, and what is refused."""

# ruff: noqa: E501 - tables of cases have a case a line

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import networkx as nx
import orjson
import pyarrow as pa
import pytest

from tests.service.formats.test_decode import ARROW, NDJSON, arrow_stream
from tests.service.server import Server, running

HALF_LIFE = 50.0


def edges_of(server: Server, path: str) -> dict[tuple[str, str], float]:
    answer = server.http.get(f"{path}/edges", headers={"Accept": "application/x-ndjson"})
    rows = [orjson.loads(line) for line in answer.content.splitlines()]
    return {(row["source"], row["target"]): row.get("weight", 1.0) for row in rows}


def rows_of(lists: dict[str, list[list[Any]]], names: tuple[str, ...]) -> list[dict[str, Any]]:
    """The rows of a table; an empty list by a null target."""
    rows = []
    for vertex, targets in lists.items():
        for target in targets or [[None, *[None] * len(names)]]:
            row = dict(zip(("target", *names), target, strict=True))
            rows.append({"source": vertex, "operation": "replace", **row})
    return rows


def request_of(form: str, lists: dict[str, list[list[Any]]], names: tuple[str, ...]) -> Any:
    if form == "json":
        return {"json": {"replace": {v: [t if names else t[0] for t in ts] for v, ts in
                                     lists.items()}}}  # fmt: skip
    rows = rows_of(lists, names)
    if form == "lines":
        lines = []
        for vertex, targets in lists.items():
            columns = zip(*targets, strict=True) if targets else [[] for _ in range(1 + len(names))]
            named = zip(("targets", *(f"{name}s" for name in names)), columns, strict=True)
            lines.append(orjson.dumps({"replace": vertex, **{k: list(v) for k, v in named}}))
        return {"content": b"\n".join(lines), "headers": {"Content-Type": NDJSON}}
    if form == "csv":
        header = ("source", "target", "operation", *names)
        table = [",".join("" if row[name] is None else str(row[name]) for name in header)
                 for row in rows]  # fmt: skip
        return {"content": "\n".join([",".join(header), *table]),
                "headers": {"Content-Type": "text/csv"}}  # fmt: skip
    types = {"source": pa.string(), "target": pa.string(), "operation": pa.string()}
    schema = pa.schema(list((types | dict.fromkeys(names, pa.float64())).items()))
    table = pa.Table.from_pylist(rows, schema)
    body = arrow_stream(**{name: table[name] for name in schema.names})
    return {"content": body, "headers": {"Content-Type": ARROW}}


@pytest.mark.parametrize("decays", [False, True])
@pytest.mark.parametrize("directed", [True, False])
def test_a_stream_of_lists_is_that_of_a_dictionary_after_restarts(
    tmp_path: Path, directed: bool, decays: bool
) -> None:
    generator, model = random.Random(11), {}  # type: ignore[var-annotated]
    options: dict[str, Any] = {"weighted": True, "directed": directed, "target_error": 1e-9}
    if decays:
        options["half_life"] = HALF_LIFE
    names = ("weight", "time") if decays else ("weight",)

    def edge(source: str, target: str) -> tuple[str, str]:
        return (source, target) if directed or source < target else (target, source)

    step = 0
    for start in range(2):
        with running(tmp_path) as server:
            path = "/graphs/lists"
            if start == 0:
                server.http.put(path, json=options).raise_for_status()
            for _ in range(16):
                step += 1
                vertices = generator.sample([f"v{n}" for n in range(9)], 2)
                lists: dict[str, list[list[Any]]] = {
                    vertex: [
                        [target, float(generator.randint(1, 4)), *([float(step)] * decays)]
                        for target in generator.sample([f"v{n}" for n in range(9)],
                                                       generator.randint(0, 5))
                    ]
                    for vertex in vertices
                }  # fmt: skip
                old = {
                    pair for pair in model
                    if any(v in (pair[:1] if directed else pair) for v in vertices)
                }  # fmt: skip
                new = {
                    edge(vertex, row[0]): row[1] * 2 ** (step / HALF_LIFE * decays)
                    for vertex, rows in lists.items()
                    for row in rows
                }
                form = ("json", "lines", "csv", "arrow")[step % 4]
                receipt = server.post(path, **request_of(form, lists, names))
                sent = sum(map(len, lists.values()))
                assert receipt["inserted"] == len(new.keys() - old), form
                assert receipt["deleted"] == len(old - new.keys())
                kept = receipt["already_present"] + receipt["reweighted"]
                assert kept == sent - receipt["inserted"]
                assert receipt["not_found"] == 0
                model = {pair: w for pair, w in model.items() if pair not in old} | new
                if step == 8:
                    server.http.post(f"{path}/checkpoint").raise_for_status()
            found = edges_of(server, path)
            if not directed:
                found = {edge(*pair): weight for pair, weight in found.items()}
            assert found.keys() == model.keys()
            if not decays:
                assert found == model
            graph: Any = nx.DiGraph() if directed else nx.Graph()
            answer = server.http.get(f"{path}/top", params={"k": 100}).json()
            graph.add_nodes_from(each["vertex"] for each in answer["ranks"])
            graph.add_weighted_edges_from((*pair, weight) for pair, weight in model.items())
            exact = nx.pagerank(graph, tol=1e-15, max_iter=1000)
            error = sum(abs(each["rank"] - exact[each["vertex"]]) for each in answer["ranks"])
            assert error <= answer["error_bound"] + (1e-5 if decays else 1e-12)
    with running(tmp_path) as server:
        again = edges_of(server, path)
        assert {edge(*pair) for pair in again} == model.keys()


def test_a_list_in_a_window_has_its_new_times(server: Server) -> None:
    path = server.new_graph(window=10.0, clock="event")
    server.post(path, json={"insert": [["a", "b", None, 1.0], ["a", "c", None, 2.0]]})
    receipt = server.post(path, json={"replace": {"a": [["b", None, 9.0], ["d", None, 5.0]]}})
    assert (receipt["inserted"], receipt["already_present"], receipt["deleted"]) == (1, 1, 1)
    # the window now ends at 8: b was at 1, and is at 9
    server.post(path, json={"insert": [["x", "y", None, 18.0]]})
    assert edges_of(server, path).keys() == {("a", "b"), ("x", "y")}


def test_where_weights_add_up_the_old_weight_does_not_count(server: Server) -> None:
    path = server.new_graph(weighted=True)
    server.post(path, json={"insert": [["a", "b", 5], ["a", "c", 1]]})
    lists = {"a": [["b", 2], ["b", 1]]}
    receipt = server.post(path, params={"on_conflict": "add"}, json={"replace": lists})
    assert edges_of(server, path) == {("a", "b"): 3.0}
    assert (receipt["inserted"], receipt["reweighted"], receipt["deleted"]) == (0, 1, 1)


def test_an_unknown_vertex_without_targets_is_not_made(server: Server) -> None:
    path = server.new_graph()
    receipt = server.post(path, json={"replace": {"a": [], "b": ["c"]}})
    assert (receipt["inserted"], receipt["new_vertices"]) == (1, 2)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"replace": {"a": ["b"]}, "insert": [["a", "c"]]}, "insert"),
        ({"replace": {"a": ["b"]}, "delete": [["x", "y"], ["a", "c"]]}, "delete"),
        ({"replace": {"a": ["b", 3]}}, "replace.a"),
        ({"replace": {"a": "b"}}, "replace.a"),
        ({"replace": {"a": [["b", 1.0]]}}, "replace.a"),
        ({"replace": ["a"]}, "replace"),
    ],
)
def test_what_a_list_cannot_be_is_named(server: Server, body: Any, field: str) -> None:
    answer = server.http.post(f"{server.new_graph()}/batches", json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, field)


LINES = b"""{"source": "x", "target": "y", "weight": 1}
{"replace": "b", "targets": []}
%b
{"source": "c", "target": "d", "weight": 1}
"""


@pytest.mark.parametrize(
    ("line", "field", "index", "said"),
    [
        (b'{"replace": "a", "targets": ["b", ""], "weights": [1, 1]}', "targets", 2, "item 1: expected a non-empty string"),
        (b'{"replace": "a", "targets": ["b", ["c", 1]]}', "targets", 2, "item 1: expected a key, got an array"),
        (b'{"replace": "a", "targets": ["b", "c"], "weights": [1, -2]}', "weights", 2, "item 1: expected a finite number above 0"),
        (b'{"replace": "a", "targets": ["b"], "weights": [1, 2]}', "weights", 2, "expected as many items as in targets, got 2"),
        (b'{"replace": "a", "targets": "b"}', "targets", 2, "expected an array, got the string"),
        (b'{"replace": "c", "targets": ["b"], "weights": [1]}', "source", 3, 'got the string "c"'),
        (b'{"source": "b", "target": "d", "operation": "delete"}', "source", 2, 'got the string "b"'),
        (b'{"source": "b", "target": "d", "operation": "replace", "weight": 1}', "source", 2, 'got the string "b"'),
        (b'{"replace": "a", "targets": ["b"], "weights": [1]}\n{"replace": "e", "targets": ["b"]}', "weights", 3, "expected an array, as in the first list, got nothing"),
        (b'{"replace": "a", "targets": ["b"]}\n{"replace": "e", "targets": ["b"], "weights": [1]}', "weights", 3, "expected nothing, as in the first list, got an array"),
    ],
)  # fmt: skip
def test_the_line_of_what_a_list_cannot_be_is_named(
    server: Server, line: bytes, field: str, index: int, said: str
) -> None:
    path = server.new_graph(weighted=True)
    headers = {"Content-Type": NDJSON}
    answer = server.http.post(f"{path}/batches", content=LINES % line, headers=headers)
    problem = answer.json()
    assert (answer.status_code, problem.get("field"), problem.get("index")) == (422, field, index)
    assert said in problem["detail"]


def test_times_are_given_to_all_or_to_none_of_lists_and_edges(server: Server) -> None:
    path = server.new_graph(weighted=True, window=1e9)
    lines = b"""{"source": "x", "target": "y"}
{"replace": "b", "targets": []}
{"replace": "a", "targets": ["b"], "times": [1]}"""
    headers = {"Content-Type": NDJSON}
    problem = server.http.post(f"{path}/batches", content=lines, headers=headers).json()
    assert (problem["field"], problem["index"]) == ("times", 2)


@pytest.mark.parametrize("form", ["json", "csv"])
def test_a_list_whose_weights_or_keys_are_too_large_is_named(server: Server, form: str) -> None:
    path = server.new_graph(weighted=True)
    long = "k" * 5000
    lists = [("a", "b", 3e38), ("a", "c", 1.0), ("c", "d", 3e38), ("c", "d", 3e38)]
    for rows, field, index in (
        (lists, "replace.c", 1),
        ([("x", long, 1.0)], "insert", 1),
        ([("c", "d", 1.0), ("c", long, 1.0)], "replace.c", 1),
        ([(long, "d", 1.0)], "replace", 0),
    ):
        rows = [("x", "y", 1.0), *rows]
        if form == "json":
            body: dict[str, Any] = {"insert": [row for row in rows if row[0] == "x"], "replace": {}}
            for source, *target in rows:
                if source != "x":
                    body["replace"].setdefault(source, []).append(target)
            request: dict[str, Any] = {"json": body}
        else:
            table = [
                f"{source},{target},{'insert' if source == 'x' else 'replace'},{weight}"
                for source, target, weight in rows
            ]
            content = "\n".join(["source,target,operation,weight", *table])
            request = {"content": content, "headers": {"Content-Type": "text/csv"}}
        answer = server.http.post(f"{path}/batches", params={"on_conflict": "add"}, **request)
        problem = answer.json()
        assert (answer.status_code, problem["field"], problem["index"]) == (422, field, index)
    assert edges_of(server, path) == {}


def test_the_same_vertex_twice_is_refused(server: Server) -> None:
    path = server.new_graph()
    twice = b'{"replace": {"a": ["b"], "a": ["c"]}}'
    lines = b'{"replace": "a", "targets": ["b"]}\n{"replace": "a", "targets": []}'
    for content, kind in ((twice, "application/json"), (lines, NDJSON)):
        headers = {"Content-Type": kind}
        answer = server.http.post(f"{path}/batches", content=content, headers=headers)
        assert answer.status_code == 422, answer.text
