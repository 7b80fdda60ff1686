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

What can still be read is read from several views of the files, asked in order: if two have
different rows of one version, the earlier view's counts. A row of `batches` proves itself by the
chain, one of another table by its checksum.

Of a damaged write-ahead log, SQLite applies what is before the first damaged frame. Two images of
the database have the frames behind it, too: one has only intact frames, the other one all of them,
so that the rest of a damaged page can be read. Neither is a consistent database.

The format is that of https://www.sqlite.org/fileformat2.html#the_write_ahead_log: a header of 32
bytes, then frames with a header of 24 bytes and a page each. A frame's checksum continues that of
the previous frame, so each can be checked alone, with the checksum that the previous one states.
"""

from __future__ import annotations

import heapq
import logging
import shutil
import sqlite3
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_service.errors import BatchLost, StorageFailed
from liverank_service.problems import encode_problem, problem_of
from liverank_service.storage import layout
from liverank_service.storage.checkpoint import Checkpoint
from liverank_service.storage.files import DIRECTORY_MODE, storage_errors, sync_directory
from liverank_service.storage.journal import Head, head_path, read_head
from liverank_service.storage.layout import Record, State

log = logging.getLogger("liverank.salvage")

_HEADER, _FRAME_HEADER = 32, 24
_BIG_ENDIAN_MAGIC = 0x377F0683
_FRAMES_AT_ONCE = 4096
"""Frames checked at a time."""


@dataclass(frozen=True, slots=True)
class Frames:
    """The frames of a log since it was last restarted.

    pages     uint32 per frame: the number of its page, from 1
    intact    bool per frame: its checksum matches
    contents  uint8, frames x bytes of a page
    """

    pages: NDArray[np.uint32]
    intact: NDArray[np.bool_]
    contents: NDArray[np.uint8]


def write_images(database: Path, directory: Path) -> list[Path]:
    """Writes the images of a database into `directory`: intact frames first. None without a log.

    Raises StorageFailed.
    """
    log = database.with_name(f"{database.name}-wal")
    images = []
    with storage_errors(log):
        if log.exists() and (frames := read_frames(log, _page_size(database))) is not None:
            largest = max(database.stat().st_size // frames.contents.shape[1], len(frames.pages))
            usable = (frames.pages >= 1) & (frames.pages <= 2 * largest)
            for name, chosen in (("intact", frames.intact & usable), ("all", usable)):
                images.append(directory / f"{name}-frames.db")
                _write_image(database, images[-1], frames, chosen)
    return images


def _write_image(database: Path, target: Path, frames: Frames, chosen: NDArray[np.bool_]) -> None:
    shutil.copyfile(database, target)
    newest = {int(frames.pages[frame]): frame for frame in np.flatnonzero(chosen)}
    size = frames.contents.shape[1]
    with open(target, "r+b") as file:
        for page, frame in newest.items():
            file.seek((page - 1) * size)
            file.write(frames.contents[frame].tobytes())


def _page_size(database: Path) -> int:
    with open(database, "rb") as file:
        size = int.from_bytes(file.read(18)[16:18], "big")
    return 65_536 if size == 1 else size


def read_frames(log: Path, page_size: int) -> Frames | None:
    """The frames of the log, or None if it has none. Raises OSError."""
    frame_size = _FRAME_HEADER + page_size
    count = (log.stat().st_size - _HEADER) // frame_size
    if page_size < 512 or count < 1:
        return None
    content = np.memmap(log, np.uint8, "r")
    header = content[:_HEADER].view(">u4")
    rows = content[_HEADER : _HEADER + count * frame_size].reshape(count, frame_size)
    fields = rows[:, :_FRAME_HEADER].copy().view(">u4").astype(np.uint32)
    words: Any = np.dtype(">u4" if header[0] == _BIG_ENDIAN_MAGIC else "<u4")
    begin = _checksums(content[:24].view(words)[None, :], np.zeros((1, 2), np.uint32))
    header_is_intact = bool((begin == header[6:]).all())
    salts = header[4:6] if header_is_intact else fields[0, 2:4]
    # frames with other salts are left from before the log was restarted
    current = np.flatnonzero((fields[:, 2:4] == salts).all(axis=1))
    if not len(current):
        return None
    count = int(current[-1]) + 1
    rows, fields = rows[:count], fields[:count]
    previous = np.concatenate([header[6:].astype(np.uint32)[None, :], fields[:-1, 4:]])
    intact = np.empty(count, np.bool_)
    for first in range(0, count, _FRAMES_AT_ONCE):
        part = slice(first, first + _FRAMES_AT_ONCE)
        summed = np.concatenate([rows[part, :8], rows[part, _FRAME_HEADER:]], axis=1)
        sums = _checksums(summed.view(words), previous[part])
        intact[part] = (sums == fields[part, 4:]).all(axis=1)
    return Frames(fields[:, 0], intact, rows[:, _FRAME_HEADER:])


def _checksums(words: NDArray[Any], previous: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The checksum of each row of words, continued from the previous one of each."""
    columns = np.ascontiguousarray(words.T, np.uint32)
    first, second = previous[:, 0].copy(), previous[:, 1].copy()
    for place in range(0, len(columns), 2):
        first += columns[place] + second
        second += columns[place + 1] + first
    return np.stack([first, second], axis=1)


_ROWS_AT_ONCE = 1000


@contextmanager
def read_only(path: Path, **parameters: int) -> Iterator[sqlite3.Connection]:
    """A connection that leaves the database and its write-ahead log unchanged, also when it is
    closed. Raises sqlite3.Error.
    """
    query = "&".join(["mode=ro", *(f"{name}={value}" for name, value in parameters.items())])
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{query}", uri=True)) as connection:
        yield connection


