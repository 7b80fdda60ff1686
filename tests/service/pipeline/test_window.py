"""Edges that leave by age, against a dictionary of times, with restarts."""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from liverank_gpu import OutOfMemory, Solve
from liverank_gpu.graph.resolve import ResolvedBatch
from liverank_service.errors import (
    BatchRejected,
    ExpiryFailed,
    IdempotencyConflict,
    RankingDelayed,
    StorageFailed,
)
from liverank_service.pipeline import expiry
from liverank_service.pipeline.batch import Batch
from liverank_service.pipeline.expiry import Expiry
from liverank_service.pipeline.keyed_graph import IncompletelyApplied, KeyedGraph
from liverank_service.pipeline.pipeline import Pipeline
from liverank_service.pipeline.window import WindowOptions
from liverank_service.pipeline.writer import Writer
from liverank_service.storage.journal import Journal
from tests.service.graphs import (
    Sent,
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
    FORGETTING,
    WALL,
    Clock,
    Model,
    RunningClock,
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
        time.sleep(0.1)
        assert pipeline.view.edges == 2  # of exactly the age
        clock.now = 1_005.5
        eventually(lambda: pipeline.view.edges == 1)
        assert edges_of(pipeline) == {("b", "c")}
        expired = receipts(pipeline)[-1]
        assert (expired["version"], expired["expired"], expired["deleted"]) == (2, 1, 0)
        assert expired["error_bound"] <= 1e-6
    assert journalled(tmp_path) == [(False, 0), (True, 1)]


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> RunningClock:
    """A wall clock that runs, and can jump."""
    running = RunningClock(ahead=1e9)
    monkeypatch.setattr(expiry, "time", running)
    monkeypatch.setattr(expiry, "_LONGEST_PAUSE", 0.01)
    return running


HELD = WindowOptions(1_000.0, max_share=0.1, hold_seconds=60.0)


def of_ages(running: RunningClock, ages: Sequence[float]) -> Sent:
    """A batch with an edge of each age in seconds."""
    now = running.time()
    return timed_batch([(f"v{age}", "hub", now - age) for age in ages])


def waits(pipeline: Pipeline) -> bool:
    return pipeline.expiry_delay is not None


def test_a_jump_of_the_clock_takes_nothing_before_it_has_held_for_a_minute(
    tmp_path: Path, running: RunningClock, caplog: pytest.LogCaptureFixture
) -> None:
    with working(tmp_path, window=HELD) as pipeline:
        running.passed += 61.0
        time.sleep(0.1)
        send(pipeline, of_ages(running, range(0, 1_000, 10)))
        running.ahead += 3_600.0
        eventually(lambda: waits(pipeline))
        delay = pipeline.expiry_delay
        assert delay is not None
        assert re.match(r"100 of 100 edges are too old, \d s after the last jump", delay.reason)
        assert abs(delay.since - running.time()) < 60.0
        assert delay.reason in caplog.text
        running.passed += 55.0
        time.sleep(0.1)  # a look, and another one
        assert (waits(pipeline), pipeline.view.edges) == (True, 100)
        assert caplog.text.count("edges are too old") == 1
        running.passed += 5.0
        eventually(lambda: pipeline.view.edges == 0)
        assert pipeline.expiry_delay is None


def test_a_clock_that_is_set_back_within_a_minute_has_taken_nothing(
    tmp_path: Path, running: RunningClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with working(tmp_path, window=HELD) as pipeline:
        running.passed += 61.0
        send(pipeline, of_ages(running, range(0, 1_000, 10)))
        running.ahead += 1e6
        eventually(lambda: waits(pipeline))
        running.ahead -= 1e6
        eventually(lambda: not waits(pipeline))
        assert "edges leave by age again" in caplog.text
        running.passed += 20.5  # as always, also just after a jump
        eventually(lambda: pipeline.view.edges == 98)
        running.ahead += 95.0  # by so much that no more than the share leaves
        eventually(lambda: pipeline.view.edges == 89)
        assert not waits(pipeline)
        running.ahead -= 1e6
        time.sleep(0.1)
        assert pipeline.view.edges == 89


def test_much_may_expire_by_a_clock_that_has_not_jumped(
    tmp_path: Path, running: RunningClock
) -> None:
    """Edges that came together leave together."""
    with working(tmp_path, window=HELD) as pipeline:
        send(pipeline, of_ages(running, [0.1 * number for number in range(100)]))
        running.passed += 995.0
        eventually(lambda: pipeline.view.edges < 60)
        assert not waits(pipeline)
        running.passed += 6.0
        eventually(lambda: pipeline.view.edges == 0)


def test_a_clock_is_not_trusted_when_the_process_starts(
    tmp_path: Path, running: RunningClock
) -> None:
    with working(tmp_path, window=HELD) as pipeline:
        send(pipeline, of_ages(running, range(0, 1_000, 10)))
    running.passed += 500.0
    with working(tmp_path, window=HELD) as pipeline:
        eventually(lambda: waits(pipeline))
        assert "s after the start" in str(pipeline.expiry_delay)
        running.ahead -= 500.0  # it was wrong
        eventually(lambda: not waits(pipeline))
        assert pipeline.view.edges == 100
    running.ahead += 500.0
    with working(tmp_path, window=HELD) as pipeline:
        eventually(lambda: waits(pipeline))
        running.passed += 60.0  # it was right
        eventually(lambda: pipeline.view.edges == 44)


def test_a_short_window_waits_no_longer_than_it_lasts(
    tmp_path: Path, running: RunningClock
) -> None:
    """So edges that came since the jump leave in time."""
    with working(tmp_path, window=replace(HELD, seconds=30.0)) as pipeline:
        send(pipeline, of_ages(running, [0.0, 25.0]))
        running.passed += 6.0
        eventually(lambda: waits(pipeline))
        running.passed += 24.0
        eventually(lambda: pipeline.view.edges == 0)


@pytest.mark.parametrize(
    "window", [replace(HELD, max_share=1.0), replace(HELD, hold_seconds=0.0)], ids=["share", "time"]
)
def test_a_jump_of_the_clock_takes_all_without_a_limit(
    tmp_path: Path, running: RunningClock, window: WindowOptions
) -> None:
    with working(tmp_path, window=window) as pipeline:
        send(pipeline, of_ages(running, [0.0, 1.0]))
        running.ahead += 1e6
        eventually(lambda: pipeline.view.edges == 0)


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
        assert caller.partition(".")[0] not in ("liverank_service", "liverank_gpu"), (
            f"{caller} reads a clock"
        )
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


def adding(rows: list[tuple[str, str, float]], key: str) -> Sent:
    """A batch that adds to the weights of edges, each with the weight 1."""
    sent = timed_batch(rows, weights=[1.0] * len(rows), key=key)
    columns = replace(sent.batch.columns, on_conflict="add")
    return Sent(Batch.of(columns, repr(rows).encode(), Solve(), key))


STREAM = [
    [("a", "b", 1.0), ("b", "c", 1.0), ("c", "a", 2.0)],
    [("c", "d", 20.0)],
    [("a", "b", 21.0), ("d", "a", 21.5)],
    [("a", "b", 22.0)],
    [("b", "d", 26.5)],
]
"""The second batch and the last one make edges too old, and vertices are forgotten."""

TOLD = ("version", "inserted", "already_present", "new_vertices", "removed", "removed_edges",
        "expired", "ranked_version", "revision")  # fmt: skip

Found = tuple[list[dict[str, Any]], dict[tuple[str, str], float], dict[str, float]]


def found_in(pipeline: Pipeline) -> Found:
    """Receipts, edges with their weights, and ranks. Rejected versions have no receipt."""

    def weights(writer: Writer) -> dict[tuple[str, str], float]:
        engine, keys = writer.ranking._engine, writer.keyed.keys
        ends = (keys.keys(column).to_pylist() for column in engine.edge_list())
        return dict(zip(zip(*ends, strict=True), engine.edge_weights().tolist(), strict=True))

    ranked = [one for one in receipts(pipeline) if "ranked_version" in one]
    told = [{name: one[name] for name in TOLD} for one in ranked]
    top = pipeline.view.top(10)
    ranks = dict(zip(top.vertices, top.ranks, strict=True))
    return told, pipeline.call(weights).result(60), ranks


def send_until_ranked(pipeline: Pipeline, number: int) -> list[Exception]:
    """The errors with which the batch of the stream was refused before."""
    errors: list[Exception] = []
    while True:
        sent = adding(STREAM[number], f"k{number}")
        submit(pipeline, sent)
        error = sent.ranked.exception(60)
        if error is None:
            return errors
        assert isinstance(error, Exception)
        errors.append(error)
        assert len(errors) < 50
        time.sleep(0.02)


class Failing:
    """Makes steps of expiries fail, `left` times."""

    def __init__(self, pipeline: Pipeline, patch: pytest.MonkeyPatch, step: str) -> None:
        self.left = 0
        writer = writer_of(pipeline)
        window = writer.keyed.window
        assert window is not None
        full = StorageFailed(writer.journal.path, "the disk is full")
        short = OutOfMemory("a batch", 2, 1)
        owner, name, error, concerned = {
            "edges": (writer.journal, "append", full, self._deletes),
            "vertices": (writer.journal, "append", full, self._removes),
            "check": (writer.keyed, "check_memory", short, lambda columns: columns[0].expiry),
            "times": (window.times, "expired", MemoryError("no memory"), lambda _: True),
            "apply": (engine_of(pipeline), "apply", short, self._only_deletes),
            "forget": (engine_of(pipeline), "apply", short, self._only_removes),
        }[step]
        original = getattr(owner, name)

        def fail(first: Any, *others: Any) -> Any:
            if self.left and concerned(first):
                # for lack of memory an expiry is first divided
                self.left -= step != "check" or first[0].operations == 1
                raise error
            return original(first, *others)

        patch.setattr(owner, name, fail)

    @staticmethod
    def _deletes(records: Any) -> bool:
        return any(b"expiry" in each.payload and b"remove" not in each.payload for each in records)

    @staticmethod
    def _removes(records: Any) -> bool:
        return any(b"remove" in each.payload for each in records)

    @staticmethod
    def _only_deletes(batch: Any) -> bool:
        columns = batch.batch if isinstance(batch, ResolvedBatch) else batch
        return len(columns.insert_sources) == 0 and len(columns.delete_sources) > 0

    @staticmethod
    def _only_removes(batch: Any) -> bool:
        columns = batch.batch if isinstance(batch, ResolvedBatch) else batch
        return len(columns.insert_sources) == 0 and len(columns.remove) > 0


FAILURES = ("edges", "vertices", "check", "times")
REJECTIONS = ("apply", "forget")
OPTIONS: dict[str, Any] = {"window": FORGETTING, "weighted": True, "target_error": 1e-9}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Found, list[bytes]]:
    """What the stream makes, and what the journal has then."""
    directory = tmp_path_factory.mktemp("undisturbed")
    with working(directory, **OPTIONS) as pipeline:
        for number in range(len(STREAM)):
            assert send_until_ranked(pipeline, number) == []
        found = found_in(pipeline)
    assert found[1][("a", "b")] == 2.0
    return found, payloads(directory)


def payloads(directory: Path) -> list[bytes]:
    journal = Journal(directory / "journal.db")
    found = [record.payload for _, _, record, _ in journal.batches(0)]
    journal.close()
    return found


def assert_replayed(directory: Path, before: Found) -> None:
    """A restart has the receipts and the graph from before, and each version has an outcome."""
    with working(directory, **OPTIONS) as pipeline:
        told, edges, ranks = found_in(pipeline)
        outcomes = [pipeline.outcome(version) for version in range(1, pipeline.committed + 1)]
    assert (told, edges) == before[:2]
    assert ranks == pytest.approx(before[2], abs=2e-9)
    ranked = [number for number, one in enumerate(outcomes, 1) if one and one.status == "ranked"]
    assert ranked == [one["version"] for one in told]
    assert {one and one.status for one in outcomes} <= {"ranked", "rejected"}


@pytest.mark.parametrize("failures", [1, 3])
@pytest.mark.parametrize("step", FAILURES)
def test_by_event_a_failure_of_an_expiry_changes_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: tuple[Found, list[bytes]],
    step: str,
    failures: int,
) -> None:
    """The next batch is refused until the expiry is complete, which each attempt tries."""
    with working(tmp_path, **OPTIONS) as pipeline:
        send_until_ranked(pipeline, 0)
        failing = Failing(pipeline, monkeypatch, step)
        failing.left = failures
        before = pipeline.view
        sent = adding(STREAM[1], "k1")
        submit(pipeline, sent)
        with pytest.raises(RankingDelayed, match="version 2 is committed"):
            sent.ranked.result(60)
        assert sent.durable.result(0) == 2
        assert pipeline.view is before
        delay = pipeline.expiry_delay
        assert delay is not None
        assert delay.reason in str(sent.ranked.exception(0))
        for _ in range(failures - 1):
            refused = adding(STREAM[2], "k2")
            submit(pipeline, refused)
            with pytest.raises(ExpiryFailed, match="refused until"):
                refused.ranked.result(60)
            assert refused.durable.exception(0) is not None
        assert failing.left == 0
        assert send_until_ranked(pipeline, 1) == []
        assert pipeline.expiry_delay is None
        for number in range(2, len(STREAM)):
            assert send_until_ranked(pipeline, number) == []
        assert found_in(pipeline) == undisturbed[0]
    assert payloads(tmp_path) == undisturbed[1]
    assert_replayed(tmp_path, undisturbed[0])


