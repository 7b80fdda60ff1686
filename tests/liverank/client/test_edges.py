"""Edges of every kind that the client sends: weights and directions."""

# ruff: noqa: E501 - tables of cases have a case a line

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import httpx
import igraph
import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

from liverank import (
    Batch,
    Client,
    InvalidInput,
    PersonalizedQuery,
    ServerError,
    SetChange,
    pagerank,
)
from tests.liverank.client.recorder import RECEIPT, Recorder, answer, client_of
from tests.service.server import Server


def body_of(request: httpx.Request) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(request.content)
    return document


def test_triples_are_sent_with_what_they_do_to_present_edges() -> None:
    server = Recorder(answer(RECEIPT), answer(RECEIPT))
    with client_of(server) as client:
        client.send("g", insert=[("a", "b", 0.5)], delete=[("c", "d")], on_conflict="add")
        client.insert("g", [("a", "b", 2)])
    first, second = server.requests
    assert body_of(first)["insert"] == [["a", "b", 0.5]]
    assert body_of(first)["delete"] == [["c", "d"]]
    assert first.url.params["on_conflict"] == "add"
    assert body_of(second)["insert"] == [["a", "b", 2]]
    assert "on_conflict" not in second.url.params


def test_deletions_have_weights_only_where_they_add_up() -> None:
    message = "delete: expected pairs: a deletion has a weight only with on_conflict='add'"
    with client_of(Recorder()) as client:
        with pytest.raises(InvalidInput, match=message):
            client.delete("g", [("a", "b", 0.5)])
        with pytest.raises(InvalidInput, match=message):
            client.send("g", delete=[("a", "b", 0.5)])


def test_what_is_taken_is_sent_as_rows_and_as_columns() -> None:
    server = Recorder(*(answer(RECEIPT) for _ in range(4)))
    frame = pa.table({"source": ["a"], "target": ["b"], "n": [2], "at": [7.0]})
    plain = pa.table({"source": ["c"], "target": ["d"]})
    with client_of(server) as client:
        client.send("g", [("x", "y", 1)], [("a", "b", 0.5)], on_conflict="add")
        client.delete("g", frame, weight="n", time="at", on_conflict="add")
        client.send("g", plain, [("a", "b", 0.5)], on_conflict="add")
        client.send("g", plain, frame, on_conflict="add")
    first, second, third, fourth = server.requests
    assert body_of(first)["insert"] == [["x", "y", 1]]
    assert body_of(first)["delete"] == [["a", "b", 0.5]]
    assert second.url.params["on_conflict"] == "add"
    with pa.ipc.open_stream(second.content) as reader:
        row = {"source": "a", "target": "b", "weight": 2, "time": 7.0, "operation": "delete"}
        assert reader.read_all().to_pylist() == [row]
    # a table would have weights for its insertions too
    assert body_of(third)["delete"] == [["a", "b", 0.5]]
    with pa.ipc.open_stream(fourth.content) as reader:
        assert "weight" not in reader.read_all().column_names


@pytest.mark.parametrize("kind", ["triples", "polars", "networkx"])
def test_what_is_taken_is_told_by_the_receipt(server: Server, kind: str) -> None:
    rows = [("a", "b", 2.0), ("b", "c", 1.0)]
    graph = nx.DiGraph()
    graph.add_weighted_edges_from(rows, weight="n")
    columns = zip(*rows, strict=True)
    frame = pl.DataFrame(dict(zip(("source", "target", "n"), map(list, columns), strict=True)))
    given = {"triples": rows, "polars": frame, "networkx": graph}[kind]
    weight = None if kind == "triples" else "n"
    name = f"counted-{kind}"
    with Client(str(server.http.base_url)) as client:
        client.create(name, weighted=True)
        client.insert(name, [("a", "b", 5), ("b", "c", 1)], on_conflict="add")
        receipt = client.delete(name, given, weight=weight, on_conflict="add")
        assert (receipt.lowered, receipt.deleted, receipt.not_found) == (1, 1, 0)
        receipt = client.send(name, [("a", "b", 4)], [("a", "b", 3)], on_conflict="add")
        assert (receipt.lowered, receipt.deleted, receipt.reweighted) == (0, 1, 0)


