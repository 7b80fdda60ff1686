"""Clients that send slowly, read nothing, or open many connections."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import httpx
import pytest

import liverank_service.http.access
from liverank_service.http.framing import MAX_HEAD_BYTES
from tests.service.server import Server, connection_to, head, running, wait_for

PATIENCE = 0.25

ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a short timeout for clients."""
    data = tmp_path_factory.mktemp("data")
    with running(data, max_connections=20, slow_client_seconds=PATIENCE) as server:
        yield server


def seconds_until_closed(connection: socket.socket) -> float:
    started = time.monotonic()
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(65536):
            pass
    return time.monotonic() - started


@pytest.mark.parametrize(
    "sent", [b"", b"GET /livez HT", b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-A: b"]
)
def test_an_incomplete_head_ends_the_connection(impatient: Server, sent: bytes) -> None:
    with connection_to(impatient) as connection:
        connection.sendall(sent)
        assert PATIENCE / 2 < seconds_until_closed(connection) < PATIENCE * 16


def test_a_request_that_waits_for_its_turn_is_not_slow(
    impatient: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Never:
        def take(self, turn: object) -> None:
            pass

    monkeypatch.setattr(liverank_service.http.access, "turns", lambda _: Never())
    body = b'{"insert": []}'
    with connection_to(impatient) as connection:
        connection.sendall(head("/graphs/default/batches", len(body)) + body)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK")
    with connection_to(impatient) as connection:
        connection.sendall(b"POST /graphs/default/bat")
        assert PATIENCE / 2 < seconds_until_closed(connection) < PATIENCE * 16


def test_a_head_sent_byte_by_byte_ends_the_connection(impatient: Server) -> None:
    with connection_to(impatient) as connection:
        started = time.monotonic()
        with contextlib.suppress(OSError):
            for byte in b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 100:
                connection.sendall(bytes([byte]))
                time.sleep(PATIENCE / 10)
        assert time.monotonic() - started < PATIENCE * 16


def test_an_incomplete_second_head_ends_the_connection(impatient: Server) -> None:
    with connection_to(impatient) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK")
        connection.sendall(b"GET /livez HT")
        assert PATIENCE / 2 < seconds_until_closed(connection) < PATIENCE * 16


def test_a_head_without_end_is_refused(impatient: Server) -> None:
    with connection_to(impatient) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\n")
        line = b"X-Fill: " + b"x" * 1000 + b"\r\n"
        with contextlib.suppress(OSError):
            for _ in range(2 * MAX_HEAD_BYTES // len(line)):
                connection.sendall(line)
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1000).startswith(b"HTTP/1.1 400 ")


def test_a_missing_body_is_answered_with_408_and_changes_nothing(impatient: Server) -> None:
    before = impatient.http.get("/graphs/default").json()
    with connection_to(impatient) as connection:
        connection.sendall(head("/graphs/default/batches", 50) + b"{")
        answer = connection.recv(2000)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"received only 1 bytes of the body within" in answer
        assert seconds_until_closed(connection) < PATIENCE * 16
    assert impatient.http.get("/graphs/default").json() == before


def test_the_rest_of_a_refused_body_may_arrive_for_a_while(impatient: Server) -> None:
    with connection_to(impatient) as connection:
        connection.sendall(head("/graphs/none/batches", 90_000))
        assert connection.recv(2000).startswith(b"HTTP/1.1 404 ")
        connection.sendall(b"x" * 90_000)
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(2000).startswith(b"HTTP/1.1 200 ")


def test_a_client_that_reads_no_response_is_disconnected(impatient: Server) -> None:
    with connection_to(impatient) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
        connection.settimeout(PATIENCE * 20)

        def ask_and_never_read() -> None:
            for _ in range(10_000):
                connection.sendall(request)
                time.sleep(0.001)

        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            ask_and_never_read()


def test_one_connection_too_many_is_closed_at_once(impatient: Server) -> None:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connection_to(impatient)) for _ in range(25)]
        closed = 0
        for connection in held:
            connection.settimeout(PATIENCE / 10)
            with contextlib.suppress(TimeoutError):
                try:
                    closed += connection.recv(1) == b""
                except ConnectionResetError:
                    closed += 1
        assert 5 <= closed < 25
    wait_for(lambda: _answers(impatient))


def _answers(server: Server) -> bool:
    try:
        return httpx.get(server.url("livez")).status_code == 200
    except httpx.TransportError:
        return False
