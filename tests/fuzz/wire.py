"""Arbitrary requests over a socket to a real server.

Two kinds. Framed requests have a valid head and body, on a kept connection; many are batches for
graphs that are compared with a model: a refused batch must change nothing, an accepted one exactly
what it says. Wild requests are damaged anywhere. The server must never respond with 500, log a
failure, or stop.
"""

from __future__ import annotations

import json
import socket
import traceback
from collections import Counter
from dataclasses import asdict, dataclass, field
from http.client import HTTPException, HTTPResponse
from typing import Any, get_args

from liverank.choices import KeyKind
from liverank_service.http.access import REQUIRED_SCOPE
from tests.fuzz.blocks import described
from tests.fuzz.mutations import Case, Maker
from tests.fuzz.oracle import Model, decoded

_METHODS = ("GET", "GET", "GET", "POST", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS", "X")
_NAMES = (
    *("noise",) * 12,
    *("default", "a", "..", "%2e%2e", "%00", "%ff", "a%2Fb", "x" * 65, "é", "-a", ""),
)
_VERTICES = (
    *("a", "b", "1") * 4,
    "%00",
    "%ff",
    "%ed%a0%80",
    "a/b",
    "1",
    "9" * 30,
    "",
    "%F0%9F%98%80",
    "x" * 5000,
)
# a stream of changes has no end
_CALLS = [
    tuple(call.split(" ")) for call in REQUIRED_SCOPE if not call.endswith(("/keys", "/changes"))
]
_DROP = ("DELETE", "/graphs/{graph}")
_PATHS = (
    *("/", "//", "*", "/%", "/graphs", "/graphs/", "/graphs/{graph}", "/graphs/{graph}?"),
    *("/graphs/{graph}/top", "/graphs/{graph}/{vertex}", "/graphs/{graph}/watched", "/docs"),
    *("/openapi.json", "/static-offline-docs/{vertex}", "/static-offline-docs/../../{vertex}"),
)
_QUERIES = (
    *("",) * 50,
    *("k=10", "k=0", "k=-1", "k=1e3", "k=100000", "k=9999999999999999999999", "k="),
    *("offset=3", "offset=-1", "offset=99999999999999999999", "min_version=0", "min_version=x"),
    *("min_position=s::1", "min_position=s:1", "min_position=%ff::", "min_position="),
    *("timeout=0.01", "timeout=nan", "timeout=-1", "method=push", "method=x", "target_error=1e-3"),
    *("target=settled-set", "target=settled-top-k", "target=error", "target=x"),
    *("target_error=inf", "strategy=static", "strategy=auto", "strategy=x", "wait=durable"),
    *("rank=later", "rank=now", "rank=x", "on_conflict=add", "on_conflict=replace"),
    *("on_conflict=x", "among=a", "among=", "among=%ff", "form=published", "form=accelerated"),
    *("form=x", "trace=true", "trace=0", "trace=x", "direction=in", "direction=out"),
    *("direction=x", "limit=1", "limit=0", "limit=100000", "limit=x"),
    *("wait=x", "unknown=1", "k=1&k=2", "%00=%ff", "=", "&&&", "a" * 3000, "%"),
)
_RANKED = ("?strategy=static", "?form=published&strategy=static", "?trace=true")
_UNRANKED = ("?wait=durable", "?rank=later")
_REFUSED = ("?strategy=x", "?on_conflict=add")
"""Queries of batches that are ranked, only committed, or refused in an unweighted graph."""

_BODIES = (
    *(b"", b"{}", b"[]", b"null", b'{"seeds": {"a": 1}}', b'{"seeds": {"a": 1e400}}'),
    *(b'{"queries": [{"seeds": {"a": 1, "b": 2}, "k": 3}]}', b'{"vertices": ["a", "b"]}'),
    *(b'{"damping": 0.5}', b'{"keys": "integer"}', b'{"target_error": 1e-8, "storage": "float64"}'),
    *(b'{"sets": {"a": {"add": ["a"]}}}', b'{"queries": [{"seeds": {"a": 1}, "among": "a"}]}'),
    *(b'{"queries": [{"seeds": {"a": 1}, "among": ["b", "1"]}]}',),
    *(b'{"queries": []}', b'{"seeds": {"a": -1}}', b'{"seeds": {"": 1}}', b'{"k": true}'),
)
_HEADERS = (
    *("Accept: */*", "Accept-Encoding: gzip", "Content-Encoding: gzip", "Idempotency-Key: k1"),
    *("Idempotency-Key: ", f"Idempotency-Key: {'k' * 300}", "Origin: https://attacker.example"),
    *("Authorization: Bearer x", "X-Request-ID: a b", "X-Request-ID: mine", "Expect: 100-continue"),
    *("Content-Length: 5", "Transfer-Encoding: gzip, chunked", "Upgrade: websocket", "Host: evil"),
    *("Connection: close", "Connection: upgrade", "Range: bytes=0-1", "X-Long: " + "x" * 9000),
)
_MAY_FAIL = (503, 504, 507)
"""Acceptable refusals: too busy, not in time, out of memory."""


@dataclass
class Exchanged:
    """Counts of requests: batches by format, all others by status."""

    decoded: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    cut_off: int = 0
    failures: list[str] = field(default_factory=list)


class Wire:
    """One client of the server at `port`."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def ask(
        self, method: str, target: str, body: bytes = b"", headers: tuple[str, ...] = ()
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the response; keeps the connection if possible."""
        lines = [f"{method} {target} HTTP/1.1", "Host: localhost", *headers]
        if not any(line.lower().startswith("transfer-encoding") for line in headers):
            lines.append(f"Content-Length: {len(body)}")
        else:
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
        sent = "\r\n".join([*lines, "", ""]).encode() + body
        kept = self._socket is not None
        try:
            return self._exchange(method, sent)
        except (ConnectionError, HTTPException):
            if not kept:
                raise
            return self._exchange(method, sent)  # the server may have closed it

    def _exchange(self, method: str, sent: bytes) -> tuple[int, dict[str, str], bytes]:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=60)
        try:
            self._socket.sendall(sent)
            with HTTPResponse(self._socket, method=method) as answer:
                answer.begin()
                content = answer.read()
                if answer.will_close:
                    self.close()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, content
        except (OSError, HTTPException):
            self.close()
            raise

    def throw(self, sent: bytes) -> int | None:
        """The status of the response to arbitrary bytes; None without a response."""
        with socket.create_connection(("127.0.0.1", self._port), timeout=60) as wild:
            try:
                wild.sendall(sent)
                wild.settimeout(0.1)
                answer = self._start(wild)
                if answer is None:  # the server waits for more
                    wild.shutdown(socket.SHUT_WR)
                    wild.settimeout(60)
                    answer = wild.recv(65536)
            except ConnectionError:
                return None
        return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else None

    @staticmethod
    def _start(wild: socket.socket) -> bytes | None:
        try:
            return wild.recv(65536)
        except TimeoutError:
            return None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class _Followed:
    """A graph of the server, and a model of it."""

    def __init__(self, wire: Wire, name: str, kind: KeyKind) -> None:
        self.path = f"/graphs/{name}"
        self.kind = kind
        self._wire = wire
        self._model = Model()
        self._version = 0
        status, _, _ = wire.ask("PUT", self.path, json.dumps({"keys": kind}).encode())
        assert status == 201, f"{self.path} cannot be created: {status}"

    def send(self, case: Case, query: str, headers: tuple[str, ...]) -> bool:
        """Whether the batch is accepted; asserts that this is correct."""
        columns = decoded(case.content_type, case.body, self.kind)
        typed = (f"Content-Type: {case.content_type}", *headers)
        status, answered, content = self._wire.ask(
            "POST", f"{self.path}/batches{query}", case.body, typed
        )
        if columns is None or query in _REFUSED:
            assert 400 <= status < 500, f"a batch that is none is answered {status}"
            _check_problem(status, answered, content)
            return False
        counts, _ = self._model.apply(columns)
        self._version += 1
        assert status == (202 if query in _UNRANKED else 200), (status, content)
        receipt = json.loads(content)
        assert receipt["version"] == self._version
        if status == 200:
            assert {name: receipt[name] for name in asdict(counts)} == asdict(counts)
        return True

    def compare(self) -> None:
        """Asserts that nothing else changed it, and drops it."""
        self._wire.ask("POST", f"{self.path}/recompute")  # ranks all durable batches
        info = json.loads(self._wire.ask("GET", self.path)[2])
        found = (info["version"], info["vertices"], info["edges"])
        assert found == (self._version, len(self._model.ids), len(self._model.edges))
        assert self._wire.ask("DELETE", self.path)[0] == 204


