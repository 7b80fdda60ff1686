"""Which level of x86-64 this processor has.

The build hook reads this file too, so it imports nothing of the project.
"""

from __future__ import annotations

import platform

_LEVEL_3 = {"avx", "avx2", "bmi1", "bmi2", "fma"}


def level() -> int:
    """3 or 2, after the levels of the x86-64 ABI; 0 on other machines."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return 0
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            flags = next((line for line in lines if line.startswith("flags")), "")
    except OSError:
        return 2
    return 3 if set(flags.split()) >= _LEVEL_3 else 2
