"""A disk that refuses writes after a batch was committed: what is answered, and what follows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from liverank_gpu import Engine, OutOfMemory, Solve
from liverank_service.errors import NotReady, OutcomeDelayed, StorageFull
from liverank_service.pipeline.pipeline import Pipeline
from liverank_service.problems import problem_of
from liverank_service.storage.journal import Journal
from tests.service.graphs import batch, opened, receipt, send, stages_of, submit, together, working


def refuse(*_: Any) -> None:
    raise StorageFull("journal.db", "database or disk is full")


def delayed(pipeline: Pipeline, **batches: Any) -> OutcomeDelayed:
    one = batch([("a", "b")], **batches)
    submit(pipeline, one)
    error = one.ranked.exception(60)
    assert isinstance(error, OutcomeDelayed)
    assert one.durable.result(60) == error.version
    return error


def test_a_batch_whose_receipt_cannot_be_stored_is_answered_with_its_version(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Journal, "add_receipts", refuse)
    for _ in range(2):  # a repeat as well
        error = delayed(pipeline, key="k")
        problem = problem_of(error)
        assert (problem["status"], problem["version"]) == (503, 1)
        assert problem["type"].endswith(":outcome-delayed")
        assert "nothing" not in problem["detail"]
    assert (pipeline.view.version, pipeline.outcome(1)) == (0, None)
    monkeypatch.undo()
    again = batch([("a", "b")], key="k")
    submit(pipeline, again)
    answer = receipt(again)
    assert (answer["version"], answer["inserted"]) == (1, 1)
    assert stages_of(answer)["others"] == 0.0
    outcome = pipeline.outcome(1)
    assert outcome is not None
    assert outcome.body == again.ranked.result(0)
    assert (pipeline.view.version, pipeline.view.edges) == (1, 1)


def test_a_delayed_receipt_follows_with_the_next_batch_or_checkpoint(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    for expected, follow in (
        (1, lambda: send(pipeline, batch([("b", "c")]))),
        (3, lambda: pipeline.checkpoint().result(60)),
    ):
        monkeypatch.setattr(Journal, "add_receipts", refuse)
        assert delayed(pipeline).version == expected
        monkeypatch.undo()
        follow()
        outcome = pipeline.outcome(expected)
        assert outcome is not None
        assert outcome.status == "ranked"


def test_repeats_that_come_with_a_batch_that_is_refused_are_not_refused_with_it(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Journal, "add_receipts", refuse)
    assert delayed(pipeline, key="k").version == 1
    monkeypatch.undo()
    append = Journal.append
    monkeypatch.setattr(Journal, "append", lambda *given: refuse() if given[1] else append(*given))
    repeat, new = batch([("a", "b")], key="k"), batch([("b", "c")])
    together(pipeline, [repeat, new])
    assert isinstance(new.ranked.exception(60), StorageFull)
    assert receipt(repeat)["version"] == 1


def test_nothing_is_committed_or_published_before_a_rejection_is_stored(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OutOfMemory("a batch", 10, 1)

    with working(path.parent) as pipeline:
        send(pipeline, batch([("x", "y")]))
        with pytest.MonkeyPatch.context() as memory:
            memory.setattr(Engine, "apply", fail)
            monkeypatch.setattr(Journal, "reject", refuse)
            error = delayed(pipeline, key="k")
        assert error.version == 2
        assert isinstance(refused(pipeline, batch([("b", "c")])), StorageFull)
        assert isinstance(refused(pipeline, batch([("a", "b")], key="k")), OutcomeDelayed)
        with pytest.raises(StorageFull):
            pipeline.checkpoint().result(60)
        assert (pipeline.view.version, pipeline.outcome(2)) == (1, None)
        monkeypatch.undo()
        assert send(pipeline, batch([("b", "c")]))["version"] == 3
        outcome = pipeline.outcome(2)
        assert outcome is not None
        assert outcome.status == "rejected"
        before = pipeline.view.edges
    with working(path.parent) as again:
        assert (again.view.version, again.view.edges) == (3, before)


def refused(pipeline: Pipeline, one: Any) -> BaseException | None:
    submit(pipeline, one)
    error: BaseException | None = one.ranked.exception(60)
    return error


def test_no_revision_is_published_twice_with_other_ranks(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy"
    with working(path.parent) as pipeline:
        send(pipeline, batch([("x", "y")]))
        monkeypatch.setattr(Journal, "add_receipts", refuse)
        delayed(pipeline)
        for _ in range(5):
            with pytest.raises(StorageFull):
                pipeline.checkpoint().result(60)
        monkeypatch.undo()
        assert send(pipeline, batch([("y", "z")]))["ranked_version"] == 3
        published = pipeline.view.revision
        shutil.copytree(path.parent, copy, ignore=lambda *_: ["copy"])  # as a kill leaves it
    with working(copy) as again:
        assert again.view.version == 3
        assert again.view.revision > published


def test_a_revision_that_cannot_be_reserved_is_not_published(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = pipeline.view
    monkeypatch.setattr(Journal, "add_receipts", refuse)
    delayed(pipeline)
    monkeypatch.undo()
    monkeypatch.setattr(Journal, "reserve", refuse)
    with pytest.raises(StorageFull):
        pipeline.checkpoint().result(60)
    assert pipeline.view is before


def test_a_restart_begins_above_the_revision_of_the_checkpoint(path: Path) -> None:
    pipeline = opened(path.parent)
    send(pipeline, batch([("x", "y")]))
    pipeline.recompute(Solve("static")).result(60)
    assert pipeline.checkpoint().result(60).revision == 3
    pipeline.close(NotReady("the test ends"))
    journal = Journal(path)
    journal._state = type(journal._state)(*journal._state.row[:4], 1)
    journal.append([], 0)  # as if a release that did not reserve revisions had written it
    journal.close()
    with working(path.parent) as again:
        assert send(again, batch([("y", "z")]))["revision"] == 4
        assert again.view.revision == 4
    with working(path.parent) as third:
        assert third.view.revision >= 5
