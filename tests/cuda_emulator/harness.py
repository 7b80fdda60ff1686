"""Runs unmodified CUDA kernels on the CPU, and finds their faults.

    load = CpuLoader(order="shuffled", seed=7)
    load("sweep")("add_partial_sums<true>")((1,), (256,), (partial_sums, np.int32(blocks), sums))

A kernel file is compiled by g++ together with ``include/cuda_on_cpu.hpp``, which gives it CUDA's
keywords and built-ins, and run by ``runtime/machine.cpp``, one CUDA thread at a time on the calling
thread. In ``forward`` order threads and blocks run in order, each thread until it waits. In
``shuffled`` order the seed permutes blocks and threads and interleaves them at barriers, warp
operations and atomics, so that a missing barrier shows. Either way a launch is deterministic.

A faulty launch raises TypeError for arguments that do not fit the kernel's parameters, ValueError
for a shape that CUDA would reject, and KernelFault for a barrier that not all threads reach, an
access out of bounds (of an argument, a shared array or dynamic shared memory) and undefined
behaviour. Shared memory holds NaN (or -1) until it is written.

Not modelled: weak memory, warps that run in lockstep, pointers stored in arrays (arrays are moved
for the launch), ``extern __shared__`` outside of a function.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import itertools
import math
import os
import re
import shutil
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
import pytest

from liverank_gpu.backends.cuda.kernels import loader
from liverank_gpu.backends.cuda.kernels.parameters import Member, Parameters, parameters_of

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".pytest_cache" / "kernels"

_FLAGS = (
    "-std=c++20",
    "-Og",  # kernels are nearly as fast as with -O2, and compiled in half of the time
    "-g1",
    "-fPIC",
    "-fvisibility=hidden",
    # a kernel's shared memory must be in its own library, even if two libraries use the same name
    "-fno-gnu-unique",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
)
_CHECKED = ("-fsanitize=undefined", "-fno-sanitize-recover=all", "-fno-sanitize=vptr")
_DYNAMIC_SHARED = re.compile(
    r"extern\s+__shared__\s+(?:(?:__align__|alignas)\(\d+\)\s*)?"
    r"(?P<type>[\w:<> ]+?)\s+(?P<name>\w+)\s*\[\s*\]\s*;"
)
_MOST_THREADS = 1024
_MOST_BLOCK = (1024, 1024, 64)
_MOST_GRID = (2**31 - 1, 65535, 65535)
_MOST_SHARED = 48 * 1024


class KernelFault(RuntimeError):
    """A kernel is at fault. No array was changed."""


class _Parameter(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint),
        ("kind", ctypes.c_char),
        ("pointer", ctypes.c_bool),
        ("constant", ctypes.c_bool),
    )

    def __str__(self) -> str:
        kind = self.kind.decode()
        if kind == "v":
            named = "any type"
        elif kind == "V":
            named = f"a struct of {self.size} bytes"
        else:
            named = np.dtype(f"{kind}{self.size}").name
        return f"an array of {named}" if self.pointer else named


class _Kernel(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("run", ctypes.c_void_p),
        ("parameters", ctypes.POINTER(_Parameter)),
        ("count", ctypes.c_uint),
    )


class _Library(ctypes.Structure):
    _fields_ = (
        ("kernels", ctypes.POINTER(_Kernel)),
        ("count", ctypes.c_uint),
        ("shared_memory", ctypes.c_void_p),
    )


class _Shape(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
    )


class _Argument(ctypes.Structure):
    _fields_ = (
        ("parameter", _Parameter),
        ("offset", ctypes.c_uint),
        ("array", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
    )


class _Arguments(ctypes.Structure):
    _fields_ = (
        ("items", ctypes.POINTER(_Argument)),
        ("count", ctypes.c_uint),
        ("block", ctypes.c_char_p),
        ("offsets", ctypes.POINTER(ctypes.c_uint)),
        ("parameters", ctypes.c_uint),
    )


class _Fault(ctypes.Structure):
    _fields_ = (
        ("message", ctypes.c_char * 1024),
        ("in_thread", ctypes.c_bool),
        ("block", ctypes.c_uint * 3),
        ("thread", ctypes.c_uint * 3),
        ("instruction", ctypes.c_void_p),
    )


class CompiledKernel:
    """One kernel: see liverank_gpu.backends.cuda.device.Kernel.

    parameters  as its declaration says; TypeError if the compiler says something else
    """

    def __init__(
        self,
        name: str,
        library: ctypes.CDLL,
        parameters: Parameters,
        launch: Callable[..., bool],
        next_seed: Callable[[], int],
    ) -> None:
        self.name = name
        self._library = library
        self._table, self._kernel = _kernel_of(library, name)
        self._declared = parameters
        self._parameters = _described(library, name, parameters)
        self._accepted = [(p.pointer, p.kind.decode(), p.size) for p in self._parameters]
        self._offsets = (ctypes.c_uint * len(parameters.offsets))(*parameters.offsets)
        self._launch = launch
        self._next_seed = next_seed

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple[object, ...],
        *,
        shared_mem: int = 0,
    ) -> None:
        """Runs to the end. `shared_mem` is the block's dynamic shared memory in bytes."""
        values = self._declared.flattened(args)
        items = (_Argument * len(values))()
        packed = ctypes.create_string_buffer(max(1, self._declared.size))
        for position, value in enumerate(values):
            parameter, offset = self._parameters[position], self._declared.members[position].offset
            if isinstance(value, np.ndarray) and value.shape:
                self._check_array(position, value)
                items[position] = _Argument(parameter, offset, _address(value), value.nbytes)
            else:
                items[position] = _Argument(parameter, offset, None, 0)
                if value is not None or not parameter.pointer:
                    self._pack_number(position, value, packed, offset)
        arguments = _Arguments(
            items,
            len(values),
            ctypes.cast(packed, ctypes.c_char_p),
            self._offsets,
            len(self._offsets),
        )
        seed = self._next_seed()
        shape = _Shape(
            _extent(self.name, "grid", grid, _MOST_GRID),
            _extent(self.name, "block", block, _MOST_BLOCK),
            shared_mem,
            seed,
        )
        if math.prod(block) > _MOST_THREADS:
            raise ValueError(f"{self.name}: block={block} has more than {_MOST_THREADS} threads")
        if not 0 <= shared_mem <= _MOST_SHARED:
            raise ValueError(
                f"{self.name}: shared_mem={shared_mem} is not from 0 to {_MOST_SHARED}"
            )
        fault = _Fault()
        if not self._launch(
            ctypes.byref(self._table),
            ctypes.byref(self._kernel),
            ctypes.byref(shape),
            ctypes.byref(arguments),
            ctypes.byref(fault),
        ):
            raise KernelFault(self._describe(fault, seed))

    def _check_array(self, position: int, array: np.ndarray[Any, Any]) -> None:
        pointer, kind, size = self._accepted[position]
        dtype = array.dtype
        fits = kind == "v" or (
            dtype.itemsize == size if kind == "V" else (dtype.kind, dtype.itemsize) == (kind, size)
        )
        if kind == "V" and not fits:  # consecutive numbers may be the members of structs
            fits = size % dtype.itemsize == 0 and array.nbytes % size == 0
        if not (pointer and fits):
            raise self._refusal(position, f"an array of {dtype}")
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            raise self._refusal(position, "an array that is not contiguous")
        if not (array.flags.writeable or self._parameters[position].constant):
            raise self._refusal(position, "a read-only array, and the parameter is not const")

    def _pack_number(self, position: int, value: Any, packed: Any, offset: int) -> None:
        member = self._declared.members[position]
        if self._accepted[position][0] or not member.takes(value):
            raise self._refusal(position, f"{type(value).__name__} {value!r}")
        struct.pack_into(f"={member.code}", packed, offset, value)

    def _refusal(self, position: int, got: str) -> TypeError:
        return TypeError(
            f"{self.name}: argument {position} must be {self._parameters[position]}, got {got}"
        )

    def _describe(self, fault: _Fault, seed: int) -> str:
        text = f"{self.name}: {fault.message.decode()}"
        if fault.instruction:
            text += _source_line(fault.instruction, self._library)
        if fault.in_thread:
            text += f", in block {tuple(fault.block)}, thread {tuple(fault.thread)}"
        return f"{text} (launch seed {seed})" if seed else text


