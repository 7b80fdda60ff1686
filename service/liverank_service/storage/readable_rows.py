"""What can still be read from a damaged journal, from several views of its files.

A row of `batches` proves itself by the chain, one of another table by its checksum. The views are
asked in order: if two have different rows of one version, the earlier view's counts.
"""

from __future__ import annotations

import heapq
import sqlite3
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from liverank_service.errors import StorageFailed
from liverank_service.storage import layout
from liverank_service.storage.layout import Record, State

_CHUNK = 1000

_BATCHES = "version, committed_at, payload, strategy, idempotency_key, body_hash, chain"
REQUESTS = "version, idempotency_key, body_hash, retired_at, checksum"
OUTCOMES = "version, status, body, checksum"


@contextmanager
def read_only(path: Path, **parameters: int) -> Iterator[sqlite3.Connection]:
    """A connection that leaves the database and its write-ahead log unchanged, also when it is
    closed. Raises sqlite3.Error.
    """
    query = "&".join(["mode=ro", *(f"{name}={value}" for name, value in parameters.items())])
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{query}", uri=True)) as connection:
        yield connection


class ReadableRows:
    """views: connections to the damaged database, SQLite's own view of it first."""

    def __init__(self, path: Path, views: Sequence[sqlite3.Connection]) -> None:
        self._path = path
        self._views = views

    @classmethod
    @contextmanager
    def of(cls, path: Path, images: Sequence[Path]) -> Iterator[ReadableRows]:
        """The rows of the journal at `path` and of images of it."""
        with ExitStack() as stack:
            views = [stack.enter_context(read_only(path))]
            views += [stack.enter_context(read_only(image, immutable=1)) for image in images]
            yield cls(path, views)

    def state(self) -> State | None:
        """The newest readable row of `state`."""
        found = []
        for view in self._views:
            try:
                found.append(layout.read_state(view, self._path))
            except (sqlite3.Error, StorageFailed):
                continue
        return max(found, key=lambda state: (state.version, state.retired), default=None)

    def newest(self) -> int | None:
        """The newest batch in SQLite's own view; None if that is unreadable."""
        try:
            (newest,) = self._views[0].execute("SELECT max(version) FROM batches").fetchone()
        except sqlite3.Error:
            return None
        return newest if isinstance(newest, int) else None

    def batches(
        self, chains: Mapping[int, bytes], last: int
    ) -> Iterator[tuple[int, float, Record]]:
        """The intact batches up to `last`. A row is verified with the previous row's chain.

        chains  known ones by version
        """
        before_version, before = 0, set[bytes]()
        for version, rows in groupby(self._merged("batches", _BATCHES, last), itemgetter(0)):
            chain = chains.get(version - 1)
            known = {chain} if chain is not None else set()
            known |= before if before_version == version - 1 else set()
            before_version, before = version, set()
            found = False
            for _, committed_at, *fields, stated in rows:
                if not isinstance(stated, bytes):
                    continue
                before.add(stated)
                record = Record(*fields)
                if not found and any(
                    _link(chain, version, committed_at, record) == stated for chain in known
                ):
                    found = True
                    yield version, committed_at, record

    def checked(self, table: str, columns: str, last: int) -> dict[int, list[Any]]:
        """The rows of `requests` or `outcomes` up to `last` with the right checksum, by version."""
        rows: dict[int, list[Any]] = {}
        for *row, stated in self._merged(table, columns, last):
            if layout.checksum(*row) == stated:
                rows.setdefault(row[0], row)
        return rows

    def is_complete(self, table: str, columns: str, last: int) -> bool:
        """Whether every row of the table up to `last` can be read in SQLite's own view."""
        query = f"SELECT {columns} FROM {table} WHERE version <= ?"
        try:
            rows = self._views[0].execute(query, (last,)).fetchall()
        except (sqlite3.Error, UnicodeDecodeError):
            return False
        return all(layout.checksum(*row) == stated for *row, stated in rows)

    def _merged(self, table: str, columns: str, last: int) -> Iterator[tuple[Any, ...]]:
        """The rows of all views, by version."""
        views = (_readable(view, table, columns, last) for view in self._views)
        return heapq.merge(*views, key=itemgetter(0))


def _link(chain: bytes, version: int, committed_at: Any, record: Record) -> bytes | None:
    try:
        return layout.link(chain, version, committed_at, record)
    except (AttributeError, TypeError, struct.error):  # a column has another type
        return None


def _readable(
    view: sqlite3.Connection, table: str, columns: str, last: int
) -> Iterator[tuple[Any, ...]]:
    """The rows of versions up to `last` that SQLite can still read, ascending."""
    query = f"SELECT {columns} FROM {table} WHERE version > ? AND version <= ? ORDER BY version"
    for low in range(-1, last, _CHUNK):
        high = min(low + _CHUNK, last)
        try:
            yield from view.execute(query, (low, high)).fetchall()
        except (sqlite3.Error, UnicodeDecodeError):
            for version in range(low + 1, high + 1):
                try:
                    yield from view.execute(query, (version - 1, version)).fetchall()
                except (sqlite3.Error, UnicodeDecodeError):
                    continue
