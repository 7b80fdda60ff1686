"""Edges that leave by age, against a dictionary of times, with restarts."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpu import OutOfMemory
from service.errors import BatchRejected, IdempotencyConflict, StorageFailed
from service.pipeline import expiry
from service.pipeline.expiry import Expiry
from service.pipeline.keyed_graph import IncompletelyApplied, KeyedGraph
from tests.service.graphs import (
    edges_of,
    engine_of,
    receipt,
    send,
    submit,
    timed_batch,
    together,
    working,
    writer_of,
)
from tests.service.pipeline.windows import (
    EVENT,
    WALL,
    Clock,
    Model,
    eventually,
    journalled,
    random_batches,
    receipts,
)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_by_event_a_random_stream_leaves_the_edges_of_the_model(
    tmp_path: Path, seed: int, directed: bool
) -> None:
    model, choice = Model(directed), random.Random(seed)
    batches = list(random_batches(seed, 60))
    while batches:
        with working(tmp_path, window=EVENT, directed=directed) as pipeline:
            assert model.has(edges_of(pipeline))
            for _ in range(min(len(batches), 20)):
                insert, delete = batches.pop(0)
                send(pipeline, timed_batch(insert, delete))
                model.apply_by_event(insert, delete)
                assert model.has(edges_of(pipeline))
                assert pipeline.view.edges == len(model.edges)
            if choice.random() < 0.5:
                pipeline.checkpoint().result(60)
            bound = engine_of(pipeline).options.target_error
            assert pipeline.view.error_bound <= bound
    expiries = [deleted for is_expiry, deleted in journalled(tmp_path) if is_expiry]
    assert len(expiries) > 5
    assert all(expiries)


@pytest.mark.parametrize("seed", range(2))
def test_by_event_the_grouping_of_batches_does_not_matter(tmp_path: Path, seed: int) -> None:
    batches = list(random_batches(seed, 40))
    ends, counts = [], []
    for name, size in (("single", 1), ("together", 7)):
        directory = tmp_path / name
        directory.mkdir()
        with working(directory, window=EVENT) as pipeline:
            for first in range(0, len(batches), size):
                sent = [timed_batch(*one) for one in batches[first : first + size]]
                together(pipeline, sent)
                for one in sent:
                    receipt(one)
            ends.append(edges_of(pipeline))
            wanted = ("version", "inserted", "already_present", "deleted", "not_found", "expired")
            counts.append([{name: one[name] for name in wanted} for one in receipts(pipeline)])
    assert ends[0] == ends[1]
    assert counts[0] == counts[1]
    assert sum(one["expired"] for one in counts[0]) > 20


@pytest.mark.parametrize("directed", [True, False])
def test_by_the_wall_clock_a_random_stream_leaves_the_edges_of_the_model(
    tmp_path: Path, clock: Clock, directed: bool
) -> None:
    model = Model(directed)
    batches = list(random_batches(7, 24))
    for part in (batches[:8], batches[8:16], batches[16:]):
        with working(tmp_path, window=WALL, directed=directed) as pipeline:
            for insert, delete in part:
                clock.now += 0.5
                model.apply(insert, delete)
                send(pipeline, timed_batch(insert, delete))
                model.expire(clock.now)
                eventually(lambda: model.has(edges_of(pipeline)))
            if part is batches[8:16]:
                pipeline.checkpoint().result(60)
        clock.now += 2.0  # some more are too old at the next start
        model.expire(clock.now)
    with working(tmp_path, window=WALL, directed=directed) as pipeline:
        eventually(lambda: model.has(edges_of(pipeline)))


def test_by_the_wall_clock_edges_leave_without_any_batch(tmp_path: Path, clock: Clock) -> None:
    with working(tmp_path, window=WALL) as pipeline:
        first = send(pipeline, timed_batch([("a", "b", 1_000.0), ("b", "c", 1_002.0)]))
        assert (first["inserted"], first["expired"]) == (2, 0)
        clock.now = 1_005.0
        time.sleep(0.2)
        assert pipeline.view.edges == 2  # of exactly the age
        clock.now = 1_005.5
        eventually(lambda: pipeline.view.edges == 1)
        assert edges_of(pipeline) == {("b", "c")}
        expired = receipts(pipeline)[-1]
        assert (expired["version"], expired["expired"], expired["deleted"]) == (2, 1, 0)
        assert expired["error_bound"] <= 1e-6
    assert journalled(tmp_path) == [(False, 0), (True, 1)]


def test_an_edge_that_is_sent_again_is_young_again(tmp_path: Path) -> None:
    with working(tmp_path, window=EVENT) as pipeline:
        send(pipeline, timed_batch([("a", "b", 1.0), ("c", "d", 1.0)]))
        assert send(pipeline, timed_batch([("a", "b", 5.0)]))["already_present"] == 1
        send(pipeline, timed_batch([("x", "y", 8.0)]))
        assert edges_of(pipeline) == {("a", "b"), ("x", "y")}


def test_by_event_an_insertion_that_is_too_old_leaves_at_once(tmp_path: Path) -> None:
    with working(tmp_path, window=EVENT) as pipeline:
        sent = send(pipeline, timed_batch([("a", "b", 100.0), ("old", "b", 10.0)]))
        assert (sent["version"], sent["ranked_version"], sent["inserted"]) == (1, 2, 2)
        assert edges_of(pipeline) == {("a", "b")}
        assert send(pipeline, timed_batch([("older", "b", 1.0)]))["version"] == 3
        assert edges_of(pipeline) == {("a", "b")}


def test_recovery_consults_no_clock(tmp_path: Path, clock: Clock) -> None:
    with working(tmp_path, window=WALL) as pipeline:
        for number in range(20):
            clock.now = 1_000.0 + number
            send(pipeline, timed_batch([(f"v{number}", "hub", clock.now)]))
        eventually(lambda: len(edges_of(pipeline)) == 6)
        before = edges_of(pipeline)
    clock.now = 0.0  # by which nothing is too old
    with working(tmp_path, window=WALL) as pipeline:
        assert edges_of(pipeline) == before


def test_no_clock_is_read_while_batches_are_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with working(tmp_path, window=EVENT) as pipeline:
        for number in range(8):
            send(pipeline, timed_batch([(f"v{number}", "hub", float(number))]))
        before = edges_of(pipeline)
    original, clock = KeyedGraph.apply, time.time

    def apply(keyed: KeyedGraph, *arguments: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time", unread)
            return original(keyed, *arguments)

    def unread() -> float:
        # other threads may read it, and so may what the garbage collector finalises in this one
        caller = sys._getframe(1).f_globals["__name__"]
        assert caller.partition(".")[0] not in ("service", "gpu"), f"{caller} reads a clock"
        return clock()

    monkeypatch.setattr(KeyedGraph, "apply", apply)
    with working(tmp_path, window=EVENT) as pipeline:
        assert edges_of(pipeline) == before


def test_times_and_the_event_clock_survive_a_checkpoint(tmp_path: Path) -> None:
    with working(tmp_path, window=EVENT) as pipeline:
        send(pipeline, timed_batch([("a", "b", 10.0), ("b", "c", 12.0)]))
        send(pipeline, timed_batch(delete=[("b", "c")]))
        pipeline.checkpoint().result(60)
        assert pipeline.view.memory["times"] > 0
    with working(tmp_path, window=EVENT) as pipeline:
        window = writer_of(pipeline).keyed.window
        assert window is not None
        assert (len(window.times), window.times.newest) == (1, 12.0)
        send(pipeline, timed_batch([("x", "y", 15.5)]))
        assert edges_of(pipeline) == {("x", "y")}


def test_a_repeat_with_other_content_expires_nothing(tmp_path: Path) -> None:
    with working(tmp_path, window=EVENT) as pipeline:
        send(pipeline, timed_batch([("a", "b", 10.0)], key="k"))
        other = timed_batch([("a", "b", 1e9)], key="k")
        submit(pipeline, other)
        with pytest.raises(IdempotencyConflict):
            other.ranked.result(60)
        assert edges_of(pipeline) == {("a", "b")}
        assert pipeline.committed == 1
        again = timed_batch([("a", "b", 10.0)], key="k")
        assert send(pipeline, again)["version"] == 1


def test_repeats_that_wait_together_are_applied_once(tmp_path: Path) -> None:
    with working(tmp_path, window=EVENT) as pipeline:
        sent = [timed_batch([("a", "b", 10.0)], key="k") for _ in range(3)]
        together(pipeline, sent)
        assert {receipt(one)["version"] for one in sent} == {1}


def test_by_event_an_expiry_that_could_not_be_committed_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "RETRY_SECONDS", 0.1)
    with working(tmp_path, window=EVENT) as pipeline:
        send(pipeline, timed_batch([("a", "b", 10.0)]))
        journal, failures = writer_of(pipeline).journal, list[int]()
        original = journal.append

        def refuse(records: Any, revisions: int) -> list[int]:
            if any(b"expiry" in record.payload for record in records) and len(failures) < 3:
                failures.append(1)
                raise StorageFailed(journal.path, "the disk is full")
            return original(records, revisions)

        monkeypatch.setattr(journal, "append", refuse)
        assert send(pipeline, timed_batch([("c", "d", 100.0)]))["version"] == 2
        eventually(lambda: pipeline.view.edges == 1)
        assert edges_of(pipeline) == {("c", "d")}
        assert (len(failures), pipeline.committed) == (3, 3)


def test_an_expiry_that_was_not_committed_follows_after_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with working(tmp_path, window=EVENT) as pipeline:
        send(pipeline, timed_batch([("a", "b", 10.0)]))
        monkeypatch.setattr(Expiry, "follow", lambda *_: None)
        send(pipeline, timed_batch([("c", "d", 100.0)]))
        assert pipeline.view.edges == 2
    with working(tmp_path, window=EVENT) as pipeline:
        eventually(lambda: pipeline.view.edges == 1)
        assert edges_of(pipeline) == {("c", "d")}


def test_a_batch_that_the_window_cannot_follow_stops_the_graph(tmp_path: Path) -> None:
    """It is in the graph, so it is not rejected; a restart applies it again."""
    with working(tmp_path, window=EVENT) as pipeline:
        send(pipeline, timed_batch([("a", "b", 10.0)]))

        def fail(*_: object) -> None:
            raise MemoryError("no memory for the times")

        failed = timed_batch([("b", "c", 11.0)])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(writer_of(pipeline).keyed.window, "applied", fail)
            submit(pipeline, failed)
            with pytest.raises(IncompletelyApplied, match="no memory for the times"):
                failed.ranked.result(60)
        assert pipeline.outcome(2) is None
    with working(tmp_path, window=EVENT) as pipeline:
        assert edges_of(pipeline) == {("a", "b"), ("b", "c")}
        assert pipeline.committed == 2


def test_large_expiries_are_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "MAX_EDGES", 40)
    with working(tmp_path, window=EVENT) as pipeline:
        send(pipeline, timed_batch([(f"v{n}", f"w{n % 7}", 1.0) for n in range(100)]))
        send(pipeline, timed_batch([("a", "b", 100.0)]))
        assert [one["expired"] for one in receipts(pipeline)] == [0, 0, 40, 40, 20]
    assert journalled(tmp_path) == [(False, 0), (False, 0), (True, 40), (True, 40), (True, 20)]


def test_an_expiry_is_divided_until_memory_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with working(tmp_path, window=EVENT) as pipeline:
        send(pipeline, timed_batch([(f"v{n}", f"w{n % 7}", 1.0) for n in range(100)]))
        engine, room = engine_of(pipeline), 30
        check = engine.check_memory

        def limited(operations: int, *others: Any) -> None:
            if operations > room:
                raise OutOfMemory("a batch", operations, room)
            check(operations, *others)

        monkeypatch.setattr(engine, "check_memory", limited)
        send(pipeline, timed_batch([("a", "b", 100.0)]))
        assert edges_of(pipeline) == {("a", "b")}
    assert [deleted for is_expiry, deleted in journalled(tmp_path) if is_expiry] == [25] * 4


def test_by_the_wall_clock_a_failure_is_retried(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "RETRY_SECONDS", 0.1)
    with working(tmp_path, window=WALL) as pipeline:
        send(pipeline, timed_batch([("a", "b", 1_000.0)]))
        journal, failures = writer_of(pipeline).journal, list[int]()
        original = journal.append

        def refuse(records: Any, revisions: int) -> list[int]:
            if records and len(failures) < 2:
                failures.append(1)
                raise StorageFailed(journal.path, "the disk is full")
            return original(records, revisions)

        monkeypatch.setattr(journal, "append", refuse)
        clock.now = 2_000.0
        eventually(lambda: pipeline.view.edges == 0)
        assert len(failures) == 2


def test_a_rejected_batch_leaves_the_times_unchanged_and_expires_nothing(tmp_path: Path) -> None:
    with working(tmp_path, window=EVENT) as pipeline:
        send(pipeline, timed_batch([("a", "b", 10.0)]))

        def refuse(*_: object) -> None:
            raise OutOfMemory("a batch", 2, 1)

        rejected = timed_batch([("a", "b", 11.0), ("q", "r", 1e9)])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine_of(pipeline), "apply", refuse)
            submit(pipeline, rejected)
            with pytest.raises(BatchRejected):
                rejected.ranked.result(60)
        window = writer_of(pipeline).keyed.window
        assert window is not None
        assert (len(window.times), window.times.newest) == (1, 10.0)
        assert (edges_of(pipeline), pipeline.committed) == ({("a", "b")}, 2)


def test_batches_to_be_ranked_later_expire_without_a_ranking(tmp_path: Path) -> None:
    with working(tmp_path, window=EVENT) as pipeline:
        for number in range(4):
            later = timed_batch([(f"v{number}", "hub", 10.0 * number)], rank_later=True)
            pipeline.submit(later.batch, durable=later.durable)
            later.durable.result(60)
        assert pipeline.view.version == 0
        assert edges_of(pipeline) == {("v3", "hub")}
        last = send(pipeline, timed_batch([("w", "hub", 31.0)]))
        assert (last["ranked_version"], pipeline.view.edges) == (8, 2)
        assert sum(one["expired"] for one in receipts(pipeline)) == 3