def send_until_it_fails(
    pipeline: Pipeline, patch: pytest.MonkeyPatch, step: str, captured: bool
) -> None:
    """Sends three batches, of which the second has an expiry that fails from then on.

    captured  whether there is a checkpoint after the first
    """
    send_until_ranked(pipeline, 0)
    if captured:
        pipeline.checkpoint().result(60)
    Failing(pipeline, patch, step).left = 1000
    for number in (1, 2):
        sent = adding(STREAM[number], f"k{number}")
        submit(pipeline, sent)
        with pytest.raises(RankingDelayed if number == 1 else ExpiryFailed):
            sent.ranked.result(60)


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("step", FAILURES)
def test_by_event_a_restart_after_a_failure_changes_no_version(
    tmp_path: Path, undisturbed: tuple[Found, list[bytes]], step: str, captured: bool
) -> None:
    with working(tmp_path, **OPTIONS) as pipeline, pytest.MonkeyPatch.context() as patch:
        send_until_it_fails(pipeline, patch, step, captured)
        with pytest.raises(ExpiryFailed):  # it would have what is too old
            pipeline.checkpoint().result(60)
        with pytest.raises(ExpiryFailed):
            pipeline.recompute(Solve()).result(60)
    with working(tmp_path, **OPTIONS) as pipeline:
        for number in range(1, len(STREAM)):
            assert send_until_ranked(pipeline, number) == []
        told, edges, ranks = found_in(pipeline)
    (expected, *others), journal = undisturbed
    ranked = ("ranked_version", "revision")  # a restart ranks what it has
    for one in (*told, *expected):
        assert one["ranked_version"] >= one["version"]
    of_batches = [{name: one[name] for name in TOLD if name not in ranked} for one in told]
    assert of_batches == [
        {name: one[name] for name in TOLD if name not in ranked} for one in expected
    ]
    assert edges == others[0]
    assert ranks == pytest.approx(others[1], abs=2e-9)
    assert payloads(tmp_path) == journal


