"""The journal of one graph: every accepted batch, in order, before it is applied.

The tables are those of liverank_service.storage.layout. The rules:

1. A batch is committed and fsynced (``synchronous=FULL``) before it is applied. Batches that wait
   together are committed in one transaction, with one fsync, which also reserves the revisions
   that will publish them.
2. A rejection is committed and fsynced before it is answered: a replay must skip exactly the
   batches that were skipped before.
3. A receipt is committed before it is answered, without an fsync of its own
   (``synchronous=NORMAL``, a second connection): it survives the end of the process. A power loss
   may destroy the newest receipts; recovery, which applies the same batches to the same graph, then
   writes them again with the same counts. Those of batches in a checkpoint are synced before it is
   written (`sync_receipts`), since recovery does not apply these batches.
4. A recomputation reserves its revision, fsynced, before publication: revisions never repeat.
5. Batches are removed only when two checkpoints hold them (`retire`). Their outcomes are removed
   with them, except those of batches with an idempotency key: key, hash and outcome stay
   `KEPT_SECONDS` longer.
6. After a sync that failed, the whole write-ahead log is written again before anything else is
   committed: a later sync would succeed without what the first one could not write, which the
   operating system forgets, and SQLite ignores what follows such a hole. So it is before the first
   commit, since an earlier process may have left such a log. After a copy whose sync failed,
   nothing is copied any more until the journal is opened again, nor at its end: what earlier copies
   have written and not synced may be missing in the database, and SQLite would not copy it again.
   The log still has it, since it begins again only when all of it was copied and synced, and the
   next process copies it from its beginning.
7. What is in the write-ahead log is copied to the database by another thread (`_COPIER`), which no
   commit waits for, unless the log exceeds _LOG_BYTES: then the commit copies, if the copier does
   not. SQLite copies nothing by itself, since it would not tell that a sync failed.

The graph's writer writes; `retire`, `sync_receipts` and `outcome` may be called from any thread.

The head of a journal: a small file beside it with the newest version.

SQLite silently ignores the part of a write-ahead log that follows damage. The head, written after
each commit, exposes a journal that ends too early. Its two slots are written alternately, so that
one is always valid. It is not synced, because the commit before it is: after a power loss it may be
behind the journal, never ahead of it.

    slot: "LVHD", version (uint64), chain (32 bytes), CRC-32 of these (uint32); little-endian

A mark: which batch was being replayed when the process ended, and how often.

A process that is killed for its memory cannot write anything any more, so the file beside the
journal is written before a batch that may need too much. It is not synced: it has to survive the
process, not the machine.

    "LVRM", version (uint64), count (uint64), CRC-32 of these (uint32); little-endian
"""

from __future__ import annotations

import logging
import os
import sqlite3
import struct
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, NamedTuple

from liverank_service.errors import StorageFailed
from liverank_service.storage import layout
from liverank_service.storage.files import FILE_MODE, SLICE, read_if_exists, storage_errors
from liverank_service.storage.layout import Record, State

log = logging.getLogger("liverank.journal")

_CHECKSUM = struct.Struct("<I")


class _Sealed(NamedTuple):
    """A record of a file that begins with `magic` and ends with its checksum."""

    magic: bytes
    fields: struct.Struct

    def written(self, *values: Any) -> bytes:
        content = self.fields.pack(self.magic, *values)
        return content + _CHECKSUM.pack(zlib.crc32(content))

    def read(self, content: bytes, place: int = 0) -> tuple[Any, ...] | None:
        """The values of the record at `place`; None if it is truncated or damaged."""
        end = place + self.fields.size
        if len(content) < end + _CHECKSUM.size:
            return None
        magic, *values = self.fields.unpack_from(content, place)
        (stated,) = _CHECKSUM.unpack_from(content, end)
        is_valid = magic == self.magic and stated == zlib.crc32(content[place:end])
        return tuple(values) if is_valid else None


_HEAD = _Sealed(b"LVHD", struct.Struct("<4sQ32s"))
_MARK = _Sealed(b"LVRM", struct.Struct("<4sQQ"))

_SLOT = 512
"""Bytes between the slots: one sector each, which disks write atomically."""


