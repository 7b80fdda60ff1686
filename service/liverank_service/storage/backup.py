"""Backup and restore of a data directory, also while a server uses it.

A backup is a data directory: the API keys, the programs of users, and each graph with its newest
checkpoint, the batches after it, the idempotency keys, the watched queries and the analyses. It is
consistent: SQLite copies the journal as of one moment, after the checkpoint and the queries, which
refer to earlier batches.
Every byte of the copy is verified before it is complete.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from liverank_service.errors import StorageFailed
from liverank_service.storage import api_keys, journal, programs
from liverank_service.storage import checkpoint as checkpoints
from liverank_service.storage.api_keys import ApiKeyStore
from liverank_service.storage.checkpoint import Checkpoint
from liverank_service.storage.files import (
    DIRECTORY_MODE,
    FILE_MODE,
    make_directory,
    rename_synced,
    storage_errors,
    storage_failure,
    sync_directory,
)
from liverank_service.storage.graph_store import MANIFEST
from liverank_service.storage.journal import Head, Journal, head_path, read_head
from liverank_service.storage.kept_files import READERS
from liverank_service.storage.recovery import fault_of
from liverank_service.storage.salvage import read_only

_PARTIAL = ".partial"

_ATTEMPTS = 5
"""Attempts to copy a graph: a checkpoint may be replaced while it is copied."""


_OF_WRITING = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_FSYNC,
}
"""Errors of a copied journal that are those of the copy: the journal itself is only read."""


@dataclass(frozen=True, slots=True)
class CopiedGraph:
    """A graph in a backup. bytes: of its files."""

    graph: str
    version: int
    bytes: int


def backup(data: Path, target: Path) -> list[CopiedGraph]:
    """Copies the graphs of the data directory `data` to the directory `target`, which must be new
    or empty.

    Raises StorageFailed; `target` is then unchanged.
    """
    with storage_errors(data):
        names = sorted(path.name for path in _graphs(data))

    def copy_all(temporary: Path) -> list[CopiedGraph]:
        _copy_api_keys(data, temporary)
        _copy_programs(data, temporary)
        return [_copy(data / "graphs" / name, temporary, name) for name in names]

    return _whole(target, copy_all)


def restore(source: Path, data: Path) -> list[CopiedGraph]:
    """Copies the backup `source` to the data directory `data`, which must be new or empty.

    Raises StorageFailed for a damaged backup, before anything is written, and if the copy fails;
    `data` is then unchanged.
    """
    with storage_errors(source):
        graphs = sorted(_graphs(source), key=lambda path: path.name)
    for graph in graphs:
        _verify(graph)

    def copy_all(temporary: Path) -> list[CopiedGraph]:
        _copy_api_keys(source, temporary)
        _copy_programs(source, temporary)
        for graph in graphs:
            shutil.copytree(graph, temporary / "graphs" / graph.name)
        return [_verify(temporary / "graphs" / graph.name) for graph in graphs]

    return _whole(data, copy_all)


def _graphs(data: Path) -> list[Path]:
    graphs = data / "graphs"
    if not graphs.is_dir():
        raise StorageFailed(data, "is not a data directory of liverank: it has no folder `graphs`")
    return [path for path in graphs.iterdir() if not path.name.startswith(".")]


def _whole(target: Path, write: Callable[[Path], list[CopiedGraph]]) -> list[CopiedGraph]:
    """Writes a directory beside `target`, or in it if it exists, since it may be a volume, and
    renames it, or what it has, once all of it is on disk.
    """
    with storage_errors(target):
        exists = target.exists()
        if exists and not _is_empty(target):
            raise StorageFailed(target, "exists already; expected a new or empty directory")
        temporary = target / _PARTIAL if exists else target.with_name(f".{target.name}{_PARTIAL}")
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            make_directory(temporary)
            (temporary / "graphs").mkdir()
            copied = write(temporary)
            _sync_all(temporary)
            if exists:
                _move_up(temporary)
            else:
                rename_synced(temporary, target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    return copied


def _is_empty(target: Path) -> bool:
    """Whether a directory has only what an interrupted copy, or its file system, put there."""
    return target.is_dir() and {path.name for path in target.iterdir()} <= {_PARTIAL, "lost+found"}


def _move_up(directory: Path) -> None:
    """Moves all that the directory has to the one above, and removes it. Raises OSError; all of it
    is then back, as it is after Ctrl-C.
    """
    # the graphs last: without them it is no data directory, and with them it must have the keys
    paths = sorted(directory.iterdir(), key=lambda path: path.name == "graphs")
    try:
        for path in paths:
            rename_synced(path, directory.parent / path.name)
        directory.rmdir()
        sync_directory(directory.parent)
    except BaseException:
        with suppress(OSError):
            directory.mkdir(exist_ok=True)
            for path in paths:
                if not path.exists():
                    (directory.parent / path.name).rename(path)
        raise


def _copy_api_keys(data: Path, temporary: Path) -> None:
    for file in (api_keys.REQUIRED_FILE, api_keys.FILE):
        _copy_if_exists(data / file, temporary)
    ApiKeyStore(temporary)  # reads and so verifies them


def _copy_programs(data: Path, temporary: Path) -> None:
    _copy_if_exists(data / programs.FILE, temporary)
    programs.read_programs(temporary)


def _copy_if_exists(source: Path, directory: Path) -> None:
    """Copies a file with its mode. It is replaced only by renaming, so the copy is complete."""
    if source.exists():
        shutil.copy(source, directory)


def _copy(source: Path, temporary: Path, name: str) -> CopiedGraph:
    target = temporary / "graphs" / name
    for attempt in range(1, _ATTEMPTS + 1):
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        try:
            shutil.copyfile(source / MANIFEST, target / MANIFEST)
            for file in READERS:
                _copy_if_exists(source / file, target)
            for path in checkpoints.stored(source / checkpoints.DIRECTORY)[:1]:
                shutil.copytree(path, target / checkpoints.DIRECTORY / path.name)
            _copy_journal(source / journal.FILE, target / journal.FILE)
            return _verify(target)
        except (FileNotFoundError, shutil.Error, StorageFailed):
            if attempt == _ATTEMPTS:
                for path in checkpoints.stored(source / checkpoints.DIRECTORY)[:1]:
                    checkpoints.read(path)  # names a damaged file where it stays
                raise
    raise AssertionError("unreachable")


def _copy_journal(source: Path, target: Path) -> None:
    """Raises StorageFailed if the journal ends early. Its files stay as they are: closing it would
    remove the part of its write-ahead log behind a damage, which a server can salvage.
    """
    stated = read_head(head_path(source))  # first: batches may follow
    with (
        storage_errors(source),
        read_only(source) as old,
        closing(sqlite3.connect(target)) as new,
    ):
        try:
            old.backup(new)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) in _OF_WRITING:
                raise storage_failure(target, error) from error
            raise
    copied = Journal(target)
    if stated is not None and stated[0] > copied.version:
        copied.close()
        reason = f"ends at batch {copied.version}, but its head file is at {stated[0]}"
        raise StorageFailed(source, f"{reason}: a server salvages it when it starts")
    Head.create(target, copied.version, copied.chain)
    copied.close()


def _verify(graph: Path) -> CopiedGraph:
    """Raises StorageFailed if the graph could not be recovered from its files."""
    stored = checkpoints.stored(graph / checkpoints.DIRECTORY)
    newest: Checkpoint | None = checkpoints.read(stored[0]) if stored else None
    for file, read in READERS.items():
        read(graph / file)
    opened = Journal(graph / journal.FILE)
    try:
        fault = fault_of(opened, newest)
        if fault is not None:
            raise StorageFailed(opened.path, fault)
        if opened.retired > (newest.version if newest else 0):
            raise StorageFailed(
                opened.path, f"begins after batch {opened.retired}, and there is no checkpoint"
            )
        version = opened.version
    finally:
        opened.close()
    size = sum(path.stat().st_size for path in graph.rglob("*") if path.is_file())
    return CopiedGraph(graph.name, version, size)


def _sync_all(directory: Path) -> None:
    """Makes everything below survive a power loss, for its owner alone."""
    for path in directory.rglob("*"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fchmod(descriptor, DIRECTORY_MODE if path.is_dir() else FILE_MODE)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    sync_directory(directory)
