"""A checkpoint: a directory of arrays from which a graph is restored with its ranks.

    checkpoints/<version>-<revision>/
        <array>.bin      the numbers of one array, little-endian
        manifest.json    first line: SHA-256 of all that follows; then JSON: format, version,
                         revision, chain of the journal at that version, numbers, and for each array
                         its dtype (as of NumPy), length in elements and SHA-256 of the file

What the arrays and the numbers are is said in liverank_service.pipeline.checkpointer.

A graph in shards has the same files. Its lists arrive in pieces, which are written one after the
other, so that they need not fit into the memory of the server: see liverank_gpu.sharded.engine.

It is written under another name, synced and renamed, so that it is complete or absent; the newest
*valid* one counts. A damaged one is renamed to ``damaged-<name>``, and logged: one with a file that
is missing, or that was read to its end and has a wrong size or checksum. Any other error says
nothing about the content, and leaves all names unchanged.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import mmap
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_service.errors import FileDamaged, StorageFailed
from liverank_service.storage.files import (
    DIRECTORY_MODE,
    rename_synced,
    storage_errors,
    sync_directory,
    write_synced,
)

log = logging.getLogger("liverank.checkpoint")

DIRECTORY = "checkpoints"
FORMAT = 4
_FORMATS = (1, 2, 3, FORMAT)
"""Those that can be read. Format 3 had no positions of sources, format 2 also no free ids and no
times, format 1 also no weights and no sets.
"""
RETAINED = 2

_MANIFEST = "manifest.json"
_WRITING = ".writing-"
_DAMAGED = "damaged-"
_NAME = re.compile(r"(\d+)-(\d+)")
_RENAMED = re.compile(r"damaged-(\d+)-(\d+)(\.\d+)?")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A graph at one version.

    version   every batch up to it is in the arrays, or was rejected
    revision  of the ranks
    chain     of the journal at that version
    numbers   everything that is not an array, as JSON
    arrays    host arrays by name; those of a checkpoint on disk are mapped from its files, and
              writing to them changes memory only
    parts     further arrays, each in one or more consecutive parts, which are read once, when it is
              written. Empty for a checkpoint on disk
    """

    version: int
    revision: int
    chain: bytes
    numbers: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    parts: Mapping[str, Iterable[NDArray[Any]]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.version}-{self.revision}"

    @property
    def nbytes(self) -> int:
        """Bytes of `arrays`."""
        return sum(int(array.nbytes) for array in self.arrays.values())


