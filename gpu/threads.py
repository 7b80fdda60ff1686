"""One parallel Numba kernel at a time in this process.

Numba's portable threading layer aborts when two threads run parallel kernels at once. So whoever
runs one holds this lock; a kernel uses all cores anyway.
"""

from __future__ import annotations

import threading

one_parallel_kernel = threading.Lock()
