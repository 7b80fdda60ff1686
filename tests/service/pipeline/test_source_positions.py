"""Positions of external sources through groups of batches, restarts, checkpoints and damage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from liverank_gpu import Solve
from liverank_service.errors import BatchRejected, NotReady, SourcePositionConflict
from liverank_service.formats.columns import SetChange, SourceRange
from liverank_service.formats.payload import decode_payload, encode_batch
from liverank_service.pipeline.batch import Batch
from liverank_service.pipeline.pipeline import Pipeline
from liverank_service.storage.backup import backup, restore
from liverank_service.storage.journal import Journal
from tests.service.graphs import (
    Sent,
    columns,
    edges_of,
    opened,
    send,
    submit,
    together,
    working,
    writer_of,
)


def ranged(
    begin: str | None, end: str, edge: tuple[str, str] | None = None, *, rejected: bool = False
) -> Sent:
    """A batch of the source `s`."""
    found = replace(columns([edge] if edge else []), range=SourceRange("s", "", begin, end))
    if rejected:  # there is no such set
        found = replace(found, sets={"none": SetChange(pa.array(["a"]), pa.array([], pa.string()))})
    return Sent(Batch.of(found, repr((begin, end, edge)).encode(), Solve()))


def position(pipeline: Pipeline) -> tuple[str, int]:
    (found,) = pipeline.source_positions().result(60)
    return found.position, found.version


def results(batches: list[Sent]) -> list[type[BaseException] | None]:
    errors = [one.ranked.exception(60) for one in batches]
    return [None if error is None else type(error) for error in errors]


@pytest.mark.parametrize("size", [1, 200])
def test_the_journal_gives_a_range_back(size: int) -> None:
    pairs = [(f"a{each}", f"b{each}") for each in range(size)]
    for begin in (None, "1\u2028ä"):
        given = replace(columns(pairs), range=SourceRange("s", "p", begin, "2"))
        assert decode_payload(encode_batch(given)).range == given.range


def test_batches_of_one_group_continue_each_other(pipeline: Pipeline) -> None:
    batches = [
        ranged(None, "1", ("a", "b")),
        ranged("1", "2", ("b", "c")),
        ranged("1", "2", ("x", "y")),
        ranged("2", "3", ("c", "d")),
    ]
    together(pipeline, batches)
    assert results(batches) == [None, None, SourcePositionConflict, None]
    assert position(pipeline) == ("3", 3)
    assert edges_of(pipeline) == {("a", "b"), ("b", "c"), ("c", "d")}


def test_batches_that_follow_a_rejected_one_in_its_group_are_rejected_too(
    path: Path, pipeline: Pipeline
) -> None:
    send(pipeline, ranged(None, "1", ("a", "b")))
    batches = [
        ranged("1", "2", ("b", "c"), rejected=True),
        ranged("2", "3", ("c", "d")),
        ranged("3", "4", ("d", "e")),
    ]
    together(pipeline, batches)
    assert results(batches) == [BatchRejected] * 3
    reason = batches[1].ranked.exception(0)
    assert isinstance(reason, BatchRejected)
    assert (reason.reason["status"], reason.reason["stored"]) == (409, "1")
    assert position(pipeline) == ("1", 1)
    send(pipeline, ranged("1", "2"))
    assert position(pipeline) == ("2", 5)
    pipeline.close(NotReady("restart"))
    with working(path.parent) as again:
        assert position(again) == ("2", 5)
        assert edges_of(again) == {("a", "b")}


@pytest.mark.parametrize("checkpoint", [None, "before", "after"])
def test_positions_survive_a_restart(path: Path, checkpoint: str | None) -> None:
    with working(path.parent) as pipeline:
        send(pipeline, ranged(None, "1", ("a", "b")))
        if checkpoint == "before":
            pipeline.checkpoint().result(60)
        send(pipeline, ranged("1", "2", ("b", "c")))
        if checkpoint == "after":
            pipeline.checkpoint().result(60)
        before = pipeline.source_positions().result(60)
    with working(path.parent) as again:
        assert again.source_positions().result(60) == before
        assert position(again) == ("2", 2)
        late = ranged("1", "2", ("x", "y"))
        submit(again, late)
        assert results([late]) == [SourcePositionConflict]
        send(again, ranged("2", "3"))


def test_positions_stay_when_the_journal_no_longer_has_their_batches(path: Path) -> None:
    with working(path.parent) as pipeline:
        for end in range(1, 5):
            send(pipeline, ranged(None if end == 1 else str(end - 1), str(end)))
            pipeline.checkpoint().result(60)
        assert writer_of(pipeline).journal.retired == 3
    with working(path.parent) as again:
        assert position(again) == ("4", 4)


def test_an_unanswered_batch_is_rejected_by_a_replay_as_by_the_writer(path: Path) -> None:
    """The process ended between the commit of a group and the storing of its rejections."""
    journal = Journal(path)
    sent = [ranged(None, "1"), ranged("1", "2", rejected=True), ranged("2", "3")]
    journal.append([one.batch.record for one in sent], 1)
    journal.close()
    with working(path.parent) as pipeline:
        assert position(pipeline) == ("1", 1)
        statuses = [pipeline.outcome(version) for version in (1, 2, 3)]
        assert [one and one.status for one in statuses] == ["ranked", "rejected", "rejected"]


def test_a_lost_batch_takes_the_position_back_so_that_its_messages_are_sent_again(
    path: Path,
) -> None:
    sent = [
        ranged(None, "1", ("a", "b")),
        ranged("1", "2", ("lost-source", "lost-target")),
        ranged("2", "3", ("c", "d")),
    ]
    with working(path.parent) as pipeline:
        for one in sent:
            send(pipeline, one)
    content = path.read_bytes()
    place = content.index(b"lost-source")
    path.write_bytes(content[:place] + b"L" + content[place + 1 :])
    pipeline = opened(path.parent)
    try:
        lost, after = pipeline.outcome(2), pipeline.outcome(3)
        assert lost is not None
        assert after is not None
        assert (lost.status, after.status) == ("lost", "rejected")
        assert position(pipeline) == ("1", 1)
        for one in (ranged("1", "2", ("b", "c")), ranged("2", "3", ("c", "d"))):
            send(pipeline, one)
        assert edges_of(pipeline) == {("a", "b"), ("b", "c"), ("c", "d")}
    finally:
        pipeline.close(NotReady("the test ends"))
    assert (path.parent / "damaged-journal-1").is_dir()


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_backup_has_the_positions_of_its_graph(tmp_path: Path, checkpoint: bool) -> None:
    graph = tmp_path / "data" / "graphs" / "default"
    graph.mkdir(parents=True)
    (graph / "graph.json").write_text('{"format": 1, "options": {}}')
    with working(graph) as pipeline:
        send(pipeline, ranged(None, "1", ("a", "b")))
        if checkpoint:
            pipeline.checkpoint().result(60)
        send(pipeline, ranged("1", "2", ("b", "c")))
        backup(tmp_path / "data", tmp_path / "saved")
        send(pipeline, ranged("2", "3", ("c", "d")))
    restore(tmp_path / "saved", tmp_path / "again")
    with working(tmp_path / "again" / "graphs" / "default") as again:
        # behind the source, which sends the rest once more
        assert position(again) == ("2", 2)
        send(again, ranged("2", "3", ("c", "d")))
        assert edges_of(again) == {("a", "b"), ("b", "c"), ("c", "d")}


def test_a_damaged_position_in_a_checkpoint_is_found(path: Path) -> None:
    with working(path.parent) as pipeline:
        send(pipeline, ranged(None, "first-position", ("a", "b")))
        pipeline.checkpoint().result(60)
    (manifest,) = path.parent.glob("checkpoints/*/manifest.json")
    manifest.write_bytes(manifest.read_bytes().replace(b"first-position", b"other-position"))
    with working(path.parent) as again:
        # from the journal instead
        assert position(again) == ("first-position", 1)
    assert list(path.parent.glob("checkpoints/damaged-*"))


def test_a_refused_append_moves_no_position(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(pipeline, ranged(None, "1"))
    journal = writer_of(pipeline).journal

    def refuse(*_: object) -> list[int]:
        raise NotReady("the disk refuses")

    with monkeypatch.context() as patch:
        patch.setattr(journal, "append", refuse)
        refused = ranged("1", "2")
        submit(pipeline, refused)
        assert isinstance(refused.ranked.exception(60), NotReady)
    assert position(pipeline) == ("1", 1)
    send(pipeline, ranged("1", "2"))