def run(seed: int, block: int, size: int, wire: Wire) -> Exchanged:
    """One block of requests, determined by a seed and a number."""
    exchanged = Exchanged()
    maker = Maker(f"{seed}/wire/{block}")
    kinds: tuple[KeyKind, ...] = get_args(KeyKind)
    followed = {kind: _Followed(wire, f"followed-{block}-{kind}", kind) for kind in kinds}
    wire.ask("PUT", "/graphs/noise")
    wire.ask("POST", "/graphs/noise/batches", b'{"insert": [["a", "b"], ["b", "1"], ["1", "a"]]}')
    for index in range(size):
        case = maker.case()
        chance = maker.random.random()
        try:
            if chance < 0.5:
                _batch(maker, case, followed[case.kind], exchanged)
            elif chance < 0.9:
                _framed(maker, case, wire, exchanged)
            else:
                _wild(maker, case, wire, exchanged)
        except Exception:
            exchanged.failures.append(described(index, case))
    for graph in followed.values():
        try:
            graph.compare()
        except Exception:
            exchanged.failures.append(f"{graph.path}\n{traceback.format_exc()}")
    return exchanged


def _batch(maker: Maker, case: Case, graph: _Followed, exchanged: Exchanged) -> None:
    query = maker.random.choice(("", "", *_RANKED, *_UNRANKED, *_REFUSED))
    headers: tuple[str, ...] = ()
    if maker.random.random() < 0.3:
        headers = (maker.random.choice(("Transfer-Encoding: chunked", "Connection: close")),)
    taken = graph.send(case, query, headers)
    name = case.content_type.split(";")[0].lower()
    (exchanged.decoded if taken else exchanged.refused)[name] += 1


