"""Streams of batches that the client sends one after the other."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import httpx
import polars as pl
import pyarrow as pa
import pytest

from liverank import AsyncClient, Batch, Client, InvalidInput, LiverankError, ServerError
from tests.liverank.client.recorder import RECEIPT, Recorder, answer, client_of
from tests.service.server import Server


def accepted(version: int) -> httpx.Response:
    return answer({"version": version, "status": "durable"}, 202)


def receipt(version: int) -> httpx.Response:
    return answer({**RECEIPT, "version": version})


class Applying:
    """A server that applies each batch, or rejects it, before it commits the next."""

    def __init__(self, rejects: int | None = None) -> None:
        self.requests: list[httpx.Request] = []
        self.committed = 0
        self.ranked = False
        self.rejects = rejects

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if request.method == "POST":
            self.committed += 1
            self.ranked = "rank" not in request.url.params
            return receipt(self.committed) if self.ranked else accepted(self.committed)
        version = int(request.url.path.rsplit("/", 1)[1])
        if version == self.rejects and (self.ranked or version < self.committed):
            problem = {"title": "Out of memory", "status": 507, "detail": "16 GiB needed"}
            return answer({"version": version, "status": "rejected", "problem": problem})
        pending = answer({"version": version, "status": "pending"})
        return receipt(version) if self.ranked else pending


def stream(batches: int = 3) -> Iterator[Any]:
    yield [("a", "b")]
    for _ in range(batches - 2):
        yield Batch(delete=[("a", "b")], on_conflict="replace")
    yield Batch(pa.table({"source": ["c"], "target": ["d"]}), strategy="static")


def check_stream(server: Applying) -> None:
    sent = [request for request in server.requests if request.method == "POST"]
    asked = [request.url.path for request in server.requests if request.method == "GET"]
    assert [request.url.params["wait"] for request in sent] == ["durable", "durable", "ranked"]
    assert [request.headers["idempotency-key"] for request in sent] == ["k-1", "k-2", "k-3"]
    assert [request.url.params.get("rank") for request in sent] == ["later", "later", None]
    assert [request.url.params.get("strategy") for request in sent] == [None, None, "static"]
    assert asked == ["/graphs/g/batches/1", "/graphs/g/batches/2"]


def test_batches_of_an_iterator_are_sent_as_they_come_and_ranked_once() -> None:
    server = Applying()
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


class Noticed(list[tuple[str, str]]):
    """Edges that note when they are read."""

    def __init__(self, edges: Iterable[tuple[str, str]]) -> None:
        super().__init__(edges)
        self.was_read = threading.Event()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        self.was_read.set()
        return super().__iter__()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_next_batch_is_read_while_one_is_sent_and_no_other(asynchronous: bool) -> None:
    batches = [Noticed([("a", str(number))]) for number in range(5)]
    server, read = Applying(), []

    def answered(request: httpx.Request) -> httpx.Response:
        number = server.committed
        if request.method == "POST" and number + 1 < len(batches):
            assert batches[number + 1].was_read.wait(10)
            read.append([batch.was_read.is_set() for batch in batches].count(True))
        return server(request)

    async def run() -> None:
        transport = httpx.MockTransport(answered)
        async with AsyncClient("http://liverank.test", transport=transport) as client:
            await client.send_all("g", batches)

    if asynchronous:
        asyncio.run(run())
    else:
        with client_of(answered) as client:
            client.send_all("g", iter(batches))
    assert read == [2, 3, 4, 5]
    sent = [request for request in server.requests if request.method == "POST"]
    assert [request.content for request in sent] == [
        b'{"insert":[["a","%d"]],"delete":[],"vertices":[],"remove":[],"sets":{}}' % number
        for number in range(5)
    ]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_stream_that_ends_does_not_wait_for_the_batch_that_is_read(asynchronous: bool) -> None:
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()

    def slow() -> Iterator[Any]:
        begun.set()
        release.wait(10)
        ended.set()
        yield "b", "c"

    def refusing(_: httpx.Request) -> httpx.Response:
        assert begun.wait(10)
        return answer({"title": "Invalid", "status": 422}, 422)

    async def run() -> None:
        transport = httpx.MockTransport(refusing)
        async with AsyncClient("http://liverank.test", transport=transport) as client:
            await client.send_all("g", batches)

    batches = [[("a", "b")], slow()]
    client = client_of(refusing)
    with pytest.raises(ServerError):
        asyncio.run(run()) if asynchronous else client.send_all("g", batches)
    assert not ended.is_set()
    release.set()
    assert ended.wait(10)


def test_python_ends_while_a_batch_is_read() -> None:
    script = """
import signal, threading, time
from liverank import Client

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell may have it ignore

def slow():
    time.sleep(0.5)  # until the result is waited for
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    time.sleep(60)
    yield "a", "b"

