"""The C++ compiler of the kernels of the CPU, its options, and the processor that it compiles for.

The build hook reads this file too, so it imports nothing of the project.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from importlib.util import find_spec

FLAGS = ["-std=c++20", "-O3", "-fPIC", "-fvisibility=hidden", "-pthread"]
# a multiplication and an addition round twice, also where one instruction does both: the same bits
# on every machine
FLAGS += ["-ffp-contract=off", "-fno-math-errno"]

_ARCHITECTURES = {
    2: ("-march=x86-64-v2", "-mcpu=x86_64_v2"),
    3: ("-march=x86-64-v3", "-mcpu=x86_64_v3"),
}

_LEVEL_3 = {"avx", "avx2", "bmi1", "bmi2", "fma"}


def level() -> int:
    """Which level of the x86-64 ABI this processor has: 3 or 2; 0 on other machines."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return 0
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            flags = next((line for line in lines if line.startswith("flags")), "")
    except OSError:
        return 2
    return 3 if set(flags.split()) >= _LEVEL_3 else 2


def command(machine: str = "") -> list[str]:
    """How the compiler is called: $CXX, else the system's, else that of the ziglang wheel. Empty if
    there is none.

    machine  x86_64 or aarch64: the ziglang wheel's for any such machine with glibc 2.28 or later
    """
    zig = [sys.executable, "-m", "ziglang", "c++"] if find_spec("ziglang") else []
    if machine:
        return zig and [*zig, "-target", f"{machine}-linux-gnu.2.28"]
    if found := os.environ.get("CXX"):
        return found.split()
    for name in ("c++", "g++", "clang++"):
        if path := shutil.which(name):
            return [path]
    return zig


def flags(compiler: list[str], module: str, level: int) -> list[str]:
    """The options for an extension.

    compiler  its command
    module    the name of the extension
    level     of x86-64 processors; 0 on other machines
    """
    zig = "ziglang" in compiler
    return [*FLAGS, f"-DMODULE={module}", *([_ARCHITECTURES[level][zig]] if level else [])]
