"""Compiles the kernels with NVRTC, which needs no device."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from liverank_gpu.backends.cuda.kernels.loader import COMPILE_OPTIONS, kernels, source
from liverank_gpu.errors import BackendUnavailable

OPTIONS = (*COMPILE_OPTIONS, "--ftz=true")
"""Numbers too small for float32's normal range are 0, as CuPy has it in its kernels."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """The machine code of one translation unit.

    names  name expression → name in the code
    log    what the compiler said
    """

    code: bytes
    names: dict[str, str]
    log: str


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
    compiler = _Compiler()
    (program,) = compiler.call("CreateProgram", text.encode(), f"{name}.cu".encode(), 0, [], [])
    try:
        for expression in expressions:
            compiler.call("AddNameExpression", program, expression.encode())
        given = [
            *options,
            f"--gpu-architecture={architecture}",
            *(f"--include-path={folder}" for folder in _headers()),
        ]
        succeeded = compiler.compiles(program, [option.encode() for option in given])
        log = compiler.output("ProgramLog", program).rstrip(b"\0").decode()
        if not succeeded:
            raise RuntimeError(f"{name}.cu does not compile for {architecture}:\n{log}")
        names = {
            expression: compiler.call("GetLoweredName", program, expression.encode())[0].decode()
            for expression in expressions
        }
        return Compiled(compiler.output("CUBIN", program), names, log)
    finally:
        compiler.call("DestroyProgram", program)


def compile_units(units: Iterable[str], architecture: str) -> dict[str, Compiled]:
    """Compiles translation units on all cores."""
    units = list(units)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        done = threads.map(compile_unit, units, [architecture] * len(units))
        return dict(zip(units, done, strict=True))


class _Compiler:
    """NVIDIA's run-time compiler. Its functions release the interpreter lock."""

    def __init__(self) -> None:
        try:
            from cuda.bindings import nvrtc

            self._nvrtc = nvrtc
            self.call("Version")
        except (ImportError, RuntimeError) as error:
            reason = f"the kernels have to be compiled, and NVRTC is not installed ({error})"
            raise BackendUnavailable(
                "cuda", f"{reason}: pip install -e '.[cuda13]' in the clone of liverank"
            ) from error

    def call(self, function: str, *arguments: object) -> tuple[Any, ...]:
        status, *values = getattr(self._nvrtc, f"nvrtc{function}")(*arguments)
        if status != self._nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise RuntimeError(f"nvrtc{function} failed: {status}")
        return tuple(values)

    def compiles(self, program: Any, options: list[bytes]) -> bool:
        (status,) = self._nvrtc.nvrtcCompileProgram(program, len(options), options)
        return bool(status == self._nvrtc.nvrtcResult.NVRTC_SUCCESS)

    def output(self, name: str, program: Any) -> bytes:
        (size,) = self.call(f"Get{name}Size", program)
        buffer = bytes(size)  # filled in place
        self.call(f"Get{name}", program, buffer)
        return buffer


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
