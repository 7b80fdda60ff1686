"""Ranks that the shards of one machine write where their caller reads them, without a copy.

The memory has no name (memfd_create): a process of the same user and machine opens it through
/proc, and it goes with the last that has mapped it, however that ends. To make and map new memory
takes longer than to write it, so it is used again when nobody has the ranks that are in it.
"""

from __future__ import annotations

import mmap
import os
import secrets
from typing import NamedTuple
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

_TOKEN_BYTES = 64
"""Before the values, which are aligned as a line of a cache is."""

_SPARE_PART = 16
"""Of the memory: what is left for more ranks."""

_MAPPED = 2
"""How many a shard keeps mapped: the ranks that are published, and those that come next."""


class Place(NamedTuple):
    """Where a process that is told may write.

    path   of the memory, as this machine's other processes see it
    token  what it begins with: the path may be another file elsewhere
    """

    path: str
    token: bytes


class SharedValues:
    """Memory for float64[length].

    place  None where other processes cannot write there: elsewhere than on Linux
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self.place: Place | None = None
        if not hasattr(os, "memfd_create"):
            return
        token = secrets.token_bytes(_TOKEN_BYTES)
        file = os.memfd_create("liverank-ranks", os.MFD_CLOEXEC)
        finalize(self, os.close, file)
        os.ftruncate(file, _TOKEN_BYTES + 8 * length)
        self._memory = mmap.mmap(file, 0)
        self._memory[:_TOKEN_BYTES] = token
        self.place = Place(f"/proc/{os.getpid()}/fd/{file}", token)

    def taken(self, length: int) -> NDArray[np.float64]:
        """float64[length]: the memory, which lasts as long as this array."""
        if self.place is None:
            return np.empty(length)
        return np.frombuffer(self._memory, np.float64, length, _TOKEN_BYTES)


class ReusedValues:
    """Memory for ranks, of which there are some or none at a time."""

    def __init__(self) -> None:
        self._spare: SharedValues | None = None

    def next(self, length: int) -> SharedValues:
        """Memory for at least so many. Nobody else gets it before `filled` is called."""
        spare, self._spare = self._spare, None
        if spare is not None and spare.length >= length:
            return spare
        # with room, since most batches of a graph that grows add vertices
        return SharedValues(length + length // _SPARE_PART)

    def filled(self, shared: SharedValues, length: int) -> NDArray[np.float64]:
        """See SharedValues.taken. The memory is for others when the array is no more."""
        values = shared.taken(length)
        finalize(values, self._give_back, shared).atexit = False
        return values

    def _give_back(self, shared: SharedValues) -> None:
        self._spare = shared


class MappedPlaces:
    """Where a shard writes to."""

    def __init__(self) -> None:
        self._mapped: dict[Place, mmap.mmap] = {}

    def part(self, place: Place | None, first: int, length: int) -> NDArray[np.float64] | None:
        """float64[length], to be written: the values from `first` on. None if this process does not
        reach them.
        """
        if place is None:
            return None
        if (memory := self._mapped.get(place)) is None:
            if (memory := _mapped(place)) is None:
                return None
            while len(self._mapped) >= _MAPPED:
                del self._mapped[next(iter(self._mapped))]
            self._mapped[place] = memory
        return np.frombuffer(memory, np.float64, length, _TOKEN_BYTES + 8 * first)


def _mapped(place: Place) -> mmap.mmap | None:
    """The memory, if this process reaches it."""
    try:
        file = os.open(place.path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        same = os.pread(file, _TOKEN_BYTES, 0) == place.token
        return mmap.mmap(file, 0) if same else None
    except OSError:
        return None
    finally:
        os.close(file)
