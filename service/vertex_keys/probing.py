"""The kernels of the hash table in service.vertex_keys.table, which documents its arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from service.vertex_keys.siphash import COMPILED, sip_hash, word_at

# Inlined by Numba rather than LLVM: saves the reference counting of every array at every call.
_INLINED: dict[str, Any] = COMPILED | {"inline": "always"}

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_BYTE = np.uint64(8)
_ID_BITS = np.uint64(32)
ID_MASK = np.uint64(0xFFFFFFFF)
_STRIDE = 8
"""Distance in keys between the steps of prefetching."""


@intrinsic
def _prefetch_line(_context: Any, array: Any, _index: Any) -> Any:
    """Prefetches the cache line of `array[index]`; never faults, whatever the index."""

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


_prefetch: Any = _prefetch_line  # compiled code calls it without the typing context


@njit(**_INLINED)  # type: ignore[untyped-decorator]
def _span(offsets: Any, width: Any, index: Any) -> Any:
    """Start and length in bytes of key `index`; `width` is 0 if `offsets` are used."""
    if width:
        return np.uint64(index * width), np.uint64(width)
    start = offsets[index]
    return np.uint64(start), np.uint64(offsets[index + 1] - start)


@njit(**_INLINED)  # type: ignore[untyped-decorator]
def _same(one: Any, position: Any, other: Any, place: Any, length: Any) -> Any:
    end = position + length
    while position + _BYTE <= end:
        if word_at(one, position) != word_at(other, place):
            return False
        position += _BYTE
        place += _BYTE
    while position < end:
        if one[position] != other[place]:
            return False
        position += _ONE
        place += _ONE
    return True


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def hash_keys(
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
    """The id of the key or -1, and the slot at which the search ended."""
    mask = np.uint64(len(slots) - 1)
    slot = hashed & mask
    while True:
        entry = slots[slot]
        if entry == _ZERO:
            return np.int64(-1), slot
        if entry >> _ID_BITS == hashed:
            candidate = np.int64(entry & ID_MASK) - 1
            if candidate < count:
                start, length = _span(offsets, width, candidate)
                if length == size and _same(arena, start, data, at, size):
                    return candidate, slot
        slot = (slot + _ONE) & mask


@njit(**_INLINED)  # type: ignore[untyped-decorator]
def _fetch_ahead(slots: Any, offsets: Any, arena: Any, width: Any, hashes: Any, i: Any) -> None:
    """Prefetches memory for the keys after `i`: slot, then offset, then bytes.

    In a large table each of the three is a cache miss that depends on the one before; this overlaps
    the misses of several keys.
    """
    mask = np.uint64(len(slots) - 1)
    if i + 3 * _STRIDE < len(hashes):
        _prefetch(slots, hashes[i + 3 * _STRIDE] & mask)
    if i + 2 * _STRIDE < len(hashes):
        entry = slots[hashes[i + 2 * _STRIDE] & mask]
        if entry != _ZERO:
            if width:
                _prefetch(arena, ((entry & ID_MASK) - _ONE) * np.uint64(width))
            else:
                _prefetch(offsets, (entry & ID_MASK) - _ONE)
    if not width and i + _STRIDE < len(hashes):
        entry = slots[hashes[i + _STRIDE] & mask]
        if entry != _ZERO:
            _prefetch(arena, np.uint64(offsets[(entry & ID_MASK) - _ONE]))


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def find(
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
    """Writes the id of each key from `first` on to `ids`, or -1."""
    for i in range(len(hashes)):
        _fetch_ahead(slots, offsets, arena, width, hashes, i)
        start, length = _span(key_offsets, width, first + i)
        ids[first + i], _ = _probe(
            slots, offsets, arena, count, width, hashes[i], key_bytes, start, length
        )


@njit(cache=True)
def find_one(
    slots: Any,
    offsets: Any,
    arena: Any,
    count: Any,
    width: Any,
    key_bytes: Any,
    seed: Any,
    mask: Any,
) -> Any:
    """The id of the key in `key_bytes`, or -1. Keeps the interpreter lock."""
    size = np.uint64(len(key_bytes))
    hashed = (sip_hash(key_bytes, _ZERO, size, seed) >> _ID_BITS) & mask
    found, _ = _probe(slots, offsets, arena, count, width, hashed, key_bytes, _ZERO, size)
    return found


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def add(
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
    """Like `find`, but appends unknown keys, which must fit; returns the new number of keys."""
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


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def refill(slots: Any, count: Any, fresh: Any) -> None:
    """Copies every entry of `slots` with an id below `count` to the empty table `fresh`."""
    mask = np.uint64(len(fresh) - 1)
    for entry in slots:
        if entry != _ZERO and np.int64(entry & ID_MASK) <= count:
            slot = (entry >> _ID_BITS) & mask
            while fresh[slot] != _ZERO:
                slot = (slot + _ONE) & mask
            fresh[slot] = entry


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def clear_from(slots: Any, count: Any) -> None:
    """Empties the slots of ids from `count` on, which must be the last ones added."""
    for i in range(len(slots)):
        if np.int64(slots[i] & ID_MASK) > count:
            slots[i] = _ZERO


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def gather(
    offsets: Any, arena: Any, width: Any, ids: Any, key_offsets: Any, key_bytes: Any
) -> None:
    for i in range(len(ids)):
        start, length = _span(offsets, width, ids[i])
        place = np.uint64(i * width) if width else np.uint64(key_offsets[i])
        for byte in range(length):
            key_bytes[place + np.uint64(byte)] = arena[start + np.uint64(byte)]
