"""Compiled loops: on all cores if there is enough work for them, else on the calling thread.

A loop is a function of a range of items, ``work(first, last, …)``, and is compiled once. A small
second function for each loop calls it on all cores, one range at a time (see gpu.jit.launch).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any

import numpy as np
from numba import njit
from numba.extending import overload

from gpu.jit import cache  # noqa: F401  # before anything is compiled
from gpu.jit.launch import launcher
from gpu.jit.threads import one_parallel_kernel

Function = Callable[..., Any]

# their type annotations lack some options
_njit: Any = njit
_overload: Any = overload

# Never fast-math: differences of nearly equal numbers must be exact, and it slows down sums over
# short rows by vectorising them. No divisor is 0, so the check for it is switched off: a loop
# raises nothing.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}


def sequential(function: Function) -> Function:
    """Compiles a function that runs on the calling thread, whichever that is."""
    compiled: Function = _njit(cache=True, **_OPTIONS)(function)
    return compiled


def helper(function: Function) -> Function:
    """Compiles a function that only compiled functions call; it is cached as a part of them."""
    compiled: Function = _njit(no_cpython_wrapper=True, **_OPTIONS)(function)
    return compiled


def inlined(function: Function) -> Function:
    """A `helper` that is called for each row: its code is inlined, which saves the reference
    counting of arrays at every call.
    """
    compiled: Function = _njit(inline="always", **_OPTIONS)(function)
    return compiled


def by_type(choose: Function) -> Function:
    """A `helper` with an implementation for each combination of argument types, inlined.

    choose  called with the types; returns the implementation, whose parameters have the same names
    """

    @wraps(choose)
    def compiled_only(*_: Any) -> Any:
        raise NotImplementedError(f"{choose.__name__} is called by compiled functions only")

    _overload(compiled_only, inline="always", jit_options=_OPTIONS)(choose)
    return compiled_only


@helper
def unsigned(index):  # type: ignore[no-untyped-def]
    """An index that cannot be negative. Numba tests each signed index, since a negative one counts
    from the end: a third of the time of a sweep.
    """
    return np.uintp(index)


def on_all_cores(work: Function) -> Function:
    """``run(items, grain, …)``, compiled: calls ``work(first, last, …)`` for each `grain` of the
    items, on all cores. A Python caller must hold `one_parallel_kernel`.

    work  compiled. It raises nothing, so it allocates nothing, and no range reads or writes what
          another one writes
    """
    function = work.py_func  # type: ignore[attr-defined]
    name = f"{function.__name__}_on_all_cores"
    # Numba identifies a cached function by file, line and name, and checks the file for changes
    code = _run.__code__.replace(
        co_filename=function.__code__.co_filename,
        co_firstlineno=function.__code__.co_firstlineno,
        co_name=name,
        co_qualname=name,
    )
    names = {"__name__": function.__module__, "launch": launcher(work)}
    return sequential(FunctionType(code, names, name))


def _run(items: int, grain: int, *arguments: Any) -> None:
    if launch(items, grain, arguments):  # type: ignore[name-defined]  # noqa: F821
        raise RuntimeError("a compiled loop failed on one of the cores")


def kernel(grain: int) -> Callable[[Function], Function]:
    """Turns ``work(first, last, …)`` into ``run(items, …)``, which any thread may call.

    grain  items that a core takes at a time: at least 10 µs of work. Up to as many items run on
           the calling thread: waking the others takes longer, above all if they are busy
    """

    def decorated(function: Function) -> Function:
        compiled = sequential(function)
        parallel = on_all_cores(compiled)

        @wraps(function)
        def run(items: int, *arguments: Any) -> None:
            if items > grain:
                with one_parallel_kernel:
                    parallel(items, grain, *arguments)
            elif items > 0:
                compiled(0, items, *arguments)

        return run

    return decorated


def locked(compiled: Function) -> Function:
    """Lets any thread call a compiled function that runs a loop on all cores."""

    @wraps(compiled)
    def call(*arguments: Any) -> Any:
        with one_parallel_kernel:
            return compiled(*arguments)

    return call