class ReadableRows:
    """views: connections to the damaged database, SQLite's own view of it first."""

    def __init__(self, path: Path, views: Sequence[sqlite3.Connection]) -> None:
        self._path = path
        self._views = views

    @classmethod
    @contextmanager
    def of(cls, path: Path, images: Sequence[Path]) -> Iterator[ReadableRows]:
        """The rows of the journal at `path` and of images of it."""
        with ExitStack() as stack:
            views = [stack.enter_context(read_only(path))]
            views += [stack.enter_context(read_only(image, immutable=1)) for image in images]
            yield cls(path, views)

    def state(self) -> State | None:
        """The newest readable row of `state`."""
        found = []
        for view in self._views:
            try:
                found.append(layout.read_state(view, self._path))
            except (sqlite3.Error, StorageFailed):
                continue
        return max(found, key=lambda state: (state.version, state.retired), default=None)

    def newest(self) -> int | None:
        """The newest batch in SQLite's own view; None if that is unreadable."""
        try:
            (newest,) = self._views[0].execute("SELECT max(version) FROM batches").fetchone()
        except sqlite3.Error:
            return None
        return newest if isinstance(newest, int) else None

    def batches(
        self, chains: Mapping[int, bytes], last: int
    ) -> Iterator[tuple[int, float, Record]]:
        """The intact batches up to `last`. A row is verified with the previous row's chain, and one
        whose own chain is damaged with that of the row behind it.

        chains  known ones by version
        """
        before = -1
        known: dict[bytes, list[tuple[int, float, Record]]] = {}  # what the chain after it proves
        for version, found in groupby(self._merged("batches", last), itemgetter(0)):
            rows = list(found)
            # the row of one view may be intact, and its chain in another one
            said = {chain for *_, chain in rows if isinstance(chain, bytes)}
            said |= {chains[version]} if version in chains else set()
            previous = known if before == version - 1 else {}
            if version - 1 in chains:
                previous.setdefault(chains[version - 1], [])
            before, known = version, {}
            proven: list[tuple[int, float, Record]] = []
            for _, committed_at, *fields, _ in rows:
                row = (version, committed_at, Record(*fields))
                for chain, unproven in previous.items():
                    link = _link(chain, *row)
                    if link is not None and link in said:
                        proven = proven or [*unproven, row]
                        known[link] = []
                    elif link is not None and not unproven:
                        known.setdefault(link, [row])
            for chain in said:
                known.setdefault(chain, [])
            yield from proven

    def checked(self, table: str, last: int) -> dict[int, tuple[Any, ...]]:
        """The rows of `requests` or `outcomes` up to `last` with the right checksum, by version."""
        rows: dict[int, tuple[Any, ...]] = {}
        for row in self._merged(table, last):
            if layout.is_intact(row):
                rows.setdefault(row[0], row[:-1])
        return rows

    def is_complete(self, table: str, last: int) -> bool:
        """Whether every row of the table up to `last` can be read in SQLite's own view."""
        query = f"SELECT {layout.COLUMNS[table]} FROM {table} WHERE version <= ?"
        try:
            rows = self._views[0].execute(query, (last,)).fetchall()
        except (sqlite3.Error, UnicodeDecodeError):
            return False
        return all(map(layout.is_intact, rows))

    def _merged(self, table: str, last: int) -> Iterator[tuple[Any, ...]]:
        """The rows of all views, by version."""
        views = (_readable(view, table, last) for view in self._views)
        return heapq.merge(*views, key=itemgetter(0))


def _link(chain: bytes, version: int, committed_at: Any, record: Record) -> bytes | None:
    try:
        return layout.link(chain, version, committed_at, record)
    except (AttributeError, TypeError, struct.error):  # a column has another type
        return None


def _readable(view: sqlite3.Connection, table: str, last: int) -> Iterator[tuple[Any, ...]]:
    """The rows of versions up to `last` that SQLite can still read, ascending."""
    columns = layout.COLUMNS[table]
    query = f"SELECT {columns} FROM {table} WHERE version > ? AND version <= ? ORDER BY version"
    for low in range(-1, last, _ROWS_AT_ONCE):
        high = min(low + _ROWS_AT_ONCE, last)
        try:
            yield from view.execute(query, (low, high)).fetchall()
        except (sqlite3.Error, UnicodeDecodeError):
            for version in range(low + 1, high + 1):
                try:
                    yield from view.execute(query, (version - 1, version)).fetchall()
                except (sqlite3.Error, UnicodeDecodeError):
                    continue


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
    if head is not None:
        chains.setdefault(*head)
    if state is not None:
        chains |= {retired: state.retired_chain, state.version: state.chain}
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
        for version, status, body in rows.checked("outcomes", end).values():
            is_stale = status == "ranked" and lost and version > lost[0]
            if version <= start or (version in kept and not is_stale):
                layout.insert_outcomes(new, [(version, status, body)])
        for version in lost:
            problem = encode_problem(problem_of(BatchLost(version, fault)))
            layout.insert_outcomes(new, [(version, "lost", problem)])
        revision = _revision(state, checkpoint, end)
        layout.write_state(new, State(end, newest, start, chain, revision))
        new.execute("COMMIT")
    Head.create(target, end, newest)
    return _Loss(
        lost,
        [
            version
            for version in range(retired + 1, start + 1)
            if version not in found and version not in requests
        ],
        retired > 0 and not rows.is_complete("requests", retired),
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
        for version, key, body_hash, retired_at in rows.checked("requests", start).values()
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