class Head:
    """The head file of one journal, open for writing."""

    def __init__(self, path: Path) -> None:
        """Opens or creates the file. Raises OSError."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        self._turn = 0

    @classmethod
    def create(cls, journal: Path, version: int, chain: bytes) -> None:
        """Writes that of a journal: both slots, so that it needs no more disk space later. Raises
        OSError.
        """
        head = cls(head_path(journal))
        head.write(version, chain)
        head.write(version, chain)
        head.sync()
        head.close()

    def write(self, version: int, chain: bytes) -> None:
        """Raises OSError."""
        os.pwrite(self._descriptor, _HEAD.written(version, chain), self._turn * _SLOT)
        self._turn = 1 - self._turn

    def sync(self) -> None:
        """Makes the file survive a power loss. Raises OSError."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


def read_head(path: Path) -> tuple[int, bytes] | None:
    """Version and chain of the newest valid slot; None without one, or without the file.

    Raises StorageFailed if the file cannot be read.
    """
    content = read_if_exists(path) or b""
    slots = [_HEAD.read(content, place) for place in (0, _SLOT)]
    found: tuple[int, bytes] | None = max((slot for slot in slots if slot), default=None)
    return found


class ReplayMark:
    """The mark of one journal."""

    def __init__(self, journal: Path) -> None:
        """Reads the file. Raises StorageFailed."""
        self._path = journal.with_suffix(".replaying")
        content = read_if_exists(self._path) or b""
        self._version, self._count = _MARK.read(content) or (0, 0)

    def deaths(self, version: int) -> int:
        """How often the process ended while this batch was replayed."""
        return self._count if version == self._version else 0

    def begin(self, version: int) -> None:
        """Notes that a replay of this batch begins. Raises StorageFailed."""
        self._count = self.deaths(version) + 1
        self._version = version
        with storage_errors(self._path):
            self._path.write_bytes(_MARK.written(self._version, self._count))

    def end(self) -> None:
        """Notes that the replay is complete. Raises StorageFailed."""
        if self._version:
            self._version = self._count = 0
            with storage_errors(self._path):
                self._path.unlink(missing_ok=True)


FILE = "journal.db"

MAX_PAYLOAD_BYTES = 900_000_000
"""Of one payload: SQLite stores values of up to 1,000,000,000 bytes."""

KEPT_SECONDS = 7 * 24 * 3600.0
"""How long an idempotency key is kept after its batch was retired."""

_COPIER = ThreadPoolExecutor(1, "liverank-journal")
_COPIED_BYTES, _COMMIT_BYTES = 4 << 20, 16 << 10
"""Bytes of the write-ahead log from which on it is copied; of a commit, beside its payloads."""
_LOG_BYTES = 64 << 20
"""Of the write-ahead log, beside the newest commit."""

_SLICE_ROWS, _SLICE_BYTES = 500, 4 << 20
"""Limits on one transaction of `retire`, because commits wait for it."""

