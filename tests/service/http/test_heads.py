"""Heads of requests: their size is limited wherever they are in a message or behind it, and they
take no memory while an earlier request is answered.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from liverank_service.http.framing import MAX_HEAD_BYTES
from tests.service.server import Server, ServerProcess, connection_to, running, serving

KEY = "k" * 40
FLOOD = 64 * 1024 * 1024
GROWTH = 24 * 1024 * 1024
"""Bytes by which a server may grow while it is sent FLOOD bytes."""
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("data"), slow_client_seconds=5.0) as server:
        yield server


def received(connection: socket.socket) -> bytes:
    """Everything until the server closes the connection."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            data += piece
    return data


def statuses(answer: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"^HTTP/1.1 (\d+) ", answer, re.MULTILINE)]


def head_of(length: int, *lines: bytes) -> bytes:
    """The head of GET /livez with exactly `length` bytes; the connection is closed afterwards."""
    start = b"\r\n".join([b"GET /livez HTTP/1.1", b"Host: localhost", *lines, b"X-Fill: "])
    return start + b"x" * (length - len(start) - 4) + b"\r\n\r\n"


def sent(server: Server, *pieces: bytes, pause: float = 0.0) -> bytes:
    """The responses to what is sent, until the connection ends."""
    with connection_to(server) as connection:
        with contextlib.suppress(OSError):
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause)
        return received(connection)


