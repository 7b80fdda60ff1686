"""Memory and time on ``cpu``: the host's."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cpu.host_memory import available_bytes
from liverank_gpu.errors import InvalidValue
from liverank_gpu.operations.device import Array, DeviceOperations, Event


class _CpuEvent:
    """An event where work is done as soon as it is issued: it is reached when it is recorded."""

    __slots__ = ("reached",)

    def record(self) -> None:
        self.reached = perf_counter()

    def synchronize(self) -> None:
        return


class CpuDevice(DeviceOperations):
    """The host itself; see DeviceOperations."""

    xp = np

    def to_device(self, values: NDArray[Any]) -> Array:
        return np.array(values)

    def to_host(self, values: Array) -> NDArray[Any]:
        return np.array(values)

    def page_locked(self, count: int, dtype: type[np.generic]) -> NDArray[Any]:
        array: NDArray[Any] = self.allocate("host memory", count, dtype)
        return array

    def start_copy(self, source: NDArray[Any], target: Array) -> Callable[[], None]:
        np.copyto(target, source)
        return self.synchronize

    def sum(self, values: Array) -> Array:
        if values.dtype == np.bool_:
            return np.int64(np.count_nonzero(values))
        return values.sum(dtype=np.float64 if values.dtype.kind == "f" else np.int64)

    def synchronize(self) -> None:
        return

    def event(self) -> Event:
        return _CpuEvent()

    def seconds_between(self, first: Any, last: Any) -> float:
        seconds: float = last.reached - first.reached
        return seconds

    def memory_available(self) -> int:
        return available_bytes()

    def _limit_memory(self, most: int | None) -> None:
        if most is not None:
            raise InvalidValue(
                "device_memory", most, "unset on cpu, whose arrays are in host memory"
            )
