"""A checkpoint: a directory of arrays from which a graph is restored with its ranks.

    checkpoints/<version>-<revision>/
        <array>.bin      the numbers of one array, little-endian
        manifest.json    first line: SHA-256 of all that follows; then JSON: format, version,
                         revision, chain of the journal at that version, numbers, and for each array
                         its dtype, length and SHA-256

It is written under another name, synced and renamed, so that it is complete or absent; the newest
*valid* one counts. An invalid one is renamed to ``damaged-<name>``, and logged.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import mmap
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.errors import StorageFailed
from service.storage.files import storage_errors, sync_directory, write_synced

log = logging.getLogger("liverank.checkpoint")

DIRECTORY = "checkpoints"
FORMAT = 1
RETAINED = 2

_MANIFEST = "manifest.json"
_WRITING = ".writing-"
_DAMAGED = "damaged-"
_NAME = re.compile(r"(\d+)-(\d+)")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A graph at one version.

    version   every batch up to it is in the arrays, or was rejected
    revision  of the ranks
    chain     of the journal at that version
    numbers   everything that is not an array, as JSON
    arrays    host arrays by name; those of a checkpoint on disk are mapped from its files, and
              writing to them changes memory only
    """

    version: int
    revision: int
    chain: bytes
    numbers: dict[str, Any]
    arrays: dict[str, NDArray[Any]]

    @property
    def name(self) -> str:
        return f"{self.version}-{self.revision}"

    @property
    def nbytes(self) -> int:
        return sum(int(array.nbytes) for array in self.arrays.values())


def write(directory: Path, checkpoint: Checkpoint) -> None:
    """Writes the checkpoint below `directory`. Raises StorageFailed; it then does not exist."""
    target = directory / checkpoint.name
    temporary = directory / f"{_WRITING}{checkpoint.name}"
    with storage_errors(target):
        directory.mkdir(exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir()
            arrays = {}
            for name, array in checkpoint.arrays.items():
                content = np.ascontiguousarray(array).view(np.uint8).data
                write_synced(temporary / f"{name}.bin", content)
                arrays[name] = {
                    "dtype": array.dtype.newbyteorder("<").str,
                    "length": len(array),
                    "sha256": hashlib.sha256(content).hexdigest(),
                }
            write_synced(temporary / _MANIFEST, _manifest(checkpoint, arrays))
            sync_directory(temporary)
            temporary.rename(target)
            sync_directory(directory)
        except OSError:
            # its files would take space that the next attempt needs
            shutil.rmtree(temporary, ignore_errors=True)
            raise


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

    Raises StorageFailed, which names the missing or damaged file.
    """
    manifest = path / _MANIFEST
    with storage_errors(manifest):
        stated, _, content = manifest.read_bytes().partition(b"\n")
    if hashlib.sha256(content).hexdigest().encode() != stated:
        raise StorageFailed(manifest, "is damaged: its checksum does not match")
    document = json.loads(content)
    if document["format"] != FORMAT:
        raise StorageFailed(manifest, f"has format {document['format']}, expected {FORMAT}")
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
    """The array in the file, mapped. Raises StorageFailed if it is damaged."""
    dtype = np.dtype(stated["dtype"])
    with storage_errors(path), open(path, "rb") as file:
        size = file.seek(0, 2)
        expected = stated["length"] * dtype.itemsize
        if size != expected:
            raise StorageFailed(path, f"has {size:,} bytes, expected {expected:,}")
        if size == 0:  # an empty file cannot be mapped
            return np.empty(0, dtype)
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    if hashlib.sha256(content).hexdigest() != stated["sha256"]:
        raise StorageFailed(path, "is damaged: its checksum does not match")
    return np.frombuffer(content, dtype)


def stored(directory: Path) -> list[Path]:
    """The checkpoints below `directory`, newest first, valid or not."""
    names = [
        (int(match[1]), int(match[2]), path)
        for path in _entries(directory)
        if (match := _NAME.fullmatch(path.name))
    ]
    return [path for _, _, path in sorted(names, reverse=True)]


def _entries(directory: Path) -> Iterator[Path]:
    # The first checkpoint creates the directory.
    with storage_errors(directory), contextlib.suppress(FileNotFoundError):
        yield from directory.iterdir()


def newest_valid(directory: Path) -> Checkpoint | None:
    """The newest valid checkpoint, or None. Damaged ones are renamed, and logged."""
    for path in stored(directory):
        try:
            return read(path)
        except StorageFailed as error:
            renamed = mark_damaged(path)
            log.error("%s; the checkpoint was renamed to %s", error, renamed.name)
    return None


def mark_damaged(path: Path) -> Path:
    """Renames a checkpoint so that it no longer counts; returns the new path."""
    damaged = path.with_name(f"{_DAMAGED}{path.name}")
    with storage_errors(path):
        shutil.rmtree(damaged, ignore_errors=True)
        path.rename(damaged)
        sync_directory(path.parent)
    return damaged


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
