"""An error of the device while edges are read is DeviceLost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from liverank_gpu import (
    CapturedEdges,
    DeviceLost,
    EdgeBatch,
    EdgeReader,
    Engine,
    Options,
    StagingBuffer,
)
from tests.cuda_emulator.emulated import emulated_backend
from tests.gpu.doubles import looked_after


class IllegalAddress(RuntimeError):
    """As CUDARuntimeError of CuPy."""

    status = 700


Step = Callable[[EdgeReader, StagingBuffer, CapturedEdges], Any]

STEPS: dict[str, Step] = {
    "capture": lambda reader, buffer, _: reader.capture(buffer),
    "blocks": lambda _, __, captured: list(captured.blocks()),
    "neighbours": lambda reader, _, __: reader.neighbours(0, "out", 5),
    "out_edges": lambda reader, _, __: reader.out_edges(np.array([0, 1]), 50),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_device_that_is_lost_while_edges_are_read_is_told(step: str) -> None:
    backend, device = looked_after(emulated_backend())
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch.of(insert=[(0, 1), (1, 2)]))
    reader = engine.edge_reader
    buffer = reader.buffer()
    captured = reader.capture(buffer)
    error = IllegalAddress("an illegal memory access was encountered")

    def lost(*_: object) -> None:
        raise error

    device.copying = device.waiting = lost
    with pytest.raises(DeviceLost, match="illegal memory access"):
        STEPS[step](reader, buffer, captured)
