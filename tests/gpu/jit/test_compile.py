"""Compiled loops on all cores: every item once, from any thread, also from Numba's cache."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

from gpu.jit.compile import helper, kernel, on_all_cores, sequential
from gpu.jit.threads import one_parallel_kernel

GRAIN = 8


@kernel(GRAIN)
def _visit(first, last, weights, factor, visits, ends):  # type: ignore[no-untyped-def]
    for item in range(first, last):
        visits[item] += weights[item] * factor
        ends[item] = last


class _Columns(NamedTuple):
    values: Any
    doubled: Any


@kernel(GRAIN)
def _double_columns(first, last, columns):  # type: ignore[no-untyped-def]
    for item in range(first, last):
        columns.doubled[item] = 2.0 * columns.values[item]


@sequential
def _fail_at(first, last, limit, begun):  # type: ignore[no-untyped-def]
    for item in range(first, last):
        begun[item] = 1
        if item == limit:
            raise ValueError


_fail_at_on_all_cores = on_all_cores(_fail_at)


@sequential
def _double(first, last, numbers):  # type: ignore[no-untyped-def]
    for item in range(first, last):
        numbers[item] = _twice(numbers[item])


@helper
def _twice(number):  # type: ignore[no-untyped-def]
    return 2 * number


_double_on_all_cores = on_all_cores(_double)


@sequential
def _double_twice(numbers):  # type: ignore[no-untyped-def]
    _double_on_all_cores(len(numbers), 3, numbers)
    _double_on_all_cores(len(numbers), 5, numbers)


@pytest.mark.parametrize("items", [0, 1, GRAIN, GRAIN + 1, 2 * GRAIN - 1, 2 * GRAIN, 1000, 100_003])
def test_each_item_is_visited_once_in_ranges_of_equal_size(items: int) -> None:
    weights = np.arange(items, dtype=np.float64)
    visits, ends = np.zeros(items), np.zeros(items, np.int64)
    _visit(items, weights, 2.0, visits, ends)
    assert np.array_equal(visits, 2.0 * weights)
    range_ends = (np.arange(items) // GRAIN + 1) * GRAIN
    assert np.array_equal(ends, np.minimum(range_ends, items))


@pytest.mark.parametrize("items", [GRAIN, 1000])
def test_arguments_may_be_named_tuples_of_arrays(items: int) -> None:
    columns = _Columns(np.arange(items, dtype=np.float64), np.zeros(items))
    _double_columns(items, columns)
    assert np.array_equal(columns.doubled, 2.0 * columns.values)


def test_any_number_of_threads_does_the_same() -> None:
    most = numba.get_num_threads()
    try:
        for threads in range(1, most + 1):
            numba.set_num_threads(threads)
            for items in (GRAIN + 1, 50 * GRAIN):
                visits, ends = np.zeros(items), np.zeros(items, np.int64)
                _visit(items, np.ones(items), 1.0, visits, ends)
                assert np.array_equal(visits, np.ones(items))
    finally:
        numba.set_num_threads(most)


def test_loops_run_from_any_thread() -> None:
    items, failed = 100_003, []

    def visit_often() -> None:
        for _ in range(50):
            visits, ends = np.zeros(items), np.zeros(items, np.int64)
            _visit(items, np.ones(items), 1.0, visits, ends)
            if not np.array_equal(visits, np.ones(items)):
                failed.append(visits)

    threads = [threading.Thread(target=visit_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_a_compiled_function_calls_loops_one_after_the_other() -> None:
    numbers = np.arange(1000)
    with one_parallel_kernel:
        _double_twice(numbers)
    assert np.array_equal(numbers, 4 * np.arange(1000))


@pytest.mark.parametrize("limit", [0, 96, 999])
def test_a_failure_on_one_core_is_reported_and_the_others_finish(limit: int) -> None:
    begun = np.zeros(1000, np.int8)
    with one_parallel_kernel:
        with pytest.raises(RuntimeError, match=r"^a compiled loop failed on one of the cores$"):
            _fail_at_on_all_cores(1000, 1, limit, begun)
        assert begun.all()
        _fail_at_on_all_cores(1000, 1, -1, begun)


@pytest.mark.parametrize("layer", ["omp", "workqueue"])
def test_loops_run_in_a_child_of_a_fork(layer: str, tmp_path: Path) -> None:
    """Also in threads of the child, in its own child, and in the parent afterwards."""
    program = """
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
import numba
import numpy as np
from gpu.backends.cpu import apply_kernels
count = 50_000
order = np.random.default_rng(1).permutation(count)
context = multiprocessing.get_context("fork")

def fill(_=None):
    indices = np.zeros(count, np.int32)
    apply_kernels.fill_holes(count, order, np.arange(count, dtype=np.int32), indices, None, None)
    return np.array_equal(indices[order], np.arange(count))

def fill_often(depth):
    with ThreadPoolExecutor(2) as threads:
        filled = [*threads.map(fill, range(4)), fill()]
    if depth:
        child = context.Process(target=lambda: exit(not all(fill_often(depth - 1))))
        child.start()
        child.join()
        filled.append(child.exitcode == 0)
    return filled

print(all(fill_often(2)), fill(), numba.threading_layer())
"""
    environment = {"NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_THREADING_LAYER": layer}
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
    )
    assert ended.stdout == f"True True {layer}\n"


def test_another_process_loads_loops_from_the_cache(tmp_path: Path) -> None:
    program = """
import numpy as np
from gpu.backends.cpu import apply_kernels
count = 50_000
order = np.random.default_rng(1).permutation(count)
indices = np.zeros(count, np.int32)
apply_kernels.fill_holes(count, order, np.arange(count, dtype=np.int32), indices, None, None)
assert np.array_equal(indices[order], np.arange(count))
from numba.core.dispatcher import Dispatcher
cells = [cell.cell_contents for cell in apply_kernels.fill_holes.__closure__]
print(sum(sum(cell.stats.cache_misses.values()) for cell in cells if isinstance(cell, Dispatcher)))
"""
    environment: dict[str, Any] = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    compiled = [
        subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            check=True,
            capture_output=True,
            text=True,
            env=environment,
        ).stdout
        for _ in range(2)
    ]
    # the loop, and the function that runs it on all cores
    assert compiled == ["2\n", "0\n"]
