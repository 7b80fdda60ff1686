"""Checks and messages shared by the formats."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liverank_service.errors import FormatError
from liverank_service.vertex_keys import ARROW_TYPES, KeyKind

ENDS = ("source", "target")
COLUMNS = (*ENDS, "operation")
OPERATIONS = ("insert", "delete", "remove", "replace")
"""Of rows; those that remove a vertex, their source, have no target, and those that replace its
list by nothing.
"""

EXPECTED_KEY: dict[KeyKind, str] = {
    "string": "a non-empty string",
    "integer": "an integer from -2⁶³ to 2⁶³-1",
}
EXPECTED_OPERATION = '"insert", "delete", "remove" or "replace"'
EXPECTED_NOTHING = "nothing, because a row that removes a vertex has no target"

EMPTY = {kind: pa.nulls(0, arrow_type) for kind, arrow_type in ARROW_TYPES.items()}

_PYTHON_TYPES: dict[KeyKind, type] = {"string": str, "integer": int}


def is_key(key: object, kind: KeyKind) -> bool:
    if kind == "string":
        return isinstance(key, str) and key != ""
    return isinstance(key, int) and not isinstance(key, bool) and -(2**63) <= key < 2**63


def check_keys(
    keys: list[Any], kind: KeyKind, place: Callable[[int], tuple[str, int, str]]
) -> None:
    """Checks all keys at once, and one by one only if one of them is wrong.

    place  field, index and prefix of the message for the key at a position
    Raises FormatError for the first key that is wrong.
    """
    expected = _PYTHON_TYPES[kind]
    if not set(map(type, keys)) - {expected}:  # as types, bool is not int
        if expected is str and "" not in keys:
            return
        if expected is int and (not keys or (min(keys) >= -(2**63) and max(keys) < 2**63)):
            return
    for position, key in enumerate(keys):
        if not is_key(key, kind):
            field, index, prefix = place(position)
            message = f"{prefix}expected {EXPECTED_KEY[kind]}, got {described(key)}"
            raise FormatError(field, index, message)


def at_rows(rows: NDArray[np.int64], read: Callable[[], pa.Array]) -> pa.Array:
    """What `read` returns for these rows. Its errors name them, not places among them."""
    try:
        return read()
    except FormatError as error:
        if error.index is None:
            raise
        raise FormatError(error.field, int(rows[error.index]), error.message) from None


def spread(values: pa.Array, given: NDArray[np.bool_]) -> pa.Array:
    """The values in the rows where they are given, null in the others."""
    return values.take(pa.array(np.cumsum(given) - 1, mask=~given))


def refuse_others(
    sources: pa.Array, replaced: pa.Array, field: str, rows: Sequence[int] | None = None
) -> None:
    """Raises FormatError if an edge to insert or delete is of a vertex whose list is replaced.

    rows  the numbers of the edges, if they are not those of `sources`
    """
    if not len(replaced) or not len(sources):
        return
    index = pc.is_in(sources, replaced).index(True).as_py()
    if index >= 0:
        message = (
            "expected no insertion or deletion of an edge from a vertex that the batch replaces, "
            f"got {described(sources[index].as_py())}"
        )
        row = index if rows is None else int(rows[index])
        raise FormatError(field, row, message)


def key_column(keys: list[Any], kind: KeyKind, field: str) -> pa.Array:
    """Raises FormatError."""
    if not keys:
        return EMPTY[kind]
    check_keys(keys, kind, lambda position: (field, position, ""))
    return pa.array(keys, ARROW_TYPES[kind])


def parse_json(body: bytes, field: str, index: int | None, line: int = 1) -> Any:
    """The JSON value. line: number of the first one, for messages. Raises FormatError."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        decode_text(body, field, index, line)  # orjson does not say where the text is not UTF-8
        place = f"line {line + error.lineno - 1}, column {error.colno}"
        raise FormatError(field, index, f"malformed JSON at {place}: {error.msg}") from error


def decode_text(body: bytes, field: str, index: int | None = None, line: int = 1) -> str:
    """The text in UTF-8. Raises FormatError."""
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        before = body[: error.start]
        line += before.count(b"\n")
        byte = error.start - before.rfind(b"\n")
        place = f"line {line}, byte {byte}"
        raise FormatError(field, index, f"not UTF-8 at {place}: {error.reason}") from error


def described(value: object) -> str:
    """A JSON value for messages, shortened."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        shown = value if len(value) <= 40 else f"{value[:40]}…"
        return f"the string {json.dumps(shown, ensure_ascii=False)}"
    return "an array" if isinstance(value, list) else "an object"


def listed(names: list[str] | tuple[str, ...]) -> str:
    if not names:
        return "nothing"
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
