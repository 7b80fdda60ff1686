"""The change feed over HTTP: events, limits of subscribers, and every end of a stream."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import httpx
import pytest

from liverank_service.http import subscribers
from liverank_service.http.limits import ConcurrencyLimit
from liverank_service.http.routes.changes import changes
from liverank_service.pipeline import published
from liverank_service.queries.changes import Subscription
from tests.service.server import PATIENCE, Server, connection_to, running, wait_for

KEY = "k" * 40
PLACES = 3


class Told(NamedTuple):
    name: str
    id: str | None
    data: Any


class Stream:
    """An open stream. Iterating waits for events; it ends with the stream."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.comments = 0
        self._lines = response.iter_lines()

    def __iter__(self) -> Iterator[Told]:
        return self

    def __next__(self) -> Told:
        fields: dict[str, str] = {}
        for line in self._lines:
            if line.startswith(":"):
                self.comments += 1
            elif line:
                name, _, value = line.partition(": ")
                assert name not in fields
                fields[name] = value
            elif fields:
                return Told(fields["event"], fields.get("id"), json.loads(fields["data"]))
        raise StopIteration


@contextmanager
def subscribed(
    server: Server, path: str, last: str | None = None, key: str | None = None, **query: Any
) -> Iterator[Stream]:
    headers = {} if last is None else {"Last-Event-ID": last}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    url = server.url(f"{path.removeprefix('/')}/changes")
    with (
        httpx.Client(timeout=PATIENCE) as client,
        client.stream("GET", url, params=query, headers=headers) as response,
    ):
        if response.status_code != 200:
            response.read()
        yield Stream(response)


def follow(stack: ExitStack, server: Server, path: str, key: str | None = None) -> Stream:
    """A stream that has had its snapshot. It ends with the stack, or when nobody refers to it."""
    stream = stack.enter_context(subscribed(server, path, key=key))
    assert next(stream).name == "snapshot"
    return stream


def insert(server: Server, path: str, *pairs: tuple[str, str]) -> dict[str, Any]:
    answer = server.http.post(f"{path}/batches", json={"insert": pairs})
    assert answer.status_code == 200, answer.text
    receipt: dict[str, Any] = answer.json()
    return receipt


def feed(server: Server, path: str) -> published.ChangeFeed:
    return server.catalog.get(path.rsplit("/", 1)[1]).pipeline.changes


