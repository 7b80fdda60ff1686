"""External keys ↔ dense ids: strings or 64-bit integers, numbered in order of first appearance.

A hash table of a few small Numba kernels over plain arrays, because nothing kept fits all needs:

- no Python object per key: a dict of 10⁷ strings takes 1.5 GB, these arrays about 0.4 GB;
- both directions, with ids that are given once and never move (a pandas or Arrow dictionary is
  rebuilt when it grows, a sorted index renumbers);
- readers beside the one writer without a lock, and outside the interpreter lock;
- a batch that is rejected can be taken back.

Layout. Keys lie one after the other in `arena`, in order of their ids; string key `i` is
`arena[offsets[i]:offsets[i + 1]]`, an integer key is 8 bytes at `8 i` and needs no offsets. `slots`
is an open-addressing table with linear probing: each slot is one 64-bit word, the key's 32-bit hash
above and its id + 1 below, 0 when empty. The hash alone places the word, so that the table grows
without touching a key. The hash is SipHash-1-3 under a random key, as in CPython and Rust: who
chooses the keys cannot choose collisions, and ids do not depend on it.

Readers. The arrays and the number of ids are published together, as one tuple. Arrays are only ever
appended to: a slot once filled, a key once written never change. Growth and truncation build new
arrays aside. A reader skips ids at or above the count in its tuple, so what it relies on was
complete when the tuple was published; a key that is being added meanwhile is found or not, never
with a wrong id.
"""

from __future__ import annotations

import secrets
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from gpu.types import VERTEX_LIMIT

KeyKind = Literal["string", "integer"]

ARROW_TYPES: dict[KeyKind, pa.DataType] = {"string": pa.string(), "integer": pa.int64()}

_COMPILED: dict[str, Any] = {"nogil": True, "cache": True}
# Inlined by Numba rather than LLVM: saves the reference counting of every array at every call.
_INLINED: dict[str, Any] = _COMPILED | {"inline": "always"}

_INTEGER_BYTES = 8
_CHUNK = 1 << 16  # keys added between two looks at the room left: bounds what is reserved in vain
_LEAST_SLOTS = 1 << 10
_LEAST_BYTES = 1 << 12

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_BYTE = np.uint64(8)
_ID_BITS = np.uint64(32)
_ID_MASK = np.uint64(0xFFFFFFFF)
_STRIDE = 8  # keys between two steps of fetching ahead


