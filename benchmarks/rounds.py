"""The overhead of a round of small work, by what starts it: a cooperative kernel, a CUDA graph or
the host.

Compiles rounds.cu with the nvcc on the PATH and runs it for several sizes.

    python -m benchmarks.rounds
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

from benchmarks import harness

SIZES = ((264, 1_000), (264, 60_000), (264, 1_000_000), (132, 1_000))
"""(blocks, threads of a step): two blocks a multiprocessor of an H200, and one."""

ROUNDS = (10, 100)


def main() -> None:
    parser = argparse.ArgumentParser(description="the overhead of a round, by what starts it")
    parser.add_argument("--results", type=Path, default=harness.RESULTS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "rounds"
        code = Path(__file__).with_suffix(".cu")
        compiled = ["nvcc", "-O3", "-std=c++17", "-arch=native", "-rdc=true"]
        subprocess.run([*compiled, str(code), "-o", str(program), "-lcudadevrt"], check=True)
        rows = []
        for blocks, threads in SIZES:
            for rounds in ROUNDS:
                command = [str(program), str(blocks), str(rounds), str(threads)]
                row = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
                rows.append(row)
                print(row, flush=True)
    print(harness.record("rounds", "cuda", rows, arguments.results))


if __name__ == "__main__":
    main()
