"""The emulated device rejects what a device would reject."""

from __future__ import annotations

import pytest

from tests.cuda_emulator.emulated import Stream


def test_the_time_of_an_event_cannot_be_read_before_a_wait_for_it() -> None:
    stream = Stream()
    first, last = stream.event(), stream.event()
    first.record()
    with pytest.raises(RuntimeError, match="cudaErrorNotReady"):
        stream.milliseconds(first, last)
    last.record()
    first.synchronize()
    with pytest.raises(RuntimeError, match="cudaErrorNotReady"):
        stream.milliseconds(first, last)
    last.synchronize()
    assert stream.milliseconds(first, last) >= 0.0
    last.record()
    with pytest.raises(RuntimeError, match="cudaErrorNotReady"):
        stream.milliseconds(first, last)
    stream.synchronize()
    assert stream.milliseconds(first, last) >= 0.0
