"""Weights that deletions take away over HTTP: every format, receipts, restarts, what is refused."""

# ruff: noqa: E501 - tables of cases have a case a line

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import networkx as nx
import orjson
import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.service.formats.test_decode import ARROW, NDJSON
from tests.service.http.test_replace import edges_of
from tests.service.server import Server, running

HALF_LIFE = 50.0
ADD = {"on_conflict": "add"}
FORMS = ("rows", "columns", "objects", "lines", "csv", "arrow", "parquet")

Row = tuple[str, str, str, float | None, float | None]
"""Source, target, operation, weight (null: the whole edge) and, where weights decay, time."""


def request_of(form: str, rows: list[Row], decays: bool) -> dict[str, Any]:
    names = ("source", "target", "operation", "weight", *["time"] * decays)
    if form in ("rows", "columns", "objects"):
        document: dict[str, Any] = {}
        for operation in ("insert", "delete"):
            kept = [[*row[:2], *row[3 : 4 + decays]] for row in rows if row[2] == operation]
            labels = [name for name in names if name != "operation"]
            if form == "columns":
                columns = zip(*kept, strict=True) if kept else [[] for _ in names[1:]]
                document[operation] = dict(zip(labels, columns, strict=True))
            elif form == "objects":
                document[operation] = [dict(zip(labels, row, strict=True)) for row in kept]
            else:
                document[operation] = kept
        return {"json": document}
    documents = [dict(zip(names, row, strict=False)) for row in rows]
    if form == "lines":
        body = b"\n".join(map(orjson.dumps, documents))
        return {"content": body, "headers": {"Content-Type": NDJSON}}
    if form == "csv":
        table = [",".join("" if cell is None else str(cell) for cell in row[: len(names)])
                 for row in rows]  # fmt: skip
        body = "\n".join([",".join(names), *table]).encode()
        return {"content": body, "headers": {"Content-Type": "text/csv"}}
    types = [pa.string()] * 3 + [pa.float64()] * (1 + decays)
    columns_of = pa.Table.from_pylist(documents, pa.schema(list(zip(names, types, strict=True))))
    sink = pa.BufferOutputStream()
    if form == "parquet":
        pa.parquet.write_table(columns_of, sink)
        kind = "application/vnd.apache.parquet"
    else:
        with pa.ipc.new_stream(sink, columns_of.schema) as writer:
            writer.write_table(columns_of)
        kind = ARROW
    return {"content": sink.getvalue().to_pybytes(), "headers": {"Content-Type": kind}}


class Model:
    """Weights by edge, as they would be at time 0 where they decay."""

    def __init__(self, directed: bool, decays: bool) -> None:
        self.directed, self.decays = directed, decays
        self.weights: dict[tuple[str, str], float] = {}

    def edge(self, source: str, target: str) -> tuple[str, str]:
        return (source, target) if self.directed or source < target else (target, source)

    def amount(self, row: Row) -> float:
        if row[3] is None:
            return float("inf") if row[2] == "delete" else 1.0
        return row[3] * 2 ** ((row[4] or 0.0) / HALF_LIFE * self.decays)

    def apply(self, rows: list[Row]) -> dict[str, int]:
        """What a receipt counts of deletions."""
        before = dict(self.weights)
        deletions = [(self.edge(*row[:2]), self.amount(row)) for row in rows if row[2] == "delete"]
        found = [(edge, amount) for edge, amount in deletions if edge in before]
        for edge, amount in found:
            self.weights[edge] -= amount
        least = 1e-6 if self.decays else 0.0
        gone = {edge for edge, _ in found if self.weights[edge] <= least * before[edge]}
        for edge in gone:
            del self.weights[edge]
        whole = [edge for edge, amount in found if amount == float("inf")]
        repeats = len(whole) - len(set(whole))
        for row in rows:
            if row[2] == "insert":
                edge = self.edge(*row[:2])
                self.weights[edge] = self.weights.get(edge, 0.0) + self.amount(row)
        return {
            "deleted": len(gone),
            "not_found": len(deletions) - len(found) + repeats,
            "lowered": len(found) - len(gone) - repeats,
        }


def rows_of(generator: random.Random, model: Model, step: int) -> list[Row]:
    """Insertions of edges, some of which exist, and deletions, most of edges that exist."""
    names = [f"v{n}" for n in range(7)]
    time = float(step) if model.decays else None
    rows: list[Row] = []
    for _ in range(generator.randint(0, 4)):
        source, target = generator.choices(names, k=2)
        rows.append((source, target, "insert", float(generator.randint(1, 5)), time))
    for _ in range(generator.randint(1, 4)):
        source, target = generator.choices(names, k=2)
        if model.weights and generator.random() < 0.8:
            source, target = generator.choice(sorted(model.weights))
        if generator.random() < 0.2:
            rows.append((source, target, "delete", None, None))
        else:
            rows.append((source, target, "delete", float(generator.randint(1, 5)), time))
    generator.shuffle(rows)
    return rows


