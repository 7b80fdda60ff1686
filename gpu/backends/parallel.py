"""Compiled loops of the ``cpu`` backend: on all cores where there is work for them, else on the
calling thread.

A loop is a function of a range of items, ``work(first, last, …)``, and is compiled once. What gives
shares of the range to all cores is one small function for each loop: see gpu.backends.sharing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any

import numpy as np
from numba import njit

from gpu.backends.sharing import sharing
from gpu.threads import one_parallel_kernel

Function = Callable[..., Any]

_njit: Any = njit  # its types leave out some options

# Never with fast-math: differences of neighbouring numbers must be what they are, and sums over
# short rows are slower where it makes vectors of them. A division is by what cannot be 0, so that
# none need look: no error is raised from a loop.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}


def sequential(function: Function) -> Function:
    """Compiles a function for the calling thread, callable from any."""
    compiled: Function = _njit(cache=True, **_OPTIONS)(function)
    return compiled


def helper(function: Function) -> Function:
    """Compiles a function that only compiled ones call, with which it is cached."""
    compiled: Function = _njit(no_cpython_wrapper=True, **_OPTIONS)(function)
    return compiled


@helper
def unsigned(index):  # type: ignore[no-untyped-def]
    """An index that is known not to be negative. Signed ones are looked at each time, since they
    could count from the end: a third of the time of a sweep.
    """
    return np.uintp(index)


def inlined(function: Function) -> Function:
    """The same for those that compiled ones call for each row: they take over its code, which saves
    them the reference counting of arrays at every call.
    """
    compiled: Function = _njit(inline="always", **_OPTIONS)(function)
    return compiled


def on_all_cores(work: Function) -> Function:
    """``run(items, share, …)``, compiled: calls ``work(first, last, …)`` for each `share` of the
    items, on all cores. From Python, whoever calls it holds `one_parallel_kernel`.

    work  compiled; it raises nothing, so allocates nothing, and neither reads nor changes what it
          changes for another share
    """
    function = work.py_func  # type: ignore[attr-defined]
    name = f"{function.__name__}_on_all_cores"
    # Numba's cache knows a function by its file, line and name, and looks at the file for changes
    code = _run.__code__.replace(
        co_filename=function.__code__.co_filename,
        co_firstlineno=function.__code__.co_firstlineno,
        co_name=name,
        co_qualname=name,
    )
    names = {"__name__": function.__module__, "share_out": sharing(work)}
    return sequential(FunctionType(code, names, name))


def _run(items: int, share: int, *arguments: Any) -> None:
    if share_out(items, share, arguments):  # type: ignore[name-defined]  # noqa: F821
        raise RuntimeError("a compiled loop failed on one of the cores")


def kernel(share: int) -> Callable[[Function], Function]:
    """Makes of ``work(first, last, …)`` a function ``run(items, …)``, to be called from any thread.

    share  how many items a core takes at a time, at the least: about 10 µs of work. As few items
           are left to the calling thread: waking the others takes longer, above all where they have
           other work
    """

    def decorated(function: Function) -> Function:
        alone = sequential(function)
        shared = on_all_cores(alone)

        @wraps(function)
        def run(items: int, *arguments: Any) -> None:
            if items > share:
                with one_parallel_kernel:
                    shared(items, share, *arguments)
            elif items > 0:
                alone(0, items, *arguments)

        return run

    return decorated


def locked(compiled: Function) -> Function:
    """A compiled function that calls one on all cores, to be called from any thread."""

    @wraps(compiled)
    def call(*arguments: Any) -> Any:
        with one_parallel_kernel:
            return compiled(*arguments)

    return call
