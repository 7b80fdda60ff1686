"""Salvages a damaged journal: copies what can be read to a new one, and reports the rest.

    salvaging/             the new journal while it is written
    salvaged/              the new journal once it is complete; it replaces the damaged one
    damaged-journal-<n>/   the old files, unchanged

A batch that cannot be read gets the outcome ``lost``: its version stays assigned, and requests for
it get that outcome. Later batches are kept: each is verified with the chain of the one before it,
so that a batch is lost, too, if nothing of its predecessor can be read. Receipts after a lost batch
are not kept: a later batch may have other effects without it, and is rejected if it needs a set or
a vertex of it. The idempotency key of a lost batch is removed, so that the batch is applied when it
is sent again. Batches that a checkpoint has are not lost, but their keys can be: they are reported.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from liverank_service.errors import BatchLost, StorageFailed
from liverank_service.problems import encode_problem, problem_of
from liverank_service.storage import layout
from liverank_service.storage.checkpoint import Checkpoint
from liverank_service.storage.files import DIRECTORY_MODE, storage_errors, sync_directory
from liverank_service.storage.head import Head, read_head
from liverank_service.storage.journal import head_path
from liverank_service.storage.layout import Record, State
from liverank_service.storage.readable_rows import OUTCOMES, REQUESTS, ReadableRows
from liverank_service.storage.wal_images import write_images

log = logging.getLogger("liverank.salvage")

_REVISIONS_SKIPPED = 1 << 20
"""Revisions skipped if the newest one is unknown, so that none is used twice."""


@dataclass(frozen=True, slots=True)
class _Loss:
    """batches: that are lost; keys: batches of the checkpoint whose idempotency keys may be lost;
    old_keys: whether that is so for still older batches; end: the newest version.
    """

    batches: list[int]
    keys: list[int]
    old_keys: bool
    end: int

    def __str__(self) -> str:
        named = "batches " + ", ".join(_ranges(self.batches)) if self.batches else "no batch"
        text = f"lost: {named} of {self.end}"
        if self.keys or self.old_keys:
            forgotten = [*_ranges(self.keys), *(["older ones"] if self.old_keys else [])]
            text += f"; idempotency keys that may be forgotten: of batches {', '.join(forgotten)}"
        return text


def salvage(path: Path, checkpoint: Checkpoint | None, fault: str) -> None:
    """Replaces the journal at `path`, which has the `fault`, with its readable part.

    Raises StorageFailed if too little would be left to recover from.
    """
    directory = path.parent
    temporary, images = directory / "salvaging", directory / "salvaging" / "images"
    with storage_errors(directory):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(DIRECTORY_MODE)
        images.mkdir()
        with ReadableRows.of(path, write_images(path, images)) as rows:
            loss = _rebuild(rows, path, temporary / path.name, checkpoint, fault)
        shutil.rmtree(images)
        sync_directory(temporary)
        temporary.rename(directory / "salvaged")
        sync_directory(directory)
    finish_salvage(path)
    log.error("%s: %s; the file was moved away; %s", path, fault, loss)


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
            sync_directory(damaged)
            if (new / head.name).exists():
                (new / head.name).rename(head)
            (new / path.name).rename(path)
        shutil.rmtree(new)
        sync_directory(directory)


def _rebuild(
    rows: ReadableRows, path: Path, target: Path, checkpoint: Checkpoint | None, fault: str
) -> _Loss:
    """Writes the new journal."""
    start, chain = 0, layout.BEGINNING
    if checkpoint is not None:
        start, chain = checkpoint.version, checkpoint.chain
    state = rows.state()
    retired = state.retired if state is not None else 0
    if retired > start:
        raise StorageFailed(
            path,
            f"{fault}; no readable checkpoint reaches batch {retired}, the newest one that "
            "the journal no longer holds: restore a backup",
        )
    head = read_head(head_path(path))
    if checkpoint is None and state is None and head is None:
        raise StorageFailed(
            path, f"{fault}; the number of its batches is unknown: restore a backup"
        )
    end = max(start, state.version if state else 0, head[0] if head else 0, rows.newest() or 0)
    chains = {0: layout.BEGINNING, start: chain}
    if state is not None:
        chains[retired] = state.retired_chain
    found = {
        version: (committed_at, record)
        for version, committed_at, record in rows.batches(chains, end)
    }
    if start == 0 and end > 0 and not found:
        raise StorageFailed(path, f"{fault}; there is nothing to recover from: restore a backup")
    kept = {version: batch for version, batch in found.items() if version > start}
    lost = [version for version in range(start + 1, end + 1) if version not in found]
    requests = _old_requests(rows, found, start, kept)

    layout.create(target)
    with closing(sqlite3.connect(target, isolation_level=None)) as new:
        new.execute("PRAGMA synchronous = FULL")
        new.execute("BEGIN IMMEDIATE")
        for version, (key, body_hash, retired_at) in requests.items():
            layout.insert_request(new, version, key, body_hash, retired_at)
        newest = chain
        for version, (committed_at, record) in kept.items():
            newest = layout.link(newest, version, committed_at, record)
            layout.insert_batches(new, committed_at, [(version, record, newest)])
        for version, status, body in rows.checked("outcomes", OUTCOMES, end).values():
            is_stale = status == "ranked" and lost and version > lost[0]
            if version <= start or (version in kept and not is_stale):
                layout.insert_outcomes(new, [(version, status, body)])
        for version in lost:
            problem = encode_problem(problem_of(BatchLost(version, fault)))
            layout.insert_outcomes(new, [(version, "lost", problem)])
        revision = _revision(state, checkpoint, end)
        layout.write_state(new, State(end, newest, start, chain, revision))
        new.execute("COMMIT")
    written = Head(head_path(target))
    written.write(end, newest)
    written.write(end, newest)
    written.sync()
    written.close()
    return _Loss(
        lost,
        [
            version
            for version in range(retired + 1, start + 1)
            if version not in found and version not in requests
        ],
        retired > 0 and not rows.is_complete("requests", REQUESTS, retired),
        end,
    )


def _revision(state: State | None, checkpoint: Checkpoint | None, end: int) -> int:
    """A revision that is not below any that may have been published."""
    newest = max(state.revision if state else 0, checkpoint.revision if checkpoint else 0)
    return newest if state is not None and state.version == end else newest + _REVISIONS_SKIPPED


def _old_requests(
    rows: ReadableRows,
    found: Mapping[int, tuple[float, Record]],
    start: int,
    kept: Mapping[int, tuple[float, Record]],
) -> dict[int, tuple[str, bytes, float]]:
    """By version, key, hash and time of retirement of the batches up to `start`."""
    now = time.time()
    requests = {
        version: (key, body_hash, retired_at or now)
        for version, key, body_hash, retired_at in rows.checked(
            "requests", REQUESTS, start
        ).values()
    }
    for version, (_, record) in found.items():
        if version <= start and record.idempotency_key is not None:
            requests.setdefault(version, (record.idempotency_key, record.body_hash, now))
    later = {record.idempotency_key for _, record in kept.values()}
    return {version: row for version, row in requests.items() if row[0] not in later}


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
    path.mkdir(DIRECTORY_MODE)
    return path
