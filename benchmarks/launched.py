"""Which kernels are launched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from liverank_gpu.backends.cuda import kernels_of
from liverank_gpu.backends.cuda.kernels.loader import kernels, units
from liverank_gpu.operations.backend import Backend


def watch_launches(backend: Backend) -> set[str]:
    """The kernels that have not been launched; each leaves the set at its first launch."""
    left = {f"{unit}: {expression}" for unit in units() for expression in kernels(unit)}

    def noted(name: str, kernel: Callable[..., None]) -> Callable[..., None]:
        def run(*arguments: Any, **shared: int) -> None:
            left.discard(name)
            kernel(*arguments, **shared)

        return run

    loaded = kernels_of(backend)
    for unit in units():
        own = loaded[unit]
        for expression, kernel in own.items():
            own[expression] = noted(f"{unit}: {expression}", kernel)
    return left
