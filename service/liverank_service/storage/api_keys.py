"""API keys: what each allows, and the file with their hashes.

    DATA/keys.json  {"format": 1, "keys": [{"id", "name", "scope", "graphs", "created", "sha256"}]}

A key is ``lvr_<id>_<secret>``; the id selects its row. The secret has 256 random bits, so one round
of SHA-256 protects it: a slow hash defends passwords that people choose against dictionary attacks,
and would only slow down every request here. The file is replaced atomically (written to a temporary
file, fsynced, renamed), and only its owner may read it.

The key in LIVERANK_API_KEY has scope admin while the server runs with it; it is never on disk.

    DATA/keys.required  exists once there was any key, until `reset`

Without it, a lost keys.json would open all graphs to everyone who can connect.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hmac import compare_digest
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import AwareDatetime, Field

from liverank.choices import Scope
from liverank_gpu import InvalidValue
from liverank_service.errors import (
    ApiKeysMissing,
    FileDamaged,
    LastApiKey,
    StorageFailed,
    UnknownApiKey,
)
from liverank_service.storage.files import (
    RowsFile,
    Stored,
    make_directory,
    replace_file,
    storage_errors,
    sync_directory,
)

log = logging.getLogger("liverank.keys")

SCOPES: tuple[Scope, ...] = get_args(Scope)
"""Each includes the ones before it."""

FILE = "keys.json"
REQUIRED_FILE = "keys.required"
ENVIRONMENT_ID = "environment"
"""The id under which the key in LIVERANK_API_KEY is listed."""

_PREFIX = "lvr_"  # scanners for leaked secrets recognise it
_ID_BYTES = 6
_SECRET_BYTES = 32
_ID_LENGTH = 2 * _ID_BYTES
_MAX_NAME = 100


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key, without its secret.

    graphs   the graphs it is valid for; None: all, present and future
    created  RFC 3339, in UTC
    sha256   of the whole key, in hexadecimal
    """

    id: str
    name: str
    scope: Scope
    graphs: tuple[str, ...] | None
    created: str
    sha256: str

    def document(self) -> dict[str, Any]:
        """As JSON has it, without the hash."""
        members = asdict(self) | {"graphs": None if self.graphs is None else list(self.graphs)}
        del members["sha256"]
        return members

    def includes(self, scope: Scope) -> bool:
        return SCOPES.index(scope) <= SCOPES.index(self.scope)

    def allows(self, graph: str) -> bool:
        return self.graphs is None or graph in self.graphs


