"""Salvages a damaged journal: copies what can be read to a new one, and reports the rest.

    salvaging/             the new journal while it is written
    salvaged/              the new journal once it is complete; it replaces the damaged one
    damaged-journal-<n>/   the old files, unchanged

A batch that cannot be read gets the outcome ``lost``: its version stays assigned, and requests for
it get that outcome. Later batches are kept: each is verified on its own. The idempotency key of a
lost batch is removed, so that the batch is applied when it is sent again.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
import struct
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from service.errors import BatchLost, StorageFailed
from service.problems import encode_problem, problem_of
from service.storage import layout
from service.storage.checkpoint import Checkpoint
from service.storage.files import storage_errors, sync_directory
from service.storage.head import Head, read_head
from service.storage.journal import head_path
from service.storage.layout import Record, State

log = logging.getLogger("liverank.salvage")

_REVISIONS_SKIPPED = 1 << 20
"""Revisions skipped if the newest one is unknown, so that none is used twice."""

_CHUNK = 1000


def salvage(path: Path, checkpoint: Checkpoint | None, fault: str) -> None:
    """Replaces the journal at `path`, which has the `fault`, with its readable part.

    Raises StorageFailed if too little would be left to recover from.
    """
    directory = path.parent
    temporary = directory / "salvaging"
    with storage_errors(directory):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
    old = sqlite3.connect(path, isolation_level=None)
    try:
        lost, end = _rebuild(old, path, temporary / path.name, checkpoint, fault)
    finally:
        old.close()
    with storage_errors(directory):
        sync_directory(temporary)
        temporary.rename(directory / "salvaged")
        sync_directory(directory)
    finish_salvage(path)
    named = "batches " + ", ".join(_ranges(lost)) if lost else "no batch"
    log.error("%s: %s; the file was moved away; lost: %s of %d", path, fault, named, end)


def finish_salvage(path: Path) -> None:
    """Replaces the damaged journal with the salvaged one; continues after an interruption."""
    directory, new = path.parent, path.parent / "salvaged"
    if not new.is_dir():
        return
    head = head_path(path)
    with storage_errors(directory):
        if (new / path.name).exists():
            damaged = _new_directory(directory, "damaged-journal-")
            old = (path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm"))
            for file in (*old, head, path):
                if file.exists():
                    file.rename(damaged / file.name)
            if (new / head.name).exists():
                (new / head.name).rename(head)
            (new / path.name).rename(path)
        shutil.rmtree(new)
        sync_directory(directory)


def _rebuild(
    old: sqlite3.Connection, path: Path, target: Path, checkpoint: Checkpoint | None, fault: str
) -> tuple[list[int], int]:
    """Writes the new journal; returns the lost batches and the newest version."""
    start, chain = 0, layout.BEGINNING
    if checkpoint is not None:
        start, chain = checkpoint.version, checkpoint.chain
    state = _readable_state(old, path)
    if state is not None and state.retired > start:
        raise StorageFailed(
            path,
            f"{fault}; no readable checkpoint reaches batch {state.retired}, the newest one that "
            "the journal no longer holds: restore a backup",
        )
    head = read_head(head_path(path))
    if checkpoint is None and state is None and head is None:
        raise StorageFailed(
            path, f"{fault}; the number of its batches is unknown: restore a backup"
        )
    known = [start, *([state.version] if state else []), *([head[0]] if head else [])]
    newest = _readable_newest(old)
    end = max(*known, newest) if newest is not None else max(known)
    found = dict(_verified_batches(old, start, chain, end))
    if start == 0 and end > 0 and not found:
        raise StorageFailed(path, f"{fault}; there is nothing to recover from: restore a backup")
    revision = (
        state.revision
        if state is not None
        else (checkpoint.revision if checkpoint else 0) + end + _REVISIONS_SKIPPED
    )
    fresh = State(start, chain, start, chain, revision)
    lost = [version for version in range(start + 1, end + 1) if version not in found]

    layout.create(target)
    with closing(sqlite3.connect(target, isolation_level=None)) as new:
        new.execute("PRAGMA synchronous = FULL")
        new.execute("BEGIN IMMEDIATE")
        for *row, stated in _readable_rows(
            old, "requests", "version, idempotency_key, body_hash, retired_at, checksum", start
        ):
            version, key, body_hash, retired_at = row
            # later ones are inserted with their batches
            if version <= start and layout.checksum(*row) == stated:
                layout.insert_request(new, version, key, body_hash, retired_at or time.time())
        for version, (committed_at, record) in sorted(found.items()):
            chain = layout.link(chain, version, committed_at, record)
            layout.insert_batches(new, committed_at, [(version, record, chain)])
        for *row, stated in _readable_rows(old, "outcomes", "version, status, body, checksum", end):
            if layout.checksum(*row) == stated and (row[0] <= start or row[0] in found):
                layout.insert_outcomes(new, [(row[0], row[1], row[2])])
        for version in lost:
            problem = encode_problem(problem_of(BatchLost(version, fault)))
            layout.insert_outcomes(new, [(version, "lost", problem)])
        layout.write_state(new, replace(fresh, version=end, chain=chain))
        new.execute("COMMIT")
    written = Head(head_path(target))
    written.write(end, chain)
    written.write(end, chain)
    written.sync()
    written.close()
    return lost, end


def _readable_state(old: sqlite3.Connection, path: Path) -> State | None:
    try:
        return layout.read_state(old, path)
    except (sqlite3.Error, StorageFailed):
        return None


def _readable_newest(old: sqlite3.Connection) -> int | None:
    try:
        (newest,) = old.execute("SELECT max(version) FROM batches").fetchone()
    except sqlite3.Error:
        return None
    return newest if isinstance(newest, int) else None


def _verified_batches(
    old: sqlite3.Connection, after: int, chain: bytes, last: int
) -> Iterator[tuple[int, tuple[float, Record]]]:
    """The intact batches; a row is verified with the previous row's chain."""
    columns = "version, committed_at, payload, strategy, idempotency_key, body_hash, chain"
    expected, before = after + 1, chain
    for version, committed_at, *fields, stated in _readable_rows(
        old, "batches", columns, last, after
    ):
        record = Record(*fields)
        try:
            intact = layout.link(before, version, committed_at, record) == stated
        except (AttributeError, TypeError, struct.error):  # a column has another type
            intact = False
        if intact and version == expected:
            yield version, (committed_at, record)
        expected, before = version + 1, stated if isinstance(stated, bytes) else b""


