"""Weighted graphs over HTTP: options, receipts, ranks, and what is refused."""

from __future__ import annotations

import random
from typing import Any

import networkx as nx
import pytest

from liverank_service.http.schemas import GraphInfo
from tests.service.server import Server

Edge = tuple[str, str, float]


def edges(seed: int, count: int = 300, vertices: int = 60) -> list[Edge]:
    """Distinct edges with weights over six orders of magnitude."""
    generator = random.Random(seed)
    pairs = {
        (f"v{generator.randrange(vertices)}", f"v{generator.randrange(vertices)}"): 0.0
        for _ in range(count)
    }
    return [(*pair, 10.0 ** generator.uniform(-3, 3)) for pair in pairs]


def expected_ranks(present: list[Edge], **options: Any) -> dict[str, float]:
    graph = nx.DiGraph()
    graph.add_weighted_edges_from(present)
    ranks: dict[str, float] = nx.pagerank(
        graph, weight="weight", tol=1e-12, max_iter=1000, **options
    )
    return ranks


def by_vertex(answer: dict[str, Any]) -> dict[str, float]:
    return {place["vertex"]: place["rank"] for place in answer["ranks"]}


def l1_error(found: dict[str, float], exact: dict[str, float]) -> float:
    """A vertex that is missing has rank 0."""
    vertices = found.keys() | exact.keys()
    return sum(abs(found.get(key, 0.0) - exact.get(key, 0.0)) for key in vertices)


def assert_ranked(server: Server, path: str, present: list[Edge]) -> None:
    found, expected = server.ranks(path), expected_ranks(present)
    assert found.keys() == expected.keys()
    # networkx has the weights in float64
    assert l1_error(found, expected) < 1e-6


def counts(receipt: dict[str, Any]) -> tuple[int, ...]:
    names = ("inserted", "already_present", "reweighted", "deleted", "not_found")
    return tuple(receipt[name] for name in names)


@pytest.fixture(scope="module")
def weighted(server: Server) -> str:
    """A graph for tests that only send batches which are refused."""
    return server.new_graph(weighted=True)


def test_a_graph_says_that_it_is_weighted(server: Server) -> None:
    path = server.new_graph(weighted=True)
    info = server.http.get(path)
    GraphInfo.model_validate_json(info.content)
    assert info.json()["options"]["weighted"] is True
    assert server.http.put(path, json={"weighted": True}).status_code == 200
    assert server.http.put(path, json={}).status_code == 200
    answer = server.http.put(path, json={"weighted": False})
    assert (answer.status_code, answer.json()["field"]) == (409, "weighted")
    assert server.http.get(server.new_graph()).json()["options"]["weighted"] is False
    for wrong in (1, "true", None):
        answer = server.http.put("/graphs/wrong", json={"weighted": wrong})
        assert (answer.status_code, answer.json()["field"]) == (422, "weighted")


def test_a_repeat_replaces_the_weight_or_adds_to_it(server: Server) -> None:
    path = server.new_graph(weighted=True, target_error=1e-9)
    start = [["a", "b", 1], ["b", "a", 1], ["a", "c", 1], ["c", "a", 2]]
    server.post(path, json={"insert": start})
    receipt = server.post(path, json={"insert": [["a", "b", 4], ["a", "c", 1], ["c", "b", 2]]})
    assert counts(receipt) == (1, 1, 1, 0, 0)
    present: list[Edge] = [("a", "b", 4), ("b", "a", 1), ("a", "c", 1), ("c", "a", 2)]
    assert_ranked(server, path, [*present, ("c", "b", 2)])

    # of repeats in a batch the last weight counts
    receipt = server.post(path, json={"insert": [["c", "b", 9], ["a", "b", 7], ["c", "b", 5]]})
    assert counts(receipt) == (0, 1, 2, 0, 0)
    present[0] = ("a", "b", 7)
    assert_ranked(server, path, [*present, ("c", "b", 5)])

    added = {"params": {"on_conflict": "add"}}
    receipt = server.post(
        path, json={"insert": [["c", "b", 1], ["c", "b", 2], ["d", "b", 0.5]]}, **added
    )
    assert counts(receipt) == (1, 1, 1, 0, 0)
    assert_ranked(server, path, [*present, ("c", "b", 8), ("d", "b", 0.5)])
    # an edge that is deleted and inserted by one batch has the new weight alone
    receipt = server.post(path, json={"delete": [["c", "b"]], "insert": [["c", "b", 3]]}, **added)
    assert counts(receipt) == (1, 0, 0, 1, 0)
    assert_ranked(server, path, [*present, ("c", "b", 3), ("d", "b", 0.5)])


