"""The ``cuda`` backend without a GPU: NumPy arrays, and the kernels run on the CPU."""

from __future__ import annotations

from contextlib import nullcontext
from time import perf_counter
from typing import Literal

import numpy as np

from gpu.backends.cuda import CudaBackend, Device
from tests.kernels.harness import CpuLoader, require_compiler

MEMORY = 8 << 30
"""Bytes that the emulated device says it has free."""


class Stream:
    """Work is done as it is given out; but the times of events can be read only once the host has
    waited for them, or for what came later, as it must on a device.
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
                raise RuntimeError("cudaErrorNotReady: an event is not known to be reached")
        return 1e3 * (last.reached - first.reached)


class StreamEvent:
    """As cupy.cuda.Event."""

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


def emulated_backend(order: Literal["forward", "shuffled"] = "forward") -> CudaBackend:
    """A CudaBackend whose launches run in `order` (CpuLoader)."""
    require_compiler()
    stream = Stream()
    return CudaBackend(
        Device(
            xp=np,
            load=CpuLoader(order),
            to_host=np.asarray,
            synchronize=stream.synchronize,
            event=stream.event,
            milliseconds=stream.milliseconds,
            memory_available=lambda: MEMORY,
            reading=nullcontext,
        )
    )
