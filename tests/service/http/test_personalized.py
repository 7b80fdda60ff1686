"""Personalized ranks over HTTP: weights, many queries, and timeouts."""

from __future__ import annotations

import json
import socket
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import ref

import httpx
import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

from liverank_gpu import PUBLISHED_METHODS, Personalized
from liverank_service.errors import NotAnsweredInTime, UnknownGraph
from liverank_service.formats.seeds import SeedColumns
from liverank_service.http.routes import personalized
from liverank_service.http.routes.personalized import answer_document
from liverank_service.http.schemas import (
    PersonalizedAnswers,
    PersonalizedRanks,
)
from liverank_service.pipeline.pipeline import Pipeline
from liverank_service.pipeline.writer import Writer
from liverank_service.queries.model import KeyedQuery, QueryRequest
from liverank_service.queries.scheduler import SLICE_SECONDS
from tests.service.graphs import engine_of, writer_of
from tests.service.http.test_problems import problem
from tests.service.server import Server, wait_for

EDGES = [
    [f"v{source}", f"v{target}"]
    for source, target in np.random.default_rng(0).integers(0, 60, (300, 2)).tolist()
]


@pytest.fixture(scope="module")
def path(server: Server) -> str:
    created = server.new_graph()
    server.http.post(f"{created}/batches", json={"insert": EDGES}).raise_for_status()
    return created


def _exact(edges: list[list[str]], seeds: dict[str, float]) -> dict[str, float]:
    graph = nx.DiGraph(edges)
    ranks: dict[str, float] = nx.pagerank(
        graph, personalization=seeds, tol=1e-12 / len(graph), max_iter=2000
    )
    return ranks


def _error(ranks: list[dict[str, Any]], exact: dict[str, float]) -> float:
    found = {place["vertex"]: place["rank"] for place in ranks}
    return float(sum(abs(found.get(vertex, 0.0) - rank) for vertex, rank in exact.items()))


def test_weighted_queries_in_one_body_are_those_of_networkx(server: Server, path: str) -> None:
    seeds: list[dict[str, float]] = [
        {"v0": 2, "v1": 1},
        {"v5": 1},
        {"v7": 0.1, "v8": 0.2, "v9": 0.7, "v3": 0},
        *({f"v{place}": 1.0} for place in range(20, 60)),
    ]
    queries: list[dict[str, Any]] = [{"seeds": one, "k": 60} for one in seeds]
    queries[1] |= {"method": "push", "target_error": 1e-9}
    queries[2] |= {"target": "settled-top-k", "k": 60}
    answer = server.http.post(f"{path}/personalized", json={"queries": queries})
    read = PersonalizedAnswers.model_validate_json(answer.content)
    assert (read.version, len(read.answers)) == (1, len(seeds))
    for one, found in zip(seeds, answer.json()["answers"], strict=True):
        assert _error(found["ranks"], _exact(EDGES, one)) <= found["error_bound"] + 1e-11
        # or all places are proven before
        assert found["error_bound"] <= 1e-6 or (one == seeds[2] and found["settled"] == 60)
    assert (read.answers[1].method, read.answers[1].error_bound <= 1e-9) == ("push", True)


