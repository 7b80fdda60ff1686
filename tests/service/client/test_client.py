"""The Python client: its requests, retries and errors; then a real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pyarrow as pa
import pytest

import service.client.connection
from service.client import Client, ServerError, ServerUnreachable
from tests.service.server import Server

Handler = Callable[[httpx.Request], httpx.Response]

RECEIPT: Any = {"version": 1, "inserted": 2}


def client_of(handler: Handler) -> Client:
    return Client("http://liverank.test", transport=httpx.MockTransport(handler))


class Recorder:
    """Answers each request with the next prepared response, and records the requests."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def answer(document: Any, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=document)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service.client.connection, "RETRY_PAUSES", (0.0, 0.0))


def stream(*events: str) -> httpx.Response:
    return httpx.Response(200, text=": ping\n\n" + "".join(event + "\n\n" for event in events))


def test_changes_continue_after_a_lost_connection() -> None:
    server = Recorder(
        stream('event: snapshot\ndata: {"revision":1,"top":[]}\nid: e-1'),
        httpx.ReadError("lost"),
        stream('event: change\ndata: {"revision":2}\nid: e-2'),
        stream('event: end\ndata: {"title":"Not ready","status":503}'),
    )
    with client_of(server) as client:
        changes = client.changes("g", top=5)
        assert next(changes) == {"event": "snapshot", "id": "e-1", "revision": 1, "top": []}
        assert next(changes) == {"event": "change", "id": "e-2", "revision": 2}
        with pytest.raises(ServerError, match="Not ready") as ended:
            next(changes)
    assert ended.value.status == 503
    sent = [request.headers.get("Last-Event-ID") for request in server.requests]
    assert sent == [None, "e-1", "e-1", "e-2"]
    assert dict(server.requests[0].url.params) == {"top": "5", "threshold": "0.05", "limit": "1000"}


def test_changes_of_a_server_that_stays_away_end() -> None:
    server = Recorder(*[httpx.ConnectError("refused")] * 3)
    with client_of(server) as client, pytest.raises(ServerUnreachable, match="refused"):
        next(client.changes("g"))


def test_changes_that_are_refused_are_an_error() -> None:
    server = Recorder(answer({"title": "Too busy"}, 503))
    with client_of(server) as client, pytest.raises(ServerError, match="Too busy"):
        next(client.changes("g"))


def test_changes_of_a_server(server: Server) -> None:
    path = server.new_graph()
    graph = path.rsplit("/", 1)[1]
    with Client(str(server.http.base_url)) as client:
        changes = client.changes(graph, top=1, limit=10)
        assert next(changes)["event"] == "snapshot"
        receipt = client.send(graph, insert=[("a", "b")])
        change = next(changes)
    assert (change["event"], change["revision"]) == ("change", receipt["revision"])
    assert [one["vertex"] for one in change["entered"]] == ["b"]


def test_a_small_batch_is_sent_as_json_with_an_idempotency_key() -> None:
    server = Recorder(answer(RECEIPT))
    with client_of(server) as client:
        receipt = client.send("g", insert=[("a", "b"), ("b", "c")], delete=[("c", "d")])
    (request,) = server.requests
    assert receipt == RECEIPT
    assert (request.method, request.url.path) == ("POST", "/graphs/g/batches")
    assert dict(request.url.params) == {"wait": "ranked"}
    assert json.loads(request.content) == {
        "insert": [["a", "b"], ["b", "c"]],
        "delete": [["c", "d"]],
        "vertices": [],
    }
    assert len(request.headers["idempotency-key"]) == 32


def test_each_batch_has_a_new_key_unless_one_is_given() -> None:
    server = Recorder(*(answer(RECEIPT) for _ in range(3)))
    with client_of(server) as client:
        client.send("g")
        client.send("g")
        client.send("g", key="mine", strategy="static")
    keys = [request.headers["idempotency-key"] for request in server.requests]
    assert keys[0] != keys[1]
    assert keys[2] == "mine"
    assert dict(server.requests[2].url.params) == {"wait": "ranked", "strategy": "static"}


def test_a_large_batch_is_sent_as_an_arrow_stream() -> None:
    server = Recorder(answer({"version": 3, "status": "durable"}, 202))
    with client_of(server) as client:
        client.append_columns(
            "g", pa.array(["a", "b"]), pa.array(["x", "y"]), pa.array(["delete", "insert"])
        )
    (request,) = server.requests
    assert dict(request.url.params) == {"wait": "durable"}
    assert request.headers["content-type"] == "application/vnd.apache.arrow.stream"
    assert pa.ipc.open_stream(request.content).read_all().to_pylist() == [
        {"source": "a", "target": "x", "operation": "delete"},
        {"source": "b", "target": "y", "operation": "insert"},
    ]


def test_columns_without_operations_are_insertions() -> None:
    server = Recorder(answer(RECEIPT))
    with client_of(server) as client:
        client.send_columns("g", pa.array([1, 2]), pa.array([3, 4]))
    table = pa.ipc.open_stream(server.requests[0].content).read_all()
    assert table.column_names == ["source", "target"]
    assert table.column("source").type == pa.int64()


def test_a_batch_is_sent_again_with_its_key_when_the_connection_is_lost() -> None:
    server = Recorder(httpx.ConnectError("refused"), httpx.ReadError("reset"), answer(RECEIPT))
    with client_of(server) as client:
        assert client.send("g", insert=[("a", "b")]) == RECEIPT
    keys = {request.headers["idempotency-key"] for request in server.requests}
    bodies = {request.content for request in server.requests}
    assert (len(server.requests), len(keys), len(bodies)) == (3, 1, 1)


