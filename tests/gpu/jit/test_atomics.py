"""Atomic operations of compiled loops: nothing is lost on several threads."""

from __future__ import annotations

import numpy as np
import pytest

from gpu.jit.atomics import compare_and_swap, exchange, fetch_and_add
from gpu.jit.compile import kernel

ITEMS = 100_000


@kernel(100)
def _count(first, last, numbers, counts, marks, listed):  # type: ignore[no-untyped-def]
    for item in range(first, last):
        while True:
            old = numbers[item % 3]
            if compare_and_swap(numbers, item % 3, old, old + 1):
                break
        if exchange(marks, item // 2, np.int32(1)) == 0:
            listed[fetch_and_add(counts, 0, np.int64(1))] = item // 2


@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_nothing_is_lost_and_nothing_happens_twice(dtype: type[np.generic]) -> None:
    numbers, counts = np.zeros(3, dtype), np.zeros(1, np.int64)
    marks, listed = np.zeros(ITEMS // 2, np.int32), np.full(ITEMS // 2, -1)
    _count(ITEMS, numbers, counts, marks, listed)
    assert numbers.tolist() == [33_334, 33_333, 33_333]
    assert counts[0] == ITEMS // 2
    assert sorted(listed) == list(range(ITEMS // 2))
