"""Contract: memory, transfers and time of one kind of device; and stages that it times."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise
from time import monotonic
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import DeviceLost, InvalidValue, OutOfMemory

Array = Any
"""A CuPy array on ``cuda``, otherwise a NumPy array."""

_SMALL_BYTES = 1 << 24

_FRESH_SECONDS, _PLENTY = 0.1, 16
"""For so long what was available is not read again if it was at least so many times what is needed:
to read it takes a part of what a batch of one edge takes.
"""


class Event(Protocol):
    """A point in the work of a device, from which time is measured: see StageTimer."""

    def record(self) -> object:
        """Places it behind all work issued so far. An earlier record is forgotten."""

    def synchronize(self) -> object:
        """Returns when the device has reached it."""


class _DetectingLoss:
    """See DeviceOperations.detecting_loss."""

    def __init__(self, device: DeviceOperations) -> None:
        self._device = device

    def __enter__(self) -> None:
        return

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, Exception) and self._device.is_lost(error):
            raise DeviceLost(error) from error


class DeviceOperations(ABC):
    """Memory, transfers and time.

    xp  the array module: NumPy or CuPy
    """

    xp: Any

    _available: tuple[Any, float, int] = (None, 0.0, 0)
    """What `has_room` read last: by which function, when, and how much."""

    @abstractmethod
    def to_device(self, values: NDArray[Any]) -> Array:
        """A copy of a host array on the device."""

    @abstractmethod
    def to_host(self, values: Array) -> NDArray[Any]:
        """A copy of a device array on the host."""

    @abstractmethod
    def page_locked(self, count: int, dtype: type[np.generic]) -> NDArray[Any]:
        """An uninitialised host array from which copies to the device are fast and run beside other
        work. Raises OutOfMemory.
        """

    @abstractmethod
    def start_copy(self, source: NDArray[Any], target: Array) -> Callable[[], None]:
        """Starts to copy a host array to a device array that no work uses any more, beside other
        work; any thread may call it. Returns what makes the work that is issued next wait for the
        copy. `source` may change when that work is done.
        """

    @abstractmethod
    def sum(self, values: Array) -> Array:
        """Σ values[k], 0-d, in int64, or float64 where they are floats: of booleans, how many are
        true.
        """

    @abstractmethod
    def synchronize(self) -> None:
        """Returns when all issued work is done: that of readers inside `reading`, else that of the
        writer.
        """

    @abstractmethod
    def event(self) -> Event:
        """A new event, not recorded."""

    @abstractmethod
    def seconds_between(self, first: Any, last: Any) -> float:
        """Time from one of this device's events to another; both have been reached."""

    def detecting_loss(self) -> AbstractContextManager[None]:
        """Raises DeviceLost for an error after which this process can no longer use the device."""
        return _DetectingLoss(self)

    @contextmanager
    def reading(self, after: Event | None = None) -> Iterator[None]:
        """The context in which a reader of published ranks works, concurrent with the writer. When
        it is left, all work issued in it is done.

        after  what the writer has recorded: work in this context begins when it is reached

        Raises DeviceLost.
        """
        with self.detecting_loss(), self._stream_of_reader(after):
            yield

    def _stream_of_reader(self, after: Event | None) -> AbstractContextManager[Any]:  # noqa: ARG002
        return nullcontext()

    def is_lost(self, error: Exception) -> bool:  # noqa: ARG002
        """Whether it is an error after which this process can no longer use the device."""
        return False

    @abstractmethod
    def memory_available(self) -> int:
        """Bytes that can still be allocated."""

    def limit_memory(self, most: int | None) -> None:
        """Bounds what all arrays of this process on the device take, in bytes; None: as the process
        began. Raises InvalidValue, also where arrays have no memory of their own.
        """
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
            raise InvalidValue("device_memory", most, "a number of bytes, at least 1")
        self._limit_memory(most)

    @abstractmethod
    def _limit_memory(self, most: int | None) -> None: ...

    def require(self, purpose: str, needed: int, times: int = 1) -> None:
        """Raises OutOfMemory, with the figures, if `times` times `needed` bytes are not available.
        Small requests are left to the allocator.
        """
        if needed > _SMALL_BYTES and not self.has_room(needed, times):
            raise OutOfMemory(purpose, needed, self._available[2])

    def has_room(self, needed: int, times: int = 1) -> bool:
        """Whether `times` times `needed` bytes are available."""
        read, now = self.memory_available, monotonic()
        source = getattr(read, "__func__", read)
        before, then, available = self._available
        plenty = needed * times * _PLENTY < available
        if not (source is before and now - then < _FRESH_SECONDS and plenty):
            available = read()
            self._available = (source, now, available)
        return needed * times <= available

    def allocate(
        self, purpose: str, count: int, dtype: type[np.generic], zeroed: bool = False
    ) -> Array:
        """An array of `count` elements, uninitialised unless `zeroed`. Raises OutOfMemory."""
        try:  # new memory of the host is zero, and costs nothing before it is used
            return (self.xp.zeros if zeroed else self.xp.empty)(count, dtype)
        except MemoryError as error:
            needed = count * np.dtype(dtype).itemsize
            raise OutOfMemory(purpose, needed, self.memory_available()) from error

    def grown(self, purpose: str, array: Array, room: int, value: float = 0) -> Array:
        """A copy with `room` elements, those behind the array's own of this value. Raises
        OutOfMemory.
        """
        found = self.allocate(purpose, room, array.dtype.type)
        found[: len(array)] = array
        found[len(array) :] = value
        return found


# ---- where the time of a batch goes: consecutive stages without gaps ----
#
# A boundary is an event of the device, and the end of one stage is the start of the next, so stages
# add up to the time from the first boundary to the last.
#
# On a device the host issues work and continues, up to where it needs a result. A host clock would
# charge that work to whoever waits for it, unless each boundary waited for the device. An event is
# reached when the work issued before it is done, instead:
#
# - work belongs to the stage that issued it, however far the host has run ahead;
# - while the device is idle, an event is reached as it is recorded, a few microseconds later: so a
#   stage includes what the host computes, unless the device is busy at the same time. Then that
#   time is counted once, in the stage whose work it is.
#
# So no boundary waits for the device; only reading the times waits, for the last boundary.


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
