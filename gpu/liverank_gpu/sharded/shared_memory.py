"""Ranks that the shards of one machine write where their caller reads them, without a copy.

The memory has no name (memfd_create): a process of the same user and machine opens it through
/proc, and it goes with the last that has mapped it, however that ends.
"""

from __future__ import annotations

import mmap
import os
import secrets
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_TOKEN_BYTES = 64
"""Before the values, which are aligned as a line of a cache is."""


class Place(NamedTuple):
    """Where a process that is told may write.

    path   of the memory, as this machine's other processes see it
    token  what it begins with: the path may be another file elsewhere
    """

    path: str
    token: bytes


class SharedValues:
    """Memory for float64[n].

    place  None where other processes cannot write there: elsewhere than on Linux
    """

    def __init__(self, length: int) -> None:
        self.place: Place | None = None
        if not hasattr(os, "memfd_create"):
            return
        token = secrets.token_bytes(_TOKEN_BYTES)
        self._file = os.memfd_create("liverank-ranks", os.MFD_CLOEXEC)
        os.ftruncate(self._file, _TOKEN_BYTES + 8 * length)
        self._memory = mmap.mmap(self._file, 0)
        self._memory[:_TOKEN_BYTES] = token
        self.place = Place(f"/proc/{os.getpid()}/fd/{self._file}", token)

    def taken(self, length: int) -> NDArray[np.float64]:
        """float64[length]: the memory, which lasts as long as this array."""
        if self.place is None:
            return np.empty(length)
        return np.frombuffer(self._memory, np.float64, length, _TOKEN_BYTES)

    def close(self) -> None:
        """Nobody writes any more."""
        if self.place is not None:
            os.close(self._file)


def write_to(place: Place | None, values: NDArray[np.float64], first: int, step: int) -> bool:
    """Writes values, float64[k], to the places first, first + step, …. Whether this process reaches
    them.
    """
    if place is None:
        return False
    try:
        file = os.open(place.path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if os.pread(file, _TOKEN_BYTES, 0) != place.token:
            return False
        with mmap.mmap(file, 0) as memory:
            shared = np.frombuffer(memory, np.float64, offset=_TOKEN_BYTES)
            shared[first : first + step * len(values) : step] = values
            del shared
        return True
    except OSError:
        return False
    finally:
        os.close(file)
