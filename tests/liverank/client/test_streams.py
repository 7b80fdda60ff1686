"""Streams of batches that the client sends one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import polars as pl
import pyarrow as pa
import pytest

from liverank import AsyncClient, Batch, Client, InvalidInput, ServerError
from tests.liverank.client.recorder import RECEIPT, Recorder, answer, client_of
from tests.service.server import Server


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
