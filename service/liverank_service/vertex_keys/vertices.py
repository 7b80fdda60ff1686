"""Keys ↔ ids of the vertices of one graph, whose ids are used again after vertices were removed.

The number that a KeyTable gives to a key never changes, and readers rely on it. Until the first
removal these numbers are the ids. From then on two tables say which number each id has, and which
id each number has; -1 where an id is free, or a key is no vertex. Both are immutable: an array that
many states share, and the changes since, sorted; when these exceed a small part of the array, it is
copied with them. So the cost of a state follows what a batch changes, and a published view keeps
its own.

Keys of removed vertices stay in the KeyTable until there are more of them than ids. Then the keys
of the vertices are numbered again, in a new table, in order of their ids; readers of an older state
keep the old one. This passes over all ids, once for as many removals as there are ids.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from liverank.choices import KeyKind
from liverank_service.vertex_keys.table import KeyCapture, KeyTable

_NONE = np.empty(0, np.int64)

_LEAST_CHANGES, _CHANGES_PART = 1 << 12, 1 / 256
"""Changes of a shared array above which it is copied: at least, and as a part of the array."""

_LEAST_REMOVED = 1 << 12
"""Keys without a vertex that are always allowed."""

_PIECE = 1 << 18
"""Keys that are copied to a new table at a time."""


@dataclass(frozen=True, slots=True)
class _Assignment:
    """An immutable table of integers; -1 where there is none.

    shared   int32[…], which other states may share
    places   int64[k], ascending: where it differs, or that follow it
    values   int32[k], there
    """

    shared: NDArray[np.int32]
    places: NDArray[np.int64] = field(default_factory=lambda: _NONE)
    values: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))

    def at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64[len(places)]; -1 also for places outside."""
        found = np.full(len(places), -1, np.int64)
        inside = (places >= 0) & (places < len(self.shared))
        found[inside] = self.shared[places[inside]]
        if len(self.places):
            nearest = np.minimum(np.searchsorted(self.places, places), len(self.places) - 1)
            changed = self.places[nearest] == places
            found[changed] = self.values[nearest[changed]]
        return found

    def with_changes(self, places: NDArray[np.int64], values: NDArray[np.int64]) -> _Assignment:
        """places: distinct."""
        kept = ~np.isin(self.places, places)
        places = np.concatenate([self.places[kept], places])
        numbers = np.concatenate([self.values[kept], values]).astype(np.int32)
        if len(places) > max(_LEAST_CHANGES, _CHANGES_PART * len(self.shared)):
            shared = np.full(max(len(self.shared), int(places.max()) + 1), -1, np.int32)
            shared[: len(self.shared)] = self.shared
            shared[places] = numbers
            return _Assignment(shared)
        order = np.argsort(places)
        return _Assignment(self.shared, places[order], numbers[order])

    def to_numpy(self, size: int) -> NDArray[np.int32]:
        """int32[size], a copy."""
        numbers = np.full(size, -1, np.int32)
        shared = self.shared[:size]
        numbers[: len(shared)] = shared
        inside = self.places < size
        numbers[self.places[inside]] = self.values[inside]
        return numbers

    @property
    def nbytes(self) -> int:
        return self.shared.nbytes + self.places.nbytes + self.values.nbytes


@dataclass(slots=True, eq=False)
class _Removed:
    """The ids that one batch removed, and what was removed next: whoever has an earlier state can
    follow, and nobody else keeps it.
    """

    ids: NDArray[np.int64]
    next: _Removed | None = None


class VertexCapture:
    """The keys of the vertices at one moment; the writer continues."""

    def __init__(self, keys: KeyCapture, number_of: _Assignment | None, limit: int) -> None:
        self.kind = keys.kind
        self._keys = keys
        self._number_of = number_of
        self._limit = limit

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Those of the KeyTable, and `numbers`, int32[limit], by id, -1 where one is free, if
        vertices were removed; for `VertexKeys.restored`.
        """
        arrays = self._keys.arrays()
        if self._number_of is not None:
            arrays["numbers"] = self._number_of.to_numpy(self._limit)
        return arrays


class VertexKeys:
    """Keys ↔ ids at one moment. Immutable; any thread may call any method.

    limit  every id is below it
    """

    def __init__(
        self,
        table: KeyTable,
        limit: int = 0,
        number_of: _Assignment | None = None,
        id_of: _Assignment | None = None,
        removed: _Removed | None = None,
    ) -> None:
        """number_of, id_of: None if the ids are the numbers of the table"""
        self.limit = limit
        self._table = table
        self._number_of = number_of
        self._id_of = id_of
        self._removed = removed or _Removed(_NONE)

    @classmethod
    def restored(cls, kind: KeyKind, limit: int, arrays: dict[str, NDArray[Any]]) -> VertexKeys:
        """The state with these arrays (see `VertexCapture.arrays`), which it then owns."""
        numbers = arrays.get("numbers")
        table = KeyTable.restored(kind, arrays)
        if numbers is None:
            return cls(table, limit)
        id_of = np.full(len(table), -1, np.int32)
        used = np.flatnonzero(numbers >= 0)
        id_of[numbers[used]] = used
        return cls(table, limit, _Assignment(numbers), _Assignment(id_of))

    @property
    def kind(self) -> KeyKind:
        return self._table.kind

    def lookup(self, keys: pa.Array) -> NDArray[np.int64]:
        """int64[len(keys)]: the id of each key, -1 if there is no such vertex.

        Raises TypeError for an array of another kind, ValueError for nulls.
        """
        numbers = self._table.lookup(keys)
        if self._id_of is not None:
            return self._id_of.at(numbers)
        numbers[numbers >= self.limit] = -1  # the table may be ahead of this state
        return numbers

    def id_of(self, key: str | int) -> int:
        """The id of one key of this kind, -1 if there is no such vertex. Faster than `lookup`."""
        number = self._table.id_of(key)
        if self._id_of is not None:
            return int(self._id_of.at(np.array([number]))[0])
        return number if number < self.limit else -1

    def keys(self, ids: NDArray[np.int64]) -> pa.Array:
        """The key of each id, as an Arrow array of the table's kind.

        Raises IndexError for an id without a vertex, and OverflowError for more than 2 GiB of
        strings at once, which an Arrow string array cannot hold.
        """
        if self._number_of is None:
            return self._table.keys(ids)
        numbers = self._number_of.at(np.asarray(ids, np.int64))
        free = np.flatnonzero(numbers < 0)
        if len(free):
            raise IndexError(f"ids[{free[0]}]: {ids[free[0]]} is no vertex")
        return self._table.keys(numbers)

    def vertices(self, first: int, last: int) -> NDArray[np.int64]:
        """The ids of vertices from `first` up to, but without, `last`, ascending."""
        ids = np.arange(first, min(last, self.limit))
        return ids if self._number_of is None else ids[self._number_of.at(ids) >= 0]

    def removed_since(self, before: VertexKeys) -> NDArray[np.int64]:
        """The ids, ascending, of vertices that were removed between an earlier state and this one;
        other vertices may have these ids now.
        """
        if self._removed is before._removed:
            return _NONE
        parts, node = [], before._removed
        while node is not self._removed:
            assert node.next is not None
            node = node.next
            parts.append(node.ids)
        return np.unique(np.concatenate(parts))

    def capture(self) -> VertexCapture:
        """Called by the writer, read by any thread."""
        return VertexCapture(self._table.capture(), self._number_of, self.limit)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, including spare capacity."""
        tables = (self._number_of, self._id_of)
        return self._table.nbytes() + sum(table.nbytes for table in tables if table is not None)


