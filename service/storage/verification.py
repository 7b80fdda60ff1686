"""Whether a journal is what was written: every row of it, its end, and what belongs to it."""

from __future__ import annotations

import sqlite3

from service.storage import layout
from service.storage.checkpoint import Checkpoint
from service.storage.files import is_damage, storage_failure
from service.storage.head import read_head
from service.storage.journal import Journal, head_path
from service.storage.layout import Record


def fault_of(journal: Journal, checkpoint: Checkpoint | None) -> str | None:
    """What is wrong with the journal, in words; None where every byte that counts is right.

    Raises StorageFailed where the disk does not let it be read.
    """
    try:
        connection = sqlite3.connect(journal.path)
        try:
            return (
                _structure(connection)
                or _rows(connection)
                or _batches(connection, journal)
                or _end(connection, journal, checkpoint)
            )
        finally:
            connection.close()
    except (sqlite3.Error, UnicodeDecodeError, OverflowError, TypeError, AttributeError) as error:
        if isinstance(error, sqlite3.Error) and not is_damage(error):
            raise storage_failure(journal.path, error) from error
        return str(error)


def _structure(connection: sqlite3.Connection) -> str | None:
    (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    return None if verdict == "ok" else str(verdict)


def _rows(connection: sqlite3.Connection) -> str | None:
    for table, columns in (
        ("requests", "version, idempotency_key, body_hash, retired_at, checksum"),
        ("outcomes", "version, status, body, checksum"),
    ):
        for *row, stated in connection.execute(f"SELECT {columns} FROM {table}"):
            if layout.checksum(*row) != stated:
                return f"the row of batch {row[0]} in `{table}` is damaged"
    return None


def _batches(connection: sqlite3.Connection, journal: Journal) -> str | None:
    lost = lost_batches(connection)
    chain, due = journal.retired_chain, journal.retired + 1
    rows = connection.execute(
        "SELECT version, committed_at, payload, strategy, idempotency_key, body_hash, chain"
        " FROM batches ORDER BY version"
    )
    for version, committed_at, *columns, stated in rows:
        while due in lost:
            due += 1
        if version != due:
            return f"batch {due} is missing"
        chain = layout.link(chain, version, committed_at, Record(*columns))
        if chain != stated:
            return f"batch {version} is damaged"
        due += 1
    while due in lost:
        due += 1
    if due != journal.version + 1:
        return f"batch {due} is missing"
    return None if chain == journal.chain else "the chain of its batches is broken"


def _end(
    connection: sqlite3.Connection, journal: Journal, checkpoint: Checkpoint | None
) -> str | None:
    witnesses = []
    head = read_head(head_path(journal.path))
    if head is not None:
        witnesses.append(("its head file", *head))
    if checkpoint is not None:
        witnesses.append((f"checkpoint {checkpoint.name}", checkpoint.version, checkpoint.chain))
    for witness, version, chain in witnesses:
        if version > journal.version:
            return f"it ends at batch {journal.version}, but {witness} says {version}"
        own = _chain_at(connection, journal, version)
        if own is not None and own != chain:
            return f"{witness} is of another journal"
    return None


def _chain_at(connection: sqlite3.Connection, journal: Journal, version: int) -> bytes | None:
    """The journal's chain at a version; None where it no longer holds it."""
    if version == journal.version:
        return journal.chain
    if version == journal.retired:
        return journal.retired_chain
    row = connection.execute("SELECT chain FROM batches WHERE version = ?", (version,)).fetchone()
    return None if row is None else bytes(row[0])


def lost_batches(connection: sqlite3.Connection) -> set[int]:
    """The batches that an earlier salvage had to give up."""
    rows = connection.execute("SELECT version FROM outcomes WHERE status = 'lost'")
    return {version for (version,) in rows}
