"""Builds programs of others from checkouts of their repositories."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Program:
    """An executable.

    checkout  the folder of the repository
    source    what has `main`, here or in the checkout
    options   of nvcc; `{}` is the checkout
    changes   file, pattern and replacement of what the compiler or the device no longer has
    """

    checkout: str
    source: str
    options: str
    changes: Sequence[tuple[str, str, str]] = ()


_GUNROCK = (
    "--extended-lambda --expt-relaxed-constexpr -D__HIP_PLATFORM_NVIDIA__ -DHIP_BACKEND=1"
    ' -DSM_TARGET=90 -DESSENTIALS_BACKEND="NVIDIA" -I{}/include -I{}/include/gunrock/compat -DRANK='
)
_EXPAND = "gpu/ExpandRev.cuh"
PROGRAMS = {
    "sahu": Program("pagerank-cuda-dynamic", "sahu.cu", "-Xcompiler -fopenmp -I{}"),
    "sahu-main": Program(
        "pagerank-cuda-dynamic",
        "{}/main.cu",
        "-Xcompiler -fopenmp -DTYPE=double -DMAX_THREADS=16 -DREPEAT_METHOD=5 -DBATCH_LENGTH=5",
    ),
    "gunrock-float": Program("gunrock", "gunrock.cu", _GUNROCK + "float"),
    "gunrock-double": Program("gunrock", "gunrock.cu", _GUNROCK + "double"),
    "guo": Program(
        "dynamicppr",
        "guo.cu",
        "-I{}/gpu -I{} -I{}/util -I{}/cpu {}/Meta.cpp {}/gpu/GPUProfiler.cu",
        (
            # CUB has no votes any more
            (_EXPAND, r"cub::WarpAny\(", "any_of_warp("),
            ("gpu/StreamUpdate.cuh", r"cub::WarpAny\(", "any_of_warp("),
            # threads of a warp are in step where they are told to be, since Volta
            (_EXPAND, r"(comm\[warp_id\]\[0\] = lane_id;\s*\})", r"\1 __syncwarp();"),
            (_EXPAND, r"(size_t gather_st = comm\[warp_id\])", r"__syncwarp(); \1"),
            (_EXPAND, r"(output_warp_offset\[warp_id\] = [^;]*;\s*\})", r"\1 __syncwarp();"),
            # CUDA has this function itself, since Pascal
            ("gpu/GPUUtil.cuh", r"__device__ static double atomicAdd\([^}]*\}[^}]*\}", ""),
            # both ends are on the device
            ("gpu/SlidingGraphBuilder.cuh", "cudaMemcpyHostToHost", "cudaMemcpyDeviceToDevice"),
            ("gpu/GPUUtil.cuh", '#include "cusparse.h"', ""),
        ),
    ),
}


def commit_of(checkout: Path) -> str:
    """The commit of a checkout. Raises FileNotFoundError, CalledProcessError."""
    if (checkout / ".git").exists():
        told = subprocess.run(
            ["git", "-C", str(checkout), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            check=True,
        )
        return told.stdout.strip()
    return (checkout / "COMMIT").read_text().strip()


def changed(text: str, file: str, changes: Sequence[tuple[str, str, str]]) -> str:
    """A file with the changes to it. Raises ValueError if one does not apply."""
    for where, pattern, replacement in changes:
        if where == file:
            text, count = re.subn(pattern, replacement, text)
            if not count:
                raise ValueError(f"{file}: nothing is like {pattern}")
    return text


def build(folder: Path, name: str, architecture: str = "sm_90") -> Path:
    """The executable, built unless it is newer than its source. Raises CalledProcessError."""
    program, target = PROGRAMS[name], folder / "build" / name
    checkout = folder / program.checkout
    source = Path(program.source.format(checkout))
    source = source if source.is_absolute() else HERE / source
    if target.exists() and target.stat().st_mtime > source.stat().st_mtime:
        return target
    target.parent.mkdir(exist_ok=True)
    if program.changes:
        copy = target.with_name(f"{name}-source")
        shutil.copytree(checkout, copy, dirs_exist_ok=True)
        for file in {each[0] for each in program.changes}:
            text = (checkout / file).read_text()
            (copy / file).write_text(changed(text, file, program.changes))
        checkout = copy
    options = [each.replace("{}", str(checkout)) for each in program.options.split()]
    command = f"nvcc -arch={architecture} -std=c++17 -O3 -w -o {target} {source}".split()
    subprocess.run([*command, *options], check=True)
    return target


def built(folder: Path) -> dict[str, Path]:
    """The executables whose checkouts are there and build, side by side; names the others."""

    def attempt(name: str) -> Path | None:
        try:
            return build(folder, name)
        except subprocess.CalledProcessError:
            return None

    names = [name for name, each in PROGRAMS.items() if (folder / each.checkout).is_dir()]
    with ThreadPoolExecutor(len(PROGRAMS)) as pool:
        made = dict(zip(names, pool.map(attempt, names), strict=True))
    found = {name: path for name, path in made.items() if path}
    for name in PROGRAMS.keys() - found.keys():
        why = "it does not build" if name in made else f"no {PROGRAMS[name].checkout}"
        print(f"{name} left out: {why}", flush=True)
    return found
