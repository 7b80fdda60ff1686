"""Memory for copies of the device's arrays, made ready by the thread that wants the copies."""

from __future__ import annotations

from collections.abc import Mapping

from liverank_gpu.operations.device import Array, DeviceOperations

_SPARE_PART = 8
"""A staging buffer has one spare element in _SPARE_PART, for batches before the copy."""


class StagingBuffer:
    """Memory for copies of named arrays, on their device. It is touched, because first touch costs
    20 times the copy.
    """

    def __init__(self, device: DeviceOperations, sources: Mapping[str, Array]) -> None:
        """Raises OutOfMemory."""
        self._arrays: dict[str, Array] = {}
        with device.reading():
            for name, source in sources.items():
                count = len(source) + len(source) // _SPARE_PART
                array = device.allocate("a copy of the graph", count, source.dtype.type)
                array.fill(0)
                self._arrays[name] = array

    def copies(self, sources: Mapping[str, Array]) -> dict[str, Array]:
        """Copies, in the memory kept for them, or elsewhere if they do not fit."""
        return {name: self._copy(name, source) for name, source in sources.items()}

    def _copy(self, name: str, source: Array) -> Array:
        array = self._arrays[name]
        if len(array) < len(source):
            return source.copy()
        array[: len(source)] = source
        return array[: len(source)]
