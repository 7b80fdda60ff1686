"""Loading a file into a new graph of a server: `liverank load`, from its start to its last ranks.

    python -m benchmarks.load [--scale N] [--other TREE]
    python -m benchmarks.load --backend cuda --scale 22 --keys integer

R-MAT edges (16 a vertex) in a Parquet file, with integer keys and with strings of the same numbers.
Server and command share the machine. With --other, another checkout loads the same files in turn.
Where others use the machine too, the processor time says more than the time.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from benchmarks import harness
from benchmarks.server import Server
from liverank_gpu.generate import rmat

EDGES_PER_VERTEX = 16
KEYS = ("integer", "string")
ROUNDS = 2


def main() -> None:
    parser = harness.parser("edges a second of `liverank load`", backends=True)
    parser.add_argument("--scale", type=int, default=19, help="2^scale vertices")
    parser.add_argument("--keys", nargs="+", choices=KEYS, default=KEYS, help="kinds of keys")
    parser.add_argument("--other", type=Path, help="another checkout, to compare with")
    arguments = parser.parse_args()
    trees = {"this": harness.ROOT} | ({"other": arguments.other} if arguments.other else {})
    figures: dict[str, Any] = {"edges": EDGES_PER_VERTEX << arguments.scale}
    with TemporaryDirectory() as folder:
        files = written(Path(folder), arguments.scale, arguments.keys)
        for kind, file in files.items():
            seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in trees}
            for _ in range(ROUNDS):
                for name, tree in trees.items():
                    seconds[name].append(loaded(tree, arguments.backend, file))
            figures[kind] = {
                name: {
                    "seconds": [round(wall, 2) for wall, _ in of_tree],
                    "cpu_seconds": [round(cpu, 2) for _, cpu in of_tree],
                    "edges_per_second": round(
                        figures["edges"] / median(wall for wall, _ in of_tree)
                    ),
                }
                for name, of_tree in seconds.items()
            }
            print(json.dumps({kind: figures[kind]}))
    print(harness.record("load", arguments.backend, figures, arguments.results))


def written(folder: Path, scale: int, kinds: Sequence[str]) -> dict[str, Path]:
    """The same edges with each kind of keys."""
    columns = rmat(scale, EDGES_PER_VERTEX, seed=1)
    files = {}
    for kind in kinds:
        keys = [pa.array(np.asarray(column, np.int64)) for column in columns]
        if kind == "string":
            keys = [pc.binary_join_element_wise("v", each.cast(pa.string()), "") for each in keys]
        files[kind] = folder / f"{kind}.parquet"
        pyarrow.parquet.write_table(pa.table(keys, names=["source", "target"]), files[kind])
    return files


def loaded(tree: Path, backend: str, file: Path) -> tuple[float, float]:
    """Seconds of the command, with a new server on an empty directory, and processor time of
    both.
    """
    with Server.temporary(tree, backend) as server:
        command = [
            sys.executable,
            "-m",
            "liverank",
            "load",
            str(file),
            "--graph",
            "loaded",
        ]
        used = server.cpu_seconds + _cpu_seconds_of_children()
        began = time.perf_counter()
        subprocess.run(
            [*command, "--url", server.url],
            cwd=tree,
            env=harness.environment_of(tree),
            check=True,
            stdout=subprocess.DEVNULL,
        )
        wall = time.perf_counter() - began
        return wall, server.cpu_seconds + _cpu_seconds_of_children() - used


def _cpu_seconds_of_children() -> float:
    """Of those that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