class CpuLoader:
    """Compiles kernel files for the CPU: ``CpuLoader()(file)(name expression)`` is a kernel.

    order   ``forward`` or ``shuffled``; see the module
    seed    of the first shuffled launch; each later one has another
    source  file name → text, and `names`: file name → its kernels' name expressions
    cache   where libraries are kept, by the hash of everything that goes into them

    Safe to use from several threads; the launches of one process run one at a time.
    """

    def __init__(
        self,
        order: Literal["forward", "shuffled"] = "forward",
        seed: int = 1,
        *,
        source: Callable[[str], str] = loader.source,
        names: Callable[[str], Sequence[str]] = loader.kernels,
        cache: Path = CACHE,
    ) -> None:
        if order not in ("forward", "shuffled"):
            raise ValueError(f"order: {order!r} is neither 'forward' nor 'shuffled'")
        launches = itertools.count(seed)
        # the machine takes 0 for forward
        self._next_seed = (
            (lambda: 0) if order == "forward" else (lambda: 1 + next(launches) % (2**63))
        )
        self._source = source
        self._names = names
        self._cache = cache

    def prepare(self, name: str) -> None:
        """Compiles a file of kernels, unless another process does."""
        source, expressions = self._source(name), tuple(self._names(name))
        _kernels(self._cache, runtime_library(self._cache), name, source, expressions, waits=False)

    def __call__(self, name: str) -> Callable[[str], CompiledKernel]:
        source, expressions = self._source(name), tuple(self._names(name))
        runtime, library = _load(self._cache, name, source, expressions)
        launch = runtime.cuda_on_cpu_launch
        launch.restype = ctypes.c_bool
        parameters = _parameters_of(source, expressions)

        def kernel(expression: str) -> CompiledKernel:
            if expression not in expressions:
                raise KeyError(f"{expression!r} is not among {name}'s kernels {list(expressions)}")
            declared = parameters[expression]
            return CompiledKernel(expression, library, declared, launch, self._next_seed)

        return kernel