def test_integer_keys_are_text_in_the_seeds_of_a_body(server: Server) -> None:
    path = server.new_graph(keys="integer")
    server.http.post(f"{path}/batches", json={"insert": [[-5, 7]]})
    body: dict[str, Any] = {"queries": [{"seeds": {"-5": 1.0}, "k": 1}]}
    (answer,) = server.http.post(f"{path}/personalized", json=body).json()["answers"]
    assert answer["ranks"][0]["vertex"] == -5
    body["queries"][0]["seeds"] = {"five": 1.0}
    wrong = problem(server.http.post(f"{path}/personalized", json=body), 422)
    assert wrong["field"] == "queries[0].seeds['five']"


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ({"seeds": {}}, 422, "queries[1].seeds"),
        ({"seeds": {"": 1}}, 422, "queries[1].seeds['']"),
        ({"seeds": {"nobody": 1}}, 404, "queries[1].seeds"),
        ({"seeds": {"v0": -1}}, 422, "queries[1].seeds['v0']"),
        ({"seeds": {"v0": float("nan")}}, 422, "queries[1].seeds['v0']"),
        ({"seeds": {"v0": 0, "v1": 0}}, 422, "queries[1].seeds"),
        ({"seeds": {"v0": 1}, "method": "walk"}, 422, "queries[1].method"),
        ({"seeds": {"v0": 1}, "target_error": 0}, 422, "queries[1].target_error"),
        ({"seeds": {"v0": 1}, "target": "best"}, 422, "queries[1].target"),
        ({"seeds": {"v0": 1}, "k": 0}, 422, "queries.k"),
        ({"seeds": {"v0": 1}, "depth": 3}, 422, "queries.depth"),
        ({"seeds": {"v0": "much"}}, 422, "queries.seeds.v0"),
    ],
)
def test_what_cannot_be_asked_is_named(
    server: Server, path: str, query: dict[str, Any], status: int, field: str
) -> None:
    body = json.dumps({"queries": [{"seeds": {"v0": 1}}, query]})
    answer = server.http.post(f"{path}/personalized", content=body)
    assert problem(answer, status)["field"] == field


def test_an_unknown_target_in_the_path_form_is_named(server: Server, path: str) -> None:
    answer = server.http.get(f"{path}/personalized/v0", params={"target": "best"})
    document = problem(answer, 422)
    assert document["detail"] == (
        "target: 'best' is not allowed; it must be one of error, settled-top-k, settled-set"
    )


def test_queries_that_wait_together_are_answered_together(server: Server, path: str) -> None:
    with ThreadPoolExecutor(16) as clients:
        answers = list(
            clients.map(
                lambda place: server.http.get(
                    f"{path}/personalized/v{place}", params={"k": 60}
                ).json(),
                range(60),
            )
        )
    for answer in answers:
        PersonalizedRanks.model_validate(answer)
        error = _error(answer["ranks"], _exact(EDGES, {answer["vertex"]: 1.0}))
        assert error <= answer["error_bound"] + 1e-11


def test_answers_are_of_one_version_during_batches(server: Server) -> None:
    path = server.new_graph()
    server.http.post(f"{path}/batches", json={"insert": EDGES}).raise_for_status()
    more = [[f"v{place % 60}", f"n{place}"] for place in range(40)]

    def batches() -> None:
        for edge in more:
            server.http.post(f"{path}/batches", json={"insert": [edge]}).raise_for_status()

    writer = threading.Thread(target=batches)
    writer.start()
    seen = set()
    query = {"seeds": {"v1": 1, "v2": 3}, "k": 200, "target_error": 1e-7}
    while writer.is_alive():
        body = {"queries": [query] * 6}
        answer = server.http.post(f"{path}/personalized", json=body).json()
        seen.add(answer["version"])
        edges = EDGES + more[: answer["version"] - 1]
        exact = _exact(edges, {"v1": 1, "v2": 3})
        for one in answer["answers"]:
            assert _error(one["ranks"], exact) <= one["error_bound"] + 1e-11
    writer.join()
    assert len(seen) > 1


def held_up(pipeline: Pipeline) -> tuple[Future[None], threading.Event]:
    """Blocks the writer's thread until the event is set; the future completes then."""
    held, free = threading.Event(), threading.Event()

    def hold(_: Writer) -> None:
        held.set()
        free.wait(30)

    task = pipeline.call(hold)
    assert held.wait(30)
    return task, free


def test_a_query_has_its_time_and_no_more(server: Server, path: str) -> None:
    pipeline = server.catalog.get(path.rsplit("/", 1)[1]).pipeline
    task, free = held_up(pipeline)
    late = QueryRequest([_keyed("v0")], 0.05)
    given_up = QueryRequest([_keyed("v1")], 30.0)
    pipeline.submit_query(late)
    pipeline.submit_query(given_up)
    assert given_up.answer.cancel()
    threading.Timer(0.2, free.set).start()
    with pytest.raises(NotAnsweredInTime, match=r"the query was not solved within 0\.05 s"):
        late.answer.result(30)
    task.result(30)
    # both have ended, and nothing remains
    wait_for(lambda: not writer_of(pipeline)._scheduler)
    assert engine_of(pipeline)._queries.running == []


