"""Which batch was being replayed when the process ended, and how often.

A process that is killed for its memory cannot write anything any more, so the file beside the
journal is written before a batch that may need too much. It is not synced: it has to survive the
process, not the machine.

    "LVRM", version (uint64), count (uint64), CRC-32 of these (uint32); little-endian
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from liverank_service.storage.files import storage_errors

_MAGIC = b"LVRM"
_FIELDS = struct.Struct("<4sQQ")
_CHECKSUM = struct.Struct("<I")


class ReplayMark:
    """The mark of one journal."""

    def __init__(self, journal: Path) -> None:
        """Reads the file. Raises StorageFailed."""
        self._path = journal.with_suffix(".replaying")
        self._version, self._count = self._read()

    def deaths(self, version: int) -> int:
        """How often the process ended while this batch was replayed."""
        return self._count if version == self._version else 0

    def begin(self, version: int) -> None:
        """Notes that a replay of this batch begins. Raises StorageFailed."""
        self._count = self.deaths(version) + 1
        self._version = version
        fields = _FIELDS.pack(_MAGIC, self._version, self._count)
        with storage_errors(self._path):
            self._path.write_bytes(fields + _CHECKSUM.pack(zlib.crc32(fields)))

    def end(self) -> None:
        """Notes that the replay is complete. Raises StorageFailed."""
        if self._version:
            self._version = self._count = 0
            with storage_errors(self._path):
                self._path.unlink(missing_ok=True)

    def _read(self) -> tuple[int, int]:
        with storage_errors(self._path):
            try:
                content = self._path.read_bytes()
            except FileNotFoundError:
                return 0, 0
        if len(content) == _FIELDS.size + _CHECKSUM.size:
            magic, version, count = _FIELDS.unpack_from(content)
            (stated,) = _CHECKSUM.unpack_from(content, _FIELDS.size)
            if magic == _MAGIC and stated == zlib.crc32(content[: _FIELDS.size]):
                return version, count
        return 0, 0
