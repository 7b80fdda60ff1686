"""Compiles the kernels, without a device:

python -m liverank_gpu.backends.cuda.kernels sm_80 sm_90 sm_100 sm_120

writes their machine code for these architectures into this package, so that a server starts
without compiling any. What is there is kept, what is there of other sources is removed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from liverank_gpu.backends.cuda.kernels import binaries


def main() -> None:
    parser = argparse.ArgumentParser(description="Compiles the CUDA kernels; needs no device.")
    parser.add_argument("architectures", nargs="+", metavar="ARCHITECTURE", help="like sm_90")
    parser.add_argument(
        "--out", type=Path, default=binaries.INSTALLED, help="folder; default: in this package"
    )
    arguments = parser.parse_args()
    for architecture in arguments.architectures:
        missing = binaries.missing(arguments.out, architecture)
        for unit, compiled in binaries.compile_units(missing, architecture).items():
            binaries.save(arguments.out, unit, architecture, compiled)
        binaries.remove_outdated(arguments.out, architecture)
        print(f"compiled {len(missing)} files for {architecture}")


main()
