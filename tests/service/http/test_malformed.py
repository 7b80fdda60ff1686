"""Requests that are no valid HTTP, or name another host than their Host header."""

from __future__ import annotations

import json
import re

import pytest

from tests.service.server import Server, connection_to


def answer_to(server: Server, request: bytes) -> tuple[int, dict[str, object]]:
    """Status and body of the only response; the server closes the connection."""
    with connection_to(server) as connection:
        connection.sendall(request)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert len(re.findall(rb"^HTTP/1.1 ", answer, re.MULTILINE)) == 1, answer
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/" in head.lower()
    return int(head.split()[1]), json.loads(body)


def request_of(target: str, *hosts: str, version: str = "1.1") -> bytes:
    lines = [f"GET {target} HTTP/{version}", *(f"Host: {host}" for host in hosts)]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode()


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (request_of("/livez"), "expected one Host header, got 0"),
        (request_of("/livez", "localhost", "localhost"), "expected one Host header, got 2"),
        (request_of("/livez", "localhost", "other"), "expected one Host header, got 2"),
        (request_of("/livez", "a", "b", version="1.0"), "expected one Host header, got 2"),
        (
            request_of("http://attacker.example/livez", "localhost"),
            "the request's target is of host 'attacker.example', its Host header is 'localhost'",
        ),
        (
            request_of("http://localhost:81/livez", "localhost:80"),
            "the request's target is of host 'localhost:81', its Host header is 'localhost:80'",
        ),
        (
            request_of("HTTP://me@localhost/livez", "localhost"),
            "the request's target is of host 'me@localhost', its Host header is 'localhost'",
        ),
        (b"no request\r\n\r\n", "Invalid HTTP request received."),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
            "Invalid HTTP request received.",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "Invalid HTTP request received.",
        ),
    ],
)
def test_a_malformed_request_is_refused_with_the_reason(
    server: Server, request_: bytes, reason: str
) -> None:
    status, document = answer_to(server, request_)
    assert status == 400
    assert document["type"] == "urn:liverank:problem:malformed-request"
    assert document["detail"] == f"the request is malformed: {reason}"


@pytest.mark.parametrize(
    "request_",
    [
        request_of("http://LOCALHOST/livez", "localhost"),
        request_of("https://localhost:80/livez?a=http://other/", "localhost:80"),
        request_of("/livez", version="1.0"),
        request_of("/livez", "localhost", version="1.0"),
        request_of("/ranks/http://other/x", "localhost"),
        request_of("*", "localhost").replace(b"GET", b"OPTIONS"),
    ],
)
def test_a_request_that_names_its_host_is_no_malformed_one(server: Server, request_: bytes) -> None:
    assert answer_to(server, request_)[0] in (200, 404, 405, 422)
