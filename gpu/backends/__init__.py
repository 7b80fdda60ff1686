"""Backends: one kind of device each, the same operations (base.py) on all."""

from __future__ import annotations

from functools import cache

from gpu.backends.base import Backend
from gpu.errors import BackendUnavailable, InvalidValue
from gpu.types import BackendName


@cache
def backend_named(name: BackendName) -> Backend:
    """The backend of this name; ``auto`` is ``cuda`` where there is a device, else ``cpu``.

    Raises BackendUnavailable with the reason, InvalidValue for another name.
    """
    if name == "cpu":
        from gpu.backends.cpu import CpuBackend

        return CpuBackend()
    if name == "cuda":
        from gpu.backends.cuda import cuda_backend

        return cuda_backend()
    if name == "auto":
        try:
            return backend_named("cuda")
        except BackendUnavailable:
            return backend_named("cpu")
    raise InvalidValue("backend", name, "'auto', 'cpu' or 'cuda'")
