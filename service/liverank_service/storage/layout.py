"""The tables of a journal, the checksums of their rows, and the upgrade from older layouts.

A SQLite database (WAL); `application_id` marks a journal of liverank, `user_version` is its layout
(6):

    batches    version          the number of the batch; those up to state.retired are removed
               committed_at     Unix time, seconds
               strategy         the requested strategy
               idempotency_key  null without one
               body_hash        SHA-256 of the request's body, see liverank_service.pipeline.batch;
                                empty without a key
               payload          the columns of keys (liverank_service.formats.payload)
               chain            SHA-256 of all the above and the previous batch's chain: see `link`
    requests   version          of a batch with an idempotency key, retired or not
               idempotency_key  unique
               body_hash        as above
               retired_at       Unix time at which the batch was removed; null before
               checksum         CRC-32 of all the above: see `checksum`
    outcomes   version          of a batch with an outcome
               status           ranked: body is the receipt; rejected: body is the problem document;
                                lost: the batch could not be read back; body gives the reason
               body             the body of the response, JSON
               checksum         CRC-32 of all the above
    deaths     version          of a batch that was being processed when the device was lost
               count            how often it was the only one: at 2 it is rejected
    state      one row: version of the newest batch and its chain; the newest retired version and
               its chain; the highest revision that may have been published; their CRC-32

The chain and the checksums are there because SQLite has none: it does not notice a page that the
disk returns with wrong bytes.

The tables of layouts 2 to 5 were the same. The payloads of layout 5 had integers as int64 alone,
those of layout 4 also no ranges of sources, those of layout 3 also no removed vertices and no
times, those of layout 2 also no weights and no sets of vertices.
Layout 1 had no requests, chain and checksums, and `published` instead of `state`.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from liverank_service.errors import StorageFailed
from liverank_service.storage.files import FILE_MODE

APPLICATION_ID = 0x4C56524B  # "LVRK"
LAYOUT = 6
SAME_TABLES = (2, 3, 4, 5, LAYOUT)
"""The layouts whose tables are those of this one."""
BEGINNING = bytes(32)
"""The chain before the first batch."""

_TABLES = f"""
CREATE TABLE batches (
    version INTEGER PRIMARY KEY,
    committed_at REAL NOT NULL,
    strategy TEXT NOT NULL,
    idempotency_key TEXT,
    body_hash BLOB NOT NULL,
    payload BLOB NOT NULL,
    chain BLOB NOT NULL
);
CREATE TABLE requests (
    version INTEGER PRIMARY KEY,
    idempotency_key TEXT NOT NULL UNIQUE,
    body_hash BLOB NOT NULL,
    retired_at REAL,
    checksum INTEGER NOT NULL
);
CREATE TABLE outcomes (
    version INTEGER PRIMARY KEY,
    status TEXT NOT NULL,
    body BLOB NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE TABLE deaths (
    version INTEGER PRIMARY KEY,
    count INTEGER NOT NULL
);
CREATE TABLE state (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 0),
    version INTEGER NOT NULL,
    chain BLOB NOT NULL,
    retired INTEGER NOT NULL,
    retired_chain BLOB NOT NULL,
    revision INTEGER NOT NULL,
    checksum INTEGER NOT NULL
);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {LAYOUT};
"""


COLUMNS = {
    "batches": "version, committed_at, payload, strategy, idempotency_key, body_hash, chain",
    "requests": "version, idempotency_key, body_hash, retired_at, checksum",
    "outcomes": "version, status, body, checksum",
}
"""Of the tables, in the order in which they are read: those of a batch between its time and its
chain are a Record.
"""


class UnknownLayout(StorageFailed):
    """A later release wrote the journal."""


@dataclass(frozen=True, slots=True)
class Record:
    """A batch as the journal stores it."""

    payload: bytes
    strategy: str
    idempotency_key: str | None
    body_hash: bytes


@dataclass(frozen=True, slots=True)
class State:
    """The row of `state`; see the module."""

    version: int = 0
    chain: bytes = BEGINNING
    retired: int = 0
    retired_chain: bytes = BEGINNING
    revision: int = 0

    @property
    def row(self) -> tuple[int, bytes, int, bytes, int]:
        return (self.version, self.chain, self.retired, self.retired_chain, self.revision)


def link(chain: bytes, version: int, committed_at: float, record: Record) -> bytes:
    """The chain of a batch, from the chain of the previous one.

    SHA-256 of, little-endian and without padding: the previous chain (32 bytes; zeros before the
    first batch), version (int64), committed_at (float64), then strategy, key, body_hash and
    payload, each as its length in bytes (int64) and its bytes, texts as UTF-8. The key is preceded
    by ``=``, which counts; without a key the length is 0.
    """
    strategy, key = record.strategy.encode(), record.idempotency_key
    owner = b"" if key is None else b"=" + key.encode()
    head = (
        chain,
        struct.pack("<qdq", version, committed_at, len(strategy)),
        strategy,
        struct.pack("<q", len(owner)),
        owner,
        struct.pack("<q", len(record.body_hash)),
        record.body_hash,
        struct.pack("<q", len(record.payload)),
    )
    digest = hashlib.sha256(b"".join(head))
    digest.update(record.payload)
    return digest.digest()


def checksum(*values: object) -> int:
    """CRC-32 of the columns of a row, one after the other: ``TYPE LENGTH `` in ASCII, with the
    space at the end, and LENGTH bytes. TYPE is that of Python: ``bytes``, as they are, or ``int``,
    ``float``, ``str`` or ``NoneType``, as the UTF-8 of `repr`.
    """
    total = 0
    for value in values:
        content = value if isinstance(value, bytes) else repr(value).encode()
        kind = f"{type(value).__name__} {len(content)} ".encode()
        total = zlib.crc32(content, zlib.crc32(kind, total))
    return total


def is_intact(row: Sequence[Any]) -> bool:
    """Whether a row, whose last column is its checksum, is as it was written."""
    return bool(checksum(*row[:-1]) == row[-1])


def create(path: Path) -> None:
    """Writes an empty journal to `path`, which must not exist, and closes it."""
    # the write-ahead log gets the mode of the database
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE))
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(f"BEGIN; {_TABLES} COMMIT;")
        write_state(connection, State())
    finally:
        connection.close()


def write_state(connection: sqlite3.Connection, state: State) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO state VALUES (0, ?, ?, ?, ?, ?, ?)",
        (*state.row, checksum(*state.row)),
    )


def read_state(connection: sqlite3.Connection, path: Path) -> State:
    """Raises StorageFailed if the row is damaged, sqlite3.Error if the file is unreadable."""
    row = connection.execute(
        "SELECT version, chain, retired, retired_chain, revision, checksum FROM state"
    ).fetchone()
    if row is None or not is_intact(row):
        raise StorageFailed(path, "the row of `state` is damaged")
    return State(*row[:-1])


def upgrade(connection: sqlite3.Connection, path: Path) -> None:
    """Upgrades an older layout to this one, in one transaction.

    Raises StorageFailed for a file that is not a journal, UnknownLayout for a later layout.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (layout,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise StorageFailed(path, "is a SQLite database, but not a journal of liverank")
    if not 1 <= layout <= LAYOUT:
        raise UnknownLayout(path, f"has layout {layout}, expected 1 to {LAYOUT}")
    if layout == LAYOUT:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if layout == 1:
            _from_layout_1(connection, path)
        else:
            connection.execute(f"PRAGMA user_version = {LAYOUT}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _from_layout_1(connection: sqlite3.Connection, path: Path) -> None:
    (revision,) = connection.execute("SELECT revision FROM published").fetchone()
    connection.execute("ALTER TABLE batches RENAME TO old_batches")
    connection.execute("ALTER TABLE outcomes RENAME TO old_outcomes")
    for statement in _TABLES.split(";"):
        connection.execute(statement)
    state = State(revision=revision)
    batches = connection.execute(
        "SELECT version, committed_at, payload, strategy, idempotency_key, body_hash"
        " FROM old_batches ORDER BY version"
    )
    for version, committed_at, *columns in batches:
        if version != state.version + 1:
            raise StorageFailed(path, f"batch {state.version + 1} is missing")
        record = Record(*columns)
        state = replace(
            state, version=version, chain=link(state.chain, version, committed_at, record)
        )
        insert_batches(connection, committed_at, [(version, record, state.chain)])
    for row in connection.execute("SELECT version, status, body FROM old_outcomes"):
        insert_outcomes(connection, [row])
    write_state(connection, state)
    for table in ("old_outcomes", "old_batches", "published"):
        connection.execute(f"DROP TABLE {table}")


def insert_batches(
    connection: sqlite3.Connection,
    committed_at: float,
    numbered: Sequence[tuple[int, Record, bytes]],
) -> None:
    """Inserts batches, each with its version and chain, and their idempotency keys."""
    connection.executemany(
        "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            (
                version,
                committed_at,
                record.strategy,
                record.idempotency_key,
                record.body_hash,
                record.payload,
                chain,
            )
            for version, record, chain in numbered
        ),
    )
    for version, record, _ in numbered:
        if record.idempotency_key is not None:
            insert_request(connection, version, record.idempotency_key, record.body_hash, None)


def insert_request(
    connection: sqlite3.Connection,
    version: int,
    key: str,
    body_hash: bytes,
    retired_at: float | None,
) -> None:
    row = (version, key, body_hash, retired_at)
    connection.execute("INSERT INTO requests VALUES (?, ?, ?, ?, ?)", (*row, checksum(*row)))


def insert_outcomes(connection: sqlite3.Connection, rows: Iterable[tuple[int, str, bytes]]) -> None:
    """Inserts the outcomes of batches: version, status and body of each."""
    connection.executemany(
        "INSERT INTO outcomes VALUES (?, ?, ?, ?)", ((*row, checksum(*row)) for row in rows)
    )