@pytest.mark.parametrize(
    ("edges", "names", "message"),
    [
        ([("a", "b", 1.0), ("b", "c", math.nan)], {}, "weight: edge 1: expected a finite number, got nan"),
        ([("a", "b", np.float32("inf"))], {}, "weight: edge 0: .*inf"),
        ([("a", "b", [1])], {}, r"weight: edge 0: expected a finite number, got \[1\]"),
        ([("a", "b", None, -math.inf)], {}, "time: edge 0: expected a finite number, got -inf"),
        (pa.table({"source": ["a"], "target": ["b"], "w": [math.nan]}), {"weight": "w"}, "w: edge 0: .* got nan"),
        (pa.table({"source": [1], "target": [2], "when": [math.inf]}), {"time": "when"}, "when: edge 0: .* got inf"),
        (nx.DiGraph([("a", "b", {"w": math.nan})]), {"weight": "w"}, "w: edge 0: .* got nan"),
        (igraph.Graph([(0, 1)], edge_attrs={"w": [math.inf]}), {"weight": "w", "directed": False}, "w: edge 0: .* got inf"),
        (scipy.sparse.coo_array(([math.nan], ([0], [1])), (2, 2)), {"weight": "data"}, "data: edge 0: .* got nan"),
    ],
)  # fmt: skip
def test_weights_and_times_are_finite(edges: Any, names: dict[str, Any], message: str) -> None:
    with client_of(Recorder()) as client, pytest.raises(InvalidInput, match=message):
        client.insert("g", edges, **names)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (np.array([[1, 2], [2**63, 1]], "uint64"), r"edges: edge 1: expected integers below 2\*\*63, got \[9223372036854775808, 1\]"),
        (pd.DataFrame({"source": [2**70], "target": [1]}), "edges: the frame cannot be read: .*too large"),
        (pd.DataFrame({"source": [1j], "target": [1]}), "edges: the frame cannot be read: .*complex"),
        ([("a", "b"), ("c", b"d")], "insert: expected keys of text or integers, got b'd'"),
        ([(b"a", "b")], "insert: expected keys of text or integers, got b'a'"),
    ],
)  # fmt: skip
def test_keys_that_would_become_others_are_refused(edges: Any, message: str) -> None:
    with client_of(Recorder()) as client, pytest.raises(InvalidInput, match=message):
        client.insert("g", edges)


@pytest.mark.parametrize("key", [b"a", np.bytes_(b"a"), bytearray(b"a"), memoryview(b"a")])
def test_bytes_are_no_keys(key: Any) -> None:
    calls: list[tuple[str, Callable[[Client], object]]] = [
        ("insert", lambda client: client.insert("g", [("b", key)])),
        ("delete", lambda client: client.delete("g", [(key, "b")])),
        ("vertices", lambda client: client.send("g", vertices=["b", key])),
        ("vertices", lambda client: client.send_all("g", [Batch(vertices=[key])])),
        ("vertices", lambda client: client.ranks("g", [*np.arange(2), key])),
        ("vertices", lambda client: client.ranks("g", key)),
        ("vertices", lambda client: client.subgraph("g", (key,))),
        ("vertices", lambda client: client.put_set("g", "s", [1, key])),
        ("remove", lambda client: client.remove("g", [key])),
        ("replace", lambda client: client.replace("g", {"b": ["c", key]})),
        ("replace", lambda client: client.replace("g", {"b": [("c", 1.0), (key, 1.0)]})),
        ("replace", lambda client: client.replace("g", {"b": key})),
        ("sets", lambda client: client.send("g", sets={"s": SetChange(add=["b", key])})),
        ("sets", lambda client: client.send("g", sets={"s": SetChange(remove=[key])})),
        ("parameters", lambda client: client.start_analysis("g", "levels", parameters={"source": key})),
        ("vertex", lambda client: client.rank("g", key)),
        ("vertex", lambda client: client.personalized("g", vertex=key)),
        ("vertex", lambda client: client.neighbors("g", key)),
        ("vertex", lambda client: client.explain("g", key)),
        ("vertex", lambda client: client.value("g", "identity", key)),
        ("among", lambda client: client.top("g", among=key)),
    ]  # fmt: skip
    if not isinstance(key, bytearray):  # which is no key of a mapping
        query = PersonalizedQuery({"b": 1.0, key: 1.0})
        calls += [
            ("queries", lambda client: client.personalized_many("g", [query])),
            ("seeds", lambda client: client.watch("g", "name", query)),
            ("replace", lambda client: client.replace("g", {key: ["b"]})),
            ("sets", lambda client: client.send("g", sets={key: SetChange(add=["b"])})),
            ("teleport", lambda client: client.put_view("g", "v", {"weights": {"b": 1, key: 1}})),
        ]
    for field, call in calls:
        expected = rf"^{field}: expected (keys of text or integers|several keys), got "
        with client_of(Recorder()) as client, pytest.raises(InvalidInput, match=expected):
            call(client)


