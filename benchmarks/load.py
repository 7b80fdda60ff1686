"""Loading a file into a new graph of a server: `liverank load`, from its start to its last ranks.

    python -m benchmarks.load [--scale N]
    python -m benchmarks.load --backend cuda --scale 22 --keys integer

R-MAT edges (16 a vertex) in a Parquet file, with integer keys and with strings of the same numbers.
Server and command share the machine. Where others use it too, the processor time says more than the
time.
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
from liverank.choices import KeyKind
from liverank_gpu.generate import rmat

EDGES_PER_VERTEX = 16
KEYS: tuple[KeyKind, ...] = ("integer", "string")
ROUNDS = 2


def measured(backend: str, scale: int, keys: list[str]) -> dict[str, Any]:
    figures: dict[str, Any] = {"edges": EDGES_PER_VERTEX << scale}
    with TemporaryDirectory() as folder:
        for kind, file in written(Path(folder), scale, keys).items():
            walls, processors = zip(*(loaded(backend, file) for _ in range(ROUNDS)), strict=True)
            figures[kind] = {
                "this": {
                    "seconds": [round(wall, 2) for wall in walls],
                    "cpu_seconds": [round(each, 2) for each in processors],
                    "edges_per_second": round(figures["edges"] / median(walls)),
                }
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


def loaded(backend: str, file: Path) -> tuple[float, float]:
    """Seconds of the command, with a new server on an empty directory, and processor time of
    both.
    """
    with Server.temporary(backend=backend) as server:
        used = server.cpu_seconds + _cpu_seconds_of_children()
        wall = server.load(file, "loaded")
        return wall, server.cpu_seconds + _cpu_seconds_of_children() - used


def _cpu_seconds_of_children() -> float:
    """Of those that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    options = {"scale": 19, "keys": list(KEYS)}
    harness.run(__doc__, {"load": (measured, options)}, backends=True)
