"""The rules of the journal, as documented in its module."""

from __future__ import annotations

import resource
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from liverank_service.errors import StorageFailed, StorageFull
from liverank_service.storage import journal as journal_module
from liverank_service.storage.journal import Journal, Outcome
from liverank_service.storage.layout import Record


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    Journal.create(path)
    return path


def record(payload: bytes = b"payload", key: str | None = None) -> Record:
    return Record(payload, "auto", key, b"hash")


def test_versions_are_numbered_from_one_without_gaps(path: Path) -> None:
    journal = Journal(path)
    assert (journal.version, journal.revision) == (0, 0)
    assert journal.append([record(b"a"), record(b"b")], 1) == [1, 2]
    assert journal.append([record(b"c")], 3) == [3]
    journal.close()
    again = Journal(path)
    assert (again.version, again.revision) == (3, 4)
    assert [row.payload for _, _, row, _ in again.batches(0)] == [b"a", b"b", b"c"]
    again.close()


def test_a_transaction_that_fails_leaves_nothing(path: Path) -> None:
    journal = Journal(path)
    journal.append([record(key="k")], 1)
    with pytest.raises(StorageFailed, match=r"journal\.db: UNIQUE constraint failed"):
        journal.append([record(), record(key="k")], 9)
    assert (journal.version, journal.revision) == (1, 1)
    assert journal.append([record()], 1) == [2]
    journal.close()


def test_removing_a_large_batch_does_not_write_its_bytes_again(path: Path) -> None:
    journal = Journal(path)
    journal.append([record(bytes(10_000_000)), record()], 1)
    journal.close()  # empties the write-ahead log
    again = Journal(path)
    ((_, _, _, chain), _) = again.batches(0)
    again.retire(1, chain)
    assert path.with_name("journal.db-wal").stat().st_size < 1_000_000
    again.close()


def test_outcomes_are_the_bytes_that_were_settled(path: Path) -> None:
    journal = Journal(path)
    journal.append([record(), record(), record()], 1)
    journal.add_receipts([(1, b'{"receipt": 1}')])
    journal.reject(2, b'{"problem": 2}')
    journal.close()
    again = Journal(path)
    assert again.outcome(1) == Outcome("ranked", b'{"receipt": 1}')
    assert again.outcome(2) == Outcome("rejected", b'{"problem": 2}')
    assert again.outcome(3) is None
    again.close()


def test_the_holder_of_an_idempotency_key(path: Path) -> None:
    journal = Journal(path)
    journal.append([record(), record(key="k")], 1)
    assert journal.holder("k") == (2, b"hash")
    assert journal.holder("other") is None
    journal.close()


def test_batches_and_rejections_are_fsynced_and_receipts_are_not(path: Path) -> None:
    journal = Journal(path)
    (durable,) = journal._durable.execute("PRAGMA synchronous").fetchone()
    (receipts,) = journal._receipts.execute("PRAGMA synchronous").fetchone()
    (mode,) = journal._durable.execute("PRAGMA journal_mode").fetchone()
    assert (durable, receipts, mode) == (2, 1, "wal")
    journal.close()


def test_batches_are_read_while_others_commit(path: Path) -> None:
    journal = Journal(path)
    journal.append([record(b"a"), record(b"b"), record(b"c")], 1)
    batches = journal.batches(0)
    _, _, _, chain = next(batches)
    journal.add_receipts([(1, b"{}")])  # as a checkpoint does while a graph in shards recovers
    journal.retire(1, chain)
    journal.reject(2, b"{}")
    assert [version for version, *_ in batches] == [2, 3]
    journal.close()


def test_a_missing_journal_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match="the journal is missing"):
        Journal(tmp_path / "journal.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("PRAGMA application_id = 7", "is a SQLite database, but not a journal of liverank"),
        ("PRAGMA user_version = 99", "has layout 99, expected 1 to 6"),
        ("UPDATE state SET version = 7", "the row of `state` is damaged"),
    ],
)
def test_a_file_that_is_something_else_is_refused(path: Path, statement: str, message: str) -> None:
    journal = Journal(path)
    journal.append([record(), record()], 1)
    journal.close()
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()
    with pytest.raises(StorageFailed) as caught:
        Journal(path)
    assert str(caught.value) == f"{path}: {message}"


def test_a_file_that_has_reached_its_size_limit_is_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    Journal.create(path)
    journal = Journal(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        large = [Record(bytes(3000), "auto", None, b"hash")] * 20
        journal.append(large, 1)
        journal.append(large, 1)
        with pytest.raises(StorageFull, match=r"a file has reached the limit of its size"):
            journal.append(large, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    version = journal.version
    assert version == 40
    assert journal.append([Record(b"next", "auto", None, b"hash")], 1) == [version + 1]
    journal.close()


def test_the_log_is_copied_beside_commits_and_stays_short(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_COPIED_BYTES", 100_000)
    journal, log = Journal(path), path.with_name("journal.db-wal")
    payloads = [bytes([number]) * 60_000 for number in range(40)]
    for payload in payloads:
        journal.append([record(payload)], 1)
        if journal._copying is not None:
            journal._copying.result(60)
    assert log.stat().st_size < 300_000 < path.stat().st_size
    assert [row.payload for _, _, row, _ in journal.batches(0)] == payloads
    journal.close()


def test_a_log_that_is_not_copied_is_bounded_by_the_commits(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_COPIED_BYTES", 1 << 40)
    monkeypatch.setattr(journal_module, "_LOG_BYTES", 200_000)
    journal, log = Journal(path), path.with_name("journal.db-wal")
    journal.append([record(bytes(2_000_000))], 1)
    assert log.stat().st_size > 2_000_000
    for number in range(40):
        journal.append([record(bytes([number]) * 60_000)], 1)
        assert log.stat().st_size < 300_000
    journal.close()


def test_batches_are_committed_where_no_thread_can_copy_the_log(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended = ThreadPoolExecutor(1)
    ended.shutdown()
    monkeypatch.setattr(journal_module, "_COPIER", ended)
    monkeypatch.setattr(journal_module, "_COPIED_BYTES", 1)
    journal = Journal(path)
    assert [journal.append([record()], 1) for _ in range(2)] == [[1], [2]]
    assert caplog.text.count("the write-ahead log was not copied: cannot schedule") == 2
    assert journal.version == 2
    journal.close()


def test_after_a_copy_that_could_not_be_synced_the_log_is_written_again_and_kept(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing:
        def execute(self, _: str) -> None:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error

        def close(self) -> None: ...

    monkeypatch.setattr(journal_module, "_COPIED_BYTES", 1)
    written: list[Path] = []
    again = Journal._write_log_again

    def write_again(journal: Journal) -> None:
        written.append(journal.path)
        again(journal)

    monkeypatch.setattr(Journal, "_write_log_again", write_again)
    journal = Journal(path)
    journal._copier.close()
    monkeypatch.setattr(journal, "_copier", Failing())
    for number, times in enumerate((1, 2, 2)):
        assert journal.append([record()], 1) == [number + 1]
        assert journal._copying is not None
        journal._copying.result(60)
        assert len(written) == times
    journal.close()
    assert path.with_name("journal.db-wal").stat().st_size > 0
    reopened = Journal(path)
    assert reopened.version == 3
    reopened.close()
