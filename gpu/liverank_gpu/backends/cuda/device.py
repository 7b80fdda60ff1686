"""Memory and time on ``cuda``, and what the backend needs of a device."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cpu.device import available_bytes
from liverank_gpu.backends.cuda.kernels import loader as cu
from liverank_gpu.errors import DeviceLost, OutOfMemory
from liverank_gpu.native import kernels as host
from liverank_gpu.operations.device import Array, DeviceOperations, Event

_STICKY = {214, 700, 702, 704, 709, 710, 714, 715, 716, 717, 718, 719}
"""CUDA's errors after which every call of the process fails in the same way: uncorrectable memory,
illegal addresses and instructions, timeouts, failed assertions and launches.
"""


_IN_COMMAND = 1 << 15
"""Bytes from pageable memory that the driver copies with a command, without waiting for work that
was issued before: up to 64 KiB, seen on H100s and H200s beside x86-64. CuPy's own way, by
page-locked memory, takes some 30 µs more.
"""


class Kernel(Protocol):
    """A compiled kernel."""

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple[Any, ...],
        *,
        shared_mem: int = 0,
    ) -> None:
        """Launches it in the stream of the calling thread.

        grid, block  blocks of the grid and threads of a block, in up to three dimensions
        args         see liverank_gpu.backends.cuda.kernels.parameters
        shared_mem   bytes of dynamic shared memory of a block
        """


class PooledMemory:
    """The memory of a device, from which a pool of CuPy has taken some."""

    def __init__(
        self,
        pool: Any,
        free: Callable[[], int],
        use: Callable[[Callable[[int], Any]], object] = lambda _: None,
    ) -> None:
        """pool  cupy.cuda.MemoryPool
        free  returns the bytes of the device that nobody has
        use   has arrays take their memory from a function of its size
        """
        self._pool, self._free, self._use = pool, free, use
        self._at_first = pool.get_limit()  # of CUPY_GPU_MEMORY_LIMIT; 0: none
        if self._at_first:
            use(self._allocated)

    def available(self) -> int:
        """Bytes that can be allocated."""
        available = self._free() + self._pool.free_bytes()
        if limit := self._pool.get_limit():
            available = min(available, limit - self._pool.used_bytes())
        return max(0, int(available))

    def limit(self, most: int | None) -> None:
        """Bounds the pool, in bytes; None: as it was at first."""
        self._pool.set_limit(size=self._at_first if most is None else most)
        if most is not None:
            self._use(self._allocated)

    def _allocated(self, size: int) -> Any:
        """Memory of the pool. What it compares with its limit includes free blocks, so they are
        given back before it refuses.
        """
        try:
            return self._pool.malloc(size)
        except MemoryError:
            self._pool.free_all_blocks()
            return self._pool.malloc(size)


class Mapped(NamedTuple):
    """Memory of the host that kernels read and write without a copy: int64[…], an array of each.
    What a kernel has written is there when the host has waited for it.
    """

    host: NDArray[np.int64]
    device: Array


@dataclass(frozen=True, slots=True)
class Device:
    """What the backend needs of a device. Tests run it with NumPy arrays and kernels that are
    compiled for the CPU.

    xp                the array module
    load              translation unit → (name expression → kernel)
    compile           (name, source, name expressions) → (name expression → kernel), whose blocks
                      may synchronise
    to_device         a contiguous host array to a device array of its size; it may change when this
                      returns, or when the copy is done if it is page-locked
    to_host           a device array as a NumPy array
    start_to_host     starts to copy a contiguous device array to a host array of its size
    synchronize       waits for all work in the stream of the calling thread
    event             a new event; `record` places it in the stream of the calling thread
    milliseconds      the time between two events that are reached
    memory            what arrays take their memory from
    page_locked       bytes → a page-locked host array, uint8[bytes]
    mapped            such an array → the same memory as an array of the device
    start_copy        see DeviceOperations
    reading           the context in which another thread may read published arrays; its work begins
                      when an event is reached, if there is one
    multiprocessors   number of multiprocessors
    pages             what pages.cu is compiled for; None if a block has too little shared memory
    """

    xp: Any
    load: Callable[[str], Callable[[str], Kernel]]
    compile: Callable[[str, str, tuple[str, ...]], Callable[[str], Kernel]]
    to_device: Callable[[NDArray[Any], Array], None]
    to_host: Callable[[Array], NDArray[Any]]
    start_to_host: Callable[[Array, NDArray[Any]], None]
    synchronize: Callable[[], None]
    event: Callable[[], Event]
    milliseconds: Callable[[Any, Any], float]
    memory: PooledMemory
    page_locked: Callable[[int], NDArray[np.uint8]]
    mapped: Callable[[NDArray[np.uint8]], Array]
    start_copy: Callable[[NDArray[Any], Array], Callable[[], None]]
    reading: Callable[[Event | None], AbstractContextManager[Any]]
    multiprocessors: int = 1
    pages: cu.PageShape | None = cu.PAGE_SHAPE


class _Kernels(dict[str, dict[str, Kernel]]):
    """Kernels by translation unit; those of weighted graphs are loaded when one is used."""

    def __init__(self, load: Callable[[str], Callable[[str], Kernel]]) -> None:
        self._load = load
        super().__init__(
            {unit: self._loaded(unit) for unit in cu.units() if not cu.is_weighted(unit)}
        )

    def _loaded(self, unit: str) -> dict[str, Kernel]:
        load = self._load(unit)
        return {expression: load(expression) for expression in cu.kernels(unit)}

    def __missing__(self, unit: str) -> dict[str, Kernel]:
        self[unit] = self._loaded(unit)
        return self[unit]


_STAGED = 1 << 20
"""Bytes from which on arrays go through page-locked pieces."""

_PIECE, _PIECES = 1 << 23, 3
"""Bytes of a piece, and their number."""


class _Piece(NamedTuple):
    """Page-locked memory, uint8[_PIECE], and what is recorded behind the last copy that used it."""

    memory: NDArray[np.uint8]
    copied: Event


class _Pieces:
    """Page-locked pieces through which large arrays are copied: all threads of the host fill or
    empty one while the device copies another. The driver has one thread for both.
    """

    def __init__(self, device: CudaDevice) -> None:
        self._device, self._lock = device, threading.Lock()
        self._pieces: list[_Piece] | None = None

    @contextmanager
    def taken(self, count: int) -> Iterator[list[_Piece]]:
        """The pieces, for an array of so many bytes; none if it is small, another thread has them,
        or the host has no memory for them.
        """
        if count < _STAGED or not self._lock.acquire(blocking=False):
            yield []
            return
        try:
            if self._pieces is None:
                self._pieces = self._locked()
            yield self._pieces
        finally:
            self._lock.release()

    def _locked(self) -> list[_Piece]:
        device = self._device
        try:
            memory = device.page_locked(_PIECES * _PIECE, np.uint8).reshape(_PIECES, -1)
        except OutOfMemory:
            return []
        return [_Piece(each, device.event()) for each in memory]


class CudaDevice(DeviceOperations):
    """One CUDA device; see DeviceOperations.

    kernels          translation unit → name expression → kernel
    multiprocessors  number of multiprocessors
    compile          see Device
    """

    def __init__(self, device: Device) -> None:
        self.xp = device.xp
        self.kernels: dict[str, dict[str, Kernel]] = _Kernels(device.load)
        self.multiprocessors = device.multiprocessors
        self.compile = device.compile
        self._device = device
        self._process = os.getpid()
        self._pieces = _Pieces(self)

    def to_device(self, values: NDArray[Any]) -> Array:
        if values.nbytes > _IN_COMMAND or not values.flags.c_contiguous:
            return self.xp.array(values)
        copy = self.xp.empty(values.shape, values.dtype)
        self._device.to_device(values, copy)
        return copy

    def narrowed(self, ids: NDArray[np.integer[Any]]) -> Array:
        """int32[k]: a copy of ids on the host, int64[k] or int32[k]. Those that no graph has,
        negative or above 31 bits, become 2³¹-1, which none has either.
        """
        ids = np.ascontiguousarray(ids)
        with self._pieces.taken(4 * len(ids)) as pieces:
            if not pieces:
                narrowed = np.empty(len(ids), np.int32)
                host.narrow(ids, narrowed)
                return self.to_device(narrowed)
            copy, each = self.allocate("edges", len(ids), np.int32), _PIECE // 4
            for number, begin in enumerate(range(0, len(ids), each)):
                memory, copied = pieces[number % _PIECES]
                part = ids[begin : begin + each]
                filled = memory.view(np.int32)[: len(part)]
                copied.synchronize()
                host.narrow(part, filled)
                self._device.to_device(filled, copy[begin : begin + len(part)])
                copied.record()
            return copy

    def to_host(self, values: Array) -> NDArray[Any]:
        staged = isinstance(values, self.xp.ndarray) and values.flags.c_contiguous
        with self._pieces.taken(values.nbytes if staged else 0) as pieces:
            if not pieces:
                return self._device.to_host(values)
            copy = np.empty(values.shape, values.dtype)
            source, target = (each.reshape(-1).view(np.uint8) for each in (values, copy))
            begun: list[tuple[slice, _Piece]] = []
            for number, begin in enumerate(range(0, len(target), _PIECE)):
                part, piece = (
                    slice(begin, min(begin + _PIECE, len(target))),
                    pieces[number % _PIECES],
                )
                piece.copied.synchronize()
                self._device.start_to_host(source[part], piece.memory[: part.stop - begin])
                piece.copied.record()
                begun.append((part, piece))
                if len(begun) == _PIECES:
                    self._empty(*begun.pop(0), target)
            for each in begun:
                self._empty(*each, target)
            return copy

    def _empty(self, part: slice, piece: _Piece, target: NDArray[np.uint8]) -> None:
        """Copies what a piece gets to a part of an array on the host."""
        piece.copied.synchronize()
        host.copy(piece.memory[: part.stop - part.start], target[part])

    def page_locked(self, count: int, dtype: type[np.generic]) -> NDArray[Any]:
        needed = count * np.dtype(dtype).itemsize
        try:
            return self._device.page_locked(needed).view(dtype)
        except MemoryError as error:
            raise OutOfMemory("page-locked memory", needed, available_bytes()) from error

    def mapped(self, count: int) -> Mapped:
        """Uninitialised memory for this many integers. Raises OutOfMemory."""
        host = self.page_locked(count, np.int64)
        return Mapped(host, self._device.mapped(host.view(np.uint8)).view(np.int64))

    def start_copy(self, source: NDArray[Any], target: Array) -> Callable[[], None]:
        return self._device.start_copy(source, target)

    def sum(self, values: Array) -> Array:
        # CUB sums these types as it is compiled; a sum that changes the type runs as one block
        wide = np.float64 if values.dtype.kind == "f" else np.int64
        return values.astype(wide, copy=False).sum()

    def synchronize(self) -> None:
        self._device.synchronize()

    def event(self) -> Event:
        return self._device.event()

    def seconds_between(self, first: Any, last: Any) -> float:
        return 1e-3 * self._device.milliseconds(first, last)

    @contextmanager
    def _stream_of_reader(self, after: Event | None) -> Iterator[None]:
        with self._device.reading(after):
            try:
                yield
            finally:
                # what was read may be freed now, and its memory written to in another stream
                self._device.synchronize()

    def detecting_loss(self) -> AbstractContextManager[None]:
        if os.getpid() != self._process:
            raise DeviceLost(
                "CUDA does not work in a process that was forked from one that uses it; start "
                "processes by spawn or forkserver"
            )
        return super().detecting_loss()

    def is_lost(self, error: Exception) -> bool:
        # CUDARuntimeError and CUDADriverError of CuPy, which cannot be imported without a device
        return getattr(error, "status", None) in _STICKY

    def memory_available(self) -> int:
        return self._device.memory.available()

    def _limit_memory(self, most: int | None) -> None:
        self._device.memory.limit(most)
