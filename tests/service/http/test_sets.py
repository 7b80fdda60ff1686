"""Named sets of vertices over HTTP: by themselves, in batches, and in reads."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from liverank_service.http.schemas import SetAnswer, SetMembers, TopAnswer
from liverank_service.storage.backup import backup, restore
from tests.service.formats.test_decode import ARROW, arrow_stream
from tests.service.server import Server, running, wait_for

EDGES = [["a", "b"], ["b", "c"], ["c", "a"], ["d", "a"], ["e", "d"], ["a", "e"]]


@pytest.fixture
def path(server: Server) -> str:
    path = server.new_graph(target_error=1e-9)
    server.http.post(f"{path}/batches", json={"insert": EDGES}).raise_for_status()
    return path


def put(server: Server, path: str, name: str, *vertices: Any) -> dict[str, Any]:
    answer = server.http.put(f"{path}/sets/{name}", json={"vertices": vertices})
    assert answer.status_code == 200, answer.text
    SetAnswer.model_validate_json(answer.content)
    document: dict[str, Any] = answer.json()
    return document


def members(server: Server, path: str, name: str, version: int = 0) -> list[Any]:
    query = {"min_version": version, "timeout": 60}
    answer = server.http.get(f"{path}/sets/{name}", params=query)
    assert answer.status_code == 200, answer.text
    read = SetMembers.model_validate_json(answer.content)
    assert (read.name, read.size) == (name, len(read.vertices))
    vertices: list[Any] = answer.json()["vertices"]
    return vertices


def refused(answer: httpx.Response, status: int, kind: str, field: str) -> dict[str, Any]:
    problem: dict[str, Any] = answer.json()
    assert (answer.status_code, problem["type"]) == (status, f"urn:liverank:problem:{kind}")
    assert problem["field"] == field
    return problem


def test_a_set_is_created_read_replaced_and_dropped(server: Server, path: str) -> None:
    created = put(server, path, "mine", "c", "a", "c")
    assert (created["name"], created["size"], created["version"]) == ("mine", 2, 2)
    assert members(server, path, "mine") == ["a", "c"]
    assert put(server, path, "mine", "e")["version"] == 3
    assert members(server, path, "mine") == ["e"]
    assert put(server, path, "mine")["size"] == 0
    assert members(server, path, "mine") == []
    assert server.http.delete(f"{path}/sets/mine").status_code == 204
    refused(server.http.get(f"{path}/sets/mine"), 404, "unknown-set", "name")
    refused(server.http.delete(f"{path}/sets/mine"), 404, "unknown-set", "name")
    info = server.http.get(path).json()
    assert (info["version"], info["vertices"], info["edges"]) == (5, 5, 6)


def test_a_set_is_a_list_of_vertices_and_nothing_else(server: Server, path: str) -> None:
    body = arrow_stream(source=pa.array(["a"]), target=pa.array(["b"]))
    answer = server.http.put(f"{path}/sets/x", content=body, headers={"Content-Type": ARROW})
    assert (answer.status_code, answer.json()["accepted"]) == (415, ["application/json"])
    answer = server.http.put(f"{path}/sets/x", json={"sets": {"y": {}}})
    refused(answer, 422, "invalid-body", "sets")
    answer = server.http.put(f"{path}/sets/{'x' * 201}", json={"vertices": []})
    refused(answer, 422, "invalid-body", "name")
    answer = server.http.put(f"{path}/sets/x", json={"vertices": ["a", 1]})
    assert refused(answer, 422, "invalid-body", "vertices")["index"] == 1


def test_an_unknown_vertex_refuses_the_set(server: Server, path: str) -> None:
    put(server, path, "mine", "a")
    answer = server.http.put(f"{path}/sets/mine", json={"vertices": ["b", "nobody"]})
    problem = refused(answer, 404, "unknown-vertex", "sets.mine.add")
    assert (problem["index"], problem["value"]) == (1, "nobody")
    assert members(server, path, "mine") == ["a"]


def test_batches_change_sets(server: Server, path: str) -> None:
    put(server, path, "mine", "a", "b")
    put(server, path, "yours", "c")
    batch = {
        "insert": [["new", "a"]],
        "sets": {"mine": {"add": ["new", "c"], "remove": ["a", "e"]}, "yours": {"add": ["d"]}},
    }
    receipt = server.http.post(f"{path}/batches", json=batch).json()
    assert (receipt["inserted"], receipt["new_vertices"]) == (1, 1)
    assert members(server, path, "mine") == ["b", "c", "new"]
    assert members(server, path, "yours") == ["c", "d"]
    # a key in both lists is added
    batch = {"sets": {"mine": {"add": ["b"], "remove": ["b", "c", "nobody"]}}}
    server.http.post(f"{path}/batches", json=batch).raise_for_status()
    assert members(server, path, "mine") == ["b", "new"]


@pytest.mark.parametrize(
    ("sets", "status", "field"),
    [
        ({"none": {"add": ["a"]}}, 404, "sets.none"),
        ({"mine": {"add": ["a", "nobody"]}}, 404, "sets.mine.add"),
        ({"mine": {"insert": ["a"]}}, 422, "sets.mine.insert"),
        ({"mine": {"whole": "drop"}}, 422, "sets.mine.whole"),
        ({"mine": {"add": "a"}}, 422, "sets.mine.add"),
        ({"mine": {"remove": [""]}}, 422, "sets.mine.remove"),
        ({"mine": ["a"]}, 422, "sets.mine"),
        ({"": {"add": ["a"]}}, 422, "sets"),
        (["mine"], 422, "sets"),
    ],
)
def test_a_wrong_change_of_a_set_refuses_the_whole_batch(
    server: Server, path: str, sets: Any, status: int, field: str
) -> None:
    put(server, path, "mine", "a")
    changes = {"mine": {"add": ["b"]}, **sets} if isinstance(sets, dict) else sets
    batch = {"insert": [["x", "y"]], "sets": changes}
    answer = server.http.post(f"{path}/batches", json=batch)
    assert (answer.status_code, answer.json()["field"]) == (status, field)
    assert members(server, path, "mine") == ["a"]
    assert server.http.get(f"{path}/ranks/x").status_code == 404


def test_a_duplicate_set_in_a_body_is_refused(server: Server, path: str) -> None:
    for body in (
        b'{"sets": {"m": {"add": []}, "m": {"add": []}}}',
        b'{"sets": {"m": {"add": ["a"], "add": []}}}',
    ):
        answer = server.http.post(f"{path}/batches", content=body)
        assert (answer.status_code, answer.json()["detail"][-16:]) == (422, "duplicate member")


def test_the_top_among_a_set(server: Server, path: str) -> None:
    put(server, path, "mine", "b", "d", "e")
    everything = server.http.get(f"{path}/top").json()["ranks"]
    answer = server.http.get(f"{path}/top", params={"among": "mine"})
    TopAnswer.model_validate_json(answer.content)
    expected = [place for place in everything if place["vertex"] in "bde"]
    assert answer.json()["ranks"] == expected
    second = server.http.get(f"{path}/top", params={"among": "mine", "k": 1, "offset": 1}).json()
    assert second["ranks"] == expected[1:2]
    assert sum(answer.json()["groups"]) == 3
    assert answer.json()["settled_set"]
    answer = server.http.get(f"{path}/top", params={"among": "none"})
    refused(answer, 404, "unknown-set", "among")


def test_equal_ranks_among_a_set_are_in_order_of_first_appearance(server: Server) -> None:
    path = server.new_graph()
    cycle = [["d", "b"], ["b", "a"], ["a", "c"], ["c", "d"]]
    server.http.post(f"{path}/batches", json={"insert": cycle}).raise_for_status()
    put(server, path, "mine", "a", "c", "d")
    top = server.http.get(f"{path}/top", params={"among": "mine"}).json()["ranks"]
    assert [place["vertex"] for place in top] == ["d", "a", "c"]


def read_events(stream: httpx.Response, count: int) -> list[tuple[str, str]]:
    """The names and the data of the next events."""
    events, name = [], ""
    for line in stream.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            events.append((name, line.removeprefix("data: ")))
            if len(events) == count:
                return events
    return events


def test_the_change_feed_among_a_set(server: Server, path: str) -> None:
    answer = server.http.get(f"{path}/changes", params={"among": "none"})
    refused(answer, 404, "unknown-set", "among")
    put(server, path, "mine", "b", "d")
    query: dict[str, Any] = {"among": "mine", "top": 1, "threshold": 0.0}
    found: list[tuple[str, Any]] = []
    joined = threading.Event()

    def follow() -> None:
        with httpx.stream("GET", f"{server.http.base_url}{path}/changes", params=query) as stream:
            joined.set()
            found.extend(read_events(stream, 5))

    following = threading.Thread(target=follow)
    following.start()
    joined.wait(30)
    heavy = [[f"x{number}", "b"] for number in range(20)]
    server.http.post(f"{path}/batches", json={"insert": heavy}).raise_for_status()
    server.http.post(
        f"{path}/batches", json={"sets": {"mine": {"add": ["a"], "remove": ["b"]}}}
    ).raise_for_status()
    server.http.post(f"{path}/batches", json={"insert": [["q", "z"]]}).raise_for_status()
    assert server.http.delete(f"{path}/sets/mine").status_code == 204
    following.join(60)
    events = [(name, json.loads(data)) for name, data in found]
    assert [name for name, _ in events] == ["snapshot", "change", "change", "change", "end"]

    def keys(event: int, member: str) -> list[str]:
        return [place["vertex"] for place in events[event][1][member]]

    assert keys(0, "top") == ["d"]
    assert (keys(1, "entered"), keys(1, "left"), keys(1, "moved")) == (["b"], ["d"], [])
    assert (keys(2, "entered"), keys(2, "left"), keys(2, "moved")) == (["a"], ["b"], [])
    assert (keys(3, "entered"), keys(3, "left"), set(keys(3, "moved"))) == ([], [], {"a", "d"})
    assert events[4][1]["type"] == "urn:liverank:problem:unknown-set"


@pytest.mark.parametrize("checkpoint", [False, True])
def test_sets_survive_a_restart_and_a_backup(tmp_path: Path, checkpoint: bool) -> None:
    graph = "/graphs/default"
    with running(tmp_path / "data") as server:
        server.http.post(f"{graph}/batches", json={"insert": EDGES}).raise_for_status()
        put(server, graph, "first", "a", "b")
        put(server, graph, "empty")
        if checkpoint:
            server.http.post(f"{graph}/checkpoint").raise_for_status()
        put(server, graph, "second", "c")
        change = {"sets": {"first": {"add": ["d"], "remove": ["a"]}}}
        server.http.post(f"{graph}/batches", json=change).raise_for_status()
        many = [f"v{number}" for number in range(100)]
        large = {"vertices": many, "sets": {"second": {"add": many}}}
        version = server.http.post(f"{graph}/batches", json=large).json()["version"]
        backup(tmp_path / "data", tmp_path / "saved")
    restore(tmp_path / "saved", tmp_path / "again")
    for data in ("data", "again"):
        with running(tmp_path / data) as server:
            assert members(server, graph, "first", version) == ["b", "d"]
            assert members(server, graph, "second", version) == ["c", *many]
            assert members(server, graph, "empty", version) == []
            if data == "data":  # what is published may be so before the recovery has ended
                wait_for(lambda: server.http.post(f"{graph}/checkpoint").is_success)
    with running(tmp_path / "data") as server:
        assert members(server, graph, "first", version) == ["b", "d"]
