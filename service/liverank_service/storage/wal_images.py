"""A database with a damaged write-ahead log, with the part of the log that SQLite ignores.

SQLite applies a log up to the first damaged frame. The images here also have the frames behind it:
one image has only intact frames, the other one all of them, so that the rest of a damaged page can
be read. Neither is a consistent database: rows in them must prove themselves.

The format is that of https://www.sqlite.org/fileformat2.html#the_write_ahead_log: a header of 32
bytes, then frames with a header of 24 bytes and a page each. A frame's checksum continues that of
the previous frame, so each can be checked alone, with the checksum that the previous one states.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_service.storage.files import storage_errors

_HEADER, _FRAME_HEADER = 32, 24
_BIG_ENDIAN_MAGIC = 0x377F0683
_CHUNK = 4096
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
    for first in range(0, count, _CHUNK):
        part = slice(first, first + _CHUNK)
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
