"""The machine code of the kernels: compiled with NVRTC once for each architecture and source, and
kept in files.

FOLDER/sm_90/UNIT-DIGEST.cubin    the code; the digest is that of the source and the options
FOLDER/sm_90/UNIT-DIGEST.json     the names of the kernels in it, and the digest of the code

FOLDER is INSTALLED, in this package, or else a cache: ``liverank`` in the folder of CuPy's.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from liverank_gpu.backends.compiling import own_folder, run_compiler
from liverank_gpu.backends.cuda.kernels import nvrtc
from liverank_gpu.backends.cuda.kernels.loader import (
    COMPILE_OPTIONS,
    is_weighted,
    kernels,
    source,
    units,
)
from liverank_gpu.backends.cuda.kernels.nvrtc import Compiled
from liverank_gpu.errors import BackendUnavailable

# ---- compiling, which needs no device ----

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


# ---- the files ----

INSTALLED = Path(__file__).parent / "binaries"

_NAMES, _CODE_DIGEST = "names", "sha256"


@dataclass(frozen=True, slots=True)
class Binary:
    """The machine code of one translation unit.

    names  name expression → name in the code
    """

    path: Path
    names: dict[str, str]


def binary_of(
    unit: str,
    capability: str,
    installed: Path = INSTALLED,
    compiling: Callable[[Iterable[str], str], Mapping[str, Compiled]] = compile_units,
) -> Binary:
    """The machine code of a translation unit for a device, of compute capability ``90``.

    If it is not there, it is compiled, on all cores, with all units that graphs of its kind need
    and that are not there either. Raises as compile_source.

    installed  the folder that is looked in before the cache
    compiling  units and their architecture → the machine code of each
    """
    folders = (installed, cache_folder(), own_folder())
    found = _found(unit, capability, folders)
    if found is not None:
        return found
    missing = [
        each
        for each in units()
        if is_weighted(each) == is_weighted(unit) and _found(each, capability, folders) is None
    ]
    architecture = f"sm_{capability}"
    for each, compiled in compiling(missing, architecture).items():
        binary = _kept(each, architecture, compiled)
        if each == unit:
            found = binary
    assert found is not None
    return found


def binary_of_source(name: str, text: str, expressions: tuple[str, ...], capability: str) -> Binary:
    """The machine code of a source that is not in this package, from the cache or compiled. Raises
    as compile_apart.
    """
    architecture = f"sm_{capability}"
    digest = _digest_of(text, expressions)
    for folder in (cache_folder(), own_folder()):
        found = _valid(folder / architecture / f"{name}-{digest}.cubin", expressions)
        if found is not None:
            return found
    compiled = compile_apart(name, text, expressions, architecture)
    try:
        return _save(cache_folder() / architecture / f"{name}-{digest}.cubin", compiled)
    except OSError:  # compiled again at the next start
        return _save(own_folder() / architecture / f"{name}-{digest}.cubin", compiled)


def cache_folder() -> Path:
    """CuPy has a subfolder of its own for nothing else."""
    cupy_cache = os.environ.get("CUPY_CACHE_DIR") or Path.home() / ".cupy" / "kernel_cache"
    return Path(cupy_cache) / "liverank"


def save(folder: Path, unit: str, architecture: str, compiled: Compiled) -> Binary:
    """Writes the files of a unit; a reader sees both or none. Raises OSError."""
    return _save(_path(folder, unit, architecture), compiled)


def missing(folder: Path, architecture: str) -> list[str]:
    """The units that a folder does not have for an architecture."""
    return [
        unit for unit in units() if _valid(_path(folder, unit, architecture), kernels(unit)) is None
    ]


def remove_outdated(folder: Path, architecture: str) -> None:
    """Removes the files of earlier sources."""
    current = {_path(folder, unit, architecture).stem for unit in units()}
    for path in (folder / architecture).iterdir():
        if path.stem not in current:
            path.unlink()


def _path(folder: Path, unit: str, architecture: str) -> Path:
    return folder / architecture / f"{unit}-{_digest(unit)}.cubin"


def _save(path: Path, compiled: Compiled) -> Binary:
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = {
        _NAMES: compiled.names,
        _CODE_DIGEST: hashlib.sha256(compiled.code).hexdigest(),
    }
    _write(path.with_suffix(".json"), json.dumps(facts, indent=1).encode())
    _write(path, compiled.code)
    return Binary(path, compiled.names)


def _kept(unit: str, architecture: str, compiled: Compiled) -> Binary:
    try:
        return save(cache_folder(), unit, architecture, compiled)
    except OSError:  # compiled again at the next start
        return save(own_folder(), unit, architecture, compiled)


def _found(unit: str, capability: str, folders: tuple[Path, ...]) -> Binary | None:
    name = f"{unit}-{_digest(unit)}.cubin"
    for folder in folders:
        for architecture in _architectures(folder, capability):
            binary = _valid(folder / architecture / name, kernels(unit))
            if binary is not None:
                return binary
    return None


def _architectures(folder: Path, capability: str) -> list[str]:
    """The architectures in a folder whose code runs on a device, the best first: code runs on
    devices of the same major version, if their minor version is not lower.
    """
    major, minor = capability[:-1], capability[-1]
    minors = sorted(
        (
            found[1]
            for path in folder.glob(f"sm_{major}?")
            if (found := re.fullmatch(rf"sm_{major}(\d)", path.name)) and found[1] <= minor
        ),
        reverse=True,
    )
    return [f"sm_{major}{each}" for each in minors]


def _valid(path: Path, expressions: tuple[str, ...]) -> Binary | None:
    """None if the files are not there or damaged."""
    try:
        facts = json.loads(path.with_suffix(".json").read_bytes())
        code_digest = hashlib.sha256(path.read_bytes()).hexdigest()
        names, expected_digest = facts[_NAMES], facts[_CODE_DIGEST]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if expected_digest != code_digest or set(names) != set(expressions):
        return None
    return Binary(path, names)


def _digest(unit: str) -> str:
    return _digest_of(source(unit), kernels(unit))


def _digest_of(text: str, expressions: tuple[str, ...]) -> str:
    text = "\0".join([text, *OPTIONS, *expressions])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _write(path: Path, content: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    Path(file.name).chmod(0o644)
    Path(file.name).replace(path)
