"""The journal that a graph is recovered from: verified, and salvaged first if it is damaged."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

from liverank_service.errors import StorageFailed
from liverank_service.storage import layout
from liverank_service.storage.checkpoint import Checkpoint
from liverank_service.storage.files import is_damage, storage_errors, storage_failure
from liverank_service.storage.journal import Journal
from liverank_service.storage.layout import UnknownLayout
from liverank_service.storage.readable_rows import read_only
from liverank_service.storage.salvage import finish_salvage, salvage
from liverank_service.storage.verification import early_end, fault_of


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
