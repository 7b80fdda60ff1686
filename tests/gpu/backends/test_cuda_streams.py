"""The ``cuda`` backend waits for the stream of the thread that asks, with a stand-in for CuPy."""

from __future__ import annotations

import sys
from contextlib import suppress
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from liverank_gpu.backends.cuda import cuda_backend
from liverank_gpu.graph.reading import StagingBuffer
from tests.cuda_emulator.emulated import Pool


class FakeStream:
    """Remembers what was issued in it and not waited for; the innermost one entered is current."""

    entered: list[FakeStream]

    def __init__(self, non_blocking: bool = False) -> None:
        self.non_blocking = non_blocking
        self.pending = 0

    def __enter__(self) -> FakeStream:
        self.entered.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.entered.pop()

    def synchronize(self) -> None:
        self.pending = 0


class FakeArray(np.ndarray[Any, Any]):
    """Filling it is work in the current stream."""

    def fill(self, value: Any) -> None:
        super().fill(value)
        FakeStream.entered[-1].pending += 1


class FakeCupy(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def empty(self, count: int, dtype: Any) -> Any:
        return np.empty(count, dtype).view(FakeArray)


@pytest.fixture
def null_stream(monkeypatch: pytest.MonkeyPatch) -> FakeStream:
    null = FakeStream()
    FakeStream.entered = [null]
    cupy: Any = FakeCupy("cupy")
    cupy.asnumpy = np.asarray
    cupy._core = SimpleNamespace(set_reduction_accelerators=lambda _: None)
    cupy.get_default_memory_pool = Pool
    function = SimpleNamespace(kernel=SimpleNamespace(ptr=0))
    cupy.RawModule = lambda **_: SimpleNamespace(get_function=lambda _: function)
    cupy.cuda = SimpleNamespace(
        set_allocator=lambda _: None,
        runtime=SimpleNamespace(getDeviceCount=lambda: 1, CUDARuntimeError=RuntimeError),
        Stream=FakeStream,
        get_current_stream=lambda: FakeStream.entered[-1],
        Event=object,
        get_elapsed_time=None,
        Device=lambda: SimpleNamespace(
            use=None,
            mem_info=(1 << 30, 1 << 30),
            attributes={"MultiProcessorCount": 1, "MaxSharedMemoryPerBlockOptin": 48 << 10},
            compute_capability="90",
        ),
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    return null


def test_a_reader_waits_for_its_own_stream(null_stream: FakeStream) -> None:
    device = cuda_backend().device
    null_stream.pending = 1
    with device.reading():
        stream = FakeStream.entered[-1]
        assert stream is not null_stream
        assert stream.non_blocking
        stream.pending = 1
        device.synchronize()
        assert (stream.pending, null_stream.pending) == (0, 1)
    device.synchronize()
    assert null_stream.pending == 0


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_reader_has_issued_is_done_when_it_leaves(
    null_stream: FakeStream, fails: bool
) -> None:
    device = cuda_backend().device
    null_stream.pending = 1
    with suppress(KeyError), device.reading():
        stream = FakeStream.entered[-1]
        stream.pending = 1
        if fails:
            raise KeyError
    assert (stream.pending, null_stream.pending) == (0, 1)


def test_a_staging_buffer_is_filled_before_it_is_used(null_stream: FakeStream) -> None:
    device = cuda_backend().device
    with device.reading():
        stream = FakeStream.entered[-1]
    StagingBuffer(device, {"values": np.zeros(1000), "lengths": np.zeros(8, np.int32)})
    assert (stream.pending, null_stream.pending) == (0, 0)
