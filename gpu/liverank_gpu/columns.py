"""Checks of the columns of a batch."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import InvalidValue
from liverank_gpu.native import kernels

LEAST_WEIGHT, LARGEST_WEIGHT = (
    float(limit) for limit in (np.finfo(np.float32).tiny, np.finfo(np.float32).max)
)
"""Weights are normal float32 numbers above 0."""

MOST_HALF_LIVES = 2.0**40
"""Times are at most as many half-lives from 0: then they are exact to 2^-12 half-lives."""


def _aligned(values: Any) -> NDArray[Any]:
    """As kernels take it: not as a part of a message may lie."""
    return np.require(values, requirements=["ALIGNED", "ENSUREARRAY"])


def ids_of(name: str, values: Any, narrow: bool = False) -> Any:
    """integer[n], on the host or the device: int32 there stays so, and here if `narrow` says so;
    others become int64.
    """
    on_device = hasattr(values, "__cuda_array_interface__")
    is_plain = type(values) is np.ndarray and values.flags.aligned
    array = values if on_device or is_plain else _aligned(values)
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise InvalidValue(
            name, f"{array.dtype}{list(array.shape)}", "a one-dimensional integer array"
        )
    if (on_device or narrow) and array.dtype == np.int32:
        return array
    return array.astype(np.int64, copy=False)


_MANY = 1 << 16
"""Ids that several threads look at."""


def highest_of(name: str, ids: Any, limit: int) -> int:
    """The highest of ids, integer[n] on the host or the device; -1 if there are none. Raises
    InvalidValue for one that is negative, or not below the limit.
    """
    if len(ids) == 0:
        return -1
    if isinstance(ids, np.ndarray) and len(ids) >= _MANY and ids.flags.c_contiguous:
        lowest, highest = kernels.extent(ids)
    else:
        lowest, highest = int(ids.min()), int(ids.max())
    if lowest < 0 or highest >= limit:
        bad = int(((ids < 0) | (ids >= limit)).nonzero()[0][0])
        raise InvalidValue(f"{name}[{bad}]", int(ids[bad]), f"an id from 0 to {limit - 1}")
    return int(highest)


def weights_of(
    values: Any,
    count: int,
    beside: str = "insert_sources",
    name: str = "weights",
    first: int = 0,
    whole: bool = False,
) -> Any:
    """float32[count], on the host or the device.

    beside  the column of this length, in messages
    name    of the values, in messages
    first   place of the first one, in messages
    whole   whether infinity is one too
    """
    array = values if hasattr(values, "__cuda_array_interface__") else _aligned(values)
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise InvalidValue(
            name, f"{array.dtype}{list(array.shape)}", "a one-dimensional array of numbers"
        )
    if len(array) != count:
        raise InvalidValue(name, f"length {len(array)}", f"{count} long, as {beside}")
    wrong = ~((array >= LEAST_WEIGHT) & (array <= LARGEST_WEIGHT))
    if whole:
        wrong &= array != np.inf
    if count and wrong.any():
        place = int(wrong.nonzero()[0][0])
        expected = (
            "a finite number above 0, in the normal range of float32 "
            f"({LEAST_WEIGHT:.2g} to {LARGEST_WEIGHT:.2g})"
        )
        expected += ", or infinity" if whole else ""
        raise InvalidValue(f"{name}[{first + place}]", array[place].item(), expected)
    return array.astype(np.float32, copy=False)


def times_of(
    values: Any, count: int, beside: str = "insert_sources", name: str = "times"
) -> NDArray[np.float64]:
    """float64[count], finite, on the host. beside, name: as in `weights_of`"""
    array = _aligned(values)
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise InvalidValue(
            name, f"{array.dtype}{list(array.shape)}", "a one-dimensional array of numbers"
        )
    if len(array) != count:
        raise InvalidValue(name, f"length {len(array)}", f"{count} long, as {beside}")
    wrong = np.flatnonzero(~np.isfinite(array))
    if len(wrong):
        place = int(wrong[0])
        raise InvalidValue(f"{name}[{place}]", array[place].item(), "a finite number of seconds")
    return array.astype(np.float64, copy=False)


def check_rows(field: str, rows: Sequence[Any], sizes: tuple[int, ...]) -> int:
    """The size of all rows. Raises InvalidValue for one of another size, or without integer ids."""
    size = sizes[0]
    for index, row in enumerate(rows):
        try:
            if index == 0 and len(row) in sizes:
                size = len(row)
            is_edge = len(row) == size
            operator.index(row[0]), operator.index(row[1])
        except (TypeError, IndexError):
            is_edge = False
        if not is_edge:
            expected = {2: "(source, target)", 3: "(source, target, weight)"}
            known = expected[size] if index else " or ".join(expected[size] for size in sizes)
            raise InvalidValue(f"{field}[{index}]", row, f"{known} with integers as ids")
    return size
