"""The largest entries of vectors and of columns, against sorts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from liverank_gpu.backends.cuda import kernels_of
from liverank_gpu.operations.backend import Backend
from tests.gpu.doubles import looked_after

pytestmark = pytest.mark.reference


@pytest.mark.parametrize("kind", ["spread", "tied", "negative", "descending", "of one group"])
def test_the_largest_are_found(kind: str, backend: Backend) -> None:
    random, count = np.random.default_rng(4), 20_000
    values = random.random(count) * np.exp(-20.0 * random.random(count))
    if kind == "tied":
        values = np.round(random.random(count), 3)
    elif kind == "negative":
        values = np.where(random.random(count) < 1e-3, random.random(count), -random.random(count))
        values[::7], values[1::7], values[2::7] = -np.inf, 0.0, -0.0
    elif kind == "descending":
        values = np.sort(values)[::-1].copy()
    elif kind == "of one group":
        values[:: 1 << 10] += 1.0
    ids = random.permutation(count).astype(np.int32)
    for k in (0, 1, 5, 100, 9_000, count):
        expected = np.lexsort((ids, -values))[:k]
        found, best = backend.select.top_k(
            backend.device.to_device(values), k, backend.device.to_device(ids).__getitem__
        )
        assert found.tolist() == ids[expected].tolist()
        assert best.tolist() == values[expected].tolist()
        assert found.dtype == np.int64
        assert best.dtype == np.float64


@pytest.mark.parametrize("rows", [60, 5_000])
def test_the_largest_of_columns_are_found(rows: int, backend: Backend) -> None:
    random, columns = np.random.default_rng(5), backend.multivector.column_count(8)
    values = random.random((rows, columns)) * np.exp(-20.0 * random.random((rows, columns)))
    values[:, 2] = 0.0
    values[3::11, 2] = 1.0
    counts = np.array([5, 1, 40, 0, rows, 50, 60])
    for column, (ids, best) in enumerate(
        backend.select.top_k_columns(backend.device.to_device(values), counts)
    ):
        expected = np.argsort(-values[:, column], kind="stable")[: counts[column]]
        assert ids.tolist() == expected.tolist()
        assert best.tolist() == values[expected, column].tolist()


def test_ties_of_columns_are_in_the_order_of_ids(backend: Backend) -> None:
    random, rows = np.random.default_rng(8), 20_000
    columns = backend.multivector.column_count(8)
    values, ids = np.zeros((rows, columns)), random.permutation(rows).astype(np.int32)
    for column, above in enumerate((0, 3, 40, 9_000)):
        values[random.permutation(rows)[:above], column] = random.random(above) + 0.5
    values[:, 4], values[::2, 5], values[::3, 6] = -np.inf, -0.0, -1e-9
    values[random.permutation(rows)[:100], 4] = 1.0
    counts = np.array([20, 20, 20, 20, 60, 50, 0, 20])
    found = backend.select.top_k_columns(
        backend.device.to_device(values), counts, backend.device.to_device(ids).__getitem__
    )
    for column, (listed, best) in enumerate(found):
        expected = np.lexsort((ids, -values[:, column]))[: counts[column]]
        assert listed.tolist() == ids[expected].tolist()
        assert best.tolist() == values[expected, column].tolist()


def test_all_entries_are_found_with_little_room(backend: Backend) -> None:
    if backend.name != "cuda":
        pytest.skip("a CPU has no lists of a fixed length")
    backend, device = looked_after(backend)
    values, taken = np.random.default_rng(6).random(20_000), list[int]()
    kernels = kernels_of(backend)["select"]
    list_largest = kernels["list_largest"]

    def listing(grid: Any, block: Any, args: tuple[Any, ...], *, shared_mem: int = 0) -> None:
        taken.extend(each.size for each in args[-3:-1])
        list_largest(grid, block, args, shared_mem=shared_mem)

    kernels["list_largest"] = listing
    ids, _ = backend.select.top_k(device.to_device(values), len(values))
    assert ids.tolist() == np.argsort(-values).tolist()
    assert taken == [len(values)] * 2  # positions and entries, once


def test_of_many_equal_entries_few_are_copied(backend: Backend) -> None:
    backend, device = looked_after(backend)
    copied: list[int] = []
    device.copying = lambda array: copied.append(len(array))
    values = device.to_device(np.ones(50_000))
    ids, _ = backend.select.top_k(values, 3, lambda positions: 49_999 - positions)
    assert ids.tolist() == [0, 1, 2]
    assert max(copied) < 10_000