def _keyed(key: str) -> KeyedQuery:
    return KeyedQuery(seeds=SeedColumns.of({key: 1.0}))


@pytest.mark.parametrize("length", [100, 100_000])  # reading pauses behind the longer one
def test_the_queries_of_a_disconnected_client_are_cancelled(
    server: Server, path: str, length: int
) -> None:
    body = json.dumps({"queries": [{"seeds": {"v0": 1.0}}]}).ljust(length)
    head = f"POST {path}/personalized HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
    pipeline = server.catalog.get(path.rsplit("/", 1)[1]).pipeline
    assert server.http.get(f"{path}/personalized/v0").status_code == 200
    loop = server.app.state.limit.stopping.get_loop()  # made by the first request that waits
    task, free = held_up(pipeline)
    address = ("127.0.0.1", int(server.http.base_url.port or 0))
    with socket.create_connection(address) as client:
        client.sendall(f"{head}\r\nContent-Type: application/json\r\n\r\n".encode())
        wait_for(lambda: any(server.app.state.limit.in_progress.values()))
        loop.call_soon_threadsafe(time.sleep, 0.1)  # so that the body arrives as a whole
        client.sendall(body.encode())
        wait_for(lambda: bool(pipeline._queue.queries))
        (request,) = pipeline._queue.queries.requests
    wait_for(request.answer.cancelled)
    free.set()
    task.result(30)
    wait_for(lambda: not writer_of(pipeline)._scheduler)


def test_what_is_cancelled_takes_no_memory_while_it_waits(server: Server, path: str) -> None:
    pipeline = server.catalog.get(path.rsplit("/", 1)[1]).pipeline
    task, free = held_up(pipeline)
    query, call = _keyed("v0"), partial(getattr, name="journal")
    gone = ref(query), ref(call)
    request = QueryRequest([query], 30.0)
    pipeline.submit_query(request)
    cancelled = pipeline.call(call)
    del query, call
    assert request.answer.cancel()
    assert cancelled.cancel()
    assert [each() for each in gone] == [None, None]
    free.set()
    task.result(30)
    wait_for(lambda: not writer_of(pipeline)._scheduler)


def test_dropping_a_graph_ends_its_queries(server: Server) -> None:
    path = server.new_graph()
    server.http.post(f"{path}/batches", json={"insert": [["a", "b"]]}).raise_for_status()
    pipeline = server.catalog.get(path.rsplit("/", 1)[1]).pipeline
    _, free = held_up(pipeline)
    with ThreadPoolExecutor(2) as clients:
        asked = clients.submit(server.http.get, f"{path}/personalized/a")
        wait_for(lambda: bool(pipeline._queue.queries))
        dropped = clients.submit(server.http.delete, path)
        wait_for(lambda: pipeline._queue.closed is not None)
        free.set()
        assert dropped.result().status_code == 204
        assert problem(asked.result(), 404)["field"] == "graph"


def test_dropping_a_graph_ends_a_query_that_shares_a_solve_with_an_answered_one(
    server: Server,
) -> None:
    path = server.new_graph()
    server.http.post(f"{path}/batches", json={"insert": [["a", "b"]]}).raise_for_status()
    pipeline = server.catalog.get(path.rsplit("/", 1)[1]).pipeline
    _, free = held_up(pipeline)
    soon, later = (QueryRequest([_keyed("a")] * count, 30.0) for count in (1, 2))

    def drop(_: object) -> None:
        pipeline._queue.close(UnknownGraph(path))
        time.sleep(SLICE_SECONDS)

    soon.answer.add_done_callback(drop)  # by the writer, before it goes on
    pipeline.submit_query(soon)
    pipeline.submit_query(later)
    free.set()
    with pytest.raises(UnknownGraph):
        later.answer.result(30)
    assert soon.answer.result(30).answers
    assert server.http.delete(path).status_code == 204
    assert pipeline.fault is None


