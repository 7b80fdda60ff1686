"""Compiles the kernels of the CPU into an extension, when liverank is built or installed.

The compiler is $CXX, the system's, or, where there is none, that of the ziglang wheel, which is a
build dependency only then. Headers of Python are not needed. ``python gpu/hatch_build.py`` compiles
what has changed since, for developers.

LIVERANK_LEVELS  the levels of x86-64 processors to compile for, such as ``2 3``, as a wheel for
                 others needs; by default that of this machine
"""

from __future__ import annotations

import hashlib
import os
import platform
import runpy
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface as Hook
except ImportError:  # run as a script
    Hook = object

ENGINE = Path(__file__).resolve().parent / "liverank_gpu"
NATIVE = ENGINE / "native"
_COMPILER = runpy.run_path(str(NATIVE / "compiler.py"))
WARNINGS = ["-Wall", "-Wextra"]


def levels() -> list[int]:
    """The levels of x86-64 to compile for; [0] on other machines."""
    if given := os.environ.get("LIVERANK_LEVELS"):
        return [int(level) for level in given.split()]
    return [runpy.run_path(str(NATIVE / "level.py"))["level"]()]


def extensions() -> list[Path]:
    """Compiles the extension for each level, in parallel. Returns the libraries. Object files are
    kept: what has not changed is not compiled again.
    """
    folder = ENGINE.parents[1] / "build" / "native"
    folder.mkdir(parents=True, exist_ok=True)
    command = _COMPILER["command"]()
    if not command:
        sys.exit("liverank: no C++ compiler was found; install g++ or clang, or the ziglang wheel")
    headers = [*sorted(NATIVE.glob("*.h")), *sorted((ENGINE / "kernels").glob("*.h"))]
    shared = hashlib.sha256(b"".join(path.read_bytes() for path in headers))
    sources = sorted(NATIVE.glob("*.cpp"), key=lambda path: -path.stat().st_size)
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        return [_linked(command, level, sources, shared, folder, workers) for level in levels()]


def _linked(
    command: list[str],
    level: int,
    sources: list[Path],
    shared: Any,
    folder: Path,
    workers: ThreadPoolExecutor,
) -> Path:
    name = f"_kernels_v{level}" if level else "_kernels"
    flags = [*_COMPILER["flags"](command, name, level), *WARNINGS]

    def compiled(source: Path) -> Path:
        key = shared.copy()
        key.update(source.read_bytes() + repr((command, flags)).encode())
        target = folder / f"{name}-{source.stem}-{key.hexdigest()[:16]}.o"
        if not target.exists():
            partial = target.with_suffix(f".{os.getpid()}")
            subprocess.run([*command, *flags, "-c", str(source), "-o", str(partial)], check=True)
            partial.replace(target)
        return target

    objects = list(workers.map(compiled, sources))
    for earlier in {*folder.glob(f"{name}-*.o")}.difference(objects):
        earlier.unlink(missing_ok=True)
    library = NATIVE / f"{name}.abi3.so"
    key = hashlib.sha256(repr(objects).encode()).hexdigest()
    mark = folder / f"{name}.linked"
    if not (library.exists() and mark.exists() and mark.read_text("utf-8") == key):
        partial = library.with_suffix(f".{os.getpid()}")
        subprocess.run(
            [*command, *flags, "-shared", *map(str, objects), "-o", str(partial)], check=True
        )
        partial.replace(library)
        mark.write_text(key, "utf-8")
    return library


class CustomBuildHook(Hook):  # type: ignore[misc]
    """See the module."""

    def dependencies(self) -> list[str]:
        return [] if _COMPILER["command"]() else ["ziglang>=0.14"]

    def initialize(self, version: str, build_data: dict[str, object]) -> None:  # noqa: ARG002
        libraries = extensions()
        build_data["pure_python"] = False
        machine = platform.machine().lower()
        build_data["tag"] = f"cp311-abi3-linux_{machine}"
        build_data["artifacts"] = [f"/{path.relative_to(ENGINE.parents[1])}" for path in libraries]


if __name__ == "__main__":
    for path in extensions():
        print(path)
