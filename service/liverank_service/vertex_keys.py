"""Vertex keys, which clients use, and the dense ids that the engine uses instead: strings or 64-bit
integers, numbered in order of first appearance.

The number that a `KeyTable` gives to a key never changes, and readers rely on it. It is a hash
table of a few small kernels over plain arrays, because no maintained library meets all of these
requirements:

- no Python object per key: a dict of 10⁷ strings takes 1.5 GB, these arrays about 0.4 GB;
- both directions, with ids that never change (a pandas or Arrow dictionary is rebuilt when it
  grows, a sorted index renumbers);
- reads concurrent with the one writer, without a lock and outside the interpreter lock;
- a rejected batch can be rolled back.

Layout. Keys are stored one after the other in `arena`, in order of their ids; string key `i` is
`arena[offsets[i]:offsets[i + 1]]`, an integer key is 8 bytes at `8 i` and needs no offsets. `slots`
is an open-addressing table with linear probing: each slot is one 64-bit word, the key's 32-bit hash
above and its id + 1 below, 0 when empty. The hash alone determines the slot, so the table grows
without reading a key. The hash is SipHash-1-3 with a random seed, as in CPython and Rust, so that
clients cannot choose keys that collide; ids do not depend on it.

Readers. The arrays and the number of ids are published together, as one tuple. Arrays are only ever
appended to: a filled slot and a written key never change. Growth and truncation build new arrays. A
reader skips ids at or above the count in its tuple, so everything it relies on was complete when
the tuple was published; a key that is being added at the same time is found or not, but never with
a wrong id.

Vertices. Until the first one is removed the numbers of keys are the ids. From then on two tables
say which number each id has, and which id each number has; -1 where an id is free, or a key is no
vertex. Both are immutable: an array that many states share, and the changes since, sorted; when
these exceed a small part of the array, it is copied with them. So the cost of a state follows what
a batch changes, and a published view keeps its own.

Keys of removed vertices stay in the `KeyTable` until there are more of them than ids. Then the keys
of the vertices are numbered again, in a new table, in order of their ids; readers of an older state
keep the old one. This passes over all ids, once for as many removals as there are ids.
"""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liverank.choices import KeyKind
from liverank_gpu import VERTEX_LIMIT, InvalidValue, kernels

ARROW_TYPES: dict[KeyKind, pa.DataType] = {"string": pa.string(), "integer": pa.int64()}

_INTEGER = r"-?[0-9]{1,19}"


def kind_of(keys: pa.Array) -> KeyKind:
    """Of a column of keys."""
    return "string" if pa.types.is_string(keys.type) else "integer"


def arrow_numbers(values: NDArray[Any]) -> pa.Array:
    """The same memory, of integers or floating-point numbers, as an Arrow array. `pa.array` imports
    pandas first if that is installed, which takes longer than all of a small ranking.
    """
    values = np.ascontiguousarray(values)
    buffers = [None, pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)


def key_from_text(text: str, kind: KeyKind, field: str = "vertex") -> str | int:
    """The key written as text in a path or a member name. Raises InvalidValue for `field`."""
    if kind == "integer":
        if re.fullmatch(_INTEGER, text) is None or not -(2**63) <= int(text) < 2**63:
            raise InvalidValue(field, text, "a signed 64-bit integer, like the graph's keys")
        return int(text)
    if not text:
        raise InvalidValue(field, text, "a key with at least one character")
    return text


def keys_from_texts(texts: pa.Array, kind: KeyKind) -> pa.Array | None:
    """The keys written as texts, or `texts` if these are keys of the kind already. None if one of
    them is no key: `key_from_text` then says which.
    """
    if not pa.types.is_string(texts.type):
        return texts
    if kind == "string":
        return texts if not pc.any(pc.equal(texts, "")).as_py() else None
    if not pc.all(pc.match_substring_regex(texts, f"^{_INTEGER}$")).as_py():
        return None
    try:
        return texts.cast(pa.int64())
    except pa.ArrowInvalid:
        return None


_INTEGER_BYTES = 8
_CHUNK = 1 << 16
"""Rows of keys for which space is reserved at a time: bounds what is reserved and not used."""

_NONE = np.empty(0, np.int64)

_MIN_SLOTS = 1 << 10
_MIN_BYTES = 1 << 12


class _Arrays(NamedTuple):
    """What a reader needs, published together.

    slots    uint64[a power of two], at most two thirds full
    offsets  int64[≥ count + 1] for strings, [0] for integers
    arena    uint8[…]
    size     the number of ids
    """

    slots: NDArray[np.uint64]
    offsets: NDArray[np.int64]
    arena: NDArray[np.uint8]
    size: int