def test_unknown_seeds_can_be_ignored(server: Server) -> None:
    path = server.new_graph()
    insert = [["a", "b"], ["b", "c"], ["c", "a"], ["c", "b"]]
    server.http.post(f"{path}/batches", json={"insert": insert}).raise_for_status()

    def ask(*queries: dict[str, Any]) -> dict[str, Any]:
        answer = server.http.post(f"{path}/personalized", json={"queries": queries})
        if answer.status_code == 200:
            PersonalizedAnswers.model_validate_json(answer.content)
        document: dict[str, Any] = answer.json()
        return document

    seeds = {"a": 1.0, "nobody": 7.0, "b": 3.0, "none": 1.0}
    known = {"seeds": {"a": 1.0, "b": 3.0}}
    ignoring = {"seeds": seeds, "unknown": "ignore"}
    nothing = {"seeds": {"nobody": 1.0}, "unknown": "ignore", "method": "push"}
    one, none, two = ask(ignoring, nothing, known)["answers"]
    assert (one["ignored"], one["ranks"]) == (["nobody", "none"], two["ranks"])
    assert two["ignored"] == []
    empty = {"ranks": [], "error_bound": 0.0, "settled": 0, "method": "push", "iterations": 0}
    empty |= {"settled_set": True, "groups": [], "ties": []}
    assert none == {**empty, "ignored": ["nobody"]}
    assert ask(nothing)["answers"] == [none]

    for queries, status, field in (
        ((known, {"seeds": seeds}), 404, "queries[1].seeds"),
        ((nothing, {**ignoring, "method": "guess"}), 422, "queries[1].method"),
        ((nothing, known, {**ignoring, "method": "guess"}), 422, "queries[2].method"),
        (({"seeds": {}, "unknown": "ignore"},), 422, "queries[0].seeds"),
        (({**ignoring, "unknown": "drop"},), 422, "queries.unknown"),
    ):
        refused = ask(*queries)
        assert (refused["status"], refused["field"]) == (status, field)
    nothing_left = {"seeds": {"a": 0, "nobody": 1.0}, "unknown": "ignore"}
    assert ask(nothing_left)["answers"][0]["ranks"] == []
    refused = ask({**nothing, "method": "guess"})
    assert (refused["status"], refused["field"]) == (422, "queries[0].method")


def test_the_query_of_one_vertex_has_damping_set_and_unknown(server: Server, path: str) -> None:
    server.http.put(f"{path}/sets/three", json={"vertices": ["v3", "v4", "v5"]}).raise_for_status()

    def ask(vertex: str, **parameters: Any) -> httpx.Response:
        return server.http.get(f"{path}/personalized/{vertex}", params=parameters)

    query = {"seeds": {"v1": 1.0}, "damping": 0.3, "among": "three"}
    asked = server.http.post(f"{path}/personalized", json={"queries": [query]}).json()
    (expected,) = asked["answers"]
    found = ask("v1", damping=0.3, among="three")
    PersonalizedRanks.model_validate_json(found.content)
    head = {"vertex": "v1", "version": asked["version"], "revision": asked["revision"]}
    assert found.json() == {**head, **expected}
    nothing = ask("nobody", unknown="ignore").json()
    assert (nothing["ranks"], nothing["ignored"]) == ([], ["nobody"])
    for parameters, status, field in (
        ({}, 404, "vertex"),
        ({"unknown": "drop"}, 422, "unknown"),
        ({"damping": 1.5, "unknown": "ignore"}, 422, "damping"),
        ({"among": "none", "unknown": "ignore"}, 404, "among"),
    ):
        assert problem(ask("nobody", **parameters), status)["field"] == field


