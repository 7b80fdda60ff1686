"""Framing agrees with the parser about where requests end, whatever arrives, however it is cut."""

from __future__ import annotations

import random
from unittest.mock import Mock

import httptools
import pytest

from liverank_service.http.framing import MAX_HEAD_BYTES, Framing

Outcome = tuple[list[bytes], str]
"""The bodies of complete requests, and how parsing ended."""


class Parser:
    """llhttp, with or without `Framing`."""

    def __init__(self, framing: Framing) -> None:
        self.framing = framing
        self.bodies: list[bytes] = []
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def on_message_begin(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.in_trailers = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.in_trailers:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.in_trailers = True
        self.framing.headers_complete(self.headers)

    def on_chunk_header(self) -> None:
        self.framing.chunk_header()

    def on_chunk_complete(self) -> None:
        self.framing.chunk_complete()

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.framing.message_complete()
        self.bodies.append(self.body)


def parsed_at_once(data: bytes) -> Outcome:
    """By the parser alone, which stops at an upgrade."""
    parser = Parser(Mock())
    try:
        parser.parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        return parser.bodies, "upgrade"
    except httptools.HttpParserError:
        return parser.bodies, "error"
    return parser.bodies, "end"


def parsed_in_pieces(data: bytes, cuts: list[int]) -> Outcome:
    """By the parser, which gets each piece on its own; the data arrives cut at these places."""
    parser = Parser(Framing())
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        part, place = data[start:end], 0
        while place < len(part):
            last, place = place, parser.framing.piece(part, place)
            assert place > last
            try:
                parser.parser.feed_data(part[last:place])
            except httptools.HttpParserUpgrade as upgrade:
                assert upgrade.args[0] == place - last  # noqa: PT017
            except httptools.HttpParserError:
                return parser.bodies, "error"
    return parser.bodies, "end"


def requests(choose: random.Random) -> bytes:
    """Pipelined requests of every kind, sometimes with damaged bytes."""
    made = b"".join(
        b"\r\n" * choose.choice([0, 0, 0, 1, 3]) + request(choose)
        for _ in range(choose.randrange(1, 6))
    )
    for _ in range(choose.choice([0, 0, 1, 3])):
        place = choose.randrange(len(made))
        made = made[:place] + choose.choice([b"\r", b"\n", b":", b"0", b""]) + made[place + 1 :]
    return made


def request(choose: random.Random) -> bytes:
    body = bytes(choose.choices(b"ab\n\r;0 ", k=choose.randrange(40)))
    fills = b"".join(b"X: %b\r\n" % (b"y" * choose.randrange(30)) for _ in range(3))
    head = b"POST / HTTP/1.1\r\nHost: a\r\n" + fills
    counted = b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    upgrade = b"Connection: upgrade\r\nUpgrade: x\r\n"
    return choose.choice(
        [
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET / HTTP/1.0\r\n\r\n",
            b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
            b"HEAD / HTTP/1.1\r\nHost: a\r\n" + upgrade + b"\r\n",
            head + counted,
            head + upgrade + counted,
            head + b"Transfer-Encoding: chunked\r\n\r\n" + in_chunks(choose, body),
        ]
    )


def in_chunks(choose: random.Random, body: bytes) -> bytes:
    chunks = b""
    while body:
        size = choose.randrange(1, len(body) + 1)
        extension = choose.choice([b"", b";a=b", b';q="x"'])
        zeros = b"0" * choose.randrange(3)
        chunks += b"%b%x%b\r\n%b\r\n" % (zeros, size, extension, body[:size])
        body = body[size:]
    return chunks + b"0\r\n" + choose.choice([b"", b"T: 1\r\n", b"T: 1\r\nU: 2\r\n"]) + b"\r\n"


@pytest.mark.parametrize("seed", range(8))
def test_framing_agrees_with_the_parser(seed: int) -> None:
    choose = random.Random(seed)
    ends = set()
    for _ in range(250):
        data = requests(choose)
        cuts = sorted(choose.sample(range(len(data)), 3))
        in_pieces = parsed_in_pieces(data, cuts)
        assert in_pieces == parsed_in_pieces(data, list(range(1, len(data)))), data
        at_once = parsed_at_once(data)
        ends.add(at_once[1])
        if at_once[1] != "upgrade":
            assert in_pieces == at_once, data
    assert ends == {"end", "error", "upgrade"}


@pytest.mark.parametrize("digits", [b"0" * 17 + b"5", b"f" * 17])
def test_a_chunk_size_of_too_many_digits_is_refused(digits: bytes) -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert parsed_in_pieces(head + digits + b"\r\nabcde\r\n0\r\n\r\n", []) == ([], "error")


def test_what_follows_the_size_of_a_chunk_in_its_line_counts_towards_the_head() -> None:
    framing = Framing()
    framing.headers_complete([(b"transfer-encoding", b"chunked")])
    line = b"1;" + b"a" * (2 * MAX_HEAD_BYTES)
    # 16 digits and a line break are not counted
    assert framing.piece(line, 0) == MAX_HEAD_BYTES + 18
    assert framing.too_long
