"""The two kinds of vertex keys, and keys as text."""

from __future__ import annotations

import re
from typing import Literal

import pyarrow as pa

from gpu import InvalidValue

KeyKind = Literal["string", "integer"]

ARROW_TYPES: dict[KeyKind, pa.DataType] = {"string": pa.string(), "integer": pa.int64()}

_INTEGER = re.compile(r"-?[0-9]{1,19}")


def key_from_text(text: str, kind: KeyKind, field: str = "vertex") -> str | int:
    """The key written as text in a path or a member name. Raises InvalidValue for `field`."""
    if kind == "integer":
        if _INTEGER.fullmatch(text) is None or not -(2**63) <= int(text) < 2**63:
            raise InvalidValue(field, text, "a signed 64-bit integer, like the graph's keys")
        return int(text)
    if not text:
        raise InvalidValue(field, text, "a key with at least one character")
    return text