@intrinsic
def _prefetch_line(_context: Any, array: Any, _index: Any) -> Any:
    """Asks for the cache line of `array[index]`; never faults, whatever the index."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.bitcast(builder.gep(view.data, [arguments[1]]), cgutils.voidptr_t)
        integer = ir.IntType(32)
        function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module,
            ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, integer, integer, integer]),
            "llvm.prefetch.p0i8",
        )
        read, keep, data = integer(0), integer(3), integer(1)
        builder.call(function, [address, read, keep, data])
        return context.get_dummy_value()

    return types.void(array, types.uint64), generate


_prefetch: Any = _prefetch_line  # as compiled code calls it: without the typing context


@njit(**_COMPILED)  # type: ignore[untyped-decorator]
def _word(data: Any, position: Any) -> Any:
    """The 8 bytes at `position` as a little-endian integer: LLVM makes one load of it."""
    word = np.uint64(data[position])
    for byte in range(1, 8):
        shift = np.uint64(byte)
        word |= np.uint64(data[position + shift]) << (shift * _BYTE)
    return word


@njit(**_COMPILED)  # type: ignore[untyped-decorator]
def _sip_round(v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
    v0 += v1
    v2 += v3
    v1 = ((v1 << np.uint64(13)) | (v1 >> np.uint64(51))) ^ v0
    v3 = ((v3 << np.uint64(16)) | (v3 >> np.uint64(48))) ^ v2
    v0 = (v0 << np.uint64(32)) | (v0 >> np.uint64(32))
    v2 += v1
    v0 += v3
    v1 = ((v1 << np.uint64(17)) | (v1 >> np.uint64(47))) ^ v2
    v3 = ((v3 << np.uint64(21)) | (v3 >> np.uint64(43))) ^ v0
    v2 = (v2 << np.uint64(32)) | (v2 >> np.uint64(32))
    return v0, v1, v2, v3


@njit(**_COMPILED)  # type: ignore[untyped-decorator]
def sip_hash(data: Any, start: Any, length: Any, seed: Any) -> Any:
    """SipHash-1-3 of `data[start:start + length]` (uint8) under `seed` (uint64[2]); uint64."""
    v0 = seed[0] ^ np.uint64(0x736F6D6570736575)
    v1 = seed[1] ^ np.uint64(0x646F72616E646F6D)
    v2 = seed[0] ^ np.uint64(0x6C7967656E657261)
    v3 = seed[1] ^ np.uint64(0x7465646279746573)
    position = np.uint64(start)
    size = np.uint64(length)
    end = position + size
    while position + _BYTE <= end:
        word = _word(data, position)
        v3 ^= word
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0 ^= word
        position += _BYTE
    word = size << np.uint64(56)
    shift = _ZERO
    while position < end:
        word |= np.uint64(data[position]) << shift
        shift += _BYTE
        position += _ONE
    v3 ^= word
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= np.uint64(0xFF)
    for _ in range(3):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


@njit(**_INLINED)  # type: ignore[untyped-decorator]
def _span(offsets: Any, width: Any, index: Any) -> Any:
    """Where key `index` begins and how many bytes it has; `width` 0 means that `offsets` say it."""
    if width:
        return np.uint64(index * width), np.uint64(width)
    start = offsets[index]
    return np.uint64(start), np.uint64(offsets[index + 1] - start)


@njit(**_INLINED)  # type: ignore[untyped-decorator]
def _same(one: Any, position: Any, other: Any, place: Any, length: Any) -> Any:
    end = position + length
    while position + _BYTE <= end:
        if _word(one, position) != _word(other, place):
            return False
        position += _BYTE
        place += _BYTE
    while position < end:
        if one[position] != other[place]:
            return False
        position += _ONE
        place += _ONE
    return True


@njit(**_COMPILED)  # type: ignore[untyped-decorator]
def _hash_keys(
    key_offsets: Any, key_bytes: Any, width: Any, first: Any, seed: Any, mask: Any, hashes: Any
) -> None:
    for i in range(len(hashes)):
        start, length = _span(key_offsets, width, first + i)
        hashes[i] = (sip_hash(key_bytes, start, length, seed) >> _ID_BITS) & mask


@njit(**_INLINED)  # type: ignore[untyped-decorator]
def _probe(
    slots: Any,
    offsets: Any,
    arena: Any,
    count: Any,
    width: Any,
    hashed: Any,
    data: Any,
    at: Any,
    size: Any,
) -> Any:
    """The id of the key, or -1; and the slot that ended the search."""
    mask = np.uint64(len(slots) - 1)
    slot = hashed & mask
    while True:
        entry = slots[slot]
        if entry == _ZERO:
            return np.int64(-1), slot
        if entry >> _ID_BITS == hashed:
            candidate = np.int64(entry & _ID_MASK) - 1
            if candidate < count:
                start, length = _span(offsets, width, candidate)
                if length == size and _same(arena, start, data, at, size):
                    return candidate, slot
        slot = (slot + _ONE) & mask


@njit(**_INLINED)  # type: ignore[untyped-decorator]
def _fetch_ahead(slots: Any, offsets: Any, arena: Any, width: Any, hashes: Any, i: Any) -> None:
    """Starts on the memory of the keys after `i`: first slot, then offset, then bytes.

    In a large table each of the three is a cache miss that waits for the one before; so the misses
    of several keys are under way at once.
    """
    mask = np.uint64(len(slots) - 1)
    if i + 3 * _STRIDE < len(hashes):
        _prefetch(slots, hashes[i + 3 * _STRIDE] & mask)
    if i + 2 * _STRIDE < len(hashes):
        entry = slots[hashes[i + 2 * _STRIDE] & mask]
        if entry != _ZERO:
            if width:
                _prefetch(arena, ((entry & _ID_MASK) - _ONE) * np.uint64(width))
            else:
                _prefetch(offsets, (entry & _ID_MASK) - _ONE)
    if not width and i + _STRIDE < len(hashes):
        entry = slots[hashes[i + _STRIDE] & mask]
        if entry != _ZERO:
            _prefetch(arena, np.uint64(offsets[(entry & _ID_MASK) - _ONE]))


@njit(**_COMPILED)  # type: ignore[untyped-decorator]
def _find(
    slots: Any,
    offsets: Any,
    arena: Any,
    count: Any,
    width: Any,
    key_offsets: Any,
    key_bytes: Any,
    first: Any,
    hashes: Any,
    ids: Any,
) -> None:
    """Writes to `ids` the id of each key from `first` on, or -1."""
    for i in range(len(hashes)):
        _fetch_ahead(slots, offsets, arena, width, hashes, i)
        start, length = _span(key_offsets, width, first + i)
        ids[first + i], _ = _probe(
            slots, offsets, arena, count, width, hashes[i], key_bytes, start, length
        )


@njit(**_COMPILED)  # type: ignore[untyped-decorator]
def _add(
    slots: Any,
    offsets: Any,
    arena: Any,
    count: Any,
    width: Any,
    key_offsets: Any,
    key_bytes: Any,
    first: Any,
    hashes: Any,
    ids: Any,
) -> Any:
    """As `_find`, but appends unknown keys; returns the new number of keys. There is room."""
    for i in range(len(hashes)):
        _fetch_ahead(slots, offsets, arena, width, hashes, i)
        start, length = _span(key_offsets, width, first + i)
        found, slot = _probe(
            slots, offsets, arena, count, width, hashes[i], key_bytes, start, length
        )
        if found < 0:
            found = count
            end = np.uint64(count * width) if width else np.uint64(offsets[count])
            for byte in range(length):
                arena[end + np.uint64(byte)] = key_bytes[start + np.uint64(byte)]
            if not width:
                offsets[count + 1] = np.int64(end + length)
            count += 1
            slots[slot] = (hashes[i] << _ID_BITS) | np.uint64(count)
        ids[first + i] = found
    return count


@njit(**_COMPILED)  # type: ignore[untyped-decorator]
def _refill(slots: Any, count: Any, fresh: Any) -> None:
    """Enters into the empty table `fresh` every entry of `slots` with an id below `count`."""
    mask = np.uint64(len(fresh) - 1)
    for entry in slots:
        if entry != _ZERO and np.int64(entry & _ID_MASK) <= count:
            slot = (entry >> _ID_BITS) & mask
            while fresh[slot] != _ZERO:
                slot = (slot + _ONE) & mask
            fresh[slot] = entry


@njit(**_COMPILED)  # type: ignore[untyped-decorator]
def _clear_from(slots: Any, count: Any) -> None:
    """Empties the slots of ids from `count` on, which must be the last that were entered."""
    for i in range(len(slots)):
        if np.int64(slots[i] & _ID_MASK) > count:
            slots[i] = _ZERO


@njit(**_COMPILED)  # type: ignore[untyped-decorator]
def _gather(
    offsets: Any, arena: Any, width: Any, ids: Any, key_offsets: Any, key_bytes: Any
) -> None:
    for i in range(len(ids)):
        start, length = _span(offsets, width, ids[i])
        place = np.uint64(i * width) if width else np.uint64(key_offsets[i])
        for byte in range(length):
            key_bytes[place + np.uint64(byte)] = arena[start + np.uint64(byte)]


class _State(NamedTuple):
    """What a reader needs, published at once.

    slots    uint64[a power of two], at most two thirds full
    offsets  int64[≥ count + 1] for strings, [0] for integers
    arena    uint8[…]
    size     the number of ids
    """

    slots: NDArray[np.uint64]
    offsets: NDArray[np.int64]
    arena: NDArray[np.uint8]
    size: int


class _Keys(NamedTuple):
    """An Arrow array as the kernels take it.

    offsets  int32[size + 1] into `data` for strings, [0] for integers
    data     uint8[…], read-only
    size     the number of keys
    """

    offsets: NDArray[np.int32]
    data: NDArray[np.uint8]
    size: int


class KeyCut(NamedTuple):
    """The keys of one moment: the writer goes on in the same arrays, behind them."""

    kind: KeyKind
    seed: NDArray[np.uint64]
    state: _State

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What `KeyTable.restored` takes: seed, slots, offsets and arena, without room to spare.

        A copy of the slots is made, for they hold entries of later keys too.
        """
        slots, offsets, arena, size = self.state
        own = slots.copy()
        _clear_from(own, size)
        used = size * _INTEGER_BYTES if self.kind == "integer" else int(offsets[size])
        kept = offsets[: 0 if self.kind == "integer" else size + 1]
        return {"seed": self.seed, "slots": own, "offsets": kept, "arena": arena[:used]}


