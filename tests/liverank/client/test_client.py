"""The Python client: its requests, retries and errors; then a real server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import liverank.client.connection
from liverank import (
    AsyncClient,
    Client,
    InvalidInput,
    PersonalizedQuery,
    ServerError,
    ServerUnreachable,
)
from liverank.client import Receipt
from liverank.client.connection import http_options
from tests.liverank.client.recorder import RECEIPT, TOP, Recorder, answer, client_of
from tests.service.server import Server


def test_a_small_batch_is_sent_as_json_with_an_idempotency_key() -> None:
    server = Recorder(answer(RECEIPT))
    with client_of(server) as client:
        receipt = client.send("g", insert=[("a", "b"), ("b", "c")], delete=[("c", "d")])
    (request,) = server.requests
    assert msgspec.to_builtins(receipt) == RECEIPT
    assert (request.method, request.url.path) == ("POST", "/graphs/g/batches")
    assert dict(request.url.params) == {"wait": "ranked"}
    assert json.loads(request.content) == {
        "insert": [["a", "b"], ["b", "c"]],
        "delete": [["c", "d"]],
        "vertices": [],
        "remove": [],
        "sets": {},
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
        insert = pa.table({"source": ["b"], "target": ["y"]})
        client.append("g", insert, pa.table({"source": ["a"], "target": ["x"]}))
    (request,) = server.requests
    assert dict(request.url.params) == {"wait": "durable"}
    assert request.headers["content-type"] == "application/vnd.apache.arrow.stream"
    assert pa.ipc.open_stream(request.content).read_all().to_pylist() == [
        {"source": "b", "target": "y", "operation": "insert"},
        {"source": "a", "target": "x", "operation": "delete"},
    ]


def test_columns_without_operations_are_insertions() -> None:
    server = Recorder(answer(RECEIPT))
    with client_of(server) as client:
        client.insert("g", pa.table({"source": [1, 2], "target": [3, 4]}))
    table = pa.ipc.open_stream(server.requests[0].content).read_all()
    assert table.column_names == ["source", "target"]
    assert table.to_pydict() == {"source": [1, 2], "target": [3, 4]}
    assert table.column("source").type == pa.uint32()


def test_a_batch_is_sent_again_with_its_key_when_the_connection_is_lost() -> None:
    server = Recorder(httpx.ConnectError("refused"), httpx.ReadError("reset"), answer(RECEIPT))
    with client_of(server) as client:
        assert client.send("g", insert=[("a", "b")]).version == 1
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


@pytest.mark.parametrize("content", [{"text": "<html>"}, {"json": {"detail": "hello"}}])
def test_the_page_of_another_server_is_no_answer(content: dict[str, Any]) -> None:
    calls: list[Callable[[Client], object]] = [
        lambda client: client.top("g"),
        lambda client: client.insert("g", [("a", "b")]),
        lambda client: client.graphs(),
        lambda client: client.personalized_table("g", {"seed": ["a"]}),
        lambda client: client.drop("g"),
        lambda client: client.export_ranks("g").to_arrow(),
        lambda client: next(iter(client.changes("g"))),
    ]
    for call in calls:
        server = Recorder(*[httpx.Response(200, **content)] * 5)
        with client_of(server) as client, pytest.raises(ServerUnreachable, match="no answer from"):
            call(client)


def test_an_answer_that_cannot_be_decompressed_is_none() -> None:
    broken = httpx.ByteStream(b"no gzip"), {"Content-Encoding": "gzip"}
    server = Recorder(httpx.Response(200, stream=broken[0], headers=broken[1]))
    with client_of(server) as client, pytest.raises(ServerUnreachable, match="decompressing"):
        client.top("g")


def test_a_refusal_carries_the_problem_document() -> None:
    problem = {
        "type": "urn:liverank:problem:invalid-value",
        "title": "Invalid value",
        "status": 422,
        "detail": "insert[3]: expected a pair",
        "field": "insert",
        "index": 3,
    }
    with client_of(Recorder(answer(problem, 422))) as client, pytest.raises(ServerError) as failure:
        client.send("g", insert=[("a", "b")])
    error = failure.value
    assert (error.status, error.title, error.detail, error.field) == (
        422,
        "Invalid value",
        "insert[3]: expected a pair",
        "insert",
    )
    assert error.problem == problem
    assert str(error) == "Invalid value: insert[3]: expected a pair"


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
    server = Recorder(answer({**TOP, "vertex": vertex, "rank": 1.0}))
    with client_of(server) as client:
        client.rank("g", vertex)
    assert server.requests[0].url.raw_path == path


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    "url",
    ["http://host:port", "localhost", "localhost:8080", "127.0.0.1:8080", "ftp://host", "http:///"],
)
def test_an_invalid_address_is_refused_with_a_message(
    kind: type[Client | AsyncClient], url: str
) -> None:
    expected = r"^url: expected an address like http://127.0.0.1:8080, got '"
    with pytest.raises(InvalidInput, match=expected):
        kind(url)


def test_readiness_is_a_question_without_an_error() -> None:
    server = Recorder(answer({}), answer({}, 503), httpx.ConnectError("refused"))
    with client_of(server) as client:
        assert [client.ready() for _ in range(3)] == [True, False, False]


def test_the_client_sends_queries_and_watched_queries(server: Server) -> None:
    path = server.new_graph(keys="integer")
    graph = path.rsplit("/", 1)[1]
    with Client(str(server.http.base_url)) as client:
        client.send(graph, insert=[(1, 2), (2, 3), (3, 1)])
        both = client.personalized_many(graph, [PersonalizedQuery({1: 2.0, 3: 1.0}, k=1)] * 2)
        assert [answer.ranks[0].vertex for answer in both.answers] == [1, 1]
        one = client.personalized(graph, 2, k=1, method="push", target="settled-top-k")
        assert (one.ranks[0].vertex, one.method) == (2, "push")
        first = client.watch(graph, "two", PersonalizedQuery({2: 1.0}, k=1))
        assert first.ranks[0].vertex == 2
        client.send(graph, insert=[(2, 4)])
        assert client.watched(graph, "two").version == 2
        client.unwatch(graph, "two")
        with pytest.raises(ServerError) as refused:
            client.watched(graph, "two")
        assert refused.value.status == 404


SEEDS = {"query": ["x", "y", "x"], "seed": [1, 2, 3], "weight": [2.0, 1.0, 1.0]}


@pytest.mark.parametrize("frame", [dict, pd.DataFrame, pl.DataFrame, pa.table])
def test_seeds_and_answers_are_columns(server: Server, frame: Any) -> None:
    graph = server.new_graph(keys="integer").rsplit("/", 1)[1]
    with Client(str(server.http.base_url)) as client:
        client.send(graph, insert=[(1, 2), (2, 3), (3, 1)])
        found = client.personalized_table(graph, frame(SEEDS), k=2, damping=0.5)
        queries = [
            PersonalizedQuery({1: 2.0, 3: 1.0}, 2, damping=0.5),
            PersonalizedQuery({2: 1.0}, 2, damping=0.5),
        ]
        expected = client.personalized_many(graph, queries)
    assert (found.version, found.revision) == (expected.version, expected.revision)
    assert [answer.query for answer in found.answers] == ["x", "y"]
    rows = [
        (label, place.vertex, pytest.approx(place.rank, abs=2e-6))
        for label, answer in zip("xy", expected.answers, strict=True)
        for place in answer.ranks
    ]
    assert list(found.to_pandas().itertuples(index=False, name=None)) == rows
    assert found.to_polars().columns == ["query", "vertex", "rank"]
    assert all(answer.error_bound <= 1e-6 for answer in found.answers)


def test_seeds_that_are_no_columns_are_refused_before_they_are_sent() -> None:
    for seeds, message in (
        ({"seeds": [1]}, "seeds: expected a column 'seed'; they are: seeds"),
        ([1, 2], "seeds: the frame cannot be read"),
    ):
        with client_of(Recorder()) as client, pytest.raises(InvalidInput, match=message):
            client.personalized_table("g", seeds)


def test_an_asynchronous_client_asks_in_columns(server: Server) -> None:
    graph = server.new_graph(keys="integer").rsplit("/", 1)[1]

    async def run() -> list[Any]:
        async with AsyncClient(str(server.http.base_url)) as client:
            await client.send(graph, insert=[(1, 2), (2, 3), (3, 1)])
            found = await client.personalized_table(graph, {"seed": [1, 9]}, unknown="ignore")
            return found.answers[0].ignored

    assert asyncio.run(run()) == [9]


# Retries


@pytest.mark.parametrize("status", [429, 503])
def test_a_refusal_that_says_when_to_retry_is_retried_then(status: int) -> None:
    full = httpx.Response(status, json={"title": "Full"}, headers={"Retry-After": "0"})
    server = Recorder(full, full, answer(RECEIPT))
    with client_of(server) as client:
        assert client.recompute("g").version == 1
    assert server.answers == []


def test_a_date_to_retry_at_is_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    date = {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}
    server = Recorder(httpx.Response(429, headers=date), answer(TOP))
    with client_of(server) as client:
        assert client.top("g").ranks == []
    assert slept == [1.0]


@pytest.mark.parametrize(("status", "limit"), [(429, "QUEUE_SECONDS"), (503, "BUSY_SECONDS")])
def test_a_refusal_is_raised_once_its_time_is_over(
    status: int, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liverank.client.connection, limit, 20.0)
    late = httpx.Response(status, json={"title": "Full"}, headers={"Retry-After": "21"})
    with client_of(Recorder(late)) as client, pytest.raises(ServerError, match="Full") as failure:
        client.top("g")
    assert failure.value.status == status


def test_a_failure_without_a_time_is_not_retried() -> None:
    server = Recorder(answer({"title": "Storage failed"}, 503), answer(TOP))
    with client_of(server) as client, pytest.raises(ServerError, match="Storage failed"):
        client.top("g")
    assert len(server.requests) == 1


def test_what_was_not_sent_is_sent_again_even_if_a_repeat_could_spoil_it() -> None:
    server = Recorder(httpx.ConnectError("refused"), answer(RECEIPT))
    with client_of(server) as client:
        assert client.recompute("g").version == 1


def test_the_address_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Client().url == "http://127.0.0.1:8080"
    monkeypatch.setenv("LIVERANK_URL", "http://elsewhere:1/")
    assert Client().url == AsyncClient().url == "http://elsewhere:1"
    assert Client("http://here:2").url == "http://here:2"


# A real server


def test_an_asynchronous_client_reads_its_own_writes(server: Server) -> None:
    graph = server.new_graph().rsplit("/", 1)[1]

    async def run() -> None:
        async with AsyncClient(str(server.http.base_url)) as client:
            assert await client.ready()
            accepted = await client.append(graph, insert=[("a", "b")])
            version = accepted.version
            top, rank, ranks = await asyncio.gather(
                client.top(graph, min_version=version, timeout=60),
                client.rank(graph, "b", min_version=version, timeout=60),
                client.ranks(graph, ["b", "x"], min_version=version, timeout=60),
            )
            assert top.ranks[0].vertex == "b"
            assert top.ranks[0].rank == rank.rank == ranks.ranks[0]
            assert ranks.to_dict() == {"b": rank.rank, "x": None}
            assert isinstance(await client.batch(graph, version), Receipt)
            with pytest.raises(ServerError) as late:
                await client.top(graph, min_version=9, timeout=0.01)
            assert late.value.status == 504

    asyncio.run(run())


def test_threads_share_a_client(server: Server) -> None:
    graph = server.new_graph(keys="integer").rsplit("/", 1)[1]
    with Client(str(server.http.base_url)) as client, ThreadPoolExecutor(8) as pool:
        edges = [[(10 * number + each, 0) for each in range(10)] for number in range(24)]
        receipts = list(pool.map(lambda part: client.insert(graph, part), edges))
        assert sorted(receipt.version for receipt in receipts) == list(range(1, 25))
        assert client.graph(graph).edges == 240
        assert "liverank_version" in client.metrics()
        assert client.alive()


def test_ranks_of_an_answer_become_frames(server: Server) -> None:
    graph = server.new_graph().rsplit("/", 1)[1]
    with Client(str(server.http.base_url)) as client:
        frame = pd.DataFrame({"from": ["a", "c"], "to": ["b", "b"], "note": [1, 2]})
        assert client.insert(graph, frame, source="from", target="to").inserted == 2
        polars = pl.DataFrame({"source": ["c"], "target": ["b"]})
        assert client.delete(graph, polars).deleted == 1
        top = client.top(graph, 2)
        assert top.to_arrow().schema == pa.schema([("vertex", "string"), ("rank", "float64")])
        assert top.to_dict() == dict(zip(*top.to_pandas().to_dict("list").values(), strict=True))
        assert pl.DataFrame(top).equals(top.to_polars())
        assert {vertex: top[vertex] for vertex in top.to_dict()} == dict(top) == top.to_dict()
        assert (len(top), "nobody" in top) == (2, False)
        asked = client.ranks(graph, pd.Series(["b", "nobody"]))
        assert (asked["nobody"], asked["b"], len(asked)) == (None, asked.ranks[0], 2)
        assert "<td>nobody</td><td>unknown</td>" in asked._repr_html_()
        assert asked.to_polars()["rank"].to_list() == [top.ranks[0].rank, None]
        assert client.ranks(graph, pl.Series(["b"])).ranks == asked.ranks[:1]
        assert client.ranks(graph, pa.array(["b"])).ranks == asked.ranks[:1]


def test_names_of_other_libraries_are_answered_with_ours() -> None:
    with client_of(Recorder()) as client:
        calls: Any = client
        with pytest.raises(TypeError, match="'alpha': here it is 'damping'"):
            calls.personalized("g", "a", alpha=0.5)
        with pytest.raises(TypeError, match="'weights': here it is 'weight'"):
            calls.insert("g", [("a", "b")], weights="w")
        with pytest.raises(TypeError, match="unexpected keyword argument 'alpah'"):
            calls.personalized("g", "a", alpah=0.5)


@pytest.mark.parametrize("name", ["a/b", "", "ranks/../default"])
def test_a_name_that_would_lead_to_another_call_is_refused_before_it_is_sent(name: str) -> None:
    sent = Recorder()
    with client_of(sent) as client:
        for call in (client.graph, client.top, client.drop):
            with pytest.raises(InvalidInput, match=f"graph: expected 1 to 64 .* got '{name}'"):
                call(name)
    assert not sent.requests


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.rank("g", "\udcff"),
        lambda client: client.top("g", among="\udcff"),
        lambda client: client.insert("g", [("a", "\udcff")]),
        lambda client: client.send_all("g", [[("\udcff", "a")]]),
    ],
)
def test_bytes_of_arguments_that_are_no_text_are_refused(call: Callable[[Client], object]) -> None:
    message = r"text: expected UTF-8, got '\\udcff'"
    with client_of(Recorder()) as client, pytest.raises(InvalidInput, match=message):
        call(client)


def test_several_keys_are_not_the_letters_of_one() -> None:
    with client_of(Recorder()) as client, pytest.raises(InvalidInput, match="the one key 'abc'"):
        client.ranks("g", "abc")


@pytest.mark.parametrize(
    ("url", "compressed"),
    [
        ("http://127.0.0.1:8080", False),
        ("http://localhost", False),
        ("http://[::1]:8080/prefix", False),
        ("http://localhost.example.org", True),
        ("https://ranks.example.org:8080", True),
    ],
)
def test_answers_of_other_machines_may_be_compressed(url: str, compressed: bool) -> None:
    assert ("Accept-Encoding" not in http_options(url, None)["headers"]) == compressed
