"""Where the time of a batch goes: stages that follow each other and leave nothing out.

A boundary is an event of the backend (gpu.backends.base.Event), and the end of one stage is the
begin of the next: so stages add up to the time from the first boundary to the last.

On a device the host gives out work and goes on, up to where it needs a result. A clock of the host
charges such work to whoever waits for it, unless the device is waited for at each boundary. An
event is instead reached when the work given out before it is done:

- work belongs to the stage that gave it out, however far the host has run ahead;
- where the device is idle, an event is reached as it is recorded, a few microseconds later: so a
  stage counts what the host computes, too, unless the device is at work at the same time. Then
  that time is counted once, and belongs to the stage whose work it is.

So no boundary waits for the device; only reading the times waits, for the last boundary.
"""

from __future__ import annotations

from itertools import pairwise

from gpu.backends.base import Backend, Event


class Stages:
    """The stages since the last `begin`. Its events are made once and recorded anew each time."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._events: list[Event] = []
        self._names: list[str] = []

    def begin(self) -> None:
        """The first stage begins here; those before are forgotten."""
        self._names.clear()
        self._reach()

    def end(self, name: str) -> None:
        """A stage ends here, and the next one begins; each has a name of its own."""
        self._names.append(name)
        self._reach()

    def seconds(self) -> dict[str, float]:
        """The time of each stage that has ended, in order. Waits for the device, and raises what
        work of theirs has failed with.
        """
        events = self._events[: len(self._names) + 1]
        events[-1].synchronize()
        return {
            name: self._backend.seconds_between(first, last)
            for name, (first, last) in zip(self._names, pairwise(events), strict=True)
        }

    def _reach(self) -> None:
        place = len(self._names)
        if place == len(self._events):
            self._events.append(self._backend.event())
        self._events[place].record()
