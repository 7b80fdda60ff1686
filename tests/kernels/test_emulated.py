"""The emulated device refuses what a device would."""

from __future__ import annotations

import pytest

from tests.kernels.emulated import Stream


def test_the_time_of_an_event_cannot_be_read_before_it_was_waited_for() -> None:
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
