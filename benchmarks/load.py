"""Loading a file into a new graph of a server: `liverank load`, from its start to its last ranks.

    python -m benchmarks.load [--scale N] [--other TREE]
    python -m benchmarks.load --backend cuda --scale 22 --keys integer

R-MAT edges (16 a vertex) in a Parquet file, with integer keys and with strings of the same numbers.
Server and command share the machine. With --other, another checkout loads the same files in turn.
Where others use the machine too, the processor time says more than the time.
"""

from __future__ import annotations

import resource
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


def measured(backend: str, scale: int, keys: list[str], other: Path | None) -> dict[str, Any]:
    trees = {"this": harness.ROOT} | ({"other": other} if other else {})
    figures: dict[str, Any] = {"edges": EDGES_PER_VERTEX << scale}
    with TemporaryDirectory() as folder:
        for kind, file in written(Path(folder), scale, keys).items():
            seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in trees}
            for _ in range(ROUNDS):
                for name, tree in trees.items():
                    seconds[name].append(loaded(tree, backend, file))
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
    return figures


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
        used = server.cpu_seconds + _cpu_seconds_of_children()
        wall = server.load(file, "loaded")
        return wall, server.cpu_seconds + _cpu_seconds_of_children() - used


def _cpu_seconds_of_children() -> float:
    """Of those that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    options = {"scale": 19, "keys": list(KEYS), "other": Path | None}
    harness.run(__doc__, {"load": (measured, options)}, backends=True)