Status = Literal["ranked", "rejected", "lost"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a batch. body: the JSON of the response."""

    status: Status
    body: bytes


class Journal:
    """An open journal. Invariant: it holds the batches `retired` + 1 … `version`, without a gap
    except for those whose outcome is ``lost``.

    committed_at  Unix time of the last `append`; 0 before the first
    """

    def __init__(self, path: Path) -> None:
        """Opens the journal at `path`. Raises StorageFailed."""
        self.path = path
        self._reading = threading.Lock()
        self._writing = threading.Lock()
        self._connections: list[sqlite3.Connection] = []
        self._head: Head | None = None
        self._state: State
        self._log = path.with_name(f"{path.name}-wal")
        self._may_have_hole = True
        self._may_copy = True
        self._has_failed = False  # a sync
        self._copying: Future[None] | None = None
        self._not_copied = 0
        self.committed_at = 0.0
        if not path.is_file():
            raise StorageFailed(path, "the journal is missing")
        try:
            with storage_errors(path):
                self._open()
        except StorageFailed:
            self.close()
            raise

    @classmethod
    def create(cls, path: Path) -> None:
        """Writes an empty journal to `path`, which must not exist, and closes it."""
        layout.create(path)
        Head.create(path, 0, layout.BEGINNING)

    @property
    def version(self) -> int:
        """Of the newest batch."""
        return self._state.version

    @property
    def chain(self) -> bytes:
        """Of the newest batch."""
        return self._state.chain

    @property
    def retired(self) -> int:
        """The newest batch that was removed."""
        return self._state.retired

    @property
    def retired_chain(self) -> bytes:
        return self._state.retired_chain

    @property
    def revision(self) -> int:
        """The highest revision that may have been published."""
        return self._state.revision

    def append(self, records: Sequence[Record], revisions: int) -> list[int]:
        """Commits `records` with one fsync, and reserves `revisions` more revisions.

        Returns the versions of the records. Raises StorageFailed; the journal then has none of
        them.
        """
        now = time.time()
        with self._writing:
            before = self._state
            chain = before.chain
            numbered = []
            for version, record in enumerate(records, before.version + 1):
                chain = layout.link(chain, version, now, record)
                numbered.append((version, record, chain))
            state = replace(
                before,
                version=before.version + len(records),
                chain=chain,
                revision=before.revision + revisions,
            )
            with self._transaction(self._durable):
                layout.insert_batches(self._durable, now, numbered)
                layout.write_state(self._durable, state)
            self._state, self.committed_at = state, now
            self._not_copied += _COMMIT_BYTES + sum(len(record.payload) for record in records)
            is_idle = self._copying is None or self._copying.done()
            if self._not_copied >= _COPIED_BYTES and is_idle and self._may_copy:
                self._not_copied = 0
                try:
                    self._copying = _COPIER.submit(self._copy_log)
                except RuntimeError as error:  # there can be no thread; the batches are committed
                    log.warning("%s: the write-ahead log was not copied: %s", self.path, error)
        self._write_head()
        return [version for version, _, _ in numbered]

    def reserve(self, revisions: int) -> None:
        """Commits, with an fsync, that `revisions` more may be published."""
        self.append([], revisions)

    def reject(self, version: int, problem: bytes) -> None:
        """Commits, with an fsync, that `version` is not applied."""
        with self._writing, self._transaction(self._durable):
            layout.insert_outcomes(self._durable, [(version, "rejected", problem)])

    def add_receipts(self, receipts: Iterable[tuple[int, bytes]]) -> None:
        """Commits receipts without an fsync (rule 3)."""
        with self._writing, self._transaction(self._receipts):
            layout.insert_outcomes(
                self._receipts, ((version, "ranked", receipt) for version, receipt in receipts)
            )

    def sync_receipts(self) -> None:
        """Makes the stored receipts survive a power loss. Any thread may call it.

        Raises StorageFailed.
        """
        # the fsync of a commit covers everything before it
        with self._writing, self._transaction(self._durable):
            layout.write_state(self._durable, self._state)

    def blame(self, versions: Sequence[int]) -> None:
        """Commits, with an fsync, that the device was lost while these batches were processed. Each
        becomes a suspect; only a single batch is counted as the cause.
        """
        with self._writing, self._transaction(self._durable):
            self._durable.executemany(
                "INSERT INTO deaths VALUES (?, ?) ON CONFLICT DO UPDATE SET"
                " count = count + excluded.count",
                ((version, int(len(versions) == 1)) for version in versions),
            )

    def deaths(self) -> dict[int, int]:
        """How often the device was lost over each suspect alone."""
        with storage_errors(self.path):
            return dict(self._durable.execute("SELECT version, count FROM deaths").fetchall())

    def acquit(self) -> None:
        """Removes all suspects: the graph was ranked with them."""
        with self._writing, self._transaction(self._durable):
            self._durable.execute("DELETE FROM deaths")

    def holder(self, idempotency_key: str) -> tuple[int, bytes] | None:
        """The version and the body hash of the batch with this key."""
        row = self._row(self._durable, "requests", "idempotency_key", idempotency_key, "key")
        return None if row is None else (row[0], row[2])

    def outcome(self, version: int) -> Outcome | None:
        """The outcome of `version`; None while it is pending, and for an unknown version."""
        with self._reading:
            row = self._row(self._reader, "outcomes", "version", version, "outcome")
        return None if row is None else Outcome(row[1], row[2])

    def _row(
        self, connection: sqlite3.Connection, table: str, by: str, value: object, what: str
    ) -> tuple[Any, ...] | None:
        """The row with this value; what: it is of its batch. Raises StorageFailed if it is
        damaged.
        """
        query = f"SELECT {layout.COLUMNS[table]} FROM {table} WHERE {by} = ?"
        with storage_errors(self.path):
            row: tuple[Any, ...] | None = connection.execute(query, (value,)).fetchone()
        if row is not None and not layout.is_intact(row):
            raise StorageFailed(self.path, f"the {what} of batch {row[0]} is damaged")
        return row

    def batches(self, after: int) -> Iterator[tuple[int, float, Record, bytes]]:
        """Version, commit time, record and chain of the batches after version `after`."""
        while True:
            # one by one: an open query makes commits fail that follow one of the other connection
            with storage_errors(self.path):
                rows = self._durable.execute(
                    f"SELECT {layout.COLUMNS['batches']} FROM batches WHERE version > ?"
                    " ORDER BY version LIMIT 1",
                    (after,),
                ).fetchall()
            if not rows:
                return
            ((after, committed_at, *columns, chain),) = rows
            yield after, committed_at, Record(*columns), chain

    def bytes_after(self, version: int) -> int:
        """Bytes of payload of the batches after `version`."""
        with storage_errors(self.path):
            (total,) = self._durable.execute(
                "SELECT coalesce(sum(length(payload)), 0) FROM batches WHERE version > ?",
                (version,),
            ).fetchone()
        return int(total)

    def retire(self, version: int, chain: bytes) -> None:
        """Removes the batches up to `version`, whose chain is `chain`, in slices.

        Raises StorageFailed; some of the oldest may then be removed, without a gap.
        """
        now = time.time()
        while self.retired < version:
            with self._writing:
                with self._transaction(self._receipts) as connection:
                    last, last_chain = self._remove_slice(connection, version, chain, now)
                    state = replace(self._state, retired=last, retired_chain=last_chain)
                    layout.write_state(connection, state)
                self._state = state
        self._forget_keys(now - KEPT_SECONDS)

    def _remove_slice(
        self, connection: sqlite3.Connection, version: int, chain: bytes, now: float
    ) -> tuple[int, bytes]:
        """Removes some of the oldest batches up to `version`; the newest of them, and its chain."""
        rows = connection.execute(
            "SELECT version, length(payload), idempotency_key, body_hash"
            " FROM batches WHERE version > ? AND version <= ? ORDER BY version LIMIT ?",
            (self.retired, version, _SLICE_ROWS),
        ).fetchall()
        sizes = accumulate(row[1] for row in rows)
        taken = [
            row
            for row, size in zip(rows, sizes, strict=True)
            if row is rows[0] or size <= _SLICE_BYTES
        ]
        for batch, _, key, body_hash in taken:
            if key is None:
                connection.execute("DELETE FROM outcomes WHERE version = ?", (batch,))
            else:
                connection.execute("DELETE FROM requests WHERE version = ?", (batch,))
                layout.insert_request(connection, batch, key, body_hash, now)
        all_taken = len(taken) == len(rows) < _SLICE_ROWS
        last = version if all_taken else taken[-1][0]
        if not all_taken:  # of one batch alone: to read it, SQLite reads all of the payload
            (chain,) = connection.execute(
                "SELECT chain FROM batches WHERE version = ?", (last,)
            ).fetchone()
        connection.execute("DELETE FROM batches WHERE version <= ?", (last,))
        return last, chain

    def _forget_keys(self, retired_before: float) -> None:
        """Removes keys, and their outcomes, of batches retired before that time."""
        while True:
            with self._writing, self._transaction(self._receipts) as connection:
                rows = connection.execute(
                    "SELECT version, retired_at FROM requests"
                    " WHERE retired_at IS NOT NULL ORDER BY version LIMIT ?",
                    (_SLICE_ROWS,),
                ).fetchall()
                due = [(version,) for version, at in rows if at < retired_before]
                connection.executemany("DELETE FROM requests WHERE version = ?", due)
                connection.executemany("DELETE FROM outcomes WHERE version = ?", due)
            if len(due) < _SLICE_ROWS:
                return

    def sync_head(self) -> None:
        """Makes the current head file survive a power loss."""
        if self._head is not None:
            with storage_errors(head_path(self.path)):
                self._head.sync()

    def close(self) -> None:
        self._end_copying()
        if self._has_failed and self._may_have_hole:
            # the log has what was refused, and the next process would take it for committed
            with suppress(StorageFailed):
                self.sync_receipts()
        with self._reading, ExitStack() as stack:
            if self._has_failed:
                stack.enter_context(self._keeping_log())
            for connection in self._connections:
                connection.close()
            if self._head is not None:
                self._head.close()
                self._head = None

    def _open(self) -> None:
        self._durable = self._connect("FULL")
        layout.upgrade(self._durable, self.path)
        self._receipts = self._connect("NORMAL")
        self._reader = self._connect("NORMAL")
        self._reader.execute("PRAGMA query_only = ON")
        self._copier = self._connect("FULL")
        self._state = layout.read_state(self._durable, self.path)
        self._head = Head(head_path(self.path))

    def _copy_log(self) -> None:
        """Copies the write-ahead log to the database (rules 6 and 7); one call at a time. What
        fails, but no sync, is tried again by later commits: the log is complete without it.
        """
        if self._may_have_hole or not self._may_copy:
            return
        try:
            self._copier.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            note = ""
            if _is_failed_sync(error):  # of the log or of the database
                self._may_copy, self._may_have_hole, self._has_failed = False, True, True
                note = "; it grows until the graph is opened again"
            log.warning("%s: the write-ahead log was not copied: %s%s", self.path, error, note)

    def _copy_long_log(self) -> None:
        """Copies the log if it is too long; for holders of `_writing`, so that nothing is committed
        before all is copied. Raises nothing: the transaction is committed.
        """
        with suppress(OSError):
            if self._may_copy and self._log.stat().st_size > _LOG_BYTES:
                self._end_copying()
                self._copy_log()

    def _end_copying(self) -> None:
        if self._copying is not None and not self._copying.cancel():
            self._copying.result()

    @contextmanager
    def _keeping_log(self) -> Iterator[None]:
        """The last connection that is closed copies the log, unless it may not write."""
        uri = f"{self.path.absolute().as_uri()}?mode=ro"
        with ExitStack() as stack:
            with suppress(sqlite3.Error):  # it is no database
                last = stack.enter_context(closing(sqlite3.connect(uri, uri=True)))
                last.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            yield

    def _write_log_again(self) -> None:
        """Writes the write-ahead log again, as it is, and syncs it (rule 6). Raises OSError."""
        with open(self._log, "r+b", buffering=0) as log:
            place = 0
            while part := os.pread(log.fileno(), SLICE, place):
                place += os.pwrite(log.fileno(), part, place)
            os.fsync(log.fileno())
        self._may_have_hole = False

    def _connect(self, synchronous: Literal["FULL", "NORMAL"]) -> sqlite3.Connection:
        # mode=rw: a journal that has disappeared must not be created empty.
        uri = f"{self.path.absolute().as_uri()}?mode=rw"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        self._connections.append(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        # a longer file is shortened when the log begins again
        connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        # some builds of SQLite write zeros over all that is deleted, which takes half a second for
        # 120 MB, while nobody else can write
        connection.execute("PRAGMA secure_delete = FAST")
        return connection

    def _write_head(self) -> None:
        """Writes the head after the commit: one that is behind detects less, but is not wrong."""
        assert self._head is not None
        try:
            self._head.write(self._state.version, self._state.chain)
        except OSError as error:
            log.warning("%s: %s", head_path(self.path), error)

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        """For callers that hold `_writing`: SQLite has one writer, and would wait by polling."""
        with storage_errors(self.path):
            if self._may_have_hole:
                self._write_log_again()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException as error:
                if _is_failed_sync(error):
                    self._may_have_hole = self._has_failed = True
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        self._copy_long_log()


def _is_failed_sync(error: BaseException) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code in (sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC)


def head_path(journal: Path) -> Path:
    """The path of the head file of a journal."""
    return journal.with_suffix(".head")