class _KeyBuffers(NamedTuple):
    """An Arrow array as the kernels read it.

    offsets  int32[size + 1] into `data` for strings, [0] for integers
    data     uint8[…], read-only
    size     the number of keys
    """

    offsets: NDArray[np.int32]
    data: NDArray[np.uint8]
    size: int


class KeyCapture(NamedTuple):
    """The keys at one moment; the writer continues to append to the same arrays."""

    kind: KeyKind
    seed: NDArray[np.uint64]
    state: _Arrays

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Seed, slots, offsets and arena, without spare capacity, for `KeyTable.restored`.

        The slots are a copy, because the originals also have entries of later keys.
        """
        slots, offsets, arena, size = self.state
        own = slots.copy()
        kernels.clear_keys_from(own, size)
        used = size * _INTEGER_BYTES if self.kind == "integer" else int(offsets[size])
        kept = offsets[: 0 if self.kind == "integer" else size + 1]
        return {"seed": self.seed, "slots": own, "offsets": kept, "arena": arena[:used]}


class KeyTable:
    """External keys ↔ dense ids, in order of first appearance.

    One writer (`assign`, `truncate`); any number of reader threads, each of which sees every id
    below a `len` that it has read. Keys are compared as exact UTF-8 bytes, or as 64-bit integers.
    """

    _hash_mask = 0xFFFFFFFF

    def __init__(self, kind: KeyKind) -> None:
        if kind not in ARROW_TYPES:
            raise ValueError(f"kind: expected 'string' or 'integer', got {kind!r}")
        self.kind: KeyKind = kind
        self._width = _INTEGER_BYTES if kind == "integer" else 0
        self._seed = np.array([secrets.randbits(64), secrets.randbits(64)], np.uint64)
        self._published = _Arrays(
            np.zeros(_MIN_SLOTS, np.uint64),
            np.zeros(0 if self._width else _MIN_SLOTS, np.int64),
            np.empty(_MIN_BYTES, np.uint8),
            0,
        )

    def __len__(self) -> int:
        """The number of keys; their ids are 0 … len - 1."""
        return self._published.size

    def capture(self) -> KeyCapture:
        """The keys at this moment. Called by the writer, read by any thread."""
        return KeyCapture(self.kind, self._seed, self._published)

    @classmethod
    def restored(cls, kind: KeyKind, arrays: dict[str, NDArray[Any]]) -> KeyTable:
        """The table with these arrays (see `KeyCapture.arrays`), which it then owns; the slots must
        be writable.
        """
        table = cls(kind)
        width = table._width
        size = len(arrays["arena"]) // width if width else max(0, len(arrays["offsets"]) - 1)
        table._seed = arrays["seed"]
        table._published = _Arrays(arrays["slots"], arrays["offsets"], arrays["arena"], size)
        return table

    def lookup(self, keys: pa.Array, capture: KeyCapture | None = None) -> NDArray[np.int64]:
        """int64[len(keys)]: the id of each key, -1 if it is unknown. Adds nothing.

        capture  finds the keys of that moment alone

        Raises TypeError for an array of another kind, ValueError for nulls.
        """
        ids = np.empty(len(keys), np.int64)
        if len(ids):  # most columns of a batch are empty
            state = self._published if capture is None else capture.state
            kernels.find_keys(state, self._width, self._columns(keys)[:2], self._hash, ids)
        return ids

    def id_of(self, key: str | int) -> int:
        """The id of one key of the table's kind, -1 if it is unknown.

        Without Arrow, and without releasing the interpreter lock: beside busy threads, getting the
        lock back takes a hundred times as long as this.
        """
        if isinstance(key, int):
            own = key.to_bytes(_INTEGER_BYTES, sys.byteorder, signed=True)
        else:
            own = key.encode()
        data = np.frombuffer(own, np.uint8)
        found: int = kernels.find_key(self._published, self._width, data, self._hash)
        return found

    def assign(self, keys: pa.Array) -> NDArray[np.int64]:
        """int64[len(keys)]: the id of each key. Unknown ones get the next ids in order.

        Raises what `lookup` raises, and OverflowError if ids would exceed 32 bits; the table is
        then unchanged.
        """
        return self.assign_rows([keys])[0]

    def assign_rows(
        self, columns: Sequence[pa.Array], found: Sequence[NDArray[np.int64]] = ()
    ) -> list[NDArray[np.int64]]:
        """The ids of the keys in one or two columns of one length. Unknown ones get the next ids in
        the order of the rows, and in a row in that of the columns.

        found  what `lookup` found of each column before, which becomes the result

        Raises what `assign` raises.
        """
        ids = list(found) or [self.lookup(column) for column in columns]
        if any(len(each) and each.min() < 0 for each in ids):
            self._add([self._columns(column) for column in columns], ids)
        return ids

    def _add(self, columns: Sequence[_KeyBuffers], ids: Sequence[NDArray[np.int64]]) -> None:
        """Adds the keys whose ids are -1, and writes their ids. On one core."""
        state = published = self._published
        given = tuple((columns[at % len(columns)][:2]) for at in range(2))
        written = ids[0], ids[1] if len(ids) == 2 else _NONE
        row, rows = 0, len(ids[0])
        try:
            while row < rows:
                size, row = kernels.add_keys(state, self._width, given, self._hash, row, written)
                state = state._replace(size=size)
                if size > VERTEX_LIMIT:
                    raise OverflowError(f"a graph has at most {VERTEX_LIMIT:,} vertices")
                if row < rows:
                    state = self._with_capacity(state, columns, ids, row)
        except BaseException:
            # The entries of this call would fill the table. They are the newest and no reader
            # follows them, so every older entry is found without them as before.
            kernels.clear_keys_from(published.slots, published.size)
            raise
        self._published = state

    def truncate(self, count: int) -> None:
        """Removes the ids from `count` on, so that a rejected batch leaves no trace."""
        state = self._published
        if not 0 <= count <= state.size:
            raise ValueError(f"count: expected 0 to {state.size}, the number of keys, got {count}")
        if count == state.size:
            return
        slots = np.zeros_like(state.slots)
        kernels.refill_keys(state.slots, count, slots)
        # Copies: a reader may still be comparing keys that the next ones would overwrite.
        offsets = _copied(state.offsets, 0 if self._width else count + 1)
        arena = _copied(state.arena, count * self._width if self._width else int(offsets[count]))
        self._published = _Arrays(slots, offsets, arena, count)

    def keys(self, ids: NDArray[np.int64]) -> pa.Array:
        """The key of each id, as an Arrow array of the table's kind.

        Raises IndexError for an id that the table does not have, and OverflowError for more than 2
        GiB of strings at once, which an Arrow string array cannot hold.
        """
        state = self._published
        wanted = np.ascontiguousarray(ids, np.int64)
        outside = np.flatnonzero((wanted < 0) | (wanted >= state.size))
        if len(outside):
            index = int(outside[0])
            raise IndexError(f"ids[{index}]: expected 0 to {state.size - 1}, got {wanted[index]}")
        count = len(wanted)
        if self._width:
            data = np.empty(count * self._width, np.uint8)
            key_offsets = np.empty(0, np.int32)
            buffers = [None, pa.py_buffer(data)]
        else:
            ends = np.cumsum(state.offsets[wanted + 1] - state.offsets[wanted])
            if count and ends[-1] > np.iinfo(np.int32).max:
                raise OverflowError(f"{ends[-1]:,} bytes of keys exceed 2 GiB; request fewer ids")
            key_offsets = np.zeros(count + 1, np.int32)
            key_offsets[1:] = ends
            data = np.empty(key_offsets[-1], np.uint8)
            buffers = [None, pa.py_buffer(key_offsets), pa.py_buffer(data)]
        kernels.gather_keys(state.offsets, state.arena, self._width, wanted, key_offsets, data)
        return pa.Array.from_buffers(ARROW_TYPES[self.kind], count, buffers, null_count=0)

    def nbytes(self) -> int:
        """Bytes of the table's arrays, including spare capacity."""
        state = self._published
        return state.slots.nbytes + state.offsets.nbytes + state.arena.nbytes

    def _columns(self, keys: pa.Array) -> _KeyBuffers:
        expected = ARROW_TYPES[self.kind]
        if not isinstance(keys, pa.Array) or keys.type != expected:
            got = getattr(keys, "type", type(keys).__name__)
            raise TypeError(f"keys: expected an Arrow array of {expected}, got {got}")
        if keys.null_count:
            raise ValueError(f"keys: expected no nulls, got {keys.null_count}")
        count, offset = len(keys), keys.offset
        buffers = keys.buffers()
        data = _read_only(buffers[-1], np.dtype(np.uint8))
        if self._width:
            size = self._width
            return _KeyBuffers(
                np.empty(0, np.int32), data[offset * size : (offset + count) * size], count
            )
        offsets = _read_only(buffers[1], np.dtype(np.int32))[offset : offset + count + 1]
        return _KeyBuffers(offsets, data, count)

    @property
    def _hash(self) -> tuple[NDArray[np.uint64], int]:
        return self._seed, self._hash_mask

    def _with_capacity(
        self,
        state: _Arrays,
        columns: Sequence[_KeyBuffers],
        ids: Sequence[NDArray[np.int64]],
        row: int,
    ) -> _Arrays:
        """`state` with capacity for the unknown keys of _CHUNK rows from `row` on, in case all are
        different.
        """
        end = min(row + _CHUNK, columns[0].size)
        count = state.size + sum(int(np.count_nonzero(each[row:end] < 0)) for each in ids)
        slots, offsets, arena = state.slots, state.offsets, state.arena
        if self._width:
            used = state.size * self._width
            needed = count * self._width
        else:
            used = int(offsets[state.size])
            needed = used + sum(int(each.offsets[end]) - int(each.offsets[row]) for each in columns)
            offsets = _grown(offsets, state.size + 1, count + 1)
        arena = _grown(arena, used, needed)
        if 3 * count > 2 * len(slots):
            slots = np.zeros(1 << (3 * count // 2).bit_length(), np.uint64)
            kernels.refill_keys(state.slots, state.size, slots)
        return _Arrays(slots, offsets, arena, state.size)


def _grown(array: NDArray[Any], used: int, needed: int) -> NDArray[Any]:
    """`array` if it has `needed` items, else a larger copy of its first `used` ones."""
    if needed <= len(array):
        return array
    return _copied(array, used, max(needed, len(array) * 3 // 2))


def _copied(array: NDArray[Any], used: int, capacity: int = 0) -> NDArray[Any]:
    """A copy of the first `used` items, with the larger of the capacities."""
    copy = np.empty(max(capacity, len(array)), array.dtype)
    copy[:used] = array[:used]
    return copy


def _read_only(buffer: pa.Buffer | None, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The buffer's items."""
    return np.frombuffer(b"" if buffer is None else buffer, dtype)


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


class FoundKeys(NamedTuple):
    """The numbers of the keys of some columns in a table, which never change; -1 where a key was
    unknown.
    """

    table: KeyTable
    numbers: list[NDArray[np.int64]]


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
        if not len(found) or not len(ids := np.unique(found[found >= 0])):
            return _NONE
        state = self.state
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

    def finder(self, columns: Sequence[pa.Array]) -> Callable[[], FoundKeys]:
        """What finds the keys of now, for a later `assign_rows`: any thread may call it, while the
        writer continues. What the writer takes back is not found, since its number is given again.
        """
        table, now = self.state._table, self.state._table.capture()
        return lambda: FoundKeys(table, [table.lookup(column, now) for column in columns])

    def assign(
        self, keys: pa.Array, free: Callable[[], NDArray[np.int64]] = lambda: _NONE
    ) -> NDArray[np.int64]:
        """int64[len(keys)]: the id of each key, as by `assign_rows`."""
        return self.assign_rows([keys], free)[0]

    def assign_rows(
        self,
        columns: Sequence[pa.Array],
        free: Callable[[], NDArray[np.int64]] = lambda: _NONE,
        found: FoundKeys | None = None,
    ) -> list[NDArray[np.int64]]:
        """The ids of the keys in one or two columns of one length. New vertices get ids in order of
        first appearance, by rows: the `free` ones, ascending, then those from `limit` on.

        found  what a `finder` of these columns found, which is changed

        Raises as `VertexKeys.lookup`, and OverflowError if ids would exceed 32 bits; nothing is
        changed then.
        """
        state, table = self.state, self.state._table
        known = found.numbers if found is not None and found.table is table else ()
        numbers = table.assign_rows(columns, known)
        if state._number_of is None or state._id_of is None:
            self.state = VertexKeys(table, len(table), removed=state._removed)
            return numbers
        in_rows = np.stack(numbers, axis=1)
        ids = state._id_of.at(in_rows.ravel())
        unknown = np.flatnonzero(ids < 0)
        if len(unknown):
            new, first, which = np.unique(
                in_rows.ravel()[unknown], return_index=True, return_inverse=True
            )
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
        return list(ids.reshape(in_rows.shape).T.copy())

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
