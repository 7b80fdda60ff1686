"""A bound on what arrays take on a device: liverank_gpu.limit_device_memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import InvalidValue, OutOfMemory, limit_device_memory
from liverank_gpu.backends.cuda.device import PooledMemory
from tests.cuda_emulator.emulated import MEMORY, Pool, counting_backend


def test_memory_is_what_the_device_and_the_limit_of_the_pool_leave() -> None:
    pool, free = Pool(), [3000]
    memory = PooledMemory(pool, lambda: free[0])
    assert memory.available() == 3000
    held = pool.empty(100, np.float64)
    memory.limit(2000)
    assert memory.available() == 1200
    free[0] = 500
    assert memory.available() == 500
    memory.limit(100)  # less than there is already
    assert memory.available() == 0
    del held
    assert memory.available() == 100
    memory.limit(None)
    assert memory.available() == 500


def test_the_limit_at_first_comes_back() -> None:
    pool = Pool()
    pool.set_limit(1000)  # as CUPY_GPU_MEMORY_LIMIT has it
    memory = PooledMemory(pool, lambda: MEMORY)
    memory.limit(2000)
    assert memory.available() == 2000
    memory.limit(None)
    assert memory.available() == 1000


class KeepingPool(Pool):
    """A pool that keeps what is freed, and refuses what exceeds its limit together with that: as
    CuPy's does.
    """

    kept = 0

    def malloc(self, size: int) -> NDArray[np.uint8]:
        if self.used_bytes() + self.kept + size > self.get_limit():
            raise MemoryError(f"{size} bytes")
        return self.empty(size, np.uint8)

    def free_bytes(self) -> int:
        return self.kept

    def free_all_blocks(self) -> None:
        self.kept = 0


@pytest.mark.parametrize("at_first", [0, 1000])
def test_what_the_pool_keeps_is_given_back_before_it_refuses(at_first: int) -> None:
    used: list[Any] = []
    pool = KeepingPool()
    pool.set_limit(at_first)
    memory = PooledMemory(pool, lambda: MEMORY, used.append)
    if not at_first:
        memory.limit(None)
        assert used == []  # CuPy's own pool, or that of the program around
        memory.limit(1000)
    (allocate,) = used
    held = allocate(600)
    pool.kept = 300
    assert memory.available() == 400
    assert len(allocate(400)) == 400
    assert pool.kept == 0
    with pytest.raises(MemoryError):
        allocate(1001)
    del held


def test_an_allocation_beyond_the_limit_says_what_is_left() -> None:
    device = counting_backend().device
    device.limit_memory(1 << 20)
    held = device.allocate("lists", 1 << 19, np.uint8)
    with pytest.raises(OutOfMemory) as raised:
        device.allocate("more lists", (1 << 19) + 1, np.uint8)
    assert (raised.value.needed, raised.value.available) == ((1 << 19) + 1, 1 << 19)
    del held
    assert len(device.allocate("more lists", 1 << 20, np.uint8)) == 1 << 20


@pytest.mark.parametrize("most", [0, -1, True, 1.5, "1024"])
def test_a_limit_is_a_whole_number_of_bytes(most: Any) -> None:
    with pytest.raises(InvalidValue, match=r"must be a number of bytes, at least 1"):
        counting_backend().device.limit_memory(most)


def test_the_host_has_no_device_memory() -> None:
    with pytest.raises(InvalidValue, match=r"device_memory: 1024 .* must be unset on cpu"):
        limit_device_memory(1024, "cpu")
    limit_device_memory(None, "cpu")
    with pytest.raises(InvalidValue, match=r"device_memory: 0 .* at least 1"):
        limit_device_memory(0)