def test_after_the_last_attempt_the_address_and_the_reason_are_named() -> None:
    server = Recorder(*(httpx.ConnectError("Connection refused") for _ in range(3)))
    with client_of(server) as client, pytest.raises(ServerUnreachable) as failure:
        client.top("g")
    assert str(failure.value) == (
        "no answer from http://liverank.test (Connection refused); "
        "is `liverank serve` running there?"
    )
    assert server.answers == []


@pytest.mark.parametrize("call", [lambda c: c.recompute("g"), lambda c: c.drop("g")])
def test_what_a_repeat_could_spoil_is_sent_once(call: Callable[[Client], object]) -> None:
    server = Recorder(httpx.ReadError("reset"), answer({}))
    with client_of(server) as client, pytest.raises(ServerUnreachable):
        call(client)
    assert len(server.requests) == 1


def test_a_timeout_is_not_waited_for_twice() -> None:
    server = Recorder(httpx.ReadTimeout("timed out"), answer(RECEIPT))
    with client_of(server) as client, pytest.raises(ServerUnreachable, match="timed out"):
        client.send("g")
    assert len(server.requests) == 1


def test_a_refusal_carries_the_problem_document() -> None:
    problem = {
        "type": "urn:liverank:problem:invalid-value",
        "title": "Invalid value",
        "status": 422,
        "detail": "insert[3]: a pair is due",
        "field": "insert",
        "index": 3,
    }
    with client_of(Recorder(answer(problem, 422))) as client, pytest.raises(ServerError) as failure:
        client.send("g", insert=[("a", "b")])
    error = failure.value
    assert (error.status, error.title, error.detail, error.field) == (
        422,
        "Invalid value",
        "insert[3]: a pair is due",
        "insert",
    )
    assert error.problem == problem
    assert str(error) == "Invalid value: insert[3]: a pair is due"


def test_a_refusal_names_its_field_where_the_detail_does_not() -> None:
    refusal = answer({"title": "Invalid value", "detail": "must be above 0", "field": "k"}, 422)
    with client_of(Recorder(refusal)) as client, pytest.raises(ServerError) as failure:
        client.top("g", k=0)
    assert str(failure.value) == "k: Invalid value: must be above 0"


def test_a_refusal_without_a_problem_document_names_its_status() -> None:
    gateway = httpx.Response(502, text="<html>upstream is gone</html>")
    with client_of(Recorder(gateway)) as client, pytest.raises(ServerError) as failure:
        client.top("g")
    assert failure.value.status == 502
    assert str(failure.value) == "Bad Gateway: <html>upstream is gone</html>"


@pytest.mark.parametrize(
    ("vertex", "path"),
    [
        ("a b", b"/graphs/g/ranks/a%20b"),
        ("a/b", b"/graphs/g/ranks/a%2Fb"),
        ("a?k=1#x%", b"/graphs/g/ranks/a%3Fk%3D1%23x%25"),
        ("ünï", b"/graphs/g/ranks/%C3%BCn%C3%AF"),
        (".", b"/graphs/g/ranks/%2E"),
        ("..", b"/graphs/g/ranks/%2E%2E"),
        ("...", b"/graphs/g/ranks/..."),
        (-7, b"/graphs/g/ranks/-7"),
    ],
)
def test_any_key_stays_one_segment_of_the_path(vertex: str | int, path: bytes) -> None:
    server = Recorder(answer({"vertex": vertex, "rank": 1.0}))
    with client_of(server) as client:
        client.rank("g", vertex)
    assert server.requests[0].url.raw_path == path


def test_an_invalid_address_is_refused_with_a_message() -> None:
    with pytest.raises(ServerUnreachable, match="no answer from http://"):
        Client("http://[oops").top("g")
    with Client("localhost") as client, pytest.raises(ServerUnreachable, match="localhost"):
        client.top("g")


def test_readiness_is_a_question_without_an_error() -> None:
    server = Recorder(answer({}), answer({}, 503), httpx.ConnectError("refused"))
    with client_of(server) as client:
        assert [client.ready() for _ in range(3)] == [True, False, False]


def test_the_client_sends_queries_and_watched_queries(server: Server) -> None:
    path = server.new_graph(keys="integer")
    graph = path.rsplit("/", 1)[1]
    with Client(str(server.http.base_url)) as client:
        client.send(graph, insert=[(1, 2), (2, 3), (3, 1)])
        both = client.personalized_many(graph, [{"seeds": {1: 2.0, 3: 1.0}, "k": 1}] * 2)
        assert [answer["ranks"][0]["vertex"] for answer in both["answers"]] == [1, 1]
        one = client.personalized(graph, 2, k=1, method="push", target="settled-top-k")
        assert (one["ranks"][0]["vertex"], one["method"]) == (2, "push")
        first = client.watch(graph, "two", {"seeds": {2: 1.0}, "k": 1})
        assert first["ranks"][0]["vertex"] == 2
        client.send(graph, insert=[(2, 4)])
        assert client.watched(graph, "two")["version"] == 2
        client.unwatch(graph, "two")
        with pytest.raises(ServerError) as refused:
            client.watched(graph, "two")
        assert refused.value.status == 404
