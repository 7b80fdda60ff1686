"""Large columns on their way to the device and back."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import VERTEX_LIMIT, EdgeBatch, Engine, InvalidValue, Options, rank_once
from liverank_gpu.backends.cuda.device import CudaDevice
from liverank_gpu.native import in_numpy, kernels
from tests.cuda_emulator.emulated import emulated_backend

LARGE = 7_000_001
"""Ids that take four pieces: one is used twice."""


@pytest.fixture(scope="module")
def device() -> CudaDevice:
    backend = emulated_backend()
    assert isinstance(backend.device, CudaDevice)
    return backend.device


def _ids(count: int, dtype: type[np.signedinteger[Any]]) -> NDArray[Any]:
    ids = np.random.default_rng(3).integers(0, VERTEX_LIMIT, count, dtype=dtype)
    ids[:: max(1, count // 3)] = -1
    if dtype is np.int64 and count:
        ids[-1] = 1 << 40
    return ids


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("count", [0, 1, 1000, LARGE])
def test_ids_that_no_graph_has_become_one(
    device: CudaDevice, count: int, dtype: type[np.signedinteger[Any]]
) -> None:
    ids = _ids(count, dtype)
    unknown = (ids < 0) | (ids >= VERTEX_LIMIT)
    expected = np.where(unknown, VERTEX_LIMIT, ids).astype(np.int32)
    assert np.array_equal(device.narrowed(ids), expected)
    assert np.array_equal(device.narrowed(np.repeat(ids, 2)[::2]), expected)
    narrowed = np.empty(count, np.int32)
    in_numpy.narrow(ids, narrowed)
    assert np.array_equal(narrowed, expected)


@pytest.mark.parametrize("shape", [(0,), (5,), (LARGE,), (1000, 3001)])
def test_arrays_come_back_as_they_were(device: CudaDevice, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(4).random(shape)
    for each in (values, values[::2], values > 0.5):
        found = device.to_host(each)
        assert found.dtype == each.dtype
        assert np.array_equal(found, each)
        assert not np.shares_memory(found, each)


def test_threads_copy_at_once(device: CudaDevice) -> None:
    columns = [_ids(LARGE, np.int64) // (1 + number) for number in range(4)]
    found: dict[int, bool] = {}

    def go(number: int) -> None:
        narrowed = device.narrowed(columns[number])
        same = np.array_equal(narrowed, np.where(columns[number] < 0, VERTEX_LIMIT, narrowed))
        found[number] = same and np.array_equal(device.to_host(narrowed), narrowed)

    threads = [threading.Thread(target=go, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(4), True)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_extent_of_ids(dtype: type[np.signedinteger[Any]]) -> None:
    ids = _ids(1_000_001, dtype)
    expected = int(ids.min()), int(ids.max())
    assert kernels.extent(ids) == in_numpy.extent(ids) == expected


@pytest.mark.parametrize("wrong", [-1, VERTEX_LIMIT])
def test_a_wrong_id_among_many_is_named(wrong: int) -> None:
    ids = np.arange(200_000)
    assert EdgeBatch(ids, ids).vertices == 200_000
    ids[123_456] = wrong
    with pytest.raises(InvalidValue, match=rf"insert_targets\[123456\]: {wrong} "):
        EdgeBatch(np.zeros_like(ids), ids)
    with pytest.raises(InvalidValue, match=rf"insert_sources\[61728\]: {wrong} "):
        EdgeBatch(ids[::2], np.zeros(100_000, np.int64))


def _moved(values: NDArray[Any]) -> NDArray[Any]:
    """The same at an odd address, as in a part of a message."""
    moved = np.frombuffer(b"x" + values.tobytes(), values.dtype, offset=1)
    assert not moved.flags.aligned
    return moved


def test_columns_may_lie_at_any_address() -> None:
    ids = np.random.default_rng(5).integers(0, 500, (2, 100_000))
    weights = np.random.default_rng(6).random(100_000).astype(np.float32) + np.float32(1.0)
    options, moved = Options(weighted=True), (*map(_moved, ids), _moved(weights))
    ranks = []
    for sources, targets, values in ((*ids, weights), moved):
        engine = Engine(options, "cpu")
        engine.apply(EdgeBatch(sources, targets, weights=values))
        engine.update()
        once = rank_once(sources, targets, values, options=options, backend="cpu")
        ranks.append([engine.publish().to_numpy(), once.ranks.to_numpy()])
    assert np.array_equal(ranks[0], ranks[1])
