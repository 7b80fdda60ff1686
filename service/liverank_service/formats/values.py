"""Keys, weights and times in request bodies and files: what can be one, and what messages say."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liverank.choices import Clock, KeyKind
from liverank_gpu import LARGEST_WEIGHT, LEAST_WEIGHT
from liverank_service.errors import FormatError
from liverank_service.vertex_keys import ARROW_TYPES

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


EXPECTED_WEIGHT = (
    "a finite number above 0, in the normal range of float32 "
    f"({LEAST_WEIGHT:.2g} to {LARGEST_WEIGHT:.2g})"
)
"""After "expected"."""

UNWEIGHTED = (
    "the graph is unweighted: send edges without weights, or create a graph with the option "
    "weighted"
)


def weights_or_1(weights: pa.Array | None, count: int) -> pa.Array:
    """The weights of so many insertions: 1 if none are given."""
    return pa.array(np.ones(count, np.float32)) if weights is None else weights


def is_weight(number: Any) -> Any:
    """Whether a number, or each of an array, can be a weight."""
    return (number >= LEAST_WEIGHT) & (number <= LARGEST_WEIGHT)


def weights_of(values: list[Any] | pa.ChunkedArray, field: str, prefix: str = "") -> pa.Array:
    """float32 weights from JSON values, or from a column of numbers. Raises FormatError for the
    first one that is wrong.
    """
    numbers = _numbers_of(values, field, "weight", EXPECTED_WEIGHT, prefix)
    for index in np.flatnonzero(~is_weight(numbers))[:1].tolist():
        got = _described_at(values, numbers, index)
        raise FormatError(field, index, f"{prefix}expected {EXPECTED_WEIGHT}, got {got}")
    return pa.array(numbers.astype(np.float32))


EXPECTED_TIME = "a finite number, in Unix seconds"
EXPECTED_TEXTS = "or ISO 8601 timestamps in all rows"

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

_KINDS_OF_TEXTS = (pa.float64(), pa.timestamp("ns", "UTC"), pa.timestamp("ns"))


@dataclass(frozen=True, slots=True)
class TimeRule:
    """What the times of a batch must be.

    clock      by ``wall``, insertions without a time have `now`; by ``event`` all need one
    now        Unix seconds
    max_ahead  seconds that a time may be ahead of `now`
    farthest   seconds from 0 that a time may have; infinite where weights stay
    """

    clock: Clock
    now: float
    max_ahead: float
    farthest: float

    @property
    def decays(self) -> bool:
        """Whether weights decay."""
        return math.isfinite(self.farthest)


def times_of(
    values: list[Any] | pa.ChunkedArray, field: str, rule: TimeRule | None, prefix: str = ""
) -> pa.Array:
    """float64 times from JSON values, or from a column of numbers or timestamps. rule: None if all
    are taken, as in the journal.

    Raises FormatError for the first one that is wrong.
    """
    seconds = _numbers_of(values, field, "time", EXPECTED_TIME, prefix)
    refused = [(~np.isfinite(seconds), f"expected {EXPECTED_TIME}")]
    if rule is not None:
        ahead = (
            f"expected a time at most {rule.max_ahead:g} s (max_time_ahead) ahead of "
            f"the server's clock, which is at {rule.now:.3f}"
        )
        refused += [
            (np.abs(seconds) > rule.farthest, too_far(rule)),
            (seconds > rule.now + rule.max_ahead, ahead),
        ]
    for wrong, expected in refused:
        for index in np.flatnonzero(wrong)[:1].tolist():
            got = _described_at(values, seconds, index)
            raise FormatError(field, index, f"{prefix}{expected}, got {got}")
    return pa.array(seconds)


def _numbers_of(
    values: list[Any] | pa.ChunkedArray, field: str, name: str, expected: str, prefix: str
) -> NDArray[np.float64]:
    """name: ``weight`` or ``time``; timestamps are in Unix seconds. Raises FormatError."""
    if isinstance(values, list):
        if set(map(type, values)) - {float, int}:
            index = next(i for i, value in enumerate(values) if type(value) not in (float, int))
            got = described(values[index])
            raise FormatError(field, index, f"{prefix}expected {expected}, got {got}")
        return np.array(list(map(float, values)), np.float64)
    kind, accepted = values.type, "numbers or timestamps" if name == "time" else "numbers"
    is_timestamp = name == "time" and pa.types.is_timestamp(kind)
    if not (is_timestamp or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise FormatError(field, None, f"expected a column of {accepted}, got {kind}")
    if values.null_count:
        index = values.is_null().index(True).as_py()
        message = f"expected {expected}, got null; give every insertion a {name}, or none"
        raise FormatError(field, index, message)
    return unix_seconds(values)


def _described_at(values: list[Any] | pa.ChunkedArray, numbers: NDArray[Any], index: int) -> str:
    """The value in messages; a timestamp as its number."""
    if isinstance(values, list):
        return described(values[index])
    is_timestamp = pa.types.is_timestamp(values.type)
    return described(numbers[index].item() if is_timestamp else values[index].as_py())


def unix_seconds(column: pa.Array | pa.ChunkedArray) -> NDArray[np.float64]:
    """Numbers, unchanged, or timestamps of any unit and zone, none of them null. Raises
    pa.ArrowInvalid or pa.ArrowNotImplementedError for a column of another type.
    """
    if not pa.types.is_timestamp(column.type):
        return np.asarray(pc.cast(column, pa.float64(), safe=False))
    # whole seconds first: nanoseconds since 1970 exceed the precision of a float64
    per_second = _PER_SECOND[column.type.unit]
    whole, part = np.divmod(np.asarray(column.cast(pa.int64())), per_second)
    seconds: NDArray[np.float64] = whole + part / per_second
    return seconds


def parsed_times(texts: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray | None:
    """Texts as numbers, or as ISO 8601 timestamps: all with a zone, or all without. None if they
    are neither.
    """
    for kind in _KINDS_OF_TEXTS:
        with contextlib.suppress(pa.ArrowInvalid):
            return texts.cast(kind)
    return None


def too_far(rule: TimeRule) -> str:
    return f"expected a time within 2⁴⁰ half-lives of 0, {rule.farthest} s"
