"""A data directory copied while a server uses it, and put back.

A backup is a data directory: the API keys, and each graph with its newest checkpoint, the batches
after it, the idempotency keys and the watched queries. It is consistent by itself, because the
journal is copied after the checkpoint and the watched queries, which name vertices of earlier
batches, by SQLite, as of one moment; and every byte of it is checked before it is called done.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from service.errors import StorageFailed
from service.queries import watched
from service.storage import api_keys as security
from service.storage import checkpoint as checkpoints
from service.storage.api_keys import KeyStore
from service.storage.checkpoint import Checkpoint
from service.storage.files import storage_errors, sync_directory
from service.storage.head import Head
from service.storage.journal import Journal, head_path
from service.storage.verification import fault_of

MANIFEST = "graph.json"
JOURNAL = "journal.db"

_ATTEMPTS = 5
"""At copying a graph: a checkpoint may be replaced while it is copied."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A graph in a backup. bytes: of its files."""

    graph: str
    version: int
    bytes: int


def backup(data: Path, target: Path) -> list[Copied]:
    """Copies the graphs of the data directory `data` to the new directory `target`.

    Raises StorageFailed; then there is no `target`.
    """
    with storage_errors(data):
        names = sorted(path.name for path in _graphs(data))

    def copy_all(aside: Path) -> list[Copied]:
        _copy_api_keys(data, aside)
        return [_copy(data / "graphs" / name, aside, name) for name in names]

    return _whole(target, copy_all)


def restore(source: Path, data: Path) -> list[Copied]:
    """Copies the backup `source` to the data directory `data`, which must be new or empty.

    Raises StorageFailed for a backup that is damaged, before anything is written, and where the
    copy fails; then there is nothing in `data`.
    """
    with storage_errors(source):
        graphs = sorted(_graphs(source), key=lambda path: path.name)
    for graph in graphs:
        _verify(graph)
    with storage_errors(data):
        if data.is_dir() and not any(data.iterdir()):
            data.rmdir()

    def copy_all(aside: Path) -> list[Copied]:
        _copy_api_keys(source, aside)
        for graph in graphs:
            shutil.copytree(graph, aside / "graphs" / graph.name)
        return [_verify(aside / "graphs" / graph.name) for graph in graphs]

    return _whole(data, copy_all)


def _graphs(data: Path) -> list[Path]:
    graphs = data / "graphs"
    if not graphs.is_dir():
        raise StorageFailed(data, "is no data directory of liverank: it has no folder `graphs`")
    return [path for path in graphs.iterdir() if not path.name.startswith(".")]


def _whole(target: Path, write: Callable[[Path], list[Copied]]) -> list[Copied]:
    """Lets a directory be written beside `target`, and renames it when all is on disk."""
    if target.exists():
        raise StorageFailed(target, "is there already; a new directory is due")
    aside = target.with_name(f".{target.name}.partial")
    with storage_errors(target):
        shutil.rmtree(aside, ignore_errors=True)
        try:
            (aside / "graphs").mkdir(parents=True)
            copied = write(aside)
            _sync_all(aside)
            aside.rename(target)
            sync_directory(target.parent)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
    return copied


def _copy_api_keys(data: Path, aside: Path) -> None:
    _copy_if_there(data / security.FILE, aside)
    KeyStore(aside)  # which reads them


def _copy_if_there(source: Path, directory: Path) -> None:
    """Copies a file with its mode. Files that are replaced by renaming are copied whole."""
    if source.exists():
        shutil.copy(source, directory)


def _copy(source: Path, aside: Path, name: str) -> Copied:
    target = aside / "graphs" / name
    for attempt in range(1, _ATTEMPTS + 1):
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        try:
            shutil.copyfile(source / MANIFEST, target / MANIFEST)
            _copy_if_there(source / watched.FILE, target)
            for path in checkpoints.stored(source / "checkpoints")[:1]:
                shutil.copytree(path, target / "checkpoints" / path.name)
            _copy_journal(source / JOURNAL, target / JOURNAL)
            return _verify(target)
        except (FileNotFoundError, shutil.Error, StorageFailed):
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def _copy_journal(source: Path, target: Path) -> None:
    uri = f"{source.absolute().as_uri()}?mode=rw"
    with (
        closing(sqlite3.connect(uri, uri=True)) as old,
        closing(sqlite3.connect(target)) as new,
    ):
        old.backup(new)
    journal = Journal(target)
    head = Head(head_path(target))
    # both slots
    head.write(journal.version, journal.chain)
    head.write(journal.version, journal.chain)
    head.close()
    journal.close()


def _verify(graph: Path) -> Copied:
    """Raises StorageFailed where the files of a graph would not bring it back."""
    stored = checkpoints.stored(graph / "checkpoints")
    newest: Checkpoint | None = checkpoints.read(stored[0]) if stored else None
    watched.definitions_in(graph / watched.FILE)
    journal = Journal(graph / JOURNAL)
    try:
        fault = fault_of(journal, newest)
        if fault is not None:
            raise StorageFailed(journal.path, fault)
        if journal.retired > (newest.version if newest else 0):
            raise StorageFailed(
                journal.path, f"begins after batch {journal.retired}, and no checkpoint is there"
            )
        version = journal.version
    finally:
        journal.close()
    size = sum(path.stat().st_size for path in graph.rglob("*") if path.is_file())
    return Copied(graph.name, version, size)


def _sync_all(directory: Path) -> None:
    for path in directory.rglob("*"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    sync_directory(directory)