def subscribers_in(server: Server) -> int:
    limit: ConcurrencyLimit = server.app.state.limit
    return limit.subscribers[""]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of all tests may have few graphs left."""
    with running(tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("data")
    with running(data, max_subscribers=PLACES, slow_client_seconds=2.0) as server:
        yield server


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("data")
    with running(data, api_key=KEY, max_subscribers=PLACES) as server:
        server.http.headers["Authorization"] = f"Bearer {KEY}"
        yield server


# Events


def test_a_stream_begins_with_a_snapshot_and_has_an_event_for_each_revision(
    server: Server,
) -> None:
    path = server.new_graph()
    insert(server, path, ("a", "b"), ("c", "b"))
    with subscribed(server, path, top=1, limit=10) as stream:
        assert stream.response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.response.headers["cache-control"] == "no-store"
        snapshot = next(stream)
        assert snapshot.name == "snapshot"
        top = server.http.get(f"{path}/top?k=1").json()
        top["top"] = top["ranks"]
        assert snapshot.data == {member: top[member] for member in snapshot.data}
        assert set(snapshot.data) == {"version", "revision", "error_bound", "top"}
        receipt = insert(server, path, ("a", "d"), ("b", "d"), ("c", "d"))
        event = next(stream)
        assert (event.name, event.data["revision"]) == ("change", receipt["revision"])
        assert event.data["seconds"] == receipt["seconds"]
        assert event.data["error_bound"] == receipt["error_bound"]
        ranks = {
            vertex: server.http.get(f"{path}/ranks/{vertex}").json()["rank"] for vertex in "abcd"
        }
        assert event.data["entered"] == [{"vertex": "d", "rank": ranks["d"]}]
        assert event.data["left"] == [{"vertex": "b", "rank": ranks["b"]}]
        moved = {one["vertex"]: one["rank"] for one in event.data["moved"]}
        assert moved.items() <= ranks.items()
        server.http.post(f"{path}/recompute")
        empty = next(stream)
        assert (empty.data["entered"], empty.data["left"], empty.data["moved"]) == ([], [], [])
        assert empty.data["revision"] == receipt["revision"] + 1
    epochs = {told.id.rpartition("-")[0] for told in (snapshot, event, empty) if told.id}
    assert len(epochs) == 1


def test_integer_keys_are_numbers(server: Server) -> None:
    path = server.new_graph(keys="integer")
    with subscribed(server, path) as stream:
        next(stream)
        server.http.post(f"{path}/batches", json={"insert": [[1, -2]]})
        assert [one["vertex"] for one in next(stream).data["entered"]] == [-2, 1]


def test_a_stream_continues_after_the_last_event(server: Server) -> None:
    path = server.new_graph()
    with subscribed(server, path) as stream:
        next(stream)
        insert(server, path, ("a", "b"))
        last = next(stream).id
    revisions = [insert(server, path, (vertex, "b"))["revision"] for vertex in "cd"]
    with subscribed(server, path, last) as stream:
        assert [next(stream).data["revision"] for _ in revisions] == revisions
        assert stream.comments == 1  # so that the head of the response is sent at once


def test_a_last_event_that_cannot_be_continued_is_a_gap(server: Server) -> None:
    path = server.new_graph()
    insert(server, path, ("a", "b"))
    with subscribed(server, path) as stream:
        last = next(stream).id
    assert last is not None
    with subscribed(server, path, last[:-1] + "99999") as stream:
        event = next(stream)
        assert (event.name, event.data["reason"]) == ("gap", "future")
        assert [one["vertex"] for one in event.data["top"]] == ["b", "a"]
        insert(server, path, ("c", "a"))
        assert next(stream).name == "change"


def test_an_empty_last_event_is_none(server: Server) -> None:
    with subscribed(server, server.new_graph(), "") as stream:
        assert next(stream).name == "snapshot"


def test_silence_is_broken_by_comments(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribers, "KEEPALIVE_SECONDS", 0.05)
    path = server.new_graph()
    with subscribed(server, path) as stream:
        next(stream)
        threading.Timer(0.4, insert, (server, path, ("a", "b"))).start()
        assert next(stream).name == "change"
        assert stream.comments > 3


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"top": 100, "limit": 199}, "limit"),
        ({"top": 0}, "top"),
        ({"threshold": -0.1}, "threshold"),
        ({"threshold": "nan"}, "threshold"),
        ({"limit": 10**6}, "limit"),
        ({"topp": 1}, "topp"),
    ],
)
def test_a_parameter_that_cannot_be_used_is_named(
    query: dict[str, Any], field: str, server: Server
) -> None:
    wait_for(lambda: subscribers_in(server) == 0)  # those of earlier tests
    with subscribed(server, "/graphs/default", **query) as stream:
        assert stream.response.status_code == 422
        assert stream.response.json()["field"] == field
    assert subscribers_in(server) == 0


def test_an_unknown_set_is_refused(server: Server) -> None:
    with subscribed(server, "/graphs/default", among="papers") as stream:
        assert stream.response.status_code == 404
        assert "papers" in stream.response.json()["detail"]


def test_an_unknown_view_is_refused(server: Server) -> None:
    path = server.new_graph()
    put_view(server, path, "mine", {"set": put_set(server, path, "nobody")})
    for name, status in (("other", 404), ("mine", 409)):
        with subscribed(server, path, view=name) as stream:
            assert stream.response.status_code == status
            assert stream.response.json()["field"] == "view"
    assert feed(server, path).subscribers == 0


def test_an_unknown_graph_is_refused(server: Server) -> None:
    with subscribed(server, "/graphs/nobody") as stream:
        assert stream.response.status_code == 404


# Views


def put_set(server: Server, path: str, name: str, *vertices: str) -> str:
    body = {"vertices": vertices}
    server.http.put(f"{path}/sets/{name}", json=body).raise_for_status()
    return name


def put_view(server: Server, path: str, name: str, teleport: Any, **options: Any) -> None:
    body = {"teleport": teleport, "target_error": 1e-9, **options}
    server.http.put(f"{path}/views/{name}", json=body).raise_for_status()


def ranks_of(places: list[dict[str, Any]]) -> dict[str, float]:
    return {one["vertex"]: one["rank"] for one in places}


class Known:
    """What a subscriber knows of ranks that it read when it joined.

    read  which, of the server
    """

    def __init__(self, snapshot: Told, server: Server, read: str) -> None:
        self._get = partial(server.http.get, read)
        self.ranks = ranks_of(self._get().json()["ranks"])
        self.top = set(ranks_of(snapshot.data["top"]))
        assert ranks_of(snapshot.data["top"]).items() <= self.ranks.items()

    def take(self, event: Told) -> None:
        assert event.name == "change"
        entered, left = (set(ranks_of(event.data[name])) for name in ("entered", "left"))
        assert not entered & self.top
        assert left <= self.top
        self.top = (self.top | entered) - left
        told = [*event.data["entered"], *event.data["left"], *event.data["moved"]]
        self.ranks |= ranks_of(told)
        self.ranks = {vertex: rank for vertex, rank in self.ranks.items() if rank is not None}

    def check(self) -> None:
        """With a threshold of 0 it knows every rank: a new vertex of rank 0 has not moved."""
        ranks = ranks_of(read := self._get().json()["ranks"])
        assert dict.fromkeys(ranks, 0.0) | self.ranks == ranks
        assert self.top == set(ranks_of(read[: len(self.top)]))


@pytest.mark.parametrize("direction", ["forward", "reversed"])
def test_the_ranks_of_a_view_are_followed(direction: str, server: Server) -> None:
    path = server.new_graph()
    edges = [(f"v{number}", f"v{number * number % 23}") for number in range(40)]
    insert(server, path, *edges)
    teleport = {"weights": {"v3": 1.0, "v5": 2.0}}
    put_view(server, path, "trust", teleport, direction=direction)
    put_view(server, path, "other", "uniform")
    query: dict[str, Any] = {"top": 3, "threshold": 0.0, "view": "trust"}
    with subscribed(server, path, **query) as stream:
        snapshot = next(stream)
        view = server.http.get(f"{path}/views/trust").json()
        assert {name: snapshot.data[name] for name in ("version", "revision", "error_bound")} == {
            name: view[name] for name in ("version", "revision", "error_bound")
        }
        known = Known(snapshot, server, f"{path}/top?view=trust&k=1000")
        for step in range(4):
            receipt = insert(server, path, ("v3", f"new{step}"), (f"new{step}", f"v{step}"))
            event = next(stream)
            known.take(event)
            known.check()
            assert event.data["error_bound"] == receipt["views"]["trust"]
            assert event.data["error_bound"] != receipt["error_bound"]
        last = event.id
    receipt = insert(server, path, ("v5", "late"))
    with subscribed(server, path, last, **query) as stream:
        event = next(stream)
        assert event.data["revision"] == receipt["revision"]
        known.take(event)
        # what a removed vertex had is told, and that others have it
        batch = {"remove": [next(iter(known.top - {"v3", "v5"}))]}
        server.http.post(f"{path}/batches", json=batch).raise_for_status()
        known.take(next(stream))
        known.check()
        # other weights are told at once
        put_view(server, path, "trust", {"weights": {"v9": 1.0}}, direction=direction)
        event = next(stream)
        assert event.data["revision"] == server.http.get(path).json()["revision"]
        assert event.data["seconds"] == {}
        known.take(event)
        known.check()
    put_view(server, path, "trust", {"weights": {"v2": 1.0}}, direction=direction)
    with subscribed(server, path, event.id, **query) as stream:
        following = next(stream)
        assert following.data["revision"] == event.data["revision"]
        assert following.id != event.id
        known.take(following)
        known.check()
        insert(server, path, ("v0", "v1"))
        known.take(next(stream))
        known.check()
    with subscribed(server, path, last, **query | {"view": "other"}) as stream:
        assert next(stream).data["reason"] == "epoch"


def put_watched(server: Server, path: str, name: str, **query: Any) -> None:
    server.http.put(f"{path}/watched/{name}", json=query).raise_for_status()


def test_the_places_of_a_watched_query_are_followed(server: Server) -> None:
    path = server.new_graph()
    edges = [(f"v{number}", f"v{number * number % 23}") for number in range(40)]
    insert(server, path, *edges)
    put_watched(server, path, "mine", seeds={"v3": 1.0, "v5": 2.0}, k=4, target_error=1e-6)
    query: dict[str, Any] = {"threshold": 0.0, "watched": "mine"}
    read, of_places = f"{path}/watched/mine", set[Any]()
    with subscribed(server, path, **query) as stream, subscribed(server, path) as graph:
        snapshot = next(stream)
        assert snapshot.data["error_bound"] == server.http.get(read).json()["error_bound"]
        known = Known(snapshot, server, read)
        assert next(graph).name == "snapshot"
        for step in range(6):
            insert(server, path, ("v3", f"new{step}"), (f"new{step}", "v5"), ("v5", f"new{step}"))
            event = next(stream)
            known.take(event)
            known.check()
            assert len(known.ranks) == 4
            assert event.data["error_bound"] == server.http.get(read).json()["error_bound"]
            assert event.data["error_bound"] != next(graph).data["error_bound"]
            of_places |= {one["rank"] for one in event.data["left"]}
        put_watched(server, path, "mine", seeds={"v9": 1.0}, k=2)
        event = next(stream)  # another query of the name
        known.take(event)
        known.check()
        put_watched(server, path, "other", seeds={"v9": 1.0}, k=2)  # which is not followed
    insert(server, path, ("v9", "new0"), ("v9", "v9"))
    assert of_places == {None}  # nobody knows the rank of a vertex that is no place
    with subscribed(server, path, event.id, **query) as stream:
        known.take(next(stream))
        known.check()
        batch = {"remove": [vertex for vertex in known.top if vertex != "v9"]}
        server.http.post(f"{path}/batches", json=batch).raise_for_status()
        known.take(next(stream))
        known.check()
        assert server.http.delete(f"{path}/watched/mine").status_code == 204
        assert end_of(stream) == "unknown-watched"


def test_some_places_of_a_watched_query_are_followed(server: Server) -> None:
    path = server.new_graph()
    insert(server, path, ("a", "b"), ("b", "c"), ("c", "a"))
    put_watched(server, path, "mine", seeds={"a": 1.0}, k=3)
    with subscribed(server, path, top=1, watched="mine") as stream:
        assert [one["vertex"] for one in next(stream).data["top"]] == ["a"]
        insert(server, path, ("c", "c"))
        event = next(stream).data
        ranks = ranks_of(server.http.get(f"{path}/watched/mine").json()["ranks"])
        assert event["entered"] == [{"vertex": "c", "rank": ranks["c"]}]
        assert event["left"] == [{"vertex": "a", "rank": ranks["a"]}]
        assert event["moved"] == [{"vertex": "b", "rank": ranks["b"]}]


@pytest.mark.parametrize("other", ["view", "among"])
def test_a_watched_query_is_followed_alone(server: Server, other: str) -> None:
    with subscribed(server, "/graphs/default", watched="mine", **{other: "some"}) as stream:
        assert stream.response.status_code == 422
        assert stream.response.json()["field"] == "watched"
    with subscribed(server, "/graphs/default", watched="mine") as stream:
        assert stream.response.status_code == 404
        assert stream.response.json()["field"] == "watched"


def test_a_read_that_solves_a_view_is_told(server: Server) -> None:
    path = server.new_graph()
    insert(server, path, *[(f"v{number}", f"v{number * number % 23}") for number in range(40)])
    for name in ("lazy", "other"):
        put_view(server, path, name, "uniform", refresh="read")
    query: dict[str, Any] = {"top": 3, "threshold": 0.0}
    with (
        subscribed(server, path, view="lazy", **query) as stream,
        subscribed(server, path, view="other", **query) as other,
        subscribed(server, path, **query) as graph,
    ):
        known = Known(next(stream), server, f"{path}/top?view=lazy&k=1000")
        assert (next(other).name, next(graph).name) == ("snapshot", "snapshot")
        for step in range(3):
            receipt = insert(server, path, ("v3", f"new{step}"), (f"new{step}", f"v{step}"))
            batch, of_other, of_graph = next(stream), next(other), next(graph)
            for event in (batch, of_other, of_graph):
                assert event.data["revision"] == receipt["revision"]
            known.take(batch)
            assert batch.data["error_bound"] > 1e-9
            server.http.get(f"{path}/ranks/v3?view=lazy").raise_for_status()  # which solves it
            solved = next(stream)
            known.take(solved)
            known.check()
            assert solved.data["revision"] == receipt["revision"]
            assert solved.data["error_bound"] <= 1e-9
            assert solved.id == f"{batch.id}.1"
            # neither the graph nor the other view has an event of that: see the next round


def test_a_removed_view_ends_its_streams_alone(server: Server) -> None:
    path = server.new_graph()
    insert(server, path, ("a", "b"))
    put_view(server, path, "mine", "uniform")
    put_view(server, path, "yours", "uniform")
    with (
        subscribed(server, path, view="mine") as stream,
        subscribed(server, path, view="yours") as other,
        subscribed(server, path) as graph,
    ):
        for each in (stream, other, graph):
            assert next(each).name == "snapshot"
        assert server.http.delete(f"{path}/views/mine").status_code == 204
        assert end_of(stream) == "unknown-view"  # no batch has to come before
        with subscribed(server, path, view="mine") as refused:
            assert refused.response.status_code == 404
        insert(server, path, ("c", "b"))
        assert (next(other).name, next(graph).name) == ("change", "change")


def test_a_view_that_loses_its_ranks_ends_its_streams(server: Server) -> None:
    path = server.new_graph()
    insert(server, path, ("a", "b"))
    put_view(server, path, "mine", {"set": put_set(server, path, "seeds", "a")})
    with subscribed(server, path, view="mine") as stream:
        next(stream)
        batch = {"sets": {"seeds": {"remove": ["a"]}}}
        server.http.post(f"{path}/batches", json=batch).raise_for_status()
        assert end_of(stream) == "no-ranks"
    insert(server, path, ("c", "b"))
    put_set(server, path, "seeds", "c")
    with subscribed(server, path, view="mine") as stream:
        assert next(stream).data["top"][0]["vertex"] == "c"


# Limits


def test_subscribers_of_a_graph_are_limited_and_take_no_other_places(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"max_concurrent_requests": 1, "max_waiting_requests": 1}
    with (
        running(tmp_path, max_subscribers=PLACES, **settings) as server,
        ExitStack() as stack,
    ):
        streams = [follow(stack, server, "/graphs/default") for _ in range(PLACES)]
        limit: ConcurrencyLimit = server.app.state.limit
        assert limit.in_progress == {"read": 0, "other": 0}
        assert not limit.waiting
        for path in ("/graphs/default/top", "/graphs/default/top?min_version=0", "/metrics"):
            assert server.http.get(path).status_code == 200
        assert server.http.get("/graphs/default/top?min_version=9&timeout=.1").status_code == 504
        assert server.http.post("/graphs/default/batches", json={}).status_code == 200
        with subscribed(server, "/graphs/default") as refused:
            assert refused.response.status_code == 503
            assert refused.response.json()["detail"] == (
                "too many subscribers for graph 'default'; the limit is 3; retry later"
            )
        other = server.new_graph()
        with subscribed(server, other) as stream:
            next(stream)
        wait_for(lambda: subscribers_in(server) == len(streams))
        stack.close()
        wait_for(lambda: subscribers_in(server) == 0)
        assert feed(server, "/graphs/default").subscribers == 0


def test_a_quarter_of_the_connections_may_subscribe(tmp_path: Path) -> None:
    with running(tmp_path, max_connections=9) as server, ExitStack() as stack:
        streams = [follow(stack, server, "/graphs/default") for _ in range(2)]
        wait_for(lambda: subscribers_in(server) == len(streams))
        with subscribed(server, server.new_graph()) as refused:
            assert "too many subscribers; the limit is 2" in refused.response.json()["detail"]


def test_subscribers_with_a_key_are_limited(keyed: Server) -> None:
    other = keyed.http.post("/keys", json={"name": "o", "scope": "read"}).json()["key"]
    paths = [keyed.new_graph() for _ in range(PLACES + 1)]
    with ExitStack() as stack:
        streams = [follow(stack, keyed, path, other) for path in paths[:-1]]
        wait_for(lambda: subscribers_in(keyed) == len(streams))
        with subscribed(keyed, paths[-1], key=other) as refused:
            assert refused.response.status_code == 503
            assert "too many subscribers with API key" in refused.response.json()["detail"]
        with subscribed(keyed, paths[-1], key=KEY) as stream:
            next(stream)


def test_different_subscriptions_of_a_graph_are_limited(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "MAX_SUBSCRIPTIONS", 1)
    path = server.new_graph()
    before = subscribers_in(server)
    with subscribed(server, path, top=1) as stream:
        next(stream)
        with subscribed(server, path, top=2) as refused:
            assert refused.response.status_code == 503
            assert "different subscriptions" in refused.response.json()["detail"]
    wait_for(lambda: subscribers_in(server) == before)


# Ends


def end_of(stream: Stream) -> str:
    told = list(stream)[-1]
    assert (told.name, told.id) == ("end", None)
    kind: str = told.data["type"]
    return kind.removeprefix("urn:liverank:problem:")


def test_a_revoked_key_ends_its_streams(keyed: Server) -> None:
    path = keyed.new_graph()
    made = [keyed.http.post("/keys", json={"name": "r", "scope": "read"}).json() for _ in "ab"]
    with (
        subscribed(keyed, path, key=made[0]["key"]) as stream,
        subscribed(keyed, path, key=made[1]["key"]) as other,
    ):
        next(stream)
        next(other)
        assert keyed.http.delete(f"/keys/{made[0]['id']}").status_code == 204
        assert end_of(stream) == "unauthorized"
        insert(keyed, path, ("a", "b"))
        assert next(other).name == "change"
    with subscribed(keyed, path, key=made[0]["key"]) as refused:
        assert refused.response.status_code == 401


def test_a_key_for_another_graph_is_refused(keyed: Server) -> None:
    made = keyed.http.post("/keys", json={"name": "g", "scope": "read", "graphs": ["x"]}).json()
    with subscribed(keyed, "/graphs/default", key=made["key"]) as refused:
        assert refused.response.status_code == 403


def test_streams_end_when_the_server_stops(tmp_path: Path) -> None:
    ends: list[str] = []
    with running(tmp_path) as server:

        def wait_for_the_end() -> None:
            with subscribed(server, "/graphs/default") as stream:
                ends.append(end_of(stream))

        threads = [threading.Thread(target=wait_for_the_end) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_for(lambda: feed(server, "/graphs/default").subscribers == 3)
    for thread in threads:
        thread.join()
    assert ends == ["not-ready"] * 3


def test_streams_of_a_dropped_graph_end(server: Server) -> None:
    path = server.new_graph()
    with subscribed(server, path) as stream:
        next(stream)
        assert server.http.delete(path).status_code == 204
        assert end_of(stream) == "unknown-graph"


def test_a_request_that_is_cancelled_while_it_joins_is_no_subscriber(
    small: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = small.catalog.get(small.new_graph().rsplit("/", 1)[1])
    feed, (is_joining, may_join) = graph.pipeline.changes, (threading.Event(), threading.Event())
    joined = feed._joined

    def slowly(*given: Any) -> Any:
        is_joining.set()
        assert may_join.wait(60)
        return joined(*given)

    monkeypatch.setattr(feed, "_joined", slowly)
    for name in ("context_of", "limit_of", "subscribers_of"):
        monkeypatch.setattr(f"liverank_service.http.routes.changes.{name}", Mock())
    request = Mock(state=Mock(key=None))

    async def cancel() -> None:
        handler = asyncio.create_task(changes(request, graph, 3, 0.05, 10))
        assert await asyncio.to_thread(is_joining.wait, 60)
        handler.cancel()
        with pytest.raises(asyncio.CancelledError):
            await handler

    asyncio.run(cancel())
    may_join.set()
    feed.join(Subscription(2, 0.05, 10), None).result(60)  # after it
    assert feed.subscribers == 1


def test_a_stream_ends_with_its_connection(small: Server) -> None:
    path = small.new_graph()
    for _ in range(2 * PLACES):
        with subscribed(small, path) as stream:
            next(stream)
        wait_for(lambda: feed(small, path).subscribers == 0)
    assert feed(small, path).dropped == 0
    wait_for(lambda: subscribers_in(small) == 0)


def test_a_client_that_leaves_before_the_first_event_is_not_a_slow_one(
    small: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = small.new_graph()
    changes, (is_joining, has_left) = feed(small, path), (threading.Event(), threading.Event())
    joined = changes._joined

    def slowly(*given: Any) -> Any:
        is_joining.set()
        assert has_left.wait(60)
        return joined(*given)

    monkeypatch.setattr(changes, "_joined", slowly)
    with connection_to(small) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(f"GET {path}/changes HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert is_joining.wait(60)
    small.http.get("/livez").raise_for_status()  # the server has noticed by then
    has_left.set()
    wait_for(lambda: subscribers_in(small) == 0)
    assert (changes.subscribers, changes.dropped) == (0, 0)


def test_a_client_that_closes_its_side_gets_the_end(small: Server) -> None:
    with connection_to(small) as connection:
        connection.sendall(b"GET /graphs/default/changes HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"event: snapshot" in connection.recv(65536)
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert b"event: end" in answer
    assert b"urn:liverank:problem:wait-ended" in answer
    wait_for(lambda: subscribers_in(small) == 0)


# Slow subscribers


@contextmanager
def deaf(server: Server, path: str) -> Iterator[socket.socket]:
    """A subscriber that reads nothing, with buffers as small as the system allows."""
    url = server.http.base_url
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(60)
        assert url.port is not None
        connection.connect((url.host, url.port))
        connection.sendall(
            f"GET {path}/changes?threshold=0 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        )
        wait_for(lambda: feed(server, path).subscribers == 1)
        yield connection


def fill(server: Server, path: str, enough: Any) -> None:
    """Sends batches with large events until `enough()`."""
    pairs = [(f"{'v' * 60}{number}", "hub") for number in range(900)]
    number = 0
    while not enough():
        number += 1
        assert number < 1000
        insert(server, path, *pairs, (f"new{number}", "hub"))


def test_a_subscriber_that_never_reads_is_dropped(
    small: Server, caplog: pytest.LogCaptureFixture
) -> None:
    path = small.new_graph()
    with deaf(small, path):
        fill(small, path, lambda: feed(small, path).subscribers == 0)
        assert feed(small, path).dropped == 1
        name = path.rsplit("/", 1)[1]
        shown = f'liverank_subscribers_dropped_total{{graph="{name}"}} 1.0'
        assert shown in small.http.get("/metrics").text
    assert "subscriber dropped" in caplog.text


def test_a_subscriber_that_falls_behind_is_told_that_it_is_dropped(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "MAX_EVENTS", 2)
    path = server.new_graph()
    with deaf(server, path) as connection:
        ring = next(iter(feed(server, path)._rings.values()))
        # until what is written stays in the server, and then out of the ring
        fill(server, path, lambda: not ring._waiting)
        revision = server.http.get(path).json()["revision"]
        fill(server, path, lambda: server.http.get(path).json()["revision"] > revision + 200)
        answer = b"".join(iter(lambda: connection.recv(1 << 20), b""))
    assert b"event: end" in answer
    assert b"urn:liverank:problem:slow-client" in answer
    assert b"revisions behind" in answer
    wait_for(lambda: feed(server, path).dropped == 1)
    assert feed(server, path).subscribers == 0


def test_others_are_not_slowed_by_a_subscriber_that_never_reads(server: Server) -> None:
    path = server.new_graph()
    with deaf(server, path), subscribed(server, path, threshold=0) as stream:
        revision = next(stream).data["revision"]
        for number in range(40):
            insert(server, path, *((f"{'v' * 60}{i}", f"hub{number}") for i in range(300)))
            revision += 1
            assert next(stream).data["revision"] == revision
