"""Files for intermediate data. They have no name, so none is left behind, however the process ends.

What they hold is read and written by position, so any thread may use them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


class ScratchFile:
    """A file without a name, in a folder with room for it."""

    def __init__(self, folder: Path | None = None) -> None:
        """folder  where the file is; None for the system's folder of temporary files

        Raises OSError.
        """
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115

    def write(self, place: int, array: NDArray[Any]) -> None:
        """Writes a contiguous array at `place`, in items of its dtype. Raises OSError."""
        if array.size:
            offset, rest = place * array.itemsize, array.data.cast("B")
            while rest:
                written = os.pwrite(self._file.fileno(), rest, offset)
                offset, rest = offset + written, rest[written:]

    def read(self, place: int, into: NDArray[Any]) -> None:
        """Fills a contiguous array from `place` on, in items of its dtype. Raises OSError."""
        if into.size:
            offset, rest = place * into.itemsize, into.data.cast("B")
            while rest:
                count = os.preadv(self._file.fileno(), [rest], offset)
                if count == 0:
                    raise OSError(f"expected {len(rest):,} bytes more in a scratch file")
                offset, rest = offset + count, rest[count:]

    def mapped(self, count: int, dtype: type[np.generic]) -> NDArray[Any]:
        """The first items, dtype[count], to be read: an array in memory that the kernel frees when
        it needs it, and that outlives `close`. Raises OSError.
        """
        if count == 0:
            return np.empty(0, dtype)  # a map has one byte at least
        return np.memmap(self._file, dtype, "r", shape=count)

    def drop_cache(self) -> None:
        """Has the kernel forget what it has cached of the file: for measurements."""
        os.fsync(self._file.fileno())
        os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Frees the space on the disk, that of arrays that are mapped with these."""
        self._file.close()


class ScratchColumns:
    """Columns of equal length, each in a file of its own: edges, and their weights if they have
    any.
    """

    def __init__(self, count: int, folder: Path | None = None) -> None:
        """count: of the columns. Raises OSError."""
        self._files = [ScratchFile(folder) for _ in range(count)]

    def beside(self, others: ScratchColumns) -> ScratchColumns:
        """These columns and others, in the same files."""
        both = copy(self)
        both._files = [*self._files, *others._files]
        return both

    def write(self, place: int, *columns: NDArray[Any]) -> None:
        """Writes a part of every column at `place`, in items. Raises OSError."""
        for file, column in zip(self._files, columns, strict=True):
            file.write(place, column)

    def write_by_bucket(
        self,
        ends: NDArray[np.int64],
        begins: NDArray[np.int64],
        columns: Sequence[NDArray[Any]],
    ) -> None:
        """Writes each bucket of columns sorted by bucket behind what there is of it.

        ends    int64[b], where this is of each bucket, in items; moved on
        begins  int64[b + 1], where each bucket begins in the columns

        Raises OSError.
        """
        for bucket in np.flatnonzero(np.diff(begins)).tolist():
            first, last = begins[bucket : bucket + 2].tolist()
            self.write(int(ends[bucket]), *(column[first:last] for column in columns))
            ends[bucket] += last - first

    def read(self, place: int, *into: NDArray[Any]) -> None:
        """Fills arrays, one for each of the first columns, from `place` on, in items. Raises
        OSError.
        """
        for file, column in zip(self._files[: len(into)], into, strict=True):
            file.read(place, column)

    def mapped(self, count: int, *dtypes: type[np.generic]) -> tuple[NDArray[Any], ...]:
        """See ScratchFile."""
        files = zip(self._files, dtypes, strict=True)
        return tuple(file.mapped(count, dtype) for file, dtype in files)

    def drop_cache(self) -> None:
        """See ScratchFile."""
        for file in self._files:
            file.drop_cache()

    def close(self) -> None:
        """Frees the space on the disk."""
        for file in self._files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
