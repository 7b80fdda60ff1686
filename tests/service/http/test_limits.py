"""Limits: a refusal names the limit, changes nothing, and does not affect other requests."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from liverank.client import Client
from liverank_service.errors import TooBusy
from liverank_service.formats import JSON
from liverank_service.formats.decode import PARSING_PRICES
from liverank_service.http.limits import ConcurrencyLimit, RequestContext
from liverank_service.settings import Settings
from tests.service.formats.test_arrow_limits import arrow
from tests.service.server import Server, connection_to, head, running, wait_for

PATIENCE = 1.0

ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with low limits."""
    with running(
        tmp_path_factory.mktemp("data"),
        max_body_bytes=100_000,
        max_batch_edges=100,
        max_key_bytes=16,
        max_queue_batches=3,
        max_queue_bytes=20_000,
        max_concurrent_requests=4,
        max_graphs=3,
        slow_client_seconds=10,
    ) as server:
        server.http.put("/graphs/g")
        yield server


@contextlib.contextmanager
def busy(server: Server, graph: str) -> Iterator[None]:
    """Blocks the graph's writer."""
    pipeline = server.catalog.get(graph).pipeline
    gate = threading.Event()
    done = pipeline.call(lambda _: gate.wait(60))
    try:
        yield
    finally:
        gate.set()
        done.result(60)
        wait_for(lambda: pipeline.batches.jobs == 0)


# Queues


def test_a_full_queue_refuses_batches_and_leaves_reads_alone(small: Server) -> None:
    small.http.post("/graphs/g/batches", json={"insert": [["a", "b"]]})
    before = small.http.get("/graphs/g").json()["version"]
    batch = {"insert": [["a", "c"]]}
    waiting: list[httpx.Response] = []

    def send() -> None:
        waiting.append(httpx.post(small.url("graphs/g/batches"), json=batch, timeout=60))

    with busy(small, "g"):
        threads = [threading.Thread(target=send) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_for(lambda: small.catalog.get("g").pipeline.batches.jobs == 3)
        answer = small.http.post("/graphs/g/batches", json=batch)
        assert answer.status_code == 429
        assert answer.json()["type"] == "urn:liverank:problem:queue-full"
        assert int(answer.headers["retry-after"]) >= 1
        assert small.http.get("/graphs/g/top").status_code == 200
        assert small.http.get("/graphs/g/ranks/a").status_code == 200
        # Other graphs have their own queues.
        assert small.http.post("/graphs/default/batches", json=batch).status_code == 200
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in waiting] == [200, 200, 200]
    # Refused batches have no version.
    assert small.http.get("/graphs/g").json()["version"] == before + 3


@pytest.mark.parametrize("path", ["/graphs/g/batches", "/graphs/g/sets/s"])
def test_a_batch_that_the_queue_has_no_bytes_for_is_refused_before_its_body(
    small: Server, path: str
) -> None:
    with busy(small, "g"):
        sent = threading.Thread(
            target=lambda: httpx.post(
                small.url("graphs/g/batches"), json={"vertices": ["v"]}, timeout=60
            )
        )
        sent.start()
        wait_for(lambda: small.catalog.get("g").pipeline.batches.jobs == 1)
        with connection_to(small) as connection:
            request = head(path, 90_000)
            connection.sendall(request.replace(b"POST", b"PUT") if "sets" in path else request)
            assert connection.recv(100).startswith(b"HTTP/1.1 429 ")
    sent.join()