def _request(maker: Maker, case: Case) -> tuple[str, str, bytes, tuple[str, ...]]:
    """Method, target, body and further headers; mostly of an existing call."""
    choose = maker.random.choice
    method, path = choose(_METHODS), choose(_PATHS)
    if maker.random.random() < 0.7:
        method, path = choose(_CALLS)
    number = choose(("0", "1", "1", "-1", "x", "9" * 20))
    vertex = choose(_VERTICES)
    # the graphs with data are not dropped
    graph = choose(_NAMES[12:] if (method, path) == _DROP else _NAMES)
    analysis = choose(("levels", "components", "pagerank", vertex, number))
    path = path.format(
        graph=graph,
        vertex=vertex,
        name=vertex,
        view=vertex,
        source=vertex,
        id=vertex,
        version=number,
        analysis=analysis,
    )
    query = "&".join(filter(None, (choose(_QUERIES), choose(_QUERIES))))
    body = case.body if maker.random.random() < 0.3 else choose(_BODIES)
    headers = tuple(choose(_HEADERS) for _ in range(choose((0, 0, 0, 1, 2))))
    return method, f"{path}?{query}" if query else path, body, headers


def _framed(maker: Maker, case: Case, wire: Wire, exchanged: Exchanged) -> None:
    method, target, body, headers = _request(maker, case)
    allowed = [
        header
        for header in headers
        if not header.startswith(("Content-Length", "Transfer-Encoding", "Expect", "Upgrade"))
    ]
    status, answered, content = wire.ask(method, target, body, tuple(allowed))
    exchanged.statuses[status] += 1
    assert status < 500 or status in _MAY_FAIL, (method, target, status, content)
    if status >= 400 and method != "HEAD":
        _check_problem(status, answered, content)


def _check_problem(status: int, headers: dict[str, str], content: bytes) -> None:
    """Asserts a problem document."""
    assert headers["content-type"] == "application/problem+json", (headers, content)
    document: dict[str, Any] = json.loads(content)
    assert document["status"] == status


def _wild(maker: Maker, case: Case, wire: Wire, exchanged: Exchanged) -> None:
    method, target, body, headers = _request(maker, case)
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", *headers]
    if maker.random.random() < 0.5:
        lines.append(f"Content-Length: {len(body)}")
    sent = "\r\n".join([*lines, "", ""]).encode() + body
    for _ in range(maker.random.randrange(4)):
        sent = maker.damaged(sent)
    status = wire.throw(sent)
    if status is None:
        exchanged.cut_off += 1
    else:
        exchanged.statuses[status] += 1
        assert status < 500 or status in _MAY_FAIL, (sent, status)