class KeyTable:
    """External keys ↔ dense ids, in order of first appearance.

    One writer (`assign`, `truncate`); any number of reader threads see every id below the `len`
    that they read before. Keys are compared as the exact UTF-8 bytes, or as 64-bit integers.
    """

    _hash_mask = _ID_MASK

    def __init__(self, kind: KeyKind) -> None:
        if kind not in ARROW_TYPES:
            raise ValueError(f"kind: {kind!r} is not known; 'string' and 'integer' are")
        self.kind: KeyKind = kind
        self._width = _INTEGER_BYTES if kind == "integer" else 0
        self._seed = np.array([secrets.randbits(64), secrets.randbits(64)], np.uint64)
        self._state = _State(
            np.zeros(_LEAST_SLOTS, np.uint64),
            np.zeros(0 if self._width else _LEAST_SLOTS, np.int64),
            np.empty(_LEAST_BYTES, np.uint8),
            0,
        )

    def __len__(self) -> int:
        """The number of keys; their ids are 0 … len - 1."""
        return self._state.size

    def cut(self) -> KeyCut:
        """The keys of this moment; called by the writer, read by any thread."""
        return KeyCut(self.kind, self._seed, self._state)

    @classmethod
    def restored(cls, kind: KeyKind, size: int, arrays: dict[str, NDArray[Any]]) -> KeyTable:
        """The table of `KeyCut.arrays`, which it takes over: the slots must be writable."""
        table = cls(kind)
        table._seed = arrays["seed"]
        table._state = _State(arrays["slots"], arrays["offsets"], arrays["arena"], size)
        return table

    def lookup(self, keys: pa.Array) -> NDArray[np.int64]:
        """The id of each key, -1 where it is unknown: int64[len(keys)]. Adds nothing.

        Raises TypeError for an array that is not of the table's kind, ValueError for nulls.
        """
        state = self._state
        columns = self._columns(keys)
        ids = np.empty(columns.size, np.int64)
        for first in range(0, columns.size, _CHUNK):
            hashes = self._hashes(columns, first)
            _find(*state, self._width, columns.offsets, columns.data, first, hashes, ids)
        return ids

    def assign(self, keys: pa.Array) -> NDArray[np.int64]:
        """The id of each key: int64[len(keys)]. Unknown ones get the next ids, as they appear.

        Raises as `lookup` does, and OverflowError where ids would leave 32 bits; the table is then
        as it was.
        """
        columns = self._columns(keys)
        ids = np.empty(columns.size, np.int64)
        state = published = self._state
        try:
            for first in range(0, columns.size, _CHUNK):
                hashes = self._hashes(columns, first)
                state = self._with_room(state, columns, first, len(hashes))
                size = _add(*state, self._width, columns.offsets, columns.data, first, hashes, ids)
                state = state._replace(size=size)
                if size > VERTEX_LIMIT:
                    raise OverflowError(f"a graph has at most {VERTEX_LIMIT:,} vertices")
        except BaseException:
            # Left there, the entries of this call would fill the table. They are the last that came
            # in and no reader heeds them, so without them every older one is found as before.
            _clear_from(published.slots, published.size)
            raise
        self._state = state
        return ids

    def truncate(self, count: int) -> None:
        """Forgets the ids from `count` on, so that a rejected batch leaves no trace."""
        state = self._state
        if not 0 <= count <= state.size:
            raise ValueError(f"count: {count} is not from 0 to {state.size}, the number of keys")
        if count == state.size:
            return
        slots = np.zeros_like(state.slots)
        _refill(state.slots, count, slots)
        # Copies: a reader may still be comparing keys whose place the next ones take.
        offsets = _copied(state.offsets, 0 if self._width else count + 1)
        arena = _copied(state.arena, count * self._width if self._width else int(offsets[count]))
        self._state = _State(slots, offsets, arena, count)

    def keys(self, ids: NDArray[np.int64]) -> pa.Array:
        """The key of each id, as an Arrow array of the table's kind.

        Raises IndexError for an id that the table does not have, and OverflowError for more than
        2 GiB of strings at once, which an Arrow string array cannot hold.
        """
        state = self._state
        wanted = np.ascontiguousarray(ids, np.int64)
        outside = np.flatnonzero((wanted < 0) | (wanted >= state.size))
        if len(outside):
            index = int(outside[0])
            raise IndexError(f"ids[{index}]: {wanted[index]} is not from 0 to {state.size - 1}")
        count = len(wanted)
        if self._width:
            data = np.empty(count * self._width, np.uint8)
            key_offsets = np.empty(0, np.int32)
            buffers = [None, pa.py_buffer(data)]
        else:
            ends = np.cumsum(state.offsets[wanted + 1] - state.offsets[wanted])
            if count and ends[-1] > np.iinfo(np.int32).max:
                raise OverflowError(f"{ends[-1]:,} bytes of keys: ask for fewer ids at once")
            key_offsets = np.zeros(count + 1, np.int32)
            key_offsets[1:] = ends
            data = np.empty(key_offsets[-1], np.uint8)
            buffers = [None, pa.py_buffer(key_offsets), pa.py_buffer(data)]
        _gather(state.offsets, state.arena, self._width, wanted, key_offsets, data)
        return pa.Array.from_buffers(ARROW_TYPES[self.kind], count, buffers, null_count=0)

    def nbytes(self) -> int:
        """Bytes held by the table's arrays, room for growth included."""
        state = self._state
        return state.slots.nbytes + state.offsets.nbytes + state.arena.nbytes

    def _columns(self, keys: pa.Array) -> _Keys:
        expected = ARROW_TYPES[self.kind]
        if not isinstance(keys, pa.Array) or keys.type != expected:
            got = getattr(keys, "type", type(keys).__name__)
            raise TypeError(f"keys: an Arrow array of {expected} is due, got {got}")
        if keys.null_count:
            raise ValueError(f"keys: {keys.null_count} of {len(keys)} are null")
        count, offset = len(keys), keys.offset
        buffers = keys.buffers()
        data = _read_only(buffers[-1], np.dtype(np.uint8))
        if self._width:
            size = self._width
            return _Keys(
                np.empty(0, np.int32), data[offset * size : (offset + count) * size], count
            )
        offsets = _read_only(buffers[1], np.dtype(np.int32))[offset : offset + count + 1]
        return _Keys(offsets, data, count)

    def _hashes(self, keys: _Keys, first: int) -> NDArray[np.uint64]:
        hashes = np.empty(min(_CHUNK, keys.size - first), np.uint64)
        _hash_keys(keys.offsets, keys.data, self._width, first, self._seed, self._hash_mask, hashes)
        return hashes

    def _with_room(self, state: _State, keys: _Keys, first: int, added: int) -> _State:
        """`state`, with room for the `added` keys from `first` on, were they all new."""
        count = state.size + added
        slots, offsets, arena = state.slots, state.offsets, state.arena
        if self._width:
            used = state.size * self._width
            needed = count * self._width
        else:
            used = int(offsets[state.size])
            needed = used + int(keys.offsets[first + added]) - int(keys.offsets[first])
            offsets = _grown(offsets, state.size + 1, count + 1)
        arena = _grown(arena, used, needed)
        if 3 * count > 2 * len(slots):
            slots = np.zeros(1 << (3 * count // 2).bit_length(), np.uint64)
            _refill(state.slots, state.size, slots)
        return _State(slots, offsets, arena, state.size)


def _grown(array: NDArray[Any], used: int, needed: int) -> NDArray[Any]:
    """`array` if it has `needed` items, or a copy of its first `used` ones with room for more."""
    if needed <= len(array):
        return array
    return _copied(array, used, max(needed, len(array) * 3 // 2))


def _copied(array: NDArray[Any], used: int, room: int = 0) -> NDArray[Any]:
    """A copy of the first `used` items, as large as `array` or with `room` for more."""
    copy = np.empty(max(room, len(array)), array.dtype)
    copy[:used] = array[:used]
    return copy


def _read_only(buffer: pa.Buffer | None, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The buffer's items, always read-only: Numba compiles anew for a writable array."""
    items = np.frombuffer(b"" if buffer is None else buffer, dtype)
    items.flags.writeable = False
    return items
