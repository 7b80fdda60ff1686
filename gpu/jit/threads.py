"""Numba's threads: started before any compiled loop is loaded, used by one loop at a time.

Numba's portable threading layer aborts when two threads run parallel loops at once, so a caller
holds the lock while it runs one. A loop uses all cores anyway.

The threads do not survive a fork, and GNU's OpenMP ends a child that uses them. So in a child of a
process that has started them, each loop runs on the thread that calls it.
"""

from __future__ import annotations

import ctypes
import os
import threading

import numba
from llvmlite import binding  # type: ignore[import-untyped]
from numba.np.ufunc import parallel

# By default GNU's OpenMP threads spin for a while after each loop, on cores that a server needs for
# concurrent reads. Without spinning, large loops are no slower; a batch of 1,000 edges, which runs
# many small ones, takes up to twice as long.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# reentrant, since a signal handler may fork anywhere
one_parallel_kernel = threading.RLock()

_WITHOUT_THREADS = ctypes.c_uint8(0)

WITHOUT_THREADS = "liverank_without_threads"
"""The symbol of a byte that compiled code reads: not 0 where the threads did not survive a fork."""

binding.add_symbol(WITHOUT_THREADS, ctypes.addressof(_WITHOUT_THREADS))


def _after_fork() -> None:
    _WITHOUT_THREADS.value |= parallel._is_initialized
    one_parallel_kernel.release()


# no loop is running at a fork: whoever runs one holds the lock
os.register_at_fork(
    before=one_parallel_kernel.acquire,
    after_in_parent=one_parallel_kernel.release,
    after_in_child=_after_fork,
)

# This starts the threads. Loading a parallel loop would start them too, but loading a cached
# function that only calls one does not: the process would crash
# (https://github.com/numba/numba/issues/8578).
numba.get_num_threads()
