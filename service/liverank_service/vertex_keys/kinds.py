"""The two kinds of vertex keys, and keys as text."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liverank.choices import KeyKind
from liverank_gpu import InvalidValue

ARROW_TYPES: dict[KeyKind, pa.DataType] = {"string": pa.string(), "integer": pa.int64()}

_INTEGER = r"-?[0-9]{1,19}"


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
