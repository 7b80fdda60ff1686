"""Backends: one package for each kind of device, with the operations of liverank_gpu.operations."""

from __future__ import annotations

import logging
from functools import cache

from liverank_gpu.errors import BackendUnavailable, InvalidValue
from liverank_gpu.operations.backend import Backend
from liverank_gpu.types import BackendName

_log = logging.getLogger("liverank.backends")


@cache
def backend_named(name: BackendName) -> Backend:
    """The backend of this name; ``auto`` is ``cuda`` if there is a device, else ``cpu``, and
    ``reference`` where the kernels of that are not compiled.

    Raises BackendUnavailable with the reason, InvalidValue for another name.
    """
    # imported on demand: any takes a second or more
    if name == "cpu":
        from liverank_gpu.backends.cpu import cpu_backend
        from liverank_gpu.native import loaded

        loaded()
        return cpu_backend()
    if name == "cuda":
        from liverank_gpu.backends.cuda import cuda_backend

        return cuda_backend()
    if name == "reference":
        from liverank_gpu.backends.reference import reference_backend

        _log.warning("the backend 'reference' is plain NumPy: right, and slow")
        return reference_backend()
    if name == "auto":
        try:
            return backend_named("cuda")
        except BackendUnavailable:
            return host_backend()
    raise InvalidValue("backend", name, "'auto', 'cpu', 'cuda' or 'reference'")


@cache
def host_backend() -> Backend:
    """The best backend whose arrays are the host's: ``cpu``, or ``reference`` where the kernels of
    that are not compiled.
    """
    try:
        return backend_named("cpu")
    except BackendUnavailable as error:
        _log.warning("%s", error)
        return backend_named("reference")


def limit_device_memory(most: int | None, backend: BackendName = "auto") -> None:
    """Bounds what the arrays of all engines of this process take on its GPU: what would not fit
    raises OutOfMemory.

    most  in bytes; None: no bound but that of CUPY_GPU_MEMORY_LIMIT
    Raises BackendUnavailable; InvalidValue for a number below 1, and on ``cpu`` and ``reference``,
    where arrays are in host memory.
    """
    backend_named(backend).device.limit_memory(most)