def test_computations_have_a_limit_of_their_own(small: Server) -> None:
    small.http.post("/graphs/g/batches", json={"insert": [["a", "b"]]})
    url = small.url("graphs/g/personalized/a")

    def read() -> None:
        # what came before may not have left yet
        while httpx.get(url, timeout=60).status_code == 429:
            time.sleep(0.01)

    with busy(small, "g"):  # which is a computation itself
        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        wait_for(lambda: small.catalog.get("g").pipeline.computations.jobs == 3)
        assert small.http.get(url).status_code == 429
        small.catalog.get("g").pipeline.batches.check(1)  # batches are not refused because of it
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(
    ("method", "path", "call"),
    [
        ("get", "top?view=v", "top"),
        ("get", "ranks?view=v", "ranks"),
        ("get", "ranks/a?view=v", "ranks/{vertex}"),
        ("post", "ranks?view=v", "ranks"),
        ("post", "personalized", "personalized"),
        ("delete", "views/v", "views/{view}"),
        ("delete", "watched/w", "watched/{name}"),
    ],
)
def test_calls_that_a_full_queue_refuses_declare_it(
    small: Server, method: str, path: str, call: str
) -> None:
    ring = [[f"v{place}", f"v{(place + 1) % 90}"] for place in range(90)]
    small.http.post("/graphs/g/batches", json={"insert": [*ring, ["a", "v0"]]})
    view = {"teleport": "uniform", "target_error": 1e-9, "refresh": "read"}
    assert small.http.put("/graphs/g/views/v", json=view).is_success
    insert = [["v0", f"{time.monotonic_ns() % 10**12}"]]  # after which it has to be solved
    assert small.http.post("/graphs/g/batches", json={"insert": insert}).is_success
    body = {"queries": [{"seeds": {"a": 1}}]} if call == "personalized" else {"vertices": ["a"]}
    with busy(small, "g"):
        pipeline = small.catalog.get("g").pipeline
        waiting = [pipeline.call(lambda _: None) for _ in range(3 - pipeline.computations.jobs)]
        json = body if method == "post" else None
        answer = small.http.request(method, f"/graphs/g/{path}", json=json)
        assert answer.status_code == 429
    for each in waiting:
        each.result(60)
    declared = small.http.get("/openapi.json").json()["paths"][f"/graphs/{{graph}}/{call}"][method]
    assert "429" in declared["responses"]


def test_the_client_waits_for_a_full_queue(small: Server) -> None:
    def send() -> None:
        httpx.post(small.url("graphs/g/batches"), json={}, timeout=60)

    with Client(str(small.http.base_url)) as client:
        receipts: list[Any] = []
        last = threading.Thread(target=lambda: receipts.append(client.send("g")))
        with busy(small, "g"):
            threads = [threading.Thread(target=send) for _ in range(3)]
            for thread in threads:
                thread.start()
            pipeline = small.catalog.get("g").pipeline
            wait_for(lambda: pipeline.batches.jobs == 3)
            refused = pipeline.batches.refused
            last.start()
            wait_for(lambda: pipeline.batches.refused > refused)
        for thread in (*threads, last):
            thread.join()
    assert receipts[0].version == small.http.get("/graphs/g").json()["version"]


# Requests and bodies


def test_requests_are_counted_by_kind_and_released() -> None:
    capacity = ConcurrencyLimit(Settings(max_concurrent_requests=1))
    reader, writer, late = RequestContext("1"), RequestContext("2"), RequestContext("3")
    capacity.enter(reader, "read")
    capacity.enter(writer, "other")
    with pytest.raises(TooBusy, match="too many concurrent reads; the limit is 1"):
        capacity.enter(late, "read")
    capacity.leave(late)
    assert capacity.in_progress == {"read": 1, "other": 1}
    capacity.leave(reader)
    capacity.enter(late, "read")


def test_bytes_of_bodies_are_counted_over_all_requests() -> None:
    capacity = ConcurrencyLimit(Settings(max_receiving_bytes=100))
    first, second = RequestContext("1"), RequestContext("2")
    capacity.hold(first, 500)  # alone: never refused
    with pytest.raises(TooBusy, match="too many bytes of bodies"):
        capacity.hold(second, 1)
    capacity.release_body(first)
    capacity.hold(second, 60)
    capacity.hold(first, 40)
    with pytest.raises(TooBusy):
        capacity.hold(first, 1)
    capacity.leave(first)
    capacity.leave(second)
    assert capacity.receiving == 0


def test_a_body_that_needs_more_than_the_limit_passes_beside_small_ones() -> None:
    capacity = ConcurrencyLimit(Settings(max_receiving_bytes=800))
    small, large, late = RequestContext("1"), RequestContext("2"), RequestContext("3")
    capacity.hold(small, 100)
    capacity.hold(large, 5000)
    with pytest.raises(TooBusy):
        capacity.hold(late, 1)
    capacity.leave(large)
    capacity.hold(late, 700)
    with pytest.raises(TooBusy):  # the others are not small any more
        capacity.hold(small, 1)


