"""Files of a data directory. They survive a power loss: written, synced, and renamed into place
with their directory. Those with rows in JSON are validated field by field. One process at a time
uses a data directory, by its lock.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import sqlite3
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from liverank_service.errors import FileDamaged, StorageFailed, StorageFull

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_WRITE_ERRORS = {sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_TRUNCATE}
_PAGE_BYTES = 1 << 16
"""The largest page of SQLite: the most that a write adds to a file."""

DIRECTORY_MODE, FILE_MODE = 0o700, 0o600
"""Only the owner may read a graph."""

SLICE = 8 << 20
"""Bytes that are synced at once: a commit of the journal may have to wait for two of them."""


def storage_failure(path: object, error: OSError | sqlite3.Error) -> StorageFailed:
    """The service's error for an error of the operating system or of SQLite."""
    if isinstance(error, OSError):
        full = error.errno in _NO_SPACE
        reason: object = error.strerror or error
    else:
        code = getattr(error, "sqlite_errorcode", None)
        full = code == sqlite3.SQLITE_FULL
        reason = error
        if code in _WRITE_ERRORS and _is_at_size_limit(path):
            full, reason = True, f"{error}: a file has reached the limit of its size (ulimit -f)"
    return StorageFull(path, reason) if full else StorageFailed(path, reason)


def _is_at_size_limit(path: object) -> bool:
    """Whether the database at `path`, or its write-ahead log, is as long as a file may be, which
    SQLite reports like a failing disk.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit == resource.RLIM_INFINITY:
        return False
    sizes = []
    for name in (str(path), f"{path}-wal"):
        with suppress(OSError):
            sizes.append(os.stat(name).st_size)
    return max(sizes, default=0) + _PAGE_BYTES > limit


_NOT_THE_FILE = {
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
}


def is_damage(error: BaseException | None) -> bool:
    """Whether the content of a file is damaged, as opposed to an error of the disk."""
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
        return code == sqlite3.SQLITE_IOERR_SHORT_READ or code & 0xFF not in _NOT_THE_FILE
    return not isinstance(error, OSError)


@contextmanager
def storage_errors(path: object) -> Iterator[None]:
    """Raises StorageFailed, or StorageFull, for errors with `path`."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise storage_failure(path, error) from error


def read_if_exists(path: Path) -> bytes | None:
    """The content of a file; None if it is missing. Raises StorageFailed if it cannot be read."""
    with storage_errors(path), suppress(FileNotFoundError):
        return path.read_bytes()
    return None


def sync_directory(directory: Path) -> None:
    """Makes a rename in `directory` survive a power loss."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename_synced(source: Path, target: Path) -> None:
    """Renames a file or a directory so that it survives a power loss. `target` must not exist, or
    be an empty directory.

    Raises OSError; the rename is then undone, or whoever tries again would find `target` in use.
    """
    source.rename(target)
    try:
        sync_directory(target.parent)
    except OSError:
        with suppress(OSError):
            target.rename(source)
        raise


def make_directory(directory: Path) -> None:
    """Creates a directory, if there is none, and those above it, for their owner alone.

    Raises OSError.
    """
    if directory.exists() and not directory.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if not directory.exists():
        make_directory(directory.parent)
        directory.mkdir(DIRECTORY_MODE, exist_ok=True)
        sync_directory(directory.parent)


def write_synced(path: Path, parts: Iterable[memoryview | bytes]) -> None:
    """Writes a new file from one or more parts, in slices. Each is synced while the next one is
    made and written, so that the disk always has work, and no more than two are not synced.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    with open(descriptor, "wb", buffering=0) as file, ThreadPoolExecutor(1) as beside:
        syncing: Future[None] | None = None
        for number, rest in enumerate(_slices(parts)):
            if number:
                if syncing is not None:
                    syncing.result()
                syncing = beside.submit(os.fsync, file.fileno())
            while rest:
                rest = rest[file.write(rest) :]
        if syncing is not None:
            syncing.result()
        os.fsync(file.fileno())


def _slices(parts: Iterable[memoryview | bytes]) -> Iterator[memoryview]:
    for part in parts:
        view = memoryview(part).cast("B")
        for first in range(0, len(view), SLICE):
            yield view[first : first + SLICE]


def replace_file(path: Path, content: bytes) -> None:
    """Replaces or creates the file atomically. Raises StorageFailed; it is then unchanged."""
    temporary, before = path.with_suffix(".writing"), path.with_suffix(".before")
    with storage_errors(path):
        for left in (temporary, before):
            left.unlink(missing_ok=True)
        write_synced(temporary, [content])
        if exists := path.exists():
            try:
                before.hardlink_to(path)
            except OSError:  # a file system without links
                write_synced(before, [path.read_bytes()])
        temporary.rename(path)
        try:
            sync_directory(path.parent)
        except OSError:
            # what is refused must not come back with the next start; nothing is written for that,
            # which a loss of power could take after the rename
            with suppress(OSError):
                if exists:
                    before.rename(path)
                else:
                    path.unlink()
            raise
    with suppress(OSError):
        before.unlink(missing_ok=True)


@contextmanager
def locked(data: Path) -> Iterator[None]:
    """Holds the lock of a data directory. Raises StorageFailed."""
    try:
        descriptor = os.open(data / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        raise StorageFailed(data, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StorageFailed(data, "another server uses this data directory") from error
        except OSError as error:
            raise StorageFailed(data, error) from error
        yield
    finally:
        os.close(descriptor)


class Stored(BaseModel):
    """What is in a file, or in a part of one. Nothing else is read, nor what only resembles it."""

    model_config = ConfigDict(extra="forbid", strict=True)


Rows = TypeVar("Rows")


class RowsFile(Generic[Rows]):
    """Files with rows of one kind, in JSON: {"format": …, member: rows}."""

    def __init__(self, what: str, member: str, rows: type[Rows], *formats: int) -> None:
        """what     the file is, for messages
        rows     of models
        formats  that can be read; the last one is written
        """
        self._what, self._member, self._formats = what, member, formats
        members: Any = {"format": (int, ...), member: (rows, ...)}
        self._model: type[Stored] = create_model(member, __base__=Stored, **members)

    def read(self, path: Path) -> Rows | None:
        """The rows of a file, each member validated; None if it is missing.

        Raises FileDamaged, which names the first wrong field, and StorageFailed if the file cannot
        be read or has another format.
        """
        if (content := read_if_exists(path)) is None:
            return None
        what, formats = self._what, self._formats
        try:
            found = json.loads(content)["format"]
        except (ValueError, TypeError, KeyError) as error:
            raise FileDamaged(path, f"is not {what}: {error!r}") from error
        if isinstance(found, int) and found not in formats:
            expected = " or ".join(map(str, formats))
            raise StorageFailed(path, f"has format {found}, expected {expected}")
        try:
            rows: Rows = getattr(self._model.model_validate_json(content), self._member)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = "".join(
                f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]
            ).removeprefix(".")
            given = repr(first["input"])[:100]
            raise FileDamaged(path, f"is not {what}: {place} {given}: {first['msg']}") from error
        return rows

    def write(self, path: Path, rows: object, indent: int | None = None) -> None:
        """Replaces the file. Raises StorageFailed; it is then unchanged."""
        document = {"format": self._formats[-1], self._member: rows}
        replace_file(path, json.dumps(document, indent=indent).encode())
