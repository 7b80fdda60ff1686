"""Numba's threads are started before anything compiled is loaded."""

from __future__ import annotations

import subprocess
import sys


def test_threads_are_started_by_the_import_of_the_backend() -> None:
    program = (
        "import gpu.backends.cpu, numba.np.ufunc.parallel as parallel\n"
        "assert parallel._is_initialized"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
