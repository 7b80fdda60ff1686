"""The Python client: its requests, retries and errors; then a real server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
import networkx as nx
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

import liverank.client.connection
from liverank import (
    AsyncClient,
    Batch,
    Client,
    InvalidInput,
    PersonalizedQuery,
    ServerError,
    ServerUnreachable,
)
from liverank.client import Receipt, SetChange, Snapshot
from tests.service.server import Server

Handler = Callable[[httpx.Request], httpx.Response]

RECEIPT: dict[str, Any] = {
    "version": 1,
    "ranked_version": 1,
    "revision": 2,
    "inserted": 2,
    "already_present": 0,
    "reweighted": 0,
    "deleted": 0,
    "not_found": 0,
    "new_vertices": 3,
    "strategy": "residual",
    "iterations": 1,
    "touched_vertices": 3,
    "error_bound": 1e-7,
    "converged": True,
    "seconds": {"total": 0.1},
    "form": "accelerated",
    "trace": None,
}
TOP: dict[str, Any] = {"version": 1, "revision": 2, "error_bound": 0.0, "ranks": []}


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
    monkeypatch.setattr(liverank.client.connection, "RETRY_PAUSES", (0.0, 0.0))


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
    assert table.column("source").type == pa.int64()


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


# Many batches


def accepted(version: int) -> httpx.Response:
    return answer({"version": version, "status": "durable"}, 202)


def receipt(version: int) -> httpx.Response:
    return answer({**RECEIPT, "version": version})


PENDING = {"version": 1, "status": "pending"}


def many() -> Recorder:
    """A server that accepts two batches, ranks a third, and reports on the others."""
    outcomes = answer(PENDING), accepted(2), receipt(3), receipt(1), receipt(2)
    return Recorder(accepted(1), *outcomes)


def stream() -> Iterator[Any]:
    yield [("a", "b")]
    yield Batch(delete=[("a", "b")], strategy="static")
    yield pa.table({"source": ["c"], "target": ["d"]})


def check_stream(server: Recorder) -> None:
    sent = [request for request in server.requests if request.method == "POST"]
    asked = [request.url.path for request in server.requests if request.method == "GET"]
    assert [request.url.params["wait"] for request in sent] == ["durable", "durable", "ranked"]
    assert [request.headers["idempotency-key"] for request in sent] == ["k-1", "k-2", "k-3"]
    assert [request.url.params.get("strategy") for request in sent] == [None, "static", None]
    assert asked == [f"/graphs/g/batches/{version}" for version in (1, 1, 2)]


def test_batches_of_an_iterator_are_sent_as_they_come_and_ranked_once() -> None:
    server = many()
    seen = []

    def watched() -> Iterator[Any]:
        for batch in stream():
            seen.append(len(server.requests))
            yield batch

    with client_of(server) as client:
        receipts = client.send_all("g", watched(), key="k")
    assert [receipt.version for receipt in receipts] == [1, 2, 3]
    check_stream(server)
    assert seen == [0, 0, 1]  # the last is known to be the last when the iterator ends


def test_an_asynchronous_client_sends_the_same() -> None:
    async def batches() -> AsyncIterator[Any]:
        for batch in stream():
            yield batch

    async def run(given: Any) -> None:
        server = many()
        transport = httpx.MockTransport(server)
        async with AsyncClient("http://liverank.test", transport=transport) as client:
            receipts = await client.send_all("g", given, key="k")
        assert [receipt.version for receipt in receipts] == [1, 2, 3]
        check_stream(server)

    asyncio.run(run(batches()))
    asyncio.run(run(stream()))


def test_a_batch_that_was_rejected_later_is_an_error() -> None:
    problem = {"title": "Out of memory", "status": 507, "detail": "16 GiB needed"}
    rejected = answer({"version": 1, "status": "rejected", "problem": problem})
    for outcomes in ([rejected], [answer(PENDING), accepted(2), receipt(3), rejected]):
        server = Recorder(accepted(1), *outcomes)
        with client_of(server) as client, pytest.raises(ServerError) as failure:
            client.send_all("g", stream())
        assert failure.value.status == 507
        assert str(failure.value) == "Out of memory: batch 1: 16 GiB needed"
        assert server.answers == []


def test_a_stream_without_batches_is_refused() -> None:
    with client_of(Recorder()) as client, pytest.raises(InvalidInput, match="at least one batch"):
        client.send_all("g", [])


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
        asked = client.ranks(graph, pd.Series(["b", "nobody"]))
        assert asked.to_polars()["rank"].to_list() == [top.ranks[0].rank, None]
        assert client.ranks(graph, pl.Series(["b"])).ranks == asked.ranks[:1]
        assert client.ranks(graph, pa.array(["b"])).ranks == asked.ranks[:1]


def test_several_keys_are_not_the_letters_of_one() -> None:
    with client_of(Recorder()) as client, pytest.raises(InvalidInput, match="the one key 'abc'"):
        client.ranks("g", "abc")


# Weights


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


def test_deletions_have_no_weights() -> None:
    with (
        client_of(Recorder()) as client,
        pytest.raises(InvalidInput, match="delete: expected pairs: a deletion has no weight"),
    ):
        client.send("g", delete=[("a", "b", 0.5)])


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


def test_a_stream_of_weighted_frames(server: Server) -> None:
    frames = [
        pl.DataFrame({"from": ["a", "b"], "to": ["b", "a"], "w": [number, 1.0]})
        for number in (1.0, 2.0, 2.0)
    ]
    batches = [Batch(frame, on_conflict="add") for frame in frames]
    with Client(str(server.http.base_url)) as client:
        client.create("weighted-stream", weighted=True)
        receipts = client.send_all(
            "weighted-stream", batches, source="from", target="to", weight="w"
        )
    assert [receipt.reweighted for receipt in receipts] == [0, 2, 2]


# Sets of vertices


def test_sets_are_changed_with_batches_and_read(server: Server) -> None:
    edges = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]
    with Client(str(server.http.base_url)) as client:
        client.create("with-sets")
        client.insert("with-sets", edges)
        assert client.put_set("with-sets", "mine", pd.Series(["d", "b"])).size == 2
        changed = {"mine": SetChange(add=["new"], remove=["d"])}
        frame = pl.DataFrame({"source": ["new"], "target": ["a"]})
        receipt = client.send("with-sets", frame, sets=changed)
        members = client.vertex_set("with-sets", "mine", min_version=receipt.version)
        assert members.vertices == ["b", "new"]
        assert set(client.top("with-sets", among="mine").to_dict()) == {"b", "new"}
        first = next(client.changes("with-sets", among="mine", top=2))
        assert isinstance(first, Snapshot)
        assert {place.vertex for place in first.top} == {"b", "new"}
        query = PersonalizedQuery({"a": 1, "nobody": 5}, unknown="ignore")
        (answer,) = client.personalized_many("with-sets", [query]).answers
        assert answer.ignored == ["nobody"]
        alone = client.personalized("with-sets", "a", 5, damping=0.5, among="mine")
        assert list(alone.to_dict()) == ["b", "new"]
        nothing = client.personalized("with-sets", "nobody", unknown="ignore")
        assert (nothing.ranks, nothing.ignored) == ([], ["nobody"])
        watched = client.watch("with-sets", "a's", PersonalizedQuery({"a": 1}, k=2))
        best = watched.ranks[0]
        assert client.watched_rank("with-sets", "a's", best.vertex).rank == best.rank
        client.drop_set("with-sets", "mine")
        with pytest.raises(ServerError) as refused:
            client.vertex_set("with-sets", "mine")
        assert refused.value.status == 404
