"""Numba's threads: started before any compiled loop is loaded, used by one loop at a time.

Numba's portable threading layer aborts when two threads run parallel loops at once, so a caller
holds the lock while it runs one. A loop uses all cores anyway.
"""

from __future__ import annotations

import os
import threading

import numba

# By default GNU's OpenMP threads spin for a while after each loop, on cores that a server needs for
# concurrent reads. Without spinning, large loops are no slower; a batch of 1,000 edges, which runs
# many small ones, takes up to twice as long.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

one_parallel_kernel = threading.Lock()

# This starts the threads. Loading a parallel loop would start them too, but loading a cached
# function that only calls one does not: the process would crash
# (https://github.com/numba/numba/issues/8578).
numba.get_num_threads()