@pytest.mark.parametrize("step", REJECTIONS)
def test_by_event_an_expiry_that_is_rejected_for_memory_delays_the_next_batch(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: tuple[Found, list[bytes]],
    step: str,
) -> None:
    """It used up versions; the graph and what is told of batches are those without it."""
    monkeypatch.setattr(expiry, "RETRY_SECONDS", 0.1)
    with working(tmp_path, **OPTIONS) as pipeline:
        send_until_ranked(pipeline, 0)
        failing = Failing(pipeline, monkeypatch, step)
        failing.left = 3  # both edges or vertices, then the first of them, then again
        errors = send_until_ranked(pipeline, 1)
        assert {type(error) for error in errors} == {RankingDelayed}
        for number in range(2, len(STREAM)):
            assert send_until_ranked(pipeline, number) == []
        found = told, edges, ranks = found_in(pipeline)
    assert failing.left == 0
    assert_replayed(tmp_path, found)
    for name in ("inserted", "already_present", "new_vertices", "removed", "expired"):
        counts = [[one[name] for one in each if one[name]] for each in (told, undisturbed[0][0])]
        assert sum(counts[0]) == sum(counts[1])
        if name not in ("expired", "removed"):  # which are divided
            assert counts[0] == counts[1]
    assert edges == undisturbed[0][1]
    assert ranks == pytest.approx(undisturbed[0][2], abs=2e-9)


