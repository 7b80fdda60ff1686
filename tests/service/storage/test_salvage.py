"""A damaged journal: detected, moved away, its losses reported, the rest unchanged."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from liverank_gpu import Solve
from liverank_service.errors import StorageFailed
from liverank_service.formats.columns import SetChange
from liverank_service.http.schemas import Receipt
from liverank_service.pipeline.batch import Batch
from liverank_service.storage.checkpoint import Checkpoint
from liverank_service.storage.journal import Journal, Outcome, head_path, read_head
from liverank_service.storage.layout import BEGINNING, Record
from liverank_service.storage.recovery import verified_journal
from liverank_service.storage.salvage import ReadableRows, read_only
from tests.service.graphs import Sent, batch, columns, opened, send, working, writer_of

BATCHES = 40
SAMPLES = 50


@dataclass
class Original:
    """A journal's files and its content."""

    directory: Path
    records: dict[int, Record]
    outcomes: dict[int, Outcome]
    chains: dict[int, bytes]

    def copy(self, target: Path) -> Path:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.directory, target)
        return target / "journal.db"

    def check(self, journal: Journal, after: int = 0) -> set[int]:
        """Asserts that the rest is right and every loss is reported; returns the lost batches."""
        assert journal.version == BATCHES
        found = {version: record for version, _, record, _ in journal.batches(after)}
        lost = set()
        for version in range(after + 1, BATCHES + 1):
            outcome = journal.outcome(version)
            if outcome is not None and outcome.status == "lost":
                lost.add(version)
                assert version not in found
                assert journal.holder(f"key {version}") is None
            else:
                assert found[version] == self.records[version]
                assert outcome is None or outcome == self.outcomes[version]
                holder = journal.holder(f"key {version}")
                assert holder is None or holder == (version, self.records[version].body_hash)
        return lost


@pytest.fixture(scope="module", params=["in the database", "in the write-ahead log"])
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Original:
    directory = tmp_path_factory.mktemp("journal")
    path = directory / "work" / "journal.db"
    path.parent.mkdir()
    Journal.create(path)
    journal = Journal(path)
    generator = np.random.default_rng(5)
    records, outcomes, chains = {}, {}, {0: BEGINNING}
    for version in range(1, BATCHES + 1):
        payload = generator.bytes(int(generator.integers(10, 3000)))
        record = Record(payload, "auto", f"key {version}", generator.bytes(32))
        journal.append([record], 1)
        if version % 5 == 0:
            journal.reject(version, b'{"problem": %d}' % version)
            outcomes[version] = Outcome("rejected", b'{"problem": %d}' % version)
        else:
            journal.add_receipts([(version, b'{"receipt": %d}' % version)])
            outcomes[version] = Outcome("ranked", b'{"receipt": %d}' % version)
        records[version], chains[version] = record, journal.chain
    if request.param == "in the database":
        journal.close()
    shutil.copytree(path.parent, directory / "files")
    journal.close()
    assert (directory / "files" / "journal.db-wal").exists() == ("log" in request.param)
    return Original(directory / "files", records, outcomes, chains)


def salvaged_or_refused(path: Path) -> Journal | None:
    """None if nothing can be read: it must then not be opened as an empty journal."""
    try:
        return verified_journal(path, None)
    except StorageFailed as error:
        if "there is nothing to recover from: restore a backup" not in str(error):
            raise
        return None


