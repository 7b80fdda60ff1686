"""Requests other than reads wait for their turn before they are parsed; reads do not."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import liverank_service.http.access
from liverank_service.http.access import REQUIRED_SCOPE, is_read
from liverank_service.http.framing import MAX_HEAD_BYTES
from liverank_service.http.server import Connection
from liverank_service.pipeline.waiting import Kind, turns
from tests.service.server import Server, connection_to, head, running, wait_for

KEY = "k" * 40
BATCH = json.dumps({"insert": [["a", "b"]]}).encode()


class Held:
    """Turns that nobody gets before `give`: those of writers, or of the kind that is held."""

    def __init__(self) -> None:
        self.waiting: list[Connection] = []
        self._kind: Kind | None = "writer"
        self._turns = turns

    def hold(self, kind: Kind) -> None:
        self._kind = kind

    def free(self) -> None:
        """Later ones get theirs."""
        self._kind = None

    def of(self, kind: Kind) -> Any:
        return self if kind == self._kind else self._turns(kind)

    def take(self, turn: Callable[[], object]) -> None:
        self.waiting.append(turn.__self__)  # type: ignore[attr-defined]

    def give(self) -> None:
        for connection in self.waiting:
            connection.loop.call_soon_threadsafe(connection._take_turn)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("data"), max_body_bytes=32 << 20) as server:
        yield server


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    held = Held()
    monkeypatch.setattr(liverank_service.http.access, "turns", held.of)
    return held


def sent_batch(connection: socket.socket, body: bytes = BATCH) -> None:
    connection.sendall(head("/graphs/default/batches", len(body)) + body)


def status_of(connection: socket.socket) -> int:
    return int(connection.recv(65536).split()[1])


def test_a_batch_waits_and_reads_do_not(server: Server, held: Held) -> None:
    with connection_to(server) as writer:
        sent_batch(writer)
        wait_for(lambda: held.waiting)
        keys = {"vertices": ["a"]}
        assert server.http.get("/graphs/default").status_code == 200
        assert server.http.post("/graphs/default/ranks", json=keys).status_code == 200
        assert server.http.post("/graphs/default/subgraph", json=keys).status_code < 500
        assert len(held.waiting) == 1
        assert server.app.state.limit.in_progress["other"] == 0  # it is not even parsed
        held.give()
        assert status_of(writer) == 200


def test_every_call_is_a_read_or_waits() -> None:
    for call, scope in REQUIRED_SCOPE.items():
        for name in ("graph", "vertex", "name", "id", "analysis", "source", "version", "view"):
            call = call.replace(f"{{{name}}}", "x")
        assert "{" not in call
        reads = scope == "read" or call.startswith("GET ")
        for end in (" HTTP/1.1\r\n", "?a=b HTTP/1.1\r\n"):
            assert is_read((call + end).encode()) == reads, call
    for other in (b"GET", b"POST /graphs/x/rank", b"POST /graphs/x/ranks/y HTTP/1.1", b"\r\n"):
        assert not is_read(other)


def test_a_batch_takes_one_turn_however_many_pieces_it_has(server: Server, held: Held) -> None:
    body = b'{"insert": [["a", "b"]]' + b" " * 8_000_000 + b"}"
    with connection_to(server) as writer:
        writer.sendall(head("/graphs/default/batches", len(body)))
        wait_for(lambda: held.waiting)
        held.give()
        writer.sendall(body)
        assert status_of(writer) == 200
    assert len(held.waiting) == 1


def test_the_rest_of_a_read_takes_no_turn(server: Server, held: Held) -> None:
    """Also if it was answered before."""
    body = b'{"vertices": ["a"]}'
    with connection_to(server) as reader:
        start = head("/graphs/default/subgraph?unknown=1", len(body))
        reader.sendall(start)
        assert status_of(reader) == 422
        reader.sendall(body)
        time.sleep(0.05)
        reader.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert status_of(reader) == 200
    assert not held.waiting


def test_who_waits_is_not_read_without_end(server: Server, held: Held) -> None:
    body = b'{"insert": [["a", "b"]]' + b" " * 16_000_000 + b"}"
    with connection_to(server) as writer:
        writer.settimeout(0.5)
        writer.sendall(head("/graphs/default/batches", len(body)))
        wait_for(lambda: held.waiting)
        sent = 0
        with suppress(TimeoutError):
            while sent < len(body):
                sent += writer.send(body[sent : sent + (1 << 16)])
        assert sent < len(body)
        assert len(held.waiting[0]._unparsed) < MAX_HEAD_BYTES + (1 << 20)
        held.give()
        writer.settimeout(60)
        writer.sendall(body[sent:])
        assert status_of(writer) == 200


def test_a_client_that_stops_sending_is_answered(server: Server, held: Held) -> None:
    with connection_to(server) as writer:
        sent_batch(writer)
        wait_for(lambda: held.waiting)
        writer.shutdown(socket.SHUT_WR)
        assert status_of(writer) == 200
        held.give()  # a second time
        assert writer.recv(65536) == b""


def test_a_client_that_sends_two_batches_and_then_stops_is_answered_twice(
    server: Server, held: Held
) -> None:
    with connection_to(server) as writer:
        sent_batch(writer)
        sent_batch(writer)
        wait_for(lambda: held.waiting)
        writer.shutdown(socket.SHUT_WR)
        answers = b""
        while received := writer.recv(65536):
            answers += received
    assert answers.count(b"HTTP/1.1 200") == 2


def test_a_client_that_leaves_is_forgotten(server: Server, held: Held) -> None:
    version = server.http.get("/graphs/default").json()["version"]
    with connection_to(server) as writer:
        writer.sendall(head("/graphs/default/batches", len(BATCH)))
        wait_for(lambda: held.waiting)
    wait_for(lambda: held.waiting[0].transport.is_closing())
    held.give()
    assert server.http.get("/graphs/default").json()["version"] == version


def test_a_connection_is_not_idle_while_it_waits(server: Server, held: Held) -> None:
    with connection_to(server) as writer:
        writer.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert status_of(writer) == 200
        sent_batch(writer)
        wait_for(lambda: held.waiting)
        assert held.waiting[0].timeout_keep_alive_task is None
        held.give()
        assert status_of(writer) == 200


def test_a_batch_behind_a_read_waits(server: Server, held: Held) -> None:
    """Both sent at once."""
    with connection_to(server) as writer:
        read = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
        writer.sendall(read + head("/graphs/default/batches", len(BATCH)) + BATCH + read)
        assert status_of(writer) == 200
        wait_for(lambda: held.waiting)
        held.give()
        answers = b""
        while answers.count(b"HTTP/1.1 200") < 2:
            answers += writer.recv(65536)
    assert len(held.waiting) == 1


def test_who_waits_when_the_server_stops_is_answered(tmp_path: Path, held: Held) -> None:
    with ExitStack() as stack:
        with running(tmp_path) as server:
            writer = stack.enter_context(connection_to(server))
            sent_batch(writer)
            wait_for(lambda: held.waiting)
        assert status_of(writer) == 200


def test_requests_of_many_connections_are_all_answered(server: Server) -> None:
    with ExitStack() as stack:
        writers = [stack.enter_context(connection_to(server)) for _ in range(50)]
        for writer in writers:
            sent_batch(writer)
        assert [status_of(writer) for writer in writers] == [200] * 50


# Strangers: who call pages, or have no valid key


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("data"), api_key=KEY) as server:
        yield server


def request(call: str, *headers: str, body: bytes = b"") -> bytes:
    length = [f"Content-Length: {len(body)}"] if body else []
    lines = [f"{call} HTTP/1.1", "Host: localhost", *headers, *length, "", ""]
    return "\r\n".join(lines).encode() + body


OPEN = ["GET /", "GET /docs", "GET /openapi.json", "GET /dashboard/main.js", "GET /nowhere"]
VALID = f"Authorization: Bearer {KEY}"


@pytest.mark.parametrize(
    "call",
    [
        *map(request, OPEN),
        *(request(call, VALID) for call in OPEN),
        request("GET /graphs"),
        request("GET /metrics"),
        request("GET /graphs/default/top", f"Authorization: Bearer {'x' * 40}"),
        request("GET /graphs/default/top", f"Authorization: Basic {KEY}"),
        request("GET /graphs/default/top", f"X-Authorization: Bearer {KEY}"),
        request("POST /graphs/default/ranks", body=f"\r\n{VALID}\r\n\r\n".encode()),
        request("POST /graphs/default/batches", body=BATCH),
    ],
)
def test_strangers_wait_for_turns_of_their_own(keyed: Server, held: Held, call: bytes) -> None:
    """While they wait, liveness and those with a key are served."""
    held.hold("stranger")
    with connection_to(keyed) as stranger:
        stranger.sendall(call)
        wait_for(lambda: held.waiting)
        for path in ("/livez", "/readyz?x=1", "/graphs/default"):
            with connection_to(keyed) as connection:
                connection.sendall(request(f"GET {path}", VALID))
                assert status_of(connection) in (200, 422)
        upper = VALID.replace("Authorization: Bearer", "AUTHORIZATION: BEARER")
        for name, body in (("ranks", b'{"vertices": ["a"]}'), ("batches", BATCH)):
            with connection_to(keyed) as connection:
                connection.sendall(request(f"POST /graphs/default/{name}", upper, body=body))
                assert status_of(connection) == 200
        assert len(held.waiting) == 1
        held.give()
        assert status_of(stranger) in (200, 401, 404)


def test_without_keys_pages_wait_and_calls_do_not(server: Server, held: Held) -> None:
    held.hold("stranger")
    with connection_to(server) as stranger:
        stranger.sendall(request("GET /openapi.json"))
        wait_for(lambda: held.waiting)
        assert server.http.get("/graphs/default").status_code == 200
        assert server.http.post("/graphs/default/batches", content=BATCH).status_code == 200
        assert len(held.waiting) == 1
        held.give()
        assert status_of(stranger) == 200


def test_only_the_first_of_pipelined_probes_is_served_at_once(server: Server, held: Held) -> None:
    held.hold("stranger")
    with connection_to(server) as prober:
        prober.sendall(3 * request("GET /livez"))
        assert status_of(prober) == 200
        wait_for(lambda: held.waiting)
        with connection_to(server) as other:
            other.sendall(request("GET /livez"))
            assert status_of(other) == 200
        held.free()
        held.give()
        assert prober.recv(65536).startswith(b"HTTP/1.1 200")


def test_a_flood_of_strangers_is_answered_in_the_end(keyed: Server) -> None:
    with ExitStack() as stack:
        flood = [stack.enter_context(connection_to(keyed)) for _ in range(40)]
        for connection in flood:
            connection.sendall(10 * request("GET /graphs/default/top"))
        answer = keyed.http.get("/graphs/default/top", headers={"Authorization": f"Bearer {KEY}"})
        assert answer.status_code == 200
        for connection in flood:
            received = b""
            while received.count(b"HTTP/1.1 401") < 10:
                received += connection.recv(65536)
