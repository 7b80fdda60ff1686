"""Numba's threads: started before any compiled loop is loaded, used by one loop at a time.

Its portable threading layer aborts when two threads run parallel loops at once. So whoever runs
one holds the lock; a loop uses all cores anyway.
"""

from __future__ import annotations

import os
import threading

import numba

# GNU's threads would turn on the spot for a while after each loop, on cores that a server needs for
# those who read meanwhile. Large loops are no slower without; a batch of 1,000 edges, of many small
# ones, takes up to twice as long.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

one_parallel_kernel = threading.Lock()

# This starts them. Loading a parallel loop would too, but not loading, from Numba's cache, a
# function that only calls one: its process would crash (https://github.com/numba/numba/issues/8578)
numba.get_num_threads()
