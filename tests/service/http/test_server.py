"""Unread bodies: the answer arrives, and the rest of the body is not parsed as a request."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from liverank_service.http.framing import MAX_DISCARDED_BYTES
from liverank_service.http.server import Connection as ServerConnection
from tests.service.server import Server, running, wait_for

PATIENCE = 1.0
QUIET_SECONDS = 0.4
"""For which a server waits for the rest of a body; 2 otherwise."""
LIMIT = 1_000_000
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("liverank_service.http.server.QUIET_SECONDS", QUIET_SECONDS)
        with running(tmp_path_factory.mktemp("data"), max_body_bytes=LIMIT) as server:
            yield server


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("data")
    with running(data, max_body_bytes=LIMIT, slow_client_seconds=PATIENCE) as server:
        yield server


class Connection:
    """A client that keeps its connection and reads bytes."""

    def __init__(self, server: Server) -> None:
        url = server.http.base_url
        assert url.port is not None
        self.socket = socket.create_connection((url.host, url.port), timeout=60)
        self._file = self.socket.makefile("rb")

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_for(self, seconds: float, piece: bytes, pause: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.send(piece)
            time.sleep(pause)

    def post(self, path: str, *headers: str) -> None:
        """The head of a request."""
        lines = [f"POST {path} HTTP/1.1", "Host: localhost", *headers, "", ""]
        self.send("\r\n".join(lines).encode())

    def answer(self) -> tuple[int, dict[str, str]]:
        """Status and headers of the next response; skips its body."""
        status = int(self._file.readline().split()[1])
        headers = {}
        while (line := self._file.readline().strip()) != b"":
            name, _, value = line.decode().partition(": ")
            headers[name] = value
        self._file.read(int(headers.get("content-length", "0")))
        return status, headers

    def is_closed(self) -> bool:
        """Waits for the end. Raises ConnectionResetError if the server reset the connection."""
        return self._file.read() == b""


@contextmanager
def connected(server: Server) -> Iterator[Connection]:
    with closing(Connection(server)) as connection:
        yield connection


def chunks(body: bytes, size: int = 50_000) -> bytes:
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))


@pytest.mark.parametrize("pieces", [1, 3, 50])
@pytest.mark.parametrize(
    ("path", "length", "status"),
    [
        ("/graphs/none/batches", 200_000, 404),
        ("/graphs/default/batches?wait=never", MAX_DISCARDED_BYTES, 422),
        ("/graphs/default/top", 100_000, 405),
        ("/nowhere", 1, 404),
    ],
)
def test_a_short_rest_is_discarded_and_the_connection_kept(
    one: Server, path: str, length: int, status: int, pieces: int
) -> None:
    with connected(one) as connection:
        for _ in range(3):
            connection.post(path, f"Content-Length: {length}")
            refused, headers = connection.answer()
            assert (refused, headers.get("connection")) == (status, None)
            rest = b"GET / HTTP/1.1\r\n\r\n".ljust(length)[:length]
            step = -(-length // pieces)
            for start in range(0, length, step):
                connection.send(rest[start : start + step])
            connection.send(LIVEZ)
            assert connection.answer()[0] == 200


def test_a_body_that_was_read_and_refused_keeps_the_connection(one: Server) -> None:
    with connected(one) as connection:
        for body in (b"{", b"[1, 2", b'{"insert": [["a"]]}'):
            connection.post("/graphs/default/batches", f"Content-Length: {len(body)}")
            connection.send(body)
            status, headers = connection.answer()
            assert (status, headers.get("connection")) == (422, None)
            connection.post("/graphs/default/batches", "Transfer-Encoding: chunked")
            connection.send(chunks(body))
            status, headers = connection.answer()
            assert (status, headers.get("connection")) == (422, None)


@pytest.mark.parametrize("before", [0, 100_000, LIMIT + 500_000])
def test_a_long_rest_ends_the_connection_after_the_answer(one: Server, before: int) -> None:
    length = LIMIT + 500_000
    with connected(one) as connection:
        connection.post("/graphs/default/batches", f"Content-Length: {length}")
        connection.send(b" " * before)  # the response is read after this is sent
        status, headers = connection.answer()
        assert (status, headers["connection"]) == (413, "close")
        connection.send(b" " * (length - before))
        assert connection.is_closed()


@pytest.mark.parametrize(
    ("path", "length", "status"),
    [
        ("/graphs/default/batches", LIMIT + 500_000, 413),
        ("/graphs/default/ranks", LIMIT + 500_000, 413),
        ("/graphs/none/batches", 500_000, 404),
        ("/graphs/none/batches", 5, 404),
    ],
)
def test_a_chunked_body_that_is_refused_ends_the_connection_after_the_answer(
    one: Server, path: str, length: int, status: int
) -> None:
    with connected(one) as connection:
        connection.post(path, "Transfer-Encoding: chunked")
        connection.send(chunks(b" " * length))
        refused, headers = connection.answer()
        assert (refused, headers["connection"]) == (status, "close")
        assert connection.is_closed()


@pytest.mark.parametrize("request_header", ["Connection: close", "X-Other: 1"])
def test_a_client_that_sends_all_and_then_reads_gets_the_answer(
    one: Server, request_header: str
) -> None:
    """Like most clients: one that is disconnected while sending does not read a response."""
    url = one.http.base_url
    name, _, value = request_header.partition(": ")
    for path, status in (("/graphs/default/batches", 413), ("/graphs/none/batches", 404)):
        client = http.client.HTTPConnection(url.host, url.port, timeout=60)
        with closing(client):
            client.request("POST", path, b" " * (2 * LIMIT), {name: value})
            assert client.getresponse().status == status


@pytest.mark.parametrize("value", ["close", "Close", "x-other, close"])
def test_a_client_that_asks_for_the_end_of_the_connection_gets_it(
    one: Server, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setattr(ServerConnection, "timeout_keep_alive_handler", lambda _: None)
    with connected(one) as connection:
        connection.send(LIVEZ.replace(b"\r\n\r\n", f"\r\nConnection: {value}\r\n\r\n".encode()))
        assert connection.answer()[0] == 200
        assert connection.is_closed()


@pytest.mark.parametrize("value", ["close", "Close", "x-other, close"])
def test_a_connection_that_ends_takes_the_rest_of_a_body(one: Server, value: str) -> None:
    with connected(one) as connection:
        connection.post("/nowhere", f"Connection: {value}", "Content-Length: 100000")
        assert connection.answer()[0] == 404
        for _ in range(10):
            connection.send(b" " * 10_000)
            time.sleep(0.01)
        assert connection.is_closed()


def test_a_body_that_waits_to_be_asked_for_is_asked_for_only_where_it_is_read(one: Server) -> None:
    expects = "Expect: 100-continue"
    with connected(one) as connection:
        connection.post("/graphs/default/batches", "Content-Length: 2", expects)
        assert connection.answer()[0] == 100
        connection.send(b"{}")
        status, headers = connection.answer()
        assert (status, headers.get("connection")) == (200, None)
        # Refused: the client may still send the body or not, so the connection is closed.
        connection.post("/graphs/default/batches", f"Content-Length: {LIMIT + 1}", expects)
        status, headers = connection.answer()
        assert (status, headers["connection"]) == (413, "close")
        started = time.monotonic()
        assert connection.is_closed()
        assert time.monotonic() - started < 10 * QUIET_SECONDS
    for sent in (b"", b" " * 10):
        with connected(one) as connection:
            connection.post("/graphs/none/batches", "Content-Length: 10", expects)
            connection.send(sent)
            status, headers = connection.answer()
            assert (status, headers["connection"]) == (404, "close")
            assert connection.is_closed()


def test_a_body_that_was_asked_for_and_is_too_long_ends_the_connection(one: Server) -> None:
    with connected(one) as connection:
        connection.post(
            "/graphs/default/batches", "Transfer-Encoding: chunked", "Expect: 100-continue"
        )
        assert connection.answer()[0] == 100
        connection.send(chunks(b" " * (LIMIT + 500_000)))
        status, headers = connection.answer()
        assert (status, headers["connection"]) == (413, "close")
        assert connection.is_closed()


def test_a_discarded_rest_does_not_count_as_a_request(one: Server) -> None:
    with connected(one) as connection:
        connection.post("/graphs/default/batches", f"Content-Length: {LIMIT + 1}")
        assert connection.answer()[0] == 413
        connection.send(b" " * 1000)
        capacity = one.app.state.limit
        wait_for(lambda: (capacity.in_progress["other"], capacity.receiving) == (0, 0))


@pytest.mark.parametrize(("piece", "pause"), [(b" ", PATIENCE / 20), (b" " * 100_000, 0.0)])
def test_a_rest_that_never_ends_is_cut_off(impatient: Server, piece: bytes, pause: float) -> None:
    with connected(impatient) as connection:
        connection.post("/graphs/default/batches", f"Content-Length: {10**15}")
        assert connection.answer()[0] == 413
        started = time.monotonic()
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            connection.send_for(20 * PATIENCE, piece, pause)
        assert time.monotonic() - started > PATIENCE / 2


@pytest.mark.parametrize("request_count", [1, 3])
def test_a_client_that_closes_its_side_gets_its_answers(one: Server, request_count: int) -> None:
    body = b'{"vertices": ["a"]}'
    with connected(one) as connection:
        for _ in range(request_count):
            connection.post("/graphs/default/batches", f"Content-Length: {len(body)}")
            connection.send(body)
        connection.socket.shutdown(socket.SHUT_WR)
        for _ in range(request_count):
            assert connection.answer()[0] == 200
        connection.socket.settimeout(4)  # before an idle connection is closed
        assert connection.is_closed()


def test_an_input_is_watched_only_while_a_request_waits_behind_another(
    one: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched: list[bool] = []
    watch = ServerConnection._watch_input

    def observed(protocol: ServerConnection) -> None:
        watch(protocol)
        watched.append(protocol._is_watched)

    monkeypatch.setattr("liverank_service.http.server.WATCH_SECONDS", 0.01)
    monkeypatch.setattr(ServerConnection, "_watch_input", observed)
    with connected(one) as connection:
        connection.send(2 * LIVEZ)
        assert [connection.answer()[0] for _ in range(2)] == [200, 200]
        wait_for(lambda: watched[-1:] == [False], 2)  # before an idle connection is closed
    assert watched[0]


def test_a_client_that_closes_its_side_within_a_request_is_disconnected(one: Server) -> None:
    with connected(one) as connection:
        connection.post("/graphs/default/batches", "Content-Length: 10")
        connection.send(b"{")
        connection.socket.shutdown(socket.SHUT_WR)
        assert connection.is_closed()
    limit = one.app.state.limit
    wait_for(lambda: (limit.in_progress["other"], limit.receiving) == (0, 0))