def in_parts(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


# The limit


@pytest.mark.parametrize("size", [MAX_HEAD_BYTES, 10_000, 1_001])
def test_a_head_has_exactly_the_documented_size_at_most(one: Server, size: int) -> None:
    fitting = head_of(MAX_HEAD_BYTES, b"Connection: close")
    assert statuses(sent(one, *in_parts(fitting, size))) == [200]
    longer = head_of(MAX_HEAD_BYTES + 1, b"Connection: close")
    answer = sent(one, *in_parts(longer, size))
    assert statuses(answer) == [400]
    assert b"request head exceeds 65,536 bytes" in answer


def test_a_later_head_is_counted_on_its_own(one: Server) -> None:
    fitting = head_of(MAX_HEAD_BYTES)
    last = head_of(MAX_HEAD_BYTES, b"Connection: close")
    assert statuses(sent(one, fitting * 3 + last)) == [200] * 4
    longer = head_of(MAX_HEAD_BYTES + 1, b"Connection: close")
    assert statuses(sent(one, LIVEZ * 5 + longer)) == [200] * 5 + [400]


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_the_end_of_a_head_may_be_cut_anywhere(one: Server, cut: int) -> None:
    fitting = head_of(MAX_HEAD_BYTES, b"Connection: close")
    assert statuses(sent(one, fitting[:-cut], fitting[-cut:], pause=0.05)) == [200]


def chunked(body: bytes, end: bytes = b"0\r\n\r\n", extension: bytes = b"") -> bytes:
    start = (
        b"POST /graphs/default/batches HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    return start + b"%x%b\r\n%b\r\n" % (len(body), extension, body) + end


@pytest.mark.parametrize("size", [1_000_000, 7])
def test_trailers_and_chunk_extensions_are_read_and_ignored(one: Server, size: int) -> None:
    body = b'{"vertices": ["a"]}'
    trailers = b"0\r\nX-Trailer: 1\r\nHost: attacker.example\r\n\r\n"
    for request in (
        chunked(body),
        chunked(body, trailers),
        chunked(body, trailers, b";name=value"),
        chunked(body, b"000000\r\n\r\n", b" "),
    ):
        answer = sent(one, *in_parts(request, size))
        assert statuses(answer) in ([200], [400]), answer
        assert (statuses(answer) == [400]) == (b" \r\n" in request)  # llhttp refuses the space


@pytest.mark.parametrize(
    "request_",
    [
        chunked(b"{}", b"0\r\nX-Fill: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n"),
        chunked(b"{}", b"0\r\n" + b"X-Fill: x\r\n" * (MAX_HEAD_BYTES // 11 + 1) + b"\r\n"),
        chunked(b"{}", extension=b";a=" + b"x" * MAX_HEAD_BYTES),
        chunked(b"{}", b"1;" + b"a" * 40_000 + b"\r\n \r\n1;" + b"a" * 40_000 + b"\r\n \r\n"),
    ],
    ids=["one long trailer", "many trailers", "a long extension", "two extensions"],
)
def test_trailers_and_chunk_extensions_count_as_the_head(one: Server, request_: bytes) -> None:
    answer = sent(one, request_)
    assert statuses(answer) == [400]
    assert b"request head exceeds 65,536 bytes" in answer


def test_many_small_chunks_are_no_long_head(one: Server) -> None:
    body = b'{"vertices": ["%b"]}' % (b"x" * 3_000)
    chunks = b"".join(b"%04x;a=b\r\n%c\r\n" % (1, byte) for byte in body)
    request = chunked(b"[", b"").partition(b"\r\n\r\n")[0] + b"\r\n\r\n" + chunks + b"0\r\n\r\n"
    assert len(request) > 10 * len(body)
    answer = sent(one, request)
    assert statuses(answer) == [200], answer


def test_pipelined_requests_are_answered_in_order(one: Server) -> None:
    batch = b"POST /graphs/default/batches HTTP/1.1\r\nHost: localhost\r\n"
    plain = batch + b"Content-Length: 19\r\n\r\n" + b'{"vertices": ["b"]}'
    in_chunks = batch + b"Transfer-Encoding: chunked\r\n\r\n13\r\n" + b'{"vertices": ["c"]}'
    last = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    requests = LIVEZ + plain + LIVEZ + in_chunks + b"\r\n0\r\n\r\n" + plain + LIVEZ + last
    for size in (len(requests), 100, 3):
        assert statuses(sent(one, *in_parts(requests, size))) == [200] * 6 + [404]


# Memory: a server process that is sent far more than it may keep


def flood(process: ServerProcess, start: bytes, piece: bytes) -> None:
    """Sends FLOOD bytes, less where the server stops reading or ends the connection."""
    with socket.create_connection(
        ("127.0.0.1", process.http.base_url.port or 0), timeout=0.5
    ) as connection:
        connection.sendall(start)
        with contextlib.suppress(OSError):
            for _ in range(FLOOD // len(piece)):
                connection.sendall(piece)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("data")
    with serving(data, api_key=KEY, slow_client_seconds=60) as process:
        yield process


WAITING = (
    b"GET /graphs/default/top?min_version=999999&timeout=60 HTTP/1.1\r\nHost: localhost\r\n"
    b"Authorization: Bearer " + KEY.encode() + b"\r\n\r\n"
)
WITHOUT_KEY = (
    b"POST /graphs/default/batches HTTP/1.1\r\nHost: localhost\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
LINE = b"X-Fill: " + b"x" * 1014 + b"\r\n"


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (WAITING, LIVEZ * 1000),
        (WAITING + b"GET /livez HTTP/1.1\r\n", LINE * 64),
        (WITHOUT_KEY + b"0\r\n", LINE * 64),
        (WITHOUT_KEY + b"1\r\n \r\n1;", b"x" * 65_536),
        (b"GET /livez HTTP/1.1\r\nX-Fill: ", b"x" * 65_536),
        (b"GET /", b"x" * 65_536),
    ],
    ids=[
        "requests behind one that waits",
        "a head behind one that waits",
        "trailers after a refusal",
        "an extension",
        "a value without end",
        "a target without end",
    ],
)
def test_what_is_no_body_takes_no_memory(
    process: ServerProcess, start: bytes, piece: bytes
) -> None:
    flood(process, start, piece)  # so that buffers are allocated
    process.forget_peak()
    before = process.peak()
    floods = [threading.Thread(target=flood, args=(process, start, piece)) for _ in range(4)]
    for each in floods:
        each.start()
    for each in floods:
        each.join()
    assert process.peak() - before < GROWTH