class VertexTable:
    """The keys of the vertices of one graph, for its writer.

    state  what readers use; replaced, never changed
    """

    def __init__(self, kind: KeyKind, state: VertexKeys | None = None) -> None:
        self.state = state or VertexKeys(KeyTable(kind))

    def remove(self, found: NDArray[np.int64]) -> NDArray[np.int64]:
        """Removes vertices.

        found    what `VertexKeys.lookup` found: -1 is ignored
        Returns  their ids, distinct and ascending
        """
        state = self.state
        ids = np.unique(found[found >= 0])
        if len(ids) == 0:
            return ids
        if state._number_of is None or state._id_of is None:
            own = np.arange(state.limit, dtype=np.int32)
            number_of, id_of = _Assignment(own), _Assignment(own)
        else:
            number_of, id_of = state._number_of, state._id_of
        numbers, none = number_of.at(ids), np.full(len(ids), -1, np.int64)
        removed = _Removed(ids)
        state._removed.next = removed
        self.state = VertexKeys(
            state._table,
            state.limit,
            number_of.with_changes(ids, none),
            id_of.with_changes(numbers, none),
            removed,
        )
        return ids

    def assign(
        self, keys: pa.Array, free: Callable[[], NDArray[np.int64]] = lambda: _NONE
    ) -> NDArray[np.int64]:
        """int64[len(keys)]: the id of each key. New vertices get ids in order of first appearance:
        the `free` ones, ascending, then those from `limit` on.

        Raises as `VertexKeys.lookup`, and OverflowError if ids would exceed 32 bits; nothing is
        changed then.
        """
        state, table = self.state, self.state._table
        numbers = table.assign(keys)
        if state._number_of is None or state._id_of is None:
            self.state = VertexKeys(table, len(table), removed=state._removed)
            return numbers
        ids = state._id_of.at(numbers)
        unknown = np.flatnonzero(ids < 0)
        if len(unknown) == 0:
            return ids
        new, first, which = np.unique(numbers[unknown], return_index=True, return_inverse=True)
        place = np.empty(len(new), np.int64)
        place[np.argsort(first)] = np.arange(len(new))
        unused = free()[: len(new)]
        beyond = state.limit + np.arange(len(new) - len(unused))
        given = np.concatenate([unused, beyond])[place]
        ids[unknown] = given[which]
        self.state = VertexKeys(
            table,
            max(state.limit, int(given.max()) + 1),
            state._number_of.with_changes(given, new),
            state._id_of.with_changes(new, given),
            state._removed,
        )
        return ids

    def mark(self) -> tuple[VertexKeys, int]:
        """What `undo` needs to come back to the present state."""
        return self.state, len(self.state._table)

    def undo(self, mark: tuple[VertexKeys, int]) -> None:
        """Takes back every `assign` and `remove` since `mark`: a rejected batch leaves no trace."""
        self.state, numbers = mark
        self.state._table.truncate(numbers)

    def compact(self) -> None:
        """Forgets the keys of removed vertices, if there are more of them than ids."""
        state = self.state
        if state._number_of is None or len(state._table) <= 2 * state.limit + _LEAST_REMOVED:
            return
        table = KeyTable(state.kind)
        number_of = np.full(state.limit, -1, np.int32)
        for first in range(0, state.limit, _PIECE):
            ids = state.vertices(first, first + _PIECE)
            number_of[ids] = table.assign(state.keys(ids))
        id_of = np.flatnonzero(number_of >= 0).astype(np.int32)
        self.state = VertexKeys(
            table, state.limit, _Assignment(number_of), _Assignment(id_of), state._removed
        )
