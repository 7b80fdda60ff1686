"""Builds the wheels of a release into dist/, and checks them:

    python -m tools.wheels

One is for x86_64, for old and new processors, and one for aarch64, each for Linux with glibc 2.28
or later. Both have the machine code of the CUDA kernels for `ARCHITECTURES`. Neither a GPU nor a
processor of the other kind is needed; pip fetches the compilers: ziglang for each wheel, NVRTC into
build/nvrtc. What has been compiled is kept in build/.

    python -m tools.wheels --cubins FOLDER    with machine code that is there already
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import venv
import zipfile
from collections import Counter
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"

ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "sm_120")
"""Devices of compute capability 8.x, 9.x, 10.x and 12.x."""

NVRTC = (
    "numpy",
    "cuda-bindings==12.9.*",
    *(f"nvidia-cuda-{part}-cu12==12.9.*" for part in ("cccl", "nvrtc", "runtime")),
)
"""Drivers of CUDA 12 do not load what a later NVRTC compiles; those of CUDA 13 load this too."""

PLATFORMS = {
    "x86_64": (b"\x3e\0", ["_kernels_v2.abi3.so", "_kernels_v3.abi3.so"]),
    "aarch64": (b"\xb7\0", ["_kernels.abi3.so"]),
}
"""The machine in the header of a library, and the libraries."""

_GLIBC = (2, 28)


def compile_cubins() -> Path:
    """Compiles the CUDA kernels that are not compiled yet; returns the folder."""
    folder = BUILD / "nvrtc"
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *NVRTC], check=True)
    # without which the engine is not imported
    subprocess.run([sys.executable, "-P", ROOT / "gpu" / "hatch_build.py"], check=True)
    module = "liverank_gpu.backends.cuda.kernels"
    subprocess.run(
        [python, "-P", "-m", module, *ARCHITECTURES, "--out", BUILD / "cubins"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "gpu")},
        check=True,
    )
    return BUILD / "cubins"


def build(platform: str, cubins: Path, folder: Path) -> Path:
    """Builds the wheel for a platform; returns its path."""
    for earlier in folder.glob(f"*_{platform}.whl"):
        earlier.unlink()
    pip = [sys.executable, "-m", "pip"]
    command = [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    given = {"LIVERANK_PLATFORM": platform, "LIVERANK_CUBINS": str(cubins)}
    subprocess.run(command, env={**os.environ, **given}, check=True)
    (wheel,) = folder.glob(f"*_{platform}.whl")
    return wheel


def faults(wheel: Path, platform: str) -> list[str]:
    """What a wheel lacks, or has that does not run on every machine of its platform."""
    found = []
    if not wheel.name.endswith(f"-cp311-abi3-manylinux_2_28_{platform}.whl"):
        found.append(f"it is called {wheel.name}")
    machine, expected = PLATFORMS[platform]
    cubins: Counter[str] = Counter()
    libraries = []
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            path = PurePosixPath(name)
            if path.suffix == ".cubin":
                cubins[path.parent.name] += 1
            elif path.suffix == ".so":
                libraries.append(path.name)
                found += (f"{name} {fault}" for fault in _misfits(archive.read(name), machine))
    if sorted(libraries) != expected:
        found.append(f"its libraries are {sorted(libraries)}, not {expected}")
    if set(cubins) != set(ARCHITECTURES) or len(set(cubins.values())) != 1:
        found.append(f"it has machine code for {dict(cubins)}")
    return found


def _misfits(library: bytes, machine: bytes) -> list[str]:
    found = []
    if library[18:20] != machine:
        found.append("is for another machine")
    versions = {
        (int(major), int(minor)) for major, minor in re.findall(rb"GLIBC_(\d+)\.(\d+)", library)
    }
    if max(versions) > _GLIBC:
        found.append(f"needs glibc {max(versions)}")
    if b"libstdc++.so" in library:
        found.append("needs libstdc++")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Builds the wheels of a release, and checks them.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder; default: dist")
    parser.add_argument("--cubins", type=Path, help="folder with machine code of the CUDA kernels")
    arguments = parser.parse_args()
    cubins = arguments.cubins or compile_cubins()
    for platform in PLATFORMS:
        wheel = build(platform, cubins, arguments.out)
        if found := faults(wheel, platform):
            sys.exit(f"{wheel}: {'; '.join(found)}")
        print(f"{wheel}  {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
