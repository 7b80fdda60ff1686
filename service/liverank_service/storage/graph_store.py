"""The graphs of one data directory, as directories of files.

    DATA/lock                        held by the server that uses the directory
    DATA/keys.json, keys.required    see liverank_service.storage.api_keys
    DATA/programs.json               see liverank_service.storage.programs
    DATA/graphs/<name>/graph.json    the manifest: format version and options
    DATA/graphs/<name>/journal.db    see liverank_service.storage.layout; journal.head,
                                     journal.replaying: liverank_service.storage.journal
    DATA/graphs/<name>/checkpoints   see liverank_service.storage.checkpoint
    DATA/graphs/<name>/watched.json  see liverank_service.storage.kept_files
    DATA/graphs/<name>/views.json   see liverank_service.storage.kept_files
    DATA/graphs/<name>/analyses.json see liverank_service.storage.kept_files
    DATA/graphs/<name>/running       see liverank_service.storage.saved_runs
    DATA/graphs/.<anything>          a graph partly created or dropped; removed at the next start

A graph is created and dropped by renaming its whole directory: after a crash it is complete or
absent.
"""

from __future__ import annotations

import itertools
import json
import logging
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from liverank_service.errors import StorageFailed
from liverank_service.storage import journal
from liverank_service.storage.files import (
    DIRECTORY_MODE,
    locked,
    make_directory,
    rename_synced,
    storage_errors,
    storage_failure,
    sync_directory,
    write_synced,
)
from liverank_service.storage.journal import Journal

log = logging.getLogger("liverank.catalog")

MANIFEST = "graph.json"
MANIFEST_FORMAT = 3
_MANIFEST_FORMATS = (1, 2, MANIFEST_FORMAT)
"""Those that can be read. Older ones had fewer options; the others have their defaults."""


class GraphStore:
    """An open data directory; one process at a time has it open."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._graphs = data / "graphs"
        self._numbers = itertools.count()
        self._discarded: set[str] = set()
        self._lock = ExitStack()

    def open(self) -> None:
        """Creates the data directory if needed, locks it, and removes what a crash left incomplete.

        Raises StorageFailed.
        """
        with storage_errors(self._data):
            make_directory(self._graphs)
        self._lock.enter_context(locked(self._data))
        self._restrict()
        for leftover in self._graphs.glob(".*"):
            log.warning("%s was partly created or dropped: removed", leftover)
            shutil.rmtree(leftover)

    def _restrict(self) -> None:
        """Lets only the owner in, also where an earlier release created the directory."""
        try:
            if self._data.stat().st_mode & 0o077:
                self._data.chmod(DIRECTORY_MODE)
        except OSError as error:
            log.warning("%s: others may read it: %s", self._data, error.strerror)

    def close(self) -> None:
        """Releases the lock. What was refused does not come back with the next start."""
        for name in list(self._discarded):
            self.discard(name)
        self._lock.close()

    def directories(self) -> list[Path]:
        """Of all graphs, by name."""
        return sorted(self._graphs.iterdir())

    def create(self, name: str, options: Mapping[str, Any]) -> Path:
        """The directory of a new graph without batches. Raises StorageFailed."""
        if name in self._discarded:
            self.remove(name)
        temporary = self._temporary(f".creating-{name}")
        directory = self._graphs / name
        manifest = {"format": MANIFEST_FORMAT, "options": dict(options)}
        was_free = False
        try:
            was_free = not directory.exists()
            temporary.mkdir(DIRECTORY_MODE)
            Journal.create(temporary / journal.FILE)
            write_synced(temporary / MANIFEST, [json.dumps(manifest, indent=2).encode()])
            sync_directory(temporary)
            rename_synced(temporary, directory)
        except (OSError, sqlite3.Error) as error:
            shutil.rmtree(temporary, ignore_errors=True)
            if was_free and directory.exists():  # the rename could not be undone
                self._discarded.add(name)
            raise storage_failure(directory, error) from error
        return directory

    def remove(self, name: str) -> None:
        """Raises StorageFailed; the graph is then still there, unless the disk refused that too. It
        may be removed again.
        """
        directory = self._graphs / name
        with storage_errors(directory):
            if directory.exists():
                rename_synced(directory, self._temporary(f".dropped-{name}"))
            else:  # an earlier removal could not be undone
                sync_directory(self._graphs)
        self._discarded.discard(name)
        # If this fails, the next start removes the rest.
        for removed in self._graphs.glob(f".dropped-{name}-*"):
            if removed.name.rpartition("-")[0] == f".dropped-{name}":
                shutil.rmtree(removed, ignore_errors=True)

    def discard(self, name: str) -> None:
        """Removes a graph that could not be opened after it was created. Where its files cannot be
        removed now, they are when the name is created again.
        """
        try:
            self.remove(name)
        except StorageFailed as error:
            log.warning("graph %r was not created, but its files stay for now: %s", name, error)
            self._discarded.add(name)

    def _temporary(self, prefix: str) -> Path:
        # numbered: an earlier one of the same name may still exist
        return self._graphs / f"{prefix}-{next(self._numbers)}"


def read_manifest(directory: Path) -> dict[str, Any]:
    """The options of the graph in `directory`. Raises StorageFailed."""
    path = directory / MANIFEST
    try:
        with storage_errors(path):
            manifest = json.loads(path.read_text("utf-8"))
        if manifest["format"] not in _MANIFEST_FORMATS:
            raise StorageFailed(
                path, f"has format {manifest['format']}, expected 1 to {MANIFEST_FORMAT}"
            )
        options: dict[str, Any] = manifest["options"]
    except (ValueError, TypeError, KeyError) as error:
        raise StorageFailed(path, f"is not the manifest of a graph: {error!r}") from error
    return options