@pytest.mark.parametrize("weighted", [False, True])
def test_queries_with_a_damping_of_their_own_among_some_vertices(
    server: Server, weighted: bool
) -> None:
    path = server.new_graph(weighted=weighted, directed=False, target_error=1e-9)
    random = np.random.default_rng(7)
    rows = [
        (f"v{one}", f"v{two}", float(weight))
        for one, two, weight in random.integers(1, 80, (400, 3)).tolist()
    ]
    graph = nx.Graph()
    graph.add_weighted_edges_from(rows)
    insert = [row if weighted else row[:2] for row in rows]
    server.http.post(f"{path}/batches", json={"insert": insert}).raise_for_status()
    chosen = ["v3", "v5", "v7", "v11", "v13"]
    server.http.put(f"{path}/sets/chosen", json={"vertices": chosen}).raise_for_status()
    server.http.put(f"{path}/sets/empty", json={"vertices": []}).raise_for_status()
    seeds = {"v1": 2.0, "v2": 1.0}
    exact = nx.pagerank(
        graph,
        alpha=0.5,
        personalization=seeds,
        weight="weight" if weighted else None,
        tol=1e-12,
        max_iter=1000,
    )
    expected = sorted(((exact[key], key) for key in chosen), reverse=True)
    query = {"seeds": seeds, "damping": 0.5, "k": 3}
    many = [*chosen, "nobody", "v3"]
    response = server.http.post(
        f"{path}/personalized",
        json={
            "queries": [
                {**query, "among": "chosen"},
                {**query, "among": chosen},
                {**query, "among": many, "unknown": "ignore"},
                {**query, "among": "empty"},
                {**query, "among": ["nobody"], "unknown": "ignore"},
            ]
        },
    )
    assert response.status_code == 200, response.text
    answers = response.json()["answers"]
    for answer in answers[:3]:
        assert [place["vertex"] for place in answer["ranks"]] == [key for _, key in expected[:3]]
        for place in answer["ranks"]:
            assert place["rank"] == pytest.approx(exact[place["vertex"]], abs=1e-7)
        assert answer["settled"] <= 3
    assert [answer["ranks"] for answer in answers[3:]] == [[], []]
    for changes, status, field in (
        ({"among": "none"}, 404, "queries[0].among"),
        ({"among": many}, 404, "queries[0].among"),
        ({"among": ["v3", ""]}, 422, "queries[0].among"),
        ({"among": []}, 422, "queries[0].among"),
        ({"damping": 1.0}, 422, "queries[0].damping"),
        ({"damping": "0.5"}, 422, "queries.damping"),
    ):
        refused = server.http.post(
            f"{path}/personalized", json={"queries": [{**query, **changes}]}
        ).json()
        assert (refused["status"], refused["field"]) == (status, field)


@pytest.mark.parametrize("method", PUBLISHED_METHODS)
def test_a_query_in_the_published_form_has_a_trace(method: str, server: Server, path: str) -> None:
    asked: dict[str, Any] = {"method": method, "form": "published", "k": 60, "target_error": 0.1}
    answer = server.http.get(f"{path}/personalized/v5", params={**asked, "trace": True})
    read = PersonalizedRanks.model_validate_json(answer.content)
    assert _error(answer.json()["ranks"], _exact(EDGES, {"v5": 1})) <= read.error_bound + 1e-11
    assert read.trace is not None
    assert read.iterations == len(read.trace.steps) == read.trace.pushes + read.trace.sweeps
    modes = {step.mode for step in read.trace.steps}
    assert modes <= ({"pushopt", "pull"} if method == "hybrid" else {method})
    body = {"queries": [{"seeds": {"v5": 1}, **asked}, {"seeds": {"v5": 1}, "trace": True}]}
    (same, ours) = server.http.post(f"{path}/personalized", json=body).json()["answers"]
    assert "trace" not in same
    assert same["ranks"] == [
        {"vertex": place["vertex"], "rank": pytest.approx(place["rank"], abs=1e-12)}
        for place in answer.json()["ranks"]
    ]
    steps = ours["trace"]["steps"]
    assert sum(step["rounds"] for step in steps) == ours["iterations"]
    assert steps[-1]["error_bound"] == ours["error_bound"]


@pytest.mark.parametrize(
    ("field", "parameters"),
    [
        ("method", {"method": "pushopt"}),
        ("target", {"form": "published", "target": "settled-top-k"}),
    ],
)
def test_what_a_form_does_not_have_is_named(
    field: str, parameters: dict[str, str], server: Server, path: str
) -> None:
    answer = server.http.get(f"{path}/personalized/v5", params=parameters)
    document = problem(answer, 422)
    assert (document["field"], document["value"]) == (field, parameters[field])


def test_a_watched_query_has_no_form_and_no_trace(server: Server, path: str) -> None:
    for member in ({"form": "published"}, {"trace": True}):
        answer = server.http.put(f"{path}/watched/one", json={"seeds": {"v5": 1}, **member})
        assert problem(answer, 422)["field"] == next(iter(member))


