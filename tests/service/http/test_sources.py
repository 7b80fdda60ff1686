"""Batches that continue an external source, over HTTP."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from liverank import AsyncClient, Client, ServerError, SourceRange
from liverank.options import MAX_POSITION
from liverank_service import catalog
from liverank_service.http.schemas import Ready, SourceList
from liverank_service.pipeline import keyed_graph
from tests.service.server import Server, running, wait_for

REJECTED = {"sets": {"none": {"add": ["a"]}}}
"""A batch that is committed, and cannot be applied: there is no such set."""


def send(server: Server, path: str, document: Any, **parameters: Any) -> Any:
    options = {name.rstrip("_"): value for name, value in parameters.items()}
    key = options.pop("key", None)
    headers = {} if key is None else {"Idempotency-Key": key}
    return server.http.post(f"{path}/batches", params=options, json=document, headers=headers)


def positions(server: Server, path: str) -> dict[tuple[str, str], tuple[str, int]]:
    answer = server.http.get(f"{path}/sources")
    assert answer.status_code == 200, answer.text
    found = SourceList.model_validate_json(answer.content).sources
    return {(one.source, one.partition): (one.position, one.version) for one in found}


def test_a_batch_has_to_continue_its_source(server: Server) -> None:
    path = server.new_graph()
    edge = {"insert": [["a", "b"]]}
    assert positions(server, path) == {}
    assert send(server, path, edge, source="s", to="10").status_code == 200
    assert send(server, path, edge, source="s", partition="1", to="7").status_code == 200
    assert send(server, path, {}, source="s", from_="10", to="20").json()["version"] == 3
    expected = {("s", ""): ("20", 3), ("s", "1"): ("7", 2)}
    assert positions(server, path) == expected
    for begin in ("10", "30", None):
        given = {} if begin is None else {"from": begin}
        answer = send(server, path, {"insert": [["c", "d"]]}, source="s", to="40", **given)
        problem = answer.json()
        assert answer.status_code == problem["status"] == 409
        assert problem["type"] == "urn:liverank:problem:source-position"
        assert (problem["field"], problem["stored"]) == ("from", "20")
        assert problem["detail"] == f"source 's': expected '20', got {begin!r}"
    first = send(server, path, edge, source="s", partition="2", from_="1", to="2").json()
    assert "stored" not in first
    assert first["detail"] == (
        "partition '2' of source 's': expected no `from`: it has no position yet, got '1'"
    )
    # nothing was applied
    assert positions(server, path) == expected
    graph = server.http.get(path).json()
    assert (graph["version"], graph["vertices"], graph["edges"]) == (3, 2, 1)


def test_a_repeat_gets_its_receipt_though_the_position_has_moved(server: Server) -> None:
    path = server.new_graph()
    edge = {"insert": [["a", "b"]]}
    first = send(server, path, edge, source="s", to="10", key="one")
    send(server, path, {}, source="s", from_="10", to="20").raise_for_status()
    assert send(server, path, edge, source="s", to="10", key="one").content == first.content
    other = send(server, path, edge, source="s", from_="20", to="30", key="one")
    assert other.json()["type"] == "urn:liverank:problem:idempotency-conflict"
    assert positions(server, path) == {("s", ""): ("20", 2)}


@pytest.mark.parametrize("wait", ["ranked", "durable"])
def test_a_rejected_batch_moves_no_position_and_an_empty_one_skips_it(
    server: Server, wait: str
) -> None:
    path = server.new_graph()
    send(server, path, {"insert": [["a", "b"]]}, source="s", to="1").raise_for_status()
    answer = send(server, path, REJECTED, source="s", from_="1", to="2", wait=wait)
    assert answer.status_code == (404 if wait == "ranked" else 202)
    refused = send(server, path, {}, source="s", from_="2", to="3")
    assert (refused.status_code, refused.json()["stored"]) == (409, "1")
    assert positions(server, path) == {("s", ""): ("1", 1)}
    assert send(server, path, {}, source="s", from_="1", to="2").status_code == 200
    assert positions(server, path) == {("s", ""): ("2", 3)}


def test_the_position_of_a_batch_that_is_ranked_later_counts_at_once(server: Server) -> None:
    path = server.new_graph()
    edge = {"insert": [["a", "b"]]}
    assert send(server, path, edge, source="s", to="1", rank="later").status_code == 202
    assert send(server, path, edge, source="s", from_="1", to="2", rank="later").status_code == 202
    assert positions(server, path) == {("s", ""): ("2", 2)}
    assert server.http.get(path).json()["version"] == 0


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"source": "s"}, "to"),
        ({"source": "s", "from": "1", "to": "1"}, "to"),
        ({"to": "1"}, "to"),
        ({"from": "1"}, "from"),
        ({"partition": "1"}, "partition"),
        ({"source": "", "to": "1"}, "source"),
        ({"source": "s", "to": "x" * (MAX_POSITION + 1)}, "to"),
        ({"source": "s" * (MAX_POSITION + 1), "to": "1"}, "source"),
    ],
)
def test_a_range_that_cannot_be_is_refused(
    server: Server, given: dict[str, str], field: str
) -> None:
    path = server.new_graph()
    answer = server.http.post(f"{path}/batches", params=given, json={})
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert server.http.get(path).json()["version"] == 0


def test_a_graph_has_a_limit_of_partitions(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_graph, "MAX_PARTITIONS", 2)
    path = server.new_graph()
    for partition in ("0", "1"):
        send(server, path, {}, source="s", partition=partition, to="1").raise_for_status()
    answer = send(server, path, {}, source="s", partition="2", to="1")
    assert (answer.status_code, answer.json()["field"]) == (422, "partition")
    assert "has 2 partitions, which is the limit" in answer.json()["detail"]
    assert send(server, path, {}, source="s", partition="1", from_="1", to="2").status_code == 200


def test_both_clients_send_and_read_positions(server: Server) -> None:
    name = server.new_graph().rsplit("/", 1)[1]
    with Client(server.url("")) as client:
        client.send(name, [("a", "b")], source_range=SourceRange("s", "1"))
        with pytest.raises(ServerError) as caught:
            client.append(name, source_range=SourceRange("s", "2"))
        assert (caught.value.status, caught.value.problem["stored"]) == (409, "1")

    async def follow() -> None:
        async with AsyncClient(server.url("")) as client:
            await client.insert(name, [("b", "a")], source_range=SourceRange("s", "2", "1"))
            (found,) = await client.sources(name)
            assert (found.source, found.partition, found.position) == ("s", "", "2")
            assert found.version == 2

    asyncio.run(follow())


def test_a_read_waits_for_a_position(server: Server) -> None:
    path = server.new_graph()
    edge = {"insert": [["a", "b"]]}
    send(server, path, edge, source="redis:s", to="9-5").raise_for_status()
    send(server, path, edge, source="redis:s", partition="1", to="7").raise_for_status()
    reads = ("top", "ranks/a", "edges", "neighbors/a", "personalized/a")
    for wanted in (["redis:s::9-4"], ["redis:s::9-5", "redis:s:1:6"], ["redis:s::8-999"]):
        for read in reads:
            answer = server.http.get(f"{path}/{read}", params={"min_position": wanted})
            assert answer.status_code == 200, answer.text
    with ThreadPoolExecutor() as threads:
        # in numbers: as texts, 10-0 is less than 9-5
        later: dict[str, Any] = {"min_position": ["redis:s::10-0", "redis:s:2:1"], "timeout": 60}
        waiting = [
            threads.submit(server.http.get, f"{path}/{read}", params=later) for read in reads
        ]
        wait_for(lambda: server.app.state.limit.waiting[""] == len(reads))
        new = {"insert": [["c", "a"]]}
        send(server, path, new, source="redis:s", from_="9-5", to="11-0").raise_for_status()
        assert server.app.state.limit.waiting[""] == len(reads)
        send(server, path, {}, source="redis:s", partition="2", to="1").raise_for_status()
        answers = [each.result() for each in waiting]
    assert [answer.status_code for answer in answers] == [200] * len(reads)
    assert all(answer.json()["version"] == 4 for answer in answers[:2])


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("s:9", "must be SOURCE:PARTITION:POSITION"),
        ("s::", "must be SOURCE:PARTITION:POSITION"),
        ("::9", "must be SOURCE:PARTITION:POSITION"),
        ("s::" + "9" * 30, "must be SOURCE:PARTITION:POSITION"),
        ("s::last", "must be SOURCE:PARTITION:POSITION"),
        ("t::9", "has no source 't'"),
        ("s::9-0", "expected a position of the form of the stored one, '9', got '9-0'"),
        ("s:x:9", "expected a position of the form of the stored one, 'x9', got '9'"),
    ],
)
def test_a_position_that_cannot_be_reached_is_refused(
    server: Server, text: str, detail: str
) -> None:
    path = server.new_graph()
    send(server, path, {"insert": [["a", "b"]]}, source="s", to="9").raise_for_status()
    send(server, path, {}, source="s", partition="x", to="x9").raise_for_status()
    for read in ("top", "edges"):
        answer = server.http.get(f"{path}/{read}", params={"min_position": text})
        problem = answer.json()
        assert (answer.status_code, problem["field"]) == (422, "min_position"), problem
        assert detail in problem["detail"]
    late: dict[str, Any] = {"min_position": ["s::8", "s::10"], "timeout": 0.05}
    problem = server.http.get(f"{path}/top", params=late).json()
    assert (problem["status"], problem["field"], problem["value"]) == (504, "min_position", "s::10")
    expected = "position s::10 was not published within 0.05 s; the newest is 9"
    assert problem["detail"] == expected


@pytest.mark.parametrize("read", ["top", "edges"])
def test_a_source_is_known_once_its_first_batch_is_committed(server: Server, read: str) -> None:
    path = server.new_graph()
    send(
        server, path, {"insert": [["a", "b"]]}, source="s", to="9", rank="later"
    ).raise_for_status()
    with ThreadPoolExecutor() as threads:
        asked = {"min_position": "s::9"}
        waiting = threads.submit(server.http.get, f"{path}/{read}", params=asked)
        wait_for(lambda: server.app.state.limit.waiting[""] == 1)
        send(server, path, {"insert": [["b", "a"]]}).raise_for_status()
        assert waiting.result().status_code == 200


def test_consumers_report_their_state_until_it_expires(server: Server) -> None:
    path = server.new_graph()
    name = path.rsplit("/", 1)[1]
    with Client(server.url("")) as client:
        assert client.report_consumer(name, "nats:a/b", "c1", "consuming", seconds=60)
        assert client.report_consumer(name, "redis:s", "c2", "retrying", "refused", 60)
        assert client.report_consumer(name, "redis:s", "c3", "stopped", "trimmed", 0.001)
        wait_for(lambda: len(client.consumers(name)) == 2)
        first, away = client.consumers(name)
        assert (first.source, first.consumer, first.state) == ("nats:a/b", "c1", "consuming")
        assert (away.source, away.state, away.reason) == ("redis:s", "retrying", "refused")
        assert away.since < away.expires < away.since + 61
        # since the state began, not since the report
        assert client.report_consumer(name, "redis:s", "c2", "retrying", "again", 90)
        assert client.consumers(name)[1].since == away.since
        answer = server.http.get("/readyz")
        assert answer.status_code == 200
        (listed,) = Ready.model_validate_json(answer.content).consumers
        assert (listed.graph, listed.source, listed.reason) == (name, "redis:s", "again")
        assert client.report_consumer(name, "redis:s", "c2", "consuming")
        assert server.http.get("/readyz").json() == {"status": "ready"}
        assert not client.report_consumer("none", "s", "c", "consuming")
    for body, field in (
        ({"consumer": "c", "state": "away"}, "state"),
        ({"consumer": "", "state": "stopped"}, "consumer"),
        ({"consumer": "c", "state": "stopped", "seconds": 1e9}, "seconds"),
    ):
        refused = server.http.put(f"{path}/consumers/s", json=body)
        assert (refused.status_code, refused.json()["field"]) == (422, field)
    refused = server.http.put(f"{path}/consumers/{'s' * 256}", json={"consumer": "c"})
    assert (refused.status_code, refused.json()["field"]) == (422, "source")


def test_a_consumer_replaces_those_of_its_source_that_have_stopped(server: Server) -> None:
    path = server.new_graph()
    name = path.rsplit("/", 1)[1]
    with Client(server.url("")) as client:
        assert client.report_consumer(name, "a", "c1", "stopped", "trimmed", 60)
        assert client.report_consumer(name, "b", "c2", "stopped", "no permission", 60)
        assert client.report_consumer(name, "b", "c3", "consuming", seconds=60)
        found = [(one.source, one.consumer) for one in client.consumers(name)]
        # the others of this server read /readyz, which lists those that do not consume
        assert client.report_consumer(name, "a", "c1", "consuming")
    assert found == [("a", "c1"), ("b", "c3")]


def test_a_graph_has_a_limit_of_consumers(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "MAX_CONSUMERS", 1)
    path = f"{server.new_graph()}/consumers/s"
    report = {"consumer": "one", "state": "consuming", "seconds": 60}
    for _ in range(2):
        assert server.http.put(path, json=report).status_code == 204
    answer = server.http.put(path, json=report | {"consumer": "two"})
    assert (answer.status_code, answer.json()["field"]) == (422, "consumer")


def test_states_of_consumers_are_for_keys_of_their_graph(tmp_path: Path) -> None:
    key = "k" * 40
    with running(tmp_path, api_key=key) as server:
        admin = {"Authorization": f"Bearer {key}"}
        body = {"name": "w", "scope": "read", "graphs": ["other"]}
        made = server.http.post("/keys", json=body, headers=admin).json()
        report = {"consumer": "c", "state": "retrying"}
        path = "/graphs/default/consumers/s"
        assert server.http.put(path, json=report, headers=admin).status_code == 204
        foreign = {"Authorization": f"Bearer {made['key']}"}
        assert server.http.put(path, json=report, headers=foreign).status_code == 403
        for headers in ({}, foreign):
            assert server.http.get("/readyz", headers=headers).json() == {"status": "ready"}
        assert len(server.http.get("/readyz", headers=admin).json()["consumers"]) == 1
