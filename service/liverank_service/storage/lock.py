"""The lock of a data directory: one process at a time uses it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from liverank_service.errors import StorageFailed
from liverank_service.storage.files import FILE_MODE


def take_lock(data: Path) -> int:
    """Locks the directory until the returned descriptor is closed. Raises StorageFailed."""
    try:
        descriptor = os.open(data / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        raise StorageFailed(data, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise StorageFailed(data, "another server uses this data directory") from error
        raise StorageFailed(data, error) from error
    return descriptor


@contextmanager
def locked(data: Path) -> Iterator[None]:
    """Holds the lock. Raises StorageFailed."""
    descriptor = take_lock(data)
    try:
        yield
    finally:
        os.close(descriptor)
