"""Backends: one package for each kind of device, with the operations of liverank_gpu.operations."""

from __future__ import annotations

from functools import cache

from liverank_gpu.errors import BackendUnavailable, InvalidValue
from liverank_gpu.operations.backend import Backend
from liverank_gpu.types import BackendName


@cache
def backend_named(name: BackendName) -> Backend:
    """The backend of this name; ``auto`` is ``cuda`` if there is a device, else ``cpu``.

    Raises BackendUnavailable with the reason, InvalidValue for another name.
    """
    # imported on demand: either takes a second or more
    if name == "cpu":
        from liverank_gpu.backends.cpu import cpu_backend

        return cpu_backend()
    if name == "cuda":
        from liverank_gpu.backends.cuda import cuda_backend

        return cuda_backend()
    if name == "auto":
        try:
            return backend_named("cuda")
        except BackendUnavailable:
            return backend_named("cpu")
    raise InvalidValue("backend", name, "'auto', 'cpu' or 'cuda'")


def limit_device_memory(most: int | None, backend: BackendName = "auto") -> None:
    """Bounds what the arrays of all engines of this process take on its GPU: what would not fit
    raises OutOfMemory.

    most  in bytes; None: no bound but that of CUPY_GPU_MEMORY_LIMIT
    Raises BackendUnavailable; InvalidValue for a number below 1, and on ``cpu``, where arrays are
    in host memory.
    """
    backend_named(backend).device.limit_memory(most)
