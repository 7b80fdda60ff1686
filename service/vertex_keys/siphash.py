"""SipHash-1-3 as a Numba kernel: with a random seed, clients cannot choose keys that collide
(Aumasson and Bernstein, SipHash: a fast short-input PRF, 2012).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

COMPILED: dict[str, Any] = {"nogil": True, "cache": True}

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_BYTE = np.uint64(8)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def word_at(data: Any, position: Any) -> Any:
    """The 8 bytes at `position` as a little-endian integer: LLVM compiles it to one load."""
    word = np.uint64(data[position])
    for byte in range(1, 8):
        shift = np.uint64(byte)
        word |= np.uint64(data[position + shift]) << (shift * _BYTE)
    return word


@njit(**COMPILED)  # type: ignore[untyped-decorator]
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


@njit(**COMPILED)  # type: ignore[untyped-decorator]
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
        word = word_at(data, position)
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