@pytest.mark.parametrize("kind", ["triples", "pandas", "polars", "arrow", "networkx", "sparse"])
def test_weighted_edges_of_every_kind_reach_the_server(server: Server, kind: str) -> None:
    rows = [("1", "2", 2.0), ("2", "3", 0.5), ("3", "1", 1.0), ("1", "3", 8.0)]
    numbers = [(int(one), int(two), weight) for one, two, weight in rows]
    columns = dict(zip(("source", "target", "w"), zip(*rows, strict=True), strict=True))
    graph = nx.DiGraph()
    graph.add_weighted_edges_from(rows, weight="w")
    entries = list(zip(*numbers, strict=True))
    matrix = scipy.sparse.coo_array((entries[2], (entries[0], entries[1])), (4, 4))
    kinds: dict[str, tuple[Any, str | None]] = {
        "triples": (rows, None),
        "pandas": (pd.DataFrame(columns), "w"),
        "polars": (pl.DataFrame(columns), "w"),
        "arrow": (pa.table(columns), "w"),
        "networkx": (graph, "w"),
        "sparse": (matrix, "data"),
    }
    edges, weight = kinds[kind]
    name = f"weighted-{kind}"
    with Client(str(server.http.base_url)) as client:
        keys: Any = "integer" if kind == "sparse" else "string"
        assert client.create(name, weighted=True, keys=keys, target_error=1e-9).options.weighted
        receipt = client.insert(name, edges, weight=weight)
        assert (receipt.inserted, receipt.reweighted) == (4, 0)
        found = {str(key): rank for key, rank in client.top(name).to_dict().items() if key != 0}
        if kind != "sparse":  # which has a vertex 0
            exact = nx.pagerank(graph, weight="w", tol=1e-12)
            assert found == pytest.approx(exact, abs=1e-8)
        delete = matrix.astype(bool).astype(int) if kind == "sparse" else list(graph.edges)[:1]
        again = client.send(name, edges, delete, weight=weight, on_conflict="add")
        deleted = 4 if kind == "sparse" else 1
        assert (again.deleted, again.inserted, again.reweighted) == (deleted, deleted, 4 - deleted)
        with pytest.raises(ServerError, match="the graph is unweighted: send edges without"):
            client.insert("default", [("a", "b", 1.0)])


# Directions


@pytest.mark.parametrize("kind", ["networkx", "igraph"])
@pytest.mark.parametrize("weighted", [False, True])
def test_an_undirected_graph_is_sent_as_the_graph_on_the_server_takes_it(
    kind: str, weighted: bool
) -> None:
    graph = nx.Graph()
    graph.add_weighted_edges_from([("a", "b", 2.0), ("b", "b", 0.5)], weight="w")
    server = Recorder(*(answer(RECEIPT) for _ in range(3)))
    given = (
        graph if kind == "networkx" else igraph.Graph.TupleList(graph.edges.data("w"), weights=True)
    )
    weight = {"networkx": "w", "igraph": "weight"}[kind] if weighted else None
    with client_of(server) as client:
        for directed in (False, True):
            client.insert("g", given, weight=weight, directed=directed)
        client.delete("g", given, directed=True)
        with pytest.raises(InvalidInput, match="directed: expected True or False, as the graph on"):
            client.insert("g", given)
    once = [["a", "b", 2.0], ["b", "b", 0.5]] if weighted else [["a", "b"], ["b", "b"]]
    reverse = [["b", "a", 2.0]] if weighted else [["b", "a"]]
    assert body_of(server.requests[0])["insert"] == once
    assert body_of(server.requests[1])["insert"] == once + reverse
    assert body_of(server.requests[2])["delete"] == [["a", "b"], ["b", "b"], ["b", "a"]]