Client().send_all("g", [slow()])
"""
    run = [sys.executable, "-P", "-c", script]
    ended = subprocess.run(run, check=False, capture_output=True, text=True, timeout=30)
    assert "KeyboardInterrupt" in ended.stderr


@pytest.mark.parametrize("refuses", [False, True])
def test_an_invalid_batch_is_told_after_the_one_before_it_was_sent(refuses: bool) -> None:
    server, seen = Applying(), []

    def answered(request: httpx.Request) -> httpx.Response:
        response = server(request)
        return answer({"title": "Invalid", "status": 422}, 422) if refuses else response

    def watched() -> Iterator[Any]:
        for number, batch in enumerate([[("a", "b")], [("b",)], [("c", "d")]]):
            seen.append(number)
            yield batch

    with client_of(answered) as client, pytest.raises(LiverankError) as failure:
        client.send_all("g", watched())
    assert type(failure.value) is (ServerError if refuses else InvalidInput)
    assert (server.committed, seen) == (1, [0, 1])


def test_an_asynchronous_client_sends_the_same() -> None:
    async def batches() -> AsyncIterator[Any]:
        for batch in stream():
            yield batch

    async def run(given: Any) -> None:
        server = Applying()
        transport = httpx.MockTransport(server)
        async with AsyncClient("http://liverank.test", transport=transport) as client:
            receipts = await client.send_all("g", given, key="k")
        assert [receipt.version for receipt in receipts] == [1, 2, 3]
        check_stream(server)

    asyncio.run(run(batches()))
    asyncio.run(run(stream()))


@pytest.mark.parametrize(("rejects", "committed"), [(1, 2), (2, 3), (3, 5), (4, 5)])
def test_a_rejection_ends_a_stream_before_the_second_batch_after_it(
    rejects: int, committed: int
) -> None:
    async def run() -> None:
        transport = httpx.MockTransport(servers[1])
        async with AsyncClient("http://liverank.test", transport=transport) as client:
            await client.send_all("g", stream(5))

    servers = Applying(rejects), Applying(rejects)
    with client_of(servers[0]) as client, pytest.raises(ServerError) as failure:
        client.send_all("g", stream(5))
    assert failure.value.status == 507
    assert str(failure.value) == f"Out of memory: batch {rejects}: 16 GiB needed"
    with pytest.raises(ServerError, match=f"batch {rejects}"):
        asyncio.run(run())
    assert [server.committed for server in servers] == [committed, committed]


def test_an_outcome_is_asked_for_once_before_the_last_batch_is_ranked() -> None:
    server = Applying()
    with client_of(server) as client:
        receipts = client.send_all("g", stream(6))
    assert [receipt.version for receipt in receipts] == [1, 2, 3, 4, 5, 6]
    asked = [request.url.path[-1] for request in server.requests if request.method == "GET"]
    assert asked == ["1", "2", "3", "1", "2", "3", "4", "5"]


@pytest.mark.parametrize(
    "options", [{"strategy": "static"}, {"form": "published"}, {"trace": True}]
)
def test_only_the_last_batch_says_how_to_rank(options: dict[str, Any]) -> None:
    (name,) = options
    server = Applying()
    with client_of(server) as client:
        with pytest.raises(InvalidInput) as refused:
            client.send_all("g", [[("a", "b")], Batch([("b", "c")], **options), [("c", "d")]])
        assert server.committed == 1
        assert client.send_all("g", [Batch([("b", "c")], **options)])
    assert str(refused.value) == (
        f"batches: batch 2: expected no {name}, since only the last batch of a stream is ranked"
    )


def test_a_stream_without_batches_is_refused() -> None:
    with client_of(Recorder()) as client, pytest.raises(InvalidInput, match="at least one batch"):
        client.send_all("g", [])


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


def test_a_stream_of_integers_has_those_below_2_32_in_four_bytes(server: Server) -> None:
    ends = [(0, 2**32 - 1), (2**32, -1), (-(2**63), 2**63 - 1)]
    tables = [
        pa.table({"source": pa.array([source], pa.int64()), "target": pa.array([target])})
        for source, target in ends
    ]
    widths = []
    transport = httpx.HTTPTransport()

    def answered(request: httpx.Request) -> httpx.Response:
        if request.method == "POST" and request.url.path.endswith("/batches"):
            sent = pa.ipc.open_stream(request.content).read_all()
            widths.append([each.bit_width for each in sent.schema.types])
        return transport.handle_request(request)

    url = str(server.http.base_url)
    with transport, Client(url, transport=httpx.MockTransport(answered)) as client:
        client.create("integer-stream", keys="integer")
        client.send_all("integer-stream", tables)
    assert widths == [[32, 32], [64, 64], [64, 64]]
    with Client(url) as client:
        edges = client.export_edges("integer-stream").to_arrow().to_pylist()
    assert {(edge["source"], edge["target"]) for edge in edges} == set(ends)
