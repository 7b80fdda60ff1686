"""Clients that follow the ranks: reconnections and ends; then a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from liverank import AsyncClient, Client, ServerError, ServerUnreachable
from liverank.client import Change, Gap, Snapshot
from tests.liverank.client.recorder import Recorder, answer
from tests.service.server import Server

BASIS = {"version": 1, "revision": 1, "error_bound": 0.0}
SNAPSHOT = BASIS | {"top": [{"vertex": "a", "rank": 0.5}]}
CHANGE = BASIS | {
    "revision": 2,
    "time": 1.0,
    "seconds": {"total": 0.1},
    "entered": [],
    "left": [],
    "moved": [{"vertex": "b", "rank": 0.25}],
    "truncated": False,
    "deferred": False,
}


def event(name: str, data: Any, identity: str | None = None) -> str:
    text = f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n"
    return text + (f"id: {identity}\n\n" if identity else "\n")


def stream(*events: str) -> httpx.Response:
    headers = {"Content-Type": "text/event-stream; charset=utf-8"}
    text = "".join(f": ping\n\n{event}: ping\n\n" for event in events)
    return httpx.Response(200, text=text, headers=headers)


def followed(server: Recorder, **options: Any) -> Iterator[Any]:
    with Client("http://liverank.test", transport=httpx.MockTransport(server)) as client:
        yield from client.changes("g", **options)


def followed_asynchronously(server: Recorder, **options: Any) -> Iterator[Any]:
    async def events() -> AsyncIterator[Any]:
        transport = httpx.MockTransport(server)
        async with AsyncClient("http://liverank.test", transport=transport) as client:
            async for received in client.changes("g", **options):
                yield received

    found = events()
    with asyncio.Runner() as runner:
        while True:
            try:
                yield runner.run(anext(found))  # type: ignore[arg-type]
            except StopAsyncIteration:
                return


both = pytest.mark.parametrize("follow", [followed, followed_asynchronously])


@both
def test_changes_continue_after_a_lost_connection_and_a_restart(follow: Any) -> None:
    server = Recorder(
        stream(event("snapshot", SNAPSHOT, "e-1")),
        httpx.ReadError("lost"),
        stream(event("change", CHANGE, "e-2"), event("end", {"title": "Not ready", "status": 503})),
        httpx.Response(503, json={"title": "Not ready"}, headers={"Retry-After": "0"}),
        stream(event("gap", SNAPSHOT | {"reason": "epoch"}, "f-1")),
        stream(event("end", {"title": "Unauthorized", "status": 401})),
    )
    changes = follow(server, top=5)
    assert [type(next(changes)) for _ in range(3)] == [Snapshot, Change, Gap]
    with pytest.raises(ServerError, match="Unauthorized") as ended:
        next(changes)
    assert ended.value.status == 401
    sent = [request.headers.get("Last-Event-ID") for request in server.requests]
    assert sent == [None, "e-1", "e-1", "e-2", "e-2", "f-1"]
    assert dict(server.requests[0].url.params) == {"top": "5", "threshold": "0.05", "limit": "1000"}


@both
@pytest.mark.parametrize("ranks", [{"view": "mine", "among": "some"}, {"watched": "mine"}])
def test_the_ranks_to_follow_are_chosen(follow: Any, ranks: dict[str, str]) -> None:
    server = Recorder(stream(event("snapshot", SNAPSHOT, "e-1")))
    next(follow(server, **ranks))
    basis = {"top": "100", "threshold": "0.05", "limit": "1000"}
    assert dict(server.requests[0].url.params) == basis | ranks


@both
def test_an_event_has_its_members(follow: Any) -> None:
    changes = follow(Recorder(stream(event("change", CHANGE, "e-2"))), last_event_id="e-1")
    change = next(changes)
    assert (change.id, change.revision, change.seconds) == ("e-2", 2, {"total": 0.1})
    assert change.moved[0].vertex == "b"


@both
def test_only_line_feeds_and_carriage_returns_end_a_line_of_an_event(follow: Any) -> None:
    key = "a\u2028b\u2029c\u0085d"
    snapshot = BASIS | {"top": [{"vertex": key, "rank": 0.5}]}
    (place,) = next(follow(Recorder(stream(event("snapshot", snapshot, "e-1"))))).top
    assert place.vertex == key


@both
def test_changes_of_a_server_that_stays_away_are_an_error(follow: Any) -> None:
    server = Recorder(*[httpx.ConnectError("refused")] * 3)
    with pytest.raises(ServerUnreachable, match="refused"):
        next(follow(server))


@both
def test_streams_that_end_without_an_event_are_an_error(follow: Any) -> None:
    server = Recorder(*[stream() for _ in range(3)])
    with pytest.raises(ServerUnreachable, match="the stream ended without an event"):
        next(follow(server))


@both
def test_changes_that_are_refused_are_an_error(follow: Any) -> None:
    server = Recorder(answer({"title": "Unknown graph"}, 404))
    with pytest.raises(ServerError, match="Unknown graph"):
        next(follow(server))


def test_changes_of_a_server(server: Server) -> None:
    path = server.new_graph()
    graph = path.rsplit("/", 1)[1]
    with Client(str(server.http.base_url)) as client:
        changes = client.changes(graph, top=1, limit=10)
        assert isinstance(next(changes), Snapshot)
        receipt = client.send(graph, insert=[("a", "b")])
        change = next(changes)
        client.drop(graph)
        with pytest.raises(ServerError, match=graph):
            list(changes)
    assert isinstance(change, Change)
    assert change.revision == receipt.revision
    assert [one.vertex for one in change.entered] == ["b"]
