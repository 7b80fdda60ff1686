"""API keys by command: `liverank keys`. Over HTTP, or on the data directory of a stopped server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from service.cli.errors import CommandError
from service.storage.api_keys import ApiKeyStore, Scope
from service.storage.lock import locked


def create_offline(
    data: Path, name: str, scope: Scope, graphs: Sequence[str] | None
) -> dict[str, Any]:
    """Makes a key in a data directory that no server uses; the answer is that of the server.

    Raises InvalidValue, StorageFailed.
    """
    data.mkdir(parents=True, exist_ok=True)
    with locked(data):
        key, text = ApiKeyStore(data).create(name, scope, graphs)
    return {
        "id": key.id,
        "name": key.name,
        "scope": key.scope,
        "graphs": key.graphs,
        "created": key.created,
        "key": text,
    }


@contextmanager
def file_for_key(path: Path) -> Iterator[TextIO]:
    """A new file that only its owner may read; it goes where no key comes to be written.

    Raises CommandError where there is a file: before there is a key, which would be lost.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise CommandError(f"{path} exists; a key is not written over another file") from None
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            yield file
    except BaseException:
        path.unlink()
        raise
