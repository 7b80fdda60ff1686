"""The head of a journal: a small file beside it with the newest version.

SQLite silently ignores the part of a write-ahead log that follows damage. The head, written after
each commit, exposes a journal that ends too early. Its two slots are written alternately, so that
one is always valid. It is not synced, because the commit before it is: after a power loss it may be
behind the journal, never ahead of it.

    slot: "LVHD", version (uint64), chain (32 bytes), CRC-32 of these (uint32); little-endian
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

from liverank_service.storage.files import FILE_MODE, storage_errors

_MAGIC = b"LVHD"
_FIELDS = struct.Struct("<4sQ32s")
_CHECKSUM = struct.Struct("<I")
_SLOT = 512
"""Bytes between the slots: one sector each, which disks write atomically."""


class Head:
    """The head file of one journal, open for writing."""

    def __init__(self, path: Path) -> None:
        """Opens or creates the file. Raises OSError."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        self._turn = 0

    def write(self, version: int, chain: bytes) -> None:
        """Raises OSError."""
        fields = _FIELDS.pack(_MAGIC, version, chain)
        slot = fields + _CHECKSUM.pack(zlib.crc32(fields))
        os.pwrite(self._descriptor, slot, self._turn * _SLOT)
        self._turn = 1 - self._turn

    def sync(self) -> None:
        """Makes the file survive a power loss. Raises OSError."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


def read_head(path: Path) -> tuple[int, bytes] | None:
    """Version and chain of the newest valid slot; None without one, or without the file.

    Raises StorageFailed if the file cannot be read.
    """
    with storage_errors(path):
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
    slots = []
    for place in (0, _SLOT):
        slot = content[place : place + _FIELDS.size + _CHECKSUM.size]
        if len(slot) == _FIELDS.size + _CHECKSUM.size:
            magic, version, chain = _FIELDS.unpack_from(slot)
            (stated,) = _CHECKSUM.unpack_from(slot, _FIELDS.size)
            if magic == _MAGIC and stated == zlib.crc32(slot[: _FIELDS.size]):
                slots.append((version, chain))
    return max(slots, default=None)
