"""Compiled loops of the ``cpu`` backend: on all cores where there is work for them, else on the
calling thread.

Waking the other threads takes longer than a small loop, above all where they have other work.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any

from numba import njit

from gpu.threads import one_parallel_kernel

_ALONE = 1 << 12
"""Items up to which the calling thread works alone: about 10 µs."""


def both_ways(function: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A function with ``prange`` loops, compiled for all cores and for the calling thread.

    Never with fast-math: differences of neighbouring numbers must be what they are, and sums over
    short rows are slower where it makes vectors of them.
    """
    compiled = njit(parallel=True, nogil=True, cache=True)(function)
    # Numba's cache tells compiled functions apart by name and line, not by how they were compiled
    alone = FunctionType(function.__code__, function.__globals__, f"{function.__name__}_alone")
    alone.__qualname__ = alone.__name__
    serial = njit(nogil=True, cache=True)(alone)

    return locked(compiled), serial


def locked(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled function with ``prange`` loops, to be called from any thread."""

    @wraps(compiled)
    def call(*arguments: Any) -> Any:
        with one_parallel_kernel:
            return compiled(*arguments)

    return call


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function with ``prange`` loops whose first parameter is the number of items."""
    parallel, alone = both_ways(function)

    @wraps(function)
    def call(items: int, *arguments: Any) -> Any:
        return (alone if items <= _ALONE else parallel)(items, *arguments)

    return call


def sequential(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function for the calling thread, callable from others."""
    compiled: Callable[..., Any] = njit(nogil=True, cache=True)(function)
    return compiled