def test_vertices_of_rank_zero_are_left_out_unless_they_are_asked_for(server: Server) -> None:
    path = server.new_graph()
    edges = [["a", "b"], ["b", "c"], ["d", "a"], ["e", "d"]]
    server.http.post(f"{path}/batches", json={"insert": edges}).raise_for_status()

    def vertices(answer: dict[str, Any]) -> list[str]:
        assert sum(answer["groups"]) == len(answer["ranks"])
        return [place["vertex"] for place in answer["ranks"]]

    for method in ("hybrid", "push", "pull"):
        short = server.http.get(f"{path}/personalized/a?k=5&method={method}").json()
        assert sorted(vertices(short)) == ["a", "b", "c"]
        assert all(place["rank"] > 0.0 for place in short["ranks"])
        assert short["settled"] == 3
        full = server.http.get(f"{path}/personalized/a?k=5&method={method}&zeros=true").json()
        assert vertices(full)[:3] == vertices(short)
        assert sorted(vertices(full)) == ["a", "b", "c", "d", "e"]
        assert [place["rank"] for place in full["ranks"][3:]] == [0.0, 0.0]
    # fewer places than vertices are left out have no zeros either way
    two = server.http.get(f"{path}/personalized/a?k=2&zeros=true").json()
    assert vertices(two) == vertices(full)[:2]
    queries = [{"seeds": {"a": 1}, "k": 5}, {"seeds": {"a": 1}, "k": 5, "zeros": True}]
    # none of these is reached
    queries += [{"seeds": {"a": 1}, "among": ["d", "e"], "zeros": zeros} for zeros in (False, True)]
    answers = server.http.post(f"{path}/personalized", json={"queries": queries}).json()["answers"]
    assert [len(vertices(answer)) for answer in answers] == [3, 5, 0, 2]
    server.http.put(f"{path}/watched/short", json={"seeds": {"a": 1}, "k": 5}).raise_for_status()
    body = {"seeds": {"a": 1}, "k": 5, "zeros": True}
    server.http.put(f"{path}/watched/full", json=body).raise_for_status()
    for name, zeros, count in (("short", False, 3), ("full", True, 5)):
        answer = server.http.get(f"{path}/watched/{name}").json()
        assert (answer["zeros"], len(vertices(answer))) == (zeros, count)
    # a vertex that a batch lets walks reach joins
    server.http.post(f"{path}/batches", json={"insert": [["c", "e"]]}).raise_for_status()
    wait_for(lambda: len(server.http.get(f"{path}/watched/short").json()["ranks"]) == 5)


def test_a_walk_stays_within_a_set(server: Server) -> None:
    path = server.new_graph()
    edges = [["a", "b"], ["b", "c"], ["c", "a"], ["b", "x"], ["x", "a"], ["x", "y"], ["d", "a"]]
    server.http.post(f"{path}/batches", json={"insert": edges}).raise_for_status()
    members = {"vertices": ["a", "b", "c", "d"]}
    server.http.put(f"{path}/sets/mine", json=members).raise_for_status()
    graph = nx.DiGraph(edges).subgraph(["a", "b", "c", "d"])
    exact = nx.pagerank(graph, 0.85, {"b": 3, "c": 1}, 1000, 1e-14)

    def assert_right(answer: dict[str, Any], vertices: list[str]) -> None:
        found = {place["vertex"]: place["rank"] for place in answer["ranks"]}
        assert sorted(found) == vertices
        assert sum(abs(rank - exact[v]) for v, rank in found.items()) <= answer["error_bound"]

    body: dict[str, Any] = {"seeds": {"b": 3, "c": 1}}
    forms: list[dict[str, Any]] = [
        {"within": "mine"},
        {"within": ["d", "c", "b", "a"]},
        {"within": ["c", "b", "a", "nobody"], "unknown": "ignore", "form": "published"},
        {"within": "mine", "zeros": True},
        {"within": "mine", "among": ["c", "x", "d"]},
    ]
    queries = [body | {"target_error": 1e-9} | form for form in forms]
    answers = server.http.post(f"{path}/personalized", json={"queries": queries}).json()["answers"]
    for answer in answers[:3]:
        assert_right(answer, ["a", "b", "c"])
    assert_right(answers[3], ["a", "b", "c", "d"])
    assert_right(answers[4], ["c"])
    single = server.http.get(f"{path}/personalized/b", params={"within": "mine", "k": 2})
    everywhere = server.http.get(f"{path}/personalized/b", params={"k": 2})
    assert [place["vertex"] for place in single.json()["ranks"]] == ["b", "c"]
    assert single.json()["ranks"] != everywhere.json()["ranks"]
    assert single.json()["version"] == everywhere.json()["version"]

    # a batch that changes the set changes the walk
    batch = {"sets": {"mine": {"add": ["x"]}}}
    server.http.post(f"{path}/batches", json=batch).raise_for_status()
    found = server.http.get(f"{path}/personalized/b", params={"within": "mine"}).json()
    assert {place["vertex"] for place in found["ranks"]} == {"a", "b", "c", "x"}