def write(directory: Path, checkpoint: Checkpoint) -> int:
    """Writes the checkpoint below `directory`; returns the bytes of all arrays.

    Raises StorageFailed, and any error of reading the parts; it then does not exist.
    """
    target = directory / checkpoint.name
    temporary = directory / f"{_WRITING}{checkpoint.name}"
    with storage_errors(target):
        directory.mkdir(DIRECTORY_MODE, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        if target.exists():  # it was refused, which could not be undone
            target.rename(temporary)
            shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir(DIRECTORY_MODE)
            whole = {name: [array] for name, array in checkpoint.arrays.items()}
            written = {
                name: _WrittenArray(temporary / f"{name}.bin", parts)
                for name, parts in (whole | dict(checkpoint.parts)).items()
            }
            arrays = {name: array.stated for name, array in written.items()}
            write_synced(temporary / _MANIFEST, [_manifest(checkpoint, arrays)])
            sync_directory(temporary)
            sync_directory(directory.parent)
            rename_synced(temporary, target)
        except BaseException:
            # its files would take space that the next attempt needs
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    return sum(array.nbytes for array in written.values())


class _WrittenArray:
    """An array on disk, from its consecutive parts.

    stated  what the manifest has of it
    """

    def __init__(self, path: Path, parts: Iterable[NDArray[Any]]) -> None:
        self.nbytes = self._length = 0
        self._digest, self._dtype = hashlib.sha256(), np.dtype(np.uint8)
        write_synced(path, map(self._content, parts))

    def _content(self, part: NDArray[Any]) -> memoryview:
        content = np.ascontiguousarray(part).view(np.uint8).data
        self._digest.update(content)
        self._dtype, self._length = part.dtype, self._length + len(part)
        self.nbytes += part.nbytes
        return content

    @property
    def stated(self) -> dict[str, Any]:
        return {
            "dtype": self._dtype.newbyteorder("<").str,
            "length": self._length,
            "sha256": self._digest.hexdigest(),
        }


def _manifest(checkpoint: Checkpoint, arrays: dict[str, Any]) -> bytes:
    document = {
        "format": FORMAT,
        "version": checkpoint.version,
        "revision": checkpoint.revision,
        "chain": checkpoint.chain.hex(),
        "numbers": checkpoint.numbers,
        "arrays": arrays,
    }
    content = json.dumps(document, indent=1).encode()
    return hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def read(path: Path) -> Checkpoint:
    """The checkpoint in `path`, every byte of it verified.

    Raises FileDamaged, which names the missing or damaged file, and StorageFailed if a file cannot
    be read or has another format.
    """
    manifest = path / _MANIFEST
    with _reading(manifest):
        stated, _, content = manifest.read_bytes().partition(b"\n")
    if hashlib.sha256(content).hexdigest().encode() != stated:
        raise FileDamaged(manifest, "is damaged: its checksum does not match")
    document = json.loads(content)
    if document["format"] not in _FORMATS:
        raise StorageFailed(manifest, f"has format {document['format']}, expected 1 to {FORMAT}")
    files = {path / f"{name}.bin": stated for name, stated in document["arrays"].items()}
    with ThreadPoolExecutor(2) as readers:
        arrays = readers.map(_mapped, files, files.values())
        return Checkpoint(
            version=document["version"],
            revision=document["revision"],
            chain=bytes.fromhex(document["chain"]),
            numbers=document["numbers"],
            arrays=dict(zip(document["arrays"], arrays, strict=True)),
        )


def _mapped(path: Path, stated: dict[str, Any]) -> NDArray[Any]:
    """The array in the file, mapped. Raises as `read`."""
    dtype = np.dtype(stated["dtype"])
    with _reading(path), open(path, "rb") as file:
        size = file.seek(0, 2)
        expected = stated["length"] * dtype.itemsize
        if size != expected:
            raise FileDamaged(path, f"has {size:,} bytes, expected {expected:,}")
        if size == 0:  # an empty file cannot be mapped
            return np.empty(0, dtype)
        file.seek(0)
        # read, not mapped: an error of the disk in a mapping would end the process
        if hashlib.file_digest(file, "sha256").hexdigest() != stated["sha256"]:
            raise FileDamaged(path, "is damaged: its checksum does not match")
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    return np.frombuffer(content, dtype)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raises FileDamaged if the file is missing, StorageFailed if it cannot be read."""
    with storage_errors(path):
        try:
            yield
        except FileNotFoundError as error:
            raise FileDamaged(path, error.strerror) from error


def stored(directory: Path) -> list[Path]:
    """The checkpoints below `directory`, newest first, valid or not."""
    return [path for _, _, path in _named(directory, _NAME)]


def newest_bytes(graph: Path) -> int:
    """Bytes of the files of the newest checkpoint of the graph in a directory; 0 without one."""
    for path in stored(graph / DIRECTORY)[:1]:
        with storage_errors(path):
            return sum(file.stat().st_size for file in path.iterdir())
    return 0


def _named(directory: Path, pattern: re.Pattern[str]) -> list[tuple[int, int, Path]]:
    """Version, revision and path of the checkpoints with such a name, newest first."""
    names = [
        (int(match[1]), int(match[2]), path)
        for path in _entries(directory)
        if (match := pattern.fullmatch(path.name))
    ]
    return sorted(names, reverse=True)


def _entries(directory: Path) -> Iterator[Path]:
    # The first checkpoint creates the directory.
    with storage_errors(directory), contextlib.suppress(FileNotFoundError):
        yield from directory.iterdir()


def newest_valid(directory: Path, needed: int = 0) -> Checkpoint | None:
    """The newest valid checkpoint, or None. Damaged ones are renamed, and logged.

    needed  the version that it must reach for the graph to be recovered. If it does not, those that
            were renamed before are read again, and a valid one is taken back

    Raises StorageFailed if a checkpoint can be neither used nor proven to be damaged; it is then
    unchanged.
    """
    found = None
    for path in stored(directory):
        try:
            found = read(path)
            break
        except FileDamaged as error:
            renamed = _rename(path, f"{_DAMAGED}{path.name}")
            log.error("%s; the checkpoint was renamed to %s", error, renamed.name)
    reached = found.version if found else -1
    if reached < max(needed, 0):
        return _taken_back(directory, reached) or found
    return found


def _taken_back(directory: Path, reached: int) -> Checkpoint | None:
    """The newest checkpoint after version `reached` that was renamed, but is valid."""
    for version, _, path in _named(directory, _RENAMED):
        if version <= reached:
            break
        try:
            found = read(path)
        except FileDamaged:
            continue
        renamed = _rename(path, found.name)
        log.warning("%s: is not damaged; the checkpoint was renamed to %s", path, renamed.name)
        return found
    return None


def _rename(path: Path, name: str) -> Path:
    """Renames a checkpoint to `name`, or to a name with a number behind it if that is in use."""
    renamed, number = path.with_name(name), 2
    while renamed.exists():
        renamed, number = path.with_name(f"{name}.{number}"), number + 1
    with storage_errors(path):
        path.rename(renamed)
        sync_directory(path.parent)
    return renamed


def remove_old(directory: Path) -> None:
    """Removes all checkpoints but the newest RETAINED, and incomplete ones."""
    with storage_errors(directory):
        for path in stored(directory)[RETAINED:]:
            # renamed first: a partly removed one must not look damaged
            doomed = path.with_name(f"{_WRITING}{path.name}")
            shutil.rmtree(doomed, ignore_errors=True)
            path.rename(doomed)
        for path in _entries(directory):
            if path.name.startswith(_WRITING):
                shutil.rmtree(path)