def check(http: Any, path: str, model: Model) -> None:
    """The same edges and weights; then the ranks of them."""
    found = {model.edge(*pair): weight for pair, weight in edges_of(http, path).items()}
    assert found.keys() == model.weights.keys()
    if not model.decays:
        assert found == model.weights
    answer = http.http.get(f"{path}/top", params={"k": 100}).json()
    graph: Any = nx.DiGraph() if model.directed else nx.Graph()
    graph.add_nodes_from(each["vertex"] for each in answer["ranks"])
    graph.add_weighted_edges_from((*pair, weight) for pair, weight in model.weights.items())
    exact = nx.pagerank(graph, tol=1e-15, max_iter=1000)
    error = sum(abs(each["rank"] - exact[each["vertex"]]) for each in answer["ranks"])
    assert error <= answer["error_bound"] + (1e-5 if model.decays else 1e-12)


@pytest.mark.parametrize("decays", [False, True])
@pytest.mark.parametrize("directed", [True, False])
def test_a_stream_of_weights_given_and_taken_is_that_of_a_dictionary_after_restarts(
    tmp_path: Path, directed: bool, decays: bool
) -> None:
    generator, model, step = random.Random(5), Model(directed, decays), 0
    options: dict[str, Any] = {"weighted": True, "directed": directed, "target_error": 1e-9}
    if decays:
        options |= {"half_life": HALF_LIFE}
    for start in range(2):
        with running(tmp_path) as server:
            path = "/graphs/counts"
            if start == 0:
                server.http.put(path, json=options).raise_for_status()
            else:
                check(server, path, model)
            for _ in range(18):
                step += 1
                rows = rows_of(generator, model, step)
                form = FORMS[step % len(FORMS)]
                receipt = server.post(path, params=ADD, **request_of(form, rows, decays))
                expected = model.apply(rows)
                assert {name: receipt[name] for name in expected} == expected, (step, form)
                sent = sum(row[2] == "insert" for row in rows)
                counted = ("inserted", "already_present", "reweighted")
                assert sum(receipt[name] for name in counted) == sent
                if step % 25 == 0:
                    server.http.post(f"{path}/checkpoint").raise_for_status()
            check(server, path, model)


def test_the_share_of_a_document_leaves_alone(server: Server) -> None:
    path = server.new_graph(weighted=True)
    first, second = [["a", "b", 2], ["b", "c", 1]], [["a", "b", 3]]
    server.post(path, params=ADD, json={"insert": first})
    server.post(path, params=ADD, json={"insert": second})
    receipt = server.post(path, params=ADD, json={"delete": first})
    assert (receipt["deleted"], receipt["lowered"], receipt["not_found"]) == (1, 1, 0)
    assert edges_of(server, path) == {("a", "b"): 3.0}
    receipt = server.post(path, params=ADD, json={"delete": second})
    assert (receipt["deleted"], receipt["lowered"]) == (1, 0)
    assert edges_of(server, path) == {}


def test_whole_numbers_below_2_24_are_exact(server: Server) -> None:
    path = server.new_graph(weighted=True)
    most = 2**24 - 1
    server.post(path, json={"insert": [["a", "b", most]]})
    server.post(path, params=ADD, json={"delete": [["a", "b", most - 1]]})
    assert edges_of(server, path) == {("a", "b"): 1.0}
    receipt = server.post(path, params=ADD, json={"delete": [["a", "b", 1]]})
    assert (receipt["deleted"], edges_of(server, path)) == (1, {})


def test_what_is_taken_at_the_same_time_leaves_a_decaying_graph(server: Server) -> None:
    path = server.new_graph(weighted=True, half_life=10.0, clock="event")
    server.post(path, params=ADD, json={"insert": [["a", "b", 2, 0.0], ["a", "b", 1, 40.0]]})
    receipt = server.post(path, params=ADD, json={"delete": [["a", "b", 1, 40.0]]})
    assert (receipt["lowered"], receipt["deleted"]) == (1, 0)
    receipt = server.post(path, params=ADD, json={"delete": [["a", "b", 2, 0.0]]})
    assert (receipt["lowered"], receipt["deleted"]) == (0, 1)


def test_an_edge_keeps_its_time_in_a_window_until_it_leaves(server: Server) -> None:
    path = server.new_graph(weighted=True, window=10.0, clock="event")
    server.post(path, params=ADD, json={"insert": [["a", "b", 3, 1.0], ["a", "c", 3, 9.0]]})
    receipt = server.post(path, params=ADD, json={"delete": [["a", "b", 1], ["a", "c", 1]]})
    assert receipt["lowered"] == 2
    # the window now ends at 8
    receipt = server.post(path, json={"insert": [["x", "y", 1, 18.0]]})
    assert edges_of(server, path) == {("a", "c"): 2.0, ("x", "y"): 1.0}
    server.post(path, params=ADD, json={"delete": [["a", "c", 2]]})
    # what has left is not looked for
    receipt = server.post(path, json={"insert": [["x", "y", 1, 40.0]]})
    assert receipt["expired"] == 0
    assert edges_of(server, path) == {("x", "y"): 1.0}