@pytest.mark.parametrize("failures", [1, 3])
def test_by_event_a_rejected_expiry_whose_rejection_cannot_be_stored_delays_the_next_batch(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: tuple[Found, list[bytes]],
    failures: int,
) -> None:
    """Memory is short once it is committed, and then the disk fails too."""
    monkeypatch.setattr(expiry, "RETRY_SECONDS", 0.1)
    with working(tmp_path, **OPTIONS) as pipeline:
        send_until_ranked(pipeline, 0)
        Failing(pipeline, monkeypatch, "apply").left = 3
        journal, left = writer_of(pipeline).journal, [failures]
        original = journal.reject

        def reject(version: int, problem: bytes) -> None:
            if left[0]:
                left[0] -= 1
                raise StorageFailed(journal.path, "the disk is full")
            original(version, problem)

        monkeypatch.setattr(journal, "reject", reject)
        assert send_until_ranked(pipeline, 1)
        for number in range(2, len(STREAM)):
            send_until_ranked(pipeline, number)
        found = _, edges, ranks = found_in(pipeline)
    assert left == [0]
    assert edges == undisturbed[0][1]
    assert ranks == pytest.approx(undisturbed[0][2], abs=2e-9)
    assert_replayed(tmp_path, found)


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("step", REJECTIONS)
def test_by_event_a_restart_after_a_rejected_expiry_makes_the_same_graph(
    tmp_path: Path, undisturbed: tuple[Found, list[bytes]], step: str, captured: bool
) -> None:
    with working(tmp_path, **OPTIONS) as pipeline, pytest.MonkeyPatch.context() as patch:
        send_until_it_fails(pipeline, patch, step, captured)
        outcomes = [pipeline.outcome(version) for version in range(3, pipeline.committed + 1)]
        rejected = [n for n, one in enumerate(outcomes, 3) if one and one.status == "rejected"]
        assert rejected
    with working(tmp_path, **OPTIONS) as pipeline:
        for number in range(2, len(STREAM)):  # the one before is committed
            assert send_until_ranked(pipeline, number) == []
        found = told, edges, ranks = found_in(pipeline)
    assert not {one["version"] for one in told} & set(rejected)
    assert edges == undisturbed[0][1]
    assert ranks == pytest.approx(undisturbed[0][2], abs=2e-9)
    assert_replayed(tmp_path, found)


