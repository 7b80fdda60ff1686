"""The journal of one graph: what was accepted, in order, before anything else saw it.

A SQLite database (WAL) with three tables; `application_id` says that it is a journal of liverank,
`user_version` which layout it has (1):

    batches    version          1, 2, 3 …: the number of the batch; no gaps
               committed_at     Unix time, seconds
               strategy         the strategy asked for
               idempotency_key  unique where given
               body_hash        SHA-256 of the request's body
               payload          the columns of keys as Arrow IPC (service.formats.encode_batch)
    outcomes   version          of a batch that was settled: ranked or rejected
               status           ranked: body is the receipt; rejected: body is the problem document
               body             JSON, the bytes that are answered
    published  revision         one row: no revision above it was ever published

The rules:

1. A batch is committed and fsynced (``synchronous=FULL``) before it is applied. Batches that wait
   together are one transaction, one fsync. It also reserves the revisions that will publish them.
2. A rejection is committed and fsynced before it is answered: replay has to skip exactly what was
   skipped before.
3. A receipt is committed before it is answered, without an fsync of its own
   (``synchronous=NORMAL``, a second connection): it survives the death of the process. A power loss
   may take the newest receipts; then recovery, which applies the same batches to the same graph,
   writes them again with the same counts.
4. A recomputation reserves its revision, fsynced, before it is published: revisions never repeat.

One thread (the graph's pipeline) writes; `outcome` may be called from any thread.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from service.errors import StorageFailed

APPLICATION_ID = 0x4C56524B  # "LVRK"
LAYOUT = 1
PAYLOAD_LIMIT = 900_000_000
"""Bytes of one payload: SQLite holds values up to 1,000,000,000."""

_SCHEMA = f"""
CREATE TABLE batches (
    version INTEGER PRIMARY KEY,
    committed_at REAL NOT NULL,
    strategy TEXT NOT NULL,
    idempotency_key TEXT UNIQUE,
    body_hash BLOB NOT NULL,
    payload BLOB NOT NULL
);
CREATE TABLE outcomes (
    version INTEGER PRIMARY KEY REFERENCES batches (version),
    status TEXT NOT NULL CHECK (status IN ('ranked', 'rejected')),
    body BLOB NOT NULL
);
CREATE TABLE published (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 0),
    revision INTEGER NOT NULL
);
INSERT INTO published VALUES (0, 0);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {LAYOUT};
"""


@dataclass(frozen=True, slots=True)
class Record:
    """One batch as it is journalled."""

    payload: bytes
    strategy: str
    idempotency_key: str | None
    body_hash: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a batch ended; `body` is the JSON that was or will be answered."""

    status: Literal["ranked", "rejected"]
    body: bytes


class Journal:
    """An open journal. Invariant: the batches on disk are 1 … `version`, without a gap."""

    version: int
    revision: int

    def __init__(self, path: Path) -> None:
        """Opens the journal at `path`. Raises StorageFailed where it cannot be read."""
        self.path = path
        self._reading = threading.Lock()
        self._connections: list[sqlite3.Connection] = []
        if not path.is_file():
            raise StorageFailed(path, "the journal is missing")
        try:
            self._open()
        except sqlite3.Error as error:
            self.close()
            raise StorageFailed(path, error) from error
        except StorageFailed:
            self.close()
            raise

    @classmethod
    def create(cls, path: Path) -> None:
        """Writes an empty journal to `path`, which must not exist, and closes it."""
        with sqlite3.connect(path, isolation_level=None) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
        connection.close()

    def append(self, records: Sequence[Record], revision: int) -> list[int]:
        """Commits `records` with one fsync, and reserves the revisions up to `revision`.

        Returns the versions of the records.

        Raises StorageFailed; then none of them is in the journal.
        """
        versions = list(range(self.version + 1, self.version + 1 + len(records)))
        now = time.time()
        with self._transaction(self._durable):
            self._durable.executemany(
                "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?)",
                (
                    (
                        version,
                        now,
                        record.strategy,
                        record.idempotency_key,
                        record.body_hash,
                        record.payload,
                    )
                    for version, record in zip(versions, records, strict=True)
                ),
            )
            self._durable.execute("UPDATE published SET revision = ?", (revision,))
        self.version, self.revision = versions[-1] if versions else self.version, revision
        return versions

    def reserve(self, revision: int) -> None:
        """Commits, with an fsync, that revisions up to `revision` may be published."""
        self.append([], revision)

    def reject(self, version: int, problem: bytes) -> None:
        """Commits, with an fsync, that `version` is spent and not applied."""
        with self._transaction(self._durable):
            self._durable.execute(
                "INSERT INTO outcomes VALUES (?, 'rejected', ?)", (version, problem)
            )

    def settle(self, receipts: Iterable[tuple[int, bytes]]) -> None:
        """Commits receipts; they survive the process, perhaps not a power loss (rule 3)."""
        with self._transaction(self._receipts):
            self._receipts.executemany("INSERT INTO outcomes VALUES (?, 'ranked', ?)", receipts)

    def holder(self, idempotency_key: str) -> tuple[int, bytes] | None:
        """The version and the body hash of the batch that came with this key."""
        row = self._durable.execute(
            "SELECT version, body_hash FROM batches WHERE idempotency_key = ?", (idempotency_key,)
        ).fetchone()
        return None if row is None else (row[0], row[1])

    def outcome(self, version: int) -> Outcome | None:
        """How `version` ended; None while it is pending, or where there is no such version."""
        with self._reading, self._storage_errors():
            row = self._reader.execute(
                "SELECT status, body FROM outcomes WHERE version = ?", (version,)
            ).fetchone()
        return None if row is None else Outcome(row[0], row[1])

    def payload(self, version: int) -> bytes:
        with self._storage_errors():
            row = self._durable.execute(
                "SELECT payload FROM batches WHERE version = ?", (version,)
            ).fetchone()
        return bytes(row[0])

    def close(self) -> None:
        with self._reading:
            for connection in self._connections:
                connection.close()

    def _open(self) -> None:
        self._durable = self._connect("FULL")
        self._receipts = self._connect("NORMAL")
        self._reader = self._connect("NORMAL")
        self._reader.execute("PRAGMA query_only = ON")
        (application,) = self._durable.execute("PRAGMA application_id").fetchone()
        (layout,) = self._durable.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION_ID:
            raise StorageFailed(self.path, "is a SQLite database, but no journal of liverank")
        if layout != LAYOUT:
            raise StorageFailed(self.path, f"has layout {layout}; layout {LAYOUT} can be read")
        count, self.version = self._durable.execute(
            "SELECT count(*), coalesce(max(version), 0) FROM batches"
        ).fetchone()
        # Versions are positive, so that as many as the newest one's number leave no gap.
        if count != self.version:
            raise StorageFailed(
                self.path, f"holds {count} batches where the newest is {self.version}"
            )
        (self.revision,) = self._durable.execute("SELECT revision FROM published").fetchone()

    def _connect(self, synchronous: Literal["FULL", "NORMAL"]) -> sqlite3.Connection:
        # mode=rw: a journal that vanished meanwhile must not be created empty.
        uri = f"{self.path.absolute().as_uri()}?mode=rw"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        self._connections.append(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        return connection

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection) -> Iterator[None]:
        with self._storage_errors():
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StorageFailed(self.path, error) from error
