"""The ``cuda`` backend without a GPU: NumPy arrays, and kernels that run on the CPU."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from time import perf_counter
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cuda import make_backend
from liverank_gpu.backends.cuda.device import Device, Kernel, PooledMemory
from liverank_gpu.backends.cuda.kernels.loader import PageShape, source, units
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from tests.cuda_emulator.harness import CpuLoader, require_compiler

MEMORY = 8 << 30
"""Bytes of the emulated device."""


def empty(shape: Any, dtype: Any = np.float64) -> NDArray[Any]:
    """As numpy.empty, but what nobody wrote is seen when it is used: an index is out of bounds, a
    sum overflows or is no number.
    """
    is_integer = np.issubdtype(dtype, np.integer)
    return np.full(shape, np.iinfo(dtype).max if is_integer else np.nan, dtype)


class Pool:
    """As cupy.cuda.MemoryPool. The arrays of `empty` and `zeros` have their memory from here, as
    long as they or views of them are used; what other operations return does not count.
    """

    def __init__(self) -> None:
        self._used = self._limit = 0

    def empty(self, shape: Any, dtype: Any = np.float64) -> NDArray[Any]:
        array = empty(shape, dtype)
        if self._used + array.nbytes > (self._limit or MEMORY):
            raise MemoryError(f"{array.nbytes} bytes, beside {self._used}")
        self._used += array.nbytes
        weakref.finalize(array, self._give_back, array.nbytes).atexit = False
        return array

    def _give_back(self, count: int) -> None:
        self._used -= count

    def get_limit(self) -> int:
        return self._limit

    def set_limit(self, size: int) -> None:
        self._limit = size

    def used_bytes(self) -> int:
        return self._used

    def free_bytes(self) -> int:
        return 0


class Stream:
    """Work is done as soon as it is issued; but, as on a device, the time of an event can be read
    only after the host has waited for it or for a later one.
    """

    def __init__(self) -> None:
        self.recorded = 0
        self.waited = 0

    def synchronize(self) -> None:
        self.waited = self.recorded

    def event(self) -> StreamEvent:
        return StreamEvent(self)

    def milliseconds(self, first: StreamEvent, last: StreamEvent) -> float:
        for event in (first, last):
            if not 0 < event.place <= self.waited:
                raise RuntimeError("cudaErrorNotReady: the host has not waited for the event")
        return 1e3 * (last.reached - first.reached)


class StreamEvent:
    """Used as cupy.cuda.Event is."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.place = 0
        self.reached = 0.0

    def record(self) -> None:
        self.stream.recorded += 1
        self.place = self.stream.recorded
        self.reached = perf_counter()

    def synchronize(self) -> None:
        self.stream.waited = max(self.stream.waited, self.place)


def _copy(source: NDArray[Any], target: Array) -> Callable[[], None]:
    """A copy that arrives no earlier than it is waited for."""
    return lambda: np.copyto(target, source)


PAGES = PageShape(tile_bits=5, page_bytes=128, threads=64, blocks=1)
"""So small that a small graph has many pages, and shared memory of 48 KiB is enough."""


@cache
def _source(unit: str) -> str:
    return source(unit, PAGES)


@cache
def _compile_all() -> None:
    """Of workers of one run, which need all kernels at the same time, each compiles a part."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        load = CpuLoader(source=_source)
        for unit in units():
            load.prepare(unit)


def emulated_backend(order: Literal["forward", "shuffled"] = "forward") -> Backend:
    """The ``cuda`` backend; its launches run in `order` (see CpuLoader)."""
    return make_backend(emulated_device(order))


def counting_backend() -> Backend:
    """The same on a device of its own, whose arrays count: see Pool."""
    pool = Pool()
    memory = PooledMemory(pool, lambda: MEMORY - pool.used_bytes())
    return make_backend(replace(emulated_device(), xp=_numpy(pool.empty), memory=memory))


def _numpy(empty: Callable[..., NDArray[Any]]) -> SimpleNamespace:
    """NumPy, whose uninitialised arrays and those of zeros are made by `empty`."""

    def empty_like(array: NDArray[Any], dtype: Any = None) -> NDArray[Any]:
        return empty(array.shape, dtype or array.dtype)

    def zeros(shape: Any, dtype: Any = np.float64) -> NDArray[Any]:
        array = empty(shape, dtype)
        array.fill(0)
        return array

    made = {"empty": empty, "empty_like": empty_like, "zeros": zeros}
    return SimpleNamespace(**vars(np) | made)


def emulated_device(order: Literal["forward", "shuffled"] = "forward") -> Device:
    """The device of `emulated_backend`."""
    require_compiler()
    _compile_all()
    stream = Stream()

    def compiled(name: str, text: str, expressions: tuple[str, ...]) -> Callable[[str], Kernel]:
        return CpuLoader(order, source=lambda _: text, names=lambda _: expressions)(name)

    return Device(
        xp=_numpy(empty),
        load=CpuLoader(order, source=_source),
        compile=compiled,
        to_device=lambda source, target: np.copyto(target, source),
        to_host=np.array,
        start_to_host=lambda source, target: np.copyto(target, source),
        synchronize=stream.synchronize,
        event=stream.event,
        milliseconds=stream.milliseconds,
        memory=PooledMemory(Pool(), lambda: MEMORY),
        page_locked=lambda count: np.empty(count, np.uint8),
        mapped=lambda memory: memory,
        start_copy=_copy,
        reading=lambda _: nullcontext(),
        pages=PAGES,
    )
