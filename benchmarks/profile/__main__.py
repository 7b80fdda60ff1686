"""Every hot kernel under Nsight Compute: what it moves beside what it has to move, and how fast.

    python -m benchmarks.profile --scale 24

Needs `ncu` on the path and the right to read the device's counters. The operations of the workload
run in a process under `ncu`, each three times: to compile everything; with an event before and
after each launch, which gives the number of launches of each kernel, its part of the operation's
time and its longest launches; then some of those launches are profiled, and nothing else. A row of
the figures is one launch: among those about as long as the longest, the one of median time. Kernels
below 0.5 % of the time of an operation are left out, and so are those of CuPy: its sorts, prefix
sums and sums.

The counters are those of the memory, the L2 cache and the schedulers, few enough to be read
together, so that a kernel seldom has to be replayed from saved memory. Instructions are not
counted, since that would patch the kernels. Caches are not flushed, as without a profiler; so what
a launch leaves in the L2 cache, 50 MB at most, is counted as written by a later one.
benchmarks.traffic says what has to be moved.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import harness
from benchmarks.profile.figures import combined
from benchmarks.profile.launches import Launches, Operation
from benchmarks.profile.nsight import parsed, profiler
from benchmarks.profile.workload import BATCHES, Workload
from liverank_gpu.backends import backend_named

COPY_RATE = 4.3e12
"""Bytes a second, read and written, of a copy on an H200: what can be achieved."""


def _run_profiled(arguments: argparse.Namespace) -> None:
    """What runs under the profiler: writes the operations to a file."""
    import cupyx.profiler

    backend = backend_named("cuda")
    launches = Launches(backend, cupyx.profiler.profile)
    sizes = Workload(backend, arguments.scale, arguments.batches, launches).run()
    document = {
        "graph": f"R-MAT {arguments.scale}",
        "sizes": asdict(sizes),
        "operations": list(map(asdict, launches.operations)),
    }
    arguments.profiled.write_text(json.dumps(document))


def main() -> None:
    parser = harness.parser("the kernels under Nsight Compute")
    parser.add_argument("--scale", type=int, default=24)
    parser.add_argument("--batches", type=int, nargs=4, default=BATCHES, help="edges of each")
    parser.add_argument("--logs", type=Path, help="folder that keeps the log; read if it is there")
    parser.add_argument("--profiled", type=Path, help="for the process under ncu: its own file")
    arguments = parser.parse_args()
    if arguments.profiled:
        _run_profiled(arguments)
        return
    with TemporaryDirectory() as temporary:
        folder = (arguments.logs or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        log, listed = folder / "ncu.log", folder / "operations.json"
        if not listed.exists():
            own = [sys.executable, "-m", "benchmarks.profile", "--profiled", str(listed)]
            own += ["--scale", str(arguments.scale), "--batches", *map(str, arguments.batches)]
            ended = subprocess.run([*profiler(log), *own], cwd=harness.ROOT)
            if ended.returncode or not listed.exists():
                said = log.read_text().splitlines()[-20:] if log.exists() else []
                raise SystemExit("\n".join(["the profiled process failed", *said]))
        text, document = log.read_text(), json.loads(listed.read_text())
    operations = [Operation(**operation) for operation in document["operations"]]
    rows = combined(operations, parsed(text))
    for row in rows:
        print(row)
    figures = {
        "graph": document["graph"],
        **document["sizes"],
        "copy_rate": COPY_RATE,
        "rows": rows,
    }
    print(harness.record("profile", "cuda", figures, arguments.results))


if __name__ == "__main__":
    main()
