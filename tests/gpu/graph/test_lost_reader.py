"""An error of the device while edges are read is DeviceLost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

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
    engine = Engine(Options(), emulated_backend())
    engine.apply(EdgeBatch.of(insert=[(0, 1), (1, 2)]))
    reader = engine.edge_reader
    buffer = reader.buffer()
    captured = reader.capture(buffer)
    error = IllegalAddress("an illegal memory access was encountered")
    device = type(engine.internals.backend.device)
    with (
        patch.object(device, "to_host", side_effect=error),
        patch.object(device, "synchronize", side_effect=error),
        pytest.raises(DeviceLost, match="illegal memory access"),
    ):
        STEPS[step](reader, buffer, captured)