@pytest.mark.parametrize(
    "path", ["batches", "sets/s", "ranks", "subgraph", "personalized"], ids=lambda path: path
)
def test_what_parsing_takes_counts_and_no_longer_than_it_takes(
    small: Server, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = small.app.state.limit
    body = b'{"vertices":["a"]}' + b" " * 50_000
    if path == "personalized":
        body = b'{"queries":[{"seeds":{"a":1}}]}' + b" " * 50_000
    small.http.post("/graphs/g/batches", json={"vertices": ["a"]})
    held: list[int] = []
    hold = limit.hold

    def counted(context: RequestContext, count: int) -> None:
        hold(context, count)
        held.append(limit.receiving)

    monkeypatch.setattr(limit, "hold", counted)
    send = small.http.put if path == "sets/s" else small.http.post
    assert send(f"/graphs/g/{path}", content=body).status_code == 200
    assert max(held) == len(body) * (1 + PARSING_PRICES[JSON])
    assert limit.receiving == 0


def test_more_writers_than_there_are_places_are_refused_and_readers_are_not(small: Server) -> None:
    url = small.url("graphs/g/batches")
    with contextlib.ExitStack() as stack:
        for _ in range(4):  # a missing body counts
            connection = stack.enter_context(connection_to(small))
            connection.sendall(head("/graphs/g/batches", 10))
        wait_for(lambda: small.app.state.limit.in_progress["other"] == 4)
        answer = httpx.post(url, json={})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["type"] == "urn:liverank:problem:too-busy"
        assert small.http.get("/graphs/g/top").status_code == 200
    wait_for(lambda: small.app.state.limit.in_progress["other"] == 0)
    assert httpx.post(url, json={}).status_code == 200


def test_too_many_edges_are_refused(small: Server) -> None:
    edges = [["a", str(i)] for i in range(101)]
    answer = small.http.post("/graphs/g/batches", json={"insert": edges})
    assert answer.status_code == 413
    assert answer.json()["detail"] == ("batch has 101 edges and vertices; the limit is 100")
    assert small.http.post("/graphs/g/batches", json={"insert": edges[:100]}).status_code == 200


@pytest.mark.parametrize("field", ["insert", "delete", "vertices"])
def test_a_key_that_is_too_long_is_refused_by_field_and_index(small: Server, field: str) -> None:
    short, long = "é" * 8, "é" * 8 + "x"
    content = [short, long] if field == "vertices" else [[short, short], [short, long]]
    answer = small.http.post("/graphs/g/batches", json={field: content})
    assert answer.status_code == 422
    problem = answer.json()
    assert (problem["field"], problem["index"]) == (field, 1)
    assert problem["detail"].endswith("expected a key of at most 16 bytes, got 17")


def test_too_many_graphs_are_refused(small: Server) -> None:
    small.http.put("/graphs/third")
    answer = small.http.put("/graphs/fourth")
    assert answer.status_code == 507
    assert (
        answer.json()["detail"] == "the server holds 3 graphs, which is its limit; drop one first"
    )
    assert small.http.put("/graphs/third").status_code == 200
    small.http.delete("/graphs/third")
    assert small.http.put("/graphs/fourth").status_code == 201
    small.http.delete("/graphs/fourth")


@pytest.mark.parametrize("encoding", ["deflate", "br", "gzip, gzip", "x"])
def test_a_body_with_another_coding_is_refused(small: Server, encoding: str) -> None:
    answer = small.http.post(
        "/graphs/g/batches", content=b"x", headers={"Content-Encoding": encoding}
    )
    assert answer.status_code == 415
    assert answer.json()["accepted"] == ["zstd", "gzip", "identity"]


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_compressed_body_is_what_it_decompresses_to(small: Server, coding: str) -> None:
    path = small.new_graph()
    body = b'{"insert": [["a", "b"], ["b", "c"]]}'
    headers = {"Content-Encoding": coding, "Idempotency-Key": "once"}
    answer = small.http.post(
        f"{path}/batches", content=pa.compress(body, coding, asbytes=True), headers=headers
    )
    assert answer.json()["inserted"] == 2
    # the body that counts is the decompressed one
    again = small.http.post(f"{path}/batches", content=body, headers={"Idempotency-Key": "once"})
    assert again.json() == answer.json()
    asked = small.http.post(
        f"{path}/ranks",
        content=pa.compress(b'{"vertices": ["a", "z"]}', coding, asbytes=True),
        headers={"Content-Encoding": coding},
    )
    assert asked.json()["ranks"][1] is None
    small.http.delete(path)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_body_that_decompresses_to_too_much_is_refused(small: Server, coding: str) -> None:
    body = pa.compress(b" " * 50_000_000, coding, asbytes=True)
    assert len(body) < 100_000
    answer = small.http.post(
        "/graphs/g/batches", content=body, headers={"Content-Encoding": coding}
    )
    assert answer.status_code == 413
    assert answer.json()["detail"] == "body exceeds the 100,000-byte limit"
    wait_for(lambda: small.app.state.limit.receiving == 0)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_damaged_compressed_body_is_refused(small: Server, coding: str, cut: int) -> None:
    body = pa.compress(b'{"insert": [["a", "b"], ["b", "c"]]}', coding, asbytes=True)
    for damaged in (body[:-cut], b"x" * cut):
        answer = small.http.post(
            "/graphs/g/batches", content=damaged, headers={"Content-Encoding": coding}
        )
        assert answer.status_code == 422
        assert answer.json()["field"] == "body"
        assert answer.json()["detail"].startswith(f"body: expected {coding}")


# JSON with duplicate members


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"insert": [["a", "b"]], "insert": [["c", "d"]]}', "insert"),
        (b'{"insert": [["a", "b"]], "\\u0069nsert": [["c", "d"]]}', "insert"),
        (b'{"delete": {"source": ["a"], "target": ["b"], "source": ["c"]}}', "source"),
        (b'{"vertices": ["a"] , "vertices" \n : ["a"]}', "vertices"),
    ],
)
@pytest.mark.parametrize("padding", [0, 70_000], ids=["small", "large"])
def test_a_duplicate_member_is_refused(
    small: Server, body: bytes, field: str, padding: int
) -> None:
    answer = small.http.post("/graphs/g/batches", content=body + b" " * padding)
    assert answer.status_code == 422
    assert answer.json()["field"] == field
    assert answer.json()["detail"] == f"{field}: duplicate member"


