"""Times of edges, in request bodies and in files."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liverank.choices import Clock
from liverank_gpu import MOST_HALF_LIVES
from liverank_service.errors import FormatError
from liverank_service.formats.values import described

MAX_AHEAD: dict[Clock, float] = {"wall": 60.0, "event": 86_400.0}
"""Seconds that a time may be ahead of the server's clock, unless the graph says otherwise. By the
clock ``event``, one wrong time far ahead would make all other edges too old.
"""

EXPECTED_TIME = "a finite number, in Unix seconds"
EXPECTED_TEXTS = "or ISO 8601 timestamps in all rows"
UNTIMED = (
    "the edges of the graph have no times: send them without, or create a graph with the option "
    "half_life or window"
)
NEEDS_TIME = f"the graph has the clock event: give every insertion a time, {EXPECTED_TIME}"

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

_KINDS_OF_TEXTS = (pa.float64(), pa.timestamp("ns", "UTC"), pa.timestamp("ns"))


@dataclass(frozen=True, slots=True)
class TimeRule:
    """What the times of a batch must be.

    clock      by ``wall``, insertions without a time have `now`; by ``event`` all need one
    now        Unix seconds
    max_ahead  seconds that a time may be ahead of `now`
    farthest   seconds from 0 that a time may have
    """

    clock: Clock
    now: float
    max_ahead: float
    farthest: float = math.inf

    @property
    def decays(self) -> bool:
        """Whether the graph has a half_life."""
        return math.isfinite(self.farthest)

    @classmethod
    def of(
        cls, clock: Clock, half_life: float | None, now: float, max_ahead: float | None = None
    ) -> TimeRule:
        """now: Unix seconds; max_ahead: None for that of the clock"""
        farthest = math.inf if half_life is None else half_life * MOST_HALF_LIVES
        return cls(clock, now, MAX_AHEAD[clock] if max_ahead is None else max_ahead, farthest)


def times_of(values: list[Any], field: str, rule: TimeRule | None, prefix: str = "") -> pa.Array:
    """float64 times from JSON values. rule: None if all are taken, as in the journal.

    Raises FormatError for the first one that is wrong.
    """
    if set(map(type, values)) - {float, int}:
        index = next(i for i, value in enumerate(values) if type(value) not in (float, int))
        raise _wrong(values[index], field, index, prefix)
    return _checked(np.array(list(map(float, values)), np.float64), values, field, rule, prefix)


def time_column(column: pa.ChunkedArray, field: str, rule: TimeRule | None) -> pa.Array:
    """float64 times from a column of numbers or timestamps. Raises FormatError."""
    kind = column.type
    if not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise FormatError(field, None, f"expected a column of numbers or timestamps, got {kind}")
    if column.null_count:
        index = column.is_null().index(True).as_py()
        message = f"expected {EXPECTED_TIME}, got null; give every insertion a time, or none"
        raise FormatError(field, index, message)
    seconds = unix_seconds(column)
    values = seconds.tolist() if pa.types.is_timestamp(kind) else column
    return _checked(seconds, values, field, rule, "")


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


def _checked(
    seconds: np.ndarray[Any, Any], values: Any, field: str, rule: TimeRule | None, prefix: str
) -> pa.Array:
    infinite = np.flatnonzero(~np.isfinite(seconds))
    if len(infinite):
        index = int(infinite[0])
        raise _wrong(_item(values, index), field, index, prefix)
    if rule is not None:
        far = np.flatnonzero(np.abs(seconds) > rule.farthest)
        if len(far):
            index = int(far[0])
            got = described(_item(values, index))
            raise FormatError(field, index, f"{prefix}{too_far(rule)}, got {got}")
        ahead = np.flatnonzero(seconds > rule.now + rule.max_ahead)
        if len(ahead):
            index = int(ahead[0])
            message = (
                f"{prefix}expected a time at most {rule.max_ahead:g} s (max_time_ahead) ahead of "
                f"the server's clock, which is at {rule.now:.3f}, "
                f"got {described(_item(values, index))}"
            )
            raise FormatError(field, index, message)
    return pa.array(seconds)


def too_far(rule: TimeRule) -> str:
    return f"expected a time within 2⁴⁰ half-lives of 0, {rule.farthest} s"


def _item(values: Any, index: int) -> object:
    value = values[index]
    return value.as_py() if isinstance(value, pa.Scalar) else value


def _wrong(value: object, field: str, index: int, prefix: str) -> FormatError:
    return FormatError(field, index, f"{prefix}expected {EXPECTED_TIME}, got {described(value)}")