def _readable_rows(
    old: sqlite3.Connection, table: str, columns: str, last: int, after: int = -1
) -> Iterator[tuple[Any, ...]]:
    """The rows of versions up to `last` that SQLite can still read, ascending."""
    query = f"SELECT {columns} FROM {table} WHERE version > ? AND version <= ? ORDER BY version"
    for low in range(after, last, _CHUNK):
        high = min(low + _CHUNK, last)
        try:
            yield from old.execute(query, (low, high)).fetchall()
        except (sqlite3.Error, UnicodeDecodeError):
            for version in range(low + 1, high + 1):
                try:
                    yield from old.execute(query, (version - 1, version)).fetchall()
                except (sqlite3.Error, UnicodeDecodeError):
                    continue


def _ranges(versions: list[int]) -> list[str]:
    """Consecutive numbers as "first to last"."""
    parts: list[tuple[int, int]] = []
    for version in versions:
        if parts and parts[-1][1] == version - 1:
            parts[-1] = (parts[-1][0], version)
        else:
            parts.append((version, version))
    return [f"{first}" if first == last else f"{first} to {last}" for first, last in parts]


def _new_directory(parent: Path, prefix: str) -> Path:
    number = 1 + len(list(parent.glob(f"{prefix}*")))
    path = parent / f"{prefix}{number}"
    path.mkdir()
    return path
