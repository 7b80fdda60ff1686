"""Named graphs over HTTP."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from liverank_gpu import Engine, OutOfMemory
from liverank_service.http.schemas import GraphInfo, GraphList
from liverank_service.storage.graph_store import GraphStore
from tests.service.server import DEFAULT_OPTIONS, Server, running, wait_for


def test_a_graph_named_default_exists_from_the_start(server: Server) -> None:
    answer = server.http.get("/graphs/default")
    assert answer.status_code == 200
    info = GraphInfo.model_validate_json(answer.content)
    assert (info.graph, info.backend, info.edges) == ("default", "cpu", 0)
    assert info.options.model_dump() == DEFAULT_OPTIONS


def test_graphs_that_wait_to_be_created_hold_up_no_read(server: Server) -> None:
    path = server.new_graph()
    server.http.post(f"{path}/batches", json={"insert": [["a", "b"]]}).raise_for_status()
    url = str(server.http.base_url)
    more_than_all_threads = 33
    waiting = [f"{url}/graphs/waiting-{number}" for number in range(more_than_all_threads)]
    with ThreadPoolExecutor(len(waiting)) as clients:
        with server.catalog._changing:  # as while another graph recovers
            put = [clients.submit(httpx.put, one, timeout=60) for one in waiting]
            wait_for(lambda: server.app.state.limit.in_progress["other"] >= len(waiting))
            answer = server.http.post(f"{path}/ranks", json={"vertices": ["a"]})
            assert answer.status_code == 200
            assert not any(one.done() for one in put)
        assert {one.result().status_code for one in put} == {201}
    for one in waiting:
        httpx.delete(one, timeout=60).raise_for_status()


def test_put_creates_then_finds_and_compares_only_given_options(server: Server) -> None:
    path = "/graphs/Put-1.b_c"
    options = {"damping": 0.5, "dangling": "self-loop", "keys": "integer"}
    created = server.http.put(path, json=options)
    assert created.status_code == 201
    assert created.json()["options"]["target_error"] == 1e-6
    assert server.http.put(path, json=options).status_code == 200
    assert server.http.put(path).status_code == 200
    assert server.http.put(path, json={"damping": 0.5}).status_code == 200
    other = server.http.put(path, json={"damping": 0.5, "strategy": "static"})
    assert other.status_code == 409
    assert other.json()["detail"] == "graph 'Put-1.b_c' exists with strategy 'auto', not 'static'"
    assert (other.json()["field"], other.json()["value"]) == ("strategy", "static")
    assert server.http.get(path).json()["options"] == created.json()["options"]


@pytest.mark.parametrize("body", [b"", b"null", b" null\n", b"{}"])
def test_no_body_is_no_option(server: Server, body: bytes) -> None:
    path = server.new_graph()
    kind = {"Content-Type": "application/json"}
    assert server.http.put(path, content=body, headers=kind).status_code == 200
    analysis = server.http.post(f"{path}/analyses/components", content=body, headers=kind)
    assert analysis.status_code == 202
    assert server.http.put(path, content=b"[]", headers=kind).status_code == 422


def test_the_list_holds_every_graph_by_name(server: Server) -> None:
    server.new_graph()
    answer = server.http.get("/graphs")
    names = [info.graph for info in GraphList.model_validate_json(answer.content).graphs]
    assert names == sorted(names)
    assert "default" in names


def test_a_dropped_graph_is_removed_and_its_name_is_free(server: Server) -> None:
    path = server.new_graph(damping=0.5)
    server.http.post(f"{path}/batches", json={"insert": [["a", "b"]]})
    assert server.http.delete(path).status_code == 204
    for answer in (server.http.get(path), server.http.delete(path)):
        assert answer.status_code == 404
        assert answer.json()["type"] == "urn:liverank:problem:unknown-graph"
        assert "; there are: " in answer.json()["detail"]
    again = server.http.put(path)
    assert again.status_code == 201
    assert (again.json()["edges"], again.json()["options"]["damping"]) == (0, 0.85)


@pytest.mark.parametrize("name", [".hidden", "-dash", "a" * 65, "a b", "a%5Cb", "ä", "%2e%2e"])
def test_a_name_that_could_leave_the_data_directory_is_refused(server: Server, name: str) -> None:
    answer = server.http.put(f"/graphs/{name}")
    assert answer.status_code == 422
    assert answer.json()["field"] == "graph"


def test_a_name_with_a_slash_is_no_graph(server: Server) -> None:
    assert server.http.put("/graphs/a%2Fb").status_code == 404


def test_graphs_options_and_drops_survive_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        server.http.put("/graphs/kept", json={"damping": 0.5, "keys": "integer"})
        server.http.put("/graphs/dropped")
        server.http.delete("/graphs/dropped")
        before = server.http.get("/graphs/kept").json()
    with running(tmp_path) as server:
        names = [graph["graph"] for graph in server.http.get("/graphs").json()["graphs"]]
        assert names == ["default", "kept"]
        after = server.http.get("/graphs/kept").json()
        assert after["options"] == before["options"]
        assert after["revision"] > before["revision"]


def test_what_a_crash_left_half_done_is_removed(tmp_path: Path) -> None:
    for leftover in (".creating-a-0", ".dropped-b-1"):
        (tmp_path / "graphs" / leftover).mkdir(parents=True)
        (tmp_path / "graphs" / leftover / "journal.db").write_bytes(b"half")
    with running(tmp_path):
        assert [path.name for path in (tmp_path / "graphs").iterdir()] == ["default"]


def test_a_graph_that_cannot_be_opened_is_not_created_and_its_name_stays_free(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OutOfMemory("the ranks", 1000, 10)

    with monkeypatch.context() as patched:
        patched.setattr(Engine, "update", fail)
        answer = server.http.put("/graphs/unlucky")
        assert answer.status_code == 507
        assert answer.json()["detail"] == "the ranks needs 1,000 bytes; 10 are available"
    assert server.http.get("/graphs/unlucky").status_code == 404
    assert server.http.put("/graphs/unlucky").status_code == 201


def test_other_graphs_are_read_and_written_while_a_new_one_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    creating, go_on = threading.Event(), threading.Event()
    with running(tmp_path) as server, ThreadPoolExecutor() as pool:
        server.http.post("/graphs/default/batches", json={"insert": [["a", "b"]]})

        create = GraphStore.create

        def slowly(store: GraphStore, name: str, options: dict[str, object]) -> Path:
            creating.set()
            assert go_on.wait(60)
            return create(store, name, options)

        monkeypatch.setattr(GraphStore, "create", slowly)
        created = pool.submit(server.http.put, "/graphs/slow", json={"weighted": True})
        try:
            assert creating.wait(60)
            written = server.http.post("/graphs/default/batches", json={"insert": [["b", "c"]]})
            assert written.json()["version"] == 2
            assert server.http.get("/graphs/default/ranks/c").json()["version"] == 2
            assert server.http.get("/graphs/default/top?k=1").json()["version"] == 2
            assert server.http.get("/graphs/default/personalized/a").json()["version"] == 2
            assert server.http.get("/readyz").status_code == 200
            names = [info["graph"] for info in server.http.get("/graphs").json()["graphs"]]
            assert names == ["default"]
            assert server.http.get("/graphs/slow").status_code == 404
            assert not created.done()
        finally:
            go_on.set()
        assert created.result(60).status_code == 201
        assert server.http.get("/graphs/slow").status_code == 200


def test_a_wrong_name_or_option_is_refused_while_another_graph_is_created(server: Server) -> None:
    compiled = threading.Event()
    server.catalog.changes.submit(compiled.wait, 60)
    try:
        for path, options, field in (
            ("/graphs/-wrong", {}, "graph"),
            ("/graphs/new", {"damping": 2}, "damping"),
            ("/graphs/new", {"half_life": 60, "weighted": False}, "weighted"),
        ):
            answer = server.http.put(path, json=options, timeout=10)
            assert (answer.status_code, answer.json()["field"]) == (422, field)
    finally:
        compiled.set()
