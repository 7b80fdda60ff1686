"""What a consumer does about the answers of the server, without a broker."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import pytest
import tenacity

from liverank.choices import Clock, OnConflict
from liverank.client import AsyncClient, ServerUnreachable
from liverank.client.call import json_body
from liverank.client.responses import GraphOptions
from liverank.sources import consumer as consuming
from liverank.sources import session
from liverank.sources.broker import Address, Connection, ReadAhead
from liverank.sources.consumer import (
    LETTER_BYTES,
    CannotContinue,
    Consumer,
    Interrupted,
    Letter,
    Target,
)
from liverank.sources.messages import Form, Message
from liverank.sources.reports import StateReports
from tests.service.server import Server

OPTIONS = GraphOptions(0.85, "uniform", "auto", 1e-6, "float64", "string")
RECEIPT = {
    **dict.fromkeys(("version", "ranked_version", "revision", "inserted", "already_present"), 1),
    **dict.fromkeys(("deleted", "not_found", "new_vertices", "iterations", "touched_vertices"), 0),
    **{"strategy": "auto", "error_bound": 0.0, "converged": True, "seconds": {}},
}

GRAPH = {
    **{"graph": "g", "version": 0, "revision": 1, "vertices": 0, "edges": 0, "error_bound": 0.0},
    **{"backend": "cpu", "options": msgspec.to_builtins(OPTIONS), "memory": {}},
}

Answer = Callable[[httpx.Request], httpx.Response | None]


class FakeServer:
    """Keeps a position as the server does; `answer` may answer before it does.

    taken  the bodies of its batches
    """

    def __init__(self, answer: Answer = lambda _: None) -> None:
        self.position: str | None = None
        self.taken: list[Any] = []
        self.keys: list[str] = []
        self._answer = answer

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.keys.append(request.headers["Idempotency-Key"])
        answer = self._answer(request)
        if answer is not None:
            return answer
        if self.keys[-1] not in self.keys[:-1] or self.position != request.url.params["to"]:
            if request.url.params.get("from") != self.position:
                return problem(409, "source-position", "another one")
            self.position = request.url.params["to"]
            self.taken.append(json.loads(request.content))
        return httpx.Response(200, json=RECEIPT)


def problem(status: int, name: str, detail: str, **members: Any) -> httpx.Response:
    document = {"type": f"urn:liverank:problem:{name}", "title": name, "detail": detail, **members}
    return httpx.Response(status, json={**document, "status": status})


def message(number: int, target: str | None = None) -> Message:
    edge = {"source": "a", "target": target or f"b{number}"}
    return Message(str(number), json.dumps(edge).encode(), 0.0)


def take(
    server: FakeServer,
    messages: list[Message],
    letters: list[Letter] | None = None,
    form: Form = "edge",
    options: GraphOptions = OPTIONS,
    on_conflict: OnConflict = "replace",
) -> None:
    async def keep(letter: Letter) -> None:
        assert letters is not None
        letters.append(letter)

    async def run() -> None:
        transport = httpx.MockTransport(server)
        async with AsyncClient("http://server", transport=transport) as client:
            positions = {} if server.position is None else {"": server.position}
            target = Target("g", "s", form, on_conflict)
            kept = None if letters is None else keep
            await Consumer(client, target, options, positions, kept).take("", messages)

    asyncio.run(run())


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consuming, "SERVER_PAUSES", tenacity.wait_none())
    monkeypatch.setattr("liverank.client.connection.RETRY_PAUSES", (0.0,))


def targets(server: FakeServer) -> list[str]:
    return [key for body in server.taken for key in body.get("insert", {"target": []})["target"]]


def test_a_group_is_one_batch_that_moves_the_position() -> None:
    server = FakeServer()
    take(server, [message(1), message(2)])
    take(server, [message(3)])
    assert server.position == "3"
    assert len(server.taken) == 2
    assert targets(server) == ["b1", "b2", "b3"]


def test_new_lists_are_part_of_a_group() -> None:
    server, letters = FakeServer(), list[Letter]()
    bodies = [{"replace": "a", "targets": ["x"]}, {"replace": "a", "targets": 3}]
    lists = [Message(str(n), json.dumps(body).encode(), 0.0) for n, body in enumerate(bodies, 2)]
    take(server, [message(1), *lists, message(4)], letters)
    (taken,) = server.taken
    assert taken == {"replace": {"a": ["x", "b4"]}, "vertices": ["b1"]}
    assert [letter["position"] for letter in letters] == ["3"]


def test_a_group_with_lists_and_weights_that_are_taken_is_divided() -> None:
    weighted = msgspec.structs.replace(OPTIONS, weighted=True)
    lower = {"source": "c", "target": "d", "operation": "delete", "weight": 2}
    bodies = [{"replace": "a", "targets": ["x"]}, lower, lower]
    messages = [Message(str(n), json.dumps(body).encode(), 0.0) for n, body in enumerate(bodies, 1)]
    server = FakeServer()
    take(server, messages, options=weighted, on_conflict="add")
    assert server.position == "3"
    assert server.taken == [
        {"replace": {"a": [["x", 1.0]]}},
        {"delete": {"source": ["c", "c"], "target": ["d", "d"], "weight": [2.0, 2.0]}},
    ]


def test_a_refused_group_is_split_until_the_message_is_found() -> None:
    def refuse(request: httpx.Request) -> httpx.Response | None:
        if b"poison" in request.content:
            return problem(422, "invalid-body", "insert[0]: poison", field="insert")
        return None

    server, letters = FakeServer(refuse), list[Letter]()
    messages = [message(each, "poison" if each in (3, 8) else None) for each in range(1, 10)]
    messages[5] = Message("6", b"no edge", 0.0)
    take(server, messages, letters)
    assert server.position == "9"
    assert targets(server) == [f"b{each}" for each in (1, 2, 4, 5, 7, 9)]
    assert {letter["position"] for letter in letters} == {"3", "6", "8"}
    assert all(letter["reason"] for letter in letters)
    with pytest.raises(CannotContinue, match=r"message '10'.*poison.*--dead-letter"):
        take(server, [message(10, "poison")])
    assert server.position == "9"


def test_a_large_message_is_cut_in_its_letter_and_consumption_goes_on() -> None:
    server, letters = FakeServer(), list[Letter]()
    size = 100 * 1000 * 1000
    large = b'{"source": "' + b"a" * (size - 29) + b'", "target": "b"}'
    take(server, [message(1), Message("2", large, 0.0), message(3)], letters)
    assert targets(server) == ["b1", "b3"]
    (letter,) = letters
    assert letter["reason"] == "message of 100,000,000 bytes exceeds the 16 MiB limit"
    assert letter["bytes"] == size
    assert letter["body"] == large[:LETTER_BYTES].decode()
    # in JSON, at worst, a letter fits what NATS and Kafka accept by default
    assert (
        len(json_body({**letter, "body": "\x00" * LETTER_BYTES, "reason": "\x00" * 1000})) < 2**20
    )


def test_a_batch_that_was_rejected_after_its_commit_is_passed_on_and_skipped() -> None:
    def reject(request: httpx.Request) -> httpx.Response | None:
        if b"none" in request.content:
            return problem(404, "unknown-set", "no set 'none'", field="sets", version=4)
        return None

    server, letters = FakeServer(reject), list[Letter]()
    bodies = [b'{"insert": [["a", "b"]]}', b'{"sets": {"none": {}}}', b'{"vertices": ["c"]}']
    take(server, [Message(str(n), each, 0.0) for n, each in enumerate(bodies)], letters, "batch")
    assert server.taken == [{"insert": [["a", "b"]]}, {}, {"vertices": ["c"]}]
    assert [letter["body"] for letter in letters] == [bodies[1].decode()]


def test_a_lost_answer_counts_once() -> None:
    lost = [True, True, True]

    def lose(request: httpx.Request) -> httpx.Response | None:
        if lost:
            lost.pop()
            server.position = request.url.params["to"]
            if len(server.keys) == 1:
                server.taken.append(json.loads(request.content))
            raise httpx.ReadError("the connection was lost")
        return None

    server = FakeServer(lose)
    take(server, [message(1)])
    assert targets(server) == ["b1"]
    assert len(set(server.keys)) == 1
    assert len(server.keys) == 4


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (problem(409, "source-position", "expected '7'", stored="7"), Interrupted),
        (problem(507, "out-of-memory", "no room", version=3), Interrupted),
        (problem(401, "unauthorized", "a key is missing"), CannotContinue),
        (problem(404, "unknown-graph", "there is no graph 'g'"), CannotContinue),
        (problem(422, "invalid-value", "on_conflict", field="on_conflict"), CannotContinue),
    ],
)
def test_other_refusals_say_nothing_about_the_messages(
    answer: httpx.Response, error: type[Exception]
) -> None:
    server, letters = FakeServer(lambda _: answer), list[Letter]()
    with pytest.raises(error):
        take(server, [message(1), message(2)], letters)
    assert (server.taken, letters) == ([], [])


def test_a_receipt_that_cannot_be_read_ends_it_with_the_reason() -> None:
    answers = [httpx.Response(200, json={"version": 1})]
    server = FakeServer(lambda _: answers.pop() if answers else None)
    with pytest.raises(CannotContinue, match=r"200, but .*missing required field"):
        take(server, [message(1)])
    assert len(server.keys) == 1


def test_a_server_of_another_kind_ends_the_session_with_the_reason() -> None:
    page = httpx.MockTransport(lambda _: httpx.Response(200, text="<html>"))

    async def run() -> None:
        async with AsyncClient("http://server", transport=page) as client:
            address, target = Address("fake://127.0.0.1", "edges"), Target("g", "s")
            reports = StateReports(client, "g", "s")
            await session.Sessions(client, FakeConnection, address, target, reports, 1.0).run()

    with pytest.raises(ServerUnreachable, match="200, but "):
        asyncio.run(run())


def test_a_server_without_room_is_asked_again_with_the_same_key() -> None:
    answers = [problem(507, "storage-full", "the disk is full")] * 3
    server = FakeServer(lambda _: answers.pop() if answers else None)
    take(server, [message(1)])
    assert targets(server) == ["b1"]
    assert len(set(server.keys)) == 1


def test_weights_are_added_up_only_where_there_are_weights() -> None:
    async def make() -> None:
        async with AsyncClient("http://server") as client:
            Consumer(client, Target("g", "s", on_conflict="add"), OPTIONS, {}, None)

    with pytest.raises(CannotContinue, match="has no weights"):
        asyncio.run(make())


def test_a_group_is_read_while_the_one_before_is_taken() -> None:
    events: list[str] = []

    async def run() -> None:
        ahead, gate = ReadAhead(), asyncio.Event()

        async def take(name: str) -> bool:
            events.append(f"{name} begins")
            await gate.wait()
            events.append(f"{name} ends")
            return True

        await ahead.take(lambda: take("first"))
        events.append("read")
        second = asyncio.create_task(ahead.take(lambda: take("second")))
        await asyncio.sleep(0.01)
        assert not second.done()
        gate.set()
        await second
        await asyncio.sleep(0.01)
        ahead.cancel()

    asyncio.run(run())
    assert events == ["read", "first begins", "first ends", "second begins", "second ends"]


class FakeConnection(Connection):
    """Fails to open with `opening`, and to close."""

    name = "fake"
    refusals = (PermissionError,)
    failures = ()
    opening: Exception | None = None

    def create(self) -> Any:
        return None

    async def open(self) -> None:
        with self.errors():
            if self.opening is not None:
                raise self.opening

    async def subscribe(self, positions: Any, take: Any, refresh: Any) -> None:
        raise NotImplementedError

    async def keep(self, letter: Letter) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("error", "expected"),
    [(PermissionError("no"), CannotContinue), (ConnectionRefusedError(), Interrupted)],
)
def test_errors_of_a_connection_say_whether_to_try_again(
    error: Exception, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeConnection, "opening", error)

    async def open_it() -> None:
        async with FakeConnection.connected(Address("fake://127.0.0.1", "edges")):
            raise AssertionError("unreachable")

    with pytest.raises(expected, match=r"fake: (no|ConnectionRefusedError)"):
        asyncio.run(open_it())


def test_errors_of_a_session_are_not_those_of_its_connection() -> None:
    async def fail() -> None:
        async with FakeConnection.connected(Address("fake://127.0.0.1", "edges")):
            raise OSError("of the session")

    with pytest.raises(OSError, match="of the session"):
        asyncio.run(fail())


def test_a_consumer_reports_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """And that it consumes, once the server takes the batch."""
    monkeypatch.setattr(session, "PING_SECONDS", 0.01)
    reports: list[tuple[str, str | None]] = []

    def full(_: httpx.Request) -> httpx.Response | None:
        if len(reports) >= 2:
            return None
        answer = problem(429, "too-busy", "the queue is full")
        answer.headers["Retry-After"] = "1"
        return answer

    server = FakeServer(full)

    class OneGroup(FakeConnection):
        async def subscribe(self, _: Any, take: Any, __: Any) -> None:
            self._taking = asyncio.create_task(take("", self._group()))

        async def _group(self) -> list[Message]:
            while not reports:
                await asyncio.sleep(0.005)
            return [message(1)]

        async def ping(self) -> bool:
            return True

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            body = json.loads(request.content)
            reports.append((body["state"], body["reason"]))
            return httpx.Response(204)
        if request.method == "POST":
            await asyncio.sleep(0.01)
            return server(request)
        if request.url.path.endswith("/sources"):
            return httpx.Response(200, json={"sources": [], "consumers": []})
        return httpx.Response(200, json=GRAPH)

    async def run() -> None:
        async with AsyncClient("http://server", transport=httpx.MockTransport(answer)) as client:
            place = Address("fake://127.0.0.1", "edges")
            states = StateReports(client, "g", "s")
            sessions = session.Sessions(client, OneGroup, place, Target("g", "s"), states, 0.1)
            await sessions.run()
            assert sessions.messages == 1

    asyncio.run(run())
    reason = reports[1][1]
    assert reason is not None
    assert "the queue is full" in reason
    assert reports == [("consuming", None), ("retrying", reason), ("consuming", None)]


@pytest.mark.parametrize("clock", ["event", "wall"])
def test_a_group_is_split_where_its_newest_time_would_be_lost(clock: Clock) -> None:
    edges = [
        ("a", "insert", 1.0),
        ("b", "insert", 9.0),
        ("b", "delete", None),
        ("c", "insert", 2.0),
    ]
    messages = []
    for number, (target, operation, time) in enumerate(edges):
        edge = {"source": "x", "target": target, "operation": operation}
        body = json.dumps(edge if time is None else {**edge, "time": time}).encode()
        messages.append(Message(str(number), body, 0.0))
    server = FakeServer()
    take(server, messages, options=msgspec.structs.replace(OPTIONS, window=5.0, clock=clock))
    assert server.position == "3"
    if clock == "wall":
        (only,) = server.taken
        assert only == {
            "delete": {"source": ["x"], "target": ["b"]},
            "insert": {"source": ["x", "x"], "target": ["a", "c"], "time": [1.0, 2.0]},
            "vertices": ["b"],
        }
        return
    first, second = server.taken
    assert first["insert"] == {"source": ["x", "x"], "target": ["a", "b"], "time": [1.0, 9.0]}
    assert second == {
        "delete": {"source": ["x"], "target": ["b"]},
        "insert": {"source": ["x"], "target": ["c"], "time": [2.0]},
    }


def test_a_group_whose_times_increase_is_split_once() -> None:
    messages = list[Message]()
    for number in range(64):
        edge = {"source": "x", "target": str(number)}
        for change in ({"time": float(number)}, {"operation": "delete"}):
            body = json.dumps({**edge, **change}).encode()
            messages.append(Message(str(len(messages)), body, 0.0))
    server = FakeServer()
    options = msgspec.structs.replace(OPTIONS, window=5.0, clock="event")
    take(server, messages, options=options)
    first, second = server.taken
    assert first["insert"] == {"source": ["x"], "target": ["63"], "time": [63.0]}
    assert second == {"delete": {"source": ["x"], "target": ["63"]}}
    assert server.position == "127"


@pytest.mark.parametrize("on_conflict", ["replace", "add"])
@pytest.mark.parametrize("kind", ["plain", "decays", "window"])
def test_a_server_has_what_messages_say_one_after_the_other(
    server: Server, kind: str, on_conflict: OnConflict
) -> None:
    """In groups and one by one: lists, insertions, deletions, and weights that are taken away."""
    given: Any = {"plain": {}, "decays": {"half_life": 50.0, "clock": "event"},
                  "window": {"window": 1e6, "clock": "event"}}[kind]  # fmt: skip
    generator, messages = random.Random(kind + on_conflict), []
    for number in range(1, 60):
        body: dict[str, Any]
        ends = generator.choices(range(6), k=2)
        if generator.random() < 0.2:
            targets = generator.sample(range(6), generator.randint(0, 4))
            weights = [generator.randint(1, 4) for _ in targets]
            body = {"replace": ends[0], "targets": targets, "weights": weights}
        else:
            body = dict(zip(("source", "target"), ends, strict=True))
            body["operation"] = generator.choice(["insert", "insert", "delete"])
            takes = on_conflict == "add" and generator.random() < 0.7
            if body["operation"] == "insert" or takes:
                body["weight"] = generator.randint(1, 4)
        messages.append(Message(str(number), json.dumps(body).encode(), float(number)))
    found = []
    for size in (1, 40):
        path = server.new_graph(keys="integer", weighted=True, **given)
        asyncio.run(_consume(server, path, messages, size, on_conflict))
        ranks = server.http.get(f"{path}/export", headers={"Accept": "application/x-ndjson"})
        rows = server.http.get(f"{path}/edges", headers={"Accept": "application/x-ndjson"})
        edges = {(row["source"], row["target"]): row["weight"]
                 for row in map(json.loads, rows.content.splitlines())}  # fmt: skip
        if kind == "decays":  # only their ratios count, among those of a vertex
            sums = Counter[int]()
            for (source, _), weight in edges.items():
                sums[source] += weight
            edges = {edge: weight / sums[edge[0]] for edge, weight in edges.items()}
        found.append((edges, len(ranks.content.splitlines())))
    assert found[0][0]
    for edges, vertices in found[1:]:
        assert edges == pytest.approx(found[0][0], rel=1e-5)
        assert vertices == found[0][1]


async def _consume(
    server: Server, path: str, messages: list[Message], size: int, on_conflict: OnConflict
) -> None:
    async with AsyncClient(str(server.http.base_url)) as client:
        graph = path.rpartition("/")[2]
        options = (await client.graph(graph)).options
        target = Target(graph, "s", "edge", on_conflict)
        consumer = Consumer(client, target, options, {}, None)
        for start in range(0, len(messages), size):
            await consumer.take("", messages[start : start + size])