def test_what_a_walk_cannot_stay_within_is_refused(server: Server) -> None:
    path = server.new_graph()
    batch = {"insert": [["a", "b"], ["c", "d"]]}
    server.http.post(f"{path}/batches", json=batch).raise_for_status()
    server.http.put(f"{path}/sets/mine", json={"vertices": ["a", "b"]}).raise_for_status()

    def refused(status: int, field: str, query: dict[str, Any]) -> Any:
        first = {"seeds": {"a": 1}}
        body = {"queries": [first, query]}
        document = problem(server.http.post(f"{path}/personalized", json=body), status)
        assert document["field"] == f"queries[1].{field}"
        return document

    document = refused(422, "seeds", {"seeds": {"d": 1, "a": 1, "c": 2}, "within": "mine"})
    assert document["value"] == ["d", "c"]
    assert "in `within`" in document["detail"]
    refused(422, "seeds", {"seeds": {"d": 1}, "within": "mine", "unknown": "ignore"})
    refused(404, "within", {"seeds": {"a": 1}, "within": "none"})
    refused(404, "within", {"seeds": {"a": 1}, "within": ["a", "nobody"]})
    refused(422, "within", {"seeds": {"a": 1}, "within": []})
    single = server.http.get(f"{path}/personalized/d", params={"within": "mine"})
    document = problem(single, 422)
    assert (document["field"], document["value"]) == ("vertex", "d")
    watched = server.http.put(f"{path}/watched/w", json={"seeds": {"a": 1}, "within": "mine"})
    assert problem(watched, 422)["field"] == "within"


def test_an_answer_says_why_another_was_refused() -> None:
    places = Personalized(np.array([0]), np.array([1.0]), 0.5, 1, "pull", 9)
    assert "refused" not in answer_document(pa.array([7]), places, [])
    refused = answer_document(pa.array([7]), replace(places, refused="negative ranks"), [])
    assert refused["refused"] == "negative ranks"


@pytest.mark.parametrize(
    ("method", "call", "accept", "maker"),
    [
        ("GET", "personalized/v1?k=5", "application/json", "answer_document"),
        ("POST", "personalized", "application/json", "answer_document"),
        ("POST", "personalized", "application/vnd.apache.arrow.stream", "answers_stream"),
    ],
)
def test_long_answers_are_not_made_on_the_event_loop(
    server: Server,
    path: str,
    method: str,
    call: str,
    accept: str,
    maker: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = {"queries": [{"seeds": {"v1": 1}, "k": 5}]} if method == "POST" else None
    original = getattr(personalized, maker)
    names: list[str] = []

    def recorded(*given: Any) -> Any:
        names.append(threading.current_thread().name)
        return original(*given)

    def ask() -> None:
        headers = {"Accept": accept}
        answer = server.http.request(method, f"{path}/{call}", json=body, headers=headers)
        assert answer.status_code == 200

    monkeypatch.setattr(personalized, maker, recorded)
    ask()
    monkeypatch.setattr("liverank_service.http.body.SMALL_BODY", 100)
    ask()
    assert [name == "test-server" for name in names] == [True, False]
