"""Runs tests over the kernels of the CPU compiled with sanitizers:

    python -m tools.sanitize address                       AddressSanitizer and UBSan
    python -m tools.sanitize thread                        ThreadSanitizer
    python -m tools.sanitize thread tests/gpu/pagerank --backend=cpu

By default `TESTS`; arguments after the first go to pytest. What a sanitizer finds ends its process,
and so the tests. It needs g++ and its libraries, which Debian installs with it. The sources are
copied to build/address and build/thread, and compiled there: the checkout's own extension stays.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("benchmarks", "gpu", "liverank", "service", "tests", "tools")
TESTS = ("tests/gpu/native", "tests/golden")

_COMMON = "-g -fno-omit-frame-pointer"
SANITIZERS = {
    "address": ("libasan.so", f"-fsanitize=address,undefined -fno-sanitize-recover=all {_COMMON}"),
    "thread": ("libtsan.so", f"-fsanitize=thread {_COMMON}"),
}
"""The library that has to be loaded before Python, and the options of the compiler."""

OPTIONS = {
    # Python and NumPy free little at their end; a failed allocation is a MemoryError
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    # Python itself is not compiled with it; children of fork have threads of their own
    "TSAN_OPTIONS": "halt_on_error=1:die_after_fork=0:ignore_noninstrumented_modules=1",
    # each array a block of its own, whose ends are watched
    "PYTHONMALLOC": "malloc",
}


def _copy(folder: Path) -> None:
    """Copies the sources, beside objects that are compiled already."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so", ".*", "results")
    for name in COPIED:
        shutil.rmtree(folder / name, ignore_errors=True)
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)


def _library(compiler: str, name: str) -> str:
    command = [compiler, f"-print-file-name={name}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(found).is_absolute():
        sys.exit(f"{compiler} has no {name}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs tests over kernels with sanitizers.")
    parser.add_argument("sanitizer", choices=SANITIZERS)
    sanitizer, given = parser.parse_known_args()
    library, options = SANITIZERS[sanitizer.sanitizer]
    compiler = shutil.which("g++")
    if compiler is None:
        sys.exit("g++ is not installed")
    folder = ROOT / "build" / sanitizer.sanitizer
    _copy(folder)
    path = [str(folder / name) for name in (".", "gpu", "service")]
    environment = {
        # beside the checkout, not the copy
        "LIVERANK_GRAPHS": str(ROOT.parent / "shared" / "data"),
        **os.environ,
        **OPTIONS,
        "CXX": f"{compiler} {options}",
        "PYTHONPATH": os.pathsep.join(filter(None, [*path, os.environ.get("PYTHONPATH")])),
    }
    # before the library is loaded into every process
    hook = [sys.executable, "-P", "gpu/hatch_build.py"]
    subprocess.run(hook, cwd=folder, env=environment, check=True)
    libraries = [_library(compiler, name) for name in (library, "libstdc++.so")]
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(given or TESTS)]
    # ThreadSanitizer does not run where addresses are as random as new kernels make them
    done = subprocess.run(
        ["setarch", "--addr-no-randomize", *tests],
        cwd=folder,
        env={**environment, "LD_PRELOAD": " ".join(libraries)},
    )
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
