"""The journal that a graph is recovered from: verified, which is every row, its end, and its match
with head and checkpoint; and salvaged first if it is damaged.
"""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

from liverank_service.errors import StorageFailed
from liverank_service.storage import layout
from liverank_service.storage.checkpoint import Checkpoint
from liverank_service.storage.files import is_damage, storage_errors, storage_failure
from liverank_service.storage.journal import Journal, head_path, read_head
from liverank_service.storage.layout import Record, UnknownLayout
from liverank_service.storage.salvage import finish_salvage, read_only, salvage


def fault_of(journal: Journal, checkpoint: Checkpoint | None) -> str | None:
    """The first fault of the journal, as text; None if it is intact.

    Raises StorageFailed if the disk prevents reading it.
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
    for table in ("requests", "outcomes"):
        for row in connection.execute(f"SELECT {layout.COLUMNS[table]} FROM {table}"):
            if not layout.is_intact(row):
                return f"the row of batch {row[0]} in `{table}` is damaged"
    return None


def _batches(connection: sqlite3.Connection, journal: Journal) -> str | None:
    lost = _lost_batches(connection)
    chain, expected = journal.retired_chain, journal.retired + 1
    rows = connection.execute(f"SELECT {layout.COLUMNS['batches']} FROM batches ORDER BY version")
    for version, committed_at, *columns, stated in rows:
        while expected in lost:
            expected += 1
        if version != expected:
            return f"batch {expected} is missing"
        chain = layout.link(chain, version, committed_at, Record(*columns))
        if chain != stated:
            return f"batch {version} is damaged"
        expected += 1
    while expected in lost:
        expected += 1
    if expected != journal.version + 1:
        return f"batch {expected} is missing"
    return None if chain == journal.chain else "the chain of its batches is broken"


def _end(
    connection: sqlite3.Connection, journal: Journal, checkpoint: Checkpoint | None
) -> str | None:
    for witness, version, chain in _witnesses(journal.path, checkpoint):
        own = _chain_at(connection, journal, version)
        if own is not None and own != chain:
            return f"{witness} belongs to another journal"
    return early_end(journal.path, journal.version, checkpoint)


def early_end(path: Path, end: int, checkpoint: Checkpoint | None) -> str | None:
    """The fault of a journal whose last batch is `end`, if its head file or the checkpoint are at a
    later one. Raises StorageFailed.
    """
    for witness, version, _ in _witnesses(path, checkpoint):
        if version > end:
            return f"it ends at batch {end}, but {witness} is at {version}"
    return None


def _witnesses(path: Path, checkpoint: Checkpoint | None) -> list[tuple[str, int, bytes]]:
    """Name, version and chain of what knows where the journal ends."""
    witnesses = []
    head = read_head(head_path(path))
    if head is not None:
        witnesses.append(("its head file", *head))
    if checkpoint is not None:
        witnesses.append((f"checkpoint {checkpoint.name}", checkpoint.version, checkpoint.chain))
    return witnesses


def _chain_at(connection: sqlite3.Connection, journal: Journal, version: int) -> bytes | None:
    """The journal's chain at a version; None if it no longer holds it."""
    if version == journal.version:
        return journal.chain
    if version == journal.retired:
        return journal.retired_chain
    row = connection.execute("SELECT chain FROM batches WHERE version = ?", (version,)).fetchone()
    return None if row is None else bytes(row[0])


def _lost_batches(connection: sqlite3.Connection) -> set[int]:
    """The batches that an earlier salvage could not read."""
    rows = connection.execute("SELECT version FROM outcomes WHERE status = 'lost'")
    return {version for (version,) in rows}


def verified_journal(path: Path, checkpoint: Checkpoint | None) -> Journal:
    """The journal at `path`, with every row checked; salvaged first if it is damaged.

    Raises StorageFailed if the graph cannot be recovered from it and the checkpoint.
    """
    finish_salvage(path)
    early = _fault_of_log(path, checkpoint)
    if early is not None:
        salvage(path, checkpoint, early)
    try:
        journal = Journal(path)
    except StorageFailed as error:
        if not path.is_file() or isinstance(error, UnknownLayout) or not is_damage(error.__cause__):
            raise
        fault = str(error).removeprefix(f"{path}: ")
    else:
        found = fault_of(journal, checkpoint)
        if found is None:
            _check_reach(journal, checkpoint)
            return journal
        fault = found
        journal.close()
    salvage(path, checkpoint, fault)
    return Journal(path)


def version_needed(path: Path) -> int:
    """The version that a checkpoint must reach for the graph to be recovered with the journal at
    `path`; as high as possible if the journal does not say. Changes no file. Raises StorageFailed.
    """
    if not path.is_file():
        return 0
    try:
        with read_only(path) as connection:
            return layout.read_state(connection, path).retired
    except (sqlite3.Error, StorageFailed) as error:
        _raise_unless_damaged(path, error)
        return sys.maxsize


def _fault_of_log(path: Path, checkpoint: Checkpoint | None) -> str | None:
    """The fault of a journal that ends early because of damage to its write-ahead log, which must
    be salvaged before SQLite discards what it ignores; None without one. Changes no file.
    """
    log = path.with_name(f"{path.name}-wal")
    with storage_errors(log):
        if not path.is_file() or not log.exists() or log.stat().st_size == 0:
            return None
    try:
        with read_only(path) as connection:
            (current,) = connection.execute("PRAGMA user_version").fetchone()
            if current not in layout.SAME_TABLES:
                return None  # the journal is upgraded, or refused, when it is opened
            version = layout.read_state(connection, path).version
    except (sqlite3.Error, StorageFailed) as error:
        _raise_unless_damaged(path, error)
        return str(error).removeprefix(f"{path}: ")
    return early_end(path, version, checkpoint)


def _raise_unless_damaged(path: Path, error: sqlite3.Error | StorageFailed) -> None:
    if isinstance(error, sqlite3.Error) and not is_damage(error):
        raise storage_failure(path, error) from error


def _check_reach(journal: Journal, checkpoint: Checkpoint | None) -> None:
    reached = checkpoint.version if checkpoint else 0
    if reached < journal.retired:
        raise StorageFailed(
            journal.path,
            f"no longer holds batches {reached + 1} to {journal.retired}, and no readable "
            "checkpoint does: restore a backup",
        )