def digest_of(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


class ApiKeyStore:
    """The API keys of one data directory. Any thread may call any method."""

    def __init__(
        self, data: Path, environment_key: str | None = None, *, may_be_missing: bool = True
    ) -> None:
        """Reads DATA/keys.json, if it exists.

        may_be_missing  whether there may be no keys although there were some

        Raises StorageFailed, ApiKeysMissing.
        """
        self.path = data / FILE
        self._changing = threading.Lock()
        self._keys = _read(self.path)
        self._environment: ApiKey | None = None
        if environment_key is not None:
            self._environment = ApiKey(
                ENVIRONMENT_ID, ENVIRONMENT_ID, "admin", None, _now(), digest_of(environment_key)
            )
        self._required = data / REQUIRED_FILE
        if self:
            try:
                self._require()
            except StorageFailed as error:
                log.warning("%s; that there are API keys is not remembered", error)
        elif not may_be_missing and _exists(self._required):
            raise ApiKeysMissing(self.path)

    def __bool__(self) -> bool:
        """Whether there is any key."""
        return bool(self._keys) or self._environment is not None

    def listed(self) -> list[ApiKey]:
        """All keys: that of the environment, then the others, the oldest first."""
        return [*([self._environment] if self._environment else []), *self._keys.values()]

    def find(self, key: str) -> ApiKey | None:
        """The key with this text, or None. Takes as long for a wrong secret as for a right one."""
        digest = digest_of(key)
        if self._environment and compare_digest(digest, self._environment.sha256):
            return self._environment
        start = len(_PREFIX)
        named = self._keys.get(key[start : start + _ID_LENGTH])
        same = compare_digest(digest, named.sha256 if named else "0" * len(digest))
        return named if same else None

    def create(
        self,
        name: str,
        scope: Scope,
        graphs: Sequence[str] | None,
        announce: Callable[[str], None] = lambda _: None,
    ) -> tuple[ApiKey, str]:
        """A new key, and its text, which is not stored. Raises InvalidValue, StorageFailed.

        announce  called with the text before the key is valid
        """
        if not (1 <= len(name) <= _MAX_NAME and name.isprintable()):
            raise InvalidValue("name", name, f"1 to {_MAX_NAME} printable characters")
        if scope not in SCOPES:
            raise InvalidValue("scope", scope, "one of " + ", ".join(SCOPES))
        if graphs is not None and not graphs:
            raise InvalidValue("graphs", [], "the names of one or more graphs, or omitted for all")
        with self._changing:
            if not any(map(_is_administrator, self.listed())) and (scope, graphs) != (
                "admin",
                None,
            ):
                # The first key makes keys required: without this one, nobody could create more.
                raise InvalidValue(
                    "scope", scope, "admin, for all graphs, since it is the first key"
                )
            identity = secrets.token_hex(_ID_BYTES)
            text = f"{_PREFIX}{identity}_{secrets.token_urlsafe(_SECRET_BYTES)}"
            for_graphs = None if graphs is None else tuple(dict.fromkeys(graphs))
            key = ApiKey(identity, name, scope, for_graphs, _now(), digest_of(text))
            announce(text)
            self._replace({**self._keys, identity: key})
        return key, text

    def revoke(self, identity: str) -> ApiKey:
        """Removes a key; it takes effect at once. Raises UnknownApiKey, StorageFailed, and
        LastApiKey for the last one that can create others.
        """
        with self._changing:
            key = self._keys.get(identity)
            if key is None:
                raise UnknownApiKey(identity)
            rest = {other: row for other, row in self._keys.items() if other != identity}
            if not (self._environment or any(map(_is_administrator, rest.values()))):
                raise LastApiKey(identity)
            self._replace(rest)
        return key

    @staticmethod
    def reset(data: Path) -> None:
        """Removes all stored keys, readable or not, so that a server starts without keys.

        Raises StorageFailed.
        """
        with storage_errors(data / FILE):
            for name in (FILE, REQUIRED_FILE):  # in this order: a crash must not unprotect
                (data / name).unlink(missing_ok=True)
                sync_directory(data)

    def _require(self) -> None:
        """Notes that there are keys. Raises StorageFailed."""
        if not _exists(self._required):
            with storage_errors(self._required):
                make_directory(self._required.parent)
            replace_file(self._required, b"API keys are in use: see `liverank keys reset`\n")

    def _replace(self, keys: dict[str, ApiKey]) -> None:
        is_first = not _exists(self._required)
        self._require()
        rows = [asdict(key) for key in keys.values()]
        try:
            _STORED.write(self.path, rows, indent=2)
        except StorageFailed:
            if is_first:  # a server without this key would not start
                with suppress(OSError):
                    self._required.unlink()
                    sync_directory(self._required.parent)
            raise
        self._keys = keys


def _is_administrator(key: ApiKey) -> bool:
    return key.scope == "admin" and key.graphs is None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class _StoredKey(Stored):
    """A row of the file."""

    id: str = Field(pattern=rf"^[0-9a-f]{{{_ID_LENGTH}}}$")
    name: str = Field(min_length=1, max_length=_MAX_NAME)
    scope: Scope
    graphs: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)] | None
    created: AwareDatetime
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


_STORED = RowsFile("a file of API keys", "keys", list[_StoredKey], 1)


def _exists(path: Path) -> bool:
    with storage_errors(path):
        return path.exists()


def _read(path: Path) -> dict[str, ApiKey]:
    try:
        rows = _STORED.read(path) or []
    except StorageFailed as error:
        # the catalog reports a wrong data directory
        if isinstance(error.__cause__, NotADirectoryError):
            return {}
        raise
    keys = {
        row.id: ApiKey(
            row.id,
            row.name,
            row.scope,
            None if row.graphs is None else tuple(row.graphs),
            row.created.isoformat(timespec="seconds"),
            row.sha256,
        )
        for row in rows
    }
    if len(keys) < len(rows):
        raise FileDamaged(path, "is not a file of API keys: two keys have the same id")
    return keys
