"""Watched queries over HTTP: personalized queries whose answers follow every batch."""

from __future__ import annotations

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from liverank_gpu.personalized.watched import Registration, Watched
from liverank_service.catalog import Catalog
from liverank_service.errors import StorageFailed
from liverank_service.http.schemas import RankAnswer, Receipt, WatchedAnswer
from liverank_service.settings import Settings
from tests.service.graphs import engine_of, writer_of
from tests.service.http.test_personalized import EDGES, _error, _exact, held_up, path
from tests.service.http.test_problems import problem
from tests.service.server import Server, running, wait_for

__all__ = ["path"]


def test_a_watched_query_follows_every_batch(server: Server) -> None:
    path = server.new_graph()
    server.http.post(f"{path}/batches", json={"insert": EDGES}).raise_for_status()
    body = {"seeds": {"v1": 1, "v2": 3}, "k": 100, "target_error": 1e-5}
    first = server.http.put(f"{path}/watched/pair", json=body)
    assert first.status_code == 201
    assert WatchedAnswer.model_validate_json(first.content).seeds == {"v1": 1, "v2": 3}
    edges = list(EDGES)
    for step in range(20):
        batch = [["v1", f"new {step}"], [f"new {step}", "v9"]]
        edges += batch
        receipt = Receipt.model_validate(
            server.http.post(f"{path}/batches", json={"insert": batch}).json()
        )
        assert 0.0 < receipt.seconds.watched < receipt.seconds.total
        answer = server.http.get(f"{path}/watched/pair").json()
        assert answer["version"] == receipt.version
        assert answer["error_bound"] <= 1e-5
        error = _error(answer["ranks"], _exact(edges, {"v1": 1, "v2": 3}))
        assert error <= answer["error_bound"] + 1e-11
    again = server.http.put(f"{path}/watched/pair", json={**body, "k": 2})
    assert (again.status_code, len(again.json()["ranks"])) == (200, 2)
    assert server.http.delete(f"{path}/watched/pair").status_code == 204
    for method in ("GET", "DELETE"):
        gone = problem(server.http.request(method, f"{path}/watched/pair"), 404)
        assert gone["type"] == "urn:liverank:problem:unknown-watched"
        assert gone["field"] == "name"


@pytest.mark.parametrize(
    ("name", "body", "status", "field"),
    [
        ("x", {"seeds": {"nobody": 1}}, 404, "seeds"),
        ("x", {"seeds": {}}, 422, "seeds"),
        ("x", {"seeds": {"v0": -1}}, 422, "seeds['v0']"),
        ("x", {"seeds": {"v0": 0, "v1": 0}}, 422, "seeds"),
        ("x", {"seeds": {"v0": 1}, "method": "walk"}, 422, "method"),
        ("x", {"seeds": {"v0": 1}, "target_error": 3}, 422, "target_error"),
        ("x", {"seeds": {"v0": 1}, "target": "error"}, 422, "target"),
        ("x", {"seeds": {"v0": 1}, "damping": 0}, 422, "damping"),
        ("x", {"seeds": {"nobody": 1}, "unknown": "ignore", "method": "walk"}, 422, "method"),
        ("x", {"seeds": {"v0": 1}, "among": "none"}, 404, "among"),
        ("x", {"seeds": {"v0": 1}, "among": ["v0", "nobody"]}, 404, "among"),
        ("x", {"seeds": {"v0": 1}, "among": []}, 422, "among"),
        ("x" * 201, {"seeds": {"v0": 1}}, 422, "name"),
    ],
)
def test_what_cannot_be_watched_is_named(
    server: Server, path: str, name: str, body: dict[str, Any], status: int, field: str
) -> None:
    answer = server.http.put(f"{path}/watched/{name}", json=body)
    assert problem(answer, status)["field"] == field
    if len(name) < 200:
        assert server.http.get(f"{path}/watched/{name}").status_code == 404


