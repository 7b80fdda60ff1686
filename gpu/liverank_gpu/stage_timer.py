"""Where the time of a batch goes: consecutive stages without gaps.

A boundary is an event of the device (liverank_gpu.operations.device.Event), and the end of one
stage is the start of the next, so stages add up to the time from the first boundary to the last.

On a device the host issues work and continues, up to where it needs a result. A host clock would
charge that work to whoever waits for it, unless each boundary waited for the device. An event is
reached when the work issued before it is done, instead:

- work belongs to the stage that issued it, however far the host has run ahead;
- while the device is idle, an event is reached as it is recorded, a few microseconds later: so a
  stage includes what the host computes, unless the device is busy at the same time. Then that time
  is counted once, in the stage whose work it is.

So no boundary waits for the device; only reading the times waits, for the last boundary.
"""

from __future__ import annotations

from itertools import pairwise

from liverank_gpu.operations.device import DeviceOperations, Event


class StageTimer:
    """The stages since the last `begin`. Events are created once and recorded again."""

    def __init__(self, device: DeviceOperations) -> None:
        self._device = device
        self._events: list[Event] = []
        self._names: list[str] = []

    def begin(self) -> None:
        """Starts the first stage and forgets earlier ones."""
        self._names.clear()
        self._record()

    def end(self, name: str) -> None:
        """Ends a stage and starts the next one; each has a name of its own."""
        self._names.append(name)
        self._record()

    def seconds(self) -> dict[str, float]:
        """The time of each completed stage, in order. Waits for the device, and raises what its
        work failed with.
        """
        events = self._events[: len(self._names) + 1]
        events[-1].synchronize()
        return {
            name: self._device.seconds_between(first, last)
            for name, (first, last) in zip(self._names, pairwise(events), strict=True)
        }

    def _record(self) -> None:
        place = len(self._names)
        if place == len(self._events):
            self._events.append(self._device.event())
        self._events[place].record()
