"""Compiles the kernels of the CPU into an extension, when liverank is built or installed.

The compiler is $CXX, the system's, or, where there is none, that of the ziglang wheel, which is a
build dependency only then. Headers of Python are not needed. ``python gpu/hatch_build.py`` compiles
what has changed since, for developers.

LIVERANK_LEVELS    the levels of x86-64 processors to compile for, such as ``2 3``; by default that
                   of this machine
LIVERANK_PLATFORM  ``x86_64`` or ``aarch64``: compiles for all such processors, with Linux and
                   glibc 2.28 or later, by ziglang on any machine
LIVERANK_CUBINS    a folder that ``python -m liverank_gpu.backends.cuda.kernels --out`` has
                   written: the wheel has this machine code of the CUDA kernels

``python -m tools.wheels`` builds the wheels of a release.
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
BUILD = ENGINE.parents[1] / "build"
BINARIES = ENGINE / "backends" / "cuda" / "kernels" / "binaries"
PLATFORMS = {"x86_64": [2, 3], "aarch64": [0]}
"""The levels of each."""

_COMPILER = runpy.run_path(str(NATIVE / "compiler.py"))
WARNINGS = ["-Wall", "-Wextra"]

_BUILT_IN = """
from liverank_gpu.backends.cpu.programs import BEFORE, program_struct
from liverank_gpu.operations.programs import VertexProgram
from liverank_gpu.programs import algorithms

programs = [each for each in vars(algorithms).values() if isinstance(each, VertexProgram)]
print(BEFORE, *map(program_struct, programs), sep="\\n")
"""


def platform_of_wheel() -> str:
    """LIVERANK_PLATFORM; empty: this machine."""
    given = os.environ.get("LIVERANK_PLATFORM", "")
    if given and given not in PLATFORMS:
        expected = " or ".join(map(repr, PLATFORMS))
        sys.exit(f"LIVERANK_PLATFORM: expected {expected}, got {given!r}")
    return given


def levels(target: str = "") -> list[int]:
    """The levels of x86-64 to compile for; [0] on other machines."""
    if (given := os.environ.get("LIVERANK_LEVELS")) and target != "aarch64":
        return [int(level) for level in given.split()]
    if target:
        return PLATFORMS[target]
    return [_COMPILER["level"]()]


def extensions(target: str = "") -> list[Path]:
    """Compiles the extension for each level, in parallel; what has not changed is not compiled
    again. Returns the libraries: in the package, or, for a target of PLATFORMS, in build/TARGET.
    """
    folder = BUILD / (target or "native")
    folder.mkdir(parents=True, exist_ok=True)
    command = _COMPILER["command"](target)
    if not command:
        sys.exit("liverank: no C++ compiler was found; install g++ or clang, or the ziglang wheel")
    headers = [*sorted(NATIVE.glob("*.h")), *sorted((ENGINE / "kernels").glob("*.h"))]
    shared = hashlib.sha256(b"".join(path.read_bytes() for path in headers))
    sources = [built_in_programs(), *NATIVE.glob("*.cpp")]
    sources.sort(key=lambda path: -path.stat().st_size)
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        return [
            _linked(command, level, sources, shared, folder, folder if target else NATIVE, workers)
            for level in levels(target)
        ]


def built_in_programs() -> Path:
    """The built-in vertex programs in C++, translated again if the engine's Python has changed."""
    parts = [_BUILT_IN.encode(), *(path.read_bytes() for path in sorted(ENGINE.rglob("*.py")))]
    made_of = hashlib.sha256(b"".join(parts)).hexdigest()
    path, known = BUILD / "built_in_programs.cpp", BUILD / "built_in_programs.sha256"
    if not (path.exists() and known.exists() and known.read_text() == made_of):
        command = [sys.executable, "-P", "-c", _BUILT_IN]
        # pip has what a build needs in PYTHONPATH
        search = [str(ENGINE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(search)}
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
        for target, content in ((path, done.stdout), (known, made_of.encode())):
            partial = target.with_suffix(f".{os.getpid()}")
            partial.write_bytes(content)
            partial.replace(target)
    return path


def _linked(
    command: list[str],
    level: int,
    sources: list[Path],
    shared: Any,
    folder: Path,
    output: Path,
    workers: ThreadPoolExecutor,
) -> Path:
    name = f"_kernels_v{level}" if level else "_kernels"
    flags = [*_COMPILER["flags"](command, name, level), *WARNINGS, f"-I{NATIVE}"]

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
    library = output / f"{name}.abi3.so"
    key = hashlib.sha256(repr(objects).encode()).hexdigest()
    mark = folder / f"{name}.linked"
    if not (library.exists() and mark.exists() and mark.read_text("utf-8") == key):
        partial = library.with_suffix(f".{os.getpid()}")
        # ziglang links its C++ library into ours, with 6 MB of symbols
        linked = [*flags, "-shared", *(["-s"] if "ziglang" in command else [])]
        subprocess.run([*command, *linked, *map(str, objects), "-o", str(partial)], check=True)
        partial.replace(library)
        mark.write_text(key, "utf-8")
    return library


class CustomBuildHook(Hook):  # type: ignore[misc]
    """See the module."""

    def dependencies(self) -> list[str]:
        return [] if _COMPILER["command"](platform_of_wheel()) else ["ziglang>=0.14"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        editable = version == "editable"
        target = "" if editable else platform_of_wheel()
        machine = f"manylinux_2_28_{target}" if target else f"linux_{platform.machine().lower()}"
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{machine}"
        libraries = extensions(target)
        placed = {path: NATIVE / path.name for path in libraries if target}
        if not target:
            build_data["artifacts"] = [f"/{path.relative_to(BUILD.parent)}" for path in libraries]
        cubins = os.environ.get("LIVERANK_CUBINS")
        if cubins and not editable:
            files = sorted(Path(cubins).absolute().glob("sm_*/*"))
            if not files:
                sys.exit(f"LIVERANK_CUBINS: expected a folder with machine code, got {cubins!r}")
            placed |= {path: BINARIES / path.parent.name / path.name for path in files}
        build_data["force_include"].update(
            {str(path): str(to.relative_to(ENGINE.parent)) for path, to in placed.items()}
        )


if __name__ == "__main__":
    for path in extensions():
        print(path)