def test_what_does_not_fit_is_refused_with_figures(
    server: Server, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = engine_of(server.catalog.get(path.rsplit("/", 1)[1]).pipeline).internals.backend
    monkeypatch.setattr(backend.device, "memory_available", lambda: 100)
    answer = server.http.put(f"{path}/watched/large", json={"seeds": {"v0": 1}})
    detail = problem(answer, 507)["detail"]
    assert "the watched query 'large' needs" in detail
    assert "bytes; 100 are available" in detail


@pytest.mark.parametrize(("error", "status"), [(MemoryError(), 200), (OSError("broken"), 500)])
def test_a_solved_query_that_cannot_be_kept_is_solved_again(
    server: Server, path: str, error: Exception, status: int
) -> None:
    old, new = ({"seeds": {vertex: 1}, "k": 3} for vertex in ("v0", "v1"))
    server.http.put(f"{path}/watched/it", json=old).raise_for_status()
    keep, failures = Watched.keep, [error]

    def failing_once(watched: Watched, registration: Registration) -> None:
        if failures:
            raise failures.pop()
        keep(watched, registration)

    with patch.object(Watched, "keep", failing_once):
        assert server.http.put(f"{path}/watched/it", json=new).status_code == status
    server.http.post(f"{path}/batches", json={"insert": [["v1", "v2"]]}).raise_for_status()
    answer = server.http.get(f"{path}/watched/it").json()
    expected = server.http.post(f"{path}/personalized", json={"queries": [new]}).json()
    assert answer["seeds"] == {"v1": 1.0}
    vertices = [rank["vertex"] for rank in answer["ranks"]]
    assert vertices == [rank["vertex"] for rank in expected["answers"][0]["ranks"]]


def test_an_abandoned_registration_leaves_the_watched_query_unchanged(
    server: Server, path: str
) -> None:
    server.http.put(f"{path}/watched/kept", json={"seeds": {"v0": 1}, "k": 2}).raise_for_status()
    pipeline = server.catalog.get(path.rsplit("/", 1)[1]).pipeline
    task, free = held_up(pipeline)
    body = json.dumps({"seeds": {"v1": 1}, "k": 5})
    address = ("127.0.0.1", int(server.http.base_url.port or 0))
    with socket.create_connection(address) as client, ThreadPoolExecutor(1) as clients:
        client.sendall(
            f"PUT {path}/watched/kept HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        wait_for(lambda: bool(pipeline._queue.queries))
        (watch,) = pipeline._queue.queries.watches
        late = clients.submit(
            server.http.put, f"{path}/watched/kept", content=body, params={"timeout": 0.1}
        )
        wait_for(lambda: len(pipeline._queue.queries.watches) == 2)
        client.close()
        wait_for(watch.answer.cancelled)
        threading.Timer(0.2, free.set).start()
        document = problem(late.result(), 504)
    assert document["detail"] == "the query was not solved within 0.1 s"
    task.result(30)
    wait_for(lambda: not writer_of(pipeline)._scheduler)
    kept = server.http.get(f"{path}/watched/kept").json()
    assert (kept["seeds"], len(kept["ranks"])) == ({"v0": 1.0}, 2)
    assert engine_of(pipeline)._queries.running == []


def test_watched_queries_survive_a_restart(tmp_path: Path) -> None:
    path = "/graphs/default"
    query = {"seeds": {"v1": 2.0, "nobody": 1.0}, "damping": 0.5, "unknown": "ignore", "k": 2}
    queries = {
        "one": {"seeds": {"v3": 1}, "k": 4},
        "gone": {"seeds": {"v4": 1}},
        "two": {"seeds": {"v5": 1, "v6": 2}, "k": 4},
        "set": {**query, "among": "some"},
        "keys": {**query, "among": ["v2", "v3", "none"]},
    }
    with running(tmp_path) as server:
        server.http.post(f"{path}/batches", json={"insert": EDGES}).raise_for_status()
        server.http.put(f"{path}/sets/some", json={"vertices": ["v5", "v6"]}).raise_for_status()
        for name, each in queries.items():
            server.http.put(f"{path}/watched/{name}", json=each).raise_for_status()
        server.http.delete(f"{path}/watched/gone")
        server.http.post(f"{path}/batches", json={"insert": [["v3", "fresh"]]})
        names = queries.keys() - {"gone"}
        before = {name: server.http.get(f"{path}/watched/{name}").json() for name in names}
    with running(tmp_path) as server:
        for name, answer in before.items():
            after = server.http.get(f"{path}/watched/{name}").json()
            for member in (
                *("version", "seeds", "k", "target_error"),
                *("unknown", "damping", "among", "ignored"),
            ):
                assert after[member] == answer[member]
            assert [place["vertex"] for place in after["ranks"]] == [
                place["vertex"] for place in answer["ranks"]
            ]
        assert server.http.get(f"{path}/watched/gone").status_code == 404
    (tmp_path / "graphs" / "default" / "watched.json").write_text('{"format": 9, "watched": {}}')
    catalog = Catalog(Settings(data=tmp_path, backend="cpu"))
    with pytest.raises(StorageFailed, match=r"watched\.json: has format 9, expected 1 or 2$"):
        catalog.open()
    catalog.close()


def test_watched_queries_follow_what_their_keys_name(server: Server) -> None:
    """Each answer is what the same query, asked now, gets."""
    path = server.new_graph(weighted=True, directed=False)
    rows = [[f"v{place}", f"v{(place * 7 + 3) % 40}", 1 + place % 5] for place in range(40)]
    server.http.post(f"{path}/batches", json={"insert": rows}).raise_for_status()
    server.http.put(f"{path}/sets/some", json={"vertices": ["v1", "v2"]}).raise_for_status()
    # of ranks that are 0, too
    query = {"seeds": {"v1": 2.0, "late": 1.0}, "damping": 0.5, "unknown": "ignore"}
    query |= {"k": 3, "zeros": True}
    queries: dict[str, dict[str, Any]] = {
        "all": query,
        "set": {**query, "among": "some"},
        "keys": {**query, "among": ["v3", "v4", "late", "later"]},
        "none": {**query, "seeds": {"late": 1.0, "later": 1.0}},
        "plain": {"seeds": {"v2": 1.0}, "damping": 0.3, "among": "some", "method": "push"},
    }

    def check() -> dict[str, Any]:
        answers = {}
        asked = server.http.post(f"{path}/personalized", json={"queries": [*queries.values()]})
        assert asked.status_code == 200, asked.text
        for name, expected in zip(queries, asked.json()["answers"], strict=True):
            answer = server.http.get(f"{path}/watched/{name}")
            read = WatchedAnswer.model_validate_json(answer.content)
            answers[name] = found = answer.json()
            assert found["ignored"] == expected["ignored"], name
            assert [one["vertex"] for one in found["ranks"]] == [
                one["vertex"] for one in expected["ranks"]
            ], name
            for one, other in zip(found["ranks"], expected["ranks"], strict=True):
                assert one["rank"] == pytest.approx(other["rank"], abs=2e-6)
            assert (read.damping, read.among) == (
                queries[name]["damping"],
                queries[name].get("among"),
            )
        return answers

    for name, each in queries.items():
        assert server.http.put(f"{path}/watched/{name}", json=each).status_code == 201
    answers = check()
    assert (answers["none"]["ranks"], answers["none"]["ignored"]) == ([], ["late", "later"])
    assert answers["set"]["ignored"] == ["late"]

    def send(**batch: Any) -> dict[str, Any]:
        server.http.post(f"{path}/batches", json=batch).raise_for_status()
        return check()

    # a seed that was ignored, and a member of a set, are there from the next batch on
    sets = {"some": {"add": ["v7", "v9"], "remove": ["v1"]}}
    answers = send(insert=[["late", "v1", 2]], sets=sets)
    assert (answers["all"]["ignored"], answers["none"]["ignored"]) == ([], ["later"])
    assert {one["vertex"] for one in answers["set"]["ranks"]} == {"v2", "v7", "v9"}
    send(insert=[["v30", "v1", 9], ["v31", "late", 3]])
    # an empty set, and one that is gone
    answers = send(sets={"some": {"remove": ["v2", "v7", "v9"]}})
    assert (answers["set"]["ranks"], answers["set"]["settled"]) == ([], 0)
    send(sets={"some": {"add": ["v5"]}})
    server.http.delete(f"{path}/sets/some").raise_for_status()
    for name in ("set", "plain"):
        document = problem(server.http.get(f"{path}/watched/{name}"), 404)
        assert document["type"] == "urn:liverank:problem:unknown-set"
    server.http.put(f"{path}/sets/some", json={"vertices": ["v8", "v2"]}).raise_for_status()
    answers = send(insert=[["v8", "v2", 1]])
    assert {one["vertex"] for one in answers["plain"]["ranks"]} == {"v2", "v8"}
    # removed vertices: a seed that may be unknown, members of a set and of a list of keys
    answers = send(remove=["late", "v8", "v3"])
    assert (answers["all"]["ignored"], answers["none"]["ignored"]) == (["late"], ["late", "later"])
    assert answers["none"]["ranks"] == []
    assert {one["vertex"] for one in answers["plain"]["ranks"]} == {"v2"}
    # their keys are those of new vertices, which the set does not have
    answers = send(remove=["v1"], insert=[["late", "v4", 2], ["v3", "v4", 3], ["v8", "v1", 4]])
    assert (answers["all"]["ignored"], answers["none"]["ignored"]) == ([], ["later"])
    assert {one["vertex"] for one in answers["keys"]["ranks"]} == {"v3", "v4", "late"}
    # a vertex that comes back with the same id, within a batch and between two rankings
    answers = send(remove=["v3"], insert=[["v3", "v4", 5]])
    assert {one["vertex"] for one in answers["keys"]["ranks"]} == {"v3", "v4", "late"}
    for later in ({"remove": ["v4"]}, {"insert": [["v4", "late", 9], ["v1", "v4", 9]]}):
        request = server.http.post(f"{path}/batches", json=later, params={"rank": "later"})
        request.raise_for_status()
    answers = send(insert=[["later", "v8", 2]])
    assert {one["vertex"] for one in answers["keys"]["ranks"]} >= {"v4"}
    # a seed that may not
    server.http.post(f"{path}/batches", json={"remove": ["v2"]}).raise_for_status()
    document = problem(server.http.get(f"{path}/watched/plain"), 404)
    assert (document["type"], document["value"]) == ("urn:liverank:problem:unknown-vertex", "v2")
    server.http.put(f"{path}/sets/some", json={"vertices": ["v9"]}).raise_for_status()
    send(insert=[["v2", "v9", 5]])


def test_the_rank_of_one_vertex_of_a_watched_query(server: Server) -> None:
    path = server.new_graph()
    insert = [["a", "b"], ["b", "c/d"], ["c/d", "a"], ["e", "a"]]
    server.http.post(f"{path}/batches", json={"insert": insert}).raise_for_status()
    watched = server.http.put(f"{path}/watched/w", json={"seeds": {"a": 1}, "k": 3}).json()
    for place in watched["ranks"]:
        answer = server.http.get(f"{path}/watched/w/ranks/{place['vertex']}")
        RankAnswer.model_validate_json(answer.content)
        expected = {name: watched[name] for name in ("version", "revision", "error_bound")}
        assert answer.json() == {**place, **expected}
    for url in ("watched/w/ranks/e", "watched/w/ranks/nobody", "watched/none/ranks/a"):
        assert server.http.get(f"{path}/{url}").status_code == 404