def test_personalized_and_watched_queries_follow_the_weights(server: Server) -> None:
    path = server.new_graph(weighted=True, target_error=1e-8)
    present = edges(5)
    server.post(path, json={"insert": present})
    seeds = {"v1": 2.0, "v7": 1.0}
    expected = expected_ranks(present, personalization=seeds)
    watched = server.http.put(f"{path}/watched/mine", json={"seeds": seeds, "k": 100}).json()
    query = {"seeds": seeds, "k": 100}
    answers = server.http.post(f"{path}/personalized", json={"queries": [query]}).json()["answers"]
    for answer in (watched, answers[0]):
        assert l1_error(by_vertex(answer), expected) < 1e-6
    first = present[0]
    server.post(path, json={"insert": [[*first[:2], 1e4]]})
    expected = expected_ranks([*present[1:], (*first[:2], 1e4)], personalization=seeds)
    after = server.http.get(f"{path}/watched/mine").json()
    assert l1_error(by_vertex(after), expected) < 1e-6


def test_what_a_repeat_does_is_checked(server: Server, weighted: str) -> None:
    answer = server.http.post(
        f"{weighted}/batches", params={"on_conflict": "multiply"}, json={"insert": []}
    )
    assert (answer.status_code, answer.json()["field"]) == (422, "on_conflict")


def test_a_sum_that_overflows_rejects_the_batch_and_nothing_else(server: Server) -> None:
    path = server.new_graph(weighted=True)
    server.post(path, json={"insert": [["a", "b", 3e38], ["b", "a", 1]]})
    before = server.ranks(path)
    insert = [["new", "a", 1], ["a", "b", 2e38]]
    answer = server.http.post(
        f"{path}/batches", params={"on_conflict": "add"}, json={"insert": insert}
    )
    problem = answer.json()
    assert (answer.status_code, problem["field"], problem["index"]) == (422, "insert", 1)
    assert problem["value"] == pytest.approx(2e38)
    assert problem["version"] == 2
    assert server.ranks(path) == before
    assert server.http.get(f"{path}/ranks/new").status_code == 404
    assert server.http.get(f"{path}/batches/2").json()["status"] == "rejected"


def test_a_repeated_request_gets_the_first_receipt(server: Server) -> None:
    path = server.new_graph(weighted=True)
    request: dict[str, Any] = {
        "json": {"insert": [["a", "b", 2]]},
        "params": {"on_conflict": "add"},
        "headers": {"Idempotency-Key": "k"},
    }
    first = server.http.post(f"{path}/batches", **request)
    assert server.http.post(f"{path}/batches", **request).content == first.content
    assert server.post(path, json={"insert": [["a", "b", 2]]})["already_present"] == 1
    # the same body would replace the weight, instead of adding to it
    other = server.http.post(f"{path}/batches", **{**request, "params": {}})
    assert other.status_code == 422
    assert other.json()["type"] == "urn:liverank:problem:idempotency-conflict"


@pytest.mark.parametrize("weighted", [False, True])
def test_an_undirected_graph_is_that_of_networkx(server: Server, weighted: bool) -> None:
    path = server.new_graph(directed=False, weighted=weighted, target_error=1e-9)
    assert server.http.get(path).json()["options"]["directed"] is False
    rows = [("a", "b", 2.0), ("c", "b", 0.5), ("c", "c", 4.0), ("d", "a", 1.0)]
    size = 3 if weighted else 2
    receipt = server.post(path, json={"insert": [row[:size] for row in rows]})
    assert counts(receipt) == (4, 0, 0, 0, 0)
    graph = nx.Graph()
    graph.add_weighted_edges_from(rows)
    weight = "weight" if weighted else None

    def check() -> None:
        assert server.http.get(path).json()["edges"] == graph.number_of_edges()
        exact = nx.pagerank(graph, weight=weight, tol=1e-12, max_iter=1000)
        assert l1_error(server.ranks(path), exact) < 1e-7

    check()
    # the other way round it is the same edge
    again = [("b", "a", 3.0), ("b", "c", 0.5), ("e", "d", 1.0), ("d", "e", 5.0)]
    receipt = server.post(path, json={"insert": [row[:size] for row in again]})
    assert counts(receipt) == ((1, 2, 1, 0, 0) if weighted else (1, 3, 0, 0, 0))
    graph.add_weighted_edges_from(again)
    check()
    receipt = server.post(path, json={"delete": [["b", "a"], ["a", "d"], ["x", "y"]]})
    assert counts(receipt) == (0, 0, 0, 2, 1)
    graph.remove_edges_from([("a", "b"), ("a", "d")])
    check()
