"""The ``cuda`` backend without a GPU: NumPy arrays, and the kernels run on the CPU."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Literal

import numpy as np

from gpu.backends.cuda import CudaBackend, Device
from tests.kernels.harness import CpuLoader, require_compiler

MEMORY = 8 << 30
"""Bytes that the emulated device says it has free."""


def emulated_backend(order: Literal["forward", "shuffled"] = "forward") -> CudaBackend:
    """A CudaBackend whose launches run in `order` (CpuLoader)."""
    require_compiler()
    return CudaBackend(
        Device(
            xp=np,
            load=CpuLoader(order),
            to_host=np.asarray,
            synchronize=lambda: None,
            memory_available=lambda: MEMORY,
            reading=nullcontext,
        )
    )
