"""Weights of edges: which numbers can be one, and those in request bodies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liverank_gpu import LARGEST_WEIGHT, LEAST_WEIGHT
from liverank_service.errors import FormatError
from liverank_service.formats.values import described

EXPECTED_WEIGHT = (
    "a finite number above 0, in the normal range of float32 "
    f"({LEAST_WEIGHT:.2g} to {LARGEST_WEIGHT:.2g})"
)
"""After "expected"."""

UNWEIGHTED = (
    "the graph is unweighted: send edges without weights, or create a graph with the option "
    "weighted"
)


def is_weight(number: Any) -> Any:
    """Whether a number, or each of an array, can be a weight."""
    return (number >= LEAST_WEIGHT) & (number <= LARGEST_WEIGHT)


def weights_of(values: list[Any], field: str, prefix: str = "") -> pa.Array:
    """float32 weights from JSON values. Raises FormatError for the first one that is wrong."""
    if set(map(type, values)) - {float, int}:
        index = next(i for i, value in enumerate(values) if type(value) not in (float, int))
        raise _wrong(values[index], field, index, prefix)
    return _in_range(np.array(list(map(float, values)), np.float64), values, field, prefix)


def weight_column(column: pa.ChunkedArray, field: str) -> pa.Array:
    """float32 weights from a column of numbers. Raises FormatError."""
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise FormatError(field, None, f"expected a column of numbers, got {kind}")
    if column.null_count:
        index = column.is_null().index(True).as_py()
        message = f"expected {EXPECTED_WEIGHT}, got null; give every insertion a weight, or none"
        raise FormatError(field, index, message)
    return _in_range(pc.cast(column, pa.float64(), safe=False).to_numpy(), column, field, "")


def _in_range(numbers: np.ndarray[Any, Any], values: Any, field: str, prefix: str) -> pa.Array:
    wrong = ~is_weight(numbers)
    if wrong.any():
        index = int(np.flatnonzero(wrong)[0])
        value = values[index]
        value = value.as_py() if isinstance(value, pa.Scalar) else value
        raise _wrong(value, field, index, prefix)
    return pa.array(numbers.astype(np.float32))


def _wrong(value: object, field: str, index: int, prefix: str) -> FormatError:
    return FormatError(field, index, f"{prefix}expected {EXPECTED_WEIGHT}, got {described(value)}")
