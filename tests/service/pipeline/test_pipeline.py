"""The writer of a graph: grouping, rejection, and failures of each step."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from liverank_gpu import EdgeBatch, Engine, OutOfMemory, Solve
from liverank_gpu.graph.resolve import ResolvedBatch
from liverank_service.errors import (
    BatchRejected,
    GraphStopped,
    IdempotencyConflict,
    NotReady,
    RankingFailed,
    StorageFailed,
    UnknownVersion,
)
from liverank_service.pipeline.batch import PendingBatch
from liverank_service.pipeline.pipeline import Pipeline
from liverank_service.pipeline.waiting import Completions
from liverank_service.pipeline.writer import Writer
from liverank_service.storage.journal import Journal
from tests.service.graphs import (
    batch,
    opened,
    receipt,
    send,
    stages_of,
    submit,
    together,
    writer_of,
)
from tests.service.server import wait_for


def count_calls(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[tuple[Any, ...]]:
    calls: list[tuple[Any, ...]] = []
    original: Callable[..., Any] = getattr(owner, name)

    def counted(self: Any, *arguments: Any) -> Any:
        calls.append(arguments)
        return original(self, *arguments)

    monkeypatch.setattr(owner, name, counted)
    return calls


def test_batches_that_wait_together_share_one_commit_and_one_solve(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = count_calls(monkeypatch, Journal, "append")
    solves = count_calls(monkeypatch, Engine, "update")
    batches = [batch([("a", "b")]), batch(delete=[("a", "b")]), batch([("b", "c"), ("a", "b")])]
    together(pipeline, batches)
    receipts = [receipt(one) for one in batches]
    assert (len(commits), len(solves)) == (1, 1)
    assert [one["version"] for one in receipts] == [1, 2, 3]
    assert {one["ranked_version"] for one in receipts} == {3}
    assert len({one["revision"] for one in receipts}) == 1
    # Applied one by one: joining the lists would delete what the first one inserts.
    assert [(one["inserted"], one["deleted"]) for one in receipts] == [(1, 0), (0, 1), (2, 0)]
    assert pipeline.view.edges == 2


def test_a_different_strategy_ends_the_group(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = count_calls(monkeypatch, Journal, "append")
    strategies = ["auto", "auto", "static", "auto"]
    batches = [batch([(str(i), "x")], strategy=strategy) for i, strategy in enumerate(strategies)]
    together(pipeline, batches)
    receipts = [receipt(one) for one in batches]
    assert len(commits) == 1
    assert [one["strategy"] for one in receipts] == strategies
    assert [one["ranked_version"] for one in receipts] == [2, 2, 3, 4]
    assert receipts[3]["revision"] == receipts[0]["revision"] + 2


def test_one_key_in_one_group_is_one_batch(pipeline: Pipeline) -> None:
    first, repeat = batch([("a", "b")], key="k"), batch([("a", "b")], key="k")
    other = batch([("a", "c")], key="k")
    together(pipeline, [first, repeat, other])
    assert repeat.ranked.result(60) == first.ranked.result(60)
    assert repeat.durable.result(0) == 1
    with pytest.raises(IdempotencyConflict, match="belongs to a batch in flight"):
        other.ranked.result(60)
    assert pipeline.view.version == 1


def test_a_repeat_joins_the_group_of_its_batch(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("liverank_service.pipeline.writer.MAX_JOINING_SECONDS", 60.0)
    first, repeat = batch([("a", "b")], key="k"), batch([("a", "b")], key="k")
    append = Journal.append

    def append_while_it_arrives(journal: Journal, *arguments: Any) -> Any:
        submit(pipeline, repeat)
        return append(journal, *arguments)

    monkeypatch.setattr(Journal, "append", append_while_it_arrives)
    submit(pipeline, first)
    assert repeat.ranked.result(20) == first.ranked.result(20)


def test_analyses_use_up_their_slice_one_after_the_other(pipeline: Pipeline) -> None:
    def states(writer: Writer) -> list[str]:
        started = [writer.analyses.start("components", {}, fresh=False) for _ in range(2)]
        writer.analyses.advance(60.0)
        return [writer.analyses.get(one).state for one in started]

    send(pipeline, batch([("a", "b")]))
    assert pipeline.call(states).result(60) == ["finished"] * 2


def refuse(monkeypatch: pytest.MonkeyPatch, condition: Callable[[EdgeBatch], bool]) -> None:
    """Makes the engine run out of memory for the batches that meet `condition`."""
    original = Engine.apply

    def apply(self: Engine, edges: ResolvedBatch) -> Any:
        if condition(edges.batch):
            raise OutOfMemory("the batch", 1000, 10)
        return original(self, edges)

    def apply_coalesced(_self: Engine, _edges: EdgeBatch, _parts: Any) -> Any:
        raise OutOfMemory("batches together", 1000, 10)

    monkeypatch.setattr(Engine, "apply", apply)
    monkeypatch.setattr(Engine, "apply_coalesced", apply_coalesced)


def test_a_batch_that_cannot_be_applied_is_rejected_and_the_next_is_applied(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, lambda edges: len(edges.insert_sources) == 2)
    pipeline = opened(path.parent)
    good = batch([("a", "b")])
    bad = batch([("b", "lost"), ("lost", "too")], key="bad")
    next_one = batch([("b", "c")])
    together(pipeline, [good, bad, next_one])
    with pytest.raises(BatchRejected) as caught:
        bad.ranked.result(60)
    assert caught.value.version == 2
    assert caught.value.reason["status"] == 507
    assert caught.value.reason["detail"] == "the batch needs 1,000 bytes; 10 are available"
    assert receipt(next_one)["new_vertices"] == 1
    assert receipt(good)["ranked_version"] == 3
    # Its keys are removed, and "c" has the id that "lost" would have had.
    view = pipeline.view
    assert (view.vertices, view.edges) == (3, 2)
    assert view.ids(pa.array(["a", "b", "c", "lost"])).tolist() == [0, 1, 2, -1]
    outcome = pipeline.outcome(2)
    assert outcome is not None
    assert outcome.status == "rejected"
    # A repeat gets the same response, before and after a restart, though it would apply now.
    monkeypatch.undo()
    repeat = batch([("b", "lost"), ("lost", "too")], key="bad")
    submit(pipeline, repeat)
    with pytest.raises(BatchRejected, match="batch 2 was rejected: the batch needs"):
        repeat.ranked.result(60)
    pipeline.close(NotReady("restart"))

    again = opened(path.parent)
    assert (again.view.version, again.view.vertices, again.view.edges) == (3, 3, 2)
    assert again.view.ids(pa.array(["a", "b", "c", "lost"])).tolist() == [0, 1, 2, -1]
    again.close(NotReady("the test ends"))


def test_a_batch_that_memory_has_no_room_for_is_refused_before_the_journal(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = batch([("a", "b")])
    submit(pipeline, first)
    receipt(first)
    asked: list[tuple[int, int]] = []

    def check_memory(_: Engine, operations: int, vertices: int, _times: int = 1) -> None:
        asked.append((operations, vertices))
        if vertices > 3:
            raise OutOfMemory("a batch", 1000, 10)

    monkeypatch.setattr(Engine, "check_memory", check_memory)
    # it would not fit if all keys were new, or together with the batches before it
    fitting = batch([("a", "b"), ("b", "c")])
    too_large = batch([("c", "d"), ("d", "e")], key="large")
    repeat = batch([("c", "d"), ("d", "e")], key="large")
    next_one = batch([("c", "a")])
    submit(pipeline, fitting)
    assert receipt(fitting)["version"] == 2
    together(pipeline, [too_large, repeat, next_one])
    for refused in (too_large, repeat):
        with pytest.raises(OutOfMemory, match="a batch needs 1,000 bytes; 10 are available"):
            refused.ranked.result(60)
    assert receipt(next_one)["version"] == 3
    # the engine checks again what it applies
    assert asked == [(2, 6), (2, 3), (2, 3), (3, 9), (2, 5), (1, 3), (1, 3)]
    assert (pipeline.view.vertices, pipeline.view.version) == (3, 3)


def test_a_rejected_batch_alone_still_moves_the_version(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, lambda _: True)
    waiting: Future[Any] = pipeline.published(1)
    before = pipeline.view
    bad = batch([("a", "b")])
    submit(pipeline, bad)
    assert waiting.result(60).version == 1
    assert pipeline.view.revision == before.revision
    with pytest.raises(BatchRejected):
        bad.ranked.result(60)


def test_a_solve_that_fails_keeps_the_batch_and_the_next_solve_writes_its_receipt(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = opened(path.parent)

    def fail(*_: object) -> Any:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(Engine, "update", fail)
    first = batch([("a", "b")], key="k")
    submit(pipeline, first)
    with pytest.raises(RankingFailed, match="version 1 is committed and applied, but could not be"):
        first.ranked.result(60)
    assert first.durable.result(0) == 1
    assert pipeline.outcome(1) is None
    assert pipeline.view.version == 0
    monkeypatch.undo()
    receipt_of_recompute = orjson.loads(pipeline.recompute(Solve("static")).result(60))
    assert receipt_of_recompute["version"] == 1
    repeat = batch([("a", "b")], key="k")
    submit(pipeline, repeat)
    assert receipt(repeat)["inserted"] == 1
    assert pipeline.view.version == 1
    pipeline.close(NotReady("the test ends"))


def test_a_batch_that_cannot_be_committed_is_not_applied(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_journal: Journal, _records: Any, _revision: int) -> Any:
        raise StorageFailed("journal.db", sqlite3.OperationalError("database or disk is full"))

    monkeypatch.setattr(Journal, "append", full)
    lost = batch([("a", "b")])
    submit(pipeline, lost)
    for future in (lost.durable, lost.ranked):
        with pytest.raises(StorageFailed, match=r"journal\.db: database or disk is full"):
            future.result(60)
    assert "not committed: journal.db: database or disk is full" in caplog.text
    assert "Traceback" not in caplog.text
    monkeypatch.undo()
    following = batch([("b", "c")])
    submit(pipeline, following)
    assert receipt(following)["version"] == 1
    assert pipeline.view.edges == 1


def test_a_repeat_may_fail_with_its_group_before_the_batch_that_it_repeats_is_ranked() -> None:
    sent = [batch([("a", "b")], key="k"), batch([("a", "b")], key="k")]
    released: list[int] = []
    first, repeat = (
        PendingBatch(one.batch, one.durable, one.ranked, lambda: released.append(1)) for one in sent
    )
    first.followers.append(repeat)
    completions = Completions()
    error = sqlite3.OperationalError("database or disk is full")
    repeat.fail(StorageFailed("journal.db", error), completions)
    first.set_ranked(b"{}", completions)
    completions.deliver()
    assert sent[0].ranked.result(0) == b"{}"
    with pytest.raises(StorageFailed, match="disk is full"):
        sent[1].ranked.result(0)
    assert len(released) == 2


def test_a_fault_of_the_pipeline_ends_it_and_fails_all_waiting_work(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = opened(path.parent)

    def faulty(*_arguments: Any) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(writer_of(pipeline), "_apply", faulty)
    batches = [batch([("a", "b")]), batch([("b", "c")])]
    reader = pipeline.published(1)
    together(pipeline, batches)
    for one in (batches[0].ranked, batches[1].ranked, reader):
        with pytest.raises(ZeroDivisionError, match="a fault"):
            one.result(60)
    pipeline._thread.join(60)
    with pytest.raises(ZeroDivisionError):
        submit(pipeline, batch([("c", "d")]))
    assert "its pipeline failed and has ended" in caplog.text
    assert pipeline.view.version == 0
    pipeline.close(NotReady("the test ends"))

    again = opened(path.parent)  # they were durable
    assert (again.view.version, again.view.edges) == (2, 2)
    again.close(NotReady("the test ends"))


def test_a_batch_deletes_before_it_inserts_and_deletions_create_no_keys(pipeline: Pipeline) -> None:
    answer = send(pipeline, batch([("x", "y")], delete=[("x", "y"), ("p", "q")]))
    assert (answer["inserted"], answer["deleted"], answer["not_found"]) == (1, 0, 2)
    assert (answer["new_vertices"], pipeline.view.vertices) == (2, 2)
    answer = send(pipeline, batch([("x", "y")], delete=[("x", "y")]))
    assert (answer["inserted"], answer["deleted"], pipeline.view.edges) == (1, 1, 1)


def test_recovery_writes_the_receipts_that_a_power_loss_took(path: Path) -> None:
    pipeline = opened(path.parent)
    batches = [batch([("a", "b"), ("b", "c")]), batch([("c", "a")], [("a", "b"), ("x", "y")])]
    for one in batches:
        submit(pipeline, one)
        receipt(one)
    revision = pipeline.view.revision
    pipeline.close(NotReady("power loss"))
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("DELETE FROM outcomes")
    connection.close()

    again = opened(path.parent)
    for one in batches:
        before = receipt(one)
        outcome = again.outcome(before["version"])
        assert outcome is not None
        after = orjson.loads(outcome.body)
        counted = ("inserted", "already_present", "deleted", "not_found", "new_vertices", "version")
        assert [after[name] for name in counted] == [before[name] for name in counted]
        assert after["revision"] > revision
        assert after.keys() == before.keys()
        assert stages_of(after)["others"] == 0.0
    again.close(NotReady("the test ends"))


def test_recovery_stops_where_an_answered_batch_no_longer_applies(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = opened(path.parent)
    answered = batch([("a", "b")])
    submit(pipeline, answered)
    receipt(answered)
    pipeline.close(NotReady("restart"))
    refuse(monkeypatch, lambda _: True)
    with pytest.raises(StorageFailed, match="batch 1 was applied before, but not now"):
        opened(path.parent)


def test_a_fault_during_a_replay_stops_its_graph_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = opened(path.parent)
    send(pipeline, batch([("a", "b")]))
    pipeline.close(NotReady("restart"))

    def faulty(*_: object) -> Any:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(Engine, "apply", faulty)
    with pytest.raises(GraphStopped, match=r"batch 1 cannot be applied: ZeroDivisionError"):
        opened(path.parent)


def test_recovery_names_a_payload_that_cannot_be_read(path: Path) -> None:
    pipeline = opened(path.parent)
    submit(pipeline, one := batch([("a", "b")]))
    receipt(one)
    pipeline.close(NotReady("restart"))
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE batches SET payload = x'00'")
    connection.close()
    with pytest.raises(StorageFailed, match=r"journal\.db: batch 1 is damaged; there is nothing"):
        opened(path.parent)


def test_a_version_that_was_never_assigned_is_unknown(pipeline: Pipeline) -> None:
    with pytest.raises(UnknownVersion, match="has no batch 1; it has no batches yet"):
        pipeline.outcome(1)


def test_closing_fails_what_waits(pipeline: Pipeline) -> None:
    gate = threading.Event()
    pipeline.call(lambda _: gate.wait(60))
    waiting, reader = batch([("a", "b")]), pipeline.published(1)
    submit(pipeline, waiting)
    closing = threading.Thread(target=pipeline.close, args=(NotReady("it stops"),))
    closing.start()
    wait_for(lambda: pipeline._queue.closed is not None)
    gate.set()
    closing.join()
    for future in (waiting.durable, waiting.ranked, reader):
        with pytest.raises(NotReady, match="it stops"):
            future.result(60)
    with pytest.raises(NotReady):
        submit(pipeline, batch([("a", "b")]))


def test_small_batches_that_wait_together_are_applied_as_one(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    together_calls = count_calls(monkeypatch, Engine, "apply_coalesced")
    alone = count_calls(monkeypatch, Engine, "apply")
    together(pipeline, [batch([("a", "b")]), batch([("b", "c"), ("c", "d")])])
    second = [
        batch([("d", "a"), ("a", "b")]),
        batch(delete=[("b", "c"), ("new", "a")]),
        batch([("new", "a2")]),
    ]
    together(pipeline, second)
    receipts = [receipt(one) for one in second]
    # the first edges of a graph are a batch of their own
    assert (len(together_calls), len(alone)) == (2, 2)
    names = ("inserted", "already_present", "deleted", "not_found", "new_vertices")
    assert [tuple(one[name] for name in names) for one in receipts] == [
        (1, 1, 0, 0, 0),
        (0, 0, 1, 1, 0),
        (1, 0, 0, 0, 2),
    ]
    view = pipeline.view
    assert view.edges == 4
    assert view.ids(pa.array(["a", "b", "c", "d", "new", "a2"])).tolist() == [0, 1, 2, 3, 4, 5]
