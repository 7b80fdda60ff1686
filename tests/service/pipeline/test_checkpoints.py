"""Checkpoints: their content, their validity, when they are taken and what is then removed."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from liverank_gpu import Engine, Options, OutOfMemory, Solve
from liverank_service.errors import FileDamaged, NotReady, RetiredVersion, StorageFailed
from liverank_service.pipeline.checkpointer import CheckpointLimits
from liverank_service.pipeline.pipeline import Pipeline
from liverank_service.storage import checkpoint as checkpoints
from liverank_service.storage.checkpoint import Checkpoint
from liverank_service.storage.journal import KEPT_SECONDS, Journal
from tests.service.graphs import batch, opened, send, started, submit, working, writer_of
from tests.service.server import wait_for


def checkpoint(version: int = 3, revision: int = 7) -> Checkpoint:
    arrays: dict[str, NDArray[Any]] = {
        "values": np.linspace(0.0, 1.0, 300),
        "length": np.arange(300, dtype=np.int32),
        "nothing": np.empty(0, np.uint8),
    }
    return Checkpoint(version, revision, bytes(range(32)), {"edges": 5}, arrays)


def taken(pipeline: Pipeline) -> tuple[int, int]:
    done = pipeline.checkpoint().result(60)
    return done.version, done.revision


def names(directory: Path) -> list[str]:
    return [path.name for path in checkpoints.stored(directory / "checkpoints")]


def test_a_checkpoint_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = checkpoint()
    checkpoints.write(tmp_path, written)
    found = checkpoints.newest_valid(tmp_path)
    assert found is not None
    assert (found.version, found.revision, found.chain, found.numbers) == (
        (written.version, written.revision, written.chain, written.numbers)
    )
    assert found.arrays.keys() == written.arrays.keys()
    for name, array in written.arrays.items():
        assert np.array_equal(found.arrays[name], array)
        assert found.arrays[name].dtype == array.dtype


def test_every_flipped_byte_of_a_checkpoint_is_found_and_named(tmp_path: Path) -> None:
    checkpoints.write(tmp_path, checkpoint())
    path = tmp_path / "3-7"
    generator = np.random.default_rng(0)
    for file in sorted(path.iterdir()):
        content = file.read_bytes()
        places = range(0, len(content), max(1, len(content) // 150))
        for place in places:
            damaged = bytearray(content)
            damaged[place] ^= 1 << int(generator.integers(0, 8))
            file.write_bytes(damaged)
            with pytest.raises(StorageFailed) as caught:
                checkpoints.read(path)
            assert str(caught.value).startswith(f"{file}: is damaged")
        for length in (0, len(content) // 2, len(content) - 1):
            if 0 <= length < len(content):
                file.write_bytes(content[:length])
                with pytest.raises(StorageFailed, match=file.name):
                    checkpoints.read(path)
        if content:
            file.unlink()
            with pytest.raises(StorageFailed, match=f"{file.name}: No such file"):
                checkpoints.read(path)
        file.write_bytes(content)
    checkpoints.read(path)


def test_a_damaged_checkpoint_is_set_aside_and_the_older_one_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints.write(tmp_path, checkpoint(3, 7))
    checkpoints.write(tmp_path, checkpoint(20, 30))
    (tmp_path / "20-30" / "values.bin").write_bytes(b"")
    found = checkpoints.newest_valid(tmp_path)
    assert found is not None
    assert found.name == "3-7"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3-7", "damaged-20-30"]
    assert "values.bin: has 0 bytes, expected 2,400; the checkpoint was renamed to" in caplog.text


def exhausted(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.EIO, errno.ENOMEM])
@pytest.mark.parametrize("call", ["open", "mmap", "digest"])
def test_an_error_that_says_nothing_about_the_content_leaves_a_checkpoint_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, call: str
) -> None:
    checkpoints.write(tmp_path, checkpoint(3, 7))
    checkpoints.write(tmp_path, checkpoint(20, 30))
    before = contents(tmp_path)

    def refuse(*arguments: Any, **named: Any) -> Any:  # noqa: ARG001
        raise exhausted(number)

    function = {"open": "builtins.open", "mmap": "mmap.mmap", "digest": "hashlib.file_digest"}
    monkeypatch.setattr(function[call], refuse)
    with pytest.raises(StorageFailed, match=re.escape(os.strerror(number))) as caught:
        checkpoints.newest_valid(tmp_path)
    assert not isinstance(caught.value, FileDamaged)
    monkeypatch.undo()
    assert contents(tmp_path) == before


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_checkpoint_of_an_unknown_format_stops_the_start_and_stays(tmp_path: Path) -> None:
    checkpoints.write(tmp_path, checkpoint(3, 7))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "FORMAT", 5)
        checkpoints.write(tmp_path, checkpoint(4, 8))
    with pytest.raises(StorageFailed, match="has format 5, expected 1 to 4"):
        checkpoints.newest_valid(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3-7", "4-8"]


def test_good_checkpoints_that_were_set_aside_are_taken_back_when_they_are_needed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with working(tmp_path) as pipeline:
        for number in range(4):
            send(pipeline, batch([("a", str(number))]))
            taken(pipeline)
    stored = checkpoints.stored(tmp_path / "checkpoints")
    assert [path.name for path in stored] == ["4-5", "3-4"]
    for path in stored:
        path.rename(path.with_name(f"damaged-{path.name}"))
    (tmp_path / "checkpoints" / "damaged-4-5" / "values.bin").write_bytes(b"")
    with working(tmp_path) as again:
        assert (again.view.version, again.view.edges) == (4, 4)
    assert "damaged-3-4: is not damaged; the checkpoint was renamed to 3-4" in caplog.text
    left = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert left == ["3-4", "damaged-4-5"]


def test_a_checkpoint_that_is_too_old_for_the_journal_is_not_enough(tmp_path: Path) -> None:
    folder, old = tmp_path / "checkpoints", tmp_path / "old"
    with working(tmp_path) as pipeline:
        for number in range(4):
            send(pipeline, batch([("a", str(number))]))
            taken(pipeline)
            if number == 1:
                shutil.copytree(folder / "2-3", old)
    for path in checkpoints.stored(folder):
        path.rename(path.with_name(f"damaged-{path.name}"))
    old.rename(folder / "2-3")
    with working(tmp_path) as again:  # the journal has only what comes after batch 3
        assert (again.view.version, again.view.edges) == (4, 4)
    assert (folder / "4-5").exists()


def test_a_server_with_too_few_descriptors_changes_no_file(tmp_path: Path) -> None:
    with working(tmp_path) as pipeline:
        for number in range(3):
            send(pipeline, batch([("a", str(number))]))
            taken(pipeline)
    before = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = []
    for spare in range(0, 12):
        with open(os.devnull) as probe:
            lowest = probe.fileno()
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + spare, hard))
        try:
            pipeline = opened(tmp_path)
        except (StorageFailed, OSError) as error:
            held.append(str(error))
        else:
            pipeline.close(NotReady("the test ends"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == before
    assert held
    with working(tmp_path) as again:
        assert (again.view.version, again.view.edges) == (3, 3)


def test_a_checkpoint_of_a_later_release_is_refused(tmp_path: Path) -> None:
    checkpoints.write(tmp_path, checkpoint())
    manifest = tmp_path / "3-7" / "manifest.json"
    content = json.loads(manifest.read_bytes().split(b"\n", 1)[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "FORMAT", 5)
        checkpoints.write(tmp_path, checkpoint(4, 8))
    with pytest.raises(StorageFailed, match="has format 5, expected 1 to 4"):
        checkpoints.read(tmp_path / "4-8")
    assert content["format"] == 4


def test_a_restart_answers_from_the_checkpoint_before_the_journal_is_applied(
    tmp_path: Path,
) -> None:
    with working(tmp_path) as pipeline:
        send(pipeline, batch([("a", "b"), ("b", "c"), ("c", "a"), ("c", "b")]))
        assert taken(pipeline) == (1, 2)
        old = pipeline.view
        send(pipeline, batch([("b", "d")], [("a", "b")]))
        new = pipeline.view
    again = started(tmp_path)
    assert again.wait_until_mapped()
    keys = pa.array(["a", "b", "c", "d"])
    assert np.array_equal(again.view.ranks_of(keys), old.ranks_of(keys), equal_nan=True)
    assert np.isnan(again.view.ranks_of(keys)[3])
    assert (again.view.version, again.view.revision, again.view.edges) == (1, 2, 4)
    assert again.view.error_bound == old.error_bound
    with pytest.raises(NotReady, match="graph 'test' is being recovered"):
        again.outcome(1)
    waiting = batch([("d", "a")])
    submit(again, waiting)
    assert not waiting.durable.done()
    again.recover()
    again.wait_until_open()
    assert waiting.durable.result(60) == 3
    assert waiting.ranked.result(60)
    assert (again.view.version, again.view.edges) == (3, 5)
    assert again.view.revision > new.revision
    again.close(NotReady("the test ends"))


def test_keys_have_the_ids_that_they_had(tmp_path: Path) -> None:
    with working(tmp_path) as pipeline:
        send(pipeline, batch([(f"s{i}", f"t{i % 7}") for i in range(3000)]))
        taken(pipeline)
        send(pipeline, batch([("new", "s1"), ("s2", "newer")]))
        keys = pa.array([*(f"s{i}" for i in range(3000)), "new", "newer", "never"])
        ids = pipeline.view.ids(keys)
        ranks = pipeline.view.ranks_of(keys)
    with working(tmp_path) as again:
        assert again.view.ids(keys).tolist() == ids.tolist()
        assert np.isnan(again.view.ranks_of(keys)[-1])
        error = np.abs(again.view.ranks_of(keys)[:-1] - ranks[:-1]).sum()
        assert error <= again.view.error_bound + 1e-6


def test_nothing_is_ranked_where_the_checkpoint_is_not_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with working(tmp_path) as pipeline:
        send(pipeline, batch([("a", "b")]))
        taken(pipeline)
    monkeypatch.setattr(Engine, "update", lambda *_: pytest.fail("ranked"))
    with working(tmp_path) as again:
        assert (again.view.version, again.view.revision) == (1, 2)


def test_two_checkpoints_stay_and_the_batches_that_the_older_one_lacks(tmp_path: Path) -> None:
    with working(tmp_path) as pipeline:
        for number in range(4):
            send(pipeline, batch([("a", str(number))], key=f"k{number}" if number == 1 else None))
            taken(pipeline)
        assert names(tmp_path) == ["4-5", "3-4"]
        journal = writer_of(pipeline).journal
        assert (journal.retired, journal.version) == (3, 4)
        assert [version for version, *_ in journal.batches(0)] == [4]
        with pytest.raises(RetiredVersion, match=r"the outcome of batch 1 .* is no longer stored"):
            pipeline.outcome(1)
        outcome = pipeline.outcome(2)
        assert outcome is not None
        repeat = batch([("a", "1")], key="k1")
        assert send(pipeline, repeat)["version"] == 2
        assert repeat.ranked.result(0) == outcome.body
    with working(tmp_path) as again:
        assert send(again, batch([("a", "1")], key="k1"))["version"] == 2
        assert (again.view.version, again.view.edges) == (4, 4)


def test_an_idempotency_key_is_removed_seven_days_after_its_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with working(tmp_path) as pipeline:
        send(pipeline, batch([("a", "b")], key="k"))
        taken(pipeline)
        pipeline.recompute(Solve("static")).result(60)
        taken(pipeline)
        journal = writer_of(pipeline).journal
        assert journal.retired == 1
        connection = sqlite3.connect(journal.path)
        ((retired_at,),) = connection.execute("SELECT retired_at FROM requests").fetchall()
        connection.close()
        for age, known in ((KEPT_SECONDS - 1, True), (KEPT_SECONDS + 1, False)):
            monkeypatch.setattr("time.time", lambda age=age: retired_at + age)
            journal.retire(1, journal.retired_chain)
            assert (journal.holder("k") is not None) == known
            assert (journal.outcome(1) is not None) == known


def test_versions_go_on_where_no_batch_is_left(tmp_path: Path) -> None:
    with working(tmp_path) as pipeline:
        send(pipeline, batch([("a", "b")]))
        taken(pipeline)
        pipeline.recompute(Solve("static")).result(60)
        taken(pipeline)
        assert writer_of(pipeline).journal.retired == 1
    with working(tmp_path) as again:
        assert send(again, batch([("b", "c")]))["version"] == 2
        assert again.view.edges == 2


def test_a_checkpoint_is_taken_when_the_journal_has_grown(tmp_path: Path) -> None:
    with working(tmp_path, checkpoint_bytes=5000) as pipeline:
        number = 0
        while not names(tmp_path):
            send(pipeline, batch([("a", str(number))]))
            number += 1
            assert number < 1000
        assert number >= 3


def test_a_checkpoint_is_taken_in_time_if_something_changed(tmp_path: Path) -> None:
    with working(tmp_path, checkpoint_seconds=0.05) as pipeline:
        assert names(tmp_path) == []
        send(pipeline, batch([("a", "b")]))
        wait_for(lambda: names(tmp_path) == ["1-2"])


def test_a_checkpoint_where_nothing_changed_is_the_one_there_is(tmp_path: Path) -> None:
    with working(tmp_path) as pipeline:
        send(pipeline, batch([("a", "b")]))
        assert taken(pipeline) == taken(pipeline) == (1, 2)
        assert names(tmp_path) == ["1-2"]


def test_a_closed_graph_refuses_to_take_a_checkpoint(tmp_path: Path) -> None:
    with working(tmp_path) as pipeline:
        send(pipeline, batch([("a", "b")]))
    with pytest.raises(NotReady, match="the test ends"):
        pipeline.checkpoint()


def test_batches_that_a_failed_solve_left_are_ranked_before_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise OutOfMemory("a solve", 10, 1)

    with working(tmp_path) as pipeline:
        monkeypatch.setattr(Engine, "update", fail)
        one = batch([("a", "b")])
        submit(pipeline, one)
        assert one.ranked.exception(60)
        with pytest.raises(OutOfMemory):
            pipeline.checkpoint().result(60)
        monkeypatch.undo()
        assert taken(pipeline)[0] == 1
    with working(tmp_path) as again:
        assert (again.view.version, again.view.edges) == (1, 1)


def test_a_checkpoint_that_cannot_be_written_leaves_the_old_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with working(tmp_path) as pipeline:
        send(pipeline, batch([("a", "b")]))
        taken(pipeline)
        send(pipeline, batch([("b", "c")]))
        monkeypatch.setattr(checkpoints, "write_synced", full)
        with pytest.raises(StorageFailed, match="2-3: No space left on device"):
            pipeline.checkpoint().result(60)
        assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["1-2"]
        monkeypatch.undo()
        assert taken(pipeline) == (2, 3)


def test_a_graph_of_another_kind_of_keys_is_refused(tmp_path: Path) -> None:
    with working(tmp_path) as pipeline:
        send(pipeline, batch([("a", "b")]))
        taken(pipeline)
    other = Pipeline(
        "test", tmp_path, Options(), "integer", "cpu", CheckpointLimits(1 << 30, 3600.0)
    )
    with pytest.raises(StorageFailed, match="has string keys, but the graph has integer keys"):
        other.wait_until_mapped()


def test_checkpoints_without_the_batches_after_them_are_reported(tmp_path: Path) -> None:
    with working(tmp_path) as pipeline:
        for number in range(3):
            send(pipeline, batch([("a", str(number))]))
            taken(pipeline)
    for path in checkpoints.stored(tmp_path / "checkpoints"):
        (path / "values.bin").unlink()
    with pytest.raises(StorageFailed, match=r"no longer holds batches 1 to 2.*a backup"):
        opened(tmp_path)
    assert Journal(tmp_path / "journal.db").version == 3