# each backend of a process asks for all kernels
_parameters_of = functools.cache(parameters_of)


@functools.cache
def _kernel_of(library: ctypes.CDLL, name: str) -> tuple[_Library, _Kernel]:
    table = _Library.in_dll(library, "cuda_on_cpu_library")
    kernels = (table.kernels[at] for at in range(table.count))
    return table, next(kernel for kernel in kernels if kernel.name.decode() == name)


@functools.cache
def _described(library: ctypes.CDLL, name: str, declared: Parameters) -> list[_Parameter]:
    """What the compiler says of each parameter, with the members of structs, as they are declared,
    in place of structs.
    """
    found: list[_Parameter] = []
    ends = [*declared.offsets[1:], declared.size]
    _, kernel = _kernel_of(library, name)
    described = [kernel.parameters[at] for at in range(kernel.count)]
    for parameter, offset, end in zip(described, declared.offsets, ends, strict=True):
        own = [each for each in declared.members if offset <= each.offset < end]
        members = [_parameter_of(each) for each in own]
        if parameter.kind == b"V" and not parameter.pointer:
            fits = offset + parameter.size <= end < offset + parameter.size + 8
            found += members
        else:
            fits = len(own) == 1 and _same(parameter, members[0])
            found.append(parameter)
        if not fits:
            raise TypeError(f"{name}: {own[0].name} is no {parameter}")
    return found


def require_compiler() -> None:
    """Without g++ a test is skipped; in CI, where ``CI`` is set, it fails."""
    if shutil.which("g++") is None:
        missing("g++ is not installed: kernels cannot be run on the CPU")


def missing(reason: str) -> NoReturn:
    """Skips the test because a tool is missing; in CI, where ``CI`` is set, fails it."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


_lock = threading.Lock()


def _load(
    cache: Path, name: str, source: str, names: tuple[str, ...]
) -> tuple[ctypes.CDLL, ctypes.CDLL]:
    with _lock:
        runtime = runtime_library(cache)
        return _open(runtime), _open(_kernels(cache, runtime, name, source, names))


@functools.cache
def _open(path: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(path))


@functools.cache
def runtime_library(cache: Path) -> Path:
    files = sorted((HERE / "runtime").iterdir())
    units = [file for file in files if file.suffix == ".cpp"]
    return _built(
        cache,
        "runtime",
        [file.read_text() for file in files],
        lambda folder: _link(
            folder,
            *(
                _compile(folder, unit, "-O2", "-Wall", "-Wextra", "-fvisibility=default")
                for unit in units
            ),
        ),
    )


@functools.cache
def _precompiled_header(cache: Path) -> Path:
    """Of all kernels: to parse it takes as long as to compile a small one."""

    def build(folder: Path) -> Path:
        header, compiled = HERE / "include" / "cuda_on_cpu.hpp", folder / "header.gch"
        flags = (*_FLAGS, *_CHECKED, f"-I{HERE / 'include'}")
        _run(folder, "g++", *flags, "-x", "c++-header", str(header), "-o", str(compiled))
        return compiled

    return _built(cache, "cuda_on_cpu", [], build, suffix=".hpp.gch")


def _kernels(
    cache: Path,
    runtime: Path,
    name: str,
    source: str,
    names: tuple[str, ...],
    waits: bool = True,
) -> Path:
    source = _DYNAMIC_SHARED.sub(_dynamic_shared, source)
    table = "\n".join(
        f'    cuda_on_cpu::Erased<&{expression}>::described("{expression}"),'
        for expression in names
    )
    unit = f"""#include "{name}.cu"

