"""The change feed of one graph: rings, places in them, and a writer that never waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orjson
import pytest

from liverank_gpu import OutOfMemory, Solve
from liverank_service.errors import NotReady, SlowSubscriber, TooBusy
from liverank_service.pipeline import published
from liverank_service.pipeline.pipeline import Pipeline
from liverank_service.pipeline.published import Event, EventRing, Joined
from liverank_service.queries.changes import ChangeTracker, Subscription
from liverank_service.queries.model import WatchedQuery
from liverank_service.queries.rank_views import ViewRequest
from liverank_service.queries.scheduler import WatchRequest
from liverank_service.queries.view import Position
from tests.service.graphs import batch, opened, send, working
from tests.service.server import wait_for

SUBSCRIPTION = Subscription(top=3, threshold=0.05, limit=10)
STAGES = "queue journal keys mutate mark solve certify watched publish others total"


def join(
    pipeline: Pipeline, last: str | None = None, subscription: Subscription = SUBSCRIPTION
) -> Joined:
    return pipeline.changes.join(subscription, last).result(60)


def insert(pipeline: Pipeline, *vertices: str) -> dict[str, Any]:
    return send(pipeline, batch([(vertex, "hub") for vertex in vertices]))


def events(joined: Joined, after: Position, count: int) -> list[Event]:
    """`count` events after a position, once they are in the ring."""
    found: list[Event] = []
    while len(found) < count:
        waiter: Future[None] = Future()
        read = joined.ring.read(after, waiter)
        if not read:
            waiter.result(60)
        found += read
        after = read[-1].position if read else after
    assert len(found) == count
    return found


def members(event: Event | None) -> dict[str, Any]:
    assert event is not None
    found: dict[str, Any] = orjson.loads(event.data)
    return found


@contextmanager
def stalled() -> Iterator[threading.Event]:
    """No comparison ends before the event is set."""
    gate, advance = threading.Event(), ChangeTracker.advance

    def wait_then_advance(tracker: ChangeTracker, view: Any) -> Any:
        assert gate.wait(60)
        return advance(tracker, view)

    with patch.object(ChangeTracker, "advance", wait_then_advance):
        yield gate
        gate.set()


def test_each_revision_has_an_event_with_its_figures(pipeline: Pipeline) -> None:
    insert(pipeline, "a")
    joined = join(pipeline)
    assert joined.first is not None
    assert joined.first.name == "snapshot"
    assert [one["vertex"] for one in members(joined.first)["top"]] == ["hub", "a"]
    receipts = [insert(pipeline, "b"), insert(pipeline, "c", "d")]
    receipts.append(orjson.loads(pipeline.recompute(Solve("static")).result(60)))
    found = events(joined, joined.after, 3)
    epoch = joined.first.id.rpartition("-")[0]
    for event, receipt in zip(found, receipts, strict=True):
        told = members(event)
        assert event.name == "change"
        assert event.id == f"{epoch}-{receipt['revision']}"
        for name in ("revision", "error_bound"):
            assert told[name] == receipt[name]
        assert told["version"] == receipt["ranked_version"]
        assert list(told["seconds"]) == STAGES.split()
        assert told["deferred"] is False
    assert members(found[0])["seconds"] == receipts[0]["seconds"]
    # a recomputation changes hardly anything
    last = members(found[2])
    assert (last["entered"], last["left"], last["moved"]) == ([], [], [])


def test_a_view_that_is_published_again_is_no_event(pipeline: Pipeline) -> None:
    joined = join(pipeline)
    pipeline.call(lambda writer: writer.ranking.publish_watched()).result(60)
    receipt = insert(pipeline, "a")
    (event,) = events(joined, joined.after, 1)
    assert event.position == (receipt["revision"], 0)


def test_equal_subscriptions_share_the_work(pipeline: Pipeline) -> None:
    compared = []
    advance = ChangeTracker.advance

    def counted(tracker: ChangeTracker, view: Any) -> Any:
        compared.append(view.revision)
        return advance(tracker, view)

    with patch.object(ChangeTracker, "advance", counted):
        equal = [join(pipeline) for _ in range(5)]
        other = join(pipeline, subscription=Subscription(top=2, limit=10))
        receipt = insert(pipeline, "a")
        (event,) = events(other, other.after, 1)
        told = [events(joined, joined.after, 1)[0] for joined in equal]
    assert compared == [receipt["revision"]] * 2
    assert len({id(one) for one in told}) == 1
    assert told[0] is not event


def test_a_subscriber_continues_where_it_was(pipeline: Pipeline) -> None:
    joined = join(pipeline)
    insert(pipeline, "a")
    (first,) = events(joined, joined.after, 1)
    pipeline.changes.leave(joined.ring)
    insert(pipeline, "b")
    insert(pipeline, "c")
    again = join(pipeline, first.id)
    assert again.first is None
    assert again.ring is joined.ring
    revision, _ = first.position
    following = [event.position for event in events(again, again.after, 2)]
    assert following == [(revision + 1, 0), (revision + 2, 0)]


def gap(joined: Joined) -> str:
    assert joined.first is not None
    assert joined.first.name == "gap"
    told = members(joined.first)
    assert joined.first.id.endswith(f"-{told['revision']}")
    assert "hub" in [one["vertex"] for one in told["top"]]
    reason: str = told["reason"]
    return reason


def test_an_event_that_is_too_old_is_a_gap(pipeline: Pipeline) -> None:
    with patch.object(published, "MAX_EVENTS", 2):
        joined = join(pipeline)
        for vertex in "abc":
            insert(pipeline, vertex)
        found = events(joined, (pipeline.view.revision - 1, 0), 1)
        epoch, _, newest = found[0].id.rpartition("-")
        assert gap(join(pipeline, f"{epoch}-{int(newest) - 3}")) == "too-old"
        assert join(pipeline, f"{epoch}-{int(newest) - 2}").first is None
        with pytest.raises(SlowSubscriber, match="3 revisions behind"):
            joined.ring.read(joined.after, Future())


def test_the_bytes_of_a_ring_are_limited(pipeline: Pipeline) -> None:
    with patch.object(published, "MAX_EVENT_BYTES", 10):
        joined = join(pipeline)
        for vertex in "abc":
            insert(pipeline, vertex)
        events(joined, (pipeline.view.revision - 1, 0), 1)  # the newest is kept
        with pytest.raises(SlowSubscriber):
            joined.ring.read((pipeline.view.revision - 2, 0), Future())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda epoch, newest: f"{epoch}-{newest + 1}", "future"),
        (lambda epoch, newest: f"{epoch}-{newest}.1", "future"),
        (lambda epoch, newest: f"{epoch}-{10**30 + newest}", "future"),
        (lambda epoch, newest: f"{epoch}0-{newest}", "epoch"),
        (lambda epoch, _: f"{epoch}-{'9' * 5000}", "epoch"),
        (lambda epoch, _: epoch, "epoch"),
        (lambda epoch, _: f"{epoch}-", "epoch"),
        (lambda epoch, newest: f"{epoch}-{newest}.", "epoch"),
        (lambda epoch, newest: f"{epoch}--{newest}", "epoch"),
        (lambda epoch, _: f"{epoch}-٣", "epoch"),
        (lambda _, newest: str(newest), "epoch"),
    ],
)
def test_an_event_that_never_was_is_a_gap(change: Any, reason: str, pipeline: Pipeline) -> None:
    insert(pipeline, "a")
    joined = join(pipeline)
    assert gap(join(pipeline, change(joined.ring.epoch, joined.after[0]))) == reason


def test_another_subscription_is_a_gap(pipeline: Pipeline) -> None:
    insert(pipeline, "a")
    joined = join(pipeline)
    last = f"{joined.ring.epoch}-{joined.after[0]}"
    assert join(pipeline, last).first is None
    assert gap(join(pipeline, last, Subscription(top=1, limit=10))) == "epoch"


def test_a_restart_is_a_gap(tmp_path: Path) -> None:
    with working(tmp_path) as pipeline:
        insert(pipeline, "a")
        joined = join(pipeline)
    with working(tmp_path) as pipeline:
        assert gap(join(pipeline, f"{joined.ring.epoch}-{joined.after[0]}")) == "epoch"


def test_a_ring_that_was_removed_is_a_gap(pipeline: Pipeline) -> None:
    insert(pipeline, "a")
    with patch.object(published, "RESUME_SECONDS", 0.05):
        joined = join(pipeline)
        pipeline.changes.leave(joined.ring)
        wait_for(lambda: pipeline.changes._thread is None)
        assert pipeline.changes._rings == {}
        # ranks may have moved by less than the threshold since: continuing would add up
        assert gap(join(pipeline, f"{joined.ring.epoch}-{joined.after[0]}")) == "epoch"


def test_a_thread_that_ends_leaves_the_rings_of_the_next_one_alone(pipeline: Pipeline) -> None:
    feed, later = pipeline.changes, []
    next_work = feed._next

    def join_before_the_end() -> Any:
        work = next_work()
        if work is None and feed._thread is None:
            later.append(join(pipeline))
        return work

    with (
        patch.object(published, "RESUME_SECONDS", 0.05),
        patch.object(feed, "_next", join_before_the_end),
    ):
        joined = join(pipeline)
        thread = feed._thread
        assert thread is not None
        feed.leave(joined.ring)
        thread.join(60)  # an error of the thread fails the test
        insert(pipeline, "a")
        events(later[0], later[0].after, 1)


def test_the_writer_does_not_wait_and_skipped_ranks_are_deferred(pipeline: Pipeline) -> None:
    joined = join(pipeline)
    with stalled() as gate:
        for number in range(20):
            insert(pipeline, f"v{number}")  # has its receipt while no comparison ends
        views = [one for one in pipeline.changes._work if getattr(one, "view", None)]
        assert len(views) <= published.MAX_WAITING_VIEWS
        gate.set()
        found = [members(event) for event in events(joined, joined.after, 20)]
    first = found[0]["revision"]
    assert [one["revision"] for one in found] == list(range(first, first + 20))
    deferred = [one for one in found if one["deferred"]]
    assert len(deferred) >= 20 - published.MAX_WAITING_VIEWS - 1
    assert all(one["entered"] == one["left"] == one["moved"] == [] for one in deferred)
    assert not found[-1]["deferred"]
    told = {one["vertex"] for event in found for one in (*event["entered"], *event["moved"])}
    assert told >= {f"v{number}" for number in range(10)}


def put_view(pipeline: Pipeline, name: str, teleport: Any) -> None:
    view = ViewRequest.model_validate({"teleport": teleport, "refresh": "read"})
    request = WatchRequest([view], 60.0, name)
    pipeline.submit_query(request)
    request.answer.result(60)


def test_events_of_a_view_have_its_bound_though_its_ranks_are_skipped(pipeline: Pipeline) -> None:
    insert(pipeline, "a", "b")
    put_view(pipeline, "mine", {"weights": {"a": 1.0}})
    query = WatchedQuery.model_validate({"seeds": {"a": 1.0}, "target_error": 1e-4})
    watch = WatchRequest([query], 60.0, "mine")
    pipeline.submit_query(watch)
    watch.answer.result(60)
    joined = join(pipeline, subscription=Subscription(view="mine"))
    others = join(pipeline, subscription=Subscription(watched="mine"))
    bounds = []
    with stalled() as gate:
        receipts = []
        for number in range(8):
            receipts.append(send(pipeline, batch([("a", f"v{number}"), (f"v{number}", "hub")])))
            bounds.append(pipeline.view.answer("mine").error_bound)
        gate.set()
        found = [members(event) for event in events(joined, joined.after, 8)]
    assert any(one["deferred"] for one in found)
    assert not found[-1]["deferred"]
    assert [one["error_bound"] for one in found] == [one["views"]["mine"] for one in receipts]
    assert len({one["error_bound"] for one in found}) > 1
    of_query = [members(event)["error_bound"] for event in events(others, others.after, 8)]
    assert of_query == bounds
    assert bounds != [one["error_bound"] for one in receipts]


def test_ranks_that_were_skipped_are_told_with_a_view_of_their_revision(pipeline: Pipeline) -> None:
    insert(pipeline, "a", "b")
    joined = join(pipeline, subscription=Subscription(top=20, limit=99))
    with stalled() as gate:
        send(pipeline, batch([("b", "a")]))  # which is being compared
        send(pipeline, batch([("a", "later"), ("b", "later")]))
        for number in range(8):
            put_view(pipeline, f"v{number}", {"weights": {"a": 1.0}})
        gate.set()
        _, skipped, later = (members(event) for event in events(joined, joined.after, 3))
    assert (skipped["deferred"], skipped["entered"]) == (True, [])
    assert not later["deferred"]
    assert [one["vertex"] for one in later["entered"]] == ["later"]


def test_different_subscriptions_are_limited(pipeline: Pipeline) -> None:
    with patch.object(published, "MAX_SUBSCRIPTIONS", 2):
        joined = [join(pipeline, subscription=Subscription(top, limit=99)) for top in (1, 2)]
        with pytest.raises(
            TooBusy, match="different subscriptions of graph 'test'; the limit is 2"
        ):
            join(pipeline)
        join(pipeline, subscription=Subscription(1, limit=99))
        pipeline.changes.leave(joined[1].ring)
        join(pipeline)  # instead of one without subscribers
    assert pipeline.changes.subscribers == 3


def test_without_subscribers_nothing_is_kept(pipeline: Pipeline) -> None:
    insert(pipeline, "a")
    assert pipeline.changes._thread is None
    assert not pipeline.changes._work


def test_a_failure_ends_its_subscription_alone(pipeline: Pipeline) -> None:
    joined = join(pipeline)
    other = join(pipeline, subscription=Subscription(top=1, limit=10))
    advance = ChangeTracker.advance

    def failing(tracker: ChangeTracker, view: Any) -> Any:
        if tracker is joined.ring.tracker:
            raise OutOfMemory("a test", 1, 0)
        return advance(tracker, view)

    with patch.object(ChangeTracker, "advance", failing):
        insert(pipeline, "a")
        events(other, other.after, 1)
        with pytest.raises(OutOfMemory):
            joined.ring.read(joined.after, Future())
    assert join(pipeline).ring is not joined.ring


def test_a_closed_graph_ends_its_streams(tmp_path: Path) -> None:
    pipeline = opened(tmp_path)
    joined = join(pipeline)
    waiter: Future[None] = Future()
    assert joined.ring.read(joined.after, waiter) == []
    pipeline.close(NotReady("stopping"))
    waiter.result(0)
    with pytest.raises(NotReady, match="stopping"):
        joined.ring.read(joined.after, Future())
    with pytest.raises(NotReady, match="stopping"):
        join(pipeline)


def test_a_waiter_that_is_forgotten_is_not_woken(pipeline: Pipeline) -> None:
    ring: EventRing = join(pipeline).ring
    waiter: Future[None] = Future()
    assert ring.read(pipeline.view.position, waiter) == []
    ring.forget(waiter)
    ring.forget(waiter)
    assert ring._waiting == []