@pytest.mark.parametrize("directed", [False, True])
def test_weights_of_an_undirected_graph_are_added_once(server: Server, directed: bool) -> None:
    graph = nx.Graph()
    graph.add_weighted_edges_from([("a", "b", 2.0), ("b", "c", 1.0), ("c", "c", 4.0)])
    name = f"undirected-{directed}"
    count = 5 if directed else 3
    with Client(str(server.http.base_url)) as client:
        client.create(name, weighted=True, directed=directed, target_error=1e-9)
        options: Any = {"weight": "weight", "directed": directed, "on_conflict": "add"}
        first, second = (client.insert(name, graph, **options) for _ in range(2))
        assert (first.inserted, first.already_present, first.reweighted) == (count, 0, 0)
        assert (second.inserted, second.already_present, second.reweighted) == (0, 0, count)
        weights = client.export_edges(name).to_arrow().to_pylist()
        assert {(row["source"], row["target"]): row["weight"] for row in weights} == {
            ("a", "b"): 4.0,
            ("b", "c"): 2.0,
            ("c", "c"): 8.0,
            **({("b", "a"): 4.0, ("c", "b"): 2.0} if directed else {}),
        }
        assert client.top(name).to_dict() == pytest.approx(nx.pagerank(graph, tol=1e-12), abs=1e-8)
        again = client.send_all(name, [Batch(graph, directed=directed)])
        assert again[0].already_present + again[0].reweighted == count


def test_rows_with_times_are_sent_as_they_are() -> None:
    server = Recorder(answer(RECEIPT), answer(RECEIPT))
    with client_of(server) as client:
        client.insert("g", [("a", "b", 2.0, 5.0), ("b", "c", 1.0, 6.5)])
        client.insert("g", [("a", "b", None, 5.0)])
    assert body_of(server.requests[0])["insert"] == [["a", "b", 2.0, 5.0], ["b", "c", 1.0, 6.5]]
    assert body_of(server.requests[1])["insert"] == [["a", "b", None, 5.0]]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_column_of_timestamps_is_sent_in_seconds(unit: str) -> None:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    when = pa.array([-3 * per_second, 1_600_000_000 * per_second], pa.timestamp(unit, "UTC"))
    table = pa.table({"source": ["a", "b"], "target": ["b", "c"], "when": when})
    server = Recorder(answer(RECEIPT), answer(RECEIPT))
    with client_of(server) as client:
        client.insert("g", table, time="when")
        client.send("g", table, vertices=["more"], time="when")
    sent = pa.ipc.open_stream(server.requests[0].content).read_all()
    assert sent["time"].to_pylist() == [-3.0, 1.6e9]
    assert body_of(server.requests[1])["insert"] == [
        ["a", "b", None, -3.0],
        ["b", "c", None, 1.6e9],
    ]


def test_a_part_of_a_second_is_kept() -> None:
    when = pa.array([1_700_000_000_250_000_000, -250_000_000], pa.timestamp("ns"))
    table = pa.table({"source": ["a", "b"], "target": ["b", "c"], "when": when})
    server = Recorder(answer(RECEIPT))
    with client_of(server) as client:
        client.insert("g", table, time="when")
    sent = pa.ipc.open_stream(server.requests[0].content).read_all()
    assert sent["time"].to_pylist() == [1_700_000_000.25, -0.25]


@pytest.mark.parametrize(
    ("insert", "time", "message"),
    [
        ([("a", "b", 1.0, None)], None, "edge 0: expected a number as time"),
        ([("a", "b", None, 1.0), ("a", "b", 2.0, 1.0)], None, "edge 1: expected a number as weight"),
        ([("a", "b", 1.0, 1.0), ("a", "b")], None, r"edge 1: expected \(source, target, weight, time\)"),
        ([("a", "b")], "when", "only frames have it"),
        (pa.table({"source": ["a"], "target": ["b"]}), "when", "expected a column 'when'"),
        (pa.table({"source": ["a"], "target": ["b"], "when": ["x"]}), "when", "expected a column of numbers"),
        (pa.table({"source": ["a"], "target": ["b"], "when": pa.array([None], pa.float64())}), "when", "row 0: expected a time, got null"),
    ],
)  # fmt: skip
def test_wrong_times_are_refused(insert: Any, time: str | None, message: str) -> None:
    with client_of(Recorder()) as client, pytest.raises(InvalidInput, match=message):
        client.insert("g", insert, time=time)


def test_deletions_have_no_times_without_weights() -> None:
    with client_of(Recorder()) as client:
        with pytest.raises(InvalidInput, match="only with on_conflict='add'"):
            client.delete("g", [("a", "b", None, 1.0)])
        with pytest.raises(InvalidInput, match="a weight beside the time of a deletion"):
            client.delete("g", [("a", "b", None, 1.0)], on_conflict="add")


def test_ranking_in_process_takes_no_times() -> None:
    with pytest.raises(InvalidInput, match="expected edges without times"):
        pagerank([("a", "b", 1.0, 5.0)])
