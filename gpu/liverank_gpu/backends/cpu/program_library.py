"""The loops of vertex programs on ``cpu`` (gpu/liverank_gpu/native/programs.h), for one program
each.

Those of built-in programs are in the extension. Those of others are compiled at first use, into a
library of their own:

FOLDER/NAME-DIGEST.so    the library, and behind it the SHA-256 of what comes before

DIGEST is that of the source, its headers, the compiler and its options. FOLDER is a cache that no
other user can write, ``liverank`` in that of this user, or else a folder of this process. A file
that is damaged is compiled again.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import platform
import stat
import subprocess
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Any

import liverank_gpu.native
from liverank_gpu.errors import BackendUnavailable
from liverank_gpu.native import compiler, extension, kernels
from liverank_gpu.native.level import level
from liverank_gpu.operations.program_source import definitions, number
from liverank_gpu.operations.programs import VertexProgram

NATIVE = Path(liverank_gpu.native.__file__).parent
BEFORE = """#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wparentheses"
#include "programs.h"
"""
"""What comes before the structs of programs."""

HEADERS = [
    *sorted(NATIVE.glob("*.h")),
    *sorted((NATIVE.parent / "kernels").glob("*.h")),
    NATIVE / "module.cpp",
]
"""What the source of a library includes."""

_DIGEST_BYTES = hashlib.sha256().digest_size

_log = logging.getLogger("liverank.programs")
_found: dict[str, ProgramLoops] = {}
_compiling = threading.Lock()


class ProgramLoops:
    """The loops of one program, in the extension or in a library of their own."""

    def __init__(self, digest: str, module: Any) -> None:
        self._digest = digest
        self._module = module

    def __getattr__(self, loop: str) -> Any:
        found = getattr(self._module, f"{loop}_{self._digest}")
        self.__dict__[loop] = found
        return found


def loops_of(program: VertexProgram) -> ProgramLoops:
    """The loops of a program. Raises BackendUnavailable without a compiler, if it needs one."""
    digest = program.digest
    if digest not in _found and hasattr(kernels, f"initialise_{digest}"):
        _found[digest] = ProgramLoops(digest, kernels)
    if digest not in _found:
        with _compiling:
            if digest not in _found:
                module = extension(_library(program), f"program_{digest}")
                module.use_pool(kernels.pool())
                _found[digest] = ProgramLoops(digest, module)
    return _found[digest]


def program_struct(program: VertexProgram) -> str:
    """The program as programs.h wants it, and its kernels."""
    loops = ["initialise"]
    if program.every_vertex:
        loops += ["aggregate", "gather"]
    else:
        loops += ["send", "receive"]
    if program.monotone:
        loops += ["send_in_place", "supports"]
    if program.first_wins:
        loops += ["look"]
    lines = [
        f"struct program_{program.digest} {{",
        *definitions(program),
        f"static constexpr Value IDENTITY = (Value){number(program.identity)};",
        "};",
        *(f"PROGRAM_KERNEL({program.digest}, {loop});" for loop in [*loops, "gather_window"]),
    ]
    return "\n".join(line.rstrip("\n") for line in lines) + "\n"


def library_source(program: VertexProgram) -> str:
    """The source of a library with the loops of one program."""
    return f'{BEFORE}#include "borrowed_pool.h"\n#include "module.cpp"\n{program_struct(program)}'


def _library(program: VertexProgram) -> Path:
    """The library of a program, compiled if it is not there. Raises BackendUnavailable."""
    command, name = compiler.command(), f"program_{program.digest}"
    given = [*compiler.flags(command, name, level()), "-w", "-shared"]
    text = library_source(program)
    parts = [text, repr((command, given, platform.machine()))]
    parts += [each.read_text("utf-8") for each in HEADERS]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    folder = cache_folder()
    path = folder / f"{name}-{digest}.so"
    if _is_whole(path):
        return path
    if not command:
        reason = f"the program {program.name!r} has to be compiled, and there is no C++ compiler"
        raise BackendUnavailable(
            "cpu",
            f"{reason}: install g++ or clang, or pip install -e '.[programs]' in the clone of "
            "liverank",
        )
    _log.info("compiling the program %r, once", program.name)
    with tempfile.TemporaryDirectory(dir=folder, prefix="compiling-") as own:
        source, library = Path(own, f"{name}.cpp"), Path(own, f"{name}.so")
        source.write_text(text, "utf-8")
        # zig's own cache, as private as this one
        caches = {f"ZIG_{each}_CACHE_DIR": str(folder / "zig") for each in ("GLOBAL", "LOCAL")}
        done = subprocess.run(
            [*command, *given, f"-I{NATIVE}", str(source), "-o", str(library)],
            capture_output=True,
            text=True,
            check=False,
            env={**caches, **os.environ},
        )
        if done.returncode:
            raise RuntimeError(f"the program {program.name!r} does not compile:\n{done.stderr}")
        code = library.read_bytes()
        library.write_bytes(code + hashlib.sha256(code).digest())
        library.replace(path)
    return path


def _is_whole(path: Path) -> bool:
    try:
        content = path.read_bytes()
    except OSError:
        return False
    code, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    return hashlib.sha256(code).digest() == digest


def cache_folder() -> Path:
    """In $XDG_CACHE_HOME or ~/.cache, if no other user can write there; else one of this
    process.
    """
    try:
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(caches) / "liverank" / "programs"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _is_private(folder) and os.access(folder, os.W_OK):
            return folder
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        pass
    return _own_folder()


def _is_private(folder: Path) -> bool:
    """Whether nobody but this user and root can change what is in it or replace it."""
    for each in (folder := folder.resolve(), *folder.parents):
        found = each.stat()
        others_write = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        # of a sticky folder others cannot rename what is not theirs
        if others_write and (each == folder or not found.st_mode & stat.S_ISVTX):
            return False
        if found.st_uid not in (0, os.geteuid()):
            return False
    return True


@cache
def _own_folder() -> Path:
    """Of this process, which removes it at its end."""
    folder = tempfile.TemporaryDirectory(prefix="liverank-")
    atexit.register(folder.cleanup)
    return Path(folder.name)