def test_by_the_wall_clock_a_weight_without_a_time_is_taken_as_it_is_now(server: Server) -> None:
    path = server.new_graph(weighted=True, half_life=1e9)
    server.post(path, params=ADD, json={"insert": [["a", "b", 2], ["a", "c", 1]]})
    receipt = server.post(path, params=ADD, json={"delete": [["a", "b", 1], ["a", "c", None]]})
    assert (receipt["lowered"], receipt["deleted"]) == (1, 1)


@pytest.mark.parametrize("form", FORMS[2:])
def test_insertions_beside_have_weights_and_times_of_their_own(server: Server, form: str) -> None:
    path = server.new_graph(weighted=True, half_life=1e12)
    first: list[Row] = [("a", "b", "insert", 3.0, 1.0), ("a", "c", "insert", 3.0, 1.0)]
    server.post(path, params=ADD, **request_of(form, first, decays=True))
    rows: list[Row] = [("a", "d", "insert", None, None), ("a", "b", "delete", 2.0, 1.0)]
    receipt = server.post(path, params=ADD, **request_of(form, rows, decays=True))
    assert (receipt["inserted"], receipt["lowered"]) == (1, 1)
    weights = edges_of(server, path)
    assert weights["a", "b"] / weights["a", "c"] == pytest.approx(1 / 3)
    assert weights["a", "d"] / weights["a", "c"] == pytest.approx(1 / 3, rel=2e-3)


def test_operations_are_counted_where_all_are(server: Server) -> None:
    path = server.new_graph(weighted=True)
    server.post(path, json={"insert": [["a", "b", 3]]})
    server.post(path, json={"insert": [["a", "b", 2]]})
    server.post(path, params=ADD, json={"delete": [["a", "b", 1]]})
    name, metrics = path.rpartition("/")[2], server.http.get("/metrics").text
    for change in ("inserted", "reweighted", "lowered"):
        assert f'liverank_edges_total{{change="{change}",graph="{name}"}} 1.0' in metrics


def csv(rows: str) -> dict[str, Any]:
    return {"content": "source,target,operation,weight,time\n" + rows,
            "headers": {"Content-Type": "text/csv"}}  # fmt: skip


WEIGHTED = {"weighted": True}
DECAYING = {"half_life": 10.0, "clock": "event"}
WINDOW = {"weighted": True, "window": 10.0, "clock": "event"}


@pytest.mark.parametrize(
    ("options", "params", "request_", "field", "index", "said"),
    [
        (WEIGHTED, {}, {"json": {"delete": [["a", "b", 1]]}}, "delete", 0, "only with on_conflict=add"),
        ({}, {}, {"json": {"delete": [["a", "b", 1]]}}, "delete", 0, "expected a pair"),
        ({}, ADD, {"json": {"delete": [["a", "b", 1]]}}, "on_conflict", None, "unweighted"),
        (WEIGHTED, ADD, {"json": {"delete": [["a", "b", None], ["a", "b", -1]]}}, "delete", 1, "weight: expected a finite number above 0"),
        (WEIGHTED, ADD, {"json": {"delete": [["a", "b", 1, 5]]}}, "delete", 0, "a deletion has a time"),
        (WEIGHTED, ADD, {"json": {"delete": [["a", "b", 1], ["a", "b"]]}}, "delete", 1, "expected [source, target, weight]"),
        (WEIGHTED, ADD, {"json": {"delete": [["a", "b", 1]], "replace": {"c": [["d", 1]]}}}, "replace", None, "expected nothing where a deletion has a weight"),
        (DECAYING, ADD, {"json": {"delete": [["a", "b", 1]]}}, "time", None, "give every deletion with a weight a time"),
        (DECAYING, ADD, {"json": {"delete": [["a", "b", None, 5]]}}, "delete", 0, "time: expected null"),
        (DECAYING, ADD, {"json": {"delete": [["a", "b", 1, 5], ["a", "b", 1, None]]}}, "delete", 1, "time: expected a finite number"),
        (DECAYING, ADD, csv("a,b,insert,1,5\na,b,delete,1,5\na,b,delete,1,\n"), "time", 2, "got null; give every deletion with a weight a time"),
        (DECAYING, ADD, csv("a,b,insert,1,5\na,b,delete,,5\n"), "time", 1, "expected null, because only insertions and deletions with a weight"),
        (DECAYING, {}, csv("a,b,insert,1,5\na,b,delete,1,\n"), "weight", 1, "unless on_conflict is add"),
        (DECAYING, ADD, csv("a,b,insert,1,5\na,,remove,1,\n"), "weight", 1, "only insertions and deletions have one"),
        (DECAYING, ADD, csv("a,b,insert,1,5\na,b,delete,0,5\n"), "weight", 1, "expected a finite number above 0"),
        (WINDOW, ADD, csv("a,b,insert,1,5\na,b,delete,1,5\n"), "time", 1, "only insertions have one"),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_is_named(
    server: Server, options: Any, params: Any, request_: Any, field: str, index: Any, said: str
) -> None:
    path = server.new_graph(**options)
    answer = server.http.post(f"{path}/batches", params=params, **request_)
    problem = answer.json()
    assert (answer.status_code, problem.get("field"), problem.get("index")) == (422, field, index)
    assert said in problem["detail"]
    assert edges_of(server, path) == {}