def test_by_event_batches_that_wait_together_hide_one_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: tuple[Found, list[bytes]]
) -> None:
    with working(tmp_path, **OPTIONS) as pipeline:
        send_until_ranked(pipeline, 0)
        Failing(pipeline, monkeypatch, "edges").left = 1
        sent = [adding(STREAM[number], f"k{number}") for number in range(1, len(STREAM))]
        together(pipeline, sent)
        for one in sent:
            receipt(one)
        assert found_in(pipeline)[1] == undisturbed[0][1]
    assert payloads(tmp_path) == undisturbed[1]


def test_by_event_an_expiry_that_failed_is_completed_without_another_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "RETRY_SECONDS", 0.1)
    with working(tmp_path, **OPTIONS) as pipeline:
        send_until_ranked(pipeline, 0)
        failing = Failing(pipeline, monkeypatch, "edges")
        failing.left = 3
        sent = adding(STREAM[1], "k1")
        submit(pipeline, sent)
        with pytest.raises(RankingDelayed):
            sent.ranked.result(60)
        eventually(lambda: pipeline.view.version == 4)
        assert (failing.left, pipeline.expiry_delay) == (0, None)
        assert edges_of(pipeline) == {("c", "d")}
        outcome = pipeline.outcome(2)
        assert outcome is not None
        assert orjson.loads(outcome.body)["ranked_version"] == 4


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
