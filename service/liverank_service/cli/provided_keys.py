"""API keys that a server makes for its own container: `liverank serve --keys DIR`.

    DIR/operator    scope admin, mode 0600: made while nobody has such a key
    DIR/prometheus  scope read, mode 0644, since Prometheus runs as another user: made again
                    whenever the file does not have a valid key

A key's text is on disk before the key is valid, and replaces an older file only once it is: a kill
at any time, or a directory that cannot be written, leaves either the old file or the new one. An
older file with another key is kept as NAME.ID.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from liverank.choices import Scope
from liverank_service.storage.api_keys import ApiKeyStore
from liverank_service.storage.files import locked, make_directory, storage_errors, sync_directory

log = logging.getLogger("liverank.keys")

_KEYS: tuple[tuple[str, Scope, int], ...] = (
    ("operator", "admin", 0o600),
    ("prometheus", "read", 0o644),
)


def provide_keys(directory: Path, data: Path, environment_key: str | None) -> None:
    """Makes the keys that are missing, for a data directory that no server uses.

    Raises StorageFailed.
    """
    with storage_errors(data):
        make_directory(data)
    with locked(data):
        store = ApiKeyStore(data, environment_key)
        for name, scope, mode in _KEYS:
            with storage_errors(directory):
                _provide(store, directory / name, scope, mode)


def _provide(store: ApiKeyStore, path: Path, scope: Scope, mode: int) -> None:
    pending = path.with_name(f".{path.name}.new")
    if _is_valid(store, pending):  # the previous start was interrupted here
        _replace(path, pending)
        return
    if _is_valid(store, path) or (scope == "admin" and _has_administrator(store)):
        return

    def write(text: str) -> None:
        descriptor = os.open(pending, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with open(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, mode)
            file.write(f"{text}\n")
            file.flush()
            os.fsync(descriptor)
        sync_directory(path.parent)

    key, _ = store.create(path.name, scope, None, announce=write)
    _replace(path, pending)
    log.info("API key created", extra={"key": key.id, "scope": scope, "file": str(path)})


def _has_administrator(store: ApiKeyStore) -> bool:
    return any(key.scope == "admin" and key.graphs is None for key in store.listed())


def _is_valid(store: ApiKeyStore, path: Path) -> bool:
    try:
        return store.find(path.read_text("utf-8").strip()) is not None
    except (FileNotFoundError, UnicodeDecodeError):
        return False


def _replace(path: Path, pending: Path) -> None:
    if path.exists():
        identity = path.read_bytes()[4:16].decode("ascii", "replace")
        path.rename(path.with_name(f"{path.name}.{identity if identity.isalnum() else 'old'}"))
    pending.rename(path)
    sync_directory(path.parent)
