"""Backends of which a test decides what a device has, and sees what is asked of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from liverank_gpu import OutOfMemory
from liverank_gpu.backends.cpu import cpu_backend
from liverank_gpu.backends.cpu.device import CpuDevice
from liverank_gpu.backends.cuda import cuda_backend, make_backend
from liverank_gpu.backends.cuda.device import CudaDevice
from liverank_gpu.backends.reference import reference_backend
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array, DeviceOperations
from liverank_gpu.operations.sweeps import PartialSweeps
from tests.cuda_emulator.emulated import emulated_device
from tests.gpu.graphs import is_emulated
from tests.gpu.observed import observable

T = TypeVar("T")


def sweeping_singly(backend: Backend) -> Backend:
    """The same, which runs sweeps one at a time."""
    return replace(backend, sweeps=PartialSweeps(backend.sweeps))


def instead(operations: T, **own: Any) -> T:
    """Operations of a backend, of which a test answers some itself."""
    others = copy(operations)
    vars(others).update(own)
    return others


def loading(backend: Backend, at_once: int) -> Backend:
    """The same, which sorts so many edges of a load at once."""
    ranges = backend.rebuild.row_ranges

    def row_ranges(rows: Array, vertices: int, _: int, positions: Array) -> Any:
        return ranges(rows, vertices, at_once, positions)

    return replace(backend, rebuild=instead(backend.rebuild, row_ranges=row_ranges))


class Refusal:
    """Counts allocations, and refuses the n-th."""

    def __init__(self, refused: int) -> None:
        self.refused, self.asked = refused, 0

    def __call__(self, purpose: str) -> None:
        self.asked += 1
        if self.asked == self.refused:
            raise OutOfMemory(purpose, 0, 0)


class _Arrays:
    """An array module of which the n-th call fails. left: calls until then."""

    def __init__(self, xp: Any, number: int) -> None:
        self._xp, self.left = xp, number

    def __getattr__(self, name: str) -> Any:
        each = getattr(self._xp, name)
        if isinstance(each, type) or not callable(each):
            return each

        def made(*arguments: Any, **given: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                raise MemoryError
            return each(*arguments, **given)

        return made


class TestDevice(DeviceOperations):
    """A device that a test looks after.

    available  bytes that it says it has, to small requests too; None: what there are
    required   bytes that were asked for last
    allocating, locking, sending, copying, waiting  called before an array is allocated, or
               page-locked, with its purpose or size, before one is copied to the device or to the
               host, and before the host waits
    """

    __test__ = False

    available: int | None = None
    required: int = 0
    allocating: Callable[[str], object] = staticmethod(lambda _: None)
    locking: Callable[[int], object] = staticmethod(lambda _: None)
    sending: Callable[[NDArray[Any]], object] = staticmethod(lambda _: None)
    copying: Callable[[Array], object] = staticmethod(lambda _: None)
    waiting: Callable[[], object] = staticmethod(lambda: None)

    def memory_available(self) -> int:
        return super().memory_available() if self.available is None else self.available  # type: ignore[safe-super]

    def allocate(
        self, purpose: str, count: int, dtype: type[np.generic], zeroed: bool = False
    ) -> Array:
        self.allocating(purpose)
        return super().allocate(purpose, count, dtype, zeroed)

    def page_locked(self, count: int, dtype: type[np.generic]) -> NDArray[Any]:
        self.locking(count)
        return super().page_locked(count, dtype)  # type: ignore[safe-super]

    def to_device(self, values: NDArray[Any]) -> Array:
        self.sending(values)
        return super().to_device(values)  # type: ignore[safe-super]

    def to_host(self, values: Array) -> NDArray[Any]:
        self.copying(values)
        return super().to_host(values)  # type: ignore[safe-super]

    def synchronize(self) -> None:
        self.waiting()
        super().synchronize()  # type: ignore[safe-super]

    @contextmanager
    def refusing(self, number: int) -> Iterator[Refusal]:
        """Refuses the n-th allocation from here on."""
        self.allocating = refusal = Refusal(number)
        try:
            yield refusal
        finally:
            del self.allocating

    @contextmanager
    def without_arrays(self, number: int) -> Iterator[_Arrays]:
        """The n-th call of the array module from here on raises MemoryError."""
        xp, self.xp = self.xp, _Arrays(self.xp, number)
        try:
            yield self.xp
        finally:
            self.xp = xp

    def require(self, purpose: str, needed: int, times: int = 1) -> None:
        self.required = needed
        if self.available is not None and not self.has_room(needed, times):
            raise OutOfMemory(purpose, needed, self.available)
        super().require(purpose, needed, times)

    @contextmanager
    def with_only(self, available: int) -> Iterator[None]:
        """So many bytes are available."""
        self.available, self._available = available, (None, 0.0, 0)  # which was read before
        try:
            yield
        finally:
            self.available = None


class _OnHost(TestDevice, CpuDevice): ...


class _OnGpu(TestDevice, CudaDevice): ...


def looked_after(backend: Backend) -> tuple[Backend, TestDevice]:
    """A backend of the same kind and costs on a TestDevice, and that."""
    if is_emulated(backend):
        other = make_backend(emulated_device(), _OnGpu)
    elif backend.name == "cuda":
        other = cuda_backend(_OnGpu)
    elif backend.name == "reference":
        other = reference_backend(_OnHost())
    else:
        other = cpu_backend(_OnHost())
    device = other.device
    assert isinstance(device, TestDevice)
    return observable(replace(other, costs=backend.costs, sizes=backend.sizes)), device
