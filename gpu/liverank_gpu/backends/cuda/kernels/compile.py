"""Compiles the kernels with NVRTC, which needs no device."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from liverank_gpu.backends.compiling import run_compiler
from liverank_gpu.backends.cuda.kernels import nvrtc
from liverank_gpu.backends.cuda.kernels.loader import COMPILE_OPTIONS, kernels, source
from liverank_gpu.backends.cuda.kernels.nvrtc import Compiled
from liverank_gpu.errors import BackendUnavailable

OPTIONS = (*COMPILE_OPTIONS, "--ftz=true")
"""Numbers too small for float32's normal range are 0, as CuPy has it in its kernels."""


def compile_unit(unit: str, architecture: str) -> Compiled:
    """Compiles a translation unit for an architecture: ``sm_90``. Any thread may call this, and
    several at once. Raises as `compile_source`.
    """
    return compile_source(unit, source(unit), kernels(unit), architecture, OPTIONS)


def compile_source(
    name: str, text: str, expressions: Sequence[str], architecture: str, options: Sequence[str]
) -> Compiled:
    """
    name         of the source in messages, without suffix
    expressions  the C++ name expressions of the kernels
    options      beside those for the architecture and the headers

    Raises RuntimeError with the messages of the compiler, BackendUnavailable without a compiler.
    """
    try:
        found = nvrtc.compiled(name, text, expressions, _options(architecture, options))
    except nvrtc.Absent as error:
        raise _absent(error) from error
    if isinstance(found, str):
        raise _refused(name, architecture, found)
    return found


def compile_apart(name: str, text: str, expressions: Sequence[str], architecture: str) -> Compiled:
    """As `compile_source`, in a process of its own, within limits: for programs of users. Raises
    BackendUnavailable beyond them too.
    """
    asked = [name, text, expressions, _options(architecture, OPTIONS)]
    command = [sys.executable, "-P", nvrtc.__file__]
    given = json.dumps(asked).encode()
    status, output, errors = run_compiler("cuda", name, command, {}, given)
    if status == nvrtc.ABSENT:
        raise _absent(errors.strip())
    if status:
        raise _refused(name, architecture, errors)
    facts, code = output.split(b"\n", 1)
    return Compiled(code, *json.loads(facts))


def compile_units(units: Iterable[str], architecture: str) -> dict[str, Compiled]:
    """Compiles translation units on all cores."""
    units = list(units)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        done = threads.map(compile_unit, units, [architecture] * len(units))
        return dict(zip(units, done, strict=True))


def _options(architecture: str, options: Sequence[str]) -> list[str]:
    headers = (f"--include-path={folder}" for folder in _headers())
    return [*options, f"--gpu-architecture={architecture}", *headers]


def _absent(reason: object) -> BackendUnavailable:
    missing = f"the kernels have to be compiled, and NVRTC is not installed ({reason})"
    return BackendUnavailable(
        "cuda", f"{missing}: pip install -e '.[cuda13]' in the clone of liverank"
    )


def _refused(name: str, architecture: str, log: str) -> RuntimeError:
    return RuntimeError(f"{name}.cu does not compile for {architecture}:\n{log}")


def _headers() -> list[str]:
    """Folders of the headers that cooperative kernels include: CUDA's, and those of CCCL, which
    CuPy has too.
    """
    from cuda.pathfinder import find_nvidia_header_directory

    folders = [find_nvidia_header_directory(name) for name in ("cudart", "cccl")]
    if folders[1] is None:
        import cupy

        include = Path(cupy.__file__).parent / "_core" / "include" / "cupy" / "_cccl"
        folders[1] = str(include / "libcudacxx")
    return [folder for folder in folders if folder]