static const cuda_on_cpu::Kernel all_kernels[] = {{
{table}
}};
static char* shared_memory() {{
    static thread_local char anchor;
    return &anchor;
}}
extern "C" __attribute__((visibility("default")))
const cuda_on_cpu::Library cuda_on_cpu_library = {{all_kernels, {len(names)}, shared_memory}};
"""

    header = str(_precompiled_header(cache).with_suffix(""))

    def build(folder: Path) -> Path:
        (folder / f"{name}.cu").write_text(source)
        (folder / "unit.cpp").write_text(unit)
        compiled = _compile(folder, Path("unit.cpp"), "-include", header, "-I.", *_CHECKED)
        beside = f"-L{runtime.parent}", f"-l:{runtime.name}", "-Wl,-rpath,$ORIGIN"
        return _link(folder, compiled, *beside)

    return _built(cache, name, [runtime.name, source, unit], build, waits)


def _dynamic_shared(declaration: re.Match[str]) -> str:
    # g++ has no array without a length whose address is known only at launch; keeps the line count
    kind, name = declaration["type"], declaration["name"]
    lines = "\n" * declaration[0].count("\n")
    return (
        f"{kind}* const {name} = static_cast<{kind}*>(cuda_on_cpu::dynamic_shared_memory());{lines}"
    )


def _built(
    cache: Path,
    name: str,
    inputs: list[str],
    build: Callable[[Path], Path],
    waits: bool = True,
    suffix: str = ".so",
) -> Path:
    """waits: for another process that builds it; otherwise it may not be there yet"""
    digest = hashlib.sha256()
    for text in (_compiler(), *_FLAGS, *_CHECKED, *_headers(), *inputs):
        digest.update(f"{len(text)}:{text}".encode())
    path = cache / f"{name}-{digest.hexdigest()[:24]}{suffix}"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        # of several processes one compiles it, and the others wait
        with path.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return path
            if not path.exists():
                with tempfile.TemporaryDirectory(dir=cache) as folder:
                    os.replace(build(Path(folder)), path)
    return path


@functools.cache
def _headers() -> list[str]:
    files = sorted(file for file in (HERE / "include").rglob("*") if file.is_file())
    return [file.read_text() for file in files]


@functools.cache
def _compiler() -> str:
    return subprocess.run(
        ["g++", "--version"], capture_output=True, text=True, check=True
    ).stdout.splitlines()[0]


def _compile(folder: Path, unit: Path, *flags: str) -> str:
    compiled = f"{unit.stem}.o"
    _run(folder, "g++", *_FLAGS, *flags, f"-I{HERE / 'include'}", "-c", str(unit), "-o", compiled)
    return compiled


def _link(folder: Path, *inputs: str) -> Path:
    # without -fsanitize: the sanitizer's runtime would end the process, ours ends the launch
    _run(folder, "g++", "-shared", "-pthread", "-o", "library.so", *inputs)
    return folder / "library.so"


def _run(folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")


def _parameter_of(member: Member) -> _Parameter:
    """A member of a struct; what points to other types than numbers is "any type"."""
    try:
        dtype = np.dtype(replace(member, pointer=False).code)
    except KeyError:
        return _Parameter(1, b"v", member.pointer, member.constant)
    return _Parameter(dtype.itemsize, dtype.kind.encode(), member.pointer, member.constant)


def _same(described: _Parameter, declared: _Parameter) -> bool:
    any_type = b"v" in (described.kind, declared.kind)
    kinds = [(each.kind, each.size) for each in (described, declared)]
    return bool(described.pointer == declared.pointer and (any_type or kinds[0] == kinds[1]))


def _address(array: np.ndarray[Any, Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _extent(name: str, what: str, given: tuple[int, ...], most: tuple[int, int, int]) -> Any:
    full = (*given, 1, 1, 1)[:3]
    if not 1 <= len(given) <= 3 or not all(
        1 <= extent <= limit for extent, limit in zip(full, most, strict=True)
    ):
        raise ValueError(f"{name}: {what}={given} is not 1 to 3 extents from 1 to {most}")
    return (ctypes.c_uint * 3)(*full)


def _source_line(instruction: int, library: ctypes.CDLL) -> str:
    base = _load_address(library)
    found = subprocess.run(
        ["addr2line", "--exe", library._name, hex(instruction - base)],
        capture_output=True,
        text=True,
    )
    place = found.stdout.strip().rsplit("/", 1)[-1].split(" ")[0]
    return f" at {place}" if place and not place.startswith("??") else ""


def _load_address(library: ctypes.CDLL) -> int:
    path = os.path.realpath(library._name)
    with open("/proc/self/maps") as mappings:
        return next(
            int(line.split("-")[0], 16) for line in mappings if line.rstrip().endswith(path)
        )