def test_every_damaged_byte_is_harmless_or_reported(
    original: Original, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    generator = np.random.default_rng(1)
    refused = salvaged = 0
    for file in ("journal.db", "journal.db-wal", "journal.head"):
        if not (original.directory / file).exists():
            continue
        content = (original.directory / file).read_bytes()
        places = np.linspace(0, len(content) - 1, SAMPLES).astype(int)
        for place in places.tolist():
            path = original.copy(tmp_path / "graph")
            damaged = bytearray(content)
            damaged[place] ^= 1 << int(generator.integers(0, 8))
            path.with_name(file).write_bytes(damaged)
            caplog.clear()
            journal = salvaged_or_refused(path)
            if journal is None:
                refused += 1
                continue
            lost = original.check(journal)
            journal.close()
            if lost:
                assert "the file was moved away; lost: batches" in caplog.text
                assert (path.parent / "damaged-journal-1" / "journal.db").exists()
            if file == "journal.db-wal":
                assert len(lost) <= 1
            salvaged += "the file was moved away" in caplog.text
    assert salvaged >= SAMPLES // 10
    assert refused <= SAMPLES


def test_every_batch_behind_a_damaged_frame_of_the_log_is_kept_with_its_key(
    original: Original, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if not (original.directory / "journal.db-wal").exists():
        pytest.skip("about the write-ahead log")
    path = original.copy(tmp_path / "graph")
    log = path.with_name("journal.db-wal")
    content = bytearray(log.read_bytes())
    content[content.index(original.records[3].payload)] ^= 4
    log.write_bytes(content)
    before = {file.name: file.read_bytes() for file in (path, log)}
    checkpoint = Checkpoint(10, 10, original.chains[10], {}, {})
    journal = verified_journal(path, checkpoint)
    assert original.check(journal, after=10) == set()
    for version in range(1, BATCHES + 1):
        holder = (version, original.records[version].body_hash)
        assert journal.holder(f"key {version}") == holder
        assert journal.outcome(version) == original.outcomes[version]
    assert journal.revision >= BATCHES
    journal.close()
    assert "lost: no batch of 40" in caplog.text
    assert "keys" not in caplog.text
    moved = path.parent / "damaged-journal-1"
    assert {name: (moved / name).read_bytes() for name in before} == before


def test_a_batch_whose_own_chain_is_damaged_is_proven_by_the_next_one(
    original: Original, tmp_path: Path
) -> None:
    path = original.copy(tmp_path / "graph")
    _damage(path, f"UPDATE batches SET chain = x'00' WHERE version IN (3, 7, {BATCHES})")
    _damage(path, "UPDATE batches SET chain = x'00', payload = x'00' WHERE version = 20")
    journal = verified_journal(path, None)
    assert original.check(journal) == {20, 21}
    assert {version: chain for version, *_, chain in journal.batches(0) if version < 20} == {
        version: chain for version, chain in original.chains.items() if 0 < version < 20
    }
    journal.close()


@pytest.mark.parametrize("first", [0, 1])
def test_a_batch_is_proven_by_the_chain_of_another_image(tmp_path: Path, first: int) -> None:
    path = tmp_path / "journal.db"
    Journal.create(path)
    journal = Journal(path)
    journal.append([Record(bytes([number]), "auto", None, b"hash") for number in (1, 2, 3)], 1)
    journal.close()
    images = [tmp_path / "chain.db", tmp_path / "payload.db"]
    for image in images:
        shutil.copy(path, image)
        _damage(image, f"UPDATE batches SET {image.stem} = x'00' WHERE version = 2")
    with (
        read_only(images[first], immutable=1) as one,
        read_only(images[1 - first], immutable=1) as other,
    ):
        found = list(ReadableRows(path, [one, other]).batches({0: BEGINNING}, 3))
    assert [(version, row.payload) for version, _, row in found] == [
        (1, b"\1"),
        (2, b"\2"),
        (3, b"\3"),
    ]


def test_forgotten_idempotency_keys_are_named(
    original: Original, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = original.copy(tmp_path / "graph")
    _damage(path, "UPDATE batches SET payload = x'00' WHERE version IN (4, 5, 7, 20)")
    _damage(path, "UPDATE requests SET body_hash = x'00' WHERE version IN (4, 5, 9)")
    checkpoint = Checkpoint(10, 10, original.chains[10], {}, {})
    journal = verified_journal(path, checkpoint)
    assert original.check(journal, after=10) == {20}
    assert journal.holder("key 9") == (9, original.records[9].body_hash)  # its batch has it
    assert journal.holder("key 7") == (7, original.records[7].body_hash)  # its request has it
    assert [journal.holder(f"key {version}") for version in (4, 5)] == [None, None]
    journal.close()
    assert (
        "lost: batches 20 of 40; idempotency keys that may be forgotten: of batches 4 to 5\n"
        in caplog.text
    )


@pytest.mark.parametrize("damaged", [False, True])
def test_keys_of_removed_batches_are_said_to_be_forgotten_only_if_some_cannot_be_read(
    original: Original, tmp_path: Path, caplog: pytest.LogCaptureFixture, damaged: bool
) -> None:
    path = original.copy(tmp_path / "graph")
    journal = Journal(path)
    journal.retire(5, original.chains[5])
    journal.close()
    _damage(path, "UPDATE batches SET payload = x'00' WHERE version = 20")
    if damaged:
        _damage(path, "UPDATE requests SET body_hash = x'00' WHERE version = 3")
    journal = verified_journal(path, Checkpoint(10, 10, original.chains[10], {}, {}))
    for version in range(1, 6):
        is_kept = not damaged or version != 3
        holder = (version, original.records[version].body_hash) if is_kept else None
        assert journal.holder(f"key {version}") == holder
    journal.close()
    assert "lost: batches 20 of 40" in caplog.text
    assert ("keys that may be forgotten: of batches older ones" in caplog.text) == damaged


def test_no_revision_is_used_again_where_the_newest_one_cannot_be_read(
    original: Original, tmp_path: Path
) -> None:
    path = original.copy(tmp_path / "graph")
    _damage(path, "UPDATE state SET version = 12, revision = 12")
    checkpoint = Checkpoint(10, 99, original.chains[10], {}, {})
    journal = verified_journal(path, checkpoint)
    assert original.check(journal, after=10) == set()
    assert journal.revision >= 99 + BATCHES
    journal.close()


def test_every_truncation_is_found_and_reported(
    original: Original, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = "journal.db-wal" if (original.directory / "journal.db-wal").exists() else "journal.db"
    content = (original.directory / file).read_bytes()
    for length in np.linspace(0, len(content) - 1, 30).astype(int).tolist():
        path = original.copy(tmp_path / "graph")
        path.with_name(file).write_bytes(content[:length])
        caplog.clear()
        journal = salvaged_or_refused(path)
        if journal is None:
            continue
        lost = original.check(journal)
        journal.close()
        if length < len(content) // 2:
            assert lost
        if lost:
            assert str(max(lost)) in caplog.text


def test_a_salvaged_journal_needs_no_second_salvage(original: Original, tmp_path: Path) -> None:
    path = original.copy(tmp_path / "graph")
    _damage(path, "UPDATE batches SET payload = x'00' WHERE version IN (7, 20)")
    journal = verified_journal(path, None)
    assert original.check(journal) == {7, 20}
    outcome = journal.outcome(7)
    assert outcome is not None
    assert b"batch 7 could not be read back from the journal (batch 7 is damaged)" in outcome.body
    assert journal.append([Record(b"next", "auto", None, b"hash")], 1) == [BATCHES + 1]
    chain = journal.chain
    journal.close()
    assert read_head(head_path(path)) == (BATCHES + 1, chain)
    again = verified_journal(path, None)
    assert again.version == BATCHES + 1
    again.close()
    assert len(list(path.parent.glob("damaged-journal-*"))) == 1


def test_only_what_no_checkpoint_holds_is_lost(original: Original, tmp_path: Path) -> None:
    path = original.copy(tmp_path / "graph")
    _damage(path, "UPDATE batches SET payload = x'00' WHERE version IN (7, 20)")
    checkpoint = Checkpoint(10, 10, original.chains[10], {}, {})
    journal = verified_journal(path, checkpoint)
    assert original.check(journal, after=10) == {20}
    assert journal.retired == 10
    # batches in the checkpoint keep their keys and outcomes
    assert journal.holder("key 7") == (7, original.records[7].body_hash)
    assert journal.outcome(7) == original.outcomes[7]
    journal.close()


def test_an_interrupted_salvage_is_finished(
    original: Original, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves = 0
    rename = Path.rename

    def interrupted(at: int) -> Callable[[Path, Path], Path]:
        def move(self: Path, target: Path) -> Path:
            nonlocal moves
            moves += 1
            if moves == at:
                raise OSError(5, "Input/output error")
            return rename(self, target)

        return move

    for at in range(1, 8):
        path = original.copy(tmp_path / "graph")
        _damage(path, "UPDATE batches SET payload = x'00' WHERE version = 3")
        moves = 0
        monkeypatch.setattr(Path, "rename", interrupted(at))
        try:
            verified_journal(path, None).close()
        except StorageFailed:
            assert moves == at
        monkeypatch.undo()
        journal = verified_journal(path, None)
        assert original.check(journal) == {3}
        journal.close()
        assert not (path.parent / "salvaged").exists()


def test_a_checkpoint_of_another_journal_is_not_used(
    original: Original, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = original.copy(tmp_path / "graph")
    other = Checkpoint(10, 10, bytes(32), {}, {})
    verified_journal(path, other).close()
    assert "checkpoint 10-10 belongs to another journal" in caplog.text


def test_a_graph_continues_without_a_lost_batch_and_accepts_it_again(tmp_path: Path) -> None:
    with working(tmp_path) as pipeline:
        for number in range(5):
            send(pipeline, batch([("a", str(number))], key=f"k{number}"))
    _damage(tmp_path / "journal.db", "UPDATE batches SET body_hash = x'00' WHERE version = 3")
    with working(tmp_path) as again:
        assert (again.view.version, again.view.edges) == (5, 4)
        outcome = again.outcome(3)
        assert outcome is not None
        assert outcome.status == "lost"
        assert send(again, batch([("a", "2")], key="k2"))["version"] == 6
        assert send(again, batch([("a", "1")], key="k1"))["version"] == 2
        assert again.view.edges == 5


def test_a_batch_that_needs_a_lost_one_is_rejected(tmp_path: Path) -> None:
    def changing(add: list[str], operation: Any, key: str) -> Sent:
        sets = {"s": SetChange(pa.array(add), pa.array([], pa.string()), operation)}
        return Sent(Batch.of(replace(columns(), sets=sets), key.encode(), Solve(), key))

    with working(tmp_path) as pipeline:
        send(pipeline, batch([("a", "b")], key="edges"))
        send(pipeline, changing(["a"], "replace", "create"))
        send(pipeline, changing(["b"], None, "extend"))
        before = send(pipeline, batch([("b", "c")], key="more edges"))
    _damage(tmp_path / "journal.db", "UPDATE batches SET body_hash = x'00' WHERE version = 2")
    for _ in range(2):
        with working(tmp_path) as again:
            assert (again.view.version, again.view.edges, again.view.sets) == (4, 2, {})
            outcomes = [again.outcome(version) for version in range(1, 5)]
            statuses = [outcome and outcome.status for outcome in outcomes]
            assert statuses == ["ranked", "lost", "rejected", "ranked"]
            after = send(again, batch([("b", "c")], key="more edges"))
            assert (after["version"], after["inserted"]) == (4, 1)
            assert after["revision"] > before["revision"]
    with working(tmp_path) as again:
        assert send(again, changing(["a"], "replace", "create"))["version"] == 5
        assert again.view.sets["s"].tolist() == [0]


def test_a_data_directory_of_the_last_release_opens(tmp_path: Path) -> None:
    stored = Path(__file__).parents[1] / "stored" / "layout-1" / "graphs" / "default"
    directory = tmp_path / "default"
    shutil.copytree(stored, directory)
    pipeline = opened(directory)
    assert (pipeline.view.version, pipeline.view.vertices, pipeline.view.edges) == (2, 4, 3)
    assert pipeline.view.revision == 4
    outcome = pipeline.outcome(1)
    assert outcome is not None
    assert outcome.body.startswith(b'{"version":1,"ranked_version":1,"revision":2,"inserted":3')
    seconds = Receipt.model_validate_json(outcome.body).seconds
    assert (seconds.watched, seconds.others) == (0.0, 0.0)  # it does not report it
    assert writer_of(pipeline).journal.holder("first") is not None
    assert send(pipeline, batch([("edsger", "alan")]))["version"] == 3
    pipeline.checkpoint().result(60)
    pipeline.close(StorageFailed("test", "ends"))
    with working(directory) as again:
        assert (again.view.version, again.view.edges) == (3, 4)


def _damage(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()
