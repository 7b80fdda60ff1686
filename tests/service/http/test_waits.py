"""Requests that wait for a version or for a query: they end with their connection and with the
server, and keep no other request out.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from liverank_service.http.limits import ConcurrencyLimit, RequestContext
from liverank_service.settings import Settings
from tests.service.server import Server, connection_to, end_of, running, started, wait_for

PLACES = 6
KEY = "k" * 40
NEVER = "min_version=999999&timeout=300"
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("data")
    with running(data, max_concurrent_requests=3, max_waiting_requests=PLACES) as server:
        yield server


def waiting(server: Server) -> int:
    limit: ConcurrencyLimit = server.app.state.limit
    return limit.waiting[""]


@contextlib.contextmanager
def waiters(
    server: Server, count: int, path: str = "/graphs/default/top", key: str = ""
) -> Iterator[list[socket.socket]]:
    """Connections with a request each that waits for a version that never comes."""
    before = waiting(server)
    header = f"Authorization: Bearer {key}\r\n" if key else ""
    request = f"GET {path}?{NEVER} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n"
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connection_to(server)) for _ in range(count)]
        for connection in connections:
            connection.sendall(request.encode())
        wait_for(lambda: waiting(server) == before + count)
        yield connections
    wait_for(lambda: waiting(server) == before)


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.parametrize(
    ("path", "behind", "end"),
    [
        ("top", b"", socket.socket.close),
        ("top", b"", reset),
        ("ranks/a", LIVEZ * 10, socket.socket.close),
        ("personalized/a", LIVEZ * 10, reset),
        ("watched/none", b"GET /li", socket.socket.close),
        ("neighbors/a", b"GET /li", reset),
        ("explain/a", b"", socket.socket.close),
        ("edges", b"", reset),
    ],
)
def test_a_wait_ends_with_its_connection(
    small: Server, path: str, behind: bytes, end: Callable[[socket.socket], None]
) -> None:
    with waiters(small, PLACES, f"/graphs/default/{path}") as connections:
        for connection in connections:
            connection.sendall(behind)
            end(connection)
    graph = small.catalog.get("default").pipeline

    def are_cancelled() -> bool:
        views, commits = graph._views._waiting._waiting, graph._commits._waiting
        return all(view.cancelled() for _, view in views) and all(
            commit.cancelled() for _, commit in commits
        )

    wait_for(are_cancelled)


def test_a_client_that_closes_its_side_while_it_waits_is_answered(small: Server) -> None:
    with waiters(small, 1) as (connection,):
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"type":"urn:liverank:problem:wait-ended"' in answer
    assert b"closed its side of the connection" in answer


def test_those_who_wait_keep_no_other_request_out(small: Server) -> None:
    small.http.post("/graphs/default/batches", json={"insert": [["a", "b"]]})
    with waiters(small, PLACES):
        for path in (
            "/metrics",
            "/livez",
            "/readyz",
            "/graphs",
            "/graphs/default/top",
            "/graphs/default/ranks/a",
            "/graphs/default/top?min_version=1",
            "/graphs/default/batches/1",
        ):
            assert small.http.get(path).status_code == 200, path
        assert small.http.post("/graphs/default/batches", json={}).status_code == 200


def test_the_waiters_of_a_graph_are_limited(small: Server) -> None:
    other = small.new_graph()
    with waiters(small, PLACES):
        refused = small.http.get(f"/graphs/default/top?{NEVER}")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["type"] == "urn:liverank:problem:too-busy"
        assert refused.json()["detail"] == (
            "too many requests wait for graph 'default'; the limit is 6; retry later"
        )
        with waiters(small, 1, f"{other}/top"):
            pass


def test_the_waiters_of_a_key_are_limited(tmp_path: Path) -> None:
    with running(tmp_path, api_key=KEY, max_waiting_requests=PLACES) as server:
        server.http.headers["Authorization"] = f"Bearer {KEY}"
        other = server.http.post("/keys", json={"name": "other", "scope": "admin"}).json()["key"]
        path = server.new_graph()
        with (
            waiters(server, PLACES - 1, key=KEY),
            waiters(server, 1, f"{path}/top", KEY),
        ):
            refused = server.http.get(f"{path}/top?{NEVER}")
            assert refused.status_code == 503
            assert "too many requests wait with API key 'environment'" in refused.json()["detail"]
            with waiters(server, PLACES - 1, f"{path}/top", other):
                pass


def test_half_of_the_connections_may_wait() -> None:
    limit = ConcurrencyLimit(Settings(max_connections=10, max_waiting_requests=4))
    contexts = [RequestContext(str(number)) for number in range(6)]
    for number, context in enumerate(contexts[:5]):
        limit.enter(context, "read")
        limit.wait(context, f"g{number}", None)
        limit.wait(context, f"g{number}", None)  # counted once
    with pytest.raises(Exception, match="too many requests wait; the limit is 5"):
        limit.wait(contexts[5], "g5", None)
    assert limit.in_progress == {"read": 0, "other": 0}
    for context in contexts:
        limit.leave(context)
    assert not limit.waiting


# The end of the server


def test_a_server_that_stops_answers_those_who_wait(tmp_path: Path) -> None:
    answers: list[httpx.Response] = []
    with running(tmp_path) as server:
        url = server.url(f"graphs/default/top?{NEVER}")
        threads = [
            threading.Thread(target=lambda: answers.append(httpx.get(url, timeout=290)))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        wait_for(lambda: waiting(server) == 3)
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [503] * 3
    assert answers[0].json()["type"] == "urn:liverank:problem:not-ready"
    assert "stopping" in answers[0].json()["detail"]


def test_sigterm_ends_a_server_in_spite_of_every_kind_of_client(tmp_path: Path) -> None:
    lines = [
        f"GET /graphs/default/top?{NEVER} HTTP/1.1",
        "POST /graphs/default/batches HTTP/1.1\r\nContent-Length: 100",
        f"POST /graphs/none/batches HTTP/1.1\r\nContent-Length: {10**12}",
    ]
    with started(tmp_path) as (process, url), contextlib.ExitStack() as stack:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        connections = []
        for line in lines:
            connection = stack.enter_context(socket.create_connection(address, timeout=60))
            connection.sendall(f"{line}\r\nHost: localhost\r\n\r\n".encode())
            connections.append(connection)
        assert connection.recv(100).startswith(b"HTTP/1.1 404 ")
        in_progress = "liverank_http_requests_in_progress 3.0"  # with that for the metrics
        wait_for(lambda: in_progress in httpx.get(f"{url}/metrics").text)
        log = end_of(process)  # long before the clients give up
        for connection in connections[:2]:
            assert connection.recv(100).startswith(b"HTTP/1.1 503 ")
    assert "Traceback" not in log