@pytest.mark.parametrize("key", ['a":b', 'a\\": ', '"', '":', "insert", 'x":"y":'])
def test_a_key_that_looks_like_a_member_is_only_a_key(small: Server, key: str) -> None:
    answer = small.http.post("/graphs/g/batches", json={"insert": [[key, key]]})
    assert answer.status_code == 200


# Arrow streams that expand when decoded


def test_a_stream_that_decompresses_to_too_much_is_refused(small: Server) -> None:
    table = pa.table({name: ["x" * 60_000] for name in ("source", "target")})
    body = arrow(table, "zstd")
    assert len(body) < 2_000
    answer = small.http.post("/graphs/g/batches", content=body, headers=ARROW)
    assert answer.status_code == 413
    assert answer.json()["detail"].startswith("body decodes to ")


def test_a_stream_whose_dictionary_is_used_too_often_is_refused(small: Server) -> None:
    column = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(90, np.int8)), pa.array(["x" * 10_000])
    )
    body = arrow(pa.table({"source": column, "target": column}))
    answer = small.http.post("/graphs/g/batches", content=body, headers=ARROW)
    assert answer.status_code == 413
    assert answer.json()["detail"] == (
        "body decodes to 910,364 bytes, which exceeds the 100,000-byte limit"
    )


def test_a_false_length_is_refused_before_memory_is_allocated(small: Server) -> None:
    body = bytearray(arrow(pa.table({"source": ["a"], "target": ["b"]}), "zstd"))
    whole = bytes(body)
    place = whole.index(b"\x28\xb5\x2f\xfd") - 8  # before the first zstd frame
    body[place : place + 8] = (2**50).to_bytes(8, "little")
    answer = small.http.post("/graphs/g/batches", content=bytes(body), headers=ARROW)
    assert answer.status_code == 413


def test_every_damaged_byte_of_a_stream_is_answered(small: Server) -> None:
    whole = arrow(pa.table({"source": ["a", "b"], "target": ["b", "c"]}), "lz4")
    for place in range(len(whole)):
        body = bytearray(whole)
        body[place] ^= 0xFF
        answer = small.http.post("/graphs/g/batches", content=bytes(body), headers=ARROW)
        assert answer.status_code in (200, 413, 422), (place, answer.text)


# Methods


def test_a_405_response_lists_the_allowed_methods(server: Server) -> None:
    for path, methods in (
        ("/graphs/default", "DELETE, GET, PUT"),
        ("/graphs/default/ranks", "GET, POST"),
        ("/graphs/default/ranks/a", "GET"),
        ("/graphs", "GET"),
        ("/keys", "GET, POST"),
        ("/livez", "GET"),
    ):
        answer = server.http.request("PATCH", path)
        assert (answer.status_code, answer.headers["allow"]) == (405, methods)
        detail = f"method: expected {methods}, got PATCH; /docs lists the calls"
        assert answer.json()["detail"] == detail
